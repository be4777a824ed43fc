// Samples by round: how the times of each round spread, so that a drift or a bad round shows.
(() => {
  "use strict";

  const { el, format } = modelperf;
  const { chartBox, chartPart, look, plot, short, title } = modelperf.charts;
  const { isSweep, sidesOfPair } = modelperf.points;
  const LEGEND = "A box is from the first to the third quartile, with the median; its whiskers " +
    "are the 5th and the 95th percentile. A click on a name above hides it.";

  chartPart("rounds", (view) => {
    const sides = roundsOf(view).filter(({ rounds }) => rounds.length);
    if (!sides.length) return view.case && "there are no samples";
    const chart = chartBox(describe(sides));
    const hint = el("p", { class: "hint", text: `${LEGEND} ${describe(sides)}` });
    return { parts: [chart, hint], draw: () => drawRounds(chart, sides) };
  });

  // The rounds of the chosen case, or of the points A and B of a sweep.
  function roundsOf(view) {
    if (isSweep(view.model)) return sidesOfPair(view.model, ({ rounds }) => ({ rounds }));
    return view.sides.map((side, index) => ({
      index, title: title(side), rounds: view.case?.rounds[index] ?? [],
    }));
  }

  function describe(sides) {
    return sides.map(({ title: name, rounds }) => {
      const medians = rounds.map(([, , , median]) => median);
      const ends = [Math.min(...medians), Math.max(...medians)];
      const found = rounds.length === 1
        ? `1 round with a median of ${format.number(ends[0])} ms`
        : `${rounds.length} rounds with medians of ${format.interval(ends)} ms`;
      return `${name}: ${found}.`;
    }).join(" ");
  }

  function drawRounds(chart, sides) {
    plot(chart, [...sides.map(boxTrace), ...sides.map(extremeTrace)], {
      boxmode: "group", scattermode: "group", boxgap: 0.35, boxgroupgap: 0.25, scattergap: 0.35,
      hovermode: "closest", showlegend: true,
      xaxis: { title: "round", type: "category", fixedrange: true, showgrid: false },
      yaxis: { title: "latency (ms)", zeroline: false, range: rangeOf(sides) },
    });
  }

  // The axis runs from the fastest to the slowest time, not from 0, to show their spread.
  function rangeOf(sides) {
    const times = sides.flatMap(({ rounds }) => rounds.flat());
    const [from, to] = [Math.min(...times), Math.max(...times)];
    const pad = 0.06 * (to - from) || 0.05 * to;
    return [Math.max(0, from - pad), to + pad];
  }

  function boxTrace({ index, title: name, rounds }) {
    const { color, dash } = look(index);
    const column = (place) => rounds.map((round) => round[place]);
    return {
      type: "box", name: short(name), x: numbers(rounds), offsetgroup: String(index),
      lowerfence: column(1), q1: column(2), median: column(3), q3: column(4), upperfence: column(5),
      line: { color, width: 1.5, dash }, whiskerwidth: 0.5, hoverinfo: "y",
    };
  }

  function extremeTrace({ index, title: name, rounds }) {
    const { color, symbol } = look(index);
    return {
      type: "scatter", mode: "markers", name: `${short(name)}, fastest and slowest`,
      x: [...numbers(rounds), ...numbers(rounds)],
      y: [...rounds.map((round) => round[0]), ...rounds.map((round) => round.at(-1))],
      offsetgroup: String(index),
      marker: { color, symbol: `${symbol}-open`, size: 5 }, opacity: 1,
      hovertemplate: "round %{x}: %{y:.4g} ms<extra></extra>",
    };
  }

  const numbers = (rounds) => rounds.map((_, index) => String(index + 1));
})();
