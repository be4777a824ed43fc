// Layers one by one at each level of a what-if.
modelperf.whatifLayers = (() => {
  "use strict";

  const { UNKNOWN, el, isKnown } = modelperf;
  const { decimalsFor, halfWidthText, largest } = modelperf.figures;
  const { IN_ANOTHER, NO_PRECISION, namesOfFused, searchedText } = modelperf.layers;
  const { nameText, numberCell, sortableHead, sortedBy } = modelperf.tables;
  const { kindMark } = modelperf.kinds;
  const { KernelFilters } = modelperf.kernelFilters;
  const { RowWindow } = modelperf.rowWindow;
  const { columnsOf, heightOf, heightText, speedupOf, totalsOf } =
    modelperf.whatifLevels;

  class LayerTable {
    element;
    #entry;
    #totals;
    #decimals;
    #choice = null;
    #columns = [];
    #sort;
    #rows;
    #filters;
    #window = new RowWindow("layers", (row) => this.#line(row), "No layer is like that.");

    constructor(entry) {
      this.#entry = entry;
      this.#totals = totalsOf(entry);
      this.#decimals = decimalsFor(largest(entry.layers.map(({ ms }) => largest(ms))));
      this.#rows = entry.layers.map(rowOf);
      const hasTimes = entry.layers.some(({ ms }) => isKnown(ms[0]));
      this.#sort = { id: hasTimes ? "ms-0" : "depth", isDescending: hasTimes };
      this.#filters = new KernelFilters(this.#rows, measuresOf(entry), () => this.#update());
      this.#window.reserve(this.#rows.length);
      this.element = el("div", { class: "whatif-layers" },
        this.#filters.element, this.#window.element);
    }

    show(choice) {
      this.#choice = choice;
      this.#columns = [
        ...LAYER_COLUMNS, ...columnsOf(this.#entry, choice, this.#text), ...halfWidths(this.#entry, choice),
      ];
      // The table may be sorted by a column of a level that is no longer shown.
      if (!this.#columns.some(({ id }) => id === this.#sort.id)) {
        this.#sort = { id: this.#columns[LAYER_COLUMNS.length].id, isDescending: true };
      }
      this.element.classList.toggle("side-by-side", choice.isAll);
      const head = sortableHead(this.#columns, this.#sort, () => this.#update());
      this.#window.setHead(head, this.#columns);
      const figures = this.#columns.filter(({ width }) => width === "level").length;
      this.#window.element.style.setProperty("--figures", figures);
      this.#update();
    }

    showForPrint() {
      this.#window.showForPrint();
    }

    showForScreen() {
      this.#window.showForScreen();
    }

    #text = (ms, index) =>
      heightText(heightOf(ms, index, this.#choice, this.#totals), this.#choice, this.#decimals);

    #update() {
      const { read } = this.#columns.find(({ id }) => id === this.#sort.id);
      const rows = this.#filters.select();
      this.#filters.say(rows.length);
      const sorted = sortedBy(rows, ({ layer }) => read(layer), this.#sort.isDescending);
      this.#window.show(sorted);
    }

    // A layer without its own time names the kernel that it ran in, across all time columns.
    #line({ layer }) {
      const line = el("tr", layer.is_layer ? {} : { class: "beside" });
      const isTimed = this.#choice.shown.some((index) => isKnown(layer.ms[index]));
      const columns = isTimed || !layer.runs_in ? this.#columns : LAYER_COLUMNS;
      line.append(...columns.map(({ cell }) => cell(layer)));
      if (columns !== this.#columns) {
        const text = `in ${layer.runs_in}`;
        const colspan = this.#columns.length - columns.length;
        line.append(el("td", { class: "without", colspan, title: text }, nameText(text)));
      }
      line.dataset.depth = layer.depth;
      return line;
    }
  }

  const nameCell = (text) => el("td", { class: "name", title: text }, nameText(text));

  const LAYER_COLUMNS = [
    {
      id: "depth",
      title: "#",
      width: "place",
      note: "position in the graph",
      read: ({ depth }) => depth,
      cell: ({ depth, is_layer: isLayer }) => numberCell(isLayer ? String(depth) : ""),
    },
    {
      id: "id",
      title: "layer",
      width: "name",
      isText: true,
      note: "its first output",
      read: ({ id }) => id,
      cell: ({ id }) => nameCell(id),
    },
    {
      id: "type",
      title: "type",
      width: "type",
      isText: true,
      read: ({ type }) => type || null,
      cell: ({ type, is_layer: isLayer }) => el("td", { class: "text", title: type },
        type ? kindMark(type, isLayer) : null, nameText(type || UNKNOWN)),
    },
    {
      id: "weight",
      title: "weight",
      width: "weight",
      isText: true,
      note: "its largest parameter",
      read: ({ weight }) => weight,
      cell: ({ weight }) => (weight ? nameCell(weight) : el("td", { text: UNKNOWN })),
    },
  ];

  // How sure the shown times are; side by side there is no room for it.
  function halfWidths({ layers }, { isAll, shown }) {
    if (isAll || !layers.some(({ half_widths: widths }) => widths.some(isKnown))) return [];
    const read = ({ half_widths: widths }) => largest(shown.map((index) => widths[index]));
    return [{
      id: "half-width",
      title: "±",
      width: "level",
      note: "half the interval of the time that is less sure",
      read,
      cell: (layer) => numberCell(halfWidthText(read(layer))),
    }];
  }

  // The layer with the values that the filters read.
  function rowOf(layer) {
    const place = layer.runs_in ? IN_ANOTHER : layer.precision ?? NO_PRECISION;
    const names = [layer.id, layer.name, layer.weight, layer.kernel, ...namesOfFused(layer.fused),
      layer.type, layer.precision];
    return {
      layer,
      searched: searchedText(names),
      places: layer.is_layer ? [place] : [],
      isPair: false,
    };
  }

  // The times and speedups of every level, shown or not, so that filters keep working.
  function measuresOf({ levels, layers }) {
    const timed = [...levels.keys()].filter((index) => layers.some(({ ms }) => isKnown(ms[index])));
    return timed.flatMap((index) => {
      const { title } = levels[index];
      const time = { id: `ms-${index}`, title: `${title} ms`, read: ({ layer }) => layer.ms[index] };
      if (index === 0) return [time];
      const read = ({ layer }) => speedupOf(layer, index);
      return [time, { id: `speedup-${index}`, title: `${title} speedup`, read }];
    });
  }

  return { LayerTable };
})();
