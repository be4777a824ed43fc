// Where the boxes and lines of a graph are drawn, with some of its stretches folded.
modelperf.graphPlaces = (() => {
  "use strict";

  const BOX = { width: 200, height: 46 };
  const LANE = 228;
  // The width of a lane that only lines pass.
  const PASS = 30;
  const ROW = 78;
  // The room between two columns, in which lines lead up to the next one.
  const GUTTER = 64;
  // The room above the columns for the names of their sides.
  const HEAD = 26;
  // How full each column but the last is at least.
  const FULL = 0.75;
  const STATES = ["same", "changed", "re-fused", "new", "gone"];
  // What is on one side only is hidden on the other.
  const MISSING = [STATES.indexOf("new"), STATES.indexOf("gone")];

  // The largest of numbers, of which null is 0.
  const most = (values) => Math.max(0, ...values);

  const isOnSide = (graph, box, side) => side === null || graph.state[box] !== MISSING[side];

  // The line of the picture that each row is in, and the fold that each line is.
  function linesOf(graph, open) {
    const count = most(graph.rows) + 1;
    const lineOfRow = new Array(count);
    const folds = [];
    let line = 0;
    let fold = 0;
    for (let row = 0; row < count; line += 1) {
      const [first, last] = graph.folds[fold] ?? [count, count];
      const isFold = row === first && !open.has(fold);
      if (isFold) folds[line] = fold;
      const end = isFold ? last : row;
      for (; row <= end; row += 1) lineOfRow[row] = line;
      if (row > last) fold += 1;
    }
    return { lineOfRow, folds, count: line };
  }

  class Places {
    items = [];
    edges = [];
    frames = [];
    heads = [];
    lines = [];
    width = 0;
    height;
    // The item that shows a box, by side.
    #shown = [];

    // `open` has the stretches that are not folded; `isApart` draws each side by itself. `modules`
    // has the name of the module that each box is of, or null. `room` is the size of the window.
    constructor(graph, open, isApart, modules, room) {
      const { lineOfRow, folds, count } = linesOf(graph, open);
      const lanes = Math.max(most(graph.lane), most(graph.way)) + 1;
      for (const side of isApart ? [0, 1] : [null]) {
        this.#placeSide(graph, side, { lineOfRow, folds, left: side ? lanes : 0 });
      }
      const used = new Set(this.items.map(({ x }) => x)).size;
      this.#placeColumns(this.#starts(count, used, room), lanes, isApart ? HEAD : 0);
      for (const shown of this.#shown) {
        this.#frame("module", modules, shown, 10);
        this.#frame("part", graph.part, shown, 9);
      }
      this.height = most(this.items.map(({ y }) => y)) + BOX.height;
    }

    // The first line of each column. A picture that is taller than its window goes on in the next column,
    // so that it gets the form of the window. It is split at the place that the fewest lines cross.
    #starts(count, lanes, { width, height }) {
      const fitting = Math.sqrt((count * lanes * LANE * height) / (ROW * width));
      const rows = Math.floor(Math.max(height / ROW, fitting));
      if (count <= rows || width < 2 * LANE) return [0];
      const crossing = new Array(count + 1).fill(0);
      for (const { from, to } of this.edges) {
        for (let line = from.line + 1; line <= to.line; line += 1) crossing[line] += 1;
      }
      const longest = Math.ceil(count / Math.ceil(count / rows));
      const starts = [0];
      while (count - starts.at(-1) > longest) {
        let best = starts.at(-1) + longest;
        const least = best - (1 - FULL) * longest;
        for (let line = best; line >= least; line -= 1) {
          if (crossing[line] < crossing[best]) best = line;
        }
        starts.push(best);
      }
      return starts;
    }

    // Folded parts leave lanes empty, so the lanes that a column uses move together. A line to another
    // column leads through the gutter before it.
    #placeColumns(starts, lanes, top) {
      const columnOf = ({ line }) => starts.findLastIndex((start) => start <= line);
      const columns = starts.map(() => ({ items: [], used: new Set() }));
      for (const item of this.items) {
        item.column = columnOf(item);
        columns[item.column].items.push(item);
        columns[item.column].used.add(item.x);
      }
      const isWithin = ({ from, to }) => from.column === to.column;
      for (const edge of this.edges) {
        if (isWithin(edge) && edge.way !== null) columns[edge.from.column].used.add(edge.way);
      }
      columns.forEach((column, at) => {
        column.left = at && this.width + GUTTER;
        const boxes = new Set(column.items.map(({ x }) => x));
        const used = [...column.used].sort((one, other) => one - other);
        column.x = new Map();
        let end = column.left;
        for (const lane of used) {
          if (lane === used.find((each) => each >= lanes)) end += LANE / 2;
          column.x.set(lane, boxes.has(lane) ? end : end + (PASS - LANE) / 2);
          end += boxes.has(lane) ? LANE : PASS;
        }
        this.width = end - LANE + BOX.width;
        for (const item of column.items) {
          item.line -= starts[at];
          Object.assign(item, { x: column.x.get(item.x), y: top + item.line * ROW });
          (this.lines[item.line] ??= []).push(item);
        }
        const isOf = (side) => (item) => item.side === side;
        for (const side of [0, 1].filter((each) => column.items.some(isOf(each)))) {
          const own = column.items.filter(isOf(side)).sort((one, other) => one.y - other.y);
          this.heads.push({ side, x: own[0].x, y: top });
        }
      });
      for (const edge of this.edges) {
        const { x, left } = columns[edge.to.column];
        edge.gutter = isWithin(edge) ? null : left - GUTTER / 2;
        edge.way = edge.gutter === null ? x.get(edge.way) ?? null : null;
      }
    }

    itemOf(box, side) {
      return this.#shown[side ?? 0]?.[box];
    }

    #placeSide(graph, side, { lineOfRow, folds, left }) {
      const shown = new Array(graph.rows.length);
      const ofFolds = new Map();
      for (let box = 0; box < shown.length; box += 1) {
        if (!isOnSide(graph, box, side)) continue;
        const line = lineOfRow[graph.rows[box]];
        const fold = folds[line];
        if (fold === undefined) shown[box] = this.#add({ box, side, line }, graph.lane[box], left);
        else if (ofFolds.has(fold)) shown[box] = ofFolds.get(fold);
        else {
          shown[box] = this.#add({ fold, side, line, boxes: [] }, graph.lane[box], left);
          ofFolds.set(fold, shown[box]);
        }
        shown[box].boxes?.push(box);
      }
      this.#shown[side ?? 0] = shown;
      this.#connect(graph, side, shown, left);
    }

    #add(item, lane, left) {
      Object.assign(item, { x: left + lane, feeders: [], readers: [] });
      item.index = this.items.push(item) - 1;
      return item;
    }

    #connect(graph, side, shown, left) {
      const seen = new Set();
      graph.inputs.forEach((feeders, box) => {
        const to = shown[box];
        for (const feeder of feeders) {
          const from = shown[feeder];
          const only = onlySide(graph, feeder, box);
          if (!from || !to || from === to || (side !== null && only === 1 - side)) continue;
          const way = graph.way[feeder];
          const isLong = to.line - from.line > 1 && way !== null;
          const x = isLong ? left + way : null;
          const key = `${from.index} ${to.index} ${x} ${only}`;
          if (seen.has(key)) continue;
          seen.add(key);
          this.edges.push({ from, to, only, way: x });
          from.readers.push(to);
          to.feeders.push(from);
        }
      });
    }

    // A frame around the boxes of each group in each column. A module has one around each stretch
    // of its lines without an item of others.
    #frame(kind, groups, shown, margin) {
      const own = new Map();
      shown.forEach((item, box) => {
        if (item) own.set(item, own.has(item) && own.get(item) !== groups[box] ? null : groups[box]);
      });
      const items = [...own.keys()].sort((one, other) => one.column - other.column || one.y - other.y);
      for (const group of new Set([...own.values()].filter((each) => each !== null))) {
        const isOther = (item, { x, y, right, bottom }) => own.get(item) !== group &&
          item.x >= x && item.x <= right && item.y >= y && item.y <= bottom;
        const areas = [];
        for (const { x, y, column } of items.filter((item) => own.get(item) === group)) {
          const last = areas.at(-1) ?? {};
          const grown = { ...last, x: Math.min(last.x, x), right: Math.max(last.right, x), bottom: y };
          const isWithin = last.column === column &&
            (kind === "part" || !items.some((item) => isOther(item, grown)));
          if (isWithin) areas.pop();
          areas.push(isWithin ? grown : { column, x, y, right: x, bottom: y });
        }
        for (const { x, y, right, bottom } of areas) {
          if (kind === "module" && y === bottom) continue;
          this.frames.push({
            [kind]: group, x: x - margin, y: y - margin,
            width: right - x + BOX.width + 2 * margin, height: bottom - y + BOX.height + 2 * margin,
          });
        }
      }
    }
  }

  // The side that alone has a line; null if both have it.
  function onlySide(graph, feeder, box) {
    const isAlone = (side) => [graph.state[feeder], graph.state[box]].includes(MISSING[1 - side]) ||
      graph.only?.[side][box]?.includes(feeder);
    return [0, 1].find(isAlone) ?? null;
  }

  // From the bottom of a box to the top of another, around the boxes between.
  function pathOf({ from, to, way, gutter }) {
    const half = BOX.width / 2;
    const [x0, y0] = [from.x + half, from.y + BOX.height];
    const [x1, y1] = [to.x + half, to.y];
    const gap = ROW - BOX.height;
    if (gutter !== null) {
      return `M${x0} ${y0}V${y0 + gap / 2}H${gutter}V${y1 - gap / 2}H${x1}V${y1}`;
    }
    if (way === null) return `M${x0} ${y0}${curve(x0, y0, x1, y1)}`;
    const x = way + half;
    return `M${x0} ${y0}${curve(x0, y0, x, y0 + gap)}V${y1 - gap}${curve(x, y1 - gap, x1, y1)}`;
  }

  function curve(x0, y0, x1, y1) {
    if (x0 === x1) return `V${y1}`;
    const middle = (y0 + y1) / 2;
    return `C${x0} ${middle} ${x1} ${middle} ${x1} ${y1}`;
  }

  return { BOX, LANE, ROW, STATES, Places, pathOf };
})();
