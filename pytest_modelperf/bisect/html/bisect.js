// The steps of a bisect: the versions of its range on an axis, and above each one that was tried how
// much slower it is, or how far its outputs differ, its interval, its answer and the number of its
// step. A step without a figure, such as one that failed, is a mark at the axis with its answer.
(() => {
  "use strict";

  const { colors, el } = modelperf;
  const { chartBox, chartPart, chartText, errorBars, plot, tooltip } = modelperf.charts;
  const { isKnown } = modelperf.figures;
  const ANSWERS = [
    ["good", "circle", "good"], ["bad", "diamond", "bad"],
    ["inconclusive", "square", "muted"], ["failed", "x", "muted"],
  ];
  // The names below the axis that fit: first of what was found, then of what was tried.
  const NAME_WIDTH = 85;
  const NAME_LENGTH = 8;
  const APART = 30;
  const PERCENT = 100;
  const SINCE = { latency: "slower", outputs: "other outputs", work: "more work" };
  const AXIS = { latency: "slower by", outputs: "outputs differ by", work: "more work by" };

  // Steps of one version stand side by side, `apart` versions from one another.
  function placed(steps, apart) {
    const seen = new Map();
    return steps.map((step, index) => {
      const before = seen.get(step.place) ?? 0;
      seen.set(step.place, before + 1);
      const x = step.place + apart * before;
      const y = isKnown(step.change) ? PERCENT * step.change : null;
      const label = isKnown(step.change) ? `${index + 1}` : `${index + 1} ${step.answer}`;
      return { ...step, label, x, y };
    });
  }

  function answerTrace([answer, symbol, color], steps) {
    const shown = steps.filter((step) => step.answer === answer);
    const found = colors()[color];
    const bounds = shown.map(({ interval }) => interval?.map((bound) => PERCENT * bound));
    return {
      type: "scatter", mode: "markers+text", name: answer,
      x: shown.map(({ x }) => x), y: shown.map(({ y }) => y),
      text: shown.map(({ label }) => label), textposition: "middle right",
      textfont: { color: colors().text }, cliponaxis: false,
      marker: {
        color: found, size: 13, line: { width: 2, color: found },
        symbol: shown.map(({ against }) => (against ? `${symbol}-open` : symbol)),
      },
      error_y: { ...errorBars(shown.map(({ y }) => y), bounds, found), thickness: 1.5, width: 5 },
      hoverinfo: "text",
      hovertext: shown.map(({ lines }) => tooltip(lines)),
    };
  }

  // The limit that each step had between good and bad.
  function limitTrace(steps) {
    const known = steps.filter(({ change }) => isKnown(change));
    return {
      type: "scatter", mode: "lines", name: "limit between good and bad", hoverinfo: "skip",
      x: known.flatMap(({ x }) => [x - 0.18, x + 0.18, null]),
      y: known.flatMap(({ allowed }) => [PERCENT * allowed, PERCENT * allowed, null]),
      line: { color: colors().text, width: 1.5, dash: "dot" },
    };
  }

  function untriedTrace({ versions }, tried, low) {
    const places = versions.map((_, place) => place).filter((place) => place && !tried.has(place));
    return {
      type: "scatter", mode: "markers", name: "not tried", showlegend: places.length > 0,
      x: places, y: places.map(() => low), cliponaxis: false,
      marker: { symbol: "line-ns-open", color: colors().muted, size: 9 },
      hoverinfo: "text",
      hovertext: places.map((place) => chartText(Object.values(versions[place]).join(" "))),
    };
  }

  // From after the last good version to the first that is known to be bad.
  function markFound(found, { versions, judges }) {
    const { bad } = colors();
    const shapes = found.map(([good, first]) => ({
      type: "rect", yref: "paper", y0: 0, y1: 1, x0: good + 0.5, x1: first + 0.5, layer: "below",
      fillcolor: bad, opacity: 0.12, line: { width: 0 },
    }));
    const word = found.length > 1 ? "" : `${SINCE[judges]} since `;
    const annotations = found.map(([good, first]) => ({
      x: (good + first + 1) / 2, yref: "paper", y: 1, yanchor: "bottom", showarrow: false,
      text: chartText(word + versions[first].name), font: { color: bad },
    }));
    return { shapes, annotations };
  }

  function drawSteps(chart, data) {
    const last = data.versions.length - 1;
    const found = placed(data.steps, Math.min(0.8, (APART * (last + 1)) / (chart.clientWidth || 1)));
    const tried = new Set([0, ...found.map(({ place }) => place)]);
    const all = found.flatMap(({ y, interval, allowed }) =>
      [y, PERCENT * allowed, ...(interval ?? []).map((bound) => PERCENT * bound)]).filter(isKnown);
    const [least, most] = [Math.min(0, ...all), Math.max(0, ...all)];
    const low = least - 0.12 * (most - least || 1);
    const steps = found.map((step) => ({ ...step, y: step.y ?? low }));
    const wanted = [...data.found.map(([, first]) => first), ...tried, ...data.versions.keys()];
    const apart = NAME_WIDTH * (last + 1) / (chart.clientWidth || 1);
    const named = wanted.reduce((kept, place) =>
      (kept.every((other) => Math.abs(other - place) >= apart) ? [...kept, place] : kept), []);
    plot(chart, [
      untriedTrace(data, tried, low),
      limitTrace(steps),
      ...ANSWERS.filter(([answer]) => steps.some((step) => step.answer === answer))
        .map((answer) => answerTrace(answer, steps)),
    ], {
      height: 380, hovermode: "closest", showlegend: true, margin: { l: 56, r: 24, t: 52, b: 48 },
      legend: { orientation: "h", x: 0, y: 1.09, xanchor: "left", yanchor: "bottom" },
      xaxis: {
        range: [-0.5, last + 0.6], tickvals: named, zeroline: false, showgrid: false,
        ticktext: named.map((place) => chartText(data.versions[place].name.slice(0, NAME_LENGTH))),
        title: data.kind === "commits" ? "commits that changed the model" : "releases",
      },
      yaxis: { title: `${AXIS[data.judges]} (%)`, range: [low, most + 0.08 * (most - least || 1)] },
      ...markFound(data.found, data),
    });
  }

  const LABEL = "The versions of the range and the steps of the search, as in the table below.";
  const HINT = "The number next to a mark is that of its step. A filled mark is a comparison with " +
    "the good end of the range, an open one with another version, which its text names.";

  chartPart("bisect", ({ data: { bisect } }) => {
    const chart = chartBox(LABEL);
    const draw = () => drawSteps(chart, bisect);
    return { parts: [chart, el("p", { class: "hint", text: HINT })], draw };
  });
})();
