// The columns of the table of kernels: which there are, which are shown, and their cells.
modelperf.kernelColumns = (() => {
  "use strict";

  const { UNKNOWN, el, format } = modelperf;
  const { hasTwo, sideIndexes, sideLabel } = modelperf.sides;
  const {
    bytesText, changeText, halfWidthText, isKnown, known, largest, latest, msText, rangeText,
    ratioText, shareText, sum,
  } = modelperf.figures;
  const { changeCell, nameText, numberCell, shareCell } = modelperf.tables;
  const { deltaOf, hasTimeOfItsOwn, ratioOf, whyNoTime } = modelperf.layers;
  const { kindMark } = modelperf.kinds;
  const { tickBox } = modelperf.kernelFilters;

  // All columns that a case has values for. Optional ones are shown if they are picked, fixed ones
  // always; `shown` returns the columns of the moment.
  function kernelColumns(view, decimals, shown) {
    const { layers } = view.case;
    const two = hasTwo(view);
    const all = [
      PLACE,
      { id: "name", title: "name", width: "name", isFixed: true, isText: true, read: readName,
        cell: nameCell },
      { id: "type", title: "type", width: "type", isText: true, read: ({ layer }) => layer.type,
        cell: typeCell },
      ...sideIndexes(view).flatMap((side) => sideColumns(view, side, decimals, shown)),
      ...(two ? comparingColumns(view, decimals) : []),
      figure("macs", "MACs", format.count, { isOptional: two }),
      figure("params", "params", format.count, { isOptional: two }),
      figure("flops", "FLOPs", format.count),
      figure("memory", "memory", bytesText, { note: "of its weights and outputs" }),
      figure("sparsity", "sparsity", shareText, { note: "the share of its weights that is zero" }),
      text("patterns", "pattern", "figure", "how the zeros of its weights lie"),
      figure("effective_macs", "effective MACs", format.count, {
        note: "those with a weight that is not zero",
      }),
      text("ids", "ID", "text", "its first output"),
      text("weights", "weight", "text", "its largest parameter"),
      text("inputs", "input", "shape", "the shape of its first input"),
      text("outputs", "shape", "shape", "the shape of its first output"),
      text("kernels", "kernel", "text", "the kernel that ran it"),
      text("providers", "provider", "precision"),
    ];
    return all.filter(({ isOptional, field }) =>
      !isOptional || !field || layers.some((layer) => known(layer[field] ?? []).length > 0));
  }

  const PLACE = {
    id: "depth",
    title: "#",
    width: "place",
    isFixed: true,
    note: "position in the graph",
    read: ({ layer }) => layer.depth,
    cell: ({ layer }) => placeCell(layer),
  };

  const readName = ({ names }) => names[0];

  const longestOf = (texts) => largest(texts.map(({ length }) => length));

  // The number of a layer is that of its own graph, so it is the same on every page.
  function placeCell(layer) {
    const numbers = known(layer.numbers ?? [layer.depth]);
    const isMoved = new Set(numbers).size > 1;
    const title = isMoved ? `${numbers[0]} before, ${numbers[1]} now` : null;
    return numberCell(layer.is_layer ? String(latest(numbers) ?? "") : "", { title });
  }

  function sideColumns(view, side, decimals, shown) {
    const { layers } = view.case;
    const two = hasTwo(view);
    const prefix = two ? `${sideLabel(view, side)} ` : "";
    // Two sides have the interval of their difference.
    const hasHalfWidths = !two && layers.some((layer) => isKnown(layer.half_widths[0]));
    const times = layers.map((layer) => layer.ms[side]);
    const [longest, total] = [largest(times), sum(times)];
    const percent = ({ layer }) =>
      isKnown(layer.ms[side]) && total ? (100 * layer.ms[side]) / total : null;
    const span = () => 1 + shown().filter((column) => column.follows === side).length;
    return [
      {
        id: `ms-${side}`,
        title: `${prefix}ms`,
        width: "figure",
        chars: longestOf(times.map((ms) => msText(ms, decimals))),
        isFixed: true,
        isMeasure: true,
        read: ({ layer }) => layer.ms[side],
        cell: ({ layer }) => msCell(layer, side, decimals, longest, span()),
      },
      ...(hasHalfWidths ? [halfWidthColumn(layers)] : []),
      {
        id: `precision-${side}`,
        title: `${prefix}precision`,
        width: "precision",
        isText: true,
        follows: side,
        read: ({ layer }) => (hasTimeOfItsOwn(layer, side) ? layer.precisions[side] : null),
        cell: ({ layer }) => precisionCell(layer, side),
      },
      {
        id: `share-${side}`,
        title: `${prefix}share`,
        width: "share",
        isOptional: true,
        isMeasure: true,
        field: "ms",
        note: "percent of the time of its side",
        read: percent,
        cell: (row) =>
          isKnown(percent(row)) ? shareCell(percent(row) / 100, side) : numberCell(""),
      },
      {
        id: `gmacs-${side}`,
        title: `${prefix}GMAC/s`,
        width: "figure",
        isOptional: true,
        isMeasure: true,
        field: "gmacs",
        note: "of its kernel, with all layers in it",
        read: ({ layer }) => layer.gmacs?.[side] ?? null,
        cell: ({ layer }) => numberCell(layer.gmacs?.[side]?.toFixed(2) ?? ""),
      },
    ];
  }

  const halfWidthColumn = (layers) => ({
    id: "half-width",
    title: "±",
    width: "figure",
    chars: longestOf(layers.map((layer) => halfWidthText(layer.half_widths[0]))),
    note: "half the interval of the time",
    follows: 0,
    read: ({ layer }) => layer.half_widths[0],
    cell: ({ layer }) =>
      hasTimeOfItsOwn(layer, 0) ? numberCell(halfWidthText(layer.half_widths[0])) : null,
  });

  function comparingColumns(view, decimals) {
    const { layers } = view.case;
    const [before, after] = sideIndexes(view).map((side) => sideLabel(view, side));
    return [
      {
        id: "delta",
        title: "delta, ms",
        width: "change",
        chars: longestOf(layers.flatMap((layer) => [
          changeText(deltaOf(layer), decimals), rangeText(layer.change_interval_ms, decimals),
        ])),
        note: `${after} − ${before}, with its interval`,
        isMeasure: true,
        read: ({ delta }) => delta,
        cell: ({ layer, delta }) => changeCell({ ...layer, change_ms: delta }, decimals),
      },
      {
        id: "ratio",
        title: "ratio",
        width: "figure",
        chars: longestOf(layers.map((layer) => ratioText(ratioOf(layer)))),
        note: `${after} / ${before}`,
        isMeasure: true,
        read: ({ ratio }) => ratio,
        cell: ({ ratio }) => numberCell(ratioText(ratio)),
      },
    ];
  }

  // A figure of the graph; two sides show that of the last one that has it.
  function figure(field, title, format, options = {}) {
    const read = ({ layer }) => latest(layer[field] ?? []);
    const cell = (row) => numberCell(row.layer.is_layer ? format(read(row)) : "");
    return { id: field, field, title, width: "figure", isOptional: true, read, cell, ...options };
  }

  // A text; both sides are named if they differ.
  function text(field, title, width, note) {
    const read = ({ layer }) => [...new Set(known(layer[field] ?? []))].join(" → ") || null;
    const cell = (row) =>
      el("td", { class: "text", title: read(row) }, nameText(read(row) ?? ""));
    return { id: field, field, title, width, note, isText: true, isOptional: true, read, cell };
  }

  function nameCell({ layer, names }) {
    const lines = names.map((name) => el("span", {}, nameText(name)));
    const cell = el("td", { class: "name", title: names.join("\n") }, ...lines);
    if (!layer.is_layer) cell.append(el("small", { text: "beside the layers" }));
    return cell;
  }

  const typeCell = ({ layer: { type, is_layer: isLayer } }) =>
    el("td", { class: "text", title: type }, kindMark(type, isLayer), nameText(type));

  // A layer without its own time says why, across the columns of its side.
  function msCell(layer, side, decimals, longest, colspan) {
    if (!hasTimeOfItsOwn(layer, side)) {
      const why = whyNoTime(layer, side);
      return el("td", { class: "without", colspan, title: why }, nameText(why));
    }
    const cell = numberCell(msText(layer.ms[side], decimals));
    cell.classList.add("bar", `side-${side ? "b" : "a"}`);
    cell.style.setProperty("--bar", longest ? Math.max(0, (layer.ms[side] ?? 0) / longest) : 0);
    return cell;
  }

  function precisionCell(layer, side) {
    if (!hasTimeOfItsOwn(layer, side)) return null;
    return el("td", { class: "text", text: layer.precisions[side] ?? UNKNOWN });
  }

  // A list of columns to tick; `names` are the picked ones, null for the usual.
  class ColumnPicker {
    element = el("details", { class: "pick columns" }, el("summary", { text: "columns" }));
    #picked;

    constructor(columns, names, onChange) {
      const usual = columns.filter(({ isOptional }) => !isOptional).map(({ id }) => id);
      this.#picked = new Set(names === null ? usual : names.split(","));
      const boxes = columns.filter(({ isFixed }) => !isFixed).map(({ id, title, note }) => {
        const box = tickBox(title, this.#picked.has(id), (isOn) => {
          if (isOn) this.#picked.add(id);
          else this.#picked.delete(id);
          onChange([...this.#picked].join(","));
        });
        if (note) box.title = note;
        return box;
      });
      this.element.append(el("div", { class: "choices" }, ...boxes));
    }

    shows({ id, isFixed }) {
      return isFixed || this.#picked.has(id);
    }
  }

  return { ColumnPicker, kernelColumns };
})();
