// Layers one by one, as the kernels that ran.
modelperf.kernels = (() => {
  "use strict";

  const { choose, chosen, el } = modelperf;
  const { hasTwo, sideIndexes } = modelperf.sides;
  const { decimalsFor, largest, sum } = modelperf.figures;
  const { sortableHead, sortedBy } = modelperf.tables;
  const { rowOf } = modelperf.layers;
  const { ColumnPicker, kernelColumns } = modelperf.kernelColumns;
  const { KernelDetails } = modelperf.kernelDetails;
  const { KernelFilters } = modelperf.kernelFilters;
  const { RowWindow } = modelperf.rowWindow;

  class KernelTable {
    element;
    #view;
    #decimals;
    #all;
    #columns;
    #picker;
    #sort;
    #rows;
    #shown = [];
    #filters;
    #details;
    #window = new RowWindow(
      "layers",
      (row, index) => this.#row(row, index),
      "No layer is like that.",
      { isGrid: true, afterDrawing: () => this.#mark() },
    );
    #current = null;

    constructor(view) {
      this.#view = view;
      this.#rows = view.case.layers.map((layer) => rowOf(layer));
      const totals = sideIndexes(view).map((side) => sum(view.case.layers.map((l) => l.ms[side])));
      this.#decimals = decimalsFor(largest(totals));
      this.#all = kernelColumns(view, this.#decimals, () => this.#columns);
      this.#picker = new ColumnPicker(this.#all, chosen("columns"), (names) => {
        choose({ columns: names });
        this.#showColumns();
        this.#update();
      });
      const hasTimes = totals.some((total) => total > 0);
      const first = hasTwo(view) ? "delta" : "ms-0";
      this.#sort = { id: hasTimes ? first : "depth", isDescending: hasTimes };
      const measures = this.#all.filter((column) => column.isMeasure);
      this.#filters = new KernelFilters(this.#rows, measures, () => this.#update());
      this.#details = new KernelDetails(view, this.#decimals, {
        close: () => this.#close(),
        show: (name, side) => this.#openNamed(name, side),
      });
      this.#build();
    }

    // Shows the details of a layer even if a filter hides it.
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
      this.#window.showForPrint();
    }

    showForScreen() {
      this.#window.showForScreen();
    }

    #build() {
      this.#showColumns();
      this.#window.reserve(this.#rows.length);
      this.#window.mark(hasTwo(this.#view) ? "two-sides" : "one-side");
      if (this.#rows.some(({ names }) => names.length > 1)) this.#window.mark("two-lines");
      this.#table.addEventListener("keydown", (event) => this.#onKey(event));
      this.#table.tBodies[0].addEventListener("click", (event) => this.#onClick(event));
      const both = el(
        "div",
        { class: "kernels-both" },
        this.#window.element,
        this.#details.element,
      );
      const tools = el("div", { class: "kernels-tools" },
        this.#filters.element, this.#picker.element);
      this.element = el("div", {}, tools, both);
      this.#update();
    }

    // If the column that sorts goes, the first one of a time takes its place.
    #showColumns() {
      this.#columns = this.#all.filter((column) => this.#picker.shows(column));
      if (!this.#columns.some(({ id }) => id === this.#sort.id)) {
        Object.assign(this.#sort, { id: "ms-0", isDescending: true });
      }
      const head = sortableHead(this.#columns, this.#sort, () => this.#update());
      this.#window.setHead(head, this.#columns);
      const added = this.#columns.filter(({ isOptional }) => isOptional).length;
      this.#table.style.setProperty("--added", added);
    }

    get #table() {
      return this.#window.table;
    }

    #update() {
      const column = this.#columns.find(({ id }) => id === this.#sort.id);
      this.#shown = sortedBy(this.#filters.select(), column.read, this.#sort.isDescending);
      this.#filters.say(this.#shown.length);
      this.#window.show(this.#shown);
    }

    #row(row, index) {
      const cells = this.#columns.map((column) => column.cell(row)).filter(Boolean);
      const line = el("tr", { id: `layer-${row.layer.depth}-${index}` }, ...cells);
      line.dataset.index = index;
      if (!row.layer.is_layer) line.classList.add("beside");
      return line;
    }

    #mark() {
      const index = this.#shown.indexOf(this.#current);
      for (const line of this.#table.querySelectorAll("tr[id]")) {
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
      // A button in the head handles its own keys.
      if (event.target !== this.#table || !this.#shown.length) return;
      const page = this.#window.pageRows;
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
      this.#window.bringIntoView(this.#shown.indexOf(row));
      this.#mark();
      if (this.#details.isOpen) this.#details.show(row.layer);
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

  // The table of the chosen case; null if its layers are unknown.
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
    // Nothing to redraw: no colours are set here.
    redraw: () => {},
  });
  window.addEventListener("beforeprint", () => kernels?.showForPrint());
  window.addEventListener("afterprint", () => kernels?.showForScreen());

  return {
    open: (layer) => kernels?.open(layer),
    showTransition: (before, after) => kernels?.showTransition(before, after),
  };
})();
