// The points of a sweep: the best within a threshold, and the two that are compared.
modelperf.points = (() => {
  "use strict";

  const { caseOf, chosen } = modelperf;
  const { isKnown } = modelperf.figures;
  const OF_LAYERS = ["types", "icicle", "depth", "graph", "kernels", "transitions"];

  function isMeasured(point) {
    return isKnown(point.ms) && isKnown(point.per_second);
  }

  // The typed threshold, else the sweep's; null if there is none. An address may have any text.
  function threshold(model) {
    const typed = chosen("threshold");
    const limit = typed === null ? NaN : parseThreshold(typed);
    return Number.isNaN(limit) ? model.threshold_ms : limit;
  }

  // Milliseconds; null for an empty text, NaN for one that is not a time.
  function parseThreshold(text) {
    const plain = text.trim();
    if (plain === "") return null;
    const isNumber = /^(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain);
    return isNumber && Number(plain) > 0 ? Number(plain) : NaN;
  }

  // The highest throughput among the points that are surely within the threshold. What decides it
  // is in the data of each point, because a reader may take points away.
  function findSweetSpot(points, limit) {
    const run = competing(points).filter(({ rank }) => isKnown(rank));
    const isBelow = (ms) => isKnown(ms) && ms <= limit;
    const within = run.filter((point) => limit === null || isBelow(point.within_ms));
    const undecided = run.filter((point) => !within.includes(point) && isBelow(point.maybe_ms));
    const best = fastest(within);
    const equals = within.filter(({ id }) => best.ties.includes(id));
    return { best, equals, undecided };
  }

  // In a generation the steps alone, because a prefill takes many tokens at once.
  function competing(points) {
    const steps = points.filter(({ is_step: isStep }) => isStep);
    return steps.length ? steps : points;
  }

  const fastest = (points) => points.toSorted((one, other) => one.rank - other.rank)[0] ?? null;

  // The ids of the configurations that a reader took away.
  function without() {
    try {
      return new Set(JSON.parse(chosen("without") ?? "[]"));
    } catch {
      return new Set();
    }
  }

  // The points of each side without these; all of them if a side had no time left.
  function shownPoints(model) {
    const away = without();
    const kept = model.points.map((points) => points.filter(({ id }) => !away.has(id)));
    return kept.every((points) => points.some(isMeasured)) ? kept : model.points;
  }

  // A and B as chosen. If points are cases, B is the chosen case. Otherwise B is the sweet spot of
  // its side, or without one the configuration that the parts below show. A is the same configuration
  // of the other side; with only one side, A is the first measured point.
  function pair(model) {
    const limit = threshold(model);
    const shown = shownPoints(model);
    const [first, last] = [0, -1].map((side) => shown.at(side).filter(isMeasured));
    const b = find(last, isSweep(model) ? chosen("b") ?? chosen("case") : caseOf(model).id) ??
      findSweetSpot(last, limit).best ?? find(last, caseOf(model)?.id) ?? best(last, limit);
    const like = model.points.length > 1 ? find(first, b?.id) : first.find((point) => point !== b);
    return { a: find(first, chosen("a")) ?? like ?? best(first, limit), b };
  }

  // The pair as the sides of a chart; `make` returns the data of a point.
  function sidesOfPair(model, make) {
    const both = pair(model);
    return ["a", "b"].flatMap((key, index) => (both[key] ? [{
      index, title: `${key.toUpperCase()}: ${both[key].id}`, ...make(both[key]),
    }] : []));
  }

  // In other reports the points are the cases.
  function isSweep({ points, cases }) {
    const ids = new Set(cases.map(({ id }) => id));
    return points.at(-1)?.some(({ id }) => !ids.has(id));
  }

  function find(points, id) {
    return points.find((point) => point.id === id);
  }

  function best(points, limit) {
    return findSweetSpot(points, limit).best ?? fastest(competing(points));
  }

  // In a sweep the parts about layers show one configuration, whatever A and B are in the charts.
  document.documentElement.addEventListener("drawn", ({ detail: view }) => {
    if (!view.case || !isSweep(view.model)) return;
    const models = view.sides.map(modelperf.charts.title).join(", ");
    for (const name of OF_LAYERS) {
      const heading = document.querySelector(`#${name} > h2`);
      heading?.querySelector("small")?.remove();
      heading?.append(modelperf.el("small", { text: view.case.is_pair ? ` ${models}` : ` at ${view.case.id}, ${models}` }));
    }
  });

  return {
    isMeasured, threshold, parseThreshold, findSweetSpot, pair, sidesOfPair, isSweep, shownPoints,
    without,
  };
})();
