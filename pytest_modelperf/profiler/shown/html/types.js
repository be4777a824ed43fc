// Layers by type: a table, and a chart of the ticked types' times.
(() => {
  "use strict";

  const { UNKNOWN, el, format } = modelperf;
  const { chartText, plot } = modelperf.charts;
  const { barMarker, hasTwo, short, sideIndexes, sideLabel, sideTag } = modelperf.sides;
  const { decimalsFor, isKnown, known, largest, latest, msText } = modelperf.figures;
  const { shareText, sum, timeText, wholeText } = modelperf.figures;
  const { kindMark } = modelperf.kinds;
  const { changeCell, nameText, note, numberCell, scrollBox } = modelperf.tables;
  const { shareCell, sortableHead, sortedBy } = modelperf.tables;

  const LONGEST_LABEL = 18;
  const TICK_NOTE = "in the distribution";
  const TYPE_COLUMNS = [
    { id: "type", title: "layer type", isText: true, read: (row) => row.type },
    { id: "ms", title: "ms", needsTimes: true, read: (row) => largest(row.ms) },
    {
      id: "shares",
      title: "share",
      needsTimes: true,
      note: "of the time of its side",
      read: (row) => largest(row.shares),
    },
    {
      id: "change",
      title: "change, ms",
      needsTimes: true,
      needsTwo: true,
      read: (row) => row.change_ms,
    },
    {
      id: "explains",
      title: "explains",
      needsTimes: true,
      needsTwo: true,
      note: "its share of the whole difference",
      read: (row) => row.explains,
    },
    { id: "counts", title: "layers", read: (row) => largest(row.counts) },
    {
      id: "precisions",
      title: "by precision",
      isText: true,
      read: (row) => latest(row.precisions.map(precisionsText)),
    },
    { id: "macs", title: "MACs", read: (row) => largest(row.macs) },
    { id: "params", title: "params", read: (row) => largest(row.params) },
  ];

  function precisionsText(counts) {
    const entries = Object.entries(counts ?? {}).sort((one, other) => other[1] - one[1]);
    return entries.length ? entries.map(([name, n]) => `${name} ${n}`).join(", ") : null;
  }

  class TypeSummary {
    #view;
    #types;
    #hasTimes;
    #decimals;
    #columns;
    #sort;
    #ticked;
    #table;
    #bodies;
    #boxes = new Map();
    #chart = el("div", { class: "plot" });
    #emptyChart = note("No type is ticked.");

    constructor(view) {
      this.#view = view;
      this.#types = view.case.types;
      this.#hasTimes = this.#types.some((type) => known(type.ms).length > 0);
      this.#decimals = decimalsFor(this.#totalMs());
      this.#columns = TYPE_COLUMNS.filter(
        (column) =>
          (!column.needsTimes || this.#hasTimes) && (!column.needsTwo || hasTwo(view)),
      );
      this.#sort = { id: this.#hasTimes ? "ms" : "macs", isDescending: true };
      this.#ticked = new Set(this.#types);
    }

    draw(root) {
      const head = [{ id: "tick", title: "", note: TICK_NOTE, isText: true }, ...this.#columns];
      if (hasTwo(this.#view)) head.splice(2, 0, { id: "side", title: "", isText: true });
      if (!this.#hasTimes) head.shift();
      const heads = sortableHead(head, this.#sort, () => this.#fill());
      this.#table = el("table", { class: "types-table" }, heads);
      const box = scrollBox("layer types", this.#table);
      this.#bodies = new Map(this.#types.map((type) => [type, this.#body(type)]));
      this.#fill();
      if (!this.#hasTimes) {
        root.replaceChildren(box);
        return;
      }
      const distribution = el(
        "figure",
        { class: "types-chart" },
        this.#allOrNone(),
        this.#chart,
        this.#emptyChart,
      );
      root.replaceChildren(el("div", { class: "types-both" }, box, distribution));
      this.repaint();
    }

    #totalMs() {
      const sides = sideIndexes(this.#view);
      return largest(sides.map((side) => sum(this.#types.map(({ ms }) => ms[side]))));
    }

    #fill() {
      const column = this.#columns.find(({ id }) => id === this.#sort.id);
      const order = sortedBy(this.#types, column.read, this.#sort.isDescending);
      this.#table.append(...order.map((type) => this.#bodies.get(type)));
    }

    #body(type) {
      const sides = sideIndexes(this.#view);
      const rows = sides.map((side) => el("tr", {}, ...this.#cells(type, side)));
      const body = el("tbody", { class: type.is_layer ? "" : "beside" }, ...rows);
      body.dataset.type = type.type;
      return body;
    }

    // Cells for the whole type start in the line of its first side and span all sides.
    #cells(type, side) {
      const both = this.#view.sides.length;
      const isFirst = side === 0;
      const cells = [];
      if (isFirst && this.#hasTimes) {
        cells.push(el("td", { class: "tick-cell", rowspan: both }, this.#tick(type)));
      }
      if (isFirst) {
        const name = el("th", { scope: "rowgroup", rowspan: both, class: "text" });
        name.append(kindMark(type.type, type.is_layer), nameText(type.type));
        if (!type.is_layer) name.append(el("small", { text: "beside the layers" }));
        cells.push(name);
      }
      if (hasTwo(this.#view)) cells.push(el("td", { class: "text" }, sideTag(this.#view, side)));
      for (const column of this.#columns.slice(1)) {
        if (!column.needsTwo || isFirst) cells.push(this.#cell(column, type, side));
      }
      return cells;
    }

    #cell(column, type, side) {
      switch (column.id) {
        case "counts":
          return numberCell(wholeText(type.counts[side]));
        case "precisions":
          return el("td", {
            class: "text",
            text: precisionsText(type.precisions[side]) ?? UNKNOWN,
          });
        case "ms":
          return numberCell(msText(type.ms[side], this.#decimals));
        case "shares":
          return shareCell(type.shares[side], side);
        case "change":
          return changeCell(type, this.#decimals, { rowspan: this.#view.sides.length });
        case "explains":
          return numberCell(shareText(type.explains), { rowspan: this.#view.sides.length });
        default:
          return numberCell(format.count(type[column.id][side]));
      }
    }

    #tick(type) {
      const box = el("input", { type: "checkbox", title: TICK_NOTE, checked: true });
      box.setAttribute("aria-label", `${type.type} ${TICK_NOTE}`);
      box.addEventListener("change", () => {
        if (box.checked) this.#ticked.add(type);
        else this.#ticked.delete(type);
        this.repaint();
      });
      this.#boxes.set(type, box);
      return box;
    }

    #allOrNone() {
      const set = (isOn) => () => {
        this.#ticked = new Set(isOn ? this.#types : []);
        for (const box of this.#boxes.values()) box.checked = isOn;
        this.repaint();
      };
      return el(
        "figcaption",
        {},
        el("span", { text: "Time of the ticked types" }),
        el("button", { type: "button", text: "all", on: { click: set(true) } }),
        el("button", { type: "button", text: "none", on: { click: set(false) } }),
      );
    }

    repaint() {
      if (!this.#hasTimes) return;
      const timed = this.#types.filter(({ ms }) => known(ms).length > 0);
      const shown = timed.filter((type) => this.#ticked.has(type));
      this.#emptyChart.hidden = shown.length > 0;
      this.#chart.hidden = shown.length === 0;
      if (!shown.length) return;
      const order = sortedBy(shown, (type) => largest(type.ms), true);
      const traces = sideIndexes(this.#view).map((side) => this.#trace(order, side));
      // The figures are beside the bars.
      const widest = 1.5 * largest(traces.flatMap(({ x }) => x));
      const lines = order.length * (hasTwo(this.#view) ? 34 : 24);
      plot(this.#chart, traces, {
        height: lines + 90,
        barmode: "group",
        bargap: 0.3,
        margin: { l: 8, r: 8, t: 28, b: 32 },
        xaxis: {
          tickformat: ".0%",
          tickangle: 0,
          nticks: 4,
          range: [0, widest || 1],
          fixedrange: true,
        },
        yaxis: {
          type: "category",
          autorange: "reversed",
          automargin: true,
          fixedrange: true,
          // A long name would leave no room for the bars.
          tickvals: order.map(({ type }) => chartText(type)),
          ticktext: order.map(({ type }) => short(type, LONGEST_LABEL)),
        },
        showlegend: hasTwo(this.#view),
        legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal" },
      });
    }

    #trace(types, side) {
      const total = sum(types.map((type) => type.ms[side]));
      const shares = types.map((type) =>
        isKnown(type.ms[side]) && total ? type.ms[side] / total : null,
      );
      return {
        type: "bar",
        orientation: "h",
        name: chartText(sideLabel(this.#view, side) || "share"),
        y: types.map((type) => chartText(type.type)),
        x: shares,
        text: shares.map((share) => (isKnown(share) ? shareText(share) : "")),
        textposition: "outside",
        cliponaxis: false,
        hoverinfo: "text",
        hovertext: types.map((type, index) =>
          [
            [type.type, sideLabel(this.#view, side)].filter(Boolean).map(chartText).join(", "),
            `${shareText(shares[index])} of the ticked, ${timeText(type.ms[side], this.#decimals)}`,
          ].join("<br>"),
        ),
        marker: barMarker(side, hasTwo(this.#view)),
      };
    }
  }

  // Written once for all sections; a sweep has no cases and no layers.
  function sayWhyNot(root, view) {
    modelperf.hide(root, view.case && "nothing is known of the layers of this case");
  }

  let repaint = () => {};

  modelperf.section("types", {
    draw(root, view) {
      repaint = () => {};
      if (!view.case?.types.length) {
        sayWhyNot(root, view);
        return;
      }
      const summary = new TypeSummary(view);
      summary.draw(root);
      repaint = () => summary.repaint();
    },
    redraw: () => repaint(),
  });
})();
