// The facts about one layer on each side.
modelperf.layers = (() => {
  "use strict";

  const { isKnown, isSure, known } = modelperf.figures;

  const NOT_EXECUTED = "not executed";
  const IN_ANOTHER = "in another kernel";
  const NO_PRECISION = "unknown";

  // The precision that a layer ran in, or why it has none of its own.
  function placeOf(layer, side) {
    if (!isThere(layer, side)) return NOT_EXECUTED;
    if (!hasTimeOfItsOwn(layer, side)) return layer.states[side];
    return layer.precisions[side] ?? NO_PRECISION;
  }

  const isThere = (layer, side) => layer.states[side] !== "not there";

  // Without measurements every layer is separate.
  const hasTimeOfItsOwn = (layer, side) => ["ran", "not measured"].includes(layer.states[side]);

  // Why a layer has no time of its own.
  function whyNoTime(layer, side) {
    if (!isThere(layer, side)) return NOT_EXECUTED;
    const host = layer.runs_in[side];
    return host ? `in ${host}` : layer.states[side];
  }

  // Each name once, A's first.
  function namesOf(layer) {
    const names = [...new Set(known(layer.names))];
    return names.length ? names : [layer.type];
  }

  function deltaOf(layer) {
    if (isKnown(layer.change_ms)) return layer.change_ms;
    const [before, after] = layer.ms;
    return isKnown(before) && isKnown(after) ? after - before : null;
  }

  function ratioOf(layer) {
    const [before, after] = layer.ms;
    return before && isKnown(after) ? after / before : null;
  }

  // Exporters number names differently, so a different name alone is no difference.
  const PARAMETERS = [
    { name: "precision", read: (layer, side) => layer.precisions[side] },
    { name: "provider", read: (layer, side) => layer.providers[side] },
    { name: "inputs", read: (layer, side) => layer.inputs[side] },
    { name: "outputs", read: (layer, side) => layer.outputs[side] },
    { name: "MACs", read: (layer, side) => layer.macs[side] },
    { name: "params", read: (layer, side) => layer.params[side] },
    { name: "weight", isName: true, read: (layer, side) => layer.weights[side] },
    { name: "kernel", isName: true, read: (layer, side) => layer.kernels[side] },
  ];

  // The parameters of a layer, with one value for each side; unset ones are left out.
  function parametersOf(layer) {
    const attributes = new Set(layer.attributes.flatMap((set) => Object.keys(set ?? {})));
    const read = (name) => (_, side) => layer.attributes[side]?.[name];
    const all = [
      ...[...attributes].sort().map((name) => ({ name, read: read(name) })),
      ...PARAMETERS,
    ];
    return all
      .map(({ name, isName = false, read: value }) => {
        const values = layer.names.map((__, side) => value(layer, side) ?? null);
        return { name, isName, values, isDifferent: new Set(values).size > 1 };
      })
      .filter(({ values }) => known(values).length > 0);
  }

  const fusedTypes = (layers) => (layers ?? []).map(({ type }) => type).sort().join("\n");

  function differs(layer) {
    if (new Set(layer.states).size > 1 || isSure(layer.change_interval_ms)) return true;
    if (new Set(layer.fused.map(fusedTypes)).size > 1) return true;
    return parametersOf(layer).some(({ isName, isDifferent }) => isDifferent && !isName);
  }

  // A layer that runs in the kernel of another one is found there, by each of its names.
  const namesOfFused = (others) =>
    (others ?? []).flatMap(({ name, id, weight, type }) => [name, id, weight, type]);

  // The text that a search looks into.
  const searchedText = (names) => [...new Set(known(names))].join("\n").toLowerCase();

  // A layer with the values that tables sort and filter by.
  function rowOf(layer) {
    const names = namesOf(layer);
    const isPair = layer.names.length === 2;
    return {
      layer,
      names,
      isPair,
      searched: searchedText([
        ...names,
        ...layer.ids,
        ...layer.weights,
        ...layer.kernels,
        ...layer.fused.flatMap(namesOfFused),
        layer.type,
        ...layer.precisions,
        ...layer.providers,
        ...layer.inputs,
        ...layer.outputs,
      ]),
      places: layer.is_layer ? layer.names.map((_, side) => placeOf(layer, side)) : [],
      delta: isPair ? deltaOf(layer) : null,
      ratio: isPair ? ratioOf(layer) : null,
      differs: isPair && differs(layer),
    };
  }

  // The change of precision from A to B.
  const isTransition = ({ places }, [before, after]) =>
    places[0] === before && places[1] === after;

  return {
    NOT_EXECUTED,
    IN_ANOTHER,
    NO_PRECISION,
    isThere,
    hasTimeOfItsOwn,
    whyNoTime,
    namesOf,
    namesOfFused,
    searchedText,
    deltaOf,
    ratioOf,
    parametersOf,
    rowOf,
    isTransition,
  };
})();
