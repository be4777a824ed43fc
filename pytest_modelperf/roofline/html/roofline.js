// The roofline of a case: each layer by its MACs for each byte and its rate, below the roofs that
// the peaks of the machine are, and a table of what there is to gain.
(() => {
  "use strict";

  const { colors, el, format } = modelperf;
  const { chartBox, chartPart, chartText, logAxis, plot, tooltip } = modelperf.charts;
  const { decimalsFor, isKnown, largest, msText, shareText, sum } = modelperf.figures;
  const { kindColor, kindMark, legend } = modelperf.layers;
  const { SortableTable, nameText, numberCell, sortableBox, stackedCell, textCell } = modelperf.tables;

  const GIGA = 1e9;
  const DASHES = ["solid", "dash", "dot", "dashdot"];

  const rateText = (value) => (isKnown(value) ? format.number(value / GIGA) : "");
  // Above the roof, the true peak is higher than what was measured.
  const roofText = (share) => (share > 1 ? ">100 %" : shareText(share));
  const ofMacs = (roof, value) => (roof.macs ? value : null);

  function columnsOf(decimals, mostMs) {
    const figure = (id, title, read, text, note) => ({
      id, title, note, read, cell: (row) => numberCell(isKnown(read(row)) ? text(read(row)) : ""),
    });
    const ms = (value) => msText(value, decimals);
    const roof = "of the roof, or, without MACs, of the bandwidth";
    return [
      { id: "name", title: "layer", isText: true, read: ({ name }) => name, cell: nameCell },
      { id: "type", title: "type", isText: true, read: ({ op_type: type }) => type,
        cell: ({ op_type: type, kind }) => textCell(type, kindMark(kind)) },
      figure("ms", "ms", (row) => row.ms, ms),
      figure("least", "least ms", (row) => row.least_ms, ms, "the time that its roof allows"),
      { id: "gain", title: "to gain, ms", note: "the time that the roof would save, with its interval",
        read: (row) => row.gain_ms, cell: (row) => gainCell(row, mostMs, ms) },
      figure("share", "share", (row) => row.share, roofText, roof),
      { id: "bound", title: "bound", isText: true, read: ({ bound }) => bound,
        cell: ({ bound }) => el("td", { class: "text", text: bound }) },
      figure("rate", "GMAC/s", (row) => ofMacs(row, row.achieved_per_second), rateText),
      figure("roof", "roof", (row) => ofMacs(row, row.attainable_per_second), rateText,
        "the GMAC/s that its MACs and bytes allow at these peaks"),
      figure("intensity", "MAC/B", (row) => ofMacs(row, row.intensity), format.number),
      figure("bytes", "GB/s", (row) => row.achieved_bytes_per_second, rateText),
      figure("macs", "MACs", (row) => ofMacs(row, row.macs), format.count),
    ];
  }

  // A bar as long as its part of the largest gain. It is faded if its interval reaches 0, so that the
  // layer may be at its roof already.
  function gainCell({ gain_ms: gain, gain_interval_ms: interval }, mostMs, ms) {
    if (!isKnown(gain)) return numberCell("");
    const bar = mostMs ? gain / mostMs : 0;
    const isFaint = interval && interval[0] <= 0;
    return stackedCell(ms(gain), interval && interval.map(ms).join(" … "), {
      class: `number change bar${isFaint ? " faint" : ""}`, style: `--bar: ${bar}` });
  }

  function nameCell({ name, layer }) {
    const open = { click: () => modelperf.kernels.open(layer) };
    const link = el("button", { type: "button", class: "link", on: open }, nameText(name));
    return el("th", { scope: "row", class: "name" }, layer ? link : nameText(name));
  }

  // The layers with most to gain stand first; if nothing ran, those with the most work.
  function tableOf(rows, decimals, hasRun) {
    const mostMs = largest(rows.map((row) => row.gain_ms));
    const columns = columnsOf(decimals, mostMs).filter(({ read }) => rows.some((row) => isKnown(read(row))));
    const sort = { id: hasRun ? "gain" : "least", isDescending: true };
    const name = "roofline-table sticky-head cards";
    const table = new SortableTable({ class: name, sort, select: () => rows, kept: "roofs" });
    table.setColumns(columns);
    const box = sortableBox("layers below their roofs", table);
    box.firstChild.classList.add("roofline-window");
    return box;
  }

  // If nothing ran, a layer is at its roof.
  const timeOf = ({ ms, least_ms: least }) => ms ?? least;
  const rateOf = (row) => row.achieved_per_second ?? row.attainable_per_second;

  // What there is to gain, and the peaks of the machine, in large type.
  const tiles = (shown) => el("dl", { class: "tiles" }, shown.map(([name, value, note]) =>
    el("div", { class: "tile" }, el("dt", { text: name }),
      el("dd", { text: value }, el("small", { text: note })))));

  // A layer of the roofline with the one of the page.
  function rowsOf(view) {
    const layers = new Map(view.case.layers.map((layer) => [layer.ids[0], layer]));
    return view.case.roofline.layers.map((roof) => ({ ...roof, layer: layers.get(roof.id) }));
  }

  // From the slope of the memory to the flat peak of a precision, within the shown range.
  function roofTrace([name, peak], index, bandwidth, [least, most], color) {
    const bend = peak / bandwidth;
    const x = [Math.min(least, bend), bend, Math.max(most, bend)];
    return {
      type: "scatter", mode: "lines", name: chartText(`${name}, ${rateText(peak)} GMAC/s`),
      x, y: x.map((each) => Math.min(peak, each * bandwidth) / GIGA),
      line: { color, width: 1.5, dash: DASHES[index % DASHES.length] }, hoverinfo: "name",
    };
  }

  // In a cache, memory is faster: a slope that only layers with few bytes reach.
  function cacheTrace(peaks, peak, [least], color) {
    const best = Math.max(...peaks.bandwidths.map((each) => each.bytes_per_second));
    if (best <= peaks.bytes_per_second) return [];
    const x = [Math.min(least, peak / best), peak / best];
    return [{
      type: "scatter", mode: "lines", name: `in cache, ${rateText(best)} GB/s`,
      x, y: x.map((each) => (each * best) / GIGA),
      line: { color, width: 1, dash: "dot" }, hoverinfo: "name",
    }];
  }

  function layerTrace(rows) {
    const longest = Math.max(...rows.map(timeOf));
    return {
      type: "scatter", mode: "markers", showlegend: false,
      x: rows.map(({ intensity }) => intensity),
      y: rows.map((row) => rateOf(row) / GIGA),
      marker: {
        color: rows.map(({ kind }) => kindColor(kind)),
        // Its area grows with the time of the layer.
        size: rows.map((row) => 6 + 16 * Math.sqrt(timeOf(row) / longest)),
        opacity: 0.8, line: { color: colors().background, width: 1 },
      },
      customdata: rows.map((_, index) => index),
      hoverinfo: "text",
      hovertext: rows.map(({ text }) => tooltip(text)),
    };
  }

  function drawChart(chart, { peaks }, rows) {
    const { text, muted } = colors();
    const intensities = rows.map(({ intensity }) => intensity);
    const range = [0.5 * Math.min(...intensities), 2 * Math.max(...intensities)];
    const roofs = Object.entries(peaks.macs_per_second);
    const highest = Math.max(...roofs.map(([, peak]) => peak));
    const traces = [
      ...roofs.map((roof, index) => roofTrace(roof, index, peaks.bytes_per_second, range, text)),
      ...cacheTrace(peaks, highest, range, muted),
      layerTrace(rows),
    ];
    const axis = (key) => {
      const values = traces.flatMap((trace) => trace[key]);
      return logAxis([Math.min(...values), Math.max(...values)]);
    };
    plot(chart, traces, {
      height: 440,
      hovermode: "closest",
      xaxis: { ...axis("x"), title: "MACs for each byte moved" },
      yaxis: { ...axis("y"), title: "GMAC/s" },
    }, { onClick: ([{ customdata }]) => {
      const layer = rows[customdata]?.layer;
      if (layer) modelperf.kernels.open(layer);
    } });
  }

  chartPart("roofline", (view) => {
    const roofline = view.case?.roofline;
    if (!roofline?.layers.length) return null;
    const rows = rowsOf(view);
    const hasRun = rows.some(({ ms }) => isKnown(ms));
    const decimals = decimalsFor(sum(rows.map(timeOf)));
    const drawn = rows.filter((row) => row.macs && row.intensity && rateOf(row));
    const chart =
      chartBox("Layers below the roofs of this machine; the same figures are in the table below.");
    const left = rows.length - drawn.length;
    const hint = [
      "Each point is a layer, the larger the longer it takes; a click shows it in the table of kernels.",
      ...(hasRun ? [] : ["Nothing ran, so each is at its roof."]),
      ...(left ? [`Without MACs, and in the table alone: ${left} layers.`] : []),
    ].join(" ");
    const parts = [
      tiles(roofline.tiles),
      ...roofline.lines.map((line) => el("p", { class: "line", text: line })),
      ...(drawn.length ? [
        chart, legend(drawn.map(({ kind }) => kind)), el("p", { class: "hint", text: hint }),
      ] : []),
      tableOf(rows, decimals, hasRun),
      ...roofline.notes.map((note) => el("p", { class: "hint", text: note })),
    ];
    return { parts, draw: () => drawn.length && drawChart(chart, roofline, drawn) };
  });
})();
