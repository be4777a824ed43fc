// The kinds of operators, which have the same colours on all pages and in all charts.
modelperf.kinds = (() => {
  "use strict";

  const { el } = modelperf;

  const BESIDE = "beside the layers";
  const OTHER = "other operators";
  // The first that matches the name of an operator.
  const KINDS = [
    ["attention", "attention and recurrent", /Attention|LSTM|GRU|RNN|RotaryEmbedding/],
    ["quantization", "quantization", /uantizeLinear/],
    ["convolution", "convolution", /Conv/],
    ["product", "matrix product", /MatMul|Gemm|Einsum/],
    ["normalization", "normalization", /(?<!Random)Norm|LRN/],
    ["reduction", "pooling and reduction", /Pool|^(QLinear)?Reduce|^Arg|TopK|^Cum(Sum|Prod)/],
    [
      "movement",
      "movement of data",
      new RegExp(
        "Reshape|Transpose|Concat|Slice|Gather|Scatter|Split|^Pad|Resize|Upsample|Expand|queeze$|" +
          "Flatten|Tile|^Cast|Identity|ToSpace|ToDepth|^Constant|^Shape|Reorder|MemcpyTo",
      ),
    ],
    [
      "elementwise",
      "elementwise",
      new RegExp(
        "^(Bias|QLinear)?(Add|Sub|Mul|Div|Pow|Sqrt|Exp|Log|Neg|Abs|Max|Min|Mod|Where|Clip|Erf|" +
          "Reciprocal|Floor|Ceil|Round|Sign|Not|And|Or|Xor|Bitwise|BitShift|Equal|Greater|Less|" +
          "IsInf|IsNaN|Shrink|Sum$|Mean$|A?([Ss]in|[Cc]os|[Tt]an)h?$)|[eE]lu|GELU|LU$|" +
          "Sigmoid|Softmax|Softplus|Softsign|Swish|Mish|Tanh|Dropout",
      ),
    ],
  ];

  // The name of a kind in the style sheet, and its words.
  function kindOf(type, isLayer = true) {
    if (!isLayer) return { id: "beside", title: BESIDE };
    const op = type.split("::").at(-1);
    const found = KINDS.find(([, , pattern]) => pattern.test(op));
    return found ? { id: found[0], title: found[1] } : { id: "other", title: OTHER };
  }

  // The mark of a kind before the name of an operator.
  function kindMark(type, isLayer = true) {
    const { id, title } = kindOf(type, isLayer);
    return el("span", { class: `kind-mark kind-${id}`, title, "aria-hidden": "true" });
  }

  // The colour in the present theme, as rgb(...).
  function kindColor({ id }) {
    const probe = el("span", { class: `kind-${id}` });
    probe.style.color = "var(--kind)";
    document.body.append(probe);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  }

  // A mark with its words for each kind of these types.
  function legend(kinds) {
    const found = new Map(kinds.map((kind) => [kind.id, kind]));
    const items = [...found.values()].map(({ id, title }) =>
      el("li", {}, el("span", { class: `kind-mark kind-${id}`, "aria-hidden": "true" }), title));
    return el("ul", { class: "kind-legend", "aria-label": "kinds of operators" }, ...items);
  }

  return { kindOf, kindMark, kindColor, legend };
})();
