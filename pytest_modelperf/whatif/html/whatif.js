// The what-if: how fast each level is, and the layer types and layers of the chosen levels.
(() => {
  "use strict";

  const { UNKNOWN, choose, chosen, colorOf, colors, el, picker, toggle } = modelperf;
  const {
    chartBox, chartPart, chartText, drawBars, errorBars, logAxis, nameAxis, plot, striped, tooltip,
  } = modelperf.charts;
  const {
    decimalsFor, halfWidthText, isKnown, known, largest, msText, shareText, speedupText, timeText,
    wholeText,
  } = modelperf.figures;
  const { LayerFilters, kindMark, typeCell } = modelperf.layers;
  const {
    RowWindow, SortableTable, nameText, note, numberCell, sortableBox, sortedBy, stackedCell,
    textCell,
  } = modelperf.tables;

  const ALL = "all";
  const VIEWS = [["ms", "ms"], ["log", "log"], ["percent", "percent"]];
  // The number of colours in the style sheet.
  const COLORS = 8;
  const OUTSIDE = "ran outside the accelerated engine: no speedup is given";
  // The most bars that a chart shows, and the least types that it shows for many levels.
  const MOST_BARS = 48;
  const LEAST_TYPES = 5;
  // The most bars that fit side by side along the model; more are drawn as steps.
  const MOST_ALONG = 400;
  // One nanosecond, in ms: a shorter time is a remainder of a subtraction.
  const SHORTEST_MS = 1e-6;

  const areTimed = (rows) => rows.some(({ ms }) => ms.some(isKnown));

  // -- what is chosen

  // The choices: the unchanged model, each level, and all of them.
  const summaries = ({ levels }) => [
    [ALL, "all side by side"],
    ...levels.map(({ title, failure }) =>
      [title, failure === null ? title : `${title} · failed`]),
  ];

  // The choice, which the address keeps too: a level next to the unchanged model.
  function choiceOf({ levels, types, layers }) {
    const title = chosen("summary");
    const picked = levels.findIndex((level) => level.title === title);
    const isAll = picked < 0;
    const wanted = isAll ? [...levels.keys()] : [...new Set([0, picked])];
    const hasTimes = (index) => [...types, ...layers].some(({ ms }) => isKnown(ms[index]));
    return {
      summary: isAll ? ALL : title,
      view: VIEWS.find(([id]) => id === chosen("view"))?.[0] ?? "ms",
      isAll,
      isBaseline: picked === 0,
      // Without a choice, a level without times would be a column of dashes.
      shown: isAll ? wanted.filter(hasTimes) : wanted,
      wanted,
    };
  }

  // Texts about failures and estimates among the chosen levels.
  function remarks({ levels, layers }, { wanted, shown }) {
    const texts = wanted
      .filter((index) => levels[index].failure !== null)
      .map((index) => `${levels[index].title} failed: ${levels[index].failure}`);
    if (shown.some((index) => levels[index].is_estimate)) {
      texts.push("An estimate is between two levels that were measured, and has no interval.");
    }
    if (layers.some(({ outside }) => shown.some((index) => outside[index]))) {
      texts.push(`outside: the layer ${OUTSIDE}.`);
    }
    return texts;
  }

  // -- the figures of a row at a level

  // The value in the chosen unit, and its text.
  const heightOf = ({ ms, shares }, index, { view }) => (view === "percent" ? shares : ms)[index];

  const heightText = (row, index, choice, decimals) => {
    const height = heightOf(row, index, choice);
    return choice.view === "percent" ? shareText(height) : msText(height, decimals);
  };

  // The columns of figures for the shown levels.
  function columnsOf({ levels }, choice, decimals) {
    const unit = choice.view === "percent" ? "%" : "ms";
    const columns = choice.shown.map((index) => ({
      id: `ms-${index}`, title: `${levels[index].title} ${unit}`, width: "level",
      read: ({ ms }) => ms[index],
      cell: (row) => timeCell(row, index, levels[index], choice, decimals),
    }));
    if (choice.isAll || choice.isBaseline) return columns;
    const index = choice.shown.at(-1);
    return [...columns, {
      id: `speedup-${index}`, title: "speedup", width: "level",
      note: `time of ${levels[0].title} / time of ${levels[index].title}`,
      read: ({ speedups }) => speedups[index],
      cell: (row) => speedupCell(row, index, levels[index]),
    }];
  }

  // Without a column of its own, the speedup is below the time.
  function timeCell(row, index, level, choice, decimals) {
    const isOutside = row.outside?.[index] && (choice.isAll || choice.isBaseline);
    const speedup = choice.isAll && index > 0 ? row.speedups[index] : null;
    const small = isKnown(speedup) && !isOutside ? speedupText(speedup) : "";
    const cell = stackedCell(heightText(row, index, choice, decimals), small);
    cell.classList.toggle("estimate", level.is_estimate);
    if (isOutside) cell.append(outsideTag());
    return cell;
  }

  function speedupCell({ outside, speedups }, index, level) {
    if (outside?.[index]) return el("td", { class: "number" }, outsideTag());
    return numberCell(speedupText(speedups[index]),
      { class: `number ${level.is_estimate ? "estimate" : ""}` });
  }

  const outsideTag = () => el("small", { class: "outside", text: "outside", title: OUTSIDE });

  const colorOfLevel = (index) => colorOf(`--level-${index % COLORS}`);

  // The bars of a level; estimates and levels that share a colour are striped.
  const levelMarker = (index, { is_estimate: isEstimate }) =>
    striped(colorOfLevel(index), isEstimate ? "/" : index < COLORS ? "" : "x", 0.35);

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

  // -- the two parts: each has its elements, `show` for another choice, and `draw` for its chart

  const TYPE_COLUMNS = [
    { id: "type", title: "layer type", isText: true, read: ({ type }) => type,
      cell: (type) => typeCell(type, "row") },
    { id: "count", title: "layers", note: "of the unchanged model", read: ({ count }) => count,
      cell: ({ count }) => numberCell(isKnown(count) ? wholeText(count) : "") },
  ];

  function typesPart({ levels, types }) {
    const decimals = decimalsFor(largest(levels.map((level) => level.total_ms)));
    const chart = chartBox("The time of each layer type; the same figures are in the table below.");
    const hint = el("p", { class: "hint" });
    let choice = null;
    // A type that ran at none of the shown levels has no line.
    const select = () =>
      types.filter(({ ms }) => choice.shown.some((index) => isKnown(ms[index])));
    const table = new SortableTable({
      class: "types-table whatif-types cards", kept: "types", sort: { id: "ms-0", isDescending: true },
      select,
    });
    const whole = {
      type: "all", is_layer: true, ms: levels.map((level) => level.total_ms),
      shares: levels.map((level) => (level.total_ms ? 1 : null)),
      speedups: levels.map(({ speedup }) => speedup?.[0]),
    };

    function show(now) {
      choice = now;
      const columns = [...TYPE_COLUMNS, ...columnsOf({ levels }, choice, decimals)];
      table.setColumns(columns, columns[TYPE_COLUMNS.length].id,
        el("tfoot", {}, table.line(whole, {}, columns)));
    }

    function draw() {
      const { shown, view } = choice;
      const most = (row) => largest(shown.map((index) => heightOf(row, index, choice)));
      const rows = sortedBy(select(), most, true);
      const drawn = rows.slice(0, Math.max(LEAST_TYPES, Math.floor(MOST_BARS / shown.length)));
      hint.textContent = [
        drawn.length < rows.length
          ? `The ${drawn.length} types that take most; all are in the table. ` : "",
        view === "percent" ? "Percentages are those of the whole of each level." : "",
      ].join("");
      const timed = shown.filter((index) => drawn.some(({ ms }) => isKnown(ms[index])));
      chart.hidden = timed.length === 0;
      if (!timed.length) return;
      const series = timed.map((index) => seriesOf(drawn, index));
      drawBars(chart, drawn.map(({ type }) => type), series, {
        // Room for every bar and the names next to them.
        height: drawn.length * Math.max(26, 15 * timed.length + 8) + 110,
        // The figures are next to the bars.
        xaxis: timeAxis(known(series.flatMap(({ lengths }) => lengths)), choice, 1.25),
      });
    }

    function seriesOf(rows, index) {
      const { title } = levels[index];
      const lengths = rows.map((row) => heightOf(row, index, choice));
      return {
        name: title, lengths, marker: levelMarker(index, levels[index]),
        texts: rows.map((row, at) =>
          (isKnown(lengths[at]) ? heightText(row, index, choice, decimals) : "")),
        tooltips: rows.map(({ type, ms }) =>
          tooltip([type, `${title}: ${timeText(ms[index], decimals)}`])),
      };
    }

    return { elements: [chart, hint, sortableBox("layer types", table)], show, draw };
  }

  const layerColumn = (id, title, width, note) => ({
    id, title, width, note, isText: true, read: (layer) => layer[id] || null,
    cell: (layer) =>
      textCell(layer[id] || UNKNOWN, layer.kind && id === "type" ? kindMark(layer.kind) : null),
  });

  const LAYER_COLUMNS = [
    { id: "depth", title: "#", width: "place", note: "position in the graph",
      read: ({ depth }) => depth,
      cell: ({ depth, is_layer: isLayer }) => numberCell(isLayer ? String(depth) : "") },
    layerColumn("id", "layer", "name", "its first output"), layerColumn("type", "type", "type"),
    layerColumn("weight", "weight", "weight", "its largest parameter"),
  ];

  // The half widths of the shown times. Side by side there is no room for them.
  function halfWidths(layers, { isAll, shown }) {
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

  // The layers at the chosen levels: along the model as a chart, and as a table.
  function layersPart(entry) {
    const { levels, layers } = entry;
    const decimals = decimalsFor(largest(layers.map(({ ms }) => largest(ms))));
    const chart =
      chartBox("The time of each layer along the model; the table below has the figures.");
    const along = sortedBy(layers.filter(({ is_layer: isLayer }) => isLayer),
      ({ depth }) => depth, false);
    const hasTimes = layers.some(({ ms }) => isKnown(ms[0]));
    let choice = null;
    const filters = new LayerFilters(layers, measuresOf(entry), false, () => rows.update());
    const rows = new RowWindow("layers", "No layer is like that.", {
      kept: "sort", sort: { id: hasTimes ? "ms-0" : "depth", isDescending: hasTimes },
      select: () => filters.select(), lineOf,
    });
    rows.reserve(layers.length);
    const element = el("div", { class: "whatif-layers" },
      el("div", { class: "kernels-tools" }, filters.element, rows.csvButton("layers")),
      rows.element);

    function show(now) {
      choice = now;
      const figures = [...columnsOf(entry, choice, decimals), ...halfWidths(layers, choice)];
      element.classList.toggle("side-by-side", choice.isAll);
      rows.element.style.setProperty("--figures", figures.length);
      rows.setColumns([...LAYER_COLUMNS, ...figures], figures[0].id);
    }

    // A layer without its own time names the kernel that it ran in, across all time columns.
    function lineOf(layer) {
      const isTimed = choice.shown.some((index) => isKnown(layer.ms[index]));
      const attributes = { "data-depth": layer.depth };
      if (isTimed || !layer.runs_in) return rows.line(layer, attributes);
      const line = rows.line(layer, attributes, LAYER_COLUMNS);
      const title = `in ${layer.runs_in}`;
      const colspan = rows.columns.length - LAYER_COLUMNS.length;
      line.append(el("td", { class: "without", colspan, title }, nameText(title)));
      return line;
    }

    function draw() {
      rows.draw();
      const traces = choice.shown.map(traceOf);
      plot(chart, traces.filter(({ x }) => x.length > 0), {
        barmode: "group", bargap: 0.15, hovermode: "closest", showlegend: traces.length > 1,
        xaxis: { title: "position in the graph", zeroline: false },
        yaxis: timeAxis(traces.flatMap(({ y }) => y), choice, 1.05),
      });
    }

    function traceOf(index) {
      const { title } = levels[index];
      const timed = along.filter(({ ms }) => isKnown(ms[index]));
      const marker = levelMarker(index, levels[index]);
      const look = timed.length * choice.shown.length > MOST_ALONG
        ? { type: "scatter", mode: "lines", line: { color: marker.color, width: 1, shape: "hvh" } }
        : { type: "bar", marker };
      return {
        ...look, name: chartText(title), x: timed.map(({ depth }) => depth),
        y: timed.map((layer) => heightOf(layer, index, choice)), hoverinfo: "text",
        hovertext: timed.map(({ id, type, ms }) =>
          tooltip([`${id} (${type})`, `${title}: ${timeText(ms[index], decimals)}`])),
      };
    }

    return { elements: [chart, element], show, draw };
  }

  chartPart("whatif", ({ case: shown }) => {
    const entry = shown?.whatif;
    if (!entry) return null;
    const parts = [
      areTimed(entry.types) && typesPart(entry), areTimed(entry.layers) && layersPart(entry),
    ];
    const drawn = parts.filter(Boolean);
    const box = el("div", { "aria-live": "polite" });
    const printNote = el("p", { class: "print-note" });
    const show = () => {
      const choice = choiceOf(entry);
      const [, title] = summaries(entry).find(([id]) => id === choice.summary);
      printNote.textContent = `Summary: ${title}, times as ${choice.view}.`;
      box.replaceChildren(...remarks(entry, choice).map(note));
      for (const part of drawn) part.show(choice);
    };
    const draw = () => drawn.forEach((part) => part.draw());
    const pick = (changes) => {
      choose(changes);
      show();
      draw();
    };
    const { summary, view } = choiceOf(entry);
    const headed = (heading, part, whyNot) =>
      [el("h3", { text: heading }), ...(part ? part.elements : [note(whyNot)])];
    show();
    return { draw, parts: [
      el("div", { class: "toolbar sticky-toolbar" },
        picker("Summary", summaries(entry), summary, (id) => pick({ summary: id })),
        toggle("Times as", VIEWS, view, (id) => pick({ view: id }))),
      printNote, box,
      ...headed("Layer types", parts[0], "The layer types have no times."),
      ...headed("Layers", parts[1], "The layers have no times."),
    ] };
  });

  // -- the speedup of each level, with its interval

  const hasSpeedup = ({ speedup }) => isKnown(speedup?.[0]);

  chartPart("speedups", ({ case: shown }) => {
    const entry = shown?.whatif;
    if (!entry || entry.levels.filter(hasSpeedup).length < 2) return null;
    const chart = chartBox(
      "How many times as fast each level is; the same figures are in the overview.");
    return { parts: [chart], draw: () => drawSpeedups(chart, entry) };
  });

  function drawSpeedups(chart, { levels }) {
    const shown = [...levels.keys()].filter((index) => hasSpeedup(levels[index]));
    const values = shown.map((index) => levels[index].speedup[0]);
    const bounds = shown.map((index) => levels[index].speedup.slice(1))
      .map((ends) => (ends.every(isKnown) ? ends : null));
    const { text, muted } = colors();
    const [least, most] = [Math.min(...values, 1), Math.max(...values, 1)];
    // A long error bar is cut before it flattens the chart.
    const room = Math.max(most - least, 0.1 * most);
    const ends = known([...values, ...bounds.flat(), 1]).map((end) =>
      Math.min(most + room, Math.max(least - room, end)));
    const margin = 0.12 * (Math.max(...ends) - Math.min(...ends));
    const trace = {
      type: "scatter", mode: "markers", x: values,
      y: shown.map((index) => chartText(levels[index].title)),
      error_x: errorBars(values, bounds, muted),
      marker: {
        size: 10, color: shown.map(colorOfLevel), line: { width: 2 },
        symbol: shown.map((index) => (levels[index].is_estimate ? "circle-open" : "circle")),
      },
      hoverinfo: "text", hovertext: shown.map((index) => chartText(levels[index].text)),
    };
    plot(chart, [trace], {
      height: 28 * shown.length + 80, margin: { l: 8, r: 12, t: 8, b: 44 },
      xaxis: {
        title: "times as fast", zeroline: false, fixedrange: true,
        range: [Math.min(...ends) - margin, Math.max(...ends) + margin],
      },
      yaxis: nameAxis(shown.map((index) => levels[index].title), 24),
      shapes: [{
        type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, layer: "below",
        line: { color: text, width: 1, dash: "dot" },
      }],
    });
  }
})();
