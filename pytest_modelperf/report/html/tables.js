// Tables that any column sorts. Those with many rows scroll in a window of their own: only the rows
// in view are in the document.
modelperf.tables = (() => {
  "use strict";

  const { choose, chosen, el, isPrinting } = modelperf;
  const { changeText, isKnown, rangeText, shareText, tone, wholeText } = modelperf.figures;

  const MARGIN_ROWS = 12;
  const PRINTED_ROWS = 100;
  // Fewer rows are not worth a fold.
  const MANY_STILL = 3;

  // Names may change the direction of writing; their own element limits that to them.
  const nameText = (text) => el("bdi", { text });

  const note = (text) => el("p", { class: "layers-note", text });

  // Pairs of a word and a text, each of which may be an element.
  const factList = (facts) => el("dl", { class: "facts" }, facts.flatMap(([word, text]) =>
    [el("dt", {}, word), el("dd", {}, typeof text === "string" ? nameText(text) : text)]));

  // Digits are compared as numbers, so that layer2 comes before layer10.
  const textKey = (text) =>
    text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0"));

  // Unknown values come last in both directions; equal values keep their order.
  function sortedBy(rows, read, isDescending) {
    const sign = isDescending ? -1 : 1;
    const keyed = rows.map((row) => {
      const value = read(row);
      return { row, key: typeof value === "string" ? textKey(value) : value };
    });
    keyed.sort((one, other) => {
      if (!isKnown(one.key) || !isKnown(other.key)) return isKnown(other.key) - isKnown(one.key);
      if (one.key === other.key) return 0;
      return one.key < other.key ? -sign : sign;
    });
    return keyed.map(({ row }) => row);
  }

  // A text that a spreadsheet would run as a formula begins with an apostrophe.
  function csvCell(value) {
    const text = typeof value === "string" ? value.replace(/^[=+\-@\t\r]/, "'$&") : String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  // A button that saves the lines of values that `read` returns as a file.
  function saveButton(name, read) {
    const save = () => {
      const text = read().map((line) => `${line.map(csvCell).join()}\r\n`).join("");
      const file = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      el("a", { href: file, download: `${name}.csv` }).click();
      setTimeout(() => URL.revokeObjectURL(file));
    };
    return el("button", {
      type: "button", class: "save", text: "CSV", title: `Save as ${name}.csv`, on: { click: save },
    });
  }

  const cellsButton = (name, table) => saveButton(name.replace(/\W+/g, "-"), () =>
    [...table.rows].map(({ cells }) => [...cells].flatMap((cell) =>
      [cell.textContent.trim(), ...Array(cell.colSpan - 1).fill("")])));

  // A table that was there before any script is saved as it reads; that of a closed case gets its
  // button when it is opened.
  function addButtons(root) {
    for (const table of root.querySelectorAll("main .scroll > table:not(.saved)")) {
      if (!table.tHead || table.closest("details:not([open])")) continue;
      table.classList.add("saved");
      table.parentElement.after(cellsButton(table.caption?.textContent ?? "table", table));
    }
  }
  addEventListener("DOMContentLoaded", () => addButtons(document));
  // A toggle does not bubble.
  addEventListener("toggle", ({ target }) => addButtons(target), true);

  // Columns with `read` sort: text ascending first, numbers descending. `cell` makes the cell of a
  // row. `select` returns the rows to show, and `lineOf` may make their lines in another way. The
  // address keeps how the table is sorted under the name `kept`. Rows that are `still` are one row,
  // called `stillText`, until a reader opens it.
  class SortableTable {
    table;
    columns = [];
    body = el("tbody", {});
    lineOf;
    #sort;
    #select;
    #kept;
    #still;

    constructor({
      sort, select, kept, still = () => false, stillText = "", lineOf = (row) => this.line(row),
      ...attributes
    }) {
      this.#kept = kept;
      this.#still = { holds: still, text: stillText };
      const [, id, way] = /^(.+)\.(up|down)$/.exec((kept && chosen(kept)) ?? "") ?? [];
      this.#sort = id ? { id, isDescending: way === "down" } : sort;
      this.#select = select;
      this.lineOf = lineOf;
      this.table = el("table", attributes);
    }

    // If the column that sorts goes, the `spare` one takes its place.
    setColumns(columns, spare = null, foot = null) {
      this.columns = columns;
      if (spare && !columns.some(({ id }) => id === this.#sort.id)) {
        this.#sort = { id: spare, isDescending: true };
      }
      const cells = columns.map((column) => this.#headCell(column));
      this.table.replaceChildren(el("thead", {}, el("tr", {}, ...cells)), this.body);
      if (foot) this.table.append(foot);
      this.#markSorted();
      this.update();
    }

    update() {
      const { holds, text } = this.#still;
      const rows = this.#sorted();
      const others = rows.filter((row) => !holds(row));
      const count = rows.length - others.length;
      const isFolded = count >= MANY_STILL && others.length > 0;
      this.show(isFolded ? [...others, { folded: count, foldText: `${wholeText(count)} ${text}` }] : rows);
    }

    unfold() {
      this.#still.holds = () => false;
      this.update();
    }

    // The line of a row, or of those that are folded into one.
    lineFor(row, index) {
      if (!row.foldText) return this.lineOf(row, index);
      const open = { type: "button", class: "link", text: row.foldText };
      return el("tr", { class: "folded" }, el("td", { colspan: this.columns.length },
        el("button", { ...open, on: { click: () => this.unfold() } })));
    }

    #sorted() {
      const column = this.columns.find(({ id }) => id === this.#sort.id);
      const rows = this.#select();
      return column?.read ? sortedBy(rows, column.read, this.#sort.isDescending) : rows;
    }

    show(rows) {
      this.body.replaceChildren(...rows.map((row, index) => this.lineFor(row, index)));
    }

    // A button that saves the rows that are shown, with plain values, as a file.
    csvButton(name) {
      return saveButton(name, () => {
        const read = this.columns.filter((column) => column.read);
        const rows = this.#sorted().map((row) => read.map((column) => column.read(row)));
        return [read.map(({ title }) => title), ...rows];
      });
    }

    // What is not a layer is pale. The cells of cards have the titles of their columns.
    line(row, attributes = {}, columns = this.columns) {
      const name = row.is_layer === false ? "beside" : "";
      const isCard = this.table.classList.contains("cards");
      return el("tr", { class: name, ...attributes }, ...columns.map(({ cell, title }) => {
        const made = cell(row);
        if (isCard && title && made.tagName === "TD") made.dataset.title = title;
        return made;
      }));
    }

    #headCell(column) {
      // A column without a title has no heading, which a screen reader would announce as empty.
      const [tag, scope] = column.title ? ["th", "col"] : ["td", null];
      const cell = el(tag, { scope, class: column.isText ? "text" : "number", title: column.note });
      cell.append(column.read ? el("button", {
        type: "button", class: "sort", text: column.title, "data-column": column.id,
        on: { click: () => this.#sortBy(column) },
      }) : column.title);
      return cell;
    }

    #sortBy({ id, isText }) {
      const isDescending = this.#sort.id === id ? !this.#sort.isDescending : !isText;
      this.#sort = { id, isDescending };
      if (this.#kept) choose({ [this.#kept]: `${id}.${isDescending ? "down" : "up"}` });
      this.#markSorted();
      this.update();
    }

    #markSorted() {
      const cells = this.table.tHead.rows[0].cells;
      this.columns.forEach(({ id, read }, index) => {
        const isSorted = Boolean(read) && id === this.#sort.id;
        const direction = this.#sort.isDescending ? "descending" : "ascending";
        if (isSorted) cells[index].setAttribute("aria-sort", direction);
        else cells[index].removeAttribute("aria-sort");
      });
    }
  }

  // Its part calls `draw` for paper too, on which it has its first rows only.
  class RowWindow extends SortableTable {
    element;
    shown = [];
    #afterDrawing;
    #window;
    #none;
    #printNote = el("p", { class: "print-note" });
    #rowHeight = 30;
    #drawn = "";

    // `none` is the text of a table without rows. If rows can be chosen, the table is a grid and
    // takes the keys; else the window does, to scroll. `afterDrawing` is called whenever the lines
    // in the document change.
    constructor(label, none, { isGrid = false, afterDrawing = () => {}, ...options }) {
      const named = { tabindex: "0", "aria-label": label };
      const grid = isGrid ? { role: "grid", ...named } : {};
      super({ class: "kernels-table sticky-head", ...grid, ...options });
      this.#afterDrawing = afterDrawing;
      this.#none = note(none);
      this.#window = el("div",
        { class: "layers-scroll kernels-window", ...(isGrid ? {} : { role: "region", ...named }) },
        this.table, this.#none);
      this.#window.addEventListener("scroll", () => this.#render(), { passive: true });
      this.element = el("div", {}, this.#window, this.#printNote);
      // Also when the table is first shown, or a phone is turned.
      new ResizeObserver(() => this.draw()).observe(this.#window);
    }

    // The number of rows of a page down.
    get pageRows() {
      return Math.max(1, Math.floor(this.#window.clientHeight / this.#rowHeight) - 2);
    }

    // Each column has the class of its width, and may have the characters of its longest text.
    setColumns(columns, spare) {
      super.setColumns(columns, spare);
      this.table.prepend(el("colgroup", {}, ...columns.map(({ width, chars = 0 }) =>
        el("col", { class: `width-${width}`, style: `--chars: ${chars}` }))));
    }

    // Adds a class about the rows, for the style sheet.
    mark(name) {
      this.#window.classList.add(name);
    }

    show(rows) {
      this.shown = rows;
      this.table.setAttribute("aria-rowcount", rows.length + 1);
      this.#none.hidden = rows.length > 0;
      this.#window.scrollTop = 0;
      this.draw();
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

    draw() {
      this.#drawn = "";
      if (isPrinting()) this.#drawForPaper();
      else this.#render();
    }

    #drawForPaper() {
      const printed = this.shown.slice(0, PRINTED_ROWS);
      this.body.replaceChildren(...printed.map((row, index) => this.#numbered(row, index)));
      const isCut = this.shown.length > printed.length;
      const count = this.shown.reduce((total, { folded = 1 }) => total + folded, 0);
      this.#printNote.textContent = isCut
        ? `The first ${PRINTED_ROWS} of ${wholeText(count)} layers.` : "";
    }

    #render() {
      if (isPrinting()) return;
      const { scrollTop, clientHeight } = this.#window;
      const inView = Math.ceil(clientHeight / this.#rowHeight);
      const top = Math.floor(scrollTop / this.#rowHeight);
      const first = Math.max(0, Math.min(top, this.shown.length - inView) - MARGIN_ROWS);
      const end = Math.min(this.shown.length, top + inView + MARGIN_ROWS);
      const drawn = `${first} ${end}`;
      if (drawn === this.#drawn) return;
      this.#drawn = drawn;
      const rows = this.shown.slice(first, end);
      this.body.replaceChildren(
        this.#spacer(first),
        ...rows.map((row, index) => this.#numbered(row, first + index)),
        this.#spacer(this.shown.length - end),
      );
      this.#measure();
      this.#afterDrawing();
    }

    // The style sheet sets the height of a row; fonts and zoom may change it.
    #measure() {
      const line = this.body.querySelector("tr:not(.spacer)");
      const height = line?.getBoundingClientRect().height;
      if (!height || Math.abs(height - this.#rowHeight) < 0.01) return;
      this.#rowHeight = height;
      this.draw();
    }

    #numbered(row, index) {
      const line = this.lineFor(row, index);
      line.setAttribute("aria-rowindex", index + 2);
      return line;
    }

    #spacer(count) {
      const style = `height: ${count * this.#rowHeight}px`;
      return el("tr", { class: "spacer", "aria-hidden": "true", hidden: count === 0 },
        el("td", { colspan: this.columns.length, style }));
    }
  }

  // A box in which a wide table scrolls, also by keys.
  const scrollBox = (label, table) => el("div",
    { class: "layers-scroll", role: "region", "aria-label": label, tabindex: "0" }, table);

  // A table that sorts in such a box, above the button that saves it.
  const sortableBox = (label, made) => el("div", {}, scrollBox(label, made.table),
    el("div", { class: "toolbar" }, made.csvButton(label.toLowerCase().replaceAll(" ", "-"))));

  const numberCell = (text, attributes = {}) =>
    el("td", { class: "number", text, ...attributes });

  // A text that a name may be in, and that a narrow column may cut.
  const textCell = (text, ...before) =>
    el("td", { class: "text", title: text }, ...before, nameText(text ?? ""));

  // A time, or another figure, over what is said of it in small type.
  function stackedCell(text, small, attributes = {}, mark = "") {
    return el("td", { class: "number change", ...attributes },
      el("span", { class: mark, text }), small ? el("small", { text: small }) : null);
  }

  function shareCell(share, side) {
    const bar = el("span", { class: `share-bar side-${side ? "b" : "a"}`, "aria-hidden": "true" });
    bar.style.setProperty("--share", Math.max(0, Math.min(1, share ?? 0)));
    return el("td", { class: "number share" },
      el("span", { class: "share-line" }, isKnown(share) ? bar : null, shareText(share)));
  }

  const changeCell = ({ change_ms: ms, change_interval_ms: interval }, decimals, attributes = {}) =>
    stackedCell(changeText(ms, decimals), rangeText(interval, decimals), attributes,
      tone(ms, interval));

  return {
    RowWindow, SortableTable, nameText, note, factList, sortedBy, cellsButton, scrollBox, sortableBox,
    numberCell, textCell, stackedCell, shareCell, changeCell,
  };
})();
