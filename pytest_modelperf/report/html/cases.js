// What needs no JavaScript to be there follows what is chosen and read: the rows, sections and
// tiles of the chosen case, and the list of the parts of the page. Its tables get figures in line,
// and names that break well.
modelperf.cases = (() => {
  "use strict";

  const { chooseCase, chosen, el } = modelperf;
  const page = document.documentElement;
  const all = (tag) => [...document.querySelectorAll(`${tag}[data-case]`)];

  // -- the chosen case, which rows, sections and tiles make too; its place in the data names it

  // The section that a choice opened; those that a reader opened stay open.
  let opened = null;

  function places(view) {
    const model = view.data.models.indexOf(view.model);
    const place = view.model.cases.indexOf(view.case);
    return ({ dataset }) => Number(dataset.model) === model && Number(dataset.case) === place;
  }

  function follow(view) {
    const isChosen = places(view);
    for (const row of all("tr")) {
      if (isChosen(row)) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
    const tiles = all("div");
    if (tiles.some(isChosen)) tiles.forEach((each) => { each.hidden = !isChosen(each); });
    open(all("details").find(isChosen) ?? null);
  }

  // A page opens on the sections that its writer wanted open, unless its address names a case.
  function open(section) {
    const isFirst = opened === null;
    if (section === opened) return;
    if (!isFirst) opened.open = false;
    else if (hasChoice()) for (const other of all("details")) other.open = false;
    opened = section;
    if (section && (!isFirst || hasChoice())) section.open = true;
  }

  const hasChoice = () => chosen("case") !== null || chosen("model") !== null;

  function choose({ dataset }) {
    chooseCase(Number(dataset.model), Number(dataset.case));
  }

  function goTo(row) {
    choose(row);
    const { model, case: place } = row.dataset;
    const section = document.getElementById(`case-${model}-${place}`);
    const target = section ?? document.querySelector(".interactive:not([hidden])");
    if (section) section.open = true;
    target?.scrollIntoView();
    section?.querySelector("summary").focus({ preventScroll: true });
  }

  page.addEventListener("casechange", ({ detail }) => follow(detail));

  // Without data to choose from, the links of rows lead to their sections.
  page.addEventListener("casechange", () => {
    for (const row of [...all("tr"), ...all("a")]) {
      row.addEventListener("click", (event) => {
        if (event.ctrlKey || event.metaKey) return;
        event.preventDefault();
        if (!String(getSelection())) goTo(row);
      });
    }
    for (const section of all("details")) {
      section.querySelector("summary").addEventListener("click", () => {
        if (section.open) return;
        if (section !== opened) opened = section;
        choose(section);
      });
    }
  }, { once: true });

  // -- the commands to copy

  for (const button of document.querySelectorAll(".copy")) {
    const code = button.previousElementSibling;
    button.hidden = false;
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(code);
      // Not every browser lets a file use the clipboard: then the command is chosen, ready for keys.
      await navigator.clipboard?.writeText(code.textContent).catch(() => {});
      button.textContent = "copied";
    });
  }

  // -- the list of the parts: only those that are there, and which of them is being read

  const links = [...document.querySelectorAll("#parts a")];
  const partOf = (link) => document.getElementById(link.hash.slice(1));
  // The address keeps the choices, so a link only scrolls.
  const inView = new Set();

  function goToPart(event, link) {
    event.preventDefault();
    const part = partOf(link);
    part.scrollIntoView();
    part.tabIndex = -1;
    part.focus({ preventScroll: true });
  }

  function mark() {
    const current = links.find((link) => inView.has(partOf(link)));
    if (!current) return;
    current.scrollIntoView({ block: "nearest", inline: "nearest" });
    for (const link of links) {
      if (link === current) link.setAttribute("aria-current", "location");
      else link.removeAttribute("aria-current");
    }
  }

  const watcher = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      if (isIntersecting) inView.add(target);
      else inView.delete(target);
    }
    mark();
  }, { rootMargin: "-25% 0px -60% 0px" });

  for (const link of links) {
    link.addEventListener("click", (event) => goToPart(event, link));
    watcher.observe(partOf(link));
  }
  page.addEventListener("drawn", () => {
    for (const link of links) link.parentElement.hidden = partOf(link).hidden;
  });

  // What is jumped to begins below the bar, whose height depends on the width.
  const bar = document.getElementById("bar");
  new ResizeObserver(() => page.style.setProperty("--bar", `${bar.offsetHeight}px`)).observe(bar);

  // -- the look of tables that were there before any script

  // A figure with its sign, its decimals and its unit: `+3.1 %`, `x2.31`, `97.49 MiB`.
  const FIGURE = /^[^\d\s]?\d[\d,]*(?:\.(\d+))?(\s\D.*)?$/;
  // The width of a decimal point, in digits.
  const POINT = 0.5;

  const widthOf = (decimals) => (decimals ? POINT + decimals.length : 0);

  // Room after the figures of a column, so that their decimal points are below one another. A
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

  function lookAfter(tables) {
    for (const table of tables) {
      if (!unseen.delete(table)) continue;
      alignFigures(table);
      breakNames(table);
    }
  }

  addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll("main .scroll > table")) unseen.add(table);
    lookAfter([...unseen].filter((table) => !table.closest("details:not([open])")));
  });
  // A toggle does not bubble.
  addEventListener("toggle", ({ target }) => lookAfter(target.querySelectorAll("table")), true);
  page.addEventListener("paper", () => lookAfter(unseen));

  return { alignFigures };
})();
