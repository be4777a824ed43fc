// What needs no JavaScript to be there follows what is chosen and read: the rows, sections and
// tiles of the chosen case, and the list of the parts of the page.
(() => {
  "use strict";

  const { chooseCase, chosen } = modelperf;
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
    for (const link of links) {
      if (link === current) link.setAttribute("aria-current", "location");
      else link.removeAttribute("aria-current");
    }
    // A bold text is wider.
    current.scrollIntoView({ block: "nearest", inline: "nearest" });
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
})();
