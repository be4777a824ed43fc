// Where the cost of a case lies: its types, their layers and the kernels of these, as wide as what
// each of them costs.
(() => {
  "use strict";

  const { choose, chosen, el, format, toggle } = modelperf;
  const { sideIndexes, sideLabel } = modelperf.charts;
  const { bytesText, decimalsFor, isKnown, shareText, sum, timeText } = modelperf.figures;
  const { legend } = modelperf.layers;

  const SIZES = [
    { id: "ms", title: "time" },
    { id: "macs", title: "MACs", text: format.count },
    { id: "flops", title: "FLOPs", text: format.count },
    { id: "memory", title: "memory", text: bytesText },
  ];
  const MEMORY_NOTE = "Memory is that of the weights and outputs of each layer.";
  // Of the width: what is narrower could be neither seen nor chosen, and is drawn as one.
  const NARROWEST = 0.004;
  const OTHER = { id: "other" };
  // So few runs that each of them is wide enough to be chosen.
  const MOST_RUNS = 20;

  // A part of the cost, with the parts that it consists of, the largest first.
  function made(title, value, kind, parts = [], layer = null) {
    return { title, value, kind, parts: parts.sort((one, other) => other.value - one.value), layer };
  }

  // The parts of a case for one side; what has no value is in none.
  function treeOf(view, layers, side, size) {
    const types = new Map();
    for (const layer of layers) {
      if (!(layer[size.id]?.[side] > 0)) continue;
      types.set(layer.type, [...(types.get(layer.type) ?? []), layer]);
    }
    const parts = [...types].map(([type, members]) => {
      const { kind } = members[0];
      const leaves = members.map((layer) => layerPart(layer, side, size, kind));
      return made(type, sumOf(leaves), kind, leaves);
    });
    return made(view.model.name, sumOf(parts), { id: "whole" }, parts);
  }

  function layerPart(layer, side, size, kind) {
    const value = layer[size.id][side];
    const kernel = kernelOf(layer, side);
    const leaves = kernel ? [made(kernel, value, kind, [], layer)] : [];
    return made(layer.names[side] ?? layer.type, value, kind, leaves, layer);
  }

  function kernelOf(layer, side) {
    if (layer.runs_in[side]) return `in ${layer.runs_in[side]}`;
    const others = layer.fused[side]?.length ?? 0;
    const kernel = layer.kernels[side];
    return kernel && others ? `${kernel} + ${others} fused` : kernel;
  }

  const sumOf = (parts) => sum(parts.map(({ value }) => value));

  // Parts drawn as one. Choosing it shows them alone, or what `shown` is.
  function folded(title, kind, parts, shown = made(title, sumOf(parts), kind, parts)) {
    return { ...made(title, sumOf(parts), kind), shown };
  }

  // Parts of which none has room, in runs that have it, each called by its first and last part.
  function inRuns(parts) {
    const length = Math.ceil(parts.length / MOST_RUNS);
    return Array.from({ length: Math.ceil(parts.length / length) }, (_, at) => {
      const run = parts.slice(at * length, (at + 1) * length);
      return folded(`${run[0].title} … ${run.at(-1).title}`, run[0].kind, run);
    });
  }

  class Icicle {
    #view;
    #side;
    #size;
    #whole;
    #top;
    #decimals;
    #chart = el("div", { class: "icicle", role: "group", "aria-label":
      "Types, layers and kernels by cost. Arrow keys move, Enter opens, Escape goes back." });
    #said = el("p", { class: "said icicle-said", "aria-live": "polite" });
    #back = el("button", { type: "button", text: "whole model", on: { click: () => this.#zoom() } });
    // The drawn parts of each level, and the button of each.
    #levels = [];

    constructor(view, side, size) {
      this.#view = view;
      this.#side = side;
      this.#size = size;
      this.#whole = treeOf(view, view.case.layers, side, size);
      this.#decimals = decimalsFor(this.#whole.value);
      this.#chart.addEventListener("keydown", (event) => this.#onKey(event));
      this.#top = this.#whole;
    }

    get parts() {
      const kinds = this.#whole.parts.map(({ kind }) => kind);
      const none = this.#view.case.layers.filter((layer) =>
        layer.is_layer && !isKnown(layer[this.#size.id]?.[this.#side])).length;
      const notes = [
        none ? `Without a known ${this.#size.title}, and not drawn: ${none} of the layers.` : null,
        this.#size.id === "memory" ? MEMORY_NOTE : null,
      ].filter(Boolean).join(" ");
      this.#draw();
      return [this.#back, this.#said, this.#chart, legend(kinds), el("p", { class: "hint", text: notes })];
    }

    #zoom(part = this.#whole) {
      this.#top = part;
      this.#draw();
      this.#levels[0][0].button.focus();
    }

    #draw() {
      this.#levels = [];
      this.#add(this.#top, 0, 0, 1);
      const depth = this.#levels.length;
      this.#chart.style.setProperty("--levels", depth);
      this.#chart.replaceChildren(...this.#levels.flat().map(({ button }) => button));
      this.#levels[0][0].button.tabIndex = 0;
      this.#back.hidden = this.#top === this.#whole;
      this.#say(this.#top);
    }

    #add(part, level, left, width) {
      const button = this.#button(part, level, left, width);
      (this.#levels[level] ??= []).push({ part, button, left, width });
      let at = left;
      const scale = width / (part.value || 1);
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
      // One alone keeps its name, however narrow it is.
      if (rest.length < 2) return part.parts;
      const isTop = part === this.#top;
      if (isTop && !few.length) return inRuns(rest);
      const title = `${rest.length} others`;
      return [...few, folded(title, OTHER, rest, isTop ? undefined : part)];
    }

    #button(part, level, left, width) {
      const button = el("button", {
        type: "button", class: `kind-${part.kind.id}`, tabindex: "-1", title: this.#describe(part),
        on: {
          click: () => this.#open(part),
          focus: () => this.#say(part),
          pointerenter: () => this.#say(part),
        },
      }, el("bdi", { text: part.title }));
      button.style.setProperty("--left", left);
      button.style.setProperty("--width", width);
      button.style.setProperty("--level", level);
      return button;
    }

    // A layer opens in the table of kernels; all else fills the chart, or leaves it again.
    #open(part) {
      if (part.layer) modelperf.kernels.open(part.layer);
      else if (part.shown) this.#zoom(part.shown);
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
        // The first of its parts, which begins where it does.
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

    #describe({ title, value }) {
      const { text } = this.#size;
      const share = shareText(this.#whole.value ? value / this.#whole.value : null);
      return `${title}: ${text ? text(value) : timeText(value, this.#decimals)}, ${share}`;
    }

    #say(part) {
      this.#said.replaceChildren(el("bdi", { text: this.#describe(part) }));
    }
  }

  function draw(root, view) {
    const layers = view.case?.layers ?? [];
    const has = (size, side) => layers.some((layer) => layer[size.id]?.[side] > 0);
    const sides = sideIndexes(view).filter((side) => SIZES.some((size) => has(size, side)));
    if (!sides.length) return modelperf.hide(root);
    let side = sides.at(-1);
    const toolbar = el("div", { class: "toolbar" });
    const body = el("div");
    const show = () => {
      const sizes = SIZES.filter((size) => has(size, side));
      const size = sizes.find(({ id }) => id === chosen("size")) ?? sizes[0];
      const options = sizes.map(({ id, title }) => [id, title]);
      const pickSize = (id) => {
        choose({ size: id });
        show();
      };
      toolbar.replaceChildren(toggle("cost as", options, size.id, pickSize));
      if (sides.length > 1) {
        const labels = sides.map((each) => [each, sideLabel(view, each)]);
        toolbar.append(toggle("side", labels, side, (each) => {
          side = each;
          show();
        }));
      }
      const [back, ...parts] = new Icicle(view, side, size).parts;
      toolbar.append(back);
      body.replaceChildren(...parts);
    };
    root.replaceChildren(toolbar, body);
    show();
    return undefined;
  }

  modelperf.section("icicle", { draw, redraw: () => {} });
})();
