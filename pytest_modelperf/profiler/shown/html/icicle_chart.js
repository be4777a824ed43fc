// A chart of parts inside of parts, each as wide as its value: pointers, keys and a button open one.
modelperf.icicle = (() => {
  "use strict";

  const { el, onKeys, searchBox } = modelperf;
  const { sum } = modelperf.figures;
  const { factList } = modelperf.tables;

  // A share of the width. Narrower parts could not be seen or chosen, and are drawn as one.
  const NARROWEST = 0.004;
  const OTHER = { id: "other" };
  // Few enough runs that each of them is wide enough to be chosen.
  const MOST_RUNS = 20;

  // A part with the parts that it consists of, the largest first; `item` is what it shows.
  function made(title, value, kind, parts = [], item = null) {
    return { title, value, kind, parts: parts.sort((one, other) => other.value - one.value), item };
  }

  const sumOf = (parts) => sum(parts.map(({ value }) => value));

  // Parts drawn as one. Choosing it shows these parts alone, or the part `shown`.
  function folded(title, kind, parts, shown = made(title, sumOf(parts), kind, parts)) {
    return { ...made(title, sumOf(parts), kind), shown };
  }

  // Parts that are too narrow, joined to runs that are not, each named by its first and last part.
  function inRuns(parts) {
    const length = Math.ceil(parts.length / MOST_RUNS);
    return Array.from({ length: Math.ceil(parts.length / length) }, (_, at) => {
      const run = parts.slice(at * length, (at + 1) * length);
      return folded(`${run[0].title} … ${run.at(-1).title}`, run[0].kind, run);
    });
  }

  // `label` describes the parts, `wholeName` names the part of all, and `describe` describes one.
  // `isOpened` may open a part elsewhere; it returns whether it did. `paint` may change a button.
  // `factsOf` has pairs of a word and a text for the card of a part, `textOf` what a search looks into.
  function icicle(whole, {
    label, wholeName, describe, isOpened = () => false, paint = () => {}, factsOf = () => [],
    textOf = ({ title }) => title.toLowerCase(),
  }) {
    const said = el("p", { class: "said icicle-said", "aria-live": "polite" });
    // What is known of the part at the pointer or the focus.
    const card = el("div", { class: "icicle-card", "aria-hidden": "true", hidden: true });
    const hide = () => { card.hidden = true; };
    const chart = el("div", {
      class: "icicle", role: "group",
      "aria-label": `${label} Arrow keys move, Enter opens, Escape goes back.`,
      on: { pointerleave: hide, focusout: hide },
    });
    const back = el("button", { type: "button", text: wholeName, on: { click: () => zoom() } });
    // A part of a name makes the parts without it pale.
    const search = searchBox("find parts", "name", find);
    let top = whole;
    // The places of the parts that are drawn, by level.
    let levels = [];
    let sought = "";

    function find(text) {
      sought = text;
      const has = (part) =>
        textOf(part).includes(text) || part.parts.concat(part.shown ?? []).some(has);
      for (const { part, button } of levels.flat()) {
        button.classList.toggle("pale", text !== "" && !has(part));
      }
    }

    function zoom(part = whole) {
      top = part;
      draw();
      levels[0][0].button.focus();
    }

    function draw() {
      hide();
      levels = [];
      add(top, null, 0, 1);
      chart.style.setProperty("--levels", levels.length);
      chart.replaceChildren(...levels.flat().map(({ button }) => button));
      levels[0][0].button.tabIndex = 0;
      back.hidden = top === whole;
      find(sought);
      say(top);
    }

    // `above` is the place of the part that this one is of.
    function add(part, above, left, width) {
      const level = above ? above.level + 1 : 0;
      const row = (levels[level] ??= []);
      const button = buttonOf(part, level, left, width);
      const place = { part, button, above, level, at: row.length };
      row.push(place);
      let start = left;
      // Times of a profiler are rounded and shared out, so parts may exceed their whole.
      const scale = width / (Math.max(part.value, sumOf(part.parts)) || 1);
      for (const child of drawnOf(part, scale)) {
        add(child, place, start, child.value * scale);
        start += child.value * scale;
      }
    }

    // The parts that have room, and all others as one. Choosing that shows the whole part, which gives
    // them more room; if the part fills the chart already, they are shown alone.
    function drawnOf(part, scale) {
      const few = part.parts.filter(({ value }) => value * scale >= NARROWEST);
      const rest = part.parts.slice(few.length);
      // A single part keeps its name, however narrow it is.
      if (rest.length < 2) return part.parts;
      if (part === top && !few.length) return inRuns(rest);
      const title = `${rest.length} others`;
      return [...few, folded(title, OTHER, rest, part === top ? undefined : part)];
    }

    function buttonOf(part, level, left, width) {
      const show = () => showCard(part, level, left);
      const button = el("button", {
        type: "button", class: `kind-${part.kind.id}`, tabindex: "-1",
        "aria-description": describe(part), style: placed({ left, width, level }),
        on: { click: () => open(part), focus: show, pointerenter: show },
      }, el("bdi", { text: part.title }));
      paint(button, part);
      return button;
    }

    // A part that opens nowhere else fills the chart, or leaves it again.
    function open(part) {
      if (isOpened(part)) return;
      if (part.shown) zoom(part.shown);
      else if (part.parts.length) zoom(part === top ? whole : part);
    }

    const moves = {
      ArrowRight: ({ level, at }) => levels[level][at + 1],
      ArrowLeft: ({ level, at }) => levels[level][at - 1],
      ArrowUp: ({ above }) => above,
      ArrowDown: (place) => levels[place.level + 1]?.find(({ above }) => above === place),
      Home: ({ level }) => levels[level][0],
      End: ({ level }) => levels[level].at(-1),
    };

    const move = ({ key, target }) => {
      const place = levels.flat().find(({ button }) => button === target);
      const { button } = moves[key](place) ?? place;
      for (const one of chart.children) one.tabIndex = one === button ? 0 : -1;
      button.focus();
    };

    function showCard(part, level, left) {
      say(part);
      const facts = factsOf(part);
      card.hidden = !facts.length;
      card.setAttribute("style", placed({ left, level }));
      card.replaceChildren(factList(facts));
    }

    const say = (part) => said.replaceChildren(el("bdi", { text: describe(part) }));

    const keys = Object.keys(moves).map((key) => [key, move]);
    onKeys(chart, { ...Object.fromEntries(keys), Escape: () => zoom() });
    draw();
    return { back, search, parts: [said, el("div", { class: "icicle-room" }, chart, card)] };
  }

  // The place of a part for the style sheet.
  const placed = (place) =>
    Object.entries(place).map(([name, value]) => `--${name}: ${value}`).join("; ");

  return { icicle, made, sumOf };
})();
