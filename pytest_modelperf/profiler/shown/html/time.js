// Inference time: percentiles of the latency, or throughput, as bars with their intervals.
(() => {
  "use strict";

  const { el, format, hide, isKnown, toggle } = modelperf;
  const { plot } = modelperf.charts;
  const { axisEnd, barMarker, errorBars, figure, short, title } = modelperf.sides;
  const { isSweep, sidesOfPair } = modelperf.points;
  const KINDS = [["throughput", "Throughput"], ["latency", "Latency"]];
  // More names under the bars could not be read; a bar says its own when it is pointed at.
  const MOST_LABELS = 24;
  let kind = "throughput";

  function draw(root, view) {
    const groups = { latency: latencyBars(view), throughput: throughputBars(view) };
    const bars = Object.values(groups).flat().flatMap((group) => group.bars);
    if (!bars.some(({ value }) => isKnown(value))) {
      return hide(root, view.case && "nothing was measured");
    }
    const chart = el("div", { class: "plot", role: "figure" });
    const note = el("p", { class: "hint" });
    const update = () => {
      chart.setAttribute("aria-label", describe(groups[kind]));
      drawBars(chart, groups[kind]);
      note.textContent = kind === "latency" ? unsupported(view, groups.latency)
        : isSweep(view.model) ? OF_BLOCKS : OF_MEDIAN;
    };
    root.replaceChildren(
      el("div", { class: "toolbar" }, toggle("What the bars show", KINDS, kind, (pressed) => {
        kind = pressed;
        update();
      })), chart, note);
    update();
  }

  const OF_MEDIAN =
    "Items a second are the batch size divided by the median latency, with its interval.";
  const OF_BLOCKS =
    "Items a second are those of all requests in a block divided by its time, with their interval.";

  // A group of bars is a side; each bar is labelled on the axis.
  function latencyBars(view) {
    if (isSweep(view.model)) {
      return sidesOfPair(view.model, (point) => ({ unit: "ms", bars: pointLatencies(point) }));
    }
    return view.sides.map((side, index) => ({
      index, title: title(side), unit: "ms",
      bars: (view.case?.latency[index]?.percentiles ?? []).map(({ name, ms, low, high }) => ({
        place: name, value: ms, bounds: isKnown(low) && isKnown(high) ? [low, high] : null,
      })),
    }));
  }

  function throughputBars(view) {
    if (isSweep(view.model)) {
      const unit = "items/s";
      return sidesOfPair(view.model, (point) => ({ unit, bars: pointThroughput(point) }));
    }
    return view.sides.map((side, index) => ({
      index, title: title(side), unit: "items/s",
      bars: view.model.cases.map((item) => ({ place: item.name, ...throughput(item, index) })),
    }));
  }

  function throughput({ batch, latency }, index) {
    const value = latency[index]?.items_per_second ?? null;
    const median = latency[index]?.percentiles.find(({ name }) => name === "p50");
    if (!isKnown(value) || !isKnown(median?.low)) return { value, bounds: null };
    return { value, bounds: [median.high, median.low].map((ms) => (value * median.ms) / ms) };
  }

  function pointLatencies(point) {
    return [
      { place: "p50", value: point.ms, bounds: point.interval_ms },
      { place: "p95", value: point.p95_ms, bounds: null },
    ];
  }

  function pointThroughput(point) {
    return [{ place: "throughput", value: point.per_second, bounds: point.per_second_interval }];
  }

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

  modelperf.section("time", { draw });
})();
