// A checkup: what could be detected after how long, how the two sessions of one model differed in
// each round, and what took their processors meanwhile.
(() => {
  "use strict";

  const { colors, el } = modelperf;
  const { chartBox, chartPart, look, plot } = modelperf.charts;
  const { isKnown } = modelperf.figures;
  const PERCENT = 100;
  const rounds = (values) => values.map((_, index) => String(index + 1));

  // A part with one chart, which a sentence describes.
  function part(id, make) {
    chartPart(id, (view) => {
      const made = view.case && make(view);
      if (!made) return null;
      const chart = chartBox(made.hint);
      const draw = () => plot(chart, made.traces(), made.layout());
      return { parts: [chart, el("p", { class: "hint", text: made.hint })], draw };
    });
  }

  const across = (y, color, dash) => ({
    type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, layer: "below",
    line: { color, width: 1.2, dash },
  });

  // What a comparison would see, by its time; each number of cores is a line, the chosen one bold.
  part("detectable", ({ model, case: chosen, data }) => {
    const cases = model.cases.filter(({ outlook }) => outlook.length);
    if (!cases.length) return null;
    const limit = PERCENT * data.tolerance;
    return {
      hint: data.detectable,
      traces: () => cases.map((item, index) => ({
        type: "scatter", mode: "lines+markers", name: item.name,
        x: item.outlook.map(({ seconds }) => seconds),
        y: item.outlook.map(({ change }) => PERCENT * change),
        text: item.outlook.map(({ rounds }) => `${rounds} rounds`),
        hovertemplate: "%{text}, %{x:.3g} s: %{y:.2g} %<extra></extra>",
        line: { ...look(index % 2), width: item === chosen ? 2.5 : 1.2 },
        marker: { color: look(index % 2).color, symbol: look(index % 2).symbol, size: 9 },
      })),
      layout: () => ({
        showlegend: true, shapes: [across(limit, colors().muted, "dash")],
        xaxis: { title: "time of a comparison (s)", rangemode: "tozero" },
        yaxis: { title: "slowdown (%)", rangemode: "tozero" },
      }),
    };
  });

  // Without noise every point would be at 0; the band is the interval of their mean.
  part("duet", ({ case: { hints, ratios, ratio: [value, low, high] } }) => {
    if (!ratios.length) return null;
    const hasBand = isKnown(low) && isKnown(high);
    return {
      hint: hints.duet,
      traces: () => [{
        type: "scatter", mode: "lines+markers", x: rounds(ratios),
        y: ratios.map((ratio) => PERCENT * (ratio - 1)),
        line: { color: look(1).color, width: 1 }, marker: { color: look(1).color, size: 8 },
        hovertemplate: "round %{x}: %{y:+.2f} %<extra></extra>",
      }],
      layout: () => ({
        showlegend: false,
        shapes: [
          ...(hasBand ? [{
            type: "rect", xref: "paper", x0: 0, x1: 1, layer: "below", line: { width: 0 },
            y0: PERCENT * (low - 1), y1: PERCENT * (high - 1), fillcolor: look(1).color, opacity: 0.15,
          }] : []),
          across(PERCENT * (value - 1), look(1).color, "dot"),
        ],
        xaxis: { title: "round", type: "category", showgrid: false },
        yaxis: { title: "longer by (%)", zeroline: true, zerolinecolor: colors().muted },
      }),
    };
  });

  const KINDS = [
    ["others", "other processes", "b"], ["stolen", "the hypervisor", "a"],
    ["throttled", "halted by a quota", "muted"],
  ];

  part("disturbances", ({ case: { hints, noise } }) => {
    const known = KINDS.filter(([key]) => noise.some((each) => isKnown(each[key])));
    if (!known.length) return null;
    return {
      hint: hints.disturbances,
      traces: () => known.map(([key, name, color]) => ({
        type: "bar", name, x: rounds(noise),
        y: noise.map((each) => PERCENT * (each[key] ?? 0)), marker: { color: colors()[color] },
        hovertemplate: `round %{x}: %{y:.2f} % ${name}<extra></extra>`,
      })),
      layout: () => ({
        barmode: "stack", showlegend: true, bargap: 0.3,
        xaxis: { title: "round", type: "category", showgrid: false },
        yaxis: { title: "share of the time (%)", rangemode: "tozero" },
      }),
    };
  });
})();
