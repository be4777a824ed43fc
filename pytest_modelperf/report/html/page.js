"use strict";

// The core of a report page: unpacks what is embedded in it, keeps what was chosen, and has the
// sections draw themselves. After it come the charts, which are sections like those of layers.js.
//
// Of the page it needs: <script type="application/gzip"> with the ids "plotly" and "data", a
// <div id="controls"> for the pickers, a <p id="status"> for what goes wrong, and for each part a
// <section id="..." class="interactive"> with a heading and a <div class="body">.
const modelperf = (() => {
  const UNKNOWN = "–";
  const COLORS = ["a", "b", "text", "muted", "grid", "background", "good", "bad"];
  const THEME_KEY = "modelperf-theme";
  const page = document.documentElement;
  const sections = [];
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
    // 999,999 is 1 M, not 1000 k: the bound lies where four digits would round up.
    const prefix = prefixes.find(([factor]) => Math.abs(value) >= Math.max(1000, factor * 0.99995));
    if (prefix) return `${number(value / prefix[0])} ${prefix[1]}`;
    return Number.isInteger(value) ? String(value) : number(value);
  }

  // Of a change: 0.031 is +3.1 %.
  function percent(value) {
    if (!isKnown(value)) return UNKNOWN;
    if (value === 0) return "0 %";
    if (Math.abs(value) < 0.0005) return "<0.1 %";
    return `${value > 0 ? "+" : "−"}${Math.abs(100 * value).toFixed(1)} %`;
  }

  // Both ends, and their unit once where it is the same: 6.701 … 6.722, +3.1 … +4.0 %.
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

  // What was chosen stands in the address after #: it survives a reload and can be sent on.
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
      // A page inside another one may not be allowed to: then it holds until the page is closed.
    }
  }

  function readChoices() {
    choices = new URLSearchParams(location.hash.slice(1));
  }

  function takeChoices() {
    const models = view.data.models;
    view.model = models[Number(chosen("model") ?? 0)] ?? models[0];
    view.sides = view.model.sides;
    const cases = view.model.cases;
    view.case = cases.find(({ id }) => id === chosen("case")) ?? cases[0] ?? null;
  }

  function showPickers() {
    const pickers = [];
    if (view.data.models.length > 1) {
      const models = view.data.models.map(({ name }, index) => [String(index), name]);
      const forget = { case: null, a: null, b: null, threshold: null };
      pickers.push(picker("Model", models, String(view.data.models.indexOf(view.model)),
        (model) => change({ ...forget, model })));
    }
    if (view.model.cases.length > 1) {
      const cases = view.model.cases.map((item) => [item.id, caseTitle(item)]);
      pickers.push(picker("Case", cases, view.case.id, (id) => change({ case: id })));
    }
    refill(document.querySelector("#controls .pickers"), pickers);
  }

  // New pickers in the place of the old: who was at the second of them is at it still.
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
    drawAll("draw");
  }

  // A labelled list to choose from; `options` are pairs of value and text.
  function picker(label, options, value, onChange) {
    const select = el("select", { on: { change: () => onChange(select.value) } },
      ...options.map(([key, text]) => el("option", { value: key, text })));
    select.value = value;
    return el("label", { class: "picker" }, `${label} `, select);
  }

  // Buttons of which one is pressed; `options` are pairs of value and text.
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

  // `draw` is called once all is unpacked and whenever model or case is changed; `redraw`, or
  // `draw` where there is none, when only the colours or the width of the page are others.
  function section(id, drawing) {
    sections.push({ id, ...drawing });
  }

  function drawAll(kind) {
    for (const item of sections) drawSection(item, kind);
  }

  // For a part that changes what others show.
  function drawSections(ids) {
    for (const item of sections) if (ids.includes(item.id)) drawSection(item, "draw");
  }

  function drawSection(item, kind) {
    const root = document.querySelector(`#${item.id} > .body`);
    if (!root) return;
    if (kind === "draw") root.parentElement.hidden = false;
    try {
      (item[kind] ?? item.draw)(root, view);
    } catch (error) {
      // One part that fails takes no other with it.
      console.error(error);
      say(root, "This part could not be drawn.");
    }
  }

  // Says in a line why there is nothing else.
  function say(root, text) {
    root.replaceChildren(el("p", { class: "muted", text }));
  }

  // A part with nothing to show can also go, with its heading.
  function hide(root) {
    root.replaceChildren();
    root.parentElement.hidden = true;
  }

  // As the style sheet has them in the present theme: rgb(...).
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
    if (view.model) drawAll("redraw");
  }

  // Storage can be forbidden for a file.
  function keep(key, value) {
    try {
      sessionStorage.setItem(key, value);
    } catch {
      // Then it is kept until the page is closed.
    }
  }

  function kept(key) {
    try {
      return sessionStorage.getItem(key);
    } catch {
      return null;
    }
  }

  // Plotly's own way of following the width comes too late for paper.
  const widths = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const width = target.clientWidth;
      if (width && target.layout && target.layout.width !== width) {
        Plotly.relayout(target, { width });
      }
    }
  });

  // Draws a chart, or changes it, in the colours of the theme and as wide as its place.
  function plot(div, traces, layout = {}, config = {}) {
    const isTouched = matchMedia("(pointer: coarse)").matches;
    widths.observe(div);
    return Plotly.react(div, traces, { width: div.clientWidth, ...themed(layout, isTouched) }, {
      displaylogo: false,
      // A page sends nothing anywhere: without these there is a button that would.
      showSendToCloud: false,
      plotlyServerURL: "",
      displayModeBar: isTouched ? false : "hover",
      modeBarButtonsToRemove: ["lasso2d", "select2d"],
      ...config,
    });
  }

  function themed(layout, isTouched) {
    const { text, muted, grid, background } = colors();
    const axis = {
      gridcolor: grid, linecolor: grid, zerolinecolor: grid, automargin: true,
      tickfont: { color: muted }, title: { font: { color: muted } },
    };
    const axes = Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key));
    return {
      height: 360,
      margin: { l: 56, r: 16, t: 32, b: 48 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: text },
      hoverlabel: {
        bgcolor: background, bordercolor: muted, align: "left", font: { color: text, size: 13 },
      },
      legend: { orientation: "h", x: 0, y: 1, xanchor: "left", yanchor: "bottom" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: text },
      // A finger that moves over a chart means to scroll the page.
      dragmode: isTouched ? false : "zoom",
      ...layout,
      ...Object.fromEntries(
        ["xaxis", "yaxis", ...axes].map((key) => [key, withAxis(axis, layout[key])])),
    };
  }

  function withAxis(defaults, axis = {}) {
    const title = typeof axis.title === "string" ? { text: axis.title } : axis.title;
    return { ...defaults, ...axis, title: { ...defaults.title, ...title } };
  }

  // The texts of a chart are markup to Plotly: this is the text that shows as `text`.
  function chartText(text) {
    return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  async function unpack(id) {
    const packed = document.getElementById(id).textContent;
    const bytes = Uint8Array.from(atob(packed.trim()), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  async function start() {
    if (kept(THEME_KEY)) page.dataset.theme = kept(THEME_KEY);
    showThemeButton();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    if (!("DecompressionStream" in window)) {
      return fail("This browser is too old to unpack the charts and the layers: any of 2023 can.");
    }
    try {
      const [library, data] = await Promise.all([unpack("plotly"), unpack("data")]);
      document.head.append(el("script", { text: library }));
      view.data = JSON.parse(data);
    } catch (error) {
      console.error(error);
      return fail("The charts and the layers could not be unpacked: the file may be cut short.");
    }
    // A test run in which no case came to its end has no model: all that is known stands above.
    if (view.data.models.length) show();
    page.dataset.state = "ready";
  }

  function show() {
    readChoices();
    takeChoices();
    showPickers();
    page.classList.add("unpacked");
    drawAll("draw");
    addEventListener("hashchange", () => {
      readChoices();
      change({});
    });
    addEventListener("beforeprint", () => printing(true));
    addEventListener("afterprint", () => printing(false));
  }

  function fail(text) {
    document.getElementById("status").textContent = text;
    page.dataset.state = "failed";
  }

  // Paper is light, as wide as a page, and nothing can be opened on it.
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
    drawAll("redraw");
  }

  addEventListener("DOMContentLoaded", start);

  return {
    section, drawSections, say, hide, el, picker, refill, toggle, chosen, choose, plot, colors,
    chartText, isKnown,
    format: { ms: number, number, count, percent, interval },
  };
})();

// What the charts share: how a side looks, and texts that are built the same way everywhere.
modelperf.sides = (() => {
  const { chartText, colors, el, format } = modelperf;
  // Told apart without colour too.
  const SYMBOLS = ["circle", "diamond"];
  const DASHES = ["solid", "dot"];

  function title({ label, name }) {
    return label ? `${label}: ${name}` : name;
  }

  function look(index) {
    const { a, b } = colors();
    return { color: [a, b][index], symbol: SYMBOLS[index], dash: DASHES[index] };
  }

  // Asymmetric error bars; nothing where an interval is not known.
  function errorBars(values, intervals, color) {
    return {
      type: "data",
      symmetric: false,
      array: values.map((value, i) => (intervals[i] ? intervals[i][1] - value : undefined)),
      arrayminus: values.map((value, i) => (intervals[i] ? value - intervals[i][0] : undefined)),
      color,
      thickness: 1.2,
      width: 3,
    };
  }

  // `6.708 ms (6.701 … 6.722)`
  function figure(value, interval, unit) {
    const text = `${format.number(value)} ${unit}`;
    return interval ? `${text} (${format.interval(interval)})` : text;
  }

  // A name that fits beside an axis or in a legend.
  function short(text, length = 36) {
    const shown = text.length > length ? `${text.slice(0, length - 1)}…` : text;
    return chartText(shown);
  }

  function row(cells, isHead) {
    return el("tr", {}, cells.map((text, index) => {
      const options = { text, class: index > 0 ? "number" : "text" };
      if (isHead) return el("th", { ...options, scope: "col" });
      return index > 0 ? el("td", options) : el("th", { ...options, scope: "row" });
    }));
  }

  // In a box of its own: on a phone it scrolls, and not the page.
  function table(head, rows) {
    return el("div", { class: "scroll", tabindex: "0" }, el("table", {},
      el("thead", {}, row(head, true)), el("tbody", {}, rows.map((cells) => row(cells, false)))));
  }

  return { title, look, errorBars, figure, short, table };
})();

// The points of a sweep: which is best within a threshold, and which two are looked at.
modelperf.points = (() => {
  const { chosen, isKnown } = modelperf;

  function isMeasured(point) {
    return isKnown(point.ms) && isKnown(point.per_second);
  }

  // The threshold as it was typed, else that of the sweep; null where any latency will do.
  function threshold(model) {
    const typed = chosen("threshold");
    return typed === null ? model.threshold_ms : parseThreshold(typed);
  }

  // Milliseconds, null for nothing, NaN for what is no time.
  function parseThreshold(text) {
    const plain = text.trim();
    if (plain === "") return null;
    const isNumber = /^(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain);
    return isNumber && Number(plain) > 0 ? Number(plain) : NaN;
  }

  // The most items a second among the points whose latency is surely within the threshold: the
  // same rule, ties and doubts as in the report on the terminal.
  function findSweetSpot(points, limit) {
    const run = points.filter((point) => point.reason === null && isKnown(point.per_second));
    const within = run.filter((point) => isWithin(point, limit));
    const undecided = run.filter((point) => !within.includes(point) && mayBeWithin(point, limit));
    const best = fastest(within);
    const equals = within.filter((point) => point !== best && overlap(point, best));
    return { best, equals, undecided };
  }

  function isWithin(point, limit) {
    return limit === null || (point.interval_ms !== null && point.interval_ms[1] <= limit);
  }

  function mayBeWithin(point, limit) {
    const low = point.interval_ms === null ? fastestSample(point) : point.interval_ms[0];
    return isKnown(low) && low <= limit;
  }

  // Without an interval little is known of the median, but no sample is below this.
  function fastestSample({ ms, rounds }) {
    return rounds.length ? Math.min(...rounds.map(([lowest]) => lowest)) : ms;
  }

  function fastest(points) {
    return points.reduce(
      (best, point) => (best === null || point.per_second > best.per_second ? point : best), null);
  }

  // Whether both throughputs may be the same: also where one of them has no interval.
  function overlap(one, other) {
    const [a, b] = [one.per_second_interval, other.per_second_interval];
    return a === null || b === null || (a[0] <= b[1] && b[0] <= a[1]);
  }

  // A and B: as chosen; else B is the best of its side, and A the same configuration of its own
  // side. Of one side alone A is the first one measured, which is where a sweep starts.
  function pair(model) {
    const limit = threshold(model);
    const [first, last] = [0, -1].map((side) => model.points.at(side).filter(isMeasured));
    const b = find(last, chosen("b")) ?? best(last, limit);
    const like = model.points.length > 1 ? find(first, b?.id) : first.find((point) => point !== b);
    return { a: find(first, chosen("a")) ?? like ?? best(first, limit), b };
  }

  // The pair as the sides of a chart, with what `make` makes of each point.
  function sidesOfPair(model, make) {
    const both = pair(model);
    return ["a", "b"].flatMap((key, index) => (both[key] ? [{
      index, title: `${key.toUpperCase()}: ${both[key].id}`, ...make(both[key]),
    }] : []));
  }

  // The points of all else are its cases.
  function isSweep({ points, cases }) {
    const ids = new Set(cases.map(({ id }) => id));
    return points.flat().some(({ id }) => !ids.has(id));
  }

  function find(points, id) {
    return points.find((point) => point.id === id);
  }

  function best(points, limit) {
    return findSweetSpot(points, limit).best ?? fastest(points);
  }

  return { isMeasured, threshold, parseThreshold, findSweetSpot, pair, sidesOfPair, isSweep };
})();

// Latency against throughput: every configuration, the sweet spots, and the points A and B.
(() => {
  const { chartText, choose, colors, drawSections, el, format, picker, plot } = modelperf;
  const { errorBars, figure, look, short, table, title } = modelperf.sides;
  const { findSweetSpot, isMeasured, pair, parseThreshold, threshold } = modelperf.points;
  let isLogarithmic = false;
  let nextOfOne = "b";
  // Brings all but the threshold box, in which someone may be typing, up to date.
  let update = () => {};

  function draw(root, view) {
    const { model } = view;
    const points = model.points.flat();
    update = () => {};
    // One point alone is no chart.
    if (points.length < 2) return modelperf.hide(root);
    if (!points.some(isMeasured)) {
      return root.replaceChildren(
        el("p", { class: "muted", text: "No configuration could be measured." }), failures(model));
    }
    nextOfOne = "b";
    const chart = el("div", { class: "plot", role: "img", "aria-label":
      "Latency and throughput of every configuration; the same figures are in the table below." });
    const parts = {
      chart,
      choice: el("div", { class: "toolbar" }),
      spots: el("div", { class: "spots", "aria-live": "polite" }),
      pair: el("div"),
    };
    update = () => updateParts(parts, model);
    root.replaceChildren(
      el("div", { class: "toolbar" },
        thresholdBox(model), scaleBox()),
      chart, el("p", { class: "hint", text: hint(model) }), parts.spots, failures(model),
      el("h3", { text: "A and B" }), parts.choice, parts.pair, allPoints(model));
    update();
    chart.on("plotly_click", ({ points: [clicked] }) => {
      if (clicked.customdata) choosePoint(model, clicked.customdata);
    });
  }

  function pointsChanged() {
    update();
    drawSections(["time", "rounds"]);
  }

  function updateParts(parts, model) {
    const limit = threshold(model);
    const both = pair(model);
    drawChart(parts.chart, model, limit, both);
    const spots = model.points.map((points) => findSweetSpot(points, limit));
    parts.spots.replaceChildren(...spots.map((spot, side) =>
      el("p", { text: describeSpot(spot, model.sides[side], limit) })));
    modelperf.refill(parts.choice, [
      pointPicker("A", model.points[0], both.a), pointPicker("B", model.points.at(-1), both.b)]);
    parts.pair.replaceChildren(...pairTable(model, both));
  }

  function thresholdBox(model) {
    const wrong = el("span", { class: "wrong", id: "threshold-wrong", role: "alert" });
    const limit = threshold(model);
    const input = el("input", {
      type: "text", inputmode: "decimal", size: "8", placeholder: "none", autocomplete: "off",
      "aria-describedby": "threshold-wrong", value: limit === null ? "" : String(limit),
      on: { input: read },
    });
    function read() {
      const isWrong = Number.isNaN(parseThreshold(input.value));
      input.setAttribute("aria-invalid", String(isWrong));
      wrong.textContent = isWrong
        ? "That is no time in milliseconds: type a number such as 2.5, or nothing." : "";
      if (isWrong) return;
      choose({ threshold: input.value.trim() });
      pointsChanged();
    }
    return el("label", { class: "threshold" }, "Latency threshold ", input, " ms ", wrong);
  }

  function scaleBox() {
    const box = el("input", { type: "checkbox", on: { change: () => {
      isLogarithmic = box.checked;
      update();
    } } });
    box.checked = isLogarithmic;
    return el("label", {}, box, " Logarithmic scales");
  }

  function pointPicker(label, points, point) {
    const options = points.filter(isMeasured).map(({ id }) => [id, id]);
    if (!options.length) return "";
    return picker(label, options, point.id, (id) => {
      choose({ [label.toLowerCase()]: id });
      pointsChanged();
    });
  }

  // Of one side alone, clicks choose B and A in turn.
  function choosePoint(model, [side, id]) {
    const key = model.points.length > 1 ? ["a", "b"][side] : nextOfOne;
    nextOfOne = key === "b" ? "a" : "b";
    choose({ [key]: id });
    pointsChanged();
  }

  function hint(model) {
    const click = model.points.length > 1
      ? "Click a point to take it as the A or the B of its side."
      : "Click a point to take it as B, and the next one as A.";
    const what = variesInBatch(model.points.flat()) ? "batch size" : "streams";
    return `${click} A star is a sweet spot; lines join what differs in ${what} only.`;
  }

  function drawChart(chart, model, limit, both) {
    const sides = model.points.flatMap((points, side) => [
      lineTrace(points, side), pointTrace(points, side, model.sides[side])]);
    const spots = model.points.map((points, side) =>
      spotTrace(findSweetSpot(points, limit).best, side, model.sides[side]));
    const last = model.points.length - 1;
    const flags = [...flag(both.a, "A"), ...flag(both.b, "B")];
    const traces = [...sides, ...spots, endTrace(both.a, 0), endTrace(both.b, last)];
    // Two points that are clicked quickly are a double click to Plotly: it must change no scale.
    plot(chart, traces, layout(model, limit, flags), { doubleClick: "reset" });
  }

  function lineTrace(points, side) {
    const { color, dash } = look(side);
    const gap = { ms: null, per_second: null };
    const all = lines(points).flatMap((line) => [...line, gap]);
    return {
      type: "scatter", mode: "lines", x: all.map(({ ms }) => ms), y: all.map((p) => p.per_second),
      line: { color, dash, width: 1 }, opacity: 0.55, hoverinfo: "skip", showlegend: false,
    };
  }

  // Points that differ in one thing only, in its order.
  function lines(points) {
    const [along, across] = variesInBatch(points) ? ["batch", "streams"] : ["streams", "batch"];
    const groups = new Map();
    for (const point of points.filter(isMeasured)) {
      const key = JSON.stringify([point.cores, point[across], point.dims]);
      groups.set(key, [...(groups.get(key) ?? []), point]);
    }
    return [...groups.values()].map((line) => line.sort((one, other) => one[along] - other[along]));
  }

  function variesInBatch(points) {
    return new Set(points.map(({ batch }) => batch)).size > 1;
  }

  function pointTrace(points, side, facts) {
    const { color, symbol } = look(side);
    const shown = points.filter(isMeasured);
    const [x, y] = [shown.map(({ ms }) => ms), shown.map((point) => point.per_second)];
    return {
      type: "scatter", mode: "markers", name: short(title(facts)), x, y,
      error_x: errorBars(x, shown.map((point) => point.interval_ms), color),
      error_y: errorBars(y, shown.map((point) => point.per_second_interval), color),
      marker: { color, symbol, size: 9 },
      customdata: shown.map(({ id }) => [side, id]),
      text: shown.map((point) => tooltip(point, facts)),
      hovertemplate: "%{text}<extra></extra>",
    };
  }

  function tooltip(point, facts) {
    const what = `batch ${point.batch}, cores ${point.cores ?? "–"}, streams ${point.streams}`;
    return [
      title({ ...facts, name: point.id }),
      what,
      ...Object.entries(point.dims).map(([name, size]) => `${name} = ${size}`),
      `latency ${figure(point.ms, point.interval_ms, "ms")}`,
      `p95 ${figure(point.p95_ms, null, "ms")}`,
      figure(point.per_second, point.per_second_interval, "items/s"),
    ].map(chartText).join("<br>");
  }

  function spotTrace(best, side, facts) {
    const { color } = look(side);
    const shown = best !== null && isMeasured(best) ? [best] : [];
    return {
      type: "scatter", mode: "markers",
      name: facts.label ? `sweet spot of ${facts.label}` : "sweet spot",
      x: shown.map(({ ms }) => ms), y: shown.map((point) => point.per_second),
      marker: { color, symbol: "star", size: 19, line: { color: colors().background, width: 1.5 } },
      hoverinfo: "skip", showlegend: shown.length > 0,
    };
  }

  function endTrace(point, side) {
    const shown = point ? [point] : [];
    return {
      type: "scatter", mode: "markers", showlegend: false, hoverinfo: "skip",
      x: shown.map(({ ms }) => ms), y: shown.map((p) => p.per_second),
      marker: {
        color: colors().text, symbol: `${look(side).symbol}-open`, size: 22, line: { width: 1.5 },
      },
    };
  }

  // The letter beside its point, as a flag that other points do not hide.
  function flag(point, label) {
    if (!point) return [];
    const [x, y] = [point.ms, point.per_second].map((v) => (isLogarithmic ? Math.log10(v) : v));
    const shift = label === "A" ? -17 : 17;
    return [{
      x, y, xshift: shift, yshift: 17, showarrow: false, text: `<b>${label}</b>`, borderpad: 2,
      bgcolor: look(label === "A" ? 0 : 1).color, font: { color: colors().background, size: 12 },
    }];
  }

  function layout(model, limit, flags) {
    const points = model.points.flat().filter(isMeasured);
    const highest = Math.max(...points.map((point) => (point.interval_ms ?? [0, point.ms])[1]));
    // A threshold far beyond all points would press them together.
    const isShown = limit !== null && limit < 1.5 * highest;
    const x = axis(points.map((point) => point.ms), Math.max(highest, isShown ? limit : 0));
    const y = axis(points.map((point) => point.per_second),
      Math.max(...points.map((point) => (point.per_second_interval ?? [0, point.per_second])[1])));
    return {
      height: 460, hovermode: "closest",
      // What was zoomed stays when A, B or the threshold are others.
      uirevision: `${model.name} ${isLogarithmic}`,
      xaxis: { title: "p50 latency (ms)", ...x },
      yaxis: { title: "items a second", ...y },
      shapes: isShown ? beyond(limit, highest) : [],
      annotations: isShown ? [...flags, limitText(limit)] : flags,
    };
  }

  function axis(values, highest) {
    if (!isLogarithmic) return { range: [0, 1.08 * highest] };
    const range = [0.8 * Math.min(...values), 1.25 * highest];
    return { type: "log", range: range.map(Math.log10) };
  }

  // The region that the threshold rules out.
  function beyond(limit, highest) {
    const { muted } = colors();
    const across = { yref: "paper", y0: 0, y1: 1, layer: "below" };
    return [
      {
        type: "rect", ...across, x0: limit, x1: 100 * Math.max(limit, highest), fillcolor: muted,
        opacity: 0.13, line: { width: 0 },
      },
      {
        type: "line", ...across, x0: limit, x1: limit,
        line: { color: muted, width: 1.2, dash: "dash" },
      },
    ];
  }

  function limitText(limit) {
    return {
      x: isLogarithmic ? Math.log10(limit) : limit, y: 0, yref: "paper", yanchor: "bottom",
      xanchor: "left", showarrow: false, text: `beyond ${limit} ms`,
      font: { color: colors().muted, size: 12 },
    };
  }

  function describeSpot({ best, equals, undecided }, side, limit) {
    const within = limit === null ? "" : ` within ${limit} ms`;
    const name = side.label || "Sweet spot";
    const sentences = [best === null
      ? `${name}: no configuration is surely${within || " measured"}.`
      : `${name}: ${best.id} gives most items a second${within}: ` +
        `${figure(best.per_second, best.per_second_interval, "items/s")} at ` +
        `${figure(best.ms, best.interval_ms, "ms")}.`];
    if (equals.length) sentences.push(`It cannot be told from ${names(equals)}.`);
    if (undecided.length) sentences.push(`Within it or beyond: ${names(undecided)}.`);
    return sentences.join(" ");
  }

  function names(points) {
    return points.map(({ id }) => id).join(", ");
  }

  function failures(model) {
    const items = model.points.flatMap((points, side) => points
      .filter((point) => point.reason !== null)
      .map(({ id, reason }) => el("li", {
        text: `${title({ ...model.sides[side], name: id })}: ${reason}`,
      })));
    if (!items.length) return "";
    return el("div", { class: "failures" },
      el("p", { text: "Not measured:" }), el("ul", {}, items));
  }

  function pairTable(model, { a, b }) {
    if (!a || !b) {
      const text = "There is nothing to compare: one side has no configuration that was measured.";
      return [el("p", { class: "muted", text })];
    }
    const isPaired = model.points.length > 1 && a.id === b.id && a.id in model.changes;
    const change = isPaired ? model.changes[a.id] : {
      latency: [b.ms / a.ms, null, null], throughput: [b.per_second / a.per_second, null, null] };
    const p95 = a.p95_ms && b.p95_ms ? [b.p95_ms / a.p95_ms, null, null] : null;
    const rows = [
      pairRow("p50 latency (ms)", [a.ms, a.interval_ms], [b.ms, b.interval_ms], change.latency, -1),
      pairRow("p95 latency (ms)", [a.p95_ms, null], [b.p95_ms, null], p95, -1),
      pairRow("items a second", [a.per_second, a.per_second_interval],
        [b.per_second, b.per_second_interval], change.throughput, 1),
    ];
    const heads = [
      el("td"), pointHead("A", a, model.sides[0]), pointHead("B", b, model.sides.at(-1)),
      el("th", { scope: "col", colspan: "4", text: "B over A" }),
    ];
    const note = isPaired
      ? "Both were measured in turn: the ratio is that of the pairs, and may differ a little " +
        "from that of the figures."
      : "These two points were not measured as a pair: the ratio is that of the figures, " +
        "without an interval.";
    return [
      el("div", { class: "scroll", tabindex: "0" }, el("table", { class: "pair" },
        el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows))),
      el("p", { class: "hint", text: note }),
    ];
  }

  function pointHead(label, point, side) {
    const { id, batch, cores, streams } = point;
    const what = `batch ${batch}, cores ${cores ?? "–"}, streams ${streams}`;
    return el("th", { scope: "col", colspan: "2" },
      el("b", { class: `side-${label.toLowerCase()}`, text: `${label} ` }), el("b", { text: id }),
      el("br"), side.name, el("br"), what);
  }

  // A figure of A, that of B, and their ratio, each with its interval in a column of its own.
  function pairRow(name, ofA, ofB, change, better) {
    const [value, low, high] = change ?? [null, null, null];
    const bounds = low === null || high === null ? null : [low, high];
    const shares = bounds && bounds.map((bound) => bound - 1);
    const tone = toneOf(bounds, better);
    return el("tr", {}, el("th", { scope: "row", text: name }),
      [ofA, ofB].flatMap(([figure, interval]) => [
        cell(format.number(figure)), cell(interval && format.interval(interval), "bounds")]),
      cell(format.number(value), tone), cell(bounds && format.interval(bounds), "bounds"),
      cell(format.percent(value === null ? null : value - 1), tone),
      cell(shares && format.interval(shares, format.percent), "bounds"));
  }

  function cell(text, kind = "") {
    return el("td", { class: `number ${kind}`, text: text ?? "" });
  }

  // Good or bad only where the interval leaves no doubt; `better` is 1 where more is better.
  function toneOf(bounds, better) {
    if (bounds === null || (bounds[0] <= 1 && bounds[1] >= 1)) return "";
    return Math.sign(bounds[0] - 1) === better ? "good" : "bad";
  }

  // All that the chart shows, for who cannot see it or wants the figures.
  function allPoints(model) {
    const hasDims = model.points.flat().some(({ dims }) => Object.keys(dims).length);
    const head = ["configuration", ...(hasDims ? ["dimensions"] : []), "batch", "cores", "streams",
      "p50 (ms)", "interval", "p95 (ms)", "items/s", "interval"];
    const tables = model.points.map((points, side) => [
      el("h4", { text: title(model.sides[side]) }),
      table(head, points.map((point) => [
        point.id,
        ...(hasDims ? [Object.entries(point.dims).map((dim) => dim.join("=")).join(", ")] : []),
        String(point.batch), String(point.cores ?? "–"), String(point.streams),
        format.ms(point.ms), format.interval(point.interval_ms), format.ms(point.p95_ms),
        format.number(point.per_second), format.interval(point.per_second_interval),
      ])),
    ]);
    return el("details", {}, el("summary", { text: "All points as a table" }), tables.flat());
  }

  modelperf.section("chart", { draw, redraw: () => update() });
})();

// Inference time: percentiles of the latency, or throughput, as bars with their intervals.
(() => {
  const { el, format, hide, isKnown, plot, say, toggle } = modelperf;
  const { errorBars, figure, look, short, title } = modelperf.sides;
  const { isSweep, sidesOfPair } = modelperf.points;
  const KINDS = [["latency", "Latency"], ["throughput", "Throughput"]];
  let kind = "latency";

  function draw(root, view) {
    const groups = { latency: latencyBars(view), throughput: throughputBars(view) };
    const bars = Object.values(groups).flat().flatMap((group) => group.bars);
    if (!bars.some(({ value }) => isKnown(value))) {
      return view.case ? say(root, "Nothing was measured.") : hide(root);
    }
    const chart = el("div", { class: "plot", role: "img" });
    const note = el("p", { class: "hint" });
    const update = () => {
      chart.setAttribute("aria-label", describe(groups[kind]));
      drawBars(chart, groups[kind]);
      note.textContent = kind === "latency" ? unsupported(view, groups.latency) : ORIGIN;
    };
    root.replaceChildren(
      el("div", { class: "toolbar" }, toggle("What the bars show", KINDS, kind, (pressed) => {
        kind = pressed;
        update();
      })), chart, note);
    update();
  }

  const ORIGIN = "Items a second are those of a batch over the median latency, with its interval.";

  // A group of bars is a side; a bar has the text of its place on the axis.
  function latencyBars(view) {
    if (isSweep(view.model)) {
      return sidesOfPair(view.model, (point) => ({ unit: "ms", bars: pointLatencies(point) }));
    }
    return view.sides.map((side, index) => ({
      index, title: title(side), unit: "ms",
      bars: (view.case?.latency[index]?.percentiles ?? []).map(({ name, ms, low, high }) => ({
        place: name, value: ms, bounds: isKnown(low) && isKnown(high) ? [low, high] : null,
      })),
    }));
  }

  function throughputBars(view) {
    if (isSweep(view.model)) {
      const unit = "items/s";
      return sidesOfPair(view.model, (point) => ({ unit, bars: pointThroughput(point) }));
    }
    return view.sides.map((side, index) => ({
      index, title: title(side), unit: "items/s",
      bars: view.model.cases.map((item) => ({ place: item.name, ...throughput(item, index) })),
    }));
  }

  function throughput({ batch, latency }, index) {
    const value = latency[index]?.items_per_second ?? null;
    const median = latency[index]?.percentiles.find(({ name }) => name === "p50");
    if (!isKnown(value) || !isKnown(median?.low)) return { value, bounds: null };
    return { value, bounds: [median.high, median.low].map((ms) => (value * median.ms) / ms) };
  }

  function pointLatencies(point) {
    return [
      { place: "p50", value: point.ms, bounds: point.interval_ms },
      { place: "p95", value: point.p95_ms, bounds: null },
    ];
  }

  function pointThroughput(point) {
    return [{ place: "throughput", value: point.per_second, bounds: point.per_second_interval }];
  }

  // What is not known has no bar, and no place where no side knows it.
  function drawBars(chart, groups) {
    const places = [...new Set(groups.flatMap(({ bars }) =>
      bars.filter(({ value }) => isKnown(value)).map(({ place }) => place)))];
    const { background } = modelperf.colors();
    const stripes = { size: 6, solidity: 0.2, fillmode: "overlay", fgcolor: background };
    const traces = groups.map(({ index, title: name, unit, bars }) => {
      const { color } = look(index);
      // As in the charts of the layers: of two sides, A has stripes.
      const isHatched = index === 0 && groups.length > 1;
      const shown = bars.filter(({ value }) => isKnown(value));
      const values = shown.map(({ value }) => value);
      return {
        type: "bar", name: short(name), y: values,
        x: shown.map(({ place }) => places.indexOf(place)),
        error_y: errorBars(values, shown.map(({ bounds }) => bounds), modelperf.colors().text),
        marker: { color, pattern: { shape: isHatched ? "/" : "", ...stripes } },
        text: shown.map(({ place, value, bounds }) =>
          short(`${place}: ${figure(value, bounds, unit)}`, 99)),
        textposition: "none", hovertemplate: "%{text}<extra></extra>",
      };
    });
    plot(chart, traces, {
      bargap: 0.35, bargroupgap: 0.06, showlegend: true, margin: { l: 56, r: 16, t: 32, b: 30 },
      xaxis: { tickvals: places.map((_, i) => i), ticktext: places.map((place) => short(place)),
        range: [-0.6, places.length - 0.4], fixedrange: true, showgrid: false, zeroline: false },
      yaxis: {
        title: groups[0].unit === "ms" ? "latency (ms)" : "items a second", rangemode: "tozero",
      },
    });
  }

  function describe(groups) {
    return groups.map(({ title: name, unit, bars }) => `${name}: ` + bars
      .map(({ place, value }) => `${place} ${format.number(value)} ${unit}`).join(", ")).join("; ");
  }

  function unsupported(view, groups) {
    const sentences = groups.flatMap(({ index, title: name, bars }) => {
      const missing = bars.filter(({ value }) => !isKnown(value)).map(({ place }) => place);
      const samples = isSweep(view.model) ? undefined : view.case?.latency[index]?.samples;
      if (!missing.length) return [];
      const verb = missing.length > 1 ? "need" : "needs";
      return [samples === undefined
        ? `${name}: ${missing.join(", ")} not measured.`
        : `${name}: ${missing.join(", ")} ${verb} more than the ${samples} samples there are.`];
    });
    return sentences.join(" ");
  }

  modelperf.section("time", { draw });
})();

// Samples by round: how the times of each round spread, so that a drift or a bad round shows.
(() => {
  const { el, format, hide, plot, say } = modelperf;
  const { look, short, title } = modelperf.sides;
  const { isSweep, sidesOfPair } = modelperf.points;
  const LEGEND = "A box is from the first to the third quartile, with the median; its whiskers " +
    "are the 5th and the 95th percentile.";
  let hasExtremes = true;

  function draw(root, view) {
    const sides = roundsOf(view);
    if (!sides.some(({ rounds }) => rounds.length)) {
      return view.case ? say(root, "There are no samples by round.") : hide(root);
    }
    const chart = el("div", { class: "plot", role: "img", "aria-label": describe(sides) });
    const box = el("input", { type: "checkbox", on: { change: () => {
      hasExtremes = box.checked;
      update();
    } } });
    box.checked = hasExtremes;
    const update = () => drawRounds(chart, sides);
    root.replaceChildren(
      el("div", { class: "toolbar" }, el("label", {}, box, " Fastest and slowest of each round")),
      chart, el("p", { class: "hint", text: `${LEGEND} ${describe(sides)}` }));
    update();
  }

  // Of the chosen case, or of the points A and B of a sweep.
  function roundsOf(view) {
    if (isSweep(view.model)) return sidesOfPair(view.model, ({ rounds }) => ({ rounds }));
    return view.sides.map((side, index) => ({
      index, title: title(side), rounds: view.case?.rounds[index] ?? [],
    }));
  }

  function describe(sides) {
    return sides.filter(({ rounds }) => rounds.length).map(({ title: name, rounds }) => {
      const medians = rounds.map(([, , , median]) => median);
      const ends = [Math.min(...medians), Math.max(...medians)];
      return `${name}: ${rounds.length} rounds with medians of ${format.interval(ends)} ms.`;
    }).join(" ");
  }

  function drawRounds(chart, sides) {
    const extremes = hasExtremes ? sides.map(extremeTrace) : [];
    plot(chart, [...sides.map(boxTrace), ...extremes], {
      boxmode: "group", scattermode: "group", boxgap: 0.35, boxgroupgap: 0.25, scattergap: 0.35,
      hovermode: "closest", showlegend: true,
      xaxis: { title: "round", type: "category", fixedrange: true, showgrid: false },
      yaxis: { title: "latency (ms)", zeroline: false, range: rangeOf(sides) },
    });
  }

  // From the fastest to the slowest that is shown, not from 0: it is the spread that matters here.
  function rangeOf(sides) {
    const [low, high] = hasExtremes ? [0, -1] : [1, -2];
    const rounds = sides.flatMap((side) => side.rounds);
    const [from, to] = [
      Math.min(...rounds.map((round) => round.at(low))),
      Math.max(...rounds.map((round) => round.at(high))),
    ];
    const pad = 0.06 * (to - from) || 0.05 * to;
    return [Math.max(0, from - pad), to + pad];
  }

  function boxTrace({ index, title: name, rounds }) {
    const { color, dash } = look(index);
    const column = (place) => rounds.map((round) => round[place]);
    return {
      type: "box", name: short(name), x: numbers(rounds), offsetgroup: String(index),
      lowerfence: column(1), q1: column(2), median: column(3), q3: column(4), upperfence: column(5),
      line: { color, width: 1.5, dash }, whiskerwidth: 0.5, hoverinfo: "y",
    };
  }

  function extremeTrace({ index, title: name, rounds }) {
    const { color, symbol } = look(index);
    return {
      type: "scatter", mode: "markers", name: `${short(name)}, fastest and slowest`,
      x: [...numbers(rounds), ...numbers(rounds)],
      y: [...rounds.map((round) => round[0]), ...rounds.map((round) => round.at(-1))],
      offsetgroup: String(index), showlegend: false,
      marker: { color, symbol: `${symbol}-open`, size: 5 }, opacity: 1,
      hovertemplate: "round %{x}: %{y:.4g} ms<extra></extra>",
    };
  }

  function numbers(rounds) {
    return rounds.map((_, index) => String(index + 1));
  }

  modelperf.section("rounds", { draw });
})();
