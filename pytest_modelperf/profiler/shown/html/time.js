// Inference time: percentiles of the latency, or throughput, as bars with their intervals.
(() => {
  "use strict";

  const { el, format, toggle } = modelperf;
  const { axisEnd, barMarker, chartBox, chartPart, errorBars, figure, plot, short, title } =
    modelperf.charts;
  const { isKnown } = modelperf.figures;
  const { isSweep, sidesOfPair } = modelperf.points;
  const KINDS = [["throughput", "Throughput"], ["latency", "Latency"]];
  // More names under the bars could not be read. A bar shows its own when it is pointed at.
  const MOST_LABELS = 24;
  let kind = "throughput";

  chartPart("time", (view) => {
    const groups = { latency: groupsOf(view, "latency"), throughput: groupsOf(view, "throughput") };
    const bars = Object.values(groups).flat().flatMap((group) => group.bars);
    if (!bars.some(({ value }) => isKnown(value))) return view.case && "nothing was measured";
    const chart = chartBox("");
    const note = el("p", { class: "hint" });
    const draw = () => {
      chart.setAttribute("aria-label", describe(groups[kind]));
      drawBars(chart, groups[kind]);
      note.textContent = kind === "latency" ? unsupported(view, groups.latency)
        : isSweep(view.model) ? OF_BLOCKS : OF_MEDIAN;
    };
    const choice = toggle("What the bars show", KINDS, kind, (pressed) => {
      kind = pressed;
      draw();
    });
    return { parts: [el("div", { class: "toolbar" }, choice), chart, note], draw };
  });

  const OF_MEDIAN =
    "Items a second are the batch size divided by the median latency, with its interval.";
  const OF_BLOCKS =
    "Items a second are those of all requests in a block divided by its time, with their interval.";

  // A group of bars is a side, or one of the two points of a sweep; the axis names each bar.
  function groupsOf(view, what) {
    const unit = what === "latency" ? "ms" : "items/s";
    if (isSweep(view.model)) {
      return sidesOfPair(view.model, (point) => ({ unit, bars: barsOfPoint(point)[what] }));
    }
    return view.sides.map((side, index) =>
      ({ index, title: title(side), unit, bars: barsOfSide(view, index)[what] }));
  }

  const bar = (place, value, bounds = null) => ({ place, value, bounds });

  const barsOfPoint = (point) => ({
    latency: [bar("p50", point.ms, point.interval_ms), bar("p95", point.p95_ms)],
    throughput: [bar("throughput", point.per_second, point.per_second_interval)],
  });

  const barsOfSide = ({ model, case: chosen }, index) => ({
    latency: (chosen?.latency[index]?.percentiles ?? []).map(({ name, ms, low, high }) =>
      bar(name, ms, isKnown(low) && isKnown(high) ? [low, high] : null)),
    throughput: (chosen?.is_pair ? [chosen] : model.cases).map(({ name, latency }) =>
      bar(name, latency[index]?.items_per_second, latency[index]?.items_per_second_interval)),
  });

  // Unknown values have no bar, and no place if both sides lack them.
  function drawBars(chart, groups) {
    const places = [...new Set(groups.flatMap(({ bars }) =>
      bars.filter(({ value }) => isKnown(value)).map(({ place }) => place)))];
    const traces = groups.map(({ index, title: name, unit, bars }) => {
      const shown = bars.filter(({ value }) => isKnown(value));
      const values = shown.map(({ value }) => value);
      return {
        type: "bar", name: short(name), y: values,
        x: shown.map(({ place }) => places.indexOf(place)),
        error_y: errorBars(values, shown.map(({ bounds }) => bounds), modelperf.colors().text),
        marker: barMarker(index, groups.length > 1),
        text: shown.map(({ place, value, bounds }) =>
          short(`${place}: ${figure(value, bounds, unit)}`, 99)),
        textposition: "none", hovertemplate: "%{text}<extra></extra>",
      };
    });
    const step = Math.ceil(places.length / MOST_LABELS);
    const labelled = [...places.keys()].filter((place) => place % step === 0);
    const known = groups.flatMap(({ bars }) => bars).filter(({ value }) => isKnown(value));
    const end = axisEnd(known.map(({ value }) => value), known.map(({ bounds }) => bounds));
    plot(chart, traces, {
      bargap: 0.35, bargroupgap: 0.06, showlegend: true, margin: { l: 56, r: 16, t: 32, b: 30 },
      xaxis: { tickvals: labelled, ticktext: labelled.map((place) => short(places[place])),
        range: [-0.6, places.length - 0.4], fixedrange: true, showgrid: false, zeroline: false },
      yaxis: {
        title: groups[0].unit === "ms" ? "latency (ms)" : "items a second", range: [0, 1.05 * end],
      },
    });
  }

  function describe(groups) {
    return groups.map(({ title: name, unit, bars }) => `${name}: ` + bars
      .map(({ place, value }) => `${place} ${format.number(value)} ${unit}`).join(", ")).join("; ");
  }

  function unsupported(view, groups) {
    const sentences = groups.flatMap(({ index, title: name, bars }) => {
      const missing = bars.filter(({ value }) => !isKnown(value)).map(({ place }) => place);
      const samples = isSweep(view.model) ? undefined : view.case?.latency[index]?.samples;
      if (!missing.length) return [];
      const verb = missing.length > 1 ? "need" : "needs";
      return [samples === undefined
        ? `${name}: ${missing.join(", ")} not measured.`
        : `${name}: ${missing.join(", ")} ${verb} more than the ${samples} samples there are.`];
    });
    return sentences.join(" ");
  }
})();
