// Layers by precision, and how precisions changed from A to B.
(() => {
  "use strict";

  const { UNKNOWN, el } = modelperf;
  const { hasTwo, sideIndexes, sideLabel } = modelperf.sides;
  const { changeText, decimalsFor, isKnown, known } = modelperf.figures;
  const { largest, msText, sum, wholeText } = modelperf.figures;
  const { note, numberCell, scrollBox, shareCell } = modelperf.tables;
  const { IN_ANOTHER, NOT_EXECUTED, NO_PRECISION, isTransition, rowOf } = modelperf.layers;

  const PLACES_LAST = [NO_PRECISION, "did not run", IN_ANOTHER, NOT_EXECUTED];

  // Precisions by their number of layers, then layers without one.
  function placesOf(rows) {
    const counts = new Map();
    for (const { places } of rows) {
      for (const place of places) counts.set(place, (counts.get(place) ?? 0) + 1);
    }
    const rank = (place) => PLACES_LAST.indexOf(place);
    return [...counts.keys()].sort(
      (one, other) => rank(one) - rank(other) || counts.get(other) - counts.get(one),
    );
  }

  function distributionTable(view, rows, decimals) {
    const sides = sideIndexes(view);
    const totals = sides.map((side) => sum(rows.map(({ layer }) => layer.ms[side])));
    const titles = sides.flatMap((side) => {
      const prefix = hasTwo(view) ? `${sideLabel(view, side)} ` : "";
      return [`${prefix}layers`, `${prefix}ms`, `${prefix}share`];
    });
    const heads = titles.map((title) => el("th", { scope: "col", class: "number", text: title }));
    const corner = el("th", { scope: "col", class: "text", text: "precision" });
    const lines = placesOf(rows).map((place) => {
      const cells = sides.flatMap((side) => {
        const here = rows.filter(({ places }) => places[side] === place);
        const times = known(here.map(({ layer }) => layer.ms[side]));
        const ms = times.length ? sum(times) : null;
        return [
          numberCell(wholeText(here.length)),
          numberCell(msText(ms, decimals)),
          shareCell(isKnown(ms) && totals[side] ? ms / totals[side] : null, side),
        ];
      });
      return el("tr", {}, el("th", { scope: "row", class: "text", text: place }), ...cells);
    });
    const head = el("thead", {}, el("tr", {}, corner, ...heads));
    return el("table", { class: "distribution" }, head, el("tbody", {}, ...lines));
  }

  function transitionTable(view, rows, decimals) {
    const [before, after] = sideIndexes(view).map((side) => sideLabel(view, side));
    const places = placesOf(rows);
    const from = places.filter((place) => rows.some((row) => row.places[0] === place));
    const to = places.filter((place) => rows.some((row) => row.places[1] === place));
    const heads = to.map((place) => el("th", { scope: "col", text: place }));
    const corner = el("td", { class: "corner", text: `${before} ↓   ${after} →` });
    const lines = from.map((one) => {
      const cells = to.map((other) => {
        const here = rows.filter((row) => isTransition(row, [one, other]));
        return transitionCell(here, one, other, decimals);
      });
      return el("tr", {}, el("th", { scope: "row", class: "text", text: one }), ...cells);
    });
    const head = el("thead", {}, el("tr", {}, corner, ...heads));
    return el("table", { class: "matrix" }, head, el("tbody", {}, ...lines));
  }

  function transitionCell(rows, before, after, decimals) {
    if (!rows.length) return el("td", { class: "none", text: "·" });
    const deltas = known(rows.map(({ delta }) => delta));
    const change = deltas.length ? sum(deltas) : null;
    const words = `${before} to ${after}: ${wholeText(rows.length)} layers`;
    const show = () => modelperf.kernels.showTransition(before, after);
    const button = el(
      "button",
      { type: "button", title: "show these layers", on: { click: show } },
      el("strong", { text: wholeText(rows.length) }),
      el("small", { text: isKnown(change) ? `${changeText(change, decimals)} ms` : UNKNOWN }),
    );
    button.setAttribute("aria-label", `${words}, ${changeText(change, decimals)} ms`);
    return el("td", { class: before === after ? "kept" : "changed" }, button);
  }

  modelperf.section("transitions", {
    draw(root, view) {
      const layers = (view.case?.layers ?? []).filter((layer) => layer.is_layer);
      if (!layers.length) {
        modelperf.hide(root);
        return;
      }
      const rows = layers.map((layer) => rowOf(layer));
      const totals = sideIndexes(view).map((side) => sum(layers.map((layer) => layer.ms[side])));
      const decimals = decimalsFor(largest(totals));
      const parts = [el("h3", { text: "Layers by precision" })];
      parts.push(scrollBox("layers by precision", distributionTable(view, rows, decimals)));
      if (hasTwo(view)) {
        const [before, after] = sideIndexes(view).map((side) => sideLabel(view, side));
        const says = `How many of the ${wholeText(rows.length)} layers went from which precision
          of ${before} to which of ${after}, and how much longer they take. Choose a cell to see
          its layers in the table of kernels.`;
        parts.push(el("h3", { text: `From ${before} to ${after}` }), note(says));
        parts.push(scrollBox("transitions", transitionTable(view, rows, decimals)));
      }
      root.replaceChildren(...parts);
    },
    redraw: () => {},
  });
})();
