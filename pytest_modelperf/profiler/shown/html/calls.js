// The calls of a program on both sides as one icicle. Widths show times, and colours show how much
// longer or shorter a call takes now.
(() => {
  "use strict";

  const { choose, chosen, el, format, toggle } = modelperf;
  const { changeText, decimalsFor, isKnown, msText, shareText, timeText } = modelperf.figures;
  const { icicle, made } = modelperf.icicle;

  const SIDES = [["now", "time now"], ["before", "time before"]];
  const OF_SIDE = { before: 0, now: 1 };
  const MOST_NAMED = 5;
  // A share of the largest change: a call that changed by less has no arrow.
  const CLEAR = 0.1;
  const SMALL = /^\d+ others$/;
  const NOTE = "The profiler slows small functions down more than large ones, so these times show where "
    + "the change is, and the table of stages how large it is. A function includes what it calls. "
    + "Functions below 0.5 % of the call are drawn together.";

  const grownMs = ({ ms }) => (ms[1] ?? 0) - (ms[0] ?? 0);

  function kindOf(call) {
    if (!isKnown(call.ms[0])) return { id: "new" };
    if (!isKnown(call.ms[1])) return { id: "gone" };
    return { id: grownMs(call) < 0 ? "shorter" : "longer" };
  }

  // Each call with those that follow it one level deeper.
  function nested(calls) {
    const above = [];
    for (const call of calls) {
      const node = { call, inner: [] };
      above[call.level - 1]?.inner.push(node);
      above[call.level] = node;
    }
    return above[0];
  }

  function partOf({ call, inner }, side) {
    const there = inner.filter((node) => node.call.ms[side] > 0);
    const parts = there.map((node) => partOf(node, side));
    return made(call.place, call.ms[side], kindOf(call), parts, call);
  }

  function describeCalls([before, now]) {
    const both = [before, now].filter(isKnown);
    const text = [...new Set(both.map((calls) => format.count(calls)))].join(" → ");
    return `${text} ${text === "1" ? "call" : "calls"}`;
  }

  function describeTimes({ ms: [before, now] }, decimals) {
    if (!isKnown(before)) return `new, ${timeText(now, decimals)}`;
    if (!isKnown(now)) return `gone, ${timeText(before, decimals)} before`;
    const times = `${msText(before, decimals)} → ${timeText(now, decimals)}`;
    return `${times} (${changeText(now - before, decimals)})`;
  }

  function chartOf(whole, decimals, mostMs) {
    const describe = ({ title, value, item }) => {
      const times = item ? describeTimes(item, decimals) : timeText(value, decimals);
      const calls = item ? `, ${describeCalls(item.calls)}` : "";
      return `${title}: ${times}${calls}, ${shareText(whole.value ? value / whole.value : null)} of the call`;
    };
    const paint = (button, { item }) => {
      if (!item) return;
      const heat = Math.abs(grownMs(item)) / (mostMs || 1);
      button.style.setProperty("--heat", heat);
      button.classList.toggle("is-clear", heat >= CLEAR);
    };
    return icicle(whole, { label: "Functions by time.", wholeName: "whole call", describe, paint });
  }

  function legendOf(decimals, mostMs, side) {
    const mark = side === OF_SIDE.now ? "new" : "gone";
    return el("ul", { class: "legend calls-legend", "aria-label": "change of the time in ms" },
      el("li", {}, `▼ ${changeText(-mostMs, decimals)}`, el("span", { class: "calls-scale" }),
        `▲ ${changeText(mostMs, decimals)} ms`),
      el("li", {}, el("span", { class: `calls-mark kind-${mark}` }), mark));
  }

  // The outermost functions that one side alone has, by time.
  function lonely(node, id, side) {
    if (kindOf(node.call).id !== id) return node.inner.flatMap((inner) => lonely(inner, id, side));
    return SMALL.test(node.call.place) ? [] : [{ place: node.call.place, ms: node.call.ms[side] }];
  }

  function lonelyLine(title, found, decimals) {
    if (!found.length) return null;
    const named = found.sort((one, other) => other.ms - one.ms).slice(0, MOST_NAMED);
    const rest = found.length - named.length;
    const texts = named.map(({ place, ms }, at) =>
      [at ? ", " : "", el("bdi", { text: place }), ` (${timeText(ms, decimals)})`]);
    return el("p", { class: "calls-named" }, `${title}: `, ...texts.flat(), rest ? ` and ${rest} more` : "");
  }

  modelperf.charts.chartPart("calls", (view) => {
    const calls = view.case?.calls ?? [];
    if (!calls.length) return null;
    const tree = nested(calls);
    const mostMs = Math.max(...calls.map((call) => Math.abs(grownMs(call))));
    const decimals = decimalsFor(Math.max(...tree.call.ms.filter(isKnown)));
    const options = SIDES.filter(([id]) => tree.call.ms[OF_SIDE[id]] > 0);
    const toolbar = el("div", { class: "toolbar" });
    const body = el("div", { class: "calls" });
    const show = () => {
      const id = (options.find(([each]) => each === chosen("calls")) ?? options[0])[0];
      const side = OF_SIDE[id];
      const chart = chartOf(partOf(tree, side), decimals, mostMs);
      toolbar.replaceChildren(toggle("width is the time", options, id, (each) => {
        choose({ calls: each });
        show();
      }), chart.back);
      body.replaceChildren(...chart.parts, legendOf(decimals, mostMs, side));
    };
    show();
    const lines = [
      lonelyLine("New", lonely(tree, "new", OF_SIDE.now), decimals),
      lonelyLine("Gone", lonely(tree, "gone", OF_SIDE.before), decimals),
    ].filter(Boolean);
    return { parts: [toolbar, body, ...lines, el("p", { class: "hint", text: NOTE })] };
  });
})();
