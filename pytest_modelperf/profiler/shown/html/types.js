// Layers by type: a table, and a chart of the ticked types' times.
(() => {
  "use strict";

  const { UNKNOWN, choose, chosen, el, format } = modelperf;
  const {
    barMarker, chartBox, chartPart, drawBars, hasTwo, sideIndexes, sideLabel, sideTag, tooltip,
  } = modelperf.charts;
  const {
    decimalsFor, isKnown, isSure, known, largest, latest, msText, shareText, sum, timeText, wholeText,
  } = modelperf.figures;
  const { kindMark } = modelperf.layers;
  const { SortableTable, changeCell, nameText, note, numberCell, shareCell, sortableBox, sortedBy } =
    modelperf.tables;

  const TICK_NOTE = "in the distribution";
  // Types that explain next to nothing of a difference.
  const isStill = ({ explains, change_interval_ms: interval }) =>
    isKnown(explains) && Math.abs(explains) < 0.01 && !isSure(interval);

  // `cell` makes the cell of a side; if a column is of both, its cell spans their lines.
  const columnsOf = (decimals) => [
    { id: "type", title: "layer type", isText: true, isOfBoth: true, read: ({ type }) => type,
      cell: nameCell },
    { id: "ms", title: "ms", needsTimes: true, read: ({ ms }) => largest(ms),
      cell: ({ ms }, side) => numberCell(msText(ms[side], decimals)) },
    { id: "shares", title: "share", needsTimes: true, note: "of the time of its side",
      read: ({ shares }) => largest(shares),
      cell: ({ shares }, side) => shareCell(shares[side], side) },
    { id: "change", title: "change, ms", needsTimes: true, needsTwo: true, isOfBoth: true,
      read: (type) => type.change_ms, cell: (type) => changeCell(type, decimals) },
    { id: "explains", title: "explains", needsTimes: true, needsTwo: true, isOfBoth: true,
      note: "its share of the whole difference", read: ({ explains }) => explains,
      cell: ({ explains }) => numberCell(shareText(explains)) },
    { id: "counts", title: "layers", read: ({ counts }) => largest(counts),
      cell: ({ counts }, side) => numberCell(wholeText(counts[side])) },
    { id: "precisions", title: "by precision", isText: true,
      read: (type) => latest(type.precision_texts),
      cell: (type, side) =>
        el("td", { class: "text", text: type.precision_texts[side] ?? UNKNOWN }) },
    { id: "macs", title: "MACs", read: ({ macs }) => largest(macs),
      cell: ({ macs }, side) => numberCell(format.count(macs[side])) },
    { id: "params", title: "params", read: ({ params }) => largest(params),
      cell: ({ params }, side) => numberCell(format.count(params[side])) },
  ];

  function nameCell({ type, kind, is_layer: isLayer }) {
    const small = isLayer ? null : el("small", { text: "beside the layers" });
    return el("th", { scope: "rowgroup", class: "text" }, kindMark(kind), nameText(type), small);
  }

  class TypeSummary {
    parts;
    #view;
    #types;
    #hasTimes;
    #decimals;
    #ticked;
    #boxes = new Map();
    #chart = chartBox();
    #emptyChart = note("No type is ticked.");

    constructor(view) {
      this.#view = view;
      this.#types = view.case.types;
      this.#hasTimes = this.#types.some(({ ms }) => known(ms).length > 0);
      const totals = sideIndexes(view).map((side) => sum(this.#types.map(({ ms }) => ms[side])));
      this.#decimals = decimalsFor(largest(totals));
      const without = new Set((chosen("untick") ?? "").split(","));
      this.#ticked = new Set(this.#types.filter(({ type }) => !without.has(type)));
      const box = sortableBox("layer types", this.#table());
      this.parts = this.#hasTimes ? [el("div", { class: "types-both" }, box, el("figure",
        { class: "types-chart" }, this.#allOrNone(), this.#chart, this.#emptyChart))] : [box];
    }

    #table() {
      const two = hasTwo(this.#view);
      const tick = { id: "tick", title: "", note: TICK_NOTE, isText: true, isOfBoth: true,
        needsTimes: true, cell: (type) => el("td", { class: "tick-cell" }, this.#tick(type)) };
      const side = { id: "side", title: "", isText: true, needsTwo: true,
        cell: (_, at) => el("td", { class: "text" }, sideTag(this.#view, at)) };
      const [name, ...others] = columnsOf(this.#decimals);
      const columns = [tick, name, side, ...others].filter(({ needsTimes, needsTwo }) =>
        (!needsTimes || this.#hasTimes) && (!needsTwo || two));
      // A type has a line for each side, which sorting keeps together.
      const bodies = new Map(this.#types.map((type) => [type, this.#body(type, columns)]));
      const table = new SortableTable({
        class: "types-table cards", kept: "types", still: isStill, stillText: "types that hardly changed",
        sort: { id: this.#hasTimes ? "ms" : "macs", isDescending: true },
        select: () => this.#types,
      });
      table.show = (types) => table.table.replaceChildren(table.table.tHead, ...types.map((type) =>
        bodies.get(type) ?? el("tbody", {}, table.lineFor(type))));
      table.setColumns(columns);
      return table;
    }

    #body(type, columns) {
      const lines = sideIndexes(this.#view).map((side) => el("tr", {},
        columns.filter(({ isOfBoth }) => !isOfBoth || side === 0).map(({ cell, isOfBoth, title }) => {
          const made = cell(type, side);
          if (made.tagName === "TD" && title) made.dataset.title = title;
          if (isOfBoth) made.rowSpan = this.#view.sides.length;
          return made;
        })));
      const attributes = { class: type.is_layer ? "" : "beside", "data-type": type.type };
      return el("tbody", attributes, ...lines);
    }

    #tick(type) {
      const change = () => {
        if (box.checked) this.#ticked.add(type);
        else this.#ticked.delete(type);
        this.#changed();
      };
      const box = el("input", { type: "checkbox", title: TICK_NOTE, checked: this.#ticked.has(type),
        "aria-label": `${type.type} ${TICK_NOTE}`, on: { change } });
      this.#boxes.set(type, box);
      return box;
    }

    #allOrNone() {
      const button = (text, isOn) => el("button", { type: "button", text, on: { click: () => {
        this.#ticked = new Set(isOn ? this.#types : []);
        for (const box of this.#boxes.values()) box.checked = isOn;
        this.#changed();
      } } });
      return el("figcaption", {}, el("span", { text: "Time of the ticked types" }),
        button("all", true), button("none", false));
    }

    #changed() {
      const without = this.#types.filter((type) => !this.#ticked.has(type));
      choose({ untick: without.map(({ type }) => type).join(",") || null });
      this.draw();
    }

    draw = () => {
      if (!this.#hasTimes) return;
      const shown = this.#types.filter((type) => known(type.ms).length && this.#ticked.has(type));
      this.#emptyChart.hidden = shown.length > 0;
      this.#chart.hidden = shown.length === 0;
      if (!shown.length) return;
      const types = sortedBy(shown, ({ ms }) => largest(ms), true);
      const series = sideIndexes(this.#view).map((side) => this.#series(types, side));
      // The figures are next to the bars.
      const widest = 1.5 * largest(series.flatMap(({ lengths }) => lengths));
      drawBars(this.#chart, types.map(({ type }) => type), series, {
        height: types.length * (hasTwo(this.#view) ? 34 : 24) + 90,
        xaxis: { tickformat: ".0%", nticks: 4, range: [0, widest || 1] },
      });
    };

    #series(types, side) {
      const label = sideLabel(this.#view, side);
      const total = sum(types.map(({ ms }) => ms[side]));
      const lengths = types.map(({ ms }) => (isKnown(ms[side]) && total ? ms[side] / total : null));
      return {
        name: label || "share", lengths, marker: barMarker(side, hasTwo(this.#view)),
        texts: lengths.map((share) => (isKnown(share) ? shareText(share) : "")),
        tooltips: types.map(({ type, ms }, index) => tooltip([
          [type, label].filter(Boolean).join(", "),
          `${shareText(lengths[index])} of the ticked, ${timeText(ms[side], this.#decimals)}`,
        ])),
      };
    }
  }

  // Written once for all parts; a sweep has no cases and no layers.
  chartPart("types", (view) => (view.case?.types.length
    ? new TypeSummary(view) : view.case && "nothing is known of the layers of this case"));
})();
