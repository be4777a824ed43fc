// Layers by type: a table, and a chart of the ticked types' times.
(() => {
  "use strict";

  const { UNKNOWN, choose, chosen, el, format } = modelperf;
  const {
    barMarker, chartBox, chartPart, drawBars, hasTwo, sideIndexes, sideLabel, sideTag, tooltip,
    totalsOf,
  } = modelperf.charts;
  const {
    decimalsFor, isKnown, isSure, known, largest, latest, msText, shareText, sum, timeText, wholeText,
  } = modelperf.figures;
  const { typeCell } = modelperf.layers;
  const { SortableTable, changeCell, note, numberCell, shareCell, sortableBox, sortedBy } =
    modelperf.tables;

  const TICK_NOTE = "in the distribution";
  // Types that explain next to nothing of a difference.
  const isStill = ({ explains, change_interval_ms: interval }) =>
    isKnown(explains) && Math.abs(explains) < 0.01 && !isSure(interval);

  const shareOf = (part, whole) => (isKnown(part) && whole ? part / whole : null);

  // `cell` makes the cell of a side; if a column is of both, its cell spans their lines.
  const columnsOf = (decimals, flops) => [
    { id: "type", title: "layer type", isText: true, isOfBoth: true, read: ({ type }) => type,
      cell: (type) => typeCell(type, "rowgroup") },
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
    { id: "flops", title: "FLOPs", ofCounts: true, read: (type) => largest(type.flops),
      cell: (type, side) => numberCell(format.count(type.flops[side])) },
    { id: "flops_share", title: "share", ofCounts: true, note: "of the FLOPs of its side",
      read: (type) => largest(type.flops),
      cell: (type, side) => shareCell(shareOf(type.flops[side], flops[side]), side) },
    { id: "params", title: "params", read: ({ params }) => largest(params),
      cell: ({ params }, side) => numberCell(format.count(params[side])) },
  ];

  function typesPart(view) {
    const { types } = view.case;
    const sides = sideIndexes(view);
    const hasTimes = types.some(({ ms }) => known(ms).length > 0);
    const decimals = decimalsFor(largest(totalsOf(view, types)));
    const without = new Set((chosen("untick") ?? "").split(","));
    const boxes = new Map(types.map((type) => [type, tickOf(type)]));
    const chart = chartBox();
    const emptyChart = note("No type is ticked.");

    function tickOf({ type }) {
      return el("input", { type: "checkbox", title: TICK_NOTE, checked: !without.has(type),
        "aria-label": `${type} ${TICK_NOTE}`, on: { change: ticked } });
    }

    function ticked() {
      const names = types.filter((type) => !boxes.get(type).checked).map(({ type }) => type);
      choose({ untick: names.join(",") || null });
      draw();
    }

    const allOrNone = (text, isOn) => el("button", { type: "button", text, on: { click: () => {
      for (const box of boxes.values()) box.checked = isOn;
      ticked();
    } } });

    function tableOf() {
      const tick = { id: "tick", title: "", note: TICK_NOTE, isText: true, isOfBoth: true,
        needsTimes: true, cell: (type) => el("td", { class: "tick-cell" }, boxes.get(type)) };
      const tag = { id: "side", title: "", isText: true, needsTwo: true,
        cell: (_, side) => el("td", { class: "text" }, sideTag(view, side)) };
      const [name, ...others] = columnsOf(decimals,
        sides.map((side) => sum(known(types.map(({ flops }) => flops[side])))));
      const columns = [tick, name, tag, ...others].filter(({ needsTimes, needsTwo, ofCounts }) =>
        (hasTimes ? !ofCounts : !needsTimes) && (!needsTwo || hasTwo(view)));
      // A type has a line for each side, which sorting keeps together.
      const bodies = new Map(types.map((type) => [type, bodyOf(type, columns)]));
      const table = new SortableTable({
        class: "types-table cards", kept: "types", still: isStill,
        stillText: "types that hardly changed",
        sort: { id: hasTimes ? "ms" : "flops", isDescending: true }, select: () => types,
      });
      table.show = (rows) => table.table.replaceChildren(table.table.tHead, ...rows.map((type) =>
        bodies.get(type) ?? el("tbody", {}, table.lineFor(type))));
      table.setColumns(columns);
      return table;
    }

    function bodyOf(type, columns) {
      const lines = sides.map((side) => el("tr", {},
        columns.filter(({ isOfBoth }) => !isOfBoth || side === 0).map(({ cell, isOfBoth, title }) => {
          const made = cell(type, side);
          if (made.tagName === "TD" && title) made.dataset.title = title;
          if (isOfBoth) made.rowSpan = sides.length;
          return made;
        })));
      const attributes = { class: type.is_layer ? "" : "beside", "data-type": type.type };
      return el("tbody", attributes, ...lines);
    }

    function draw() {
      const shown = types.filter((type) => known(type.ms).length && boxes.get(type).checked);
      emptyChart.hidden = shown.length > 0;
      chart.hidden = shown.length === 0;
      if (!shown.length) return;
      const rows = sortedBy(shown, ({ ms }) => largest(ms), true);
      const series = sides.map((side) => seriesOf(rows, side));
      // The figures are next to the bars.
      const widest = 1.5 * largest(series.flatMap(({ lengths }) => lengths));
      drawBars(chart, rows.map(({ type }) => type), series, {
        height: rows.length * (hasTwo(view) ? 34 : 24) + 90,
        xaxis: { tickformat: ".0%", nticks: 4, range: [0, widest || 1] },
      });
    }

    function seriesOf(rows, side) {
      const label = sideLabel(view, side);
      const total = sum(rows.map(({ ms }) => ms[side]));
      const lengths = rows.map(({ ms }) => (isKnown(ms[side]) && total ? ms[side] / total : null));
      return {
        name: label || "share", lengths, marker: barMarker(side, hasTwo(view)),
        texts: lengths.map((share) => (isKnown(share) ? shareText(share) : "")),
        tooltips: rows.map(({ type, ms }, index) => tooltip([
          [type, label].filter(Boolean).join(", "),
          `${shareText(lengths[index])} of the ticked, ${timeText(ms[side], decimals)}`,
        ])),
      };
    }

    const box = sortableBox("layer types", tableOf());
    if (!hasTimes) return { parts: [box] };
    const caption = el("figcaption", {}, el("span", { text: "Time of the ticked types" }),
      allOrNone("all", true), allOrNone("none", false));
    return { draw, parts: [el("div", { class: "types-both" }, box,
      el("figure", { class: "types-chart" }, caption, chart, emptyChart))] };
  }

  // Written once for all parts; a sweep has no cases and no layers.
  chartPart("types", (view) => (view.case?.types.length
    ? typesPart(view) : view.case && "nothing is known of the layers of this case"));
})();
