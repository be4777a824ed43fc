// Latency against throughput: every configuration, the sweet spots, and the points A and B.
(() => {
  "use strict";

  const { UNKNOWN, choose, chooseCase, colors, drawSections, el, format, picker, tickBox } =
    modelperf;
  const { groupBy, isKnown } = modelperf.figures;
  const { axisEnd, chartBox, chartPart, errorBars, figure, look, plot, short, title, tooltip } =
    modelperf.charts;
  const { SortableTable, cellsButton, nameText, numberCell, sortableBox } = modelperf.tables;
  const { findSweetSpot, isMeasured, isSweep, pair, parseThreshold, shownPoints, threshold, without } =
    modelperf.points;
  let isLogarithmic = false;
  let nextOfOne = "b";
  let drawn = null;
  // Updates all but the threshold box, in which the user may be typing.
  let update = () => {};

  chartPart("chart", (view) => {
    const { model } = view;
    const points = model.points.flat();
    update = () => {};
    // A single point needs no chart.
    if (points.length < 2) return null;
    if (!points.some(isMeasured)) return "no configuration could be measured";
    if (drawn !== view.model) nextOfOne = "b";
    drawn = view.model;
    const chart = chartBox(
      "Latency and throughput of every configuration; the same figures are in the table below.");
    const parts = {
      chart,
      onClick: ([{ customdata }]) => customdata && choosePoint(view, customdata),
      choice: el("div", { class: "toolbar" }),
      spots: el("div", { class: "spots", "aria-live": "polite" }),
      pair: el("div"),
    };
    update = () => updateParts(parts, model);
    return { draw: update, parts: [
      el("div", { class: "toolbar" }, thresholdBox(model), scaleBox()),
      chart, el("p", { class: "hint", text: hint(model) }), parts.spots,
      isSweep(model) ? configurations(model) : "",
      el("h3", { text: "A and B" }), parts.choice, parts.pair, allPoints(model),
    ] };
  });

  function pointsChanged() {
    update();
    drawSections(["time", "rounds"]);
  }

  function updateParts(parts, model) {
    const limit = threshold(model);
    const both = pair(model);
    const shown = shownPoints(model);
    drawChart(parts, { ...model, points: shown }, limit, both);
    const spots = shown.map((points) => findSweetSpot(points, limit));
    parts.spots.replaceChildren(...spots.map((spot, side) =>
      el("p", { text: describeSpot(spot, model.sides[side], limit) })));
    modelperf.refill(parts.choice, [
      pointPicker(model, "A", shown[0], both.a),
      isSweep(model) ? pointPicker(model, "B", shown.at(-1), both.b) : ""]);
    parts.pair.replaceChildren(...pairTable(model, both));
  }

  function thresholdBox(model) {
    const wrong = el("span", { class: "wrong", id: "threshold-wrong", role: "alert" });
    const limit = threshold(model);
    const input = el("input", {
      type: "text", inputmode: "decimal", size: "8", placeholder: "none", autocomplete: "off",
      "aria-describedby": "threshold-wrong", value: limit === null ? "" : String(limit),
      on: { input: read },
    });
    function read() {
      const isWrong = Number.isNaN(parseThreshold(input.value));
      input.setAttribute("aria-invalid", String(isWrong));
      wrong.textContent = isWrong
        ? "This is not a time in milliseconds: type a number such as 2.5, or nothing." : "";
      if (isWrong) return;
      choose({ threshold: input.value.trim() });
      pointsChanged();
    }
    return el("label", { class: "threshold" }, "Latency threshold ", input, " ms ", wrong);
  }

  // A box for each configuration, which removes it and adds it again.
  function configurations(model) {
    const ids = new Set(model.points.flat().filter(isMeasured).map(({ id }) => id));
    const away = without();
    const boxes = [...ids].map((id) => tickBox(id, !away.has(id), (isShown) => {
      if (isShown) away.delete(id);
      else away.add(id);
      choose({ without: away.size ? JSON.stringify([...away]) : null });
      pointsChanged();
    }));
    return el("details", {}, el("summary", { text: "Configurations in the chart" }),
      el("div", { class: "toolbar", role: "group", "aria-label": "Configurations" }, boxes));
  }

  const scaleBox = () => tickBox("Logarithmic scales", isLogarithmic, (isOn) => {
    isLogarithmic = isOn;
    update();
  });

  function pointPicker(model, label, points, point) {
    const options = points.filter(isMeasured).map(({ id }) => [id, id]);
    if (!options.length) return "";
    return picker(label, options, point.id, (id) => {
      choosePointOf(model, label.toLowerCase(), id);
    });
  }

  // With one side, clicks choose B and A in turn.
  function choosePoint({ data, model }, [side, id]) {
    const key = model.points.length > 1 ? ["a", "b"][side] : nextOfOne;
    nextOfOne = key === "b" ? "a" : "b";
    if (key === "b" && !isSweep(model)) {
      const place = model.cases.findIndex((item) => item.id === id);
      return chooseCase(data.models.indexOf(model), place);
    }
    return choosePointOf(model, key, id);
  }

  // All parts show the A and B that are cases. Other points of a sweep have no layers.
  function choosePointOf(model, key, id) {
    if (model.cases.some((item) => item.id === id)) {
      return modelperf.change(key === "b" ? { b: null, case: id } : { [key]: id });
    }
    choose({ [key]: id });
    return pointsChanged();
  }

  function hint(model) {
    const click = model.points.length > 1
      ? "Click a point to take it as the A or the B of its side."
      : "Click a point to take it as B, and the next one as A.";
    const what = variesInBatch(model.points.flat()) ? "batch size" : "streams";
    return `${click} A star is a sweet spot; lines join what differs in ${what} only.`;
  }

  function drawChart({ chart, onClick }, model, limit, both) {
    const sides = model.points.flatMap((points, side) => [
      lineTrace(points, side), pointTrace(points, side, model.sides[side])]);
    const spots = model.points.map((points, side) =>
      spotTrace(findSweetSpot(points, limit).best, side, model.sides[side]));
    const last = model.points.length - 1;
    const flags = [...flag(both.a, "A"), ...flag(both.b, "B")];
    const traces = [...sides, ...spots, endTrace(both.a, 0), endTrace(both.b, last)];
    // Two quick clicks are a double click to Plotly, which must not change the scale.
    plot(chart, traces, layout(model, limit, flags), { onClick, doubleClick: "reset" });
  }

  const trace = (points, options) => ({
    type: "scatter", mode: "markers", x: points.map(({ ms }) => ms),
    y: points.map((point) => point.per_second), ...options,
  });

  function lineTrace(points, side) {
    const { color, dash } = look(side);
    const gap = { ms: null, per_second: null };
    return trace(lines(points).flatMap((line) => [...line, gap]), {
      mode: "lines", line: { color, dash, width: 1 }, opacity: 0.55, hoverinfo: "skip",
      showlegend: false,
    });
  }

  // Points that differ only in one thing, in its order.
  function lines(points) {
    const [along, across] = variesInBatch(points) ? ["batch", "streams"] : ["streams", "batch"];
    const groups = groupBy(points.filter(isMeasured), (point) =>
      JSON.stringify([point.cores, point[across], point.dims]));
    return [...groups.values()].map((line) => line.sort((one, other) => one[along] - other[along]));
  }

  function variesInBatch(points) {
    return new Set(points.map(({ batch }) => batch)).size > 1;
  }

  function pointTrace(points, side, facts) {
    const { color, symbol } = look(side);
    const shown = points.filter(isMeasured);
    const drawn = trace(shown, { name: short(title(facts)), marker: { color, symbol, size: 9 } });
    return {
      ...drawn,
      error_x: errorBars(drawn.x, shown.map((point) => point.interval_ms), color),
      error_y: errorBars(drawn.y, shown.map((point) => point.per_second_interval), color),
      customdata: shown.map(({ id }) => [side, id]),
      text: shown.map((point) => describePoint(point, facts)),
      hovertemplate: "%{text}<extra></extra>",
    };
  }

  const amounts = ({ batch, cores, streams }) =>
    `batch ${batch ?? UNKNOWN}, cores ${cores ?? UNKNOWN}, streams ${streams}`;

  function describePoint(point, facts) {
    return tooltip([
      title({ ...facts, name: point.id }),
      amounts(point),
      ...Object.entries(point.dims).map(([name, size]) => `${name} = ${size}`),
      `latency ${figure(point.ms, point.interval_ms, "ms")}`,
      `p95 ${figure(point.p95_ms, null, "ms")}`,
      figure(point.per_second, point.per_second_interval, "items/s"),
    ]);
  }

  function spotTrace(best, side, facts) {
    const shown = best !== null && isMeasured(best) ? [best] : [];
    const line = { color: colors().background, width: 1.5 };
    return trace(shown, {
      name: facts.label ? `sweet spot of ${facts.label}` : "sweet spot",
      marker: { color: look(side).color, symbol: "star", size: 19, line },
      hoverinfo: "skip", showlegend: shown.length > 0,
    });
  }

  function endTrace(point, side) {
    const symbol = `${look(side).symbol}-open`;
    return trace(point ? [point] : [], {
      showlegend: false, hoverinfo: "skip",
      marker: { color: colors().text, symbol, size: 22, line: { width: 1.5 } },
    });
  }

  // The letter next to its point, like a flag above the other points.
  function flag(point, label) {
    if (!point) return [];
    const [x, y] = [point.ms, point.per_second].map((v) => (isLogarithmic ? Math.log10(v) : v));
    const shift = label === "A" ? -17 : 17;
    return [{
      x, y, xshift: shift, yshift: 17, showarrow: false, text: `<b>${label}</b>`, borderpad: 2,
      bgcolor: look(label === "A" ? 0 : 1).color, font: { color: colors().background, size: 12 },
    }];
  }

  function layout(model, limit, flags) {
    const points = model.points.flat().filter(isMeasured);
    const times = points.map((point) => point.ms);
    const rates = points.map((point) => point.per_second);
    const highest = axisEnd(times, points.map((point) => point.interval_ms));
    // A threshold far beyond all points would squeeze them.
    const isShown = limit !== null && limit < 1.5 * highest;
    const x = axis(times, Math.max(highest, isShown ? limit : 0));
    const y = axis(rates, axisEnd(rates, points.map((point) => point.per_second_interval)));
    return {
      height: 460, hovermode: "closest",
      // The zoom stays when A, B or the threshold change.
      uirevision: `${model.name} ${isLogarithmic}`,
      xaxis: { title: "p50 latency (ms)", ...x },
      yaxis: { title: "items a second", ...y },
      shapes: isShown ? [beyond(limit, highest)] : [],
      annotations: isShown ? [...flags, limitText(limit, highest)] : flags,
    };
  }

  function axis(values, highest) {
    if (!isLogarithmic) return { range: [0, 1.08 * highest] };
    const range = [0.8 * Math.min(...values), 1.25 * highest];
    return { type: "log", range: range.map(Math.log10) };
  }

  // The region beyond the threshold.
  const beyond = (limit, highest) => ({
    type: "rect", x0: limit, x1: 100 * Math.max(limit, highest), yref: "paper", y0: 0, y1: 1,
    layer: "below", fillcolor: colors().muted, opacity: 0.16, line: { width: 0 },
  });

  function limitText(limit, highest) {
    // Near the right edge it would be cut.
    const xanchor = limit > 0.75 * highest ? "right" : "left";
    return {
      x: isLogarithmic ? Math.log10(limit) : limit, y: 0, yref: "paper", yanchor: "bottom",
      xanchor, showarrow: false, text: `beyond ${limit} ms`,
      font: { color: colors().muted, size: 12 },
    };
  }

  function describeSpot({ best, equals, undecided }, side, limit) {
    const within = limit === null ? "" : ` within ${limit} ms`;
    const name = side.label || "Sweet spot";
    const sentences = [best === null
      ? `${name}: no configuration is surely${within || " measured"}.`
      : `${name}: ${best.id} gives most items a second${within}: ` +
        `${figure(best.per_second, best.per_second_interval, "items/s")}` +
        `${isKnown(best.ms) ? ` at ${figure(best.ms, best.interval_ms, "ms")}` : ""}.`];
    if (equals.length) sentences.push(`It does not clearly differ from ${names(equals)}.`);
    if (undecided.length) sentences.push(`Within it or beyond: ${names(undecided)}.`);
    return sentences.join(" ");
  }

  const names = (points) => points.map(({ id }) => id).join(", ");

  function pairTable(model, { a, b }) {
    if (!a || !b) {
      const text = "There is nothing to compare: one side has no configuration that was measured.";
      return [el("p", { class: "muted", text })];
    }
    const isPaired = model.points.length > 1 && a.id === b.id && a.id in model.changes;
    const over = (key) => (a[key] && b[key] ? [b[key] / a[key], null, null] : null);
    const change = isPaired ? model.changes[a.id]
      : { latency: over("ms"), p95: over("p95_ms"), throughput: over("per_second") };
    const titles = [`A ${a.id}`, `B ${b.id}`];
    const row = (name, read, ratio, better) =>
      pairRow(name, titles, [read(a), read(b)], ratio, better);
    const rows = [
      row("p50 latency (ms)", (point) => [point.ms, point.interval_ms], change.latency, -1),
      row("p95 latency (ms)", (point) => [point.p95_ms, null], change.p95, -1),
      row("items a second", (point) => [point.per_second, point.per_second_interval],
        change.throughput, 1),
    ];
    const heads = [
      el("td"), pointHead("A", a, model.sides[0]), pointHead("B", b, model.sides.at(-1)),
      el("th", { scope: "col", colspan: "4", text: "B over A" }),
    ];
    const note = isPaired
      ? "Both were measured in turn: the ratio is that of the pairs, and may differ a little " +
        "from that of the figures."
      : "These two points were not measured as a pair: the ratio is that of the figures, " +
        "without an interval.";
    const table = el("table", { class: "pair saved" },
      el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows));
    return [
      el("div", { class: "scroll cards", tabindex: "0" }, table), cellsButton("A and B", table),
      el("p", { class: "hint", text: note }),
    ];
  }

  function pointHead(label, point, side) {
    return el("th", { scope: "col", colspan: "2" },
      el("b", { class: `side-${label.toLowerCase()}`, text: `${label} ` }),
      el("b", { text: point.id }), el("br"), side.name, el("br"), amounts(point));
  }

  // A figure of A and B, and their ratio; each has its interval in the next column.
  function pairRow(name, titles, figures, change, better) {
    const [value, low, high] = change ?? [null, null, null];
    const bounds = low === null || high === null ? null : [low, high];
    const shares = bounds && bounds.map((bound) => bound - 1);
    const tone = toneOf(bounds, better);
    const cells = ([shown, interval], textOf, title, kind = "") => [
      el("td", { class: `number ${kind}`, text: textOf(shown), "data-title": title }),
      el("td", { class: "number bounds", text: interval ? format.interval(interval, textOf) : "" }),
    ];
    return el("tr", {}, el("th", { scope: "row", text: name }),
      figures.flatMap((each, at) => cells(each, format.number, titles[at])),
      cells([value, bounds], format.number, "B over A", tone),
      cells([value && value - 1, shares], format.percent, "change", tone));
  }

  // Good or bad only if the interval is clear; `better` is 1 if more is better.
  function toneOf(bounds, better) {
    if (bounds === null || (bounds[0] <= 1 && bounds[1] >= 1)) return "";
    return Math.sign(bounds[0] - 1) === better ? "good" : "bad";
  }

  // Everything in the chart as a table, for readers who cannot see it or want the figures.
  function allPoints(model) {
    const hasDims = model.points.flat().some(({ dims }) => Object.keys(dims).length);
    const dimsText = ({ dims }) => Object.entries(dims).map((dim) => dim.join("=")).join(", ");
    const column = (title, read, textOf = String) =>
      ({ id: title, title, read, cell: (point) => numberCell(textOf(read(point) ?? UNKNOWN)) });
    const bounds = (read) =>
      ({ title: "interval", cell: (point) => numberCell(format.interval(read(point))) });
    const columns = [
      { id: "id", title: "configuration", isText: true, read: ({ id }) => id,
        cell: ({ id }) => el("th", { scope: "row", class: "text" }, nameText(id)) },
      ...(hasDims ? [column("dimensions", dimsText)] : []),
      column("batch", ({ batch }) => batch),
      column("cores", ({ cores }) => cores),
      column("streams", ({ streams }) => streams),
      column("p50 (ms)", ({ ms }) => ms, numberText), bounds((point) => point.interval_ms),
      column("p95 (ms)", (point) => point.p95_ms, numberText),
      column("items/s", (point) => point.per_second, numberText),
      bounds((point) => point.per_second_interval),
    ];
    const tables = model.points.map((points, side) => {
      const made = new SortableTable({
        class: "cards", kept: `points-${side}`, sort: { id: null }, select: () => points,
      });
      made.setColumns(columns);
      const label = `configurations ${model.sides[side].label}`.trim();
      return [el("h4", { text: title(model.sides[side]) }), sortableBox(label, made)];
    });
    return el("details", {}, el("summary", { text: "All points as a table" }), tables.flat());
  }

  const numberText = (value) => (value === UNKNOWN ? value : format.number(value));
})();
