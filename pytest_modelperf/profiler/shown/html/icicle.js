// The cost of a case by its types, their layers and the kernels of these, each as wide as its
// cost.
(() => {
  "use strict";

  const { choose, chosen, el, format, toggle } = modelperf;
  const { chartPart, sideIndexes, sideLabel } = modelperf.charts;
  const { bytesText, decimalsFor, groupBy, isKnown, shareText, timeText } = modelperf.figures;
  const { icicle, made, sumOf } = modelperf.icicle;
  const { alikeLength, legend, searchedText } = modelperf.layers;

  const SIZES = [
    { id: "ms", title: "time" },
    { id: "macs", title: "MACs", text: format.count },
    { id: "flops", title: "FLOPs", text: format.count },
    { id: "memory", title: "memory", text: bytesText },
  ];
  // The last part of a name, with its separator.
  const LAST = /[/.:][^/.:]*$/;
  const MEMORY_NOTE = "Memory is that of the weights and outputs of each layer.";

  // The parts of a case for one side. A part needs a value.
  function treeOf(view, layers, side, size) {
    const namesOf = (those) => those.filter(({ is_layer: isLayer }) => isLayer)
      .map(({ names }) => names[side]).filter(Boolean);
    const alike = alikeLength(namesOf(layers), LAST);
    const costly = layers.filter((layer) => layer[size.id]?.[side] > 0);
    const types = groupBy(costly, ({ type }) => type);
    const parts = [...types].map(([type, members]) => {
      const { kind } = members[0];
      const names = namesOf(members).map((name) => [...name].reverse().join(""));
      const end = names.length > 1 ? alikeLength(names, LAST) : 0;
      const leaves = members.map((layer) =>
        layerPart(layer, side, size, kind, layer.is_layer ? [alike, end] : [0, 0]));
      return made(type, sumOf(leaves), kind, leaves);
    });
    return made(view.sides[side].name, sumOf(parts), { id: "whole" }, parts);
  }

  // The common start of the names is left out, and the common end of those of its type.
  function layerPart(layer, side, size, kind, [alike, end]) {
    const value = layer[size.id][side];
    const kernel = kernelOf(layer, side);
    const leaves = kernel ? [made(kernel, value, kind, [], layer)] : [];
    const name = layer.names[side]?.slice(alike) ?? layer.type;
    return made(name.slice(0, name.length - end) || name, value, kind, leaves, layer);
  }

  function kernelOf(layer, side) {
    if (layer.runs_in[side]) return `in ${layer.runs_in[side]}`;
    const others = layer.fused[side]?.length ?? 0;
    const kernel = layer.kernels[side];
    // A name that is that of its layer, or only a number, adds nothing.
    const isSame = [layer.names[side], layer.type].includes(kernel) || /^\d+$/.test(kernel);
    return kernel && others ? `${kernel} + ${others} fused` : isSame ? null : kernel;
  }

  function chartOf(whole, size, side) {
    const decimals = decimalsFor(whole.value);
    const costOf = ({ value }) => {
      const share = shareText(whole.value ? value / whole.value : null);
      return `${size.text ? size.text(value) : timeText(value, decimals)}, ${share}`;
    };
    return icicle(whole, {
      label: "Types, layers and kernels by cost.",
      wholeName: "whole model",
      describe: (part) => `${part.title}: ${costOf(part)}`,
      textOf: ({ title, item }) => (item ? searchedText(item) : title.toLowerCase()),
      factsOf: (part) => [
        ...(part.item ? factsOf(part.item, side) : [["name", part.title]]), [size.title, costOf(part)],
      ].filter(([, text]) => text),
      // A layer opens in the table of kernels.
      isOpened: ({ item }) => {
        if (item) modelperf.kernels.open(item);
        return item !== null;
      },
    });
  }

  // The facts of a layer: its whole name, shapes, and its kernel if that has another name.
  const factsOf = (layer, side) => [
    ["name", layer.names[side]], ["type", layer.type],
    ["input", layer.inputs[side]], ["output", layer.outputs[side]],
    ["kernel", kernelOf(layer, side)],
  ];

  function noteOf(layers, side, size) {
    const none = layers.filter((layer) => layer.is_layer && !isKnown(layer[size.id]?.[side])).length;
    return [
      none ? `Without a known ${size.title}, and not drawn: ${none} of the layers.` : null,
      size.id === "memory" ? MEMORY_NOTE : null,
    ].filter(Boolean).join(" ");
  }

  chartPart("icicle", (view) => {
    const layers = view.case?.layers ?? [];
    const has = (size, side) => layers.some((layer) => layer[size.id]?.[side] > 0);
    const sides = sideIndexes(view).filter((side) => SIZES.some((size) => has(size, side)));
    if (!sides.length) return null;
    let side = sides.at(-1);
    const toolbar = el("div", { class: "toolbar" });
    const body = el("div");
    const show = () => {
      const sizes = SIZES.filter((size) => has(size, side));
      const size = sizes.find(({ id }) => id === chosen("size")) ?? sizes[0];
      const options = sizes.map(({ id, title }) => [id, title]);
      const pickSize = (id) => {
        choose({ size: id });
        show();
      };
      toolbar.replaceChildren(toggle("cost as", options, size.id, pickSize));
      if (sides.length > 1) {
        const labels = sides.map((each) => [each, sideLabel(view, each)]);
        toolbar.append(toggle("side", labels, side, (each) => {
          side = each;
          show();
        }));
      }
      const whole = treeOf(view, layers, side, size);
      const chart = chartOf(whole, size, side);
      toolbar.append(chart.back, chart.search);
      const note = el("p", { class: "hint", text: noteOf(layers, side, size) });
      body.replaceChildren(...chart.parts, legend(whole.parts.map(({ kind }) => kind)), note);
    };
    show();
    return { parts: [toolbar, body] };
  });
})();
