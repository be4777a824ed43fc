// The spans of a trace on an axis of time, in rows of threads. Those in view, or between two marks, are
// summed up by name.
(() => {
  "use strict";

  const { colorOf, colors, el, onKeys, searchBox } = modelperf;
  const { msText, shareText, sum, timeText, wholeText } = modelperf.figures;
  const { SortableTable, factList, nameText, numberCell, sortableBox } = modelperf.tables;

  const [NS, LANE, HEAD, AXIS] = [1e6, 20, 22, 24];
  // Pixels, nanoseconds in view, rows of a table, and opacity.
  const [CLICK, SHORTEST, MOST_NAMES, FADED] = [5, 200, 15, 0.2];
  const HINT = "Drag to move, pinch or Ctrl and the wheel to zoom, Shift and a drag to mark; a click marks " +
    "a span. Keys: arrows, + and −, 0 for all, N and P for the next and the previous span found, Enter " +
    "to see the marks, Escape to remove them.";
  const ms = (ns) => msText(ns / NS, 3);
  const FIGURES = [["count", "spans", wholeText], ["total", "total ms", ms], ["mean", "mean ms", ms],
    ["own", "own ms", ms], ["share", "share", shareText]];

  // The first place in a lane whose span ends after `ns`. The spans of a lane follow one another.
  function firstAfter(lane, ns) {
    let [low, high] = [0, lane.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      [low, high] = lane[middle].end > ns ? [low, middle] : [middle + 1, high];
    }
    return low;
  }

  function read({ rows, contents, end }) {
    const spans = [];
    let height = AXIS;
    for (const each of contents) each.text = Object.values(each.facts).join("\n").toLowerCase();
    for (const row of rows) {
      Object.assign(row, { top: height, lanes: [] });
      row.start.forEach((start, at) => {
        const [last, of] = [start + row.duration[at], contents[row.content[at]]];
        const span = { start, end: last, own: row.own[at], of, row };
        (row.lanes[row.depth[at]] ??= []).push(span);
        spans.push(span);
      });
      height += HEAD + row.lanes.length * LANE;
    }
    return { rows, spans, height, end };
  }

  function makeTimeline({ rows, spans, height, end }) {
    const view = { low: 0, high: end, marks: null, chosen: null, found: new Set(spans), groups: [] };
    const canvas = el("canvas");
    const box = el("div", { class: "scroll trace-window", tabindex: "0", role: "group",
      style: `height: min(70vh, ${height}px)`, "aria-label": `Spans by thread on an axis of time. ${HINT}` },
    canvas, el("div", { style: `position: absolute; top: 0; width: 1px; height: ${height}px` }));
    const search = searchBox("Find spans", "Find", (words) => {
      view.found = new Set(spans.filter(({ of }) => of.text.includes(words)));
      draw();
    });
    const [details, said] = [el("div", { "aria-live": "polite" }), el("p")];
    const sums = new SortableTable({ class: "cards", kept: "sums",
      sort: { id: "own", isDescending: true }, select: () => view.groups.slice(0, MOST_NAMES) });
    const kinds = new Set(spans.map(({ of }) => of.kind));
    const length = () => view.high - view.low;
    let [frame, moved] = [0, 0];
    function show(low, wanted = length()) {
      const shown = Math.min(end, Math.max(SHORTEST, wanted));
      view.low = Math.max(0, Math.min(end - shown, low));
      view.high = view.low + shown;
      draw();
    }

    const pan = (share) => show(view.low + share * length());
    // Zooms around the time at a share of the width, or else around the marks.
    const zoom = (factor, at = view.marks ? (sum(view.marks) / 2 - view.low) / length() : 0.5) =>
      show(view.low + at * length() * (1 - factor), factor * length());

    function goTo(step) {
      const all = [...view.found];
      const from = all.indexOf(view.chosen);
      const span = all.at(from < 0 ? 0 : (from + step) % all.length);
      if (!span) return;
      const wanted = Math.min(length(), 50 * (span.end - span.start));
      show((span.start + span.end - wanted) / 2, wanted);
      box.scrollTop = span.row.top - AXIS;
      choose(span);
    }

    function choose(span) {
      view.chosen = span;
      view.marks = span ? [span.start, span.end] : null;
      details.replaceChildren(span ? factList(Object.entries({
        ...span.of.facts, thread: span.row.title, start: timeText(span.start / NS, 6),
        duration: timeText((span.end - span.start) / NS, 6), own: timeText(span.own / NS, 6),
      })) : "");
      draw();
    }

    // Once for all changes of a moment.
    const draw = () => { frame ||= requestAnimationFrame(drawNow); };

    function drawNow() {
      frame = 0;
      const { clientWidth: width, clientHeight: tall, scrollTop } = box;
      const ratio = window.devicePixelRatio || 1;
      Object.assign(canvas, { width: width * ratio, height: tall * ratio });
      Object.assign(canvas.style, { width: `${width}px`, height: `${tall}px` });
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      Object.assign(pen, { font: `12px ${getComputedStyle(box).fontFamily}`, textBaseline: "middle" });
      const look = { ...colors(), pen, width, x: (ns) => (ns - view.low) / length() * width };
      for (const kind of kinds) look[kind] = colorOf("--kind", `kind-${kind}`);
      for (const { title, top, lanes } of rows) {
        const y = top - scrollTop;
        if (y > tall || y + HEAD + lanes.length * LANE < 0) continue;
        pen.fillStyle = look.muted;
        pen.fillText(title, 4, y + HEAD / 2);
        lanes.forEach((lane, at) => drawLane(lane, y + HEAD + at * LANE, look));
      }
      drawAxis(look);
      const [low, high] = (view.marks ?? [0, 0]).map(look.x);
      Object.assign(pen, { fillStyle: look.a, globalAlpha: FADED });
      if (view.marks) pen.fillRect(low, 0, Math.max(2, high - low), tall);
      sumUp();
    }

    // Of the spans that share a pixel, only the first is drawn.
    function drawLane(lane, y, { pen, x, width, ...look }) {
      for (let at = firstAfter(lane, view.low); at < lane.length && lane[at].start < view.high;) {
        const { start, end: last, of } = lane[at];
        const left = Math.max(-1, x(start));
        const room = Math.min(width + 1, x(last)) - left;
        Object.assign(pen, { fillStyle: look[of.kind], globalAlpha: view.found.has(lane[at]) ? 1 : FADED });
        pen.fillRect(left, y + 1, Math.max(1, room - 0.5), LANE - 2);
        pen.fillStyle = look.background;
        if (room > 24) pen.fillText(of.label.slice(0, (room - 6) / 6.5), left + 3, y + LANE / 2);
        at = room < 1 ? Math.max(at + 1, firstAfter(lane, start + length() / width)) : at + 1;
      }
      pen.globalAlpha = 1;
    }

    function drawAxis({ pen, x, width, background, muted }) {
      pen.fillStyle = background;
      pen.fillRect(0, 0, width, AXIS);
      pen.fillStyle = muted;
      const least = 90 * length() / width;
      const power = 10 ** Math.floor(Math.log10(least));
      const step = [1, 2, 5, 10].map((digit) => digit * power).find((ns) => ns >= least);
      const decimals = Math.max(0, -Math.floor(Math.log10(step / NS) + 1e-9));
      for (let ns = Math.ceil(view.low / step) * step; ns < view.high; ns += step) {
        pen.fillRect(x(ns), 0, 1, AXIS);
        pen.fillText(`${msText(ns / NS, decimals)} ms`, x(ns) + 4, AXIS / 2);
      }
    }

    function sumUp() {
      const [low, high] = view.marks ?? [view.low, view.high];
      const within = spans.filter((span) => span.start >= low && span.end <= high);
      const whole = sum(within.map(({ own }) => own)) || 1;
      const groups = new Map();
      for (const span of within.filter((each) => view.found.has(each))) {
        const { label: name } = span.of;
        const { count, total, own } = groups.get(name) ?? { count: 0, total: 0, own: 0 };
        const took = span.end - span.start;
        groups.set(name, { name, count: count + 1, total: total + took, own: own + span.own });
      }
      view.groups = [...groups.values()].sort((one, other) => other.own - one.own)
        .map((group) => ({ ...group, mean: group.total / group.count, share: group.own / whole }));
      const [count, own] = ["count", "own"].map((key) => sum(view.groups.map((group) => group[key])));
      said.textContent = `Wholly ${view.marks ? "between the marks" : "in view"}: ${wholeText(count)} of ` +
        `${wholeText(view.found.size)} spans found, ${timeText(own / NS, 3)} without the spans inside, ` +
        `on average ${timeText(own / (count || 1) / NS, 3)}, ${shareText(own / whole)} of all.`;
      sums.update();
    }

    const KEYS = {
      ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoom(0.6), "-": () => zoom(1.6),
      0: () => show(0, end), n: () => goTo(1), p: () => goTo(-1), Escape: () => choose(null),
      Enter: () => view.marks && show(view.marks[0], view.marks[1] - view.marks[0]),
    };

    // The position of a pointer, and the time there.
    const shareAt = ({ clientX }) => (clientX - box.getBoundingClientRect().left) / box.clientWidth;
    const timeAt = (event) => view.low + shareAt(event) * length();
    const pointers = new Map();
    function onMove(event) {
      const last = pointers.get(event.pointerId);
      if (!last) return;
      pointers.set(event.pointerId, { ...last, event });
      moved += Math.abs(event.clientX - last.event.clientX);
      if (moved < CLICK) return;
      box.setPointerCapture(event.pointerId);
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1].event;
      const gap = (one) => Math.abs(one.clientX - other.clientX) || 1;
      if (other) zoom(gap(last.event) / gap(event), shareAt(other));
      else if (event.shiftKey) view.marks = [last.from, timeAt(event)].sort((one, two) => one - two);
      else pan(shareAt(last.event) - shareAt(event));
      draw();
    }

    function onUp(event) {
      if (!pointers.delete(event.pointerId) || moved >= CLICK || pointers.size) return;
      const y = event.clientY - box.getBoundingClientRect().top + box.scrollTop;
      const row = rows.findLast(({ top }) => top <= y);
      const lane = row?.lanes[Math.floor((y - row.top - HEAD) / LANE)] ?? [];
      const span = lane[firstAfter(lane, timeAt(event))];
      choose(span?.start <= timeAt(event) + length() / box.clientWidth ? span : null);
    }

    const listeners = {
      scroll: draw,
      wheel(event) {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        zoom(Math.exp(event.deltaY / 300), shareAt(event));
      },
      pointerdown(event) {
        pointers.set(event.pointerId, { event, from: timeAt(event) });
        moved = 0;
      },
      pointermove: onMove, pointerup: onUp, pointercancel: ({ pointerId }) => pointers.delete(pointerId),
    };
    for (const [type, on] of Object.entries(listeners)) box.addEventListener(type, on, { passive: false });
    onKeys(box, KEYS);
    onKeys(search, { Enter: () => goTo(1) });
    new ResizeObserver(draw).observe(box);
    sums.setColumns([{ id: "name", title: "name", isText: true, read: ({ name }) => name,
      cell: ({ name }) => el("th", { scope: "row" }, nameText(name)) },
    ...FIGURES.map(([id, title, text]) =>
      ({ id, title, read: (group) => group[id], cell: (group) => numberCell(text(group[id])) }))]);
    const buttons = [["Previous", "p"], ["Next", "n"], ["Zoom in", "+"], ["Zoom out", "-"], ["All", "0"]]
      .map(([text, key]) => el("button", { type: "button", text, on: { click: () => KEYS[key]() } }));
    return { draw: drawNow, parts: [el("div", { class: "toolbar" }, search, ...buttons), box,
      el("p", { class: "hint", text: HINT }), said,
      el("div", { class: "trace-both" }, details, sortableBox("Sums by name", sums))] };
  }

  modelperf.charts.chartPart("trace", ({ data: { trace } }) => makeTimeline(read(trace)));
})();
