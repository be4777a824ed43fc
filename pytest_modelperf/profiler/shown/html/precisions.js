// Layers by precision, and how precisions changed from A to B.
(() => {
  "use strict";

  const { el } = modelperf;
  const { chartPart, hasTwo, sideIndexes, sideLabel, totalsOf } = modelperf.charts;
  const { changeText, decimalsFor, largest, msText, sum, wholeText } = modelperf.figures;
  const { SortableTable, cellsButton, note, numberCell, scrollBox, shareCell, sortableBox } =
    modelperf.tables;

  const headCell = (text, scope) => el("th", { scope, class: "text", text });

  function distributionTable(view, rows, decimals) {
    const table = new SortableTable({
      class: "distribution cards", kept: "precisions", sort: { id: null }, select: () => rows,
    });
    table.setColumns([
      { id: "place", title: "precision", isText: true, read: ({ place }) => place,
        cell: ({ place }) => headCell(place, "row") },
      ...sideIndexes(view).flatMap((side) => {
        const prefix = hasTwo(view) ? `${sideLabel(view, side)} ` : "";
        return [
          { id: `count-${side}`, title: `${prefix}layers`, read: ({ counts }) => counts[side],
            cell: ({ counts }) => numberCell(wholeText(counts[side])) },
          { id: `ms-${side}`, title: `${prefix}ms`, read: ({ ms }) => ms[side],
            cell: ({ ms }) => numberCell(msText(ms[side], decimals)) },
          { id: `share-${side}`, title: `${prefix}share`, read: ({ shares }) => shares[side],
            cell: ({ shares }) => shareCell(shares[side], side) },
        ];
      }),
    ]);
    return table;
  }

  function transitionTable([before, after], { rows, transitions }, decimals) {
    const places = (end) => rows.map(({ place }) => place)
      .filter((place) => transitions.some((each) => each[end] === place));
    const to = places("after");
    const lines = places("before").map((one) => el("tr", {}, headCell(one, "row"),
      ...to.map((other) => transitionCell(
        transitions.find((each) => each.before === one && each.after === other), decimals))));
    const corner = el("td", { class: "corner", text: `${before} ↓   ${after} →` });
    const heads = to.map((place) => el("th", { scope: "col", text: place }));
    return el("table", { class: "matrix" },
      el("thead", {}, el("tr", {}, corner, ...heads)), el("tbody", {}, ...lines));
  }

  function transitionCell(found, decimals) {
    if (!found) return el("td", { class: "none", text: "·" });
    const { before, after, count, change_ms: change } = found;
    const text = changeText(change, decimals);
    const button = el("button", {
      type: "button", title: "show these layers",
      "aria-label": `${before} to ${after}: ${wholeText(count)} layers, ${text} ms`,
      on: { click: () => modelperf.kernels.showTransition(before, after) },
    }, el("strong", { text: wholeText(count) }),
    el("small", { text: change === null ? text : `${text} ms` }));
    return el("td", { class: before === after ? "kept" : "changed" }, button);
  }

  chartPart("transitions", (view) => {
    const sums = view.case?.precisions;
    if (!sums?.rows.length) return null;
    const decimals = decimalsFor(largest(totalsOf(view, sums.rows)));
    const parts = [
      el("h3", { text: "Layers by precision" }),
      sortableBox("layers by precision", distributionTable(view, sums.rows, decimals)),
    ];
    if (!hasTwo(view)) return { parts };
    const labels = sideIndexes(view).map((side) => sideLabel(view, side));
    const matrix = transitionTable(labels, sums, decimals);
    const layers = sum(sums.transitions.map(({ count }) => count));
    return { parts: [
      ...parts, el("h3", { text: `From ${labels.join(" to ")}` }),
      note(`How many of the ${wholeText(layers)} layers went from which precision of ` +
        `${labels.join(" to which of ")}, and how much longer they take. Choose a cell to ` +
        "see its layers in the table of kernels."),
      scrollBox("transitions", matrix), cellsButton("transitions", matrix),
    ] };
  });
})();
