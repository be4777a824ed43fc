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
  const THEME_KEY = "modelperf-theme";
  const page = document.documentElement;
  const sections = [];
  // The parts that are still to be drawn for what is chosen.
  let waiting = new Set();
  // Whether everything that these parts need is unpacked.
  let isUnpacked = false;
  // Why parts are not there, where a reader would miss them.
  const absent = new Map();
  // What is chosen of a model, and means nothing to another one.
  const OF_MODEL = { case: null, a: null, b: null, threshold: null, without: null };
  let choices = new URLSearchParams();
  const view = { data: null, model: null, case: null, sides: [] };

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

  // Numbers read as on the terminal: four digits, however large or small: 6.708, 61.31, 1204.
  function number(value) {
    if (!isKnown(value)) return UNKNOWN;
    const rounded = Math.abs(Number(value.toPrecision(4)));
    const decimals = rounded ? Math.max(0, 3 - Math.floor(Math.log10(rounded))) : 0;
    return value.toFixed(Math.min(6, decimals));
  }

  function count(value) {
    if (!isKnown(value)) return UNKNOWN;
    const prefixes = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
    // 999,999 is 1 M, not 1000 k: from this bound on, four digits would round up.
    const prefix = prefixes.find(([factor]) => Math.abs(value) >= Math.max(1000, factor * 0.99995));
    if (prefix) return `${number(value / prefix[0])} ${prefix[1]}`;
    return Number.isInteger(value) ? String(value) : number(value);
  }

  // A change in percent: 0.031 is +3.1 %.
  function percent(value) {
    if (!isKnown(value)) return UNKNOWN;
    if (value === 0) return "0 %";
    if (Math.abs(value) < 0.0005) return "<0.1 %";
    return `${value > 0 ? "+" : "−"}${Math.abs(100 * value).toFixed(1)} %`;
  }

  // Both ends of an interval, with their unit once if it is the same: 6.701 … 6.722, +3.1 … +4.0 %.
  function interval(bounds, format = number) {
    if (!bounds || !bounds.every(isKnown)) return UNKNOWN;
    const [low, high] = bounds.map((bound) => format(bound));
    const gap = low.lastIndexOf(" ");
    const isSameUnit = gap > 0 && high.endsWith(low.slice(gap));
    return `${isSameUnit ? low.slice(0, gap) : low} … ${high}`;
  }

  function isKnown(value) {
    return typeof value === "number" && Number.isFinite(value);
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

  // Chooses a case by its place in the data, for the whole page. A follows where there are two sides.
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
    tell("casechange");
    drawAll();
  }

  // For what follows the choices without being a part that is drawn.
  function tell(event) {
    page.dispatchEvent(new CustomEvent(event, { detail: view }));
  }

  // A labelled list to choose from; `options` are pairs of value and text.
  function picker(label, options, value, onChange) {
    const select = el("select", { on: { change: () => onChange(select.value) } },
      ...options.map(([key, text]) => el("option", { value: key, text })));
    select.value = value;
    return el("label", { class: "picker" }, `${label} `, select);
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
    } catch (error) {
      return parts === waiting ? cannotUnpack(error) : undefined;
    }
    if (parts !== waiting) return undefined;
    isUnpacked = true;
    for (const item of parts) {
      drawSection(item, "draw");
      await otherTasks();
      if (parts !== waiting) return undefined;
    }
    finish();
    page.dataset.state ??= "ready";
    return undefined;
  }

  // Unlike a timer, a message is not held back where the page is in the background.
  function otherTasks() {
    return new Promise((done) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        port1.close();
        done();
      };
      port2.postMessage(null);
    });
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
    const isNew = view.sides.length > 1 && view.case?.word === "new";
    document.getElementById("absent").textContent = [
      ...(isNew ? ["This case is new, so nothing is known of A, before."] : []),
      ...[...absent].map(([part, why]) => `${part.querySelector("h2").textContent}: ${why}.`),
    ].join(" ");
    tell("drawn");
  }

  function drawSection(item, kind) {
    waiting.delete(item);
    const root = document.querySelector(`#${item.id} > .body`);
    if (!root) return;
    absent.delete(root.parentElement);
    if (kind === "draw") root.parentElement.hidden = false;
    try {
      (item[kind] ?? item.draw)(root, view);
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

  // The colours of the present theme, as rgb(...).
  function colors() {
    const probe = el("span");
    document.body.append(probe);
    const found = {};
    for (const name of COLORS) {
      probe.style.color = `var(--${name})`;
      found[name] = getComputedStyle(probe).color;
    }
    probe.remove();
    return found;
  }

  function isDark() {
    const { theme } = page.dataset;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function showThemeButton() {
    const button = el("button", { type: "button", class: "theme", on: { click: () => {
      setTheme(isDark() ? "light" : "dark");
      keep(THEME_KEY, page.dataset.theme);
    } } });
    const name = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.title = `Show the page in ${isDark() ? "light" : "dark"} colours`;
    };
    page.addEventListener("themechange", name);
    name();
    document.getElementById("controls").append(el("div", { class: "pickers" }), button);
  }

  function setTheme(theme) {
    page.dataset.theme = theme;
    repaint();
  }

  function repaint() {
    page.dispatchEvent(new Event("themechange"));
    if (view.model) redraw();
  }

  // A browser may forbid storage for a file.
  function keep(key, value) {
    try {
      sessionStorage.setItem(key, value);
    } catch {
      // Then the theme lasts until the page is closed.
    }
  }

  function kept(key) {
    try {
      return sessionStorage.getItem(key);
    } catch {
      return null;
    }
  }

  async function unpack(id) {
    const packed = document.getElementById(id).textContent;
    const text = atob(packed.trim());
    const bytes = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  // Adds to the chosen case what is packed for it alone.
  async function unpackCase({ data, model, case: shown }) {
    const id = `data-${data.models.indexOf(model)}-${model.cases.indexOf(shown)}`;
    if (document.getElementById(id)) Object.assign(shown, JSON.parse(await unpack(id)));
  }

  async function start() {
    if (kept(THEME_KEY)) page.dataset.theme = kept(THEME_KEY);
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
    tell("casechange");
    addEventListener("hashchange", () => {
      readChoices();
      change({});
    });
    addEventListener("beforeprint", () => printing(true));
    addEventListener("afterprint", () => printing(false));
    drawAll();
  }

  function fail(text) {
    document.getElementById("status").textContent = text;
    page.dataset.state = "failed";
  }

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
    if (isOn) tell("paper");
  }

  addEventListener("DOMContentLoaded", start);

  return {
    section, drawSections, say, hide, el, picker, refill, toggle, chosen, choose, chooseCase, caseOf,
    colors, isKnown, unpack, cannotUnpack, UNKNOWN,
    format: { ms: number, number, count, percent, interval },
  };
})();
