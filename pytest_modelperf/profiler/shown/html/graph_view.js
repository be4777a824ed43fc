// The window on a graph: draws what is in view. It scrolls; a mouse drags it, too.
modelperf.graphView = (() => {
  "use strict";

  const { el, svg } = modelperf;
  const { BOX, LANE, ROW, pathOf } = modelperf.graphPlaces;

  const ZOOM = { least: 0.02, most: 2.5 };
  // Below this scale texts cannot be read, and are not drawn.
  const READABLE = 0.4;
  // At this scale the smallest text has 11 pixels.
  const LEGIBLE = 0.96;
  const MARGIN = 28;
  // How many characters fit into a line of a box: its title with the figure, and its name.
  const TEXT = { title: 23, name: 27 };
  // A mouse that moves less than this has clicked.
  const CLICK = 5;

  // Whether moving to a far place is animated.
  const FLIES = matchMedia("(prefers-reduced-motion: no-preference)");

  const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

  // Names begin alike and differ at their ends.
  const end = (text, length) => (text.length > length ? `…${text.slice(1 - length)}` : text);

  class GraphView {
    element;
    #frames = svg("g", {});
    #lines = svg("g", { class: "graph-lines" });
    #boxes = svg("g", {});
    #world = svg("g", {});
    #picture = svg("svg", { "aria-hidden": "true" });
    #places = null;
    #describe;
    #onClick;
    #scale = 1;
    #drawn = "";
    #current = null;
    #found = new Set();
    #moved = 0;

    // `describe` returns how an item looks; `onClick` gets the item that was clicked.
    constructor(label, describe, onClick, hint) {
      this.#describe = describe;
      this.#onClick = onClick;
      this.#world.append(this.#frames, this.#lines, this.#boxes);
      this.#picture.append(this.#world);
      this.element = el("div", {
        class: "graph-window", tabindex: "0", role: "application", "aria-label": label,
        "aria-describedby": hint,
        on: {
          scroll: () => this.#render(),
          pointerdown: () => { this.#moved = 0; },
          pointermove: (event) => this.#drag(event),
          click: (event) => this.#click(event),
        },
      }, this.#picture);
      this.element.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
      new ResizeObserver(() => this.#resize()).observe(this.element);
    }

    // Draws other places; the item that `stays` keeps its place on the screen.
    show(places, stays = null) {
      const [x, y] = stays ? this.#onScreen(stays.from) : [0, 0];
      this.#places = places;
      this.#drawn = "";
      this.#setScale(this.#scale);
      if (stays) this.#moveTo(stays.to, x, y);
      this.#render();
    }

    // The whole width in view, as long as texts are easy to read; a given item in the middle.
    fit(item) {
      const { width } = this.room;
      this.#setScale(Math.max(LEGIBLE, Math.min(1, (width * LEGIBLE) / this.#places.width)));
      this.centre(item, "instant");
      this.#render();
    }

    // All of it in view, however small.
    fitWhole() {
      const { width, height } = this.room;
      const scales = [width / this.#places.width, height / this.#places.height];
      this.#setScale(Math.max(ZOOM.least, Math.min(1, LEGIBLE * Math.min(...scales))));
      this.#render();
    }

    centre(item, behavior = FLIES.matches ? "smooth" : "instant") {
      const { clientWidth, clientHeight } = this.element;
      this.#moveTo(item, (clientWidth - BOX.width * this.#scale) / 2,
        (clientHeight - BOX.height * this.#scale) / 2, behavior);
    }

    // Moves only as far as is needed to see an item.
    reveal(item) {
      const { clientWidth, clientHeight } = this.element;
      const [x, y] = this.#onScreen(item);
      this.#moveTo(item,
        inside(x, BOX.width * this.#scale, clientWidth),
        inside(y, BOX.height * this.#scale, clientHeight));
    }

    mark(item) {
      this.#current = item;
      this.repaint();
    }

    highlight(boxes) {
      this.#found = boxes;
      this.repaint();
    }

    zoom(factor, at = null) {
      const { clientWidth, clientHeight, scrollLeft, scrollTop } = this.element;
      const [x, y] = at ?? [clientWidth / 2, clientHeight / 2];
      const here = {
        x: (scrollLeft + x - this.#left) / this.#scale, y: (scrollTop + y - MARGIN) / this.#scale,
      };
      this.#setScale(Math.max(ZOOM.least, Math.min(ZOOM.most, this.#scale * factor)));
      this.#moveTo(here, x, y);
      this.#render();
    }

    repaint() {
      this.#drawn = "";
      this.#render();
    }

    // How much of a picture fits into the window while texts are easy to read.
    get room() {
      const { clientWidth, clientHeight } = this.element;
      return {
        width: (clientWidth - 2 * MARGIN) / LEGIBLE, height: (clientHeight - 2 * MARGIN) / LEGIBLE,
      };
    }

    // The place of the picture's left edge: a narrow one is in the middle.
    get #left() {
      const free = this.element.clientWidth - this.#places.width * this.#scale;
      return Math.max(MARGIN, free / 2);
    }

    #setScale(scale) {
      this.#scale = scale;
      this.#picture.setAttribute("width", this.#places.width * scale + 2 * MARGIN);
      this.#picture.setAttribute("height", this.#places.height * scale + 2 * MARGIN);
      this.#world.setAttribute("transform", `translate(${this.#left} ${MARGIN}) scale(${scale})`);
    }

    #onScreen({ x, y }) {
      const { scrollLeft, scrollTop } = this.element;
      return [this.#left + x * this.#scale - scrollLeft, MARGIN + y * this.#scale - scrollTop];
    }

    // Scrolls so that a place of the picture is at this place of the window.
    #moveTo(place, left, top, behavior = "instant") {
      const [x, y] = this.#onScreen(place);
      this.element.scrollBy({ left: x - left, top: y - top, behavior });
    }

    // The details next to it take room, but the item that they describe stays in sight.
    #resize() {
      if (!this.#places) return;
      this.#setScale(this.#scale);
      if (this.#current) this.reveal(this.#current);
      this.#render();
    }

    // -- drawing

    #render() {
      const { clientWidth, clientHeight, scrollLeft, scrollTop } = this.element;
      if (!this.#places || !clientWidth) return;
      const far = this.#scale < READABLE;
      // Half a screen more than is in view, so that a small move draws nothing.
      const [stepX, stepY] = [clientWidth / this.#scale / 2, clientHeight / this.#scale / 2];
      const left = Math.floor((scrollLeft - this.#left) / this.#scale / stepX) * stepX;
      const top = Math.floor((scrollTop - MARGIN) / this.#scale / stepY) * stepY;
      const drawn = `${left} ${top} ${this.#scale}`;
      if (drawn === this.#drawn) return;
      this.#drawn = drawn;
      this.#world.classList.toggle("far", far);
      this.#draw({ left, top, right: left + 3 * stepX, bottom: top + 3 * stepY }, far);
    }

    #draw({ left, top, right, bottom }, far) {
      const isInView = ({ x, y, width = BOX.width, height = BOX.height }) =>
        x <= right && x + width >= left && y <= bottom && y + height >= top;
      const lines = this.#places.lines
        .slice(Math.max(0, Math.floor(top / ROW) - 1), Math.ceil(bottom / ROW)).flat()
        .filter(isInView).sort((one, other) => one.index - other.index);
      this.#boxes.replaceChildren(
        ...this.#places.heads.map((head) => this.#head(head)),
        ...lines.map((item) => this.#box(item, far)),
      );
      const edges = this.#places.edges.filter(({ from, to, way }) => {
        const [x, y] = [Math.min(from.x, to.x, way ?? from.x), Math.min(from.y, to.y)];
        const width = Math.max(from.x, to.x, way ?? from.x) - x + LANE;
        return isInView({ x, y, width, height: Math.max(from.y, to.y) - y + ROW });
      });
      const groups = new Map();
      for (const edge of edges) {
        const near = edge.from === this.#current || edge.to === this.#current;
        const key = `${edge.only === null ? "" : `only-${edge.only ? "b" : "a"}`}${near ? " near" : ""}`;
        groups.set(key, (groups.get(key) ?? "") + pathOf(edge));
      }
      this.#lines.replaceChildren(
        ...[...groups].map(([name, d]) => svg("path", { class: name.trim(), d })),
      );
      const frames = this.#places.frames.filter(isInView);
      this.#frames.replaceChildren(...frames.flatMap((frame) => this.#frame(frame, far)));
    }

    // The name of a side above its part of a column.
    #head({ side, x, y }) {
      return svg("text", { class: "graph-head", x, y: y - 30 }, this.#describe({ head: side }).text);
    }

    #box(item, far) {
      const { title, figure, name, whole, heat, tone, share, classes } = this.#describe(item);
      const isFound = item.boxes
        ? item.boxes.some((box) => this.#found.has(box)) : this.#found.has(item.box);
      const names = ["graph-box", tone, ...classes];
      if (item === this.#current) names.push("current");
      if (isFound) names.push("found");
      const group = svg("g", {
        class: names.filter(Boolean).join(" "), transform: `translate(${item.x} ${item.y})`,
        "data-item": item.index, style: `--heat: ${heat.toFixed(3)}`,
      });
      const { width, height } = BOX;
      if (item.boxes) group.append(svg("rect", { x: 4, y: 4, width, height, class: "behind" }));
      group.append(svg("rect", { width, height, rx: 4 }));
      if (far) return group;
      if (share) {
        const bar = { class: "bar", y: height - 4, width: Math.max(1, share * width), height: 4 };
        group.append(svg("rect", bar));
      }
      group.append(
        svg("text", { class: "title", x: 9, y: 18 }, cut(title, TEXT.title - figure.length)),
        svg("text", { class: "figure", x: width - 9, y: 18 }, figure),
        svg("text", { class: "name", x: 9, y: 35 }, end(name, TEXT.name)),
        svg("title", {}, [title, whole, figure].filter(Boolean).join("\n")),
      );
      return group;
    }

    #frame(frame, far) {
      const { x, y, width, height } = frame;
      const { text, title, tone } = this.#describe(frame);
      const shape = { class: `graph-frame ${tone}`, x, y, width, height, rx: 8 };
      const rect = svg("rect", shape, svg("title", {}, title));
      if (far) return [rect];
      const isModule = tone === "module";
      const label =
        { class: `graph-frame-text ${tone}`, x: isModule ? x + width - 4 : x + 4, y: y - 4 };
      return [rect, svg("text", label, isModule ? end(text, Math.floor(width / 8)) : text)];
    }

    // -- pointers: the browser scrolls for a finger

    #drag(event) {
      if (!(event.buttons & 1) || event.pointerType !== "mouse") return;
      this.#moved += Math.abs(event.movementX) + Math.abs(event.movementY);
      if (this.#moved < CLICK) return;
      // Captured late, so that a click goes to the box below the pointer.
      this.element.setPointerCapture(event.pointerId);
      this.element.scrollBy({ left: -event.movementX, top: -event.movementY });
    }

    #click({ target }) {
      const index = target.closest("[data-item]")?.dataset.item;
      if (index !== undefined && this.#moved < CLICK) this.#onClick(this.#places.items[Number(index)]);
    }

    #wheel(event) {
      if (!event.ctrlKey && !event.metaKey) return;
      const box = this.element.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY / 300), [event.clientX - box.left, event.clientY - box.top]);
      event.preventDefault();
    }
  }

  // The place nearest to `start` at which a length fits into the room.
  function inside(start, length, room) {
    return Math.max(MARGIN, Math.min(room - MARGIN - length, start));
  }

  return { GraphView };
})();
