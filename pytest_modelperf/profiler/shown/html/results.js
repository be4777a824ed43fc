// The cases of a JSON result as a page has them, so that any of them can be A.
modelperf.results = (() => {
  "use strict";

  const { count, groupBy, isKnown, known, sum } = { ...modelperf.format, ...modelperf.figures };
  // The facts of a layer that are compared, by their names on a page.
  const PARAMETERS = {
    precision: "precisions", provider: "providers", inputs: "inputs", outputs: "outputs",
    MACs: "macs", params: "params", weight: "weights", kernel: "kernels",
  };
  // The texts of a shape and of a provider are those of the page.
  const shapeText = (shape) => shape && (shape.map((size) => size ?? "?").join("x") || "scalar");
  const share = (part, whole) => (isKnown(part) && whole ? part / whole : null);
  const total = (values) => (known(values).length ? sum(values) : null);
  const textOf = (value) => (typeof value === "number" ? count(value) : value);
  const typeOf = ({ kind, domain, op_type: op }) =>
    (kind === "layer" && domain ? `${domain}::${op}` : op);

  function layersOf(rows, kindOf) {
    const layers = rows.filter(({ kind }) => kind === "layer");
    const byId = groupBy(layers, ({ id }) => id);
    const hasTimes = rows.some(({ ms }) => isKnown(ms));
    return rows.map((row, depth) => {
      const isLayer = row.kind === "layer";
      const fused = row.fused.flatMap((id) => byId.get(id)?.slice(0, 1) ?? []);
      const host = row.runs_in && (byId.get(row.runs_in)?.[0]?.name || row.runs_in);
      const hasRun = isKnown(row.ms) || !hasTimes;
      const state = hasRun ? "ran" : host ? "in another kernel" : "not there";
      const why = hasRun ? null : host ? `in ${host}` : "not executed";
      const macs = total([row, ...fused].map((each) => each.macs));
      const facts = {
        precisions: row.precision, providers: row.provider?.replace(/ExecutionProvider$/, ""),
        inputs: shapeText(row.input_shape), outputs: shapeText(row.output_shape),
        macs: row.macs, params: row.params, weights: row.weight, kernels: row.kernel,
      };
      const sides = {
        ...facts, numbers: isLayer ? layers.indexOf(row) : null, ms: row.ms,
        names: isLayer ? row.name || row.id : row.kernel ?? "(no kernel)", ids: row.id, states: state,
        half_widths: row.interval_ms ? share(row.interval_ms[1] - row.ms, row.ms) : null,
        flops: isKnown(row.macs) ? 2 * row.macs + (row.elementwise_ops ?? 0) : null,
        memory: total([row.weight_bytes, row.output_bytes]),
        gmacs: macs && row.ms ? macs / row.ms / 1e6 : null, effective_macs: row.effective_macs,
        fused: fused.length ? fused.map((each) =>
          ({ name: each.name || each.id, id: each.id, type: typeOf(each), weight: each.weight })) : null,
        runs_in: host, why_no_time: why,
        places: why === null ? row.precision ?? "unknown" : state.replace("not there", why),
      };
      const type = typeOf(row);
      return {
        ...Object.fromEntries(Object.entries(sides).map(([key, value]) => [key, [value ?? null]])),
        type, is_layer: isLayer, depth, kind: kindOf(type, isLayer), has_attributes: false,
        parameters: Object.entries(PARAMETERS).filter(([, key]) => isKnown(facts[key]))
          .map(([name, key]) => ({ name, values: [textOf(facts[key])] })),
      };
    });
  }

  function groupsOf(layers, keyOf) {
    const whole = total(layers.map(({ ms }) => ms[0]));
    return [...groupBy(layers, keyOf)].map(([key, members]) => {
      const ms = total(members.map((layer) => layer.ms[0]));
      return { key, members, counts: [members.length], ms: [ms], shares: [share(ms, whole)] };
    });
  }

  function typesOf(layers) {
    return groupsOf(layers, ({ type }) => type).map(({ key, members, ...group }) => {
      const { is_layer: isLayer, kind } = members[0];
      const precisions = groupBy(members, (layer) => layer.precisions[0] ?? "unknown");
      return {
        ...group, type: key, is_layer: isLayer, kind,
        precisions: [Object.fromEntries([...precisions].map(([name, all]) => [name, all.length]))],
        precision_texts: [[...precisions].map(([name, all]) => `${name} ${all.length}`).join(", ")],
        ...Object.fromEntries(["macs", "flops", "params"].map((name) =>
          [name, [total(members.map((layer) => layer[name][0]))]])),
      };
    });
  }

  // What a case has as JSON now; of the time before, its judged percentiles are known.
  function latencyOf({ latency, metrics = [], batch_size: batch }, side) {
    const found = side === "before" ? null : latency;
    const percentiles = found
      ? Object.entries(found.intervals_ms ?? {}).map(([key, bounds]) =>
        ({ name: key.replace("_ms", ""), ms: found[key], low: bounds?.[0], high: bounds?.[1] }))
      : metrics.filter(({ name, ratio }) => name.startsWith("latency_p") && isKnown(ratio))
        .map((metric) => ({ name: metric.name.replace("latency_", ""), ms: metric[side] }));
    const { ms, low, high } = percentiles.find(({ name }) => name === "p50") ?? {};
    const rate = (each) => (batch && each ? 1000 * batch / each : null);
    return isKnown(ms) ? { ...found, percentiles, items_per_second: rate(ms),
      items_per_second_interval: isKnown(low) ? [rate(high), rate(low)] : null } : null;
  }

  // The cases of a document that have layers; those of a comparison once for each side. The page
  // has the look of each type.
  function casesOf(document, types) {
    const kinds = new Map(types.map(({ type, kind }) => [type, kind]));
    const kindOf = (type, isLayer) => kinds.get(type) ?? (isLayer
      ? { id: "other", title: "other operators" } : { id: "beside", title: "beside the layers" });
    const { cases = [] } = document.profile ?? document.comparison ?? document;
    return cases.filter(({ layers }) => layers?.length).flatMap((item) => {
      const isPair = "after" in item.layers[0];
      return (isPair ? ["before", "after"] : [""]).map((side) => {
        const rows = item.layers.map((row) => (isPair ? row[side] : row)).filter(Boolean);
        const layers = layersOf(rows, kindOf);
        const ofLayers = layers.filter(({ is_layer: isLayer }) => isLayer);
        return {
          name: [item.model, item.id, side].filter(Boolean).join(", "), side: 0,
          case: {
            id: item.id, name: item.id, layers, types: typesOf(layers), graph: null, rounds: [[]],
            batch: item.batch_size, cores: item.cores, latency: [latencyOf(item, side)],
            precisions: { rows: groupsOf(ofLayers, ({ places }) => places[0])
              .map(({ key, ...group }) => ({ ...group, place: key })) },
          },
        };
      });
    });
  }

  return { casesOf };
})();
