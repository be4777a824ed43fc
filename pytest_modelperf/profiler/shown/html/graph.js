// The graph of the kernels: coloured by time, or by what changed between two sides.
(() => {
  "use strict";

  const { el, format, isPrinting, onKeys, searchBox, toggle } = modelperf;
  const { chartPart, hasTwo, sideLabel } = modelperf.charts;
  const {
    changeText, decimalsFor, isKnown, rangeText, sum, timeText, tone, wholeText,
  } = modelperf.figures;
  const { alikeLength, namesOf, searchedText } = modelperf.layers;
  const { kernelDetails } = modelperf.kernels;
  const { BOX, Places, STATES } = modelperf.graphPlaces;
  const { GraphView } = modelperf.graphView;

  const HINT = "graph-hint";
  // How much nearer a press of + brings the picture.
  const STEP = 1.25;
  const KEYS = "Arrow keys go along the lines, Enter opens a box, + and − zoom, 0 shows all.";

  // The picture of a case, with what surrounds it.
  function graphPart(view) {
    const { graph, layers } = view.case;
    const isPair = hasTwo(view) && !graph.is_alone;
    const decimals = decimalsFor(graph.total);
    const boxes = [...graph.type.keys()];
    const texts = boxes.map(searchedOf);
    const names = boxes.map(nameOf);
    const alike = alikeLength(names.filter(Boolean));
    const modules = [];
    // What has no name, such as a change of layout, is of the module before it.
    names.forEach((name, box) => modules.push(
      name ? moduleOf(name.slice(alike)) : modules[graph.inputs[box][0]] ?? null));
    const picture = new GraphView("graph of the kernels", lookOf, press, HINT);
    const hint = graph.is_alone ? `A runs other kernels: this is the graph of B. ${KEYS}` : KEYS;
    const details = kernelDetails(view, decimals, "details of the box",
      { close, show: openNamed });
    const said = el("p", { class: "said graph-said", role: "status" });
    const found = el("span", { class: "graph-count", role: "status" });
    let isApart = false;
    let open = new Set();
    let places = null;
    let current = null;
    let matches = [];

    // -- what surrounds the picture

    function toolbar() {
      const search = searchBox("find kernels", "name or type", find);
      onKeys(search, { Enter: ({ shiftKey }) => goToMatch(shiftKey ? -1 : 1) });
      const button = (text, label, click) =>
        el("button", { type: "button", text, "aria-label": label, title: label, on: { click } });
      const tools = [search, found, el("span", { class: "graph-zoom" },
        button("−", "zoom out", () => picture.zoom(1 / STEP)),
        button("+", "zoom in", () => picture.zoom(STEP)),
        button("all", "show all", () => picture.fitWhole()))];
      if (graph.folds.length) {
        const kinds = [["folded", "folded"], ["open", "every kernel"]];
        tools.push(toggle("stretches", kinds, "folded", (kind) => {
          open = new Set(kind === "open" ? graph.folds.keys() : []);
          show(current && { item: current, box: current.boxes?.[0] ?? current.box });
        }));
      }
      if (isPair) {
        const kinds = [["merged", "one graph"], ["apart", "side by side"]];
        tools.push(toggle("sides", kinds, "merged", (kind) => {
          isApart = kind === "apart";
          begin();
        }));
      }
      return el("div", { class: "toolbar" }, tools);
    }

    function legend() {
      const [before, after] = view.sides.map((_, side) => sideLabel(view, side));
      const most = valueText(graph.most);
      const scale = isPair
        ? ["scale-change", `faster by ${most} … slower by ${most}`]
        : ["scale-time", `0 … ${most}`];
      const what = isPair ? "unchanged kernels" : "kernels that take little time";
      const items = [
        // Without a figure, no box has a colour.
        ...(graph.most ? [scale] : []),
        ...(isPair ? [
          ["changed", "changed"], ["re-fused", "runs other nodes"],
          ["new", `only in ${after}`], ["gone", `only in ${before}`],
        ] : []),
        ...(graph.is_layout.some(Boolean) ? [["layout", "only moves data"]] : []),
        ...(graph.folds.length ? [["fold", `${what}, unfolded by a click`]] : []),
      ];
      return el("ul", { class: "legend" }, items.map(([kind, text]) =>
        el("li", {}, el("span", { class: `key graph-key ${kind}` }), text)));
    }

    // -- the text of a box

    function layerOf(box) {
      const at = graph.layer[box];
      return at === null ? null : layers[at];
    }

    function nameOf(box) {
      const layer = layerOf(box);
      return layer?.is_layer ? namesOf(layer).at(-1) : "";
    }

    function searchedOf(box) {
      const type = graph.types[graph.type[box]].toLowerCase();
      const layer = layerOf(box);
      return layer?.is_layer ? `${type}\n${searchedText(layer)}` : type;
    }

    const valueText = (value) =>
      (graph.unit === "ms" ? timeText(value, decimals) : format.count(value));

    const differenceText = (value) =>
      (graph.unit === "ms" ? `${changeText(value, decimals)} ms` : changeText(value, 0));

    // By the root, so that one large kernel does not make the others pale.
    const heatOf = (value) => (graph.most ? Math.sqrt(Math.abs(value) / graph.most) : 0);

    const shareOf = (value) => (isKnown(value) && graph.total ? value / graph.total : 0);

    // How an item or the frame of a part looks.
    function lookOf(item) {
      if ("head" in item) return { text: sideLabel(view, item.head) };
      if ("module" in item) return { text: item.module, title: item.module, tone: "module" };
      if ("part" in item) return lookOfPart(graph.parts[item.part]);
      return item.boxes ? lookOfFold(item) : lookOfBox(item);
    }

    function lookOfBox({ box, side }) {
      const value = graph.figure[box];
      const isStill = isPair && graph.is_still[box];
      const own = isPair ? graph.values[side ?? 1][box] : value;
      const isMerged = side === null && isPair;
      const change = value && !isStill ? differenceText(value) : "";
      const time = isKnown(own) ? valueText(own) : "";
      return {
        title: graph.types[graph.type[box]],
        figure: isMerged ? change : time,
        name: names[box].slice(alike),
        whole: names[box],
        heat: isStill ? 0 : heatOf(value ?? 0),
        tone: isPair && value < 0 ? "better" : "worse",
        share: shareOf(own),
        classes: [`state-${STATES[graph.state[box]]}`, graph.is_layout[box] ? "layout" : ""],
      };
    }

    function lookOfFold({ boxes: folded, side }) {
      const values = graph.values[isPair ? (side ?? 1) : 0];
      const total = sum(folded.map((box) => values[box]));
      return {
        title: `${wholeText(folded.length)} kernels`,
        figure: total ? valueText(total) : "",
        name: "click to unfold",
        heat: isPair ? 0 : Math.min(1, heatOf(total / folded.length)),
        tone: "worse",
        share: shareOf(total),
        classes: ["fold"],
      };
    }

    function lookOfPart({ text: title, change_ms: change, interval_ms: interval }) {
      const range = interval ? ` (${rangeText(interval, decimals)})` : "";
      return { text: `${differenceText(change)}${range}`, title, tone: tone(change, interval) };
    }

    // -- moving around

    const itemOf = (box) => [0, 1].map((side) => places.itemOf(box, side)).find(Boolean);

    // Draws it again for other choices; a box that `stays` keeps its place on the screen.
    function show(stays = null) {
      const from = stays?.item;
      places = new Places(graph, open, isApart, modules, picture.room);
      const to = stays && places.itemOf(stays.box, isApart ? from.side : null);
      current = to ?? null;
      picture.mark(current);
      picture.show(places, to ? { from, to } : null);
    }

    function worstItem() {
      const part = graph.part.findIndex((each) => each === 0);
      const box = part >= 0 ? part : graph.state.findIndex((each) => each > 0);
      return isPair && box >= 0 ? itemOf(box) ?? null : null;
    }

    function press(item) {
      picture.element.focus({ preventScroll: true });
      moveTo(item);
      if (!item.boxes) return openBox(item.box);
      open.add(item.fold);
      show({ item, box: item.boxes[0] });
      return say();
    }

    function openBox(box) {
      const layer = layerOf(box);
      if (layer) details.show(layer);
      else close();
    }

    function openNamed(name, side) {
      const box = boxes.find((each) => layerOf(each)?.names[side] === name);
      if (box !== undefined) goTo(box);
    }

    function close() {
      if (!details.isOpen()) return;
      details.hide();
      picture.element.focus({ preventScroll: true });
    }

    // Shows a box, even if it is folded.
    function goTo(box) {
      if (itemOf(box)?.boxes) {
        open.add(itemOf(box).fold);
        show();
      }
      moveTo(itemOf(box), true);
    }

    function moveTo(item, isFar = false) {
      current = item;
      picture.mark(item);
      if (isFar) picture.centre(item);
      else picture.reveal(item);
      if (details.isOpen() && !item.boxes) openBox(item.box);
      say();
    }

    function say() {
      if (!current) return;
      const { title, figure, whole } = lookOf(current);
      const lines = (count, what) => `${count} ${count === 1 ? what : `${what}s`}`;
      const state = current.boxes ? "" : STATES[graph.state[current.box]];
      said.textContent = [
        title,
        whole,
        figure,
        state === "same" ? "" : state,
        `${lines(current.feeders.length, "line")} in, ${lines(current.readers.length, "line")} out`,
      ].filter(Boolean).join(", ");
    }

    function keys() {
      const step = (next) => () => {
        const { items } = places;
        const now = current ?? { index: -1, x: items[0].x, readers: [], feeders: [] };
        const item = next(now, items);
        if (item) moveTo(item);
      };
      const zoomIn = () => picture.zoom(STEP);
      const pressCurrent = () => current && press(current);
      return {
        ArrowDown: step((now, items) => nearest(now.readers, now) ?? items[now.index + 1]),
        ArrowUp: step((now, items) => nearest(now.feeders, now) ?? items[now.index - 1]),
        ArrowLeft: step((now) => neighbour(now, -1)),
        ArrowRight: step((now) => neighbour(now, 1)),
        Home: step((now, items) => items[0]),
        End: step((now, items) => items.at(-1)),
        "+": zoomIn, "=": zoomIn, "-": () => picture.zoom(1 / STEP),
        0: () => picture.fitWhole(),
        Enter: pressCurrent, " ": pressCurrent, Escape: close,
      };
    }

    function neighbour(now, step) {
      const line = (places.lines[now.line] ?? []).toSorted((one, other) => one.x - other.x);
      return line[line.indexOf(now) + step];
    }

    // -- search

    function find(text) {
      const words = text.split(/\s+/).filter(Boolean);
      const holds = (box) => words.every((word) => texts[box].includes(word));
      matches = words.length ? boxes.filter(holds) : [];
      picture.highlight(new Set(matches));
      const count = matches.length;
      if (count) goTo(matches[0]);
      found.textContent = words.length
        ? `${wholeText(count)} found${count ? ", Enter shows the next" : ""}` : "";
    }

    function goToMatch(step) {
      const count = matches.length;
      if (!count) return;
      const at = matches.indexOf(current?.box);
      const next = at < 0 && step < 0 ? count - 1 : (at + step + count) % count;
      goTo(matches[next]);
      found.textContent = `${next + 1} of ${wholeText(count)}`;
    }

    onKeys(picture.element, keys());

    function begin() {
      show();
      const item = worstItem() ?? places.items[0];
      // Both sides are in view if there is room.
      const [other = item] = places.items
        .filter(({ side, column }) => side !== item.side && column === item.column)
        .sort((one, two) => Math.abs(one.y - item.y) - Math.abs(two.y - item.y));
      const isNear = Math.abs(item.x - other.x) < picture.room.width - BOX.width;
      picture.fit({ ...item, x: isNear ? (item.x + other.x) / 2 : item.x });
    }

    function draw() {
      picture.repaint();
      if (isPrinting()) picture.fitWhole();
    }

    return { begin, draw, parts: [
      toolbar(), el("div", { class: "graph-both" }, picture.element, details.element), said,
      legend(), el("p", { class: "hint", id: HINT, text: hint }),
    ] };
  }

  // The module at the start of a name: `model.22` of `model.22/cv2/Conv`.
  function moduleOf(name) {
    const [module, ...others] = name.split(/[/:]+|\.(?=\D)/).filter(Boolean);
    return others.length ? module : null;
  }

  function nearest(items, { x }) {
    return [...items].sort((one, other) => Math.abs(one.x - x) - Math.abs(other.x - x))[0];
  }

  chartPart("graph", (view) => {
    const graph = view.case?.graph;
    if (graph?.type) return graphPart(view);
    return graph?.reason ? { parts: [el("p", { class: "muted", text: graph.reason })] } : null;
  });
})();
