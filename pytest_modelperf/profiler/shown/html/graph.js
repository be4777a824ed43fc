// The graph of the kernels: coloured by time, or by what changed between two sides.
(() => {
  "use strict";

  const { el, format, toggle } = modelperf;
  const { hasTwo, sideLabel } = modelperf.charts;
  const {
    changeText, decimalsFor, isKnown, isSure, rangeText, sum, timeText, wholeText,
  } = modelperf.figures;
  const { alikeLength, namesOf, searchedText } = modelperf.layers;
  const { KernelDetails } = modelperf.kernels;
  const { Places, STATES } = modelperf.graphPlaces;
  const { GraphView } = modelperf.graphView;

  const HINT = "graph-hint";
  // How much nearer a press of + brings the picture.
  const STEP = 1.25;
  const KEYS = "Arrow keys go along the lines, Enter opens a box, + and − zoom, 0 shows all.";

  class GraphPicture {
    #view;
    #graph;
    #isPair;
    #isApart = false;
    #open = new Set();
    #decimals;
    #texts;
    #modules;
    #places;
    #window;
    #details;
    #current = null;
    #matches = [];
    #said = el("p", { class: "said graph-said", role: "status" });
    #count = el("span", { class: "graph-count", role: "status" });
    #search;

    constructor(view) {
      const { graph } = view.case;
      this.#view = view;
      this.#graph = graph;
      this.#isPair = hasTwo(view);
      this.#decimals = decimalsFor(graph.total);
      this.#texts = graph.type.map((_, box) => this.#searched(box));
      const names = graph.type.map((_, box) => this.#nameOf(box));
      const alike = alikeLength(names.filter(Boolean));
      this.#modules = names.map((name) => moduleOf(name.slice(alike)));
      this.#window = new GraphView(
        "graph of the kernels", (item) => this.#look(item), (item) => this.#press(item), HINT,
      );
      this.#details = new KernelDetails(view, this.#decimals, {
        close: () => this.#close(),
        show: (name, side) => this.#openNamed(name, side),
      });
      this.#details.element.setAttribute("aria-label", "details of the box");
    }

    draw(root) {
      const window = this.#window.element;
      window.addEventListener("keydown", (event) => this.#onKey(event));
      root.replaceChildren(
        this.#toolbar(),
        el("div", { class: "graph-both" }, window, this.#details.element),
        this.#said,
        this.#legend(),
        el("p", { class: "hint", id: HINT, text: KEYS }),
      );
      this.#place();
      this.#window.fit(this.#worstItem());
    }

    repaint(isOnPaper) {
      this.#window.repaint();
      if (isOnPaper) this.#window.fitWhole();
    }

    // -- what surrounds the picture

    #toolbar() {
      this.#search = el("input", {
        type: "search", placeholder: "name or type", "aria-label": "find kernels", size: 18,
        autocomplete: "off", spellcheck: "false",
        on: {
          input: () => this.#find(),
          keydown: (event) => {
            if (event.key === "Enter") this.#next(event.shiftKey ? -1 : 1);
          },
        },
      });
      const button = (text, label, press) =>
        el("button", { type: "button", text, "aria-label": label, title: label, on: { click: press } });
      const tools = [
        this.#search,
        this.#count,
        el("span", { class: "graph-zoom" },
          button("−", "zoom out", () => this.#window.zoom(1 / STEP)),
          button("+", "zoom in", () => this.#window.zoom(STEP)),
          button("all", "show all", () => this.#window.fitWhole())),
      ];
      if (this.#graph.folds.length) {
        const kinds = [["folded", "folded"], ["open", "every kernel"]];
        tools.push(toggle("stretches", kinds, "folded", (kind) => this.#foldAll(kind)));
      }
      if (this.#isPair) {
        const kinds = [["merged", "one graph"], ["apart", "side by side"]];
        tools.push(toggle("sides", kinds, "merged", (kind) => {
          this.#isApart = kind === "apart";
          this.#place();
          this.#window.fit(this.#current ?? this.#worstItem());
        }));
      }
      return el("div", { class: "toolbar" }, tools);
    }

    #legend() {
      const [before, after] = this.#view.sides.map((_, side) => sideLabel(this.#view, side));
      const key = (kind, text) =>
        el("li", {}, el("span", { class: `key graph-key ${kind}` }), text);
      const most = this.#valueText(this.#graph.most);
      const [kind, scale] = this.#isPair
        ? ["scale-change", `faster by ${most} … slower by ${most}`]
        : ["scale-time", `0 … ${most}`];
      // Without a figure, no box has a colour.
      const items = this.#graph.most ? [key(kind, scale)] : [];
      if (this.#isPair) {
        items.push(
          key("changed", "changed"),
          key("re-fused", "runs other nodes"),
          key("new", `only in ${after}`),
          key("gone", `only in ${before}`),
        );
      }
      if (this.#graph.is_layout.some(Boolean)) items.push(key("layout", "only moves data"));
      if (this.#graph.folds.length) {
        const what = this.#isPair ? "unchanged kernels" : "kernels that take little time";
        items.push(key("fold", `${what}, unfolded by a click`));
      }
      return el("ul", { class: "legend" }, items);
    }

    // -- the text of a box

    #layerOf(box) {
      const at = this.#graph.layer[box];
      return at === null ? null : this.#view.case.layers[at];
    }

    #nameOf(box) {
      const layer = this.#layerOf(box);
      return layer?.is_layer ? namesOf(layer).at(-1) : "";
    }

    #searched(box) {
      const type = this.#graph.types[this.#graph.type[box]].toLowerCase();
      const layer = this.#layerOf(box);
      return layer?.is_layer ? `${type}\n${searchedText(layer)}` : type;
    }

    #valueText(value) {
      if (this.#graph.unit === "ms") return timeText(value, this.#decimals);
      return format.count(value);
    }

    #changeText(value) {
      return this.#graph.unit === "ms" ? `${changeText(value, this.#decimals)} ms`
        : changeText(value, 0);
    }

    // How an item or the frame of a part looks.
    #look(item) {
      if ("head" in item) return { text: sideLabel(this.#view, item.head) };
      if ("module" in item) return { text: item.module, title: item.module, tone: "module" };
      if ("part" in item) return this.#lookOfPart(this.#graph.parts[item.part]);
      return item.boxes ? this.#lookOfFold(item) : this.#lookOfBox(item);
    }

    #lookOfBox({ box, side }) {
      const graph = this.#graph;
      const value = graph.figure[box];
      const isShownApart = side !== null || !this.#isPair;
      const own = this.#isPair ? graph.values[side ?? 1][box] : value;
      const figure = isShownApart
        ? (isKnown(own) ? this.#valueText(own) : "")
        : (value && !graph.is_still[box] ? this.#changeText(value) : "");
      const heat = this.#isPair && graph.is_still[box] ? 0 : this.#heat(value ?? 0);
      return {
        title: graph.types[graph.type[box]],
        figure,
        name: this.#nameOf(box),
        heat,
        tone: this.#isPair && value < 0 ? "better" : "worse",
        share: isKnown(own) && this.#graph.total ? own / this.#graph.total : 0,
        classes: [`state-${STATES[graph.state[box]]}`, graph.is_layout[box] ? "layout" : ""],
      };
    }

    // By the root, so that one large kernel does not make the others pale.
    #heat(value) {
      return this.#graph.most ? Math.sqrt(Math.abs(value) / this.#graph.most) : 0;
    }

    #lookOfFold({ boxes, side }) {
      const values = this.#graph.values[this.#isPair ? (side ?? 1) : 0];
      const total = sum(boxes.map((box) => values[box]));
      return {
        title: `${wholeText(boxes.length)} kernels`,
        figure: total ? this.#valueText(total) : "",
        name: "click to unfold",
        heat: this.#isPair ? 0 : Math.min(1, this.#heat(total / boxes.length)),
        tone: "worse",
        share: this.#graph.total ? total / this.#graph.total : 0,
        classes: ["fold"],
      };
    }

    #lookOfPart({ text: title, change_ms: change, interval_ms: interval }) {
      const range = interval ? ` (${rangeText(interval, this.#decimals)})` : "";
      const isClear = isSure(interval);
      return {
        text: `${this.#changeText(change)}${range}`,
        title,
        tone: isClear ? (change > 0 ? "worse" : "better") : "",
      };
    }

    // -- moving around

    #place(stays = null) {
      const from = stays?.item;
      this.#places = new Places(
        this.#graph, this.#open, this.#isApart, this.#modules, this.#window.room,
      );
      const to = stays && this.#places.itemOf(stays.box, this.#isApart ? from.side : null);
      this.#current = to ?? null;
      this.#window.mark(this.#current);
      this.#window.show(this.#places, to ? { from, to } : null);
    }

    #worstItem() {
      const part = this.#graph.part.findIndex((each) => each === 0);
      const box = part >= 0 ? part : this.#graph.state.findIndex((each) => each > 0);
      if (!this.#isPair || box < 0) return null;
      return [0, 1].map((side) => this.#places.itemOf(box, side)).find(Boolean) ?? null;
    }

    #foldAll(kind) {
      const box = this.#current && (this.#current.boxes?.[0] ?? this.#current.box);
      const stays = this.#current ? { item: this.#current, box } : null;
      this.#open = new Set(kind === "open" ? this.#graph.folds.keys() : []);
      this.#place(stays);
    }

    #press(item) {
      this.#window.element.focus({ preventScroll: true });
      this.#moveTo(item);
      if (item.boxes) {
        this.#open.add(item.fold);
        this.#place({ item, box: item.boxes[0] });
        this.#say();
      } else this.#openBox(item.box);
    }

    #openBox(box) {
      const layer = this.#layerOf(box);
      if (layer) this.#details.show(layer);
      else this.#close();
    }

    #openNamed(name, side) {
      const layers = this.#view.case.layers;
      const box = this.#graph.layer.findIndex(
        (at) => at !== null && layers[at].names[side] === name,
      );
      if (box >= 0) this.#goTo(box);
    }

    #close() {
      if (!this.#details.isOpen) return;
      this.#details.hide();
      this.#window.element.focus({ preventScroll: true });
    }

    // Shows a box, even if it is folded.
    #goTo(box) {
      const of = () => [0, 1].map((side) => this.#places.itemOf(box, side)).find(Boolean);
      if (of()?.boxes) {
        this.#open.add(of().fold);
        this.#place();
      }
      this.#moveTo(of(), true);
    }

    #moveTo(item, isFar = false) {
      this.#current = item;
      this.#window.mark(item);
      if (isFar) this.#window.centre(item);
      else this.#window.reveal(item);
      if (this.#details.isOpen && !item.boxes) this.#openBox(item.box);
      this.#say();
    }

    #say() {
      const item = this.#current;
      if (!item) return;
      const { title, figure, name } = this.#look(item);
      const lines = (count, what) => `${count} ${count === 1 ? what : `${what}s`}`;
      const state = item.boxes ? "" : STATES[this.#graph.state[item.box]];
      this.#said.textContent = [
        title,
        item.boxes ? "" : name,
        figure,
        state === "same" ? "" : state,
        `${lines(item.feeders.length, "line")} in, ${lines(item.readers.length, "line")} out`,
      ].filter(Boolean).join(", ");
    }

    #onKey(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const { items } = this.#places;
      const now = this.#current ?? { index: -1, x: items[0].x, readers: [], feeders: [] };
      const steps = {
        ArrowDown: () => nearest(now.readers, now) ?? items[now.index + 1],
        ArrowUp: () => nearest(now.feeders, now) ?? items[now.index - 1],
        ArrowLeft: () => this.#neighbour(now, -1),
        ArrowRight: () => this.#neighbour(now, 1),
        Home: () => items[0],
        End: () => items.at(-1),
      };
      const acts = {
        "+": () => this.#window.zoom(STEP),
        "=": () => this.#window.zoom(STEP),
        "-": () => this.#window.zoom(1 / STEP),
        0: () => this.#window.fitWhole(),
        Enter: () => this.#current && this.#press(this.#current),
        " ": () => this.#current && this.#press(this.#current),
        Escape: () => this.#close(),
      };
      if (event.key in steps) {
        const next = steps[event.key]();
        if (next) this.#moveTo(next);
      } else if (event.key in acts) acts[event.key]();
      else return;
      event.preventDefault();
    }

    #neighbour(now, step) {
      const line = [...(this.#places.lines[now.line] ?? [])].sort((one, other) => one.x - other.x);
      return line[line.indexOf(now) + step];
    }

    // -- search

    #find() {
      const words = this.#search.value.toLowerCase().split(/\s+/).filter(Boolean);
      this.#matches = words.length
        ? [...this.#texts.keys()].filter((box) =>
          words.every((word) => this.#texts[box].includes(word)))
        : [];
      this.#window.highlight(new Set(this.#matches));
      const count = this.#matches.length;
      if (count) this.#goTo(this.#matches[0]);
      this.#count.textContent = words.length
        ? `${wholeText(count)} found${count ? ", Enter shows the next" : ""}` : "";
    }

    #next(step) {
      if (!this.#matches.length) return;
      const at = this.#matches.indexOf(this.#current?.box);
      const count = this.#matches.length;
      const next = at < 0 && step < 0 ? count - 1 : (at + step + count) % count;
      this.#goTo(this.#matches[next]);
      this.#count.textContent = `${next + 1} of ${wholeText(count)}`;
    }
  }

  // The module at the start of a name: `model.22` of `model.22/cv2/Conv`.
  function moduleOf(name) {
    const [module, ...others] = name.split(/[/:]+|\.(?=\D)/).filter(Boolean);
    return others.length ? module : null;
  }

  function nearest(items, { x }) {
    return [...items].sort((one, other) => Math.abs(one.x - x) - Math.abs(other.x - x))[0];
  }

  let picture = null;

  modelperf.section("graph", {
    draw(root, view) {
      picture = null;
      const graph = view.case?.graph;
      if (!graph?.type && !graph?.reason) modelperf.hide(root);
      else if (!graph.type) modelperf.say(root, graph.reason);
      else {
        picture = new GraphPicture(view);
        picture.draw(root);
      }
    },
    redraw: () => picture?.repaint(document.documentElement.classList.contains("printing")),
  });
})();
