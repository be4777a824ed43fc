// A chart of parts inside of parts, each as wide as its value: pointers, keys and a button open one.
modelperf.icicle = (() => {
  "use strict";

  const { el } = modelperf;
  const { sum } = modelperf.figures;

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

  // `label` describes the parts, `whole` names the part of all, and `describe` describes one.
  // `isOpened` may open a part elsewhere; it returns whether it did. `paint` may change a button.
  // `factsOf` has pairs of a word and a text for the card of a part.
  class IcicleChart {
    #whole;
    #top;
    #options;
    #chart;
    #said = el("p", { class: "said icicle-said", "aria-live": "polite" });
    // What is known of the part at the pointer or the focus.
    #card = el("div", { class: "icicle-card", "aria-hidden": "true", hidden: true });
    #back;
    // The drawn parts of each level, and the button of each.
    #levels = [];
    #sought = "";

    constructor(whole, options) {
      this.#whole = whole;
      this.#top = whole;
      this.#options = { isOpened: () => false, paint: () => {}, factsOf: () => [], ...options };
      this.#chart = el("div", {
        class: "icicle", role: "group",
        "aria-label": `${options.label} Arrow keys move, Enter opens, Escape goes back.`,
        on: {
          keydown: (event) => this.#onKey(event), pointerleave: () => this.#hide(),
          focusout: () => this.#hide(),
        },
      });
      this.#back = el("button", { type: "button", text: options.whole, on: { click: () => this.#zoom() } });
      this.#draw();
    }

    // The button that leads back to the whole.
    get back() {
      return this.#back;
    }

    // A box to type a part of a name in, which makes the parts without it pale.
    get search() {
      return el("input", {
        type: "search", placeholder: "name", "aria-label": "find parts", size: 14,
        on: { input: ({ target }) => this.#find(target.value.trim().toLowerCase()) },
      });
    }

    #find(text) {
      this.#sought = text;
      const has = (part) =>
        part.title.toLowerCase().includes(text) || part.parts.concat(part.shown ?? []).some(has);
      for (const { part, button } of this.#levels.flat()) {
        button.classList.toggle("pale", text !== "" && !has(part));
      }
    }

    // The description of a part, and the chart.
    get parts() {
      return [this.#said, el("div", { class: "icicle-room" }, this.#chart, this.#card)];
    }

    #zoom(part = this.#whole) {
      this.#top = part;
      this.#draw();
      this.#levels[0][0].button.focus();
    }

    #draw() {
      this.#hide();
      this.#levels = [];
      this.#add(this.#top, 0, 0, 1);
      const depth = this.#levels.length;
      this.#chart.style.setProperty("--levels", depth);
      this.#chart.replaceChildren(...this.#levels.flat().map(({ button }) => button));
      this.#levels[0][0].button.tabIndex = 0;
      this.#back.hidden = this.#top === this.#whole;
      this.#find(this.#sought);
      this.#say(this.#top);
    }

    #add(part, level, left, width) {
      const button = this.#button(part, level, left, width);
      (this.#levels[level] ??= []).push({ part, button, left, width });
      let at = left;
      // Times of a profiler are rounded and shared out, so parts may exceed their whole.
      const scale = width / (Math.max(part.value, sumOf(part.parts)) || 1);
      for (const child of this.#drawn(part, scale)) {
        this.#add(child, level + 1, at, child.value * scale);
        at += child.value * scale;
      }
    }

    // The parts that have room, and all others as one. Choosing that shows the whole part, which gives
    // them more room; if the part fills the chart already, they are shown alone.
    #drawn(part, scale) {
      const few = part.parts.filter(({ value }) => value * scale >= NARROWEST);
      const rest = part.parts.slice(few.length);
      // A single part keeps its name, however narrow it is.
      if (rest.length < 2) return part.parts;
      const isTop = part === this.#top;
      if (isTop && !few.length) return inRuns(rest);
      const title = `${rest.length} others`;
      return [...few, folded(title, OTHER, rest, isTop ? undefined : part)];
    }

    #button(part, level, left, width) {
      const button = el("button", {
        type: "button", class: `kind-${part.kind.id}`, tabindex: "-1",
        "aria-description": this.#options.describe(part),
        on: {
          click: () => this.#open(part),
          focus: () => this.#show(part, level, left),
          pointerenter: () => this.#show(part, level, left),
        },
      }, el("bdi", { text: part.title }));
      button.style.setProperty("--left", left);
      button.style.setProperty("--width", width);
      button.style.setProperty("--level", level);
      this.#options.paint(button, part);
      return button;
    }

    // A part that opens nowhere else fills the chart, or leaves it again.
    #open(part) {
      if (this.#options.isOpened(part)) return;
      if (part.shown) this.#zoom(part.shown);
      else if (part.parts.length) this.#zoom(part === this.#top ? this.#whole : part);
    }

    #onKey(event) {
      const buttons = this.#levels.map((level) => level.map(({ button }) => button));
      const level = buttons.findIndex((row) => row.includes(event.target));
      if (level < 0) return;
      const at = buttons[level].indexOf(event.target);
      const place = this.#levels[level][at];
      const middle = place.left + place.width / 2;
      const under = (row) => row?.find(({ left, width }) => left <= middle && middle < left + width);
      const targets = {
        ArrowRight: () => this.#levels[level][at + 1],
        ArrowLeft: () => this.#levels[level][at - 1],
        ArrowUp: () => under(this.#levels[level - 1]),
        // The first of its parts, which begins at the same place.
        ArrowDown: () => this.#levels[level + 1]?.find(
          ({ left }) => left >= place.left - 1e-9 && left < place.left + place.width),
        Home: () => this.#levels[level][0],
        End: () => this.#levels[level].at(-1),
      };
      if (event.key === "Escape") this.#zoom();
      else if (event.key in targets) this.#focus(targets[event.key]()?.button ?? event.target);
      else return;
      event.preventDefault();
    }

    #focus(button) {
      for (const one of this.#chart.children) one.tabIndex = one === button ? 0 : -1;
      button.focus();
    }

    #show(part, level, left) {
      this.#say(part);
      const facts = this.#options.factsOf(part);
      this.#card.hidden = !facts.length;
      this.#card.style.setProperty("--left", left);
      this.#card.style.setProperty("--level", level);
      this.#card.replaceChildren(el("dl", { class: "facts" }, ...facts.flatMap(([word, text]) =>
        [el("dt", { text: word }), el("dd", {}, el("bdi", { text }))])));
    }

    #hide() {
      this.#card.hidden = true;
    }

    #say(part) {
      this.#said.replaceChildren(el("bdi", { text: this.#options.describe(part) }));
    }
  }

  return { IcicleChart, made, sumOf };
})();
