// The sections about layers: by type, by depth, one by one, and by precision.
(() => {
  "use strict";

  const { chartText, el, format } = modelperf;

  const UNKNOWN = "–";
  const NOT_EXECUTED = "not executed";
  const IN_ANOTHER = "in another kernel";
  const NO_PRECISION = "unknown";

  // What the sections ask of each other: the depth chart and the transitions act on the kernels.
  const shared = { kernels: null, repaintTypes: () => {}, repaintDepth: () => {} };

  // -- figures and their texts

  const isKnown = (value) => value !== null && value !== undefined;
  const known = (values) => values.filter(isKnown);
  const largest = (values) => (known(values).length ? Math.max(...known(values)) : null);
  const latest = (values) => known(values).at(-1) ?? null;
  const sum = (values) => known(values).reduce((total, value) => total + value, 0);

  // All times of a table have as many decimals, so that they can be compared by eye.
  function decimalsFor(totalMs) {
    if (!totalMs) return 3;
    return Math.min(6, Math.max(3, 3 - Math.floor(Math.log10(totalMs))));
  }

  function msText(value, decimals) {
    return isKnown(value) ? value.toFixed(decimals).replace("-", "−") : UNKNOWN;
  }

  function timeText(value, decimals) {
    return isKnown(value) ? `${msText(value, decimals)} ms` : UNKNOWN;
  }

  function changeText(value, decimals) {
    if (!isKnown(value)) return UNKNOWN;
    const text = Math.abs(value).toFixed(decimals);
    if (Number(text) === 0) return text;
    return (value < 0 ? "−" : "+") + text;
  }

  const shareText = (value) => (isKnown(value) ? `${(100 * value).toFixed(1)} %` : UNKNOWN);
  const ratioText = (value) => (isKnown(value) ? `${value.toFixed(3)}x` : UNKNOWN);
  const countText = (value) => (isKnown(value) ? format.count(value) : UNKNOWN);
  const wholeText = (value) => (isKnown(value) ? value.toLocaleString("en") : UNKNOWN);

  function rangeText(interval, decimals) {
    if (!interval) return "";
    return interval.map((bound) => changeText(bound, decimals)).join(" … ");
  }

  // An interval that holds no 0 says that the change is no chance.
  const isSure = (interval) => Boolean(interval) && (interval[0] > 0 || interval[1] < 0);

  function tone(value, interval) {
    if (!isSure(interval)) return "";
    return value > 0 ? "worse" : "better";
  }

  // Names may hold what turns the direction of writing; an element of their own keeps it inside.
  const nameText = (text) => el("bdi", { text });

  const note = (text) => el("p", { class: "layers-note", text });

  const sideLabel = (view, side) => view.sides[side].label;
  const hasTwo = (view) => view.sides.length === 2;
  const sideIndexes = (view) => view.sides.map((_, side) => side);

  const sideTag = (view, side) =>
    el("span", { class: `side side-${side ? "b" : "a"}`, text: sideLabel(view, side) });

  // -- tables that can be sorted

  // Digits are compared as numbers, so that layer2 comes before layer10.
  const textKey = (text) =>
    text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0"));

  // What is not known is last in both directions; what is equal keeps its order.
  function sortedBy(rows, read, isDescending) {
    const sign = isDescending ? -1 : 1;
    const keyed = rows.map((row) => {
      const value = read(row);
      return { row, key: typeof value === "string" ? textKey(value) : value };
    });
    keyed.sort((one, other) => {
      if (!isKnown(one.key) || !isKnown(other.key)) return isKnown(other.key) - isKnown(one.key);
      if (one.key === other.key) return 0;
      return one.key < other.key ? -sign : sign;
    });
    return keyed.map(({ row }) => row);
  }

  // A head of columns; those with `read` sort, text first upwards and numbers first downwards.
  function sortableHead(columns, sort, onSort) {
    const cells = columns.map((column) => headCell(column, sort, pick));
    function pick(column) {
      const isAgain = sort.id === column.id;
      sort.isDescending = isAgain ? !sort.isDescending : !column.isText;
      sort.id = column.id;
      cells.forEach((cell, index) => markSorted(cell, columns[index], sort));
      onSort();
    }
    return el("thead", {}, el("tr", {}, ...cells));
  }

  function headCell(column, sort, pick) {
    const cell = el("th", { scope: "col", class: column.isText ? "text" : "number" });
    if (column.note) cell.title = column.note;
    if (column.read) {
      const press = () => pick(column);
      const attributes = { type: "button", text: column.title, "data-column": column.id };
      cell.append(el("button", { ...attributes, class: "sort", on: { click: press } }));
    } else {
      cell.append(column.title);
    }
    markSorted(cell, column, sort);
    return cell;
  }

  function markSorted(cell, column, sort) {
    if (column.id === sort.id && column.read) {
      cell.setAttribute("aria-sort", sort.isDescending ? "descending" : "ascending");
    } else {
      cell.removeAttribute("aria-sort");
    }
  }

  // A table that is wider than the page scrolls in its own box, by keys as well.
  function scrollBox(label, table) {
    const attributes = { class: "layers-scroll", role: "region", "aria-label": label };
    return el("div", { ...attributes, tabindex: "0" }, table);
  }

  // -- small controls

  function tickBox(label, isOn, onChange, attributes = {}) {
    const box = el("input", { type: "checkbox", ...attributes });
    box.checked = isOn;
    box.addEventListener("change", () => onChange(box.checked));
    return el("label", { class: "tick" }, box, el("span", { text: label }));
  }

  const choice = (label, options, chosen, onChange) =>
    modelperf.toggle(label, options.map((option) => [option, option]), chosen, onChange);

  // A list to choose several of, behind a button that says which are chosen.
  function manyOf(title, counts, chosen, onChange) {
    const summary = el("summary", {});
    const say = () => {
      const few = chosen.size <= 2 ? [...chosen].join(", ") : `${chosen.size} chosen`;
      summary.textContent = `${title}: ${few || "all"}`;
      summary.classList.toggle("active", chosen.size > 0);
    };
    const boxes = [...counts].map(([value, count]) => {
      const change = (isOn) => {
        if (isOn) chosen.add(value);
        else chosen.delete(value);
        say();
        onChange();
      };
      const label = tickBox(value, chosen.has(value), change, { value });
      label.append(el("small", { text: wholeText(count) }));
      return label;
    });
    say();
    return el("details", { class: "pick" }, summary, el("div", { class: "choices" }, ...boxes));
  }

  // An open list closes as a menu does.
  function closeLists(except) {
    for (const list of document.querySelectorAll("details.pick[open]")) {
      if (!except || !list.contains(except)) list.open = false;
    }
  }
  document.addEventListener("pointerdown", (event) => closeLists(event.target));
  document.addEventListener("focusin", (event) => closeLists(event.target));
  document.addEventListener("keydown", (event) => {
    const list = event.key === "Escape" && event.target.closest?.("details.pick[open]");
    if (!list) return;
    list.open = false;
    list.querySelector("summary").focus();
  });

  // -- by type

  const TICK_NOTE = "in the distribution";
  const TYPE_COLUMNS = [
    { id: "type", title: "layer type", isText: true, read: (row) => row.type },
    { id: "ms", title: "ms", needsTimes: true, read: (row) => largest(row.ms) },
    {
      id: "shares",
      title: "share",
      needsTimes: true,
      note: "of the time of its side",
      read: (row) => largest(row.shares),
    },
    {
      id: "change",
      title: "change, ms",
      needsTimes: true,
      needsTwo: true,
      read: (row) => row.change_ms,
    },
    {
      id: "explains",
      title: "explains",
      needsTimes: true,
      needsTwo: true,
      note: "its share of the whole difference",
      read: (row) => row.explains,
    },
    { id: "counts", title: "layers", read: (row) => largest(row.counts) },
    {
      id: "precisions",
      title: "by precision",
      isText: true,
      read: (row) => latest(row.precisions.map(precisionsText)),
    },
    { id: "macs", title: "MACs", read: (row) => largest(row.macs) },
    { id: "params", title: "params", read: (row) => largest(row.params) },
  ];

  function precisionsText(counts) {
    const entries = Object.entries(counts ?? {}).sort((one, other) => other[1] - one[1]);
    return entries.length ? entries.map(([name, n]) => `${name} ${n}`).join(", ") : null;
  }

  class TypeSummary {
    #view;
    #types;
    #hasTimes;
    #decimals;
    #columns;
    #sort;
    #ticked;
    #table;
    #boxes = new Map();
    #chart = el("div", { class: "plot" });
    #emptyChart = note("No type is ticked.");

    constructor(view) {
      this.#view = view;
      this.#types = view.case.types;
      this.#hasTimes = this.#types.some((type) => known(type.ms).length > 0);
      this.#decimals = decimalsFor(this.#totalMs());
      this.#columns = TYPE_COLUMNS.filter(
        (column) =>
          (!column.needsTimes || this.#hasTimes) && (!column.needsTwo || hasTwo(view)),
      );
      this.#sort = { id: this.#hasTimes ? "ms" : "macs", isDescending: true };
      this.#ticked = new Set(this.#types);
    }

    draw(root) {
      const head = [{ id: "tick", title: "", note: TICK_NOTE, isText: true }, ...this.#columns];
      if (hasTwo(this.#view)) head.splice(2, 0, { id: "side", title: "", isText: true });
      if (!this.#hasTimes) head.shift();
      const heads = sortableHead(head, this.#sort, () => this.#fill());
      this.#table = el("table", { class: "types-table" }, heads);
      const box = scrollBox("layer types", this.#table);
      this.#bodies = new Map(this.#types.map((type) => [type, this.#body(type)]));
      this.#fill();
      if (!this.#hasTimes) {
        root.replaceChildren(box);
        return;
      }
      const distribution = el(
        "figure",
        { class: "types-chart" },
        this.#allOrNone(),
        this.#chart,
        this.#emptyChart,
      );
      root.replaceChildren(el("div", { class: "types-both" }, box, distribution));
      this.repaint();
    }

    #bodies;

    #totalMs() {
      const sides = sideIndexes(this.#view);
      return largest(sides.map((side) => sum(this.#types.map(({ ms }) => ms[side]))));
    }

    #fill() {
      const column = this.#columns.find(({ id }) => id === this.#sort.id);
      const order = sortedBy(this.#types, column.read, this.#sort.isDescending);
      this.#table.append(...order.map((type) => this.#bodies.get(type)));
    }

    #body(type) {
      const sides = sideIndexes(this.#view);
      const rows = sides.map((side) => el("tr", {}, ...this.#cells(type, side)));
      const body = el("tbody", { class: type.is_layer ? "" : "beside" }, ...rows);
      body.dataset.type = type.type;
      return body;
    }

    // Cells of the whole type stand in the line of its first side and reach down to the last.
    #cells(type, side) {
      const both = this.#view.sides.length;
      const isFirst = side === 0;
      const cells = [];
      if (isFirst && this.#hasTimes) {
        cells.push(el("td", { class: "tick-cell", rowspan: both }, this.#tick(type)));
      }
      if (isFirst) {
        const name = el("th", { scope: "rowgroup", rowspan: both, class: "text" });
        name.append(nameText(type.type));
        if (!type.is_layer) name.append(el("small", { text: "beside the layers" }));
        cells.push(name);
      }
      if (hasTwo(this.#view)) cells.push(el("td", { class: "text" }, sideTag(this.#view, side)));
      for (const column of this.#columns.slice(1)) {
        if (!column.needsTwo || isFirst) cells.push(this.#cell(column, type, side));
      }
      return cells;
    }

    #cell(column, type, side) {
      switch (column.id) {
        case "counts":
          return numberCell(wholeText(type.counts[side]));
        case "precisions":
          return el("td", {
            class: "text",
            text: precisionsText(type.precisions[side]) ?? UNKNOWN,
          });
        case "ms":
          return numberCell(msText(type.ms[side], this.#decimals));
        case "shares":
          return shareCell(type.shares[side], side);
        case "change":
          return changeCell(type, this.#decimals, { rowspan: this.#view.sides.length });
        case "explains":
          return numberCell(shareText(type.explains), { rowspan: this.#view.sides.length });
        default:
          return numberCell(countText(type[column.id][side]));
      }
    }

    #tick(type) {
      const box = el("input", { type: "checkbox", title: TICK_NOTE, checked: true });
      box.setAttribute("aria-label", `${type.type} ${TICK_NOTE}`);
      box.addEventListener("change", () => {
        if (box.checked) this.#ticked.add(type);
        else this.#ticked.delete(type);
        this.repaint();
      });
      this.#boxes.set(type, box);
      return box;
    }

    #allOrNone() {
      const set = (isOn) => () => {
        this.#ticked = new Set(isOn ? this.#types : []);
        for (const box of this.#boxes.values()) box.checked = isOn;
        this.repaint();
      };
      return el(
        "figcaption",
        {},
        el("span", { text: "Time of the ticked types" }),
        el("button", { type: "button", text: "all", on: { click: set(true) } }),
        el("button", { type: "button", text: "none", on: { click: set(false) } }),
      );
    }

    repaint() {
      if (!this.#hasTimes) return;
      const timed = this.#types.filter(({ ms }) => known(ms).length > 0);
      const shown = timed.filter((type) => this.#ticked.has(type));
      this.#emptyChart.hidden = shown.length > 0;
      this.#chart.hidden = shown.length === 0;
      if (!shown.length) return;
      const order = sortedBy(shown, (type) => largest(type.ms), true);
      const traces = sideIndexes(this.#view).map((side) => this.#trace(order, side));
      // The figures stand beside the bars.
      const widest = 1.3 * largest(traces.flatMap(({ x }) => x));
      const lines = order.length * (hasTwo(this.#view) ? 34 : 24);
      modelperf.plot(this.#chart, traces, {
        height: lines + 90,
        barmode: "group",
        bargap: 0.3,
        margin: { l: 8, r: 8, t: 28, b: 32 },
        xaxis: {
          tickformat: ".0%",
          tickangle: 0,
          nticks: 4,
          range: [0, widest || 1],
          fixedrange: true,
        },
        yaxis: {
          type: "category",
          autorange: "reversed",
          automargin: true,
          fixedrange: true,
          // A long name would leave no room for the bars.
          tickvals: order.map(({ type }) => chartText(type)),
          ticktext: order.map(({ type }) => chartText(shortened(type))),
        },
        showlegend: hasTwo(this.#view),
        legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal" },
      });
    }

    #trace(types, side) {
      const total = sum(types.map((type) => type.ms[side]));
      const shares = types.map((type) =>
        isKnown(type.ms[side]) && total ? type.ms[side] / total : null,
      );
      return {
        type: "bar",
        orientation: "h",
        name: chartText(sideLabel(this.#view, side) || "share"),
        y: types.map((type) => chartText(type.type)),
        x: shares,
        text: shares.map((share) => (isKnown(share) ? shareText(share) : "")),
        textposition: "outside",
        cliponaxis: false,
        hoverinfo: "text",
        hovertext: types.map((type, index) =>
          [
            [type.type, sideLabel(this.#view, side)].filter(Boolean).map(chartText).join(", "),
            `${shareText(shares[index])} of the ticked, ${timeText(type.ms[side], this.#decimals)}`,
          ].join("<br>"),
        ),
        marker: sideMarker(this.#view, side),
      };
    }
  }

  const LONGEST_LABEL = 18;

  function shortened(text) {
    return text.length > LONGEST_LABEL ? `${text.slice(0, LONGEST_LABEL - 1)}…` : text;
  }

  // A side is known by its colour, and without colours by its hatching.
  function sideMarker(view, side) {
    const { a, b, background } = modelperf.colors();
    const isHatched = hasTwo(view) && side === 0;
    const stripes = { size: 6, solidity: 0.2, fillmode: "overlay", fgcolor: background };
    return { color: side ? b : a, pattern: { shape: isHatched ? "/" : "", ...stripes } };
  }

  function numberCell(text, attributes = {}) {
    return el("td", { class: "number", text, ...attributes });
  }

  function shareCell(share, side) {
    const cell = numberCell("");
    const bar = el("span", { class: `share-bar side-${side ? "b" : "a"}`, "aria-hidden": "true" });
    bar.style.setProperty("--share", Math.max(0, Math.min(1, share ?? 0)));
    cell.classList.add("share");
    const line = el("span", { class: "share-line" }, isKnown(share) ? bar : null);
    line.append(shareText(share));
    cell.append(line);
    return cell;
  }

  function changeCell({ change_ms: ms, change_interval_ms: interval }, decimals, attributes = {}) {
    const cell = numberCell("", attributes);
    cell.classList.add("change");
    const mark = tone(ms, interval);
    cell.append(el("span", { class: mark, text: changeText(ms, decimals) }));
    if (interval) cell.append(el("small", { text: rangeText(interval, decimals) }));
    return cell;
  }

  // Once for all sections; a sweep has no cases, and says nothing of layers.
  function sayWhyNot(root, view) {
    if (view.case) modelperf.say(root, "Nothing is known of the layers of this case.");
    else modelperf.hide(root);
  }

  modelperf.section("types", {
    draw(root, view) {
      shared.repaintTypes = () => {};
      if (!view.case?.types.length) {
        sayWhyNot(root, view);
        return;
      }
      const summary = new TypeSummary(view);
      summary.draw(root);
      shared.repaintTypes = () => summary.repaint();
    },
    redraw: () => shared.repaintTypes(),
  });

  // -- what is known of one layer on each side

  // Where a layer ran: in what precision, or why it has none of its own.
  function placeOf(layer, side) {
    if (!isThere(layer, side)) return NOT_EXECUTED;
    if (!hasTimeOfItsOwn(layer, side)) return layer.states[side];
    return layer.precisions[side] ?? NO_PRECISION;
  }

  const isThere = (layer, side) => layer.states[side] !== "not there";

  // Where nothing was measured every layer stands for itself.
  const hasTimeOfItsOwn = (layer, side) => ["ran", "not measured"].includes(layer.states[side]);

  // Of a layer without a time of its own: why.
  function whyNoTime(layer, side) {
    if (!isThere(layer, side)) return NOT_EXECUTED;
    const host = layer.runs_in[side];
    return host ? `in ${host}` : layer.states[side];
  }

  function titleOf(layer, side) {
    return layer.names[side] ?? layer.type;
  }

  // Each name once, that of A first.
  function namesOf(layer) {
    const names = [...new Set(known(layer.names))];
    return names.length ? names : [layer.type];
  }

  function deltaOf(layer) {
    if (isKnown(layer.change_ms)) return layer.change_ms;
    const [before, after] = layer.ms;
    return isKnown(before) && isKnown(after) ? after - before : null;
  }

  function ratioOf(layer) {
    const [before, after] = layer.ms;
    return before && isKnown(after) ? after / before : null;
  }

  // Names differ wherever an exporter counts differently, so they make no difference by themselves.
  const PARAMETERS = [
    { name: "precision", read: (layer, side) => layer.precisions[side] },
    { name: "provider", read: (layer, side) => layer.providers[side] },
    { name: "inputs", read: (layer, side) => layer.inputs[side] },
    { name: "outputs", read: (layer, side) => layer.outputs[side] },
    { name: "MACs", read: (layer, side) => layer.macs[side] },
    { name: "params", read: (layer, side) => layer.params[side] },
    { name: "weight", isName: true, read: (layer, side) => layer.weights[side] },
    { name: "kernel", isName: true, read: (layer, side) => layer.kernels[side] },
  ];

  // The parameters of a layer on the sides that have it, one value a side, unset ones left out.
  function parametersOf(layer) {
    const attributes = new Set(layer.attributes.flatMap((set) => Object.keys(set ?? {})));
    const read = (name) => (_, side) => layer.attributes[side]?.[name];
    const all = [
      ...[...attributes].sort().map((name) => ({ name, read: read(name) })),
      ...PARAMETERS,
    ];
    return all
      .map(({ name, isName = false, read: value }) => {
        const values = layer.names.map((__, side) => value(layer, side) ?? null);
        return { name, isName, values, isDifferent: new Set(values).size > 1 };
      })
      .filter(({ values }) => known(values).length > 0);
  }

  const fusedTypes = (layers) => (layers ?? []).map(({ type }) => type).sort().join("\n");

  function differs(layer) {
    if (new Set(layer.states).size > 1 || isSure(layer.change_interval_ms)) return true;
    if (new Set(layer.fused.map(fusedTypes)).size > 1) return true;
    return parametersOf(layer).some(({ isName, isDifferent }) => isDifferent && !isName);
  }

  // -- filters of the kernels

  const emptyFilter = () => ({
    text: "",
    types: new Set(),
    precisions: new Set(),
    limits: new Map(),
    onlyDifferences: false,
    transition: null,
  });

  function matches(row, filter, measures) {
    if (filter.text && !row.searched.includes(filter.text)) return false;
    if (filter.types.size && !filter.types.has(row.layer.type)) return false;
    if (filter.precisions.size && !row.places.some((place) => filter.precisions.has(place))) {
      return false;
    }
    if (filter.onlyDifferences && !row.differs) return false;
    if (filter.transition && !isTransition(row, filter.transition)) return false;
    return measures.every((measure) => isWithin(measure.read(row), filter.limits.get(measure.id)));
  }

  const isTransition = ({ places }, [before, after]) =>
    places[0] === before && places[1] === after;

  function isWithin(value, limit) {
    if (!limit || (!isKnown(limit.least) && !isKnown(limit.most))) return true;
    if (!isKnown(value)) return false;
    return value >= (limit.least ?? -Infinity) && value <= (limit.most ?? Infinity);
  }

  class KernelFilters {
    element = el("div", { class: "filters" });
    filter = emptyFilter();
    #rows;
    #measures;
    #onChange;
    #shown = el("output", { class: "shown" });
    #total;

    constructor(rows, measures, onChange) {
      this.#rows = rows;
      this.#measures = measures;
      this.#onChange = onChange;
      this.#total = wholeText(rows.length);
      this.#build();
    }

    select() {
      return this.#rows.filter((row) => matches(row, this.filter, this.#measures));
    }

    say(count) {
      this.#shown.textContent = `${wholeText(count)} of ${this.#total}`;
    }

    replace(filter) {
      this.filter = { ...emptyFilter(), ...filter };
      this.#build();
      this.#onChange();
    }

    #build() {
      const clear = { type: "button", class: "clear", text: "clear all" };
      this.element.replaceChildren(
        this.#search(),
        manyOf("type", this.#counts((row) => [row.layer.type]), this.filter.types, this.#onChange),
        manyOf(
          "precision",
          this.#counts((row) => new Set(row.places)),
          this.filter.precisions,
          this.#onChange,
        ),
        this.#numbers(),
        ...this.#ofTwoSides(),
        el("button", { ...clear, on: { click: () => this.replace({}) } }),
        this.#shown,
      );
    }

    // The most frequent first.
    #counts(read) {
      const counts = new Map();
      for (const row of this.#rows) {
        for (const value of read(row)) counts.set(value, (counts.get(value) ?? 0) + 1);
      }
      return [...counts].sort((one, other) => other[1] - one[1]);
    }

    #search() {
      const box = el("input", { type: "search", placeholder: "name" });
      box.setAttribute("aria-label", "name contains");
      box.value = this.filter.text;
      box.addEventListener("input", () => {
        this.filter.text = box.value.trim().toLowerCase();
        this.#onChange();
      });
      return box;
    }

    #numbers() {
      const summary = el("summary", {});
      const say = () => {
        const count = this.filter.limits.size;
        summary.textContent = count ? `numbers: ${count}` : "numbers: all";
        summary.classList.toggle("active", count > 0);
      };
      const lines = this.#measures.map((measure) => {
        const least = this.#bound(measure, "least", say);
        const most = this.#bound(measure, "most", say);
        return el("div", { class: "limits" }, el("span", { text: measure.title }), least, most);
      });
      say();
      const list = el("div", { class: "choices" }, ...lines);
      return el("details", { class: "pick" }, summary, list);
    }

    #bound(measure, bound, say) {
      const words = `at ${bound}`;
      const box = el("input", { type: "number", step: "any", placeholder: words });
      box.setAttribute("aria-label", `${measure.title} ${words}`);
      box.value = this.filter.limits.get(measure.id)?.[bound] ?? "";
      box.addEventListener("input", () => {
        const value = Number.isNaN(box.valueAsNumber) ? null : box.valueAsNumber;
        const limit = { ...this.filter.limits.get(measure.id), [bound]: value };
        if (known(Object.values(limit)).length) this.filter.limits.set(measure.id, limit);
        else this.filter.limits.delete(measure.id);
        say();
        this.#onChange();
      });
      return box;
    }

    #ofTwoSides() {
      if (!this.#rows[0].isPair) return [];
      const change = (isOn) => {
        this.filter.onlyDifferences = isOn;
        this.#onChange();
      };
      const tick = tickBox("only differences", this.filter.onlyDifferences, change);
      tick.title =
        "runs on one side only, has other parameters (names apart), or its time surely changed";
      if (!this.filter.transition) return [tick];
      const chip = {
        type: "button",
        class: "chip",
        title: "show all precisions again",
        text: `${this.filter.transition.join(" → ")}  ×`,
        on: { click: () => this.replace({ ...this.filter, transition: null }) },
      };
      return [tick, el("button", chip)];
    }
  }

  // -- the table of kernels: only the rows in view are in the document

  const MARGIN_ROWS = 12;
  const PRINTED_ROWS = 100;

  class KernelTable {
    element;
    #view;
    #decimals;
    #columns;
    #sort;
    #rows;
    #shown = [];
    #filters;
    #details;
    #window;
    #table;
    #body = el("tbody", {});
    #none = note("No layer is like that.");
    #printNote = el("p", { class: "print-note" });
    #rowHeight = 30;
    #drawn = "";
    #isOnPaper = false;
    #current = null;

    constructor(view) {
      this.#view = view;
      this.#rows = view.case.layers.map((layer) => kernelRow(layer));
      const totals = sideIndexes(view).map((side) => sum(view.case.layers.map((l) => l.ms[side])));
      this.#decimals = decimalsFor(largest(totals));
      this.#columns = kernelColumns(view, this.#decimals);
      const hasTimes = totals.some((total) => total > 0);
      const first = hasTwo(view) ? "delta" : "ms-0";
      this.#sort = { id: hasTimes ? first : "depth", isDescending: hasTimes };
      const measures = this.#columns.filter((column) => column.isMeasure);
      this.#filters = new KernelFilters(this.#rows, measures, () => this.#update());
      this.#details = new LayerDetails(view, this.#decimals, {
        close: () => this.#close(),
        show: (name, side) => this.#openNamed(name, side),
      });
      this.#build();
    }

    // Shows the details of a layer, past any filter that hides it.
    open(layer) {
      const row = this.#rows.find((one) => one.layer === layer);
      if (!row) return;
      if (!this.#shown.includes(row)) this.#filters.replace({});
      this.#openRow(row);
      this.element.scrollIntoView({ block: "nearest" });
    }

    showTransition(before, after) {
      this.#filters.replace({ transition: [before, after] });
      this.element.closest("section")?.scrollIntoView({ block: "start" });
      this.#table.focus({ preventScroll: true });
    }

    showForPrint() {
      this.#isOnPaper = true;
      const printed = this.#shown.slice(0, PRINTED_ROWS);
      this.#body.replaceChildren(...printed.map((row, index) => this.#row(row, index)));
      const left = this.#shown.length - printed.length;
      this.#printNote.textContent = left
        ? `The first ${PRINTED_ROWS} of ${wholeText(this.#shown.length)} layers.`
        : "";
    }

    showForScreen() {
      this.#isOnPaper = false;
      this.#draw();
    }

    #build() {
      const head = sortableHead(this.#columns, this.#sort, () => this.#update());
      const widths = this.#columns.map((column) => el("col", { class: `width-${column.width}` }));
      this.#table = el(
        "table",
        { class: "kernels-table", role: "grid", tabindex: "0", "aria-label": "layers" },
        el("colgroup", {}, ...widths),
        head,
        this.#body,
      );
      this.#table.addEventListener("keydown", (event) => this.#onKey(event));
      this.#body.addEventListener("click", (event) => this.#onClick(event));
      this.#window = el("div", { class: "layers-scroll kernels-window" }, this.#table, this.#none);
      this.#window.classList.add(hasTwo(this.#view) ? "two-sides" : "one-side");
      if (this.#rows.some(({ names }) => names.length > 1)) this.#window.classList.add("two-lines");
      this.#window.addEventListener("scroll", () => this.#render(), { passive: true });
      // As high as all rows, should they be few: filtering moves nothing below.
      this.#window.style.setProperty("--rows", this.#rows.length);
      const both = el("div", { class: "kernels-both" }, this.#window, this.#details.element);
      this.element = el("div", {}, this.#filters.element, both, this.#printNote);
      // Also when the section is shown for the first time, or the phone is turned.
      new ResizeObserver(() => this.#draw()).observe(this.#window);
      this.#update();
    }

    #update() {
      const column = this.#columns.find(({ id }) => id === this.#sort.id);
      this.#shown = sortedBy(this.#filters.select(), column.read, this.#sort.isDescending);
      this.#filters.say(this.#shown.length);
      this.#table.setAttribute("aria-rowcount", this.#shown.length + 1);
      this.#none.hidden = this.#shown.length > 0;
      this.#window.scrollTop = 0;
      this.#draw();
    }

    #draw() {
      this.#drawn = "";
      this.#render();
    }

    // On paper the table grows, but its first rows are all that it has.
    #render() {
      if (this.#isOnPaper) return;
      const { scrollTop, clientHeight } = this.#window;
      const inView = Math.ceil(clientHeight / this.#rowHeight);
      const top = Math.floor(scrollTop / this.#rowHeight);
      const first = Math.max(0, Math.min(top, this.#shown.length - inView) - MARGIN_ROWS);
      const end = Math.min(this.#shown.length, top + inView + MARGIN_ROWS);
      const drawn = `${first} ${end}`;
      if (drawn === this.#drawn) return;
      this.#drawn = drawn;
      const rows = this.#shown.slice(first, end);
      this.#body.replaceChildren(
        this.#spacer(first),
        ...rows.map((row, index) => this.#row(row, first + index)),
        this.#spacer(this.#shown.length - end),
      );
      this.#measure();
      this.#mark();
    }

    // The style sheet decides how high a row is; fonts and zoom may change it.
    #measure() {
      const height = this.#body.querySelector("tr[id]")?.getBoundingClientRect().height;
      if (!height || Math.abs(height - this.#rowHeight) < 0.01) return;
      this.#rowHeight = height;
      this.#draw();
    }

    #spacer(count) {
      const row = el("tr", { class: "spacer", "aria-hidden": "true" });
      const cell = el("td", { colspan: this.#columns.length });
      cell.style.height = `${count * this.#rowHeight}px`;
      row.hidden = count === 0;
      row.append(cell);
      return row;
    }

    #row(row, index) {
      const cells = this.#columns.map((column) => column.cell(row)).filter(Boolean);
      const line = el("tr", { id: `layer-${row.layer.depth}-${index}` }, ...cells);
      line.setAttribute("aria-rowindex", index + 2);
      line.dataset.index = index;
      if (!row.layer.is_layer) line.classList.add("beside");
      return line;
    }

    #mark() {
      const index = this.#shown.indexOf(this.#current);
      for (const line of this.#body.querySelectorAll("tr[id]")) {
        const isCurrent = Number(line.dataset.index) === index;
        line.classList.toggle("current", isCurrent);
        line.setAttribute("aria-selected", isCurrent);
        if (isCurrent) this.#table.setAttribute("aria-activedescendant", line.id);
      }
      if (index < 0) this.#table.removeAttribute("aria-activedescendant");
    }

    #onClick(event) {
      const index = event.target.closest("tr[data-index]")?.dataset.index;
      if (index !== undefined) this.#openRow(this.#shown[Number(index)]);
    }

    #onKey(event) {
      if (event.key === "Escape") {
        this.#close();
        return;
      }
      // Keys pressed on a button of the head are the button's.
      if (event.target !== this.#table || !this.#shown.length) return;
      const page = Math.max(1, Math.floor(this.#window.clientHeight / this.#rowHeight) - 2);
      const now = this.#shown.indexOf(this.#current);
      const targets = {
        ArrowDown: now + 1,
        ArrowUp: now - 1,
        PageDown: now + page,
        PageUp: now - page,
        Home: 0,
        End: this.#shown.length - 1,
      };
      if (event.key === "Enter" && this.#current) {
        this.#openRow(this.#current);
      } else if (event.key in targets) {
        const last = this.#shown.length - 1;
        this.#moveTo(this.#shown[Math.max(0, Math.min(last, targets[event.key]))]);
      } else {
        return;
      }
      event.preventDefault();
    }

    #moveTo(row) {
      this.#current = row;
      this.#bringIntoView(this.#shown.indexOf(row));
      this.#render();
      this.#mark();
      if (this.#details.isOpen) this.#details.show(row.layer);
    }

    #bringIntoView(index) {
      const head = this.#table.tHead.getBoundingClientRect().height;
      const top = index * this.#rowHeight;
      const room = this.#window.clientHeight - head - this.#rowHeight;
      if (top < this.#window.scrollTop) this.#window.scrollTop = top;
      else if (top > this.#window.scrollTop + room) this.#window.scrollTop = top - room;
    }

    #openRow(row) {
      this.#details.show(row.layer);
      this.#moveTo(row);
    }

    #openNamed(name, side) {
      const row = this.#rows.find(({ layer }) => layer.names[side] === name);
      if (row) this.open(row.layer);
    }

    #close() {
      if (!this.#details.isOpen) return;
      this.#details.hide();
      this.#table.focus({ preventScroll: true });
    }
  }

  function kernelRow(layer) {
    const names = namesOf(layer);
    const isPair = layer.names.length === 2;
    return {
      layer,
      names,
      isPair,
      searched: names.join("\n").toLowerCase(),
      places: layer.is_layer ? layer.names.map((_, side) => placeOf(layer, side)) : [],
      delta: isPair ? deltaOf(layer) : null,
      ratio: isPair ? ratioOf(layer) : null,
      differs: isPair && differs(layer),
    };
  }

  function kernelColumns(view, decimals) {
    const two = hasTwo(view);
    const prefix = (side) => (two ? `${sideLabel(view, side)} ` : "");
    const ofSides = sideIndexes(view).flatMap((side) => [
      {
        id: `ms-${side}`,
        title: `${prefix(side)}ms`,
        width: "figure",
        isMeasure: true,
        read: ({ layer }) => layer.ms[side],
        cell: ({ layer }) => msCell(layer, side, decimals),
      },
      {
        id: `precision-${side}`,
        title: `${prefix(side)}precision`,
        width: "precision",
        isText: true,
        read: ({ layer }) => (hasTimeOfItsOwn(layer, side) ? layer.precisions[side] : null),
        cell: ({ layer }) => precisionCell(layer, side),
      },
    ]);
    return [
      {
        id: "depth",
        title: "#",
        width: "place",
        note: "position in the graph",
        read: ({ layer }) => layer.depth,
        cell: ({ layer }) => numberCell(layer.is_layer ? String(layer.depth) : ""),
      },
      { id: "name", title: "name", width: "name", isText: true, read: readName, cell: nameCell },
      {
        id: "type",
        title: "type",
        width: "type",
        isText: true,
        read: ({ layer }) => layer.type,
        cell: ({ layer }) =>
          el("td", { class: "text", title: layer.type }, nameText(layer.type)),
      },
      ...ofSides,
      ...(two ? comparingColumns(view, decimals) : countingColumns()),
    ];
  }

  const readName = ({ names }) => names[0];

  function comparingColumns(view, decimals) {
    const [before, after] = sideIndexes(view).map((side) => sideLabel(view, side));
    return [
      {
        id: "delta",
        title: "delta, ms",
        width: "change",
        note: `${after} − ${before}, with its interval`,
        isMeasure: true,
        read: ({ delta }) => delta,
        cell: ({ layer, delta }) => changeCell({ ...layer, change_ms: delta }, decimals),
      },
      {
        id: "ratio",
        title: "ratio",
        width: "figure",
        note: `${after} / ${before}`,
        isMeasure: true,
        read: ({ ratio }) => ratio,
        cell: ({ ratio }) => numberCell(ratioText(ratio)),
      },
    ];
  }

  function countingColumns() {
    const column = (id, title) => ({
      id,
      title,
      width: "figure",
      read: ({ layer }) => layer[id][0],
      cell: ({ layer }) => numberCell(layer.is_layer ? countText(layer[id][0]) : ""),
    });
    return [column("macs", "MACs"), column("params", "params")];
  }

  function nameCell({ layer, names }) {
    const lines = names.map((name) => el("span", {}, nameText(name)));
    const cell = el("td", { class: "name", title: names.join("\n") }, ...lines);
    if (!layer.is_layer) cell.append(el("small", { text: "beside the layers" }));
    return cell;
  }

  // A layer without a time of its own says why, over both columns of its side.
  function msCell(layer, side, decimals) {
    if (hasTimeOfItsOwn(layer, side)) return numberCell(msText(layer.ms[side], decimals));
    const text = whyNoTime(layer, side);
    return el("td", { class: "without", colspan: 2, title: text }, nameText(text));
  }

  function precisionCell(layer, side) {
    if (!hasTimeOfItsOwn(layer, side)) return null;
    return el("td", { class: "text", text: layer.precisions[side] ?? UNKNOWN });
  }

  // -- the details of one layer

  class LayerDetails {
    element = el("aside", { class: "layer-details", "aria-label": "details of the layer" });
    #view;
    #decimals;
    #actions;

    constructor(view, decimals, actions) {
      this.#view = view;
      this.#decimals = decimals;
      this.#actions = actions;
      this.element.hidden = true;
      this.element.addEventListener("keydown", (event) => {
        if (event.key === "Escape") actions.close();
      });
    }

    get isOpen() {
      return !this.element.hidden;
    }

    hide() {
      this.element.hidden = true;
    }

    show(layer) {
      const sides = sideIndexes(this.#view).filter((side) => isThere(layer, side));
      this.element.replaceChildren(
        this.#head(layer),
        this.#times(layer),
        ...this.#parameters(layer, sides),
        ...this.#fused(layer, sides),
      );
      this.element.hidden = false;
    }

    #head(layer) {
      const close = { type: "button", class: "close", text: "×", "aria-label": "close" };
      const lines = namesOf(layer).map((name) => el("span", {}, nameText(name)));
      const kind = layer.is_layer ? `, #${layer.depth}` : ", beside the layers";
      return el(
        "header",
        {},
        el("h3", { "aria-live": "polite" }, ...lines),
        el("button", { ...close, on: { click: () => this.#actions.close() } }),
        el("p", {}, nameText(layer.type), kind),
      );
    }

    #times(layer) {
      const list = el("dl", { class: "times" });
      const add = (title, value) => list.append(el("dt", {}, title), el("dd", {}, value));
      for (const side of sideIndexes(this.#view)) {
        add(hasTwo(this.#view) ? sideTag(this.#view, side) : "time", this.#time(layer, side));
      }
      if (!hasTwo(this.#view)) return list;
      const delta = deltaOf(layer);
      if (isKnown(delta)) add("delta", this.#delta(layer, delta));
      if (isKnown(ratioOf(layer))) add("ratio", ratioText(ratioOf(layer)));
      if (isKnown(layer.explains)) add("explains", shareText(layer.explains));
      return list;
    }

    #delta(layer, delta) {
      const interval = layer.change_interval_ms;
      const text = el("span", { class: tone(delta, interval) });
      text.textContent = `${changeText(delta, this.#decimals)} ms`;
      const range = el("small", { text: rangeText(interval, this.#decimals) });
      return el("span", {}, text, interval ? range : null);
    }

    #time(layer, side) {
      if (hasTimeOfItsOwn(layer, side)) return timeText(layer.ms[side], this.#decimals);
      const host = layer.runs_in[side];
      if (!host) return whyNoTime(layer, side);
      const go = () => this.#actions.show(host, side);
      const link = el("button", { type: "button", class: "link", on: { click: go } });
      link.append(nameText(host));
      return el("span", {}, "in ", link);
    }

    #parameters(layer, sides) {
      const all = parametersOf(layer);
      if (sides.length < 2) {
        const side = sides[0];
        const mine = all.filter(({ values }) => isKnown(values[side]));
        return mine.length ? [el("h4", { text: "parameters" }), this.#grid(mine, [side])] : [];
      }
      const different = all.filter(({ isDifferent }) => isDifferent);
      const same = all.filter(({ isDifferent }) => !isDifferent);
      const parts = [el("h4", { text: "what differs" })];
      if (different.length) parts.push(this.#grid(different, sides));
      else parts.push(note("All parameters are the same."));
      if (same.length) {
        const summary = el("summary", { text: `the same: ${same.length}` });
        parts.push(el("details", { class: "same" }, summary, this.#grid(same, sides.slice(1))));
      }
      return parts;
    }

    #grid(parameters, sides) {
      const table = el("table", { class: "parameters" });
      if (sides.length > 1) {
        const heads = sides.map((side) => el("th", { scope: "col" }, sideTag(this.#view, side)));
        table.append(el("thead", {}, el("tr", {}, el("td", {}), ...heads)));
      }
      const lines = parameters.map(({ name, values }) => {
        const texts = parameterTexts(values);
        const cells = sides.map((side) => el("td", {}, nameText(texts[side])));
        return el("tr", {}, el("th", { scope: "row" }, nameText(name)), ...cells);
      });
      table.append(el("tbody", {}, ...lines));
      return table;
    }

    #fused(layer, sides) {
      if (!sides.some((side) => layer.fused[side]?.length)) return [];
      const others = (side) => (sides.length > 1 ? (layer.fused[1 - side] ?? []) : null);
      const lists = sides.map((side) => this.#fusedOn(layer.fused[side] ?? [], others(side), side));
      return [el("h4", { text: "in the same kernel" }), ...lists];
    }

    // What the other side does not fuse stands out; names may differ, so types are compared.
    #fusedOn(layers, others, side) {
      const left = others?.map(({ type }) => type);
      const items = layers.map(({ name, type }) => {
        const place = left?.indexOf(type) ?? 0;
        if (left && place >= 0) left.splice(place, 1);
        const item = el("li", { class: place < 0 ? "only" : "" }, nameText(name));
        item.append(" ", el("small", {}, nameText(type)));
        return item;
      });
      const list = items.length ? el("ul", {}, ...items) : el("p", { text: "nothing else" });
      const tag = hasTwo(this.#view) ? [sideTag(this.#view, side)] : [];
      return el("div", { class: "fused" }, ...tag, list);
    }
  }

  // Counts are shortened, unless they would then read alike and are not.
  function parameterTexts(values) {
    const short = values.map((value) => (typeof value === "number" ? countText(value) : value));
    const isMisleading = new Set(short).size < new Set(values).size;
    return values.map((value, side) => {
      if (!isKnown(value)) return UNKNOWN;
      return typeof value === "number" && isMisleading ? wholeText(value) : short[side];
    });
  }

  modelperf.section("kernels", {
    draw(root, view) {
      shared.kernels = null;
      if (!view.case?.layers.length) {
        modelperf.hide(root);
        return;
      }
      shared.kernels = new KernelTable(view);
      root.replaceChildren(shared.kernels.element);
      shared.kernels.showForScreen();
    },
    // Nothing here has colours of its own.
    redraw: () => {},
  });
  window.addEventListener("beforeprint", () => shared.kernels?.showForPrint());
  window.addEventListener("afterprint", () => shared.kernels?.showForScreen());

  // -- precisions

  const PLACES_LAST = [NO_PRECISION, "did not run", IN_ANOTHER, NOT_EXECUTED];

  // Precisions by how many layers have them, then what is none.
  function placesOf(rows) {
    const counts = new Map();
    for (const { places } of rows) {
      for (const place of places) counts.set(place, (counts.get(place) ?? 0) + 1);
    }
    const rank = (place) => PLACES_LAST.indexOf(place);
    return [...counts.keys()].sort(
      (one, other) => rank(one) - rank(other) || counts.get(other) - counts.get(one),
    );
  }

  function distributionTable(view, rows, decimals) {
    const sides = sideIndexes(view);
    const totals = sides.map((side) => sum(rows.map(({ layer }) => layer.ms[side])));
    const titles = sides.flatMap((side) => {
      const prefix = hasTwo(view) ? `${sideLabel(view, side)} ` : "";
      return [`${prefix}layers`, `${prefix}ms`, `${prefix}share`];
    });
    const heads = titles.map((title) => el("th", { scope: "col", class: "number", text: title }));
    const corner = el("th", { scope: "col", class: "text", text: "precision" });
    const lines = placesOf(rows).map((place) => {
      const cells = sides.flatMap((side) => {
        const here = rows.filter(({ places }) => places[side] === place);
        const times = known(here.map(({ layer }) => layer.ms[side]));
        const ms = times.length ? sum(times) : null;
        return [
          numberCell(wholeText(here.length)),
          numberCell(msText(ms, decimals)),
          shareCell(isKnown(ms) && totals[side] ? ms / totals[side] : null, side),
        ];
      });
      return el("tr", {}, el("th", { scope: "row", class: "text", text: place }), ...cells);
    });
    const head = el("thead", {}, el("tr", {}, corner, ...heads));
    return el("table", { class: "distribution" }, head, el("tbody", {}, ...lines));
  }

  function transitionTable(view, rows, decimals) {
    const [before, after] = sideIndexes(view).map((side) => sideLabel(view, side));
    const places = placesOf(rows);
    const from = places.filter((place) => rows.some((row) => row.places[0] === place));
    const to = places.filter((place) => rows.some((row) => row.places[1] === place));
    const heads = to.map((place) => el("th", { scope: "col", text: place }));
    const corner = el("td", { class: "corner", text: `${before} ↓   ${after} →` });
    const lines = from.map((one) => {
      const cells = to.map((other) => {
        const here = rows.filter((row) => isTransition(row, [one, other]));
        return transitionCell(here, one, other, decimals);
      });
      return el("tr", {}, el("th", { scope: "row", class: "text", text: one }), ...cells);
    });
    const head = el("thead", {}, el("tr", {}, corner, ...heads));
    return el("table", { class: "matrix" }, head, el("tbody", {}, ...lines));
  }

  function transitionCell(rows, before, after, decimals) {
    if (!rows.length) return el("td", { class: "none", text: "·" });
    const deltas = known(rows.map(({ delta }) => delta));
    const change = deltas.length ? sum(deltas) : null;
    const words = `${before} to ${after}: ${wholeText(rows.length)} layers`;
    const show = () => shared.kernels?.showTransition(before, after);
    const button = el(
      "button",
      { type: "button", title: "show these layers", on: { click: show } },
      el("strong", { text: wholeText(rows.length) }),
      el("small", { text: isKnown(change) ? `${changeText(change, decimals)} ms` : UNKNOWN }),
    );
    button.setAttribute("aria-label", `${words}, ${changeText(change, decimals)} ms`);
    return el("td", { class: before === after ? "kept" : "changed" }, button);
  }

  modelperf.section("transitions", {
    draw(root, view) {
      const layers = (view.case?.layers ?? []).filter((layer) => layer.is_layer);
      if (!layers.length) {
        modelperf.hide(root);
        return;
      }
      const rows = layers.map((layer) => kernelRow(layer));
      const totals = sideIndexes(view).map((side) => sum(layers.map((layer) => layer.ms[side])));
      const decimals = decimalsFor(largest(totals));
      const parts = [el("h3", { text: "Layers by precision" })];
      parts.push(scrollBox("layers by precision", distributionTable(view, rows, decimals)));
      if (hasTwo(view)) {
        const [before, after] = sideIndexes(view).map((side) => sideLabel(view, side));
        const says = `How many of the ${wholeText(rows.length)} layers went from which precision
          of ${before} to which of ${after}, and how much longer they take. Choose a cell to see
          its layers in the table of kernels.`;
        parts.push(el("h3", { text: `From ${before} to ${after}` }), note(says));
        parts.push(scrollBox("transitions", transitionTable(view, rows, decimals)));
      }
      root.replaceChildren(...parts);
    },
    redraw: () => {},
  });

  // -- by depth

  // So many layers can be told apart side by side; of more, each side has a chart of its own.
  const MANY_LAYERS = 250;

  class DepthChart {
    #view;
    #layers;
    #decimals;
    #totals;
    #isMany;
    #shape;
    #scale = "ms";
    #plot = el("div", { class: "plot" });

    constructor(view, layers) {
      this.#view = view;
      this.#layers = sortedBy(layers, (layer) => layer.depth, false);
      this.#totals = sideIndexes(view).map((side) =>
        sum(view.case.layers.map((layer) => layer.ms[side])),
      );
      this.#decimals = decimalsFor(largest(this.#totals));
      this.#isMany = layers.length > MANY_LAYERS;
      this.#shape = this.#isMany ? "lines" : "bars";
    }

    draw(root) {
      const shapes = choice("drawn as", ["bars", "lines"], this.#shape, (shape) => {
        this.#shape = shape;
        this.repaint();
      });
      const scales = choice("time as", ["ms", "log", "share"], this.#scale, (scale) => {
        this.#scale = scale;
        this.repaint();
      });
      root.replaceChildren(el("div", { class: "toolbar" }, shapes, scales), this.#plot);
      this.repaint();
    }

    async repaint() {
      const sides = sideIndexes(this.#view);
      const traces = [
        ...sides.map((side) => this.#trace(side)),
        ...sides.map((side) => this.#hiddenTrace(side)).filter(({ x }) => x.length > 0),
      ];
      const isApart = this.#isApart();
      await modelperf.plot(this.#plot, traces, {
        height: isApart ? 440 : 340,
        barmode: "group",
        bargap: 0.15,
        margin: { l: 56, r: 12, t: 36, b: 44 },
        hovermode: "closest",
        xaxis: {
          title: { text: "position in the graph" },
          zeroline: false,
          anchor: isApart ? "y2" : "y",
        },
        yaxis: this.#axis(isApart ? { domain: [0.53, 1] } : {}),
        ...(isApart ? { yaxis2: this.#axis({ domain: [0, 0.47], matches: "y" }) } : {}),
        showlegend: traces.length > 1,
        legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal" },
      });
      this.#plot.removeAllListeners("plotly_click");
      this.#plot.on("plotly_click", ({ points }) => this.#open(points[0]));
    }

    #isApart() {
      return this.#isMany && hasTwo(this.#view);
    }

    #axis(place) {
      const titles = { ms: "ms", log: "ms (logarithmic)", share: "share of its side" };
      return {
        title: { text: titles[this.#scale] },
        type: this.#scale === "log" ? "log" : "linear",
        tickformat: this.#scale === "share" ? ".0%" : "",
        rangemode: "tozero",
        ...place,
      };
    }

    #open({ customdata }) {
      if (isKnown(customdata)) shared.kernels?.open(this.#layers[customdata]);
    }

    #height(ms, side) {
      if (!isKnown(ms)) return null;
      return this.#scale === "share" ? ms / (this.#totals[side] || 1) : ms;
    }

    #trace(side) {
      const places = [...this.#layers.keys()].filter((at) => isKnown(this.#layers[at].ms[side]));
      const layers = places.map((at) => this.#layers[at]);
      const name = sideLabel(this.#view, side) || "time";
      const trace = {
        yaxis: this.#isApart() && side ? "y2" : "y",
        name: chartText(name),
        x: layers.map(({ depth }) => depth),
        y: layers.map((layer) => this.#height(layer.ms[side], side)),
        customdata: places,
        hoverinfo: "text",
        hovertext: layers.map((layer) => this.#hover(layer, side)),
      };
      const marker = sideMarker(this.#view, side);
      if (this.#shape === "bars") return { ...trace, type: "bar", marker };
      const dash = side && !this.#isApart() ? "dot" : "solid";
      const symbol = side ? "diamond" : "circle";
      return {
        ...trace,
        type: "scatter",
        mode: this.#isMany ? "lines" : "lines+markers",
        line: { color: marker.color, width: this.#isMany ? 1 : 1.5, dash },
        marker: { color: marker.color, size: 5, symbol },
      };
    }

    // Layers without a time of their own, at that of the kernel that they run in.
    #hiddenTrace(side) {
      const hosts = new Map(this.#layers.map((layer) => [layer.names[side], layer.ms[side]]));
      const places = [...this.#layers.keys()].filter(
        (at) => this.#layers[at].states[side] === IN_ANOTHER,
      );
      const layers = places.map((at) => this.#layers[at]);
      const label = sideLabel(this.#view, side);
      const { muted, a, b } = modelperf.colors();
      return {
        type: "scatter",
        mode: "markers",
        visible: "legendonly",
        yaxis: this.#isApart() && side ? "y2" : "y",
        name: chartText(label ? `${label}, ${IN_ANOTHER}` : IN_ANOTHER),
        x: layers.map(({ depth }) => depth),
        y: layers.map((layer) => this.#height(hosts.get(layer.runs_in[side]) ?? 0, side)),
        customdata: places,
        hoverinfo: "text",
        hovertext: layers.map((layer) => this.#hover(layer, side)),
        marker: {
          color: muted,
          size: 7,
          symbol: side ? "diamond-open" : "circle-open",
          line: { color: side ? b : a, width: 1.5 },
        },
      };
    }

    #hover(layer, side) {
      const label = sideLabel(this.#view, side);
      const ms = layer.ms[side];
      const own = `${timeText(ms, this.#decimals)}, ${shareText(this.#share(ms, side))}`;
      const time = hasTimeOfItsOwn(layer, side) ? own : whyNoTime(layer, side);
      const title = `${titleOf(layer, side)} (${layer.type})`;
      return [title, label ? `${label}: ${time}` : time].map(chartText).join("<br>");
    }

    #share(ms, side) {
      return isKnown(ms) && this.#totals[side] ? ms / this.#totals[side] : null;
    }
  }

  modelperf.section("depth", {
    draw(root, view) {
      shared.repaintDepth = () => {};
      const layers = (view.case?.layers ?? []).filter((layer) => layer.is_layer);
      if (!layers.some((layer) => known(layer.ms).length > 0)) {
        if (layers.length) modelperf.say(root, "The layers of this case have no times.");
        else modelperf.hide(root);
        return;
      }
      const chart = new DepthChart(view, layers);
      chart.draw(root);
      shared.repaintDepth = () => chart.repaint();
    },
    redraw: () => shared.repaintDepth(),
  });
})();
