// Layers one by one, as the kernels that ran: a table of which only the rows in view are in the
// document.
modelperf.kernels = (() => {
  "use strict";

  const { UNKNOWN, el, format } = modelperf;
  const { hasTwo, sideIndexes, sideLabel } = modelperf.sides;
  const { decimalsFor, largest, msText, ratioText, sum, wholeText } = modelperf.figures;
  const { changeCell, nameText, note, numberCell, sortableHead, sortedBy } = modelperf.tables;
  const { hasTimeOfItsOwn, rowOf, whyNoTime } = modelperf.layers;
  const { KernelDetails } = modelperf.kernelDetails;
  const { KernelFilters } = modelperf.kernelFilters;

  const MARGIN_ROWS = 12;
  const PRINTED_ROWS = 100;

  class KernelTable {
    element;
    #view;
    #decimals;
    #columns;
    #sort;
    #rows;
    #shown = [];
    #filters;
    #details;
    #window;
    #table;
    #body = el("tbody", {});
    #none = note("No layer is like that.");
    #printNote = el("p", { class: "print-note" });
    #rowHeight = 30;
    #drawn = "";
    #isOnPaper = false;
    #current = null;

    constructor(view) {
      this.#view = view;
      this.#rows = view.case.layers.map((layer) => rowOf(layer));
      const totals = sideIndexes(view).map((side) => sum(view.case.layers.map((l) => l.ms[side])));
      this.#decimals = decimalsFor(largest(totals));
      this.#columns = kernelColumns(view, this.#decimals);
      const hasTimes = totals.some((total) => total > 0);
      const first = hasTwo(view) ? "delta" : "ms-0";
      this.#sort = { id: hasTimes ? first : "depth", isDescending: hasTimes };
      const measures = this.#columns.filter((column) => column.isMeasure);
      this.#filters = new KernelFilters(this.#rows, measures, () => this.#update());
      this.#details = new KernelDetails(view, this.#decimals, {
        close: () => this.#close(),
        show: (name, side) => this.#openNamed(name, side),
      });
      this.#build();
    }

    // Shows the details of a layer, past any filter that hides it.
    open(layer) {
      const row = this.#rows.find((one) => one.layer === layer);
      if (!row) return;
      if (!this.#shown.includes(row)) this.#filters.replace({});
      this.#openRow(row);
      this.element.scrollIntoView({ block: "nearest" });
    }

    showTransition(before, after) {
      this.#filters.replace({ transition: [before, after] });
      this.element.closest("section")?.scrollIntoView({ block: "start" });
      this.#table.focus({ preventScroll: true });
    }

    showForPrint() {
      this.#isOnPaper = true;
      const printed = this.#shown.slice(0, PRINTED_ROWS);
      this.#body.replaceChildren(...printed.map((row, index) => this.#row(row, index)));
      const left = this.#shown.length - printed.length;
      this.#printNote.textContent = left
        ? `The first ${PRINTED_ROWS} of ${wholeText(this.#shown.length)} layers.`
        : "";
    }

    showForScreen() {
      this.#isOnPaper = false;
      this.#draw();
    }

    #build() {
      const head = sortableHead(this.#columns, this.#sort, () => this.#update());
      const widths = this.#columns.map((column) => el("col", { class: `width-${column.width}` }));
      this.#table = el(
        "table",
        { class: "kernels-table", role: "grid", tabindex: "0", "aria-label": "layers" },
        el("colgroup", {}, ...widths),
        head,
        this.#body,
      );
      this.#table.addEventListener("keydown", (event) => this.#onKey(event));
      this.#body.addEventListener("click", (event) => this.#onClick(event));
      this.#window = el("div", { class: "layers-scroll kernels-window" }, this.#table, this.#none);
      this.#window.classList.add(hasTwo(this.#view) ? "two-sides" : "one-side");
      if (this.#rows.some(({ names }) => names.length > 1)) this.#window.classList.add("two-lines");
      this.#window.addEventListener("scroll", () => this.#render(), { passive: true });
      // As high as all rows, should they be few: filtering moves nothing below.
      this.#window.style.setProperty("--rows", this.#rows.length);
      const both = el("div", { class: "kernels-both" }, this.#window, this.#details.element);
      this.element = el("div", {}, this.#filters.element, both, this.#printNote);
      // Also when the section is shown for the first time, or the phone is turned.
      new ResizeObserver(() => this.#draw()).observe(this.#window);
      this.#update();
    }

    #update() {
      const column = this.#columns.find(({ id }) => id === this.#sort.id);
      this.#shown = sortedBy(this.#filters.select(), column.read, this.#sort.isDescending);
      this.#filters.say(this.#shown.length);
      this.#table.setAttribute("aria-rowcount", this.#shown.length + 1);
      this.#none.hidden = this.#shown.length > 0;
      this.#window.scrollTop = 0;
      this.#draw();
    }

    #draw() {
      this.#drawn = "";
      this.#render();
    }

    // On paper the table grows, but its first rows are all that it has.
    #render() {
      if (this.#isOnPaper) return;
      const { scrollTop, clientHeight } = this.#window;
      const inView = Math.ceil(clientHeight / this.#rowHeight);
      const top = Math.floor(scrollTop / this.#rowHeight);
      const first = Math.max(0, Math.min(top, this.#shown.length - inView) - MARGIN_ROWS);
      const end = Math.min(this.#shown.length, top + inView + MARGIN_ROWS);
      const drawn = `${first} ${end}`;
      if (drawn === this.#drawn) return;
      this.#drawn = drawn;
      const rows = this.#shown.slice(first, end);
      this.#body.replaceChildren(
        this.#spacer(first),
        ...rows.map((row, index) => this.#row(row, first + index)),
        this.#spacer(this.#shown.length - end),
      );
      this.#measure();
      this.#mark();
    }

    // The style sheet decides how high a row is; fonts and zoom may change it.
    #measure() {
      const height = this.#body.querySelector("tr[id]")?.getBoundingClientRect().height;
      if (!height || Math.abs(height - this.#rowHeight) < 0.01) return;
      this.#rowHeight = height;
      this.#draw();
    }

    #spacer(count) {
      const row = el("tr", { class: "spacer", "aria-hidden": "true" });
      const cell = el("td", { colspan: this.#columns.length });
      cell.style.height = `${count * this.#rowHeight}px`;
      row.hidden = count === 0;
      row.append(cell);
      return row;
    }

    #row(row, index) {
      const cells = this.#columns.map((column) => column.cell(row)).filter(Boolean);
      const line = el("tr", { id: `layer-${row.layer.depth}-${index}` }, ...cells);
      line.setAttribute("aria-rowindex", index + 2);
      line.dataset.index = index;
      if (!row.layer.is_layer) line.classList.add("beside");
      return line;
    }

    #mark() {
      const index = this.#shown.indexOf(this.#current);
      for (const line of this.#body.querySelectorAll("tr[id]")) {
        const isCurrent = Number(line.dataset.index) === index;
        line.classList.toggle("current", isCurrent);
        line.setAttribute("aria-selected", isCurrent);
        if (isCurrent) this.#table.setAttribute("aria-activedescendant", line.id);
      }
      if (index < 0) this.#table.removeAttribute("aria-activedescendant");
    }

    #onClick(event) {
      const index = event.target.closest("tr[data-index]")?.dataset.index;
      if (index !== undefined) this.#openRow(this.#shown[Number(index)]);
    }

    #onKey(event) {
      if (event.key === "Escape") {
        this.#close();
        return;
      }
      // Keys pressed on a button of the head are the button's.
      if (event.target !== this.#table || !this.#shown.length) return;
      const page = Math.max(1, Math.floor(this.#window.clientHeight / this.#rowHeight) - 2);
      const now = this.#shown.indexOf(this.#current);
      const targets = {
        ArrowDown: now + 1,
        ArrowUp: now - 1,
        PageDown: now + page,
        PageUp: now - page,
        Home: 0,
        End: this.#shown.length - 1,
      };
      if (event.key === "Enter" && this.#current) {
        this.#openRow(this.#current);
      } else if (event.key in targets) {
        const last = this.#shown.length - 1;
        this.#moveTo(this.#shown[Math.max(0, Math.min(last, targets[event.key]))]);
      } else {
        return;
      }
      event.preventDefault();
    }

    #moveTo(row) {
      this.#current = row;
      this.#bringIntoView(this.#shown.indexOf(row));
      this.#render();
      this.#mark();
      if (this.#details.isOpen) this.#details.show(row.layer);
    }

    #bringIntoView(index) {
      const head = this.#table.tHead.getBoundingClientRect().height;
      const top = index * this.#rowHeight;
      const room = this.#window.clientHeight - head - this.#rowHeight;
      if (top < this.#window.scrollTop) this.#window.scrollTop = top;
      else if (top > this.#window.scrollTop + room) this.#window.scrollTop = top - room;
    }

    #openRow(row) {
      this.#details.show(row.layer);
      this.#moveTo(row);
    }

    #openNamed(name, side) {
      const row = this.#rows.find(({ layer }) => layer.names[side] === name);
      if (row) this.open(row.layer);
    }

    #close() {
      if (!this.#details.isOpen) return;
      this.#details.hide();
      this.#table.focus({ preventScroll: true });
    }
  }

  function kernelColumns(view, decimals) {
    const two = hasTwo(view);
    const prefix = (side) => (two ? `${sideLabel(view, side)} ` : "");
    const ofSides = sideIndexes(view).flatMap((side) => [
      {
        id: `ms-${side}`,
        title: `${prefix(side)}ms`,
        width: "figure",
        isMeasure: true,
        read: ({ layer }) => layer.ms[side],
        cell: ({ layer }) => msCell(layer, side, decimals),
      },
      {
        id: `precision-${side}`,
        title: `${prefix(side)}precision`,
        width: "precision",
        isText: true,
        read: ({ layer }) => (hasTimeOfItsOwn(layer, side) ? layer.precisions[side] : null),
        cell: ({ layer }) => precisionCell(layer, side),
      },
    ]);
    return [
      {
        id: "depth",
        title: "#",
        width: "place",
        note: "position in the graph",
        read: ({ layer }) => layer.depth,
        cell: ({ layer }) => numberCell(layer.is_layer ? String(layer.depth) : ""),
      },
      { id: "name", title: "name", width: "name", isText: true, read: readName, cell: nameCell },
      {
        id: "type",
        title: "type",
        width: "type",
        isText: true,
        read: ({ layer }) => layer.type,
        cell: ({ layer }) =>
          el("td", { class: "text", title: layer.type }, nameText(layer.type)),
      },
      ...ofSides,
      ...(two ? comparingColumns(view, decimals) : countingColumns()),
    ];
  }

  const readName = ({ names }) => names[0];

  function comparingColumns(view, decimals) {
    const [before, after] = sideIndexes(view).map((side) => sideLabel(view, side));
    return [
      {
        id: "delta",
        title: "delta, ms",
        width: "change",
        note: `${after} − ${before}, with its interval`,
        isMeasure: true,
        read: ({ delta }) => delta,
        cell: ({ layer, delta }) => changeCell({ ...layer, change_ms: delta }, decimals),
      },
      {
        id: "ratio",
        title: "ratio",
        width: "figure",
        note: `${after} / ${before}`,
        isMeasure: true,
        read: ({ ratio }) => ratio,
        cell: ({ ratio }) => numberCell(ratioText(ratio)),
      },
    ];
  }

  function countingColumns() {
    const column = (id, title) => ({
      id,
      title,
      width: "figure",
      read: ({ layer }) => layer[id][0],
      cell: ({ layer }) => numberCell(layer.is_layer ? format.count(layer[id][0]) : ""),
    });
    return [column("macs", "MACs"), column("params", "params")];
  }

  function nameCell({ layer, names }) {
    const lines = names.map((name) => el("span", {}, nameText(name)));
    const cell = el("td", { class: "name", title: names.join("\n") }, ...lines);
    if (!layer.is_layer) cell.append(el("small", { text: "beside the layers" }));
    return cell;
  }

  // A layer without a time of its own says why, over both columns of its side.
  function msCell(layer, side, decimals) {
    if (hasTimeOfItsOwn(layer, side)) return numberCell(msText(layer.ms[side], decimals));
    const text = whyNoTime(layer, side);
    return el("td", { class: "without", colspan: 2, title: text }, nameText(text));
  }

  function precisionCell(layer, side) {
    if (!hasTimeOfItsOwn(layer, side)) return null;
    return el("td", { class: "text", text: layer.precisions[side] ?? UNKNOWN });
  }

  // Of the chosen case; null where nothing is known of its layers.
  let kernels = null;

  modelperf.section("kernels", {
    draw(root, view) {
      kernels = null;
      if (!view.case?.layers.length) {
        modelperf.hide(root);
        return;
      }
      kernels = new KernelTable(view);
      root.replaceChildren(kernels.element);
      kernels.showForScreen();
    },
    // Nothing here has colours of its own.
    redraw: () => {},
  });
  window.addEventListener("beforeprint", () => kernels?.showForPrint());
  window.addEventListener("afterprint", () => kernels?.showForScreen());

  return {
    open: (layer) => kernels?.open(layer),
    showTransition: (before, after) => kernels?.showTransition(before, after),
  };
})();
