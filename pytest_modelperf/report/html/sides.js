// The two sides of a page: their looks and labels, and texts that are built the same everywhere.
modelperf.sides = (() => {
  "use strict";

  const { colors, el, format } = modelperf;
  const { chartText } = modelperf.charts;
  // The two sides differ without colour too.
  const SYMBOLS = ["circle", "diamond"];
  const DASHES = ["solid", "dot"];

  function title({ label, name }) {
    return label ? `${label}: ${name}` : name;
  }

  function look(index) {
    const { a, b } = colors();
    return { color: [a, b][index], symbol: SYMBOLS[index], dash: DASHES[index] };
  }

  // Bars of a side have its colour, and stripes for readers without colours.
  function barMarker(index, isPair) {
    const stripes = { size: 6, solidity: 0.2, fillmode: "overlay", fgcolor: colors().background };
    const shape = isPair && index === 0 ? "/" : "";
    return { color: look(index).color, pattern: { shape, ...stripes } };
  }

  // Asymmetric error bars; none if an interval is unknown.
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

  // Where an axis ends that shows all values: with their error bars, as far as these leave at least
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

  // A name shortened to fit beside an axis or in a legend.
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

  // A box that scrolls on a phone instead of the page.
  function table(head, rows) {
    const made = el("table", {},
      el("thead", {}, row(head, true)), el("tbody", {}, rows.map((cells) => row(cells, false))));
    modelperf.look.alignFigures(made);
    return el("div", { class: "scroll", tabindex: "0" }, made);
  }

  const sideLabel = (view, side) => view.sides[side].label;
  const hasTwo = (view) => view.sides.length === 2;
  const sideIndexes = (view) => view.sides.map((_, side) => side);

  const sideTag = (view, side) =>
    el("span", { class: `side side-${side ? "b" : "a"}`, text: sideLabel(view, side) });

  return {
    title, look, barMarker, errorBars, axisEnd, figure, short, table,
    sideLabel, sideTag, sideIndexes, hasTwo,
  };
})();
