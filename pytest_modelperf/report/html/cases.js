// The chosen case in the parts that need no JavaScript: rows, sections and tiles follow the choice,
// and make it. They name a case by its place in the data.
(() => {
  "use strict";

  const { chooseCase, chosen } = modelperf;
  const page = document.documentElement;
  const all = (tag) => [...document.querySelectorAll(`${tag}[data-case]`)];
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
    const tiles = all("dl");
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
    for (const row of all("tr")) {
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
})();
