// The charts of Plotly, which takes a second to load and a moment for each chart: a chart is drawn
// when it comes near what is seen, and takes only its room until then. Charts share the looks of
// the two sides of a page, and the texts about these.
modelperf.charts = (() => {
  "use strict";

  const { cannotUnpack, colors, el, format, hide, unpack } = modelperf;
  const { sum } = modelperf.figures;
  const page = document.documentElement;
  const HEIGHT = 360;
  // How many pixels above and below what is seen.
  const NEAR = 400;
  // The two sides differ without colour too.
  const SYMBOLS = ["circle", "diamond"];
  const DASHES = ["solid", "dot"];
  // A longer name would leave no room for its bars.
  const LONGEST_LABEL = 18;
  // The functions that draw those charts that were never near.
  const unseen = new WeakMap();
  let library = null;

  const nearby = new IntersectionObserver((found) => {
    for (const { target, isIntersecting } of found) {
      if (isIntersecting) loadAndShow(target);
    }
  }, { rootMargin: `${NEAR}px 0px` });

  // Plotly itself follows the width too late for paper.
  const widths = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const width = target.clientWidth;
      if (width && target.layout && target.layout.width !== width) {
        Plotly.relayout(target, { width }).then(() => skipButtons(target));
      }
    }
  });

  // The buttons of a chart are for a mouse alone: Tab would stop at ten of them for each chart.
  function skipButtons(div) {
    for (const button of div.querySelectorAll(".modebar-btn")) button.tabIndex = -1;
  }

  // Draws or updates a chart in the colours of the theme and the width of its place, as soon as it is
  // near. `onClick` is called with the points of a click.
  function plot(div, traces, layout = {}, options = {}) {
    const draw = () => drawChart(div, traces, layout, options);
    if (div.layout) return draw();
    unseen.set(div, draw);
    div.style.minHeight = `${layout.height ?? HEIGHT}px`;
    // Until all parts are drawn, its place is not known. The event "drawn" comes then.
    if (page.dataset.state) watch(div);
    return undefined;
  }

  // The observer hears of a chart in the next frame, and a program that takes a picture of the page may
  // not wait for that. So the charts that are near already are drawn at once.
  function watch(div) {
    if (isNear(div)) loadAndShow(div);
    else nearby.observe(div);
  }

  function isNear(div) {
    const { top, bottom, height } = div.getBoundingClientRect();
    return height > 0 && bottom > -NEAR && top < innerHeight + NEAR;
  }

  function loadAndShow(div) {
    load().then(() => show(div));
  }

  function show(div) {
    const draw = unseen.get(div);
    if (!draw) return;
    unseen.delete(div);
    nearby.unobserve(div);
    div.style.minHeight = "";
    try {
      draw();
      widths.observe(div);
    } catch (error) {
      console.error(error);
      div.replaceChildren(el("p", { class: "muted", text: "This chart could not be drawn." }));
    }
  }

  // Draws the charts that were not scrolled to: paper has all of them.
  function showAll() {
    if (!window.Plotly) return;
    for (const div of document.querySelectorAll(".plot")) show(div);
  }

  function drawChart(div, traces, layout, { onClick, ...config }) {
    const isTouched = matchMedia("(pointer: coarse)").matches;
    Plotly.react(div, traces, { width: div.clientWidth, ...themed(layout, isTouched) }, {
      displaylogo: false,
      // A page sends nothing anywhere; without these options Plotly shows a button that would.
      showSendToCloud: false,
      plotlyServerURL: "",
      displayModeBar: isTouched ? false : "hover",
      modeBarButtonsToRemove: ["lasso2d", "select2d"],
      ...config,
    }).then(skipButtons);
    div.removeAllListeners("plotly_click");
    if (onClick) div.on("plotly_click", ({ points }) => onClick(points));
  }

  function themed(layout, isTouched) {
    const { text, muted, grid, background } = colors();
    const axis = {
      gridcolor: grid, linecolor: grid, zerolinecolor: grid, automargin: true,
      tickfont: { color: muted }, title: { font: { color: muted } },
    };
    const axes = Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key));
    return {
      height: HEIGHT,
      margin: { l: 56, r: 16, t: 32, b: 48 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: text },
      hoverlabel: {
        bgcolor: background, bordercolor: muted, align: "left", font: { color: text, size: 13 },
      },
      legend: {
        orientation: "h", x: 0, y: 1, xanchor: "left", yanchor: "bottom", traceorder: "normal",
      },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: text },
      // A finger that moves over a chart scrolls the page.
      dragmode: isTouched ? false : "zoom",
      ...layout,
      ...Object.fromEntries(
        ["xaxis", "yaxis", ...axes].map((key) => [key, withAxis(axis, layout[key])])),
    };
  }

  // Plotly writes `50%`, and all else has a space.
  const SHARES = Object.fromEntries([...Array(101).keys()].map((share) => [`${share}%`, `${share} %`]));

  function withAxis(defaults, axis = {}) {
    const title = typeof axis.title === "string" ? { text: axis.title } : axis.title;
    const labels = axis.tickformat === ".0%" ? { labelalias: SHARES } : {};
    return { ...defaults, ...axis, ...labels, title: { ...defaults.title, ...title } };
  }

  // A logarithmic axis. Plotly writes 2 for both 0.2 and 20; with few decades, each line gets its full
  // number.
  function logAxis([least, most]) {
    if (most / least > 1000) return { type: "log", dtick: 1, exponentformat: "power" };
    const first = Math.floor(Math.log10(least));
    const tickvals = [0, 1, 2, 3, 4]
      .flatMap((decade) => [1, 2, 5].map((digit) => Number(`${digit}e${first + decade}`)))
      .filter((value) => value >= least && value <= most);
    return { type: "log", tickvals, ticktext: tickvals.map(String) };
  }

  // Plotly reads the texts of a chart as markup: this returns markup that shows `text`.
  function chartText(text) {
    return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  // The place of a chart; its label describes it for readers who do not see it.
  const chartBox = (label = null) =>
    el("div", { class: "plot", role: label === null ? null : "figure", "aria-label": label });

  // A part whose chart is drawn again for other colours. `make` returns the elements of the part
  // and, if needed, the functions that `begin` what is shown and that `draw` it. If the part has
  // nothing to show, `make` returns null or a text that says why.
  function chartPart(id, make) {
    let repaint = () => {};
    modelperf.section(id, {
      draw(root, view) {
        repaint = () => {};
        const made = make(view);
        if (!made?.parts) return hide(root, made);
        root.replaceChildren(...made.parts);
        made.begin?.();
        repaint = made.draw ?? repaint;
        return repaint();
      },
      redraw: () => repaint(),
    });
  }

  // Lines of text as the tooltip of a point.
  const tooltip = (lines) => lines.map(chartText).join("<br>");

  // An axis of names, the first on top; those that are too long are cut.
  const nameAxis = (names, length = LONGEST_LABEL) => ({
    type: "category", autorange: "reversed", automargin: true, fixedrange: true,
    tickvals: names.map(chartText), ticktext: names.map((name) => short(name, length)),
  });

  // Bars for each of these names, the first on top, with their figures next to them. A series has
  // the lengths of its bars, their texts and their tooltips, and a marker.
  function drawBars(chart, names, series, { xaxis, ...layout }) {
    const traces = series.map(({ name, lengths, texts, tooltips, marker }) => ({
      type: "bar", orientation: "h", name: chartText(name), y: names.map(chartText), x: lengths,
      text: texts, textposition: "outside", textfont: { size: 11 }, cliponaxis: false,
      hoverinfo: "text", hovertext: tooltips, marker,
    }));
    plot(chart, traces, {
      barmode: "group", bargap: 0.27, margin: { l: 8, r: 8, t: 28, b: xaxis.title ? 44 : 32 },
      xaxis: { tickangle: 0, nticks: 5, fixedrange: true, ...xaxis },
      yaxis: nameAxis(names),
      showlegend: series.length > 1,
      ...layout,
    });
  }

  // -- sides

  function title({ label, name }) {
    return label ? `${label}: ${name}` : name;
  }

  function look(index) {
    const { a, b } = colors();
    return { color: [a, b][index], symbol: SYMBOLS[index], dash: DASHES[index] };
  }

  // Bars with stripes, for readers without colours; none without a shape.
  const striped = (color, shape, solidity = 0.2) => ({
    color,
    pattern: { shape, size: 6, solidity, fillmode: "overlay", fgcolor: colors().background },
  });

  const barMarker = (index, isPair) => striped(look(index).color, isPair && index === 0 ? "/" : "");

  // Asymmetric error bars; none if an interval is unknown.
  function errorBars(values, intervals, color) {
    return {
      type: "data", symmetric: false, color, thickness: 1.2, width: 3,
      array: values.map((value, i) => (intervals[i] ? intervals[i][1] - value : undefined)),
      arrayminus: values.map((value, i) => (intervals[i] ? value - intervals[i][0] : undefined)),
    };
  }

  // The end of an axis that shows all values, with their error bars as far as these leave at least
  // half of it to the values. A longer bar is cut, and its interval is in the text of its point.
  function axisEnd(values, intervals) {
    const highest = Math.max(...values);
    return Math.min(Math.max(highest, ...intervals.map((each) => each?.[1] ?? 0)), 2 * highest);
  }

  // `6.708 ms (6.701 … 6.722)`
  function figure(value, interval, unit) {
    const text = `${format.number(value)} ${unit}`;
    return interval ? `${text} (${format.interval(interval)})` : text;
  }

  // A name shortened to fit next to an axis or in a legend.
  function short(text, length = 36) {
    const shown = text.length > length ? `${text.slice(0, length - 1)}…` : text;
    return chartText(shown);
  }

  const sideLabel = (view, side) => view.sides[side].label;
  const hasTwo = (view) => view.sides.length === 2;
  const sideIndexes = (view) => view.sides.map((_, side) => side);
  const totalsOf = (view, rows, fact = "ms") =>
    sideIndexes(view).map((side) => sum(rows.map((row) => row[fact][side])));
  const sideClass = (side) => `side-${side ? "b" : "a"}`;

  const sideTag = (view, side) =>
    el("span", { class: `side ${sideClass(side)}`, text: sideLabel(view, side) });

  // -- the library

  // Loads Plotly once; a page that is cut short says so.
  function load() {
    library ??= loadLibrary().catch(cannotUnpack);
    return library;
  }

  // The browser compiles a file of its own while the page does other things.
  async function loadLibrary() {
    if (!document.getElementById("plotly")) return;
    const file = new Blob([await unpack("plotly")], { type: "text/javascript" });
    const src = URL.createObjectURL(file);
    await new Promise((onload, onerror) => {
      document.head.append(Object.assign(el("script"), { src, onload, onerror }));
    });
    URL.revokeObjectURL(src);
  }

  const whenIdle = window.requestIdleCallback ?? setTimeout;
  page.addEventListener("drawn", () => {
    for (const div of document.querySelectorAll(".plot")) if (unseen.has(div)) watch(div);
    // By the time that a reader has scrolled to a chart, the library is there.
    whenIdle(() => load());
  });
  page.addEventListener("paper", showAll);

  return {
    chartText, load, logAxis, plot, showAll, chartBox, chartPart, tooltip, drawBars, nameAxis,
    title, look, striped, barMarker, errorBars, axisEnd, figure, short,
    sideLabel, sideTag, sideClass, sideIndexes, totalsOf, hasTwo,
  };
})();
