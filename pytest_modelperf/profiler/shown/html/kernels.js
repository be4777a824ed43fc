// Layers one by one, as the kernels that ran: a table, and the details of one of them.
modelperf.kernels = (() => {
  "use strict";

  const { UNKNOWN, choose, chosen, el, format, onKeys } = modelperf;
  const { chartPart, hasTwo, sideClass, sideIndexes, sideLabel, sideTag, totalsOf } =
    modelperf.charts;
  const {
    bytesText, changeText, decimalsFor, halfWidthText, isKnown, known, largest, latest, msText,
    rangeText, ratioText, shareText, sum, timeText, tone,
  } = modelperf.figures;
  const { RowWindow, changeCell, factList, nameText, note, numberCell, shareCell, textCell } =
    modelperf.tables;
  const { ColumnPicker, LayerFilters, kindMark, namesOf } = modelperf.layers;

  // -- columns

  // All columns that a case has values for. Optional ones are shown if they are picked, fixed ones
  // always; `shown` returns the present columns.
  function kernelColumns(view, decimals, shown) {
    const { layers } = view.case;
    const two = hasTwo(view);
    const [delta, ...others] = two ? comparingColumns(view, decimals) : [];
    const all = [
      { id: "depth", title: "#", width: "place", isFixed: true, note: "position in the graph",
        read: ({ depth }) => depth, cell: placeCell },
      { id: "name", title: "name", width: "name", isFixed: true, isText: true,
        read: (layer) => namesOf(layer)[0], cell: nameCell },
      ...(delta ? [delta] : []),
      { id: "type", title: "type", width: "type", isText: true, read: ({ type }) => type,
        cell: ({ type, kind }) => textCell(type, kindMark(kind)) },
      ...sideIndexes(view).flatMap((side) => sideColumns(view, side, decimals, shown)),
      ...others,
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

  const longestOf = (texts) => largest(texts.map(({ length }) => length));
  const hasTimeOfItsOwn = (layer, side) => layer.why_no_time[side] === null;

  // The number of a layer is that of its own graph, so it is the same on every page.
  function placeCell(layer) {
    const numbers = known(layer.numbers ?? [layer.depth]);
    const isMoved = new Set(numbers).size > 1;
    const title = isMoved ? `${numbers[0]} before, ${numbers[1]} now` : null;
    return numberCell(layer.is_layer ? String(latest(numbers) ?? "") : "", { title });
  }

  function nameCell(layer) {
    const names = namesOf(layer);
    const lines = names.map((name) => el("span", {}, nameText(name)));
    const small = layer.is_layer ? null : el("small", { text: "beside the layers" });
    return el("td", { class: "name", title: names.join("\n") }, ...lines, small);
  }

  function sideColumns(view, side, decimals, shown) {
    const { layers } = view.case;
    const two = hasTwo(view);
    const prefix = two ? `${sideLabel(view, side)} ` : "";
    // Two sides have the interval of their difference.
    const hasHalfWidths = !two && layers.some((layer) => isKnown(layer.half_widths[0]));
    const times = layers.map((layer) => layer.ms[side]);
    const [longest, total] = [largest(times), sum(times)];
    const percent = ({ ms }) => (isKnown(ms[side]) && total ? (100 * ms[side]) / total : null);
    const span = () => 1 + shown().filter((column) => column.follows === side).length;
    return [
      {
        id: `ms-${side}`, title: `${prefix}ms`, width: "figure", isFixed: true, isMeasure: true,
        chars: longestOf(times.map((ms) => msText(ms, decimals))),
        read: ({ ms }) => ms[side],
        cell: (layer) => msCell(layer, side, decimals, longest, span()),
      },
      ...(hasHalfWidths ? [halfWidthColumn(layers)] : []),
      {
        id: `precision-${side}`, title: `${prefix}precision`, width: "precision", isText: true,
        follows: side,
        read: (layer) => (hasTimeOfItsOwn(layer, side) ? layer.precisions[side] : null),
        cell: (layer) => (hasTimeOfItsOwn(layer, side)
          ? el("td", { class: "text", text: layer.precisions[side] ?? UNKNOWN }) : null),
      },
      {
        id: `share-${side}`, title: `${prefix}share`, width: "share", isOptional: true,
        isMeasure: true, field: "ms", note: "percent of the time of its side",
        read: percent,
        cell: (layer) =>
          (isKnown(percent(layer)) ? shareCell(percent(layer) / 100, side) : numberCell("")),
      },
      {
        id: `gmacs-${side}`, title: `${prefix}GMAC/s`, width: "figure", isOptional: true,
        isMeasure: true, field: "gmacs", note: "of its kernel, with all layers in it",
        read: ({ gmacs }) => gmacs?.[side] ?? null,
        cell: ({ gmacs }) => numberCell(gmacs?.[side]?.toFixed(2) ?? ""),
      },
    ];
  }

  const halfWidthColumn = (layers) => ({
    id: "half-width", title: "±", width: "figure", follows: 0,
    note: "half the interval of the time",
    chars: longestOf(layers.map((layer) => halfWidthText(layer.half_widths[0]))),
    read: (layer) => layer.half_widths[0],
    cell: (layer) =>
      (hasTimeOfItsOwn(layer, 0) ? numberCell(halfWidthText(layer.half_widths[0])) : null),
  });

  // A layer without its own time shows why, across the columns of its side.
  function msCell(layer, side, decimals, longest, colspan) {
    const why = layer.why_no_time[side];
    if (why !== null) return el("td", { class: "without", colspan, title: why }, nameText(why));
    const bar = longest ? Math.max(0, (layer.ms[side] ?? 0) / longest) : 0;
    const look = { class: `number bar ${sideClass(side)}`, style: `--bar: ${bar}` };
    return numberCell(msText(layer.ms[side], decimals), look);
  }

  function comparingColumns(view, decimals) {
    const { layers } = view.case;
    const [before, after] = sideIndexes(view).map((side) => sideLabel(view, side));
    return [
      {
        id: "delta", title: "delta, ms", width: "change", isMeasure: true,
        note: `${after} − ${before}, with its interval`,
        chars: longestOf(layers.flatMap((layer) => [
          changeText(layer.delta_ms, decimals), rangeText(layer.change_interval_ms, decimals),
        ])),
        read: (layer) => layer.delta_ms,
        cell: (layer) => changeCell({ ...layer, change_ms: layer.delta_ms }, decimals),
      },
      {
        id: "ratio", title: "ratio", width: "figure", note: `${after} / ${before}`, isMeasure: true,
        chars: longestOf(layers.map(({ ratio }) => ratioText(ratio))),
        read: ({ ratio }) => ratio,
        cell: ({ ratio }) => numberCell(ratioText(ratio)),
      },
    ];
  }

  // A figure of the graph; two sides show that of the last one that has it.
  function figure(field, title, textOf, options = {}) {
    const read = (layer) => latest(layer[field] ?? []);
    const cell = (layer) => numberCell(layer.is_layer ? textOf(read(layer)) : "");
    return { id: field, field, title, width: "figure", isOptional: true, read, cell, ...options };
  }

  // A text; both sides are named if they differ.
  function text(field, title, width, note) {
    const read = (layer) => [...new Set(known(layer[field] ?? []))].join(" → ") || null;
    const cell = (layer) => textCell(read(layer));
    return { id: field, field, title, width, note, isText: true, isOptional: true, read, cell };
  }

  // -- the details of a layer: its times, its parameters, and the other layers in its kernel

  // `label` describes the details, and `actions` close them or show the layer of a name.
  function kernelDetails(view, decimals, label, actions) {
    const two = hasTwo(view);
    const element =
      el("aside", { class: "layer-details", "aria-label": label, hidden: true });
    onKeys(element, { Escape: actions.close });

    function show(layer) {
      const sides = sideIndexes(view).filter((side) => layer.states[side] !== "not there");
      element.replaceChildren(headOf(layer), timesOf(layer), ...parametersOf(layer, sides),
        ...fusedOf(layer, sides));
      element.hidden = false;
    }

    function headOf(layer) {
      const close = { type: "button", class: "close", text: "×", "aria-label": "close" };
      const lines = namesOf(layer).map((name) => el("span", {}, nameText(name)));
      const number = latest(layer.numbers ?? [layer.depth]);
      const place = isKnown(number) ? `, #${number}` : "";
      const kind = layer.is_layer ? place : ", beside the layers";
      return el("header", {},
        el("h3", { "aria-live": "polite" }, ...lines),
        el("button", { ...close, on: { click: () => actions.close() } }),
        el("p", {}, nameText(layer.type), kind));
    }

    function timesOf(layer) {
      const times = sideIndexes(view).map((side) =>
        [two ? sideTag(view, side) : "time", timeOf(layer, side)]);
      return factList(two ? [
        ...times,
        ...(isKnown(layer.delta_ms) ? [["delta", deltaOf(layer)]] : []),
        ...(isKnown(layer.ratio) ? [["ratio", ratioText(layer.ratio)]] : []),
        ...(isKnown(layer.explains) ? [["explains", shareText(layer.explains)]] : []),
      ] : times);
    }

    function deltaOf({ delta_ms: delta, change_interval_ms: interval }) {
      const text = `${changeText(delta, decimals)} ms`;
      const range = el("small", { text: rangeText(interval, decimals) });
      const change = el("span", { class: tone(delta, interval), text });
      return el("span", {}, change, interval ? range : null);
    }

    function timeOf(layer, side) {
      const why = layer.why_no_time[side];
      const host = layer.runs_in[side];
      if (why === null) return timeText(layer.ms[side], decimals);
      if (!host || layer.states[side] === "not there") return why;
      const go = { click: () => actions.show(host, side) };
      const link = el("button", { type: "button", class: "link", on: go }, nameText(host));
      return el("span", {}, "in ", link);
    }

    function parametersOf(layer, sides) {
      const all = layer.parameters;
      if (sides.length < 2) {
        const side = sides[0];
        const mine = all.filter(({ values }) => isKnown(values[side]));
        return mine.length ? [el("h4", { text: "parameters" }), gridOf(mine, [side])] : [];
      }
      const different = all.filter((each) => each.is_different);
      const same = all.filter((each) => !each.is_different);
      const parts = [el("h4", { text: "what differs" })];
      if (different.length) parts.push(gridOf(different, sides));
      else parts.push(note("All parameters are the same."));
      if (same.length) {
        const summary = el("summary", { text: `the same: ${same.length}` });
        parts.push(el("details", { class: "same" }, summary, gridOf(same, sides.slice(1))));
      }
      return parts;
    }

    function gridOf(parameters, sides) {
      const table = el("table", { class: "parameters" });
      if (sides.length > 1) {
        const heads = sides.map((side) => el("th", { scope: "col" }, sideTag(view, side)));
        table.append(el("thead", {}, el("tr", {}, el("td", {}), ...heads)));
      }
      const lines = parameters.map(({ name, values }) => {
        const cells = sides.map((side) => el("td", {}, nameText(values[side] ?? UNKNOWN)));
        return el("tr", {}, el("th", { scope: "row" }, nameText(name)), ...cells);
      });
      table.append(el("tbody", {}, ...lines));
      return table;
    }

    function fusedOf(layer, sides) {
      if (!sides.some((side) => layer.fused[side]?.length)) return [];
      const others = (side) => (sides.length > 1 ? (layer.fused[1 - side] ?? []) : null);
      const lists = sides.map((side) => fusedOn(layer.fused[side] ?? [], others(side), side));
      return [el("h4", { text: "in the same kernel" }), ...lists];
    }

    // Layers that only one side fuses stand out, compared by type because names may differ.
    function fusedOn(layers, others, side) {
      const left = others?.map(({ type }) => type);
      const items = layers.map(({ name, type }) => {
        const place = left?.indexOf(type) ?? 0;
        if (left && place >= 0) left.splice(place, 1);
        const item = el("li", { class: place < 0 ? "only" : "" }, nameText(name));
        item.append(" ", el("small", {}, nameText(type)));
        return item;
      });
      const list = items.length ? el("ul", {}, ...items) : el("p", { text: "nothing else" });
      const tag = two ? [sideTag(view, side)] : [];
      return el("div", { class: "fused" }, ...tag, list);
    }

    return {
      element, show, isOpen: () => !element.hidden, hide: () => { element.hidden = true; },
    };
  }

  // -- the table

  function kernelTable(view) {
    const { layers } = view.case;
    const two = hasTwo(view);
    const totals = totalsOf(view, layers);
    const hasTimes = totals.some((total) => total > 0);
    const decimals = decimalsFor(largest(totals));
    const all = kernelColumns(view, decimals, () => rows.columns);
    const columnPicker = new ColumnPicker(all, chosen("columns"), (names) => {
      choose({ columns: names });
      showColumns();
    });
    const measures = all.filter((column) => column.isMeasure);
    const filters = new LayerFilters(layers, measures, two, () => rows.update());
    const details = kernelDetails(view, decimals, "details of the layer",
      { close, show: openNamed });
    const rows = new RowWindow("layers", "No layer is like that.", {
      isGrid: true, kept: "sort",
      sort: { id: !hasTimes ? "depth" : two ? "delta" : "ms-0", isDescending: hasTimes },
      select: () => filters.select(),
      // A filter shows all that it finds.
      still: ({ differs }) => two && !differs && !filters.isActive,
      stillText: "unchanged layers",
      lineOf: (layer, index) =>
        rows.line(layer, { id: `layer-${layer.depth}-${index}`, "data-index": index }),
      afterDrawing: mark,
    });
    const { table } = rows;
    const element = el("div", {},
      el("div", { class: "kernels-tools" }, filters.element, columnPicker.element,
        rows.csvButton("layers")),
      el("div", { class: "kernels-both" }, rows.element, details.element));
    let current = null;

    // Shows the details of a layer even if a filter hides it.
    function open(layer) {
      if (!layers.includes(layer)) return;
      if (!rows.shown.includes(layer)) filters.replace({});
      openRow(layer);
      element.scrollIntoView({ block: "nearest" });
    }

    function showTransition(before, after) {
      filters.replace({ transition: [before, after] });
      element.closest("section")?.scrollIntoView({ block: "start" });
      table.focus({ preventScroll: true });
    }

    function showColumns() {
      const columns = all.filter((column) => columnPicker.shows(column));
      rows.setColumns(columns, "ms-0");
      const added = columns.filter(({ isOptional }) => isOptional).length;
      table.style.setProperty("--added", added);
    }

    function mark() {
      const index = rows.shown.indexOf(current);
      for (const line of table.querySelectorAll("tr[id]")) {
        const isCurrent = Number(line.dataset.index) === index;
        line.classList.toggle("current", isCurrent);
        line.setAttribute("aria-selected", isCurrent);
        if (isCurrent) table.setAttribute("aria-activedescendant", line.id);
      }
      if (index < 0) table.removeAttribute("aria-activedescendant");
    }

    function keys() {
      const move = (to) => ({ target }) => {
        const shown = rows.shown.filter(({ foldText }) => !foldText);
        // A button in the head handles its own keys.
        if (target !== table || !shown.length) return false;
        const last = shown.length - 1;
        return moveTo(shown[Math.max(0, Math.min(last, to(shown.indexOf(current), last)))]);
      };
      return {
        ArrowDown: move((now) => now + 1), ArrowUp: move((now) => now - 1),
        PageDown: move((now) => now + rows.pageRows), PageUp: move((now) => now - rows.pageRows),
        Home: move(() => 0), End: move((now, last) => last),
        Enter: ({ target }) => target === table && current !== null && openRow(current),
        Escape: close,
      };
    }

    function moveTo(layer) {
      current = layer;
      rows.bringIntoView(rows.shown.indexOf(layer));
      mark();
      if (details.isOpen()) details.show(layer);
    }

    function openRow(layer) {
      if (!rows.shown.includes(layer)) rows.unfold();
      choose({ layer: namesOf(layer)[0] });
      details.show(layer);
      moveTo(layer);
    }

    // Opens the layer that the address names.
    function openChosen() {
      const layer = filters.select().find((each) => namesOf(each)[0] === chosen("layer"));
      if (layer) openRow(layer);
    }

    function openNamed(name, side) {
      const layer = layers.find(({ names }) => names[side] === name);
      if (layer) open(layer);
    }

    function close() {
      if (!details.isOpen()) return;
      choose({ layer: null });
      details.hide();
      table.focus({ preventScroll: true });
    }

    rows.reserve(layers.length);
    rows.mark(two ? "two-sides" : "one-side");
    if (layers.some((layer) => namesOf(layer).length > 1)) rows.mark("two-lines");
    onKeys(table, keys());
    rows.body.addEventListener("click", ({ target }) => {
      const index = target.closest("tr[data-index]")?.dataset.index;
      if (index === undefined) return;
      openRow(rows.shown[Number(index)]);
      rows.body.querySelector(".current").scrollIntoView({ block: "nearest" });
    });
    showColumns();
    return { parts: [element], begin: openChosen, draw: () => rows.draw(), open, showTransition };
  }

  // The table of the chosen case; null if its layers are unknown.
  let kernels = null;

  chartPart("kernels", (view) => {
    kernels = view.case?.layers.length ? kernelTable(view) : null;
    return kernels;
  });

  return {
    kernelDetails,
    open: (layer) => kernels?.open(layer),
    showTransition: (before, after) => kernels?.showTransition(before, after),
  };
})();
