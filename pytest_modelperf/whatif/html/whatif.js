// The what-if: how fast each level is, and the layer types and layers of the chosen levels.
(() => {
  "use strict";

  const { UNKNOWN, choose, el, hide, picker, section, toggle } = modelperf;
  const { chartBox, chartPart, chartText, drawBars, logAxis, plot, tooltip } = modelperf.charts;
  const { decimalsFor, halfWidthText, isKnown, known, largest, speedupText, timeText, wholeText } =
    modelperf.figures;
  const { LayerFilters, kindMark } = modelperf.layers;
  const { RowWindow, SortableTable, nameText, note, numberCell, sortableBox, sortedBy, stackedCell } =
    modelperf.tables;
  const {
    VIEWS, choiceOf, columnsOf, drawSpeedups, hasSpeedups, heightOf, heightText, levelMarker,
    remarks, summaries,
  } = modelperf.whatifLevels;

  // The most bars that a chart shows, and the least types that it shows for many levels.
  const MOST_BARS = 48;
  const LEAST_TYPES = 5;
  // The most bars that fit side by side along the model; more are drawn as steps.
  const MOST_ALONG = 400;
  // One nanosecond, in ms: a shorter time is a remainder of a subtraction.
  const SHORTEST_MS = 1e-6;

  // -- layer types

  class TypeSummary {
    element;
    #entry;
    #decimals;
    #choice = null;
    #chart = chartBox("The time of each layer type; the same figures are in the table below.");
    #hint = el("p", { class: "hint" });
    #table = new SortableTable({
      class: "types-table whatif-types", kept: "types", sort: { id: "ms-0", isDescending: true },
      select: () => this.#rows(),
      lineOf: (row) => this.#table.line(row,
        { class: row.is_layer ? "" : "beside", "data-type": row.type }),
    });

    constructor(entry) {
      this.#entry = entry;
      this.#decimals = decimalsFor(largest(entry.levels.map((level) => level.total_ms)));
      this.element =
        el("div", {}, this.#chart, this.#hint, sortableBox("layer types", this.#table));
    }

    show(choice) {
      this.#choice = choice;
      const figures = columnsOf(this.#entry, choice, this.#decimals);
      this.#table.setColumns([...TYPE_COLUMNS, ...figures], figures[0].id,
        el("tfoot", {}, this.#sum(figures)));
      this.repaint();
    }

    // A type that ran at none of the shown levels has no line.
    #rows() {
      const { shown } = this.#choice;
      return this.#entry.types.filter(({ ms }) => shown.some((index) => isKnown(ms[index])));
    }

    #sum(figures) {
      const cells = figures.map(({ id }) => {
        const [kind, index] = id.split("-");
        const { speedup, total_ms: ms } = this.#entry.levels[index];
        const value = speedup?.[0] ?? null;
        if (kind === "speedup") return numberCell(speedupText(value));
        const whole = { ms: { [index]: ms }, shares: { [index]: ms ? 1 : null } };
        const hasSpeedup = this.#choice.isAll && index > 0 && isKnown(value);
        return stackedCell(this.#text(whole, index), hasSpeedup ? speedupText(value) : "");
      });
      return el("tr", {}, el("th", { scope: "row", class: "text", text: "all" }), el("td"), ...cells);
    }

    #text(row, index) {
      return heightText(heightOf(row, index, this.#choice), this.#choice, this.#decimals);
    }

    repaint() {
      const { shown, view } = this.#choice;
      const most = (row) => largest(shown.map((index) => heightOf(row, index, this.#choice)));
      const rows = sortedBy(this.#rows(), most, true);
      const drawn = rows.slice(0, Math.max(LEAST_TYPES, Math.floor(MOST_BARS / shown.length)));
      this.#hint.textContent = [
        drawn.length < rows.length
          ? `The ${drawn.length} types that take most; all are in the table. ` : "",
        view === "percent" ? "Percentages are those of the whole of each level." : "",
      ].join("");
      const levels = shown.filter((index) => drawn.some(({ ms }) => isKnown(ms[index])));
      this.#chart.hidden = levels.length === 0;
      if (!levels.length) return;
      const series = levels.map((index) => this.#series(drawn, index));
      drawBars(this.#chart, drawn.map(({ type }) => type), series, {
        // Room for every bar and the names next to them.
        height: drawn.length * Math.max(26, 15 * levels.length + 8) + 110,
        // The figures are next to the bars.
        xaxis: timeAxis(known(series.flatMap(({ lengths }) => lengths)), this.#choice, 1.25),
      });
    }

    #series(rows, index) {
      const level = this.#entry.levels[index];
      const lengths = rows.map((row) => heightOf(row, index, this.#choice));
      return {
        name: level.title, lengths, marker: levelMarker(index, level),
        texts: rows.map((row, at) => (isKnown(lengths[at]) ? this.#text(row, index) : "")),
        tooltips: rows.map(({ type, ms }) =>
          tooltip([type, `${level.title}: ${timeText(ms[index], this.#decimals)}`])),
      };
    }
  }

  // The axis of the chosen unit. It ends at `room` times the largest value.
  function timeAxis(values, { view }, room) {
    // Remainders of a subtraction would add decades to a logarithmic axis.
    const positive = values.filter((value) => value >= SHORTEST_MS);
    if (view === "log" && positive.length) {
      const ends = [0.5 * Math.min(...positive), 4 * largest(positive)];
      return { ...logAxis(ends), title: "ms (logarithmic)", range: ends.map(Math.log10) };
    }
    const range = [0, room * largest(values) || 1];
    return view === "percent"
      ? { title: "share of its level", tickformat: ".0%", range }
      : { title: "ms", range };
  }

  const TYPE_COLUMNS = [
    { id: "type", title: "layer type", isText: true, read: ({ type }) => type, cell: typeCell },
    { id: "count", title: "layers", note: "of the unchanged model", read: ({ count }) => count,
      cell: ({ count, is_layer: isLayer }) => numberCell(isLayer ? wholeText(count) : "") },
  ];

  function typeCell({ type, is_layer: isLayer }) {
    const small = isLayer ? null : el("small", { text: "beside the layers" });
    return el("th", { scope: "row", class: "text" }, nameText(type), small);
  }

  // -- layers

  // The time of each layer at the chosen levels, in the order of the model.
  class LayerGraph {
    element = chartBox("The time of each layer along the model; the table below has the figures.");
    #entry;
    #layers;
    #decimals;
    #choice = null;

    constructor(entry) {
      this.#entry = entry;
      this.#layers = sortedBy(entry.layers.filter(({ is_layer: isLayer }) => isLayer),
        ({ depth }) => depth, false);
      this.#decimals = decimalsFor(largest(entry.layers.map(({ ms }) => largest(ms))));
    }

    show(choice) {
      this.#choice = choice;
      this.repaint();
    }

    repaint() {
      const traces = this.#choice.shown.map((index) => this.#trace(index));
      plot(this.element, traces.filter(({ x }) => x.length > 0), {
        barmode: "group", bargap: 0.15, hovermode: "closest", showlegend: traces.length > 1,
        xaxis: { title: "position in the graph", zeroline: false },
        yaxis: timeAxis(traces.flatMap(({ y }) => y), this.#choice, 1.05),
      });
    }

    #trace(index) {
      const level = this.#entry.levels[index];
      const layers = this.#layers.filter(({ ms }) => isKnown(ms[index]));
      const marker = levelMarker(index, level);
      const look = layers.length * this.#choice.shown.length > MOST_ALONG
        ? { type: "scatter", mode: "lines", line: { color: marker.color, width: 1, shape: "hvh" } }
        : { type: "bar", marker };
      return {
        ...look, name: chartText(level.title), x: layers.map(({ depth }) => depth),
        y: layers.map((layer) => heightOf(layer, index, this.#choice)), hoverinfo: "text",
        hovertext: layers.map(({ id, type, ms }) => tooltip(
          [`${id} (${type})`, `${level.title}: ${timeText(ms[index], this.#decimals)}`])),
      };
    }
  }

  class LayerTable {
    element;
    #entry;
    #decimals;
    #choice = null;
    #filters;
    #rows;

    constructor(entry) {
      this.#entry = entry;
      this.#decimals = decimalsFor(largest(entry.layers.map(({ ms }) => largest(ms))));
      const hasTimes = entry.layers.some(({ ms }) => isKnown(ms[0]));
      this.#filters =
        new LayerFilters(entry.layers, measuresOf(entry), false, () => this.#rows.update());
      this.#rows = new RowWindow("layers", "No layer is like that.", {
        kept: "sort", sort: { id: hasTimes ? "ms-0" : "depth", isDescending: hasTimes },
        select: () => this.#filters.select(),
        lineOf: (layer) => this.#line(layer),
      });
      this.#rows.reserve(entry.layers.length);
      this.element =
        el("div", { class: "whatif-layers" },
          el("div", { class: "kernels-tools" }, this.#filters.element, this.#rows.csvButton("layers")),
          this.#rows.element);
    }

    show(choice) {
      this.#choice = choice;
      const figures = [
        ...columnsOf(this.#entry, choice, this.#decimals), ...halfWidths(this.#entry, choice),
      ];
      this.element.classList.toggle("side-by-side", choice.isAll);
      this.#rows.element.style.setProperty("--figures", figures.length);
      this.#rows.setColumns([...LAYER_COLUMNS, ...figures], figures[0].id);
    }

    // A layer without its own time names the kernel that it ran in, across all time columns.
    #line(layer) {
      const isTimed = this.#choice.shown.some((index) => isKnown(layer.ms[index]));
      const isAlone = isTimed || !layer.runs_in;
      const line = this.#rows.line(layer,
        { class: layer.is_layer ? "" : "beside", "data-depth": layer.depth },
        isAlone ? this.#rows.columns : LAYER_COLUMNS);
      if (!isAlone) {
        const title = `in ${layer.runs_in}`;
        const colspan = this.#rows.columns.length - LAYER_COLUMNS.length;
        line.append(el("td", { class: "without", colspan, title }, nameText(title)));
      }
      return line;
    }
  }

  const nameCell = (text) => el("td", { class: "name", title: text }, nameText(text));

  const LAYER_COLUMNS = [
    { id: "depth", title: "#", width: "place", note: "position in the graph",
      read: ({ depth }) => depth,
      cell: ({ depth, is_layer: isLayer }) => numberCell(isLayer ? String(depth) : "") },
    { id: "id", title: "layer", width: "name", isText: true, note: "its first output",
      read: ({ id }) => id, cell: ({ id }) => nameCell(id) },
    { id: "type", title: "type", width: "type", isText: true, read: ({ type }) => type || null,
      cell: ({ type, kind }) => el("td", { class: "text", title: type },
        kind && kindMark(kind), nameText(type || UNKNOWN)) },
    { id: "weight", title: "weight", width: "weight", isText: true, note: "its largest parameter",
      read: ({ weight }) => weight,
      cell: ({ weight }) => (weight ? nameCell(weight) : el("td", { text: UNKNOWN })) },
  ];

  // The half widths of the shown times. Side by side there is no room for them.
  function halfWidths({ layers }, { isAll, shown }) {
    if (isAll || !layers.some(({ half_widths: widths }) => widths.some(isKnown))) return [];
    const read = ({ half_widths: widths }) => largest(shown.map((index) => widths[index]));
    return [{
      id: "half-width", title: "±", width: "level", read,
      note: "half the interval of the time that is less sure",
      cell: (layer) => numberCell(halfWidthText(read(layer))),
    }];
  }

  // The times and speedups of every level, shown or not, so that filters keep working.
  function measuresOf({ levels, layers }) {
    const timed = [...levels.keys()].filter((index) => layers.some(({ ms }) => isKnown(ms[index])));
    return timed.flatMap((index) => {
      const { title } = levels[index];
      const time = { id: `ms-${index}`, title: `${title} ms`, read: ({ ms }) => ms[index] };
      if (index === 0) return [time];
      const read = ({ speedups }) => speedups[index];
      return [time, { id: `speedup-${index}`, title: `${title} speedup`, read }];
    });
  }

  // -- all of it

  class WhatIf {
    #entry;
    #remarks = el("div", { "aria-live": "polite" });
    #printNote = el("p", { class: "print-note" });
    #types = null;
    #graph = null;
    #layers = null;

    constructor(entry) {
      const areTimed = (rows) => rows.some(({ ms }) => ms.some(isKnown));
      this.#entry = entry;
      if (areTimed(entry.types)) this.#types = new TypeSummary(entry);
      if (areTimed(entry.layers)) {
        this.#graph = new LayerGraph(entry);
        this.#layers = new LayerTable(entry);
      }
    }

    draw(root) {
      const { summary, view } = choiceOf(this.#entry);
      const parts = [
        el("div", { class: "toolbar sticky-toolbar" },
          picker("Summary", summaries(this.#entry), summary, (id) => this.#choose({ summary: id })),
          toggle("Times as", VIEWS, view, (id) => this.#choose({ view: id }))),
        this.#printNote,
        this.#remarks,
        ...headed("Layer types", this.#types, "The layer types have no times."),
        ...headed("Layers", this.#graph, "The layers have no times."),
        ...(this.#layers ? [this.#layers.element] : []),
      ];
      root.replaceChildren(...parts);
      this.#update();
    }

    repaint() {
      this.#types?.repaint();
      this.#graph?.repaint();
    }

    #choose(changes) {
      choose(changes);
      this.#update();
    }

    #update() {
      const choice = choiceOf(this.#entry);
      const [, title] = summaries(this.#entry).find(([id]) => id === choice.summary);
      this.#printNote.textContent = `Summary: ${title}, times as ${choice.view}.`;
      this.#remarks.replaceChildren(...remarks(this.#entry, choice).map(note));
      this.#types?.show(choice);
      this.#graph?.show(choice);
      this.#layers?.show(choice);
    }
  }

  const headed = (heading, part, whyNot) =>
    [el("h3", { text: heading }), part ? part.element : note(whyNot)];

  chartPart("speedups", ({ case: chosen }) => {
    const entry = chosen?.whatif;
    if (!entry || !hasSpeedups(entry)) return null;
    const chart = chartBox(
      "How many times as fast each level is; the same figures are in the overview.");
    return { parts: [chart], draw: () => drawSpeedups(chart, entry) };
  });

  // The parts that show the chosen case.
  let shown = null;

  section("whatif", {
    draw(root, view) {
      shown = null;
      if (!view.case?.whatif) return hide(root);
      shown = new WhatIf(view.case.whatif);
      return shown.draw(root);
    },
    redraw: () => shown?.repaint(),
  });
})();
