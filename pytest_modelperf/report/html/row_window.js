// A table that scrolls in its own window: only the rows in view are in the document.
modelperf.rowWindow = (() => {
  "use strict";

  const { el } = modelperf;
  const { wholeText } = modelperf.figures;
  const { note } = modelperf.tables;

  const MARGIN_ROWS = 12;
  const PRINTED_ROWS = 100;

  class RowWindow {
    element;
    table;
    #makeRow;
    #afterDrawing;
    #rows = [];
    #columns = 1;
    #body = el("tbody", {});
    #window;
    #none;
    #printNote = el("p", { class: "print-note" });
    #rowHeight = 30;
    #drawn = "";
    #isOnPaper = false;

    // `makeRow` makes the line of a row at its index; `none` is the text if there is no row. If
    // rows can be chosen, the table is a grid and takes the keys; else the window does, to scroll.
    // `afterDrawing` is called whenever the lines in the document change.
    constructor(label, makeRow, none, { isGrid = false, afterDrawing = () => {} } = {}) {
      this.#makeRow = makeRow;
      this.#afterDrawing = afterDrawing;
      this.#none = note(none);
      const named = { tabindex: "0", "aria-label": label };
      this.table = el(
        "table",
        { class: "kernels-table", ...(isGrid ? { role: "grid", ...named } : {}) },
        this.#body,
      );
      this.#window = el(
        "div",
        { class: "layers-scroll kernels-window", ...(isGrid ? {} : { role: "region", ...named }) },
        this.table,
        this.#none,
      );
      this.#window.addEventListener("scroll", () => this.#render(), { passive: true });
      this.element = el("div", {}, this.#window, this.#printNote);
      // Also when the table is first shown, or a phone is turned.
      new ResizeObserver(() => this.#draw()).observe(this.#window);
    }

    // The number of rows of a page down.
    get pageRows() {
      return Math.max(1, Math.floor(this.#window.clientHeight / this.#rowHeight) - 2);
    }

    // Changes the columns: each has the class of its width, and may have the characters of its
    // longest text.
    setHead(head, columns) {
      this.#columns = columns.length;
      const cols = columns.map(({ width, chars = 0 }) =>
        el("col", { class: `width-${width}`, style: `--chars: ${chars}` }));
      this.table.replaceChildren(el("colgroup", {}, ...cols), head, this.#body);
    }

    // Tells the style sheet about the rows.
    mark(name) {
      this.#window.classList.add(name);
    }

    show(rows) {
      this.#rows = rows;
      this.table.setAttribute("aria-rowcount", rows.length + 1);
      this.#none.hidden = rows.length > 0;
      this.#window.scrollTop = 0;
      if (this.#isOnPaper) this.showForPrint();
      else this.#draw();
    }

    bringIntoView(index) {
      const head = this.table.tHead.getBoundingClientRect().height;
      const top = index * this.#rowHeight;
      const room = this.#window.clientHeight - head - this.#rowHeight;
      if (top < this.#window.scrollTop) this.#window.scrollTop = top;
      else if (top > this.#window.scrollTop + room) this.#window.scrollTop = top - room;
      this.#render();
    }

    // The height of the window in rows; it stays when a filter leaves fewer.
    reserve(count) {
      this.#window.style.setProperty("--rows", count);
    }

    showForPrint() {
      this.#isOnPaper = true;
      const printed = this.#rows.slice(0, PRINTED_ROWS);
      this.#body.replaceChildren(...printed.map((row, index) => this.#line(row, index)));
      const isCut = this.#rows.length > printed.length;
      this.#printNote.textContent = isCut
        ? `The first ${PRINTED_ROWS} of ${wholeText(this.#rows.length)} layers.`
        : "";
    }

    showForScreen() {
      this.#isOnPaper = false;
      this.#draw();
    }

    #draw() {
      this.#drawn = "";
      this.#render();
    }

    // On paper the table grows, but has only its first rows.
    #render() {
      if (this.#isOnPaper) return;
      const { scrollTop, clientHeight } = this.#window;
      const inView = Math.ceil(clientHeight / this.#rowHeight);
      const top = Math.floor(scrollTop / this.#rowHeight);
      const first = Math.max(0, Math.min(top, this.#rows.length - inView) - MARGIN_ROWS);
      const end = Math.min(this.#rows.length, top + inView + MARGIN_ROWS);
      const drawn = `${first} ${end}`;
      if (drawn === this.#drawn) return;
      this.#drawn = drawn;
      const rows = this.#rows.slice(first, end);
      this.#body.replaceChildren(
        this.#spacer(first),
        ...rows.map((row, index) => this.#line(row, first + index)),
        this.#spacer(this.#rows.length - end),
      );
      this.#measure();
      this.#afterDrawing();
    }

    // The style sheet sets the height of a row; fonts and zoom may change it.
    #measure() {
      const line = this.#body.querySelector("tr:not(.spacer)");
      const height = line?.getBoundingClientRect().height;
      if (!height || Math.abs(height - this.#rowHeight) < 0.01) return;
      this.#rowHeight = height;
      this.#draw();
    }

    #line(row, index) {
      const line = this.#makeRow(row, index);
      line.setAttribute("aria-rowindex", index + 2);
      return line;
    }

    #spacer(count) {
      const row = el("tr", { class: "spacer", "aria-hidden": "true" });
      const cell = el("td", { colspan: this.#columns });
      cell.style.height = `${count * this.#rowHeight}px`;
      row.hidden = count === 0;
      row.append(cell);
      return row;
    }
  }

  return { RowWindow };
})();
