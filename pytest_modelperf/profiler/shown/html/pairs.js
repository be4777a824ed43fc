// Any two cases as one case with two sides, A and B, for all parts of the page. They are cases of one
// model, or of the pages and results that a reader drops onto this one.
modelperf.pairs = (() => {
  "use strict";

  const { groupBy, isKnown, known, sum } = modelperf.figures;
  const NOT_THERE = "not there";
  const NOT_EXECUTED = "not executed";
  // The facts of a layer that each side has.
  const OF_SIDES = [
    "numbers", "names", "ids", "states", "ms", "half_widths", "precisions", "providers", "kernels",
    "macs", "flops", "memory", "gmacs", "params", "sparsity", "patterns", "effective_macs",
    "inputs", "outputs", "weights", "fused", "runs_in", "why_no_time", "places",
  ];
  const OF_TYPES = ["counts", "precisions", "precision_texts", "ms", "shares", "macs", "flops",
    "params"];
  const NAMES = ["weight", "kernel"];

  const difference = ([before, after]) =>
    (isKnown(before) && isKnown(after) ? after - before : null);

  // The rows of A and B with equal keys, in the order of B; those of A alone come last.
  function matched(ofA, ofB, keyOf) {
    const left = groupBy(ofA, (row) => keyOf(row, 0));
    const both = ofB.map((row) => [left.get(keyOf(row, 1))?.shift() ?? null, row]);
    return [...both, ...[...left.values()].flat().map((row) => [row, null])];
  }

  // The facts of both, each taken from its own side; a fact that neither has is left out.
  function sided(keys, [a, b], [sideA, sideB]) {
    const has = keys.filter((key) => a?.[key] || b?.[key]);
    return Object.fromEntries(has.map((key) =>
      [key, [a?.[key]?.[sideA] ?? null, b?.[key]?.[sideB] ?? null]]));
  }

  function layerOf(pair, sides, depth) {
    const [a, b] = pair;
    const layer = { ...(b ?? a), ...sided(OF_SIDES, pair, sides), depth };
    pair.forEach((own, at) => {
      if (own) return;
      layer.states[at] = NOT_THERE;
      layer.why_no_time[at] = NOT_EXECUTED;
      layer.places[at] = NOT_EXECUTED;
    });
    if (!layer.is_layer) layer.places = [];
    const delta = difference(layer.ms);
    // The sides were measured apart, so their errors add up as squares.
    const errors = layer.ms.map((ms, at) => ms * layer.half_widths[at]);
    const isBounded = delta !== null && known(layer.half_widths).length === 2;
    const error = isBounded ? Math.hypot(...errors) : null;
    const bounds = isBounded ? [delta - error, delta + error] : null;
    const parameters = parametersOf(pair, sides);
    return {
      ...layer, parameters, delta_ms: delta, change_ms: delta, change_interval_ms: bounds,
      explains: null, ratio: delta !== null && layer.ms[0] ? layer.ms[1] / layer.ms[0] : null,
      differs: !a || !b || layer.states[0] !== layer.states[1] ||
        (bounds !== null && (bounds[0] > 0 || bounds[1] < 0)) ||
        parameters.some((each) => each.is_different && !NAMES.includes(each.name)),
    };
  }

  function parametersOf(pair, sides) {
    const [ofA, ofB] = pair.map((layer) => layer?.parameters ?? []);
    // A result as JSON has no attributes.
    const isWhole = pair.every((layer) => layer?.has_attributes !== false);
    const found = matched(ofA, ofB, ({ name }) => name);
    return found.filter((both) => isWhole || both.every(Boolean)).map((both) => {
      const { values } = sided(["values"], both, sides);
      return { name: (both[1] ?? both[0]).name, values, is_different: values[0] !== values[1] };
    });
  }

  function typesOf(ofA, ofB, sides) {
    const types = matched(ofA, ofB, ({ type }) => type).map((both) => {
      const type = { ...(both[1] ?? both[0]), ...sided(OF_TYPES, both, sides) };
      const change = known(type.ms).length ? (type.ms[1] ?? 0) - (type.ms[0] ?? 0) : null;
      return { ...type, change_ms: change, change_interval_ms: null };
    });
    const whole = sum(types.map(({ change_ms: change }) => change));
    return types
      .map((type) => ({ ...type, explains: whole ? (type.change_ms ?? 0) / whole : null }))
      .sort((one, other) => Math.abs(other.change_ms ?? 0) - Math.abs(one.change_ms ?? 0));
  }

  function precisionsOf(ofA, ofB, sides, layers) {
    const rows = matched(ofA.rows, ofB.rows, ({ place }) => place).map((both) => ({
      place: (both[1] ?? both[0]).place, ...sided(["counts", "ms", "shares"], both, sides),
    }));
    const found = groupBy(layers.filter(({ is_layer: isLayer }) => isLayer),
      ({ places }) => JSON.stringify(places));
    const transitions = [...found].map(([places, members]) => {
      const [before, after] = JSON.parse(places);
      const changes = known(members.map(({ delta_ms: delta }) => delta));
      return { before, after, count: members.length, change_ms: changes.length ? sum(changes) : null };
    });
    return { rows, transitions };
  }

  // The lines of a side alone.
  const inputsOf = ({ inputs, only }, side) => inputs.map((feeders, box) =>
    feeders.filter((feeder) => !only?.[1 - side]?.[box]?.includes(feeder)));

  // The graph of a side alone, without the kernels that it does not have.
  function graphOfSide(graph, side, layerAt) {
    const [own, other = []] = [graph.values[side], graph.values[1 - side]];
    const kept = [...own.keys()].filter((at) => isKnown(own[at]) || !isKnown(other[at]));
    const placeOf = new Map(kept.map((old, at) => [old, at]));
    const pick = (list) => kept.map((at) => list[at]);
    const values = pick(own);
    const of = ["type", "is_layout", "rows", "lane", "way"].map((key) => [key, pick(graph[key])]);
    return {
      ...graph, ...Object.fromEntries(of), values: [values], figure: values, is_alone: true,
      most: Math.max(0, ...known(values)), total: sum(values), layer: pick(graph.layer).map(layerAt),
      inputs: pick(inputsOf(graph, side)).map((all) => known(all.map((at) => placeOf.get(at)))),
      only: undefined, state: values.map(() => 0), part: values.map(() => null), parts: [],
    };
  }

  // The graph of B with the times of A, if both run the same kernels; else that of B alone.
  function graphOf(a, b, [sideA, sideB], layerAt) {
    const typesOfGraph = ({ types, type }) => JSON.stringify(type?.map((at) => types[at]));
    if (!b?.type) return { reason: b?.reason ?? "The kernels of B are not known." };
    if (!a?.type || a.unit !== b.unit || typesOfGraph(a) !== typesOfGraph(b)) {
      return graphOfSide(b, sideB, layerAt);
    }
    const values = [a.values[sideA], b.values[sideB]];
    const figure = values[0].map((value, at) => difference([value, values[1][at]]));
    // Only the time before of this model is what the states of B compare with.
    const isBefore = a.values.length === b.values.length && sideA !== sideB;
    const own = { only: undefined, state: figure.map(() => 0), inputs: inputsOf(b, sideB) };
    return {
      ...b, ...(isBefore ? {} : own), values, figure, most: Math.max(0, ...known(figure).map(Math.abs)),
      total: Math.max(...values.map(sum)), layer: b.layer.map(layerAt),
      is_still: figure.map(() => 0), part: b.part.map(() => null), parts: [],
    };
  }

  // The points of the page, with a case of another page or result as the only one of A.
  function modelWith({ id, file, side, case: { batch, cores, latency, rounds } }, model) {
    const { percentiles = [], ...own } = latency[side] ?? {};
    const [p50, p95] = ["p50", "p95"].map((key) => percentiles.find((each) => each.name === key));
    const point = {
      id, batch, cores, streams: 1, dims: {}, rounds: rounds[side], ms: p50?.ms, p95_ms: p95?.ms,
      interval_ms: isKnown(p50?.low) ? [p50.low, p50.high] : null, per_second: own.items_per_second,
      per_second_interval: own.items_per_second_interval, rank: 0, ties: [],
      within_ms: p50?.high ?? p50?.ms, maybe_ms: p50?.low ?? p50?.ms,
    };
    const sides = [{ label: "A", name: file.name }, { ...model.sides.at(-1), label: "B" }];
    return { ...model, sides, points: [[point], model.points.at(-1)], changes: {} };
  }

  // What a page shows of the case `b` compared with `a`; each has its side.
  function pairOf(view, a, b) {
    const sides = [a.side, b.side];
    const [ofA, ofB] = [a, b].map(({ case: { layers }, side }) =>
      layers.filter(({ states }) => states[side] !== NOT_THERE));
    const layers = matched(ofA, ofB, ({ names, type }, at) => names[sides[at]] ?? type)
      .map((pair, depth) => layerOf(pair, sides, depth));
    const placeOf = new Map(ofB.map((layer, at) => [layer, at]));
    const layerAt = (at) => placeOf.get(b.case.layers[at]) ?? null;
    return {
      ...view, model: a.file ? modelWith(a, view.model) : view.model,
      sides: ["A", "B"].map((label, at) => ({ label, name: [a, b][at].name, engine: "" })),
      case: {
        ...b.case, ...sided(["latency", "rounds"], [a.case, b.case], sides), layers,
        types: typesOf(a.case.types, b.case.types, sides),
        precisions: precisionsOf(a.case.precisions, b.case.precisions, sides, layers),
        graph: graphOf(a.case.graph, b.case.graph, sides, layerAt),
        calls: [], roofline: undefined, is_pair: true,
      },
    };
  }

  return { pairOf };
})();
