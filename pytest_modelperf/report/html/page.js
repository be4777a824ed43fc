"use strict";

// The core of a report page: unpacks the embedded data, keeps the choices, and calls the sections
// to draw themselves. The scripts after it define these sections and what they share.
//
// The page must have: <script type="application/gzip"> with the ids "data" and, for charts, "plotly", and
// one for each case with what only the chosen case needs, a <div id="controls"> for the pickers, a
// <p id="status"> for what goes wrong, and for each part a <section id="..." class="interactive"> with
// a heading and a <div class="body">. While the parts are being drawn, its root has no data-state.
const modelperf = (() => {
  const UNKNOWN = "–";
  const COLORS = ["a", "b", "text", "muted", "grid", "background", "good", "bad"];
  const WANTED = "give a page of cases, or the JSON of profile, compare, sweep or a test run.";
  const THEME_KEY = "modelperf-theme";
  const page = document.documentElement;
  const sections = [];
  // The parts that are still to be drawn for what is chosen.
  let waiting = new Set();
  // Whether everything that these parts need is unpacked.
  let isUnpacked = false;
  // The reasons why parts that a reader may expect are absent.
  const absent = new Map();
  // What is chosen of a model, and means nothing to another one.
  const OF_MODEL = {
    case: null, a: null, b: null, threshold: null, without: null, filter: null, layer: null,
    untick: null,
  };
  let choices = new URLSearchParams();
  const view = { data: null, model: null, case: null, sides: [] };
  // What the parts draw: the view, or two of its cases as one.
  let drawnView = view;
  // The cases of other pages that a reader dropped onto this one.
  let dropped = [];

  // An element. Texts never become markup: children are nodes, or strings taken as text.
  function el(tag, options = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(options)) setOption(element, name, value);
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
  }

  function setOption(element, name, value) {
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name === "on") {
      for (const [type, listener] of Object.entries(value)) {
        element.addEventListener(type, listener);
      }
    } else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }

  // An element of a vector drawing.
  function svg(tag, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  // The choices are kept in the address after #: they survive a reload and can be shared.
  function chosen(key) {
    return choices.get(key);
  }

  // null forgets a key.
  function choose(changes) {
    for (const [key, value] of Object.entries(changes)) {
      if (value === null) choices.delete(key);
      else choices.set(key, value);
    }
    try {
      history.replaceState(null, "", `#${choices}`);
    } catch {
      // An embedded page may not change its address: then choices last until it is closed.
    }
  }

  function readChoices() {
    choices = new URLSearchParams(location.hash.slice(1));
  }

  function takeChoices() {
    const models = view.data.models;
    view.model = models[Number(chosen("model") ?? view.data.start)] ?? models[0];
    view.sides = view.model.sides;
    view.case = caseOf(view.model);
  }

  function caseOf({ cases, start }) {
    const shown = chosen("case") ?? start;
    return cases.find(({ id }) => id === shown) ?? cases[0] ?? null;
  }

  // Chooses a case by its place in the data, for the whole page. With two sides, A follows.
  function chooseCase(model, place) {
    const { models } = view.data;
    const { cases, sides } = models[model];
    change({
      ...(models[model] === view.model ? {} : OF_MODEL),
      ...(models.length > 1 ? { model: String(model) } : {}),
      ...(sides.length > 1 ? { a: null } : {}),
      case: cases[place].id,
    });
  }

  function showPickers() {
    const pickers = [];
    const shown = [];
    if (view.data.models.length > 1) {
      const models = view.data.models.map(({ name }, index) => [String(index), name]);
      const label = view.data.choice ?? "Model";
      pickers.push(picker(label, models, String(view.data.models.indexOf(view.model)),
        (model) => change({ ...OF_MODEL, model })));
      shown.push(`${label.toLowerCase()} `, el("bdi", { text: view.model.name }));
    }
    const others = othersOf(view);
    if (others.length) {
      const isPair = view.sides.length > 1;
      const none = ["", isPair ? "before" : "nothing"];
      const value = others.some(({ id }) => id === chosen("a")) ? chosen("a") : "";
      const options = [none, ...others.map(({ id, name }) => [id, name])];
      const label = isPair ? "A" : "Compare with";
      pickers.push(picker(label, options, value, (id) => change({ a: id || null })));
    }
    if (view.model.cases.length > 1) {
      const cases = view.model.cases.map((item) => [item.id, caseTitle(item)]);
      pickers.push(picker("Case", cases, view.case.id, (id) =>
        chooseCase(view.data.models.indexOf(view.model), cases.findIndex(([key]) => key === id))));
      if (shown.length) shown.push(", ");
      shown.push("case ", el("bdi", { text: caseTitle(view.case) }));
    }
    refill(document.querySelector("#controls .pickers"), pickers);
    sayOnPaper(shown);
  }

  // The cases that the chosen one can be compared with: those of its model, before if there are two
  // sides, and those of other pages. A sweep compares its points instead.
  function othersOf({ data, model, case: b }) {
    if (!b || !modelperf.pairs) return [];
    const own = model.cases.length > 1 ? model.cases : [];
    return [
      ...own.filter((item) => item !== b).map((item) => ({
        id: item.id, name: caseTitle(item), side: 0, case: item,
        unpack: () => unpackCase({ data, model, case: item }),
      })),
      ...(model.cases.length ? dropped : []),
    ];
  }

  // Takes the cases of a page, or of a JSON result, that a reader drops onto this one.
  async function takeFile(file) {
    const text = await file.text();
    try {
      const found = text.trimStart().startsWith("{")
        ? modelperf.results.casesOf(JSON.parse(text), view.case.types) : await casesOfPage(text);
      if (!found.length) return `${file.name} has no case with layers: ${WANTED}`;
      for (const item of found) {
        const id = `${file.name}, ${item.name}`;
        dropped = dropped.filter((each) => each.id !== id);
        dropped.push({ unpack: () => null, ...item, id, file, name: id });
      }
      return "";
    } catch {
      return `${file.name} is not a page or a result of cases: ${WANTED}`;
    }
  }

  async function casesOfPage(text) {
    const other = new DOMParser().parseFromString(text, "text/html");
    const data = JSON.parse(await unpack("data", other));
    return data.models.flatMap((model) => model.cases.map((item) => ({
      name: `${model.name}, ${item.name}`, side: model.sides.length - 1, case: item,
      unpack: () => unpackCase({ data, model, case: item }, other),
    })));
  }

  async function takeFiles(files) {
    const troubles = (await Promise.all([...files].map(takeFile))).filter(Boolean);
    if (troubles.length < files.length) change({ a: dropped.at(-1).id });
    document.getElementById("status").textContent = troubles.join(" ");
  }

  // A button opens files, and they may be dropped anywhere.
  function listenForFiles() {
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => {
      event.preventDefault();
      takeFiles(event.dataTransfer.files);
    });
    const input = el("input", {
      type: "file", multiple: true, accept: ".html,.json", hidden: true,
      on: { change: () => takeFiles(input.files) },
    });
    const title = "Compare with the cases of pages and JSON results; you can also drop them here";
    const on = { click: () => input.click() };
    document.querySelector("#controls .theme").before(input,
      el("button", { type: "button", class: "open-files", text: "Open results", title, on }));
  }

  // Paper has no pickers, and shows only the chosen model and case.
  function sayOnPaper(shown) {
    const line = document.getElementById("shown");
    line.hidden = shown.length === 0;
    line.replaceChildren("The charts and layers from here on are those of ", ...shown, ".");
  }

  // Replaces the pickers; the focus stays on the picker in the same position.
  function refill(box, pickers) {
    const index = [...box.querySelectorAll("select")].indexOf(document.activeElement);
    box.replaceChildren(...pickers);
    box.querySelectorAll("select")[index]?.focus();
  }

  function caseTitle({ name, word }) {
    return word ? `${name} · ${word}` : name;
  }

  function change(choices) {
    choose(choices);
    takeChoices();
    showPickers();
    announce("casechange");
    drawAll();
  }

  // For what follows the choices without being a part that is drawn.
  function announce(event, detail = view) {
    page.dispatchEvent(new CustomEvent(event, { detail }));
  }

  // What the keys of an element do. The browser acts on a key whose function returns false.
  function onKeys(element, actions) {
    element.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in actions)) return;
      if (actions[event.key](event) !== false) event.preventDefault();
    });
  }

  // A box to type in what is looked for.
  const searchBox = (label, placeholder, find) => el("input", {
    type: "search", placeholder, "aria-label": label, autocomplete: "off", spellcheck: "false",
    on: { input: ({ target }) => find(target.value.trim().toLowerCase()) },
  });

  // A labelled list to choose from; `options` are pairs of value and text.
  function picker(label, options, value, onChange) {
    const select = el("select", { on: { change: () => onChange(select.value) } },
      ...options.map(([key, text]) => el("option", { value: key, text })));
    select.value = value;
    return el("label", { class: "picker" }, `${label} `, select);
  }

  // A box to tick, with its name.
  function tickBox(label, isOn, onChange, attributes = {}) {
    const on = { change: () => onChange(box.checked) };
    const box = el("input", { type: "checkbox", ...attributes, on });
    box.checked = isOn;
    return el("label", { class: "tick" }, box, el("bdi", { text: label }));
  }

  // Buttons, of which one is pressed; `options` are pairs of value and text.
  function toggle(label, options, value, onChange) {
    const buttons = options.map(([key, text]) => el("button", {
      type: "button", text, "aria-pressed": String(key === value), on: { click: () => press(key) },
    }));
    function press(pressed) {
      buttons.forEach((button, index) => {
        button.setAttribute("aria-pressed", String(options[index][0] === pressed));
      });
      onChange(pressed);
    }
    return el("div", { class: "toggle", role: "group", "aria-label": label }, ...buttons);
  }

  // `draw` is called after unpacking and whenever the model or the case changes; `redraw`, or
  // `draw` without one, when only the colours or the width of the page change.
  function section(id, drawing) {
    sections.push({ id, ...drawing });
  }

  // Draws one part after the other, so that the page answers in between. If something else is
  // chosen meanwhile, that is drawn instead.
  async function drawAll() {
    const parts = new Set(sections);
    waiting = parts;
    isUnpacked = false;
    delete page.dataset.state;
    document.getElementById("status").textContent = "";
    try {
      await unpackCase(view);
      drawnView = await pairedView();
    } catch (error) {
      return parts === waiting ? cannotUnpack(error) : undefined;
    }
    if (parts !== waiting) return undefined;
    isUnpacked = true;
    for (const item of parts) {
      drawSection(item, "draw");
      // Other tasks come in between.
      await new Promise((done) => { setTimeout(done); });
      if (parts !== waiting) return undefined;
    }
    finish();
    page.dataset.state ??= "ready";
    return undefined;
  }

  async function pairedView() {
    const a = othersOf(view).find(({ id }) => id === chosen("a"));
    if (!a || !modelperf.pairs) return view;
    await a.unpack();
    const b = { name: caseTitle(view.case), side: view.sides.length - 1, case: view.case };
    return modelperf.pairs.pairOf(view, a, b);
  }

  // Draws the parts again whose turn is not still to come.
  function redraw() {
    for (const item of sections) if (!waiting.has(item)) drawSection(item, "redraw");
    finish();
  }

  // Lets a part redraw others that depend on it.
  function drawSections(ids) {
    for (const item of sections) {
      if (ids.includes(item.id) && !waiting.has(item)) drawSection(item, "draw");
    }
    finish();
  }

  function finish() {
    const isNew = drawnView === view && view.sides.length > 1 && view.case?.word === "new";
    document.getElementById("absent").textContent = [
      ...(isNew ? ["This case is new, so nothing is known of A, before."] : []),
      ...[...absent].map(([part, why]) => `${part.querySelector("h2").textContent}: ${why}.`),
    ].join(" ");
    announce("drawn", drawnView);
  }

  function drawSection(item, kind) {
    waiting.delete(item);
    const root = document.querySelector(`#${item.id} > .body`);
    if (!root) return;
    absent.delete(root.parentElement);
    if (kind === "draw") root.parentElement.hidden = false;
    try {
      (item[kind] ?? item.draw)(root, drawnView);
    } catch (error) {
      // If one part fails, the others are still drawn.
      console.error(error);
      say(root, "This part could not be drawn.");
    }
  }

  // Shows one line instead of the section's content.
  function say(root, text) {
    root.replaceChildren(el("p", { class: "muted", text }));
  }

  // Hides a part that has nothing to show, with its heading; a line above the parts says why.
  function hide(root, why = null) {
    if (why) absent.set(root.parentElement, why);
    root.replaceChildren();
    root.parentElement.hidden = true;
  }

  // Colours of the style sheet in the present theme, as rgb(...); those of a class may be its own.
  function colorsOf(names, className = "") {
    const probe = el("span", { class: className });
    document.body.append(probe);
    const found = names.map((name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    });
    probe.remove();
    return found;
  }

  const colorOf = (name, className) => colorsOf([name], className)[0];

  function colors() {
    const found = colorsOf(COLORS.map((name) => `--${name}`));
    return Object.fromEntries(COLORS.map((name, index) => [name, found[index]]));
  }

  function isDark() {
    const { theme } = page.dataset;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function showThemeButton() {
    const button = el("button", { type: "button", class: "theme", on: { click: () => {
      page.dataset.theme = isDark() ? "light" : "dark";
      repaint();
      inStorage((storage) => storage.setItem(THEME_KEY, page.dataset.theme));
    } } });
    const name = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.title = `Show the page in ${isDark() ? "light" : "dark"} colours`;
    };
    page.addEventListener("themechange", name);
    name();
    document.getElementById("controls").append(el("div", { class: "pickers" }), button);
  }

  function repaint() {
    page.dispatchEvent(new Event("themechange"));
    if (view.model) redraw();
  }

  // A browser may forbid storage for a file: then the theme lasts until the page is closed.
  function inStorage(use) {
    try {
      return use(sessionStorage);
    } catch {
      return null;
    }
  }

  async function unpack(id, from = document) {
    const packed = from.getElementById(id).textContent;
    const text = atob(packed.trim());
    const bytes = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  // Adds to the chosen case what is packed for it alone.
  async function unpackCase({ data, model, case: shown }, from = document) {
    const id = `data-${data.models.indexOf(model)}-${model.cases.indexOf(shown)}`;
    if (from.getElementById(id)) Object.assign(shown, JSON.parse(await unpack(id, from)));
  }

  async function start() {
    const theme = inStorage((storage) => storage.getItem(THEME_KEY));
    if (theme) page.dataset.theme = theme;
    showThemeButton();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    if (!("DecompressionStream" in window)) {
      return fail("This browser is too old to unpack the charts and the layers: any of 2023 can.");
    }
    try {
      view.data = JSON.parse(await unpack("data"));
    } catch (error) {
      return cannotUnpack(error);
    }
    // A test run without a finished case has no model: the overview above says everything.
    if (view.data.models.length) show();
    else page.dataset.state = "ready";
    return undefined;
  }

  function cannotUnpack(error) {
    console.error(error);
    fail("The charts and the layers could not be unpacked: the file may be cut short.");
  }

  function show() {
    readChoices();
    takeChoices();
    document.querySelector("section.interactive").before(
      el("p", { class: "print-note", id: "shown" }), el("p", { class: "hint", id: "absent" }));
    showPickers();
    page.classList.add("unpacked");
    announce("casechange");
    addEventListener("hashchange", () => {
      readChoices();
      change({});
    });
    addEventListener("beforeprint", () => printing(true));
    addEventListener("afterprint", () => printing(false));
    if (modelperf.pairs && view.case) listenForFiles();
    drawAll();
  }

  function fail(text) {
    document.getElementById("status").textContent = text;
    page.dataset.state = "failed";
  }

  const isPrinting = () => page.classList.contains("printing");

  // On paper everything is light, as wide as a page, and already open.
  function printing(isOn) {
    page.classList.toggle("printing", isOn);
    for (const details of document.querySelectorAll("details")) {
      if (isOn && !details.open) details.dataset.closed = "";
      if (isOn) details.open = true;
      else if ("closed" in details.dataset) {
        details.open = false;
        delete details.dataset.closed;
      }
    }
    redraw();
    if (isUnpacked) for (const item of waiting) drawSection(item, "draw");
    if (isOn) announce("paper");
  }

  addEventListener("DOMContentLoaded", start);

  return {
    section, drawSections, hide, el, svg, onKeys, searchBox, picker, refill, tickBox, toggle,
    chosen, choose, change, chooseCase, caseOf, colors, colorOf, isPrinting, unpack, cannotUnpack,
    UNKNOWN,
  };
})();
