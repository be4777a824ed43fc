// The time of each layer by its position in the graph, or its FLOPs if nothing ran.
(() => {
  "use strict";

  const { el, format, toggle } = modelperf;
  const {
    barMarker, chartBox, chartPart, chartText, hasTwo, look, plot, sideIndexes, sideLabel, tooltip,
    totalsOf,
  } = modelperf.charts;
  const { decimalsFor, isKnown, known, largest, shareText, timeText } = modelperf.figures;
  const { sortedBy } = modelperf.tables;
  const { IN_ANOTHER } = modelperf.layers;

  // The most layers whose bars fit side by side; with more, each side has its own chart.
  const MANY_LAYERS = 250;
  // The unit of each fact of a layer that can be drawn.
  const UNITS = { ms: "ms", flops: "FLOPs" };

  function depthPart(view, layers, fact) {
    const chart = chartBox();
    const sides = sideIndexes(view);
    const places = sortedBy(layers, (layer) => layer.depth, false);
    const totals = totalsOf(view, view.case.layers, fact);
    const decimals = decimalsFor(largest(totals));
    const isMany = layers.length > MANY_LAYERS;
    const isApart = isMany && hasTwo(view);
    let shape = isMany ? "lines" : "bars";
    let scale = UNITS[fact];

    function draw() {
      const traces = [
        ...sides.map(traceOf),
        ...(fact === "ms" ? sides.map(hiddenTrace).filter(({ x }) => x.length > 0) : []),
      ];
      plot(chart, traces, {
        height: isApart ? 440 : 340, barmode: "group", bargap: 0.15,
        margin: { l: 56, r: 12, t: 36, b: 44 }, hovermode: "closest",
        xaxis: { title: "position in the graph", zeroline: false, anchor: isApart ? "y2" : "y" },
        yaxis: axis(isApart ? { domain: [0.53, 1] } : {}),
        ...(isApart ? { yaxis2: axis({ domain: [0, 0.47], matches: "y" }) } : {}),
        showlegend: traces.length > 1,
      }, { onClick: ([{ customdata }]) => {
        if (isKnown(customdata)) modelperf.kernels.open(places[customdata]);
      } });
    }

    function axis(domain) {
      const unit = UNITS[fact];
      const titles = { log: `${unit} (logarithmic)`, share: "share of its side" };
      return {
        title: titles[scale] ?? unit, type: scale === "log" ? "log" : "linear",
        tickformat: scale === "share" ? ".0%" : "", rangemode: "tozero", ...domain,
      };
    }

    // The layers that `has` holds for, at the height that `read` returns.
    function pointsOf(side, has, read) {
      const found = [...places.keys()].filter((at) => has(places[at]));
      const shown = found.map((at) => places[at]);
      const whole = scale === "share" ? totals[side] || 1 : 1;
      return {
        yaxis: isApart && side ? "y2" : "y", x: shown.map(({ depth }) => depth),
        y: shown.map((layer) => read(layer) / whole), customdata: found, hoverinfo: "text",
        hovertext: shown.map((layer) => hover(layer, side)),
      };
    }

    function traceOf(side) {
      const read = (layer) => layer[fact][side];
      const trace = {
        ...pointsOf(side, (layer) => isKnown(read(layer)), read),
        name: chartText(sideLabel(view, side) || "time"),
      };
      const marker = barMarker(side, hasTwo(view));
      if (shape === "bars") return { ...trace, type: "bar", marker };
      const { color, dash, symbol } = look(side);
      return {
        ...trace, type: "scatter", mode: isMany ? "lines" : "lines+markers",
        // There is no time between two layers, so steps lead from one to the next.
        line: { color, width: isMany ? 1 : 1.5, dash: isApart ? "solid" : dash, shape: "hvh" },
        marker: { color, size: 5, symbol },
      };
    }

    // Layers without their own time are drawn at the time of their kernel.
    function hiddenTrace(side) {
      const hosts = new Map(places.map((layer) => [layer.names[side], layer.ms[side]]));
      const { color, symbol } = look(side);
      return {
        ...pointsOf(side, ({ states }) => states[side] === IN_ANOTHER,
          (layer) => hosts.get(layer.runs_in[side]) ?? 0),
        type: "scatter", mode: "markers", visible: "legendonly",
        name: chartText([sideLabel(view, side), IN_ANOTHER].filter(Boolean).join(", ")),
        marker: {
          color: modelperf.colors().muted, size: 7, symbol: `${symbol}-open`,
          line: { color, width: 1.5 },
        },
      };
    }

    function hover(layer, side) {
      const label = sideLabel(view, side);
      const value = layer[fact][side];
      const share = isKnown(value) && totals[side] ? value / totals[side] : null;
      const [text, whyNot] = fact === "ms"
        ? [timeText(value, decimals), layer.why_no_time[side]] : [format.count(value), null];
      const time = whyNot ?? `${text}, ${shareText(share)}`;
      const title = `${layer.names[side] ?? layer.type} (${layer.type})`;
      return tooltip([title, label ? `${label}: ${time}` : time]);
    }

    const choice = (label, options, chosen, take) =>
      toggle(label, options.map((option) => [option, option]), chosen, (option) => {
        take(option);
        draw();
      });
    return { draw, parts: [el("div", { class: "toolbar" },
      choice("drawn as", ["bars", "lines"], shape, (option) => { shape = option; }),
      choice(`${fact === "ms" ? "time" : "FLOPs"} as`, [UNITS[fact], "log", "share"], scale,
        (option) => { scale = option; })), chart] };
  }

  chartPart("depth", (view) => {
    const layers = (view.case?.layers ?? []).filter((layer) => layer.is_layer);
    const fact = Object.keys(UNITS).find((each) => layers.some((layer) => known(layer[each]).length));
    if (fact) return depthPart(view, layers, fact);
    return layers.length ? "the layers of this case have neither times nor FLOPs" : null;
  });
})();
