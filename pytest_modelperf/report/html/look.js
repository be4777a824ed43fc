// The look of tables that were there before any script: figures in line, names that break well.
modelperf.look = (() => {
  "use strict";

  const { el } = modelperf;

  // A figure with its sign, its decimals and its unit: `+3.1 %`, `x2.31`, `97.49 MiB`.
  const FIGURE = /^[^\d\s]?\d[\d,]*(?:\.(\d+))?(\s\D.*)?$/;
  // The width of a decimal point, in digits.
  const POINT = 0.5;

  const widthOf = (decimals) => (decimals ? POINT + decimals.length : 0);

  // Room after the figures of a column, so that their decimal points stand below one another. A
  // column with several units has no common point.
  function alignColumn(cells) {
    const found = cells
      .map((cell) => ({ cell, match: FIGURE.exec(cell.textContent.trim()) }))
      .filter(({ match }) => match);
    if (new Set(found.map(({ match }) => match[2] ?? "")).size !== 1) return;
    const widths = found.map(({ match }) => widthOf(match[1]));
    const widest = Math.max(...widths);
    found.forEach(({ cell }, index) => {
      const missing = widest - widths[index];
      if (missing) cell.style.setProperty("--missing", `${missing}ch`);
    });
  }

  function alignFigures(table) {
    const columns = new Map();
    for (const row of table.querySelectorAll("tbody tr, tfoot tr")) {
      for (const cell of row.cells) {
        if (!cell.classList.contains("number")) continue;
        if (!columns.has(cell.cellIndex)) columns.set(cell.cellIndex, []);
        columns.get(cell.cellIndex).push(cell);
      }
    }
    for (const cells of columns.values()) alignColumn(cells);
  }

  // A name may break after what joins its words, and nowhere else.
  function breakNames(table) {
    for (const cell of table.querySelectorAll("tbody .name")) {
      for (const node of textsOf(cell)) {
        const pieces = node.data.match(/[^/_\-:,]*[/_\-:,]*/g).filter(Boolean);
        if (pieces.length < 2) continue;
        node.replaceWith(...pieces.flatMap((piece, index) => (index ? [el("wbr"), piece] : [piece])));
      }
    }
  }

  function textsOf(cell) {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) texts.push(walker.currentNode);
    return texts;
  }

  // A table that a closed case hides is looked after when it is opened.
  const unseen = new Set();

  function show(tables) {
    for (const table of tables) {
      if (!unseen.delete(table)) continue;
      alignFigures(table);
      breakNames(table);
    }
  }

  addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll("main .scroll > table")) unseen.add(table);
    show([...unseen].filter((table) => !table.closest("details:not([open])")));
  });
  // A toggle does not bubble.
  addEventListener("toggle", ({ target }) => show(target.querySelectorAll("table")), true);
  document.documentElement.addEventListener("paper", () => show(unseen));

  return { alignFigures };
})();
