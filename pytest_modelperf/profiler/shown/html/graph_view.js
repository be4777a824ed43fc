// The window on a graph: draws what is in view, and moves by drag, wheel, keys and the map.
modelperf.graphView = (() => {
  "use strict";

  const { colors, el, svg } = modelperf;
  const { BOX, ROW, pathOf } = modelperf.graphPlaces;

  const ZOOM = { least: 0.02, most: 2.5 };
  // Below this scale texts cannot be read, and are not drawn.
  const READABLE = 0.4;
  // At this scale the smallest text has 11 pixels.
  const LEGIBLE = 0.96;
  const MARGIN = 24;
  // How many characters fit into a line of a box: its title with the figure, and its name.
  const TEXT = { title: 25, name: 29 };
  // A finger or mouse that moves less than this has clicked.
  const CLICK = 5;
  const MAP = { width: 96, height: 140 };

  // On a phone the map would cover the picture.
  const LEAST_FOR_MAP = 440;

  const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

  // Names begin alike: their ends tell them apart.
  const end = (text, length) => (text.length > length ? `…${text.slice(1 - length)}` : text);

  class GraphView {
    element;
    #window;
    #canvas = el("canvas", { class: "graph-map", "aria-hidden": "true" });
    #frames = svg("g", {});
    #lines = svg("g", { class: "graph-lines" });
    #boxes = svg("g", {});
    #world = svg("g", {});
    #places = null;
    #map = null;
    #describe;
    #onClick;
    #scale = 1;
    #x = 0;
    #y = 0;
    #drawn = "";
    #current = null;
    #found = new Set();
    #pointers = new Map();
    #moved = 0;

    // `describe` tells how an item looks; `onClick` gets the item that was clicked.
    constructor(label, describe, onClick, hint) {
      this.#describe = describe;
      this.#onClick = onClick;
      this.#world.append(this.#frames, this.#lines, this.#boxes);
      this.#window = el("div", {
        class: "graph-window", tabindex: "0", role: "application", "aria-label": label,
        "aria-describedby": hint,
      });
      const picture = svg("svg", { "aria-hidden": "true" }, this.#world);
      this.#window.append(picture, this.#canvas);
      this.element = this.#window;
      this.#listen();
      new ResizeObserver(() => this.#resize()).observe(this.#window);
    }

    // Draws other places; the item that `stays` keeps its place on the screen.
    show(places, stays = null) {
      this.#map = null;
      if (stays) {
        this.#x += (stays.from.x - stays.to.x) * this.#scale;
        this.#y += (stays.from.y - stays.to.y) * this.#scale;
      }
      this.#places = places;
      this.#drawn = "";
      this.#render();
    }

    // The whole width in view, as long as texts are easy to read; the top or a given item in the middle.
    fit(item = null) {
      const { width } = this.#size();
      const whole = (width - 2 * MARGIN) / Math.max(1, this.#places.width);
      this.#scale = Math.max(LEGIBLE, Math.min(1, whole));
      this.centre(item ?? this.#places.items[0]);
      this.#y = item ? Math.min(this.#y, MARGIN) : MARGIN;
      if (whole >= this.#scale) this.#x = (width - this.#places.width * this.#scale) / 2;
      this.#render();
    }

    // All of it in view, however small.
    fitWhole() {
      const { width, height } = this.#size();
      const scales = [
        (width - 2 * MARGIN) / this.#places.width, (height - 2 * MARGIN) / this.#places.height,
      ];
      this.#scale = Math.max(ZOOM.least, Math.min(1, ...scales));
      this.#x = (width - this.#places.width * this.#scale) / 2;
      this.#y = MARGIN;
      this.#render();
    }

    centre(item) {
      const { width, height } = this.#size();
      this.#x = width / 2 - (item.x + BOX.width / 2) * this.#scale;
      this.#y = height / 2 - (item.y + BOX.height / 2) * this.#scale;
      this.#render();
    }

    // Moves only as far as is needed to see an item.
    reveal(item) {
      const { width, height } = this.#size();
      const left = this.#x + item.x * this.#scale;
      const top = this.#y + item.y * this.#scale;
      this.#x += inside(left, BOX.width * this.#scale, width) - left;
      this.#y += inside(top, BOX.height * this.#scale, height) - top;
      this.#render();
    }

    mark(item) {
      this.#current = item;
      this.#drawn = "";
      this.#render();
    }

    highlight(boxes) {
      this.#found = boxes;
      this.#drawn = "";
      this.#render();
    }

    zoom(factor, at = null) {
      const { width, height } = this.#size();
      const [x, y] = at ?? [width / 2, height / 2];
      const scale = Math.max(ZOOM.least, Math.min(ZOOM.most, this.#scale * factor));
      this.#x = x - ((x - this.#x) * scale) / this.#scale;
      this.#y = y - ((y - this.#y) * scale) / this.#scale;
      this.#scale = scale;
      this.#render();
    }

    repaint() {
      this.#map = null;
      this.#drawn = "";
      this.#render();
    }

    #size() {
      return { width: this.#window.clientWidth, height: this.#window.clientHeight };
    }

    // The details beside it take room: what they are about stays in sight.
    #resize() {
      if (this.#current && this.#places) this.reveal(this.#current);
      else this.#render();
    }

    // -- drawing

    #render() {
      const { width, height } = this.#size();
      if (!this.#places || !width) return;
      this.#keepInReach(width, height);
      this.#world.setAttribute(
        "transform", `translate(${this.#x} ${this.#y}) scale(${this.#scale})`,
      );
      const far = this.#scale < READABLE;
      // A screen more on each side, so that a small move draws nothing.
      const page = Math.max(1, Math.ceil(height / ROW / this.#scale));
      const top = Math.floor(-this.#y / this.#scale / ROW / page) * page;
      const [first, last] = [top - page, top + 3 * page];
      const drawn = `${first} ${last} ${far}`;
      if (drawn !== this.#drawn) {
        this.#drawn = drawn;
        this.#world.classList.toggle("far", far);
        this.#draw(first, last, far);
      }
      this.#drawMap(width, height);
    }

    // Some of the picture stays in sight.
    #keepInReach(width, height) {
      const [w, h] = [this.#places.width * this.#scale, this.#places.height * this.#scale];
      this.#x = Math.max(width / 2 - w - BOX.width, Math.min(width / 2 + BOX.width, this.#x));
      this.#y = Math.max(height / 2 - h, Math.min(height / 2, this.#y));
    }

    #draw(first, last, far) {
      const isInView = (from, to) => from <= last && to >= first;
      const lines = this.#places.lines.slice(Math.max(0, first), last + 1).flat();
      this.#boxes.replaceChildren(...lines.map((item) => this.#box(item, far)));
      const edges = this.#places.edges.filter(({ from, to }) => isInView(from.line, to.line));
      const groups = new Map();
      for (const edge of edges) {
        const near = edge.from === this.#current || edge.to === this.#current;
        const key = `${edge.only === null ? "" : `only-${edge.only ? "b" : "a"}`}${near ? " near" : ""}`;
        groups.set(key, (groups.get(key) ?? "") + pathOf(edge));
      }
      this.#lines.replaceChildren(
        ...[...groups].map(([name, d]) => svg("path", { class: name.trim(), d })),
      );
      const frames = this.#places.frames.filter(({ y, height }) =>
        isInView(y / ROW, (y + height) / ROW));
      this.#frames.replaceChildren(...frames.flatMap((frame) => this.#frame(frame, far)));
    }

    #box(item, far) {
      const { title, figure, name, heat, tone, share, classes } = this.#describe(item);
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
        svg("title", {}, [title, name, figure].filter(Boolean).join("\n")),
      );
      return group;
    }

    #frame(frame, far) {
      const { x, y, width, height } = frame;
      const { text, title, tone } = this.#describe(frame);
      const shape = { class: `graph-frame ${tone}`, x, y, width, height, rx: 8 };
      const rect = svg("rect", shape, svg("title", {}, title));
      if (far) return [rect];
      const label = { class: `graph-frame-text ${tone}`, x: x + 4, y: y - 5 };
      return [rect, svg("text", label, text)];
    }

    // -- the map

    #drawMap(width, height) {
      const { width: w, height: h } = this.#places;
      const isWhole = this.#x >= 0 && this.#y >= 0
        && this.#x + w * this.#scale <= width && this.#y + h * this.#scale <= height;
      this.#canvas.hidden = isWhole || width < LEAST_FOR_MAP;
      if (this.#canvas.hidden) return;
      const scale = [MAP.width / (w + BOX.width), MAP.height / (h + ROW)];
      this.#map ??= this.#paintMap(scale);
      const { canvas, pen } = blankMap(this.#canvas);
      pen.drawImage(this.#map, 0, 0, MAP.width, MAP.height);
      pen.strokeStyle = getComputedStyle(canvas).color;
      pen.strokeRect(
        (-this.#x / this.#scale + BOX.width / 2) * scale[0],
        (-this.#y / this.#scale + ROW / 2) * scale[1],
        (width / this.#scale) * scale[0],
        (height / this.#scale) * scale[1],
      );
    }

    // All boxes, painted once: a move only moves the frame on them.
    #paintMap(scale) {
      const { canvas, pen } = blankMap(document.createElement("canvas"));
      const { bad, good, muted } = colors();
      const [boxWidth, boxHeight] = [
        Math.max(1.5, BOX.width * scale[0]), Math.max(1, BOX.height * scale[1]),
      ];
      for (const item of this.#places.items) {
        const { heat, tone } = this.#describe(item);
        const [x, y] = [(item.x + BOX.width / 2) * scale[0], (item.y + ROW / 2) * scale[1]];
        pen.globalAlpha = 0.3;
        pen.fillStyle = muted;
        pen.fillRect(x, y, boxWidth, boxHeight);
        pen.globalAlpha = heat;
        pen.fillStyle = tone === "better" ? good : bad;
        pen.fillRect(x, y, boxWidth, boxHeight);
      }
      return canvas;
    }

    #goTo(event) {
      const box = this.#canvas.getBoundingClientRect();
      const { width, height } = this.#size();
      const x = ((event.clientX - box.left) / MAP.width) * (this.#places.width + BOX.width);
      const y = ((event.clientY - box.top) / MAP.height) * (this.#places.height + ROW);
      this.#x = width / 2 - (x - BOX.width / 2) * this.#scale;
      this.#y = height / 2 - (y - ROW / 2) * this.#scale;
      this.#render();
    }

    // -- pointers

    #listen() {
      const on = (type, listener, options) =>
        this.#window.addEventListener(type, listener, options);
      on("pointerdown", (event) => this.#press(event));
      on("pointermove", (event) => this.#move(event));
      on("pointerup", (event) => this.#release(event));
      on("pointercancel", (event) => this.#pointers.delete(event.pointerId));
      on("wheel", (event) => this.#wheel(event), { passive: false });
    }

    #press(event) {
      if (event.button) return;
      this.#pointers.set(event.pointerId, event);
      this.#moved = 0;
      if (event.target === this.#canvas) this.#goTo(event);
    }

    #move(event) {
      const last = this.#pointers.get(event.pointerId);
      if (!last) return;
      this.#pointers.set(event.pointerId, event);
      const [dx, dy] = [event.clientX - last.clientX, event.clientY - last.clientY];
      this.#moved += Math.abs(dx) + Math.abs(dy);
      if (this.#moved < CLICK) return;
      // Captured late: a click is that of the box below the pointer.
      this.#window.setPointerCapture(event.pointerId);
      const others = [...this.#pointers.values()].filter((each) => each !== event);
      if (last.target === this.#canvas) this.#goTo(event);
      else if (others.length) this.#pinch(last, event, others[0]);
      else {
        this.#x += dx;
        this.#y += dy;
        this.#render();
      }
    }

    #pinch(last, now, other) {
      const gap = (one) =>
        Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) || 1;
      this.zoom(gap(now) / gap(last), this.#within(other));
    }

    #release(event) {
      const pressed = this.#pointers.delete(event.pointerId);
      if (!pressed || this.#moved >= CLICK || this.#pointers.size) return;
      const index = event.target.closest("[data-item]")?.dataset.item;
      if (index !== undefined) this.#onClick(this.#places.items[Number(index)]);
    }

    // Without the focus the wheel scrolls the page, as it does at the end of the picture.
    #wheel(event) {
      if (event.ctrlKey || event.metaKey) {
        this.zoom(Math.exp(-event.deltaY / 300), this.#within(event));
      } else {
        if (document.activeElement !== this.#window) return;
        const [x, y] = [this.#x, this.#y];
        const factor = event.deltaMode ? 20 : 1;
        this.#x -= event.deltaX * factor;
        this.#y -= event.deltaY * factor;
        this.#render();
        if (x === this.#x && y === this.#y) return;
      }
      event.preventDefault();
    }

    #within(event) {
      const box = this.#window.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    }
  }

  // An empty map, as sharp as the screen.
  function blankMap(canvas) {
    const ratio = window.devicePixelRatio || 1;
    Object.assign(canvas, { width: MAP.width * ratio, height: MAP.height * ratio });
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    return { canvas, pen };
  }

  // The place nearest to `start` at which a length lies within the room.
  function inside(start, length, room) {
    return Math.max(MARGIN, Math.min(room - MARGIN - length, start));
  }

  return { GraphView };
})();
