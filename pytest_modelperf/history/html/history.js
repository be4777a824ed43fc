// The curves of all cases, each on a card with the run that is looked at; which of them are shown,
// and the table that orders them.
(() => {
  "use strict";

  const { UNKNOWN, choose, chosen, el, isPrinting, onKeys, picker, svg, toggle } = modelperf;
  const { chartPart } = modelperf.charts;
  const { wholeText } = modelperf.figures;
  const { SortableTable, nameText, note, numberCell, sortableBox, sortedBy, stackedCell } =
    modelperf.tables;
  const { interval, percent } = modelperf.format;
  const { Curve, commitAddress, minuteText, readPoints, shortCommit, toneOf } =
    modelperf.historyCurve;

  const FILTERS = [["model", "Model"], ["machine", "Machine"], ["engine", "Engine"]];
  const AXES = [["date", "by date"], ["run", "run by run"]];
  const AMOUNTS = [["all", "all cases"], ["steps", "with steps"]];
  // Curves are drawn before they come into view.
  const MARGIN = "400px";
  const PRINTED_CARDS = 60;
  // So few curves need no index above them.
  const FEW = 6;
  // The looks of what curves have, with a path 22 wide and 12 high.
  const LEGEND = [
    ["line", "M0 6H22", "cost relative to the first run"],
    ["band", "M0 1H22V11H0Z", "its interval at 99 %"],
    ["baseline", "M11 0V12", "a new baseline"],
    ["mark tone-bad", "M11 2l-5 8h10Z", "a step, with its size"],
    ["dots tone-bad", "M11 6h0", "regressed, over budget"],
    ["dots tone-good", "M11 6h0", "improved"],
    ["dots tone-unsure", "M11 6h0", "inconclusive"],
  ];
  const BUDGET = ["budget", "M0 6H22", "the drift since the first run that is allowed"];

  const legend = ({ allowed_drift: allowed = null }) => el("ul", { class: "legend" },
    [...LEGEND, ...(allowed === null ? [] : [BUDGET])].map(([look, d, meaning]) => el("li", {},
      svg("svg", { class: "history-drawing key", width: 22, height: 12, "aria-hidden": "true" },
        svg("path", { class: `history-${look}`, d })), meaning)));

  const jumpButton = (child, click) =>
    el("button", { type: "button", class: "link history-jump", on: { click } }, child);

  const verdictCell = ({ verdict }) =>
    el("td", {}, el("span", { class: `pill tone-${toneOf(verdict) || "plain"}`, text: verdict }));

  const columns = ({ tag }, jump) => {
    const text = (id, title = id, read = (entry) => entry[id]) =>
      ({ id, title, isText: true, read, cell: (entry) => el("td", {}, nameText(read(entry))) });
    const count = (id, read) =>
      ({ id, title: id, read, cell: (entry) => numberCell(wholeText(read(entry))) });
    const shift = (id, title, read) => ({
      id, title, read: (entry) => read(entry)?.log ?? null,
      cell: (entry) => stackedCell(read(entry)?.text ?? UNKNOWN, read(entry)?.range),
    });
    const name = (entry) => el("th", { scope: "row" },
      jumpButton(nameText(entry.model), () => jump(entry)));
    return [
      { ...text("model"), cell: name },
      text("case"), text("engine"), text("machine"),
      count("runs", (entry) => entry.count), text("since"),
      shift("change", "change", (entry) => entry.change),
      ...(tag === null ? [] : [shift("tag", `since ${tag}`, (entry) => entry.since_tag)]),
      count("steps", (entry) => entry.steps.length),
      { ...text("verdict", "last verdict"), cell: verdictCell },
    ];
  };

  // -- a case: its name, its curve, and the run that is looked at

  const PAGE = 10;

  class Card {
    element;
    chart = el("div", { class: "history-chart", role: "slider", tabindex: "0",
      "aria-orientation": "horizontal", "aria-valuemin": "1" });
    #details = el("div", { class: "history-point" });
    #entry;
    #shared;
    #points = null;
    #curve = null;
    #index = 0;

    constructor(entry, shared) {
      this.#entry = entry;
      this.#shared = shared;
      this.#index = entry.count - 1;
      this.chart.setAttribute("aria-valuemax", entry.count);
      this.chart.setAttribute("aria-label", `runs of ${entry.model} ${caseText(entry)}`);
      this.chart.addEventListener("pointermove", (event) => this.#follow(event));
      this.chart.addEventListener("pointerdown", (event) => this.#follow(event));
      const move = (places) => () =>
        this.#curve && this.#look(this.#curve.neighbour(this.#index, places));
      onKeys(this.chart, {
        ArrowLeft: move(-1), ArrowDown: move(-1), ArrowRight: move(1), ArrowUp: move(1),
        PageDown: move(-PAGE), PageUp: move(PAGE), Home: move(-entry.count), End: move(entry.count),
      });
      this.element = el("article", { class: "history-card" },
        el("h3", {}, nameText(entry.model)),
        el("p", { class: "hint" }, nameText(caseText(entry)), " · ", ...this.#summary()),
        this.chart, this.#details);
    }

    // Draws the curve for the present width.
    show(axis) {
      const width = this.chart.clientWidth;
      if (!width) return;
      if (!this.#curve) {
        this.#points = readPoints(this.#entry, this.#shared);
        this.#curve = new Curve(this.#entry, this.#points, this.#shared);
        this.chart.append(this.#curve.element);
      }
      this.#curve.draw(width, axis);
      this.#look(this.#index);
    }

    // Frees what the curve takes while it is out of sight.
    hide() {
      this.#curve?.clear();
    }

    #summary() {
      const { change, count, earlier, since } = this.#entry;
      return [
        el("b", { text: change.text }),
        change.range && ` (${change.range})`,
        ` since ${since}, ${wholeText(count)} ${count === 1 ? "run" : "runs"}`,
        earlier ? `; ${wholeText(earlier)} earlier ones are not linked to them` : "",
      ];
    }

    #follow(event) {
      if (!this.#curve) return;
      const left = event.clientX - this.chart.getBoundingClientRect().left;
      this.#look(this.#curve.nearest(left));
    }

    #look(index) {
      this.#index = index;
      this.#curve.mark(index);
      const point = this.#points[index];
      const facts = this.#facts(point);
      this.chart.setAttribute("aria-valuenow", index + 1);
      this.chart.setAttribute("aria-valuetext", facts.map((fact) => fact.textContent).join(", "));
      this.#details.replaceChildren(
        el("p", {}, ...facts.flatMap((fact, at) => (at ? [" · ", fact] : [fact]))),
        ...this.#reasons(point, index),
      );
    }

    // The reasons, or for a run with the same ones as before a link to the run that has them.
    #reasons({ first, reasons }, index) {
      if (!reasons.length) return [];
      if (first === index) {
        return [el("ul", { class: "notes" }, reasons.map((text) => el("li", {}, nameText(text))))];
      }
      const text = `the same reasons as ${minuteText(this.#points[first].date)}`;
      const go = () => {
        this.#look(first);
        this.chart.focus({ preventScroll: true });
      };
      return [el("p", {}, jumpButton(text, go))];
    }

    #facts({ date, commit, tone, verdict, change, bounds, hasInterval, step, baseline, run }) {
      const fact = (text, title = null) => el("span", { text, title });
      const range = hasInterval ? ` (${interval(bounds, percent)})` : "";
      return [
        fact(minuteText(date)), commit && this.#commit(commit),
        el("b", { class: tone, text: verdict }), fact(`${percent(change)}${range}`),
        step && fact(`step ${step.text}${step.range && ` (${step.range})`}`),
        baseline && fact(`baseline ${shortCommit(baseline)}`, baseline),
        run && link(run, "the run"),
      ].filter(Boolean);
    }

    #commit(commit) {
      const address = commitAddress(commit, this.#shared.commit_url);
      const text = shortCommit(commit);
      return address ? link(address, text, commit) : el("bdi", { title: commit, text });
    }
  }

  function link(address, text, title = address) {
    return el("a", { href: address, target: "_blank", rel: "noopener noreferrer", title, text });
  }

  // `b1-c1, openvino, linux-x86_64-2c`
  const caseText = ({ case: name, engine, machine }) =>
    [name, engine, machine].filter(Boolean).join(", ");

  // -- all of them

  class Curves {
    parts;
    #shared;
    #cards;
    #table = new SortableTable({ class: "history-cases sticky-head cards", kept: "sort", sort: { id: null },
      select: () => this.#fitting() });
    #grid = el("div", { class: "history-grid-of-cards" });
    #count = el("p", { class: "hint", role: "status" });
    #none = note("No case fits these choices.");
    #printNote = el("p", { class: "print-note" });
    #shown = [];
    #inView = new Set();
    #byElement = new Map();
    #watcher = new IntersectionObserver((seen) => this.#notice(seen), { rootMargin: MARGIN });
    #width = 0;
    #widths = new ResizeObserver(() => this.#fit());

    constructor(shared) {
      this.#shared = shared;
      // The curves are in the order of the table.
      const showRows = this.#table.show.bind(this.#table);
      this.#table.show = (entries) => {
        showRows(entries);
        this.#showCards(entries);
      };
      this.#cards = new Map(shared.cases.map((entry) => [entry, new Card(entry, shared)]));
      for (const card of this.#cards.values()) this.#byElement.set(card.element, card);
      this.#table.setColumns(columns(shared, (entry) => this.#jump(entry)));
      this.#widths.observe(this.#grid);
      this.parts = this.#build();
    }

    #build() {
      const table = sortableBox("Cases", this.#table);
      const isIndex = this.#cards.size > FEW;
      return [
        el("div", { class: "toolbar sticky-toolbar" }, ...this.#filters(),
          toggle("Cases", AMOUNTS, amount(), (id) => this.#choose({ cases: id })),
          toggle("Runs", AXES, axis(), (id) => {
            choose({ axis: id });
            this.#redraw();
          })),
        this.#count,
        ...(isIndex ? [table] : []),
        legend(this.#shared),
        note("Point at a curve to read its runs; the arrow keys, Home and End move from run to run."),
        this.#printNote, this.#none, this.#grid,
        ...(isIndex ? [] : [table]),
      ];
    }

    // For other colours nothing needs to be drawn; paper has another width and shows all curves.
    draw = () => {
      this.#shown.forEach((card, place) => {
        card.element.hidden = isPrinting() && place >= PRINTED_CARDS;
        if (isPrinting() && place < PRINTED_CARDS) card.show(axis());
        else if (!this.#inView.has(card)) card.hide();
      });
      const isCut = isPrinting() && this.#shown.length > PRINTED_CARDS;
      this.#printNote.textContent = isCut
        ? `The first ${PRINTED_CARDS} of ${wholeText(this.#shown.length)} curves.` : "";
      if (!isPrinting()) this.#redraw();
    };

    #filters() {
      return FILTERS.flatMap(([key, label]) => {
        const values = [...new Set(this.#shared.cases.map((entry) => entry[key]))];
        if (values.length < 2) return [];
        const options = sortedBy(values, (value) => value, false)
          .map((value) => [value, value || "none"]);
        const value = values.includes(chosen(`of-${key}`)) ? chosen(`of-${key}`) : null;
        return [picker(label, [["*", "all"], ...options], value ?? "*", (picked) =>
          this.#choose({ [`of-${key}`]: picked === "*" ? null : picked }))];
      });
    }

    #choose(changes) {
      choose(changes);
      this.#table.update();
    }

    #fitting() {
      const { cases } = this.#shared;
      const fits = (entry) => FILTERS.every(([key]) => {
        const value = chosen(`of-${key}`);
        return value === null || !cases.some((each) => each[key] === value) || entry[key] === value;
      });
      return cases.filter((entry) => fits(entry) && (amount() === "all" || entry.steps.length));
    }

    #showCards(entries) {
      this.#shown = entries.map((entry) => this.#cards.get(entry));
      this.#count.textContent =
        `${wholeText(entries.length)} of ${wholeText(this.#shared.cases.length)} cases`;
      this.#none.hidden = entries.length > 0;
      for (const card of this.#inView) card.hide();
      this.#inView.clear();
      this.#watcher.disconnect();
      this.#grid.replaceChildren(...this.#shown.map(({ element }) => element));
      for (const { element } of this.#shown) this.#watcher.observe(element);
    }

    #jump(entry) {
      const card = this.#cards.get(entry);
      card.element.scrollIntoView({ block: "center" });
      card.chart.focus({ preventScroll: true });
    }

    #notice(seen) {
      for (const { target, isIntersecting } of seen) {
        const card = this.#byElement.get(target);
        if (isIntersecting) {
          this.#inView.add(card);
          card.show(axis());
        } else {
          this.#inView.delete(card);
          if (!isPrinting()) card.hide();
        }
      }
    }

    #fit() {
      const width = this.#grid.clientWidth;
      if (width !== this.#width) this.#redraw();
      this.#width = width;
    }

    #redraw() {
      for (const card of this.#inView) card.show(axis());
    }
  }

  const choiceOf = (key, options) =>
    (options.find(([id]) => id === chosen(key)) ?? options[0])[0];
  const axis = () => choiceOf("axis", AXES);
  const amount = () => choiceOf("cases", AMOUNTS);

  chartPart("history", ({ data: { history } }) =>
    (history.cases.length ? new Curves(history) : null));
})();
