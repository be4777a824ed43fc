// The curves of all cases, each on a card with the run that is looked at; which of them are shown,
// and the table that orders them.
(() => {
  "use strict";

  const { UNKNOWN, choose, chosen, el, hide, picker, section, toggle } = modelperf;
  const { wholeText } = modelperf.figures;
  const { SortableTable, nameText, note, numberCell, sortableBox, sortedBy, stackedCell } =
    modelperf.tables;
  const { interval, percent } = modelperf.format;
  const { Curve, Points, commitAddress, minuteText, shortCommit, toneOf } = modelperf.historyCurve;

  const FILTERS = [["model", "Model"], ["machine", "Machine"], ["engine", "Engine"]];
  const AXES = [["date", "by date"], ["run", "run by run"]];
  const AMOUNTS = [["all", "all cases"], ["steps", "with steps"]];
  // Curves are drawn before they come into view.
  const MARGIN = "400px";
  const PRINTED_CARDS = 60;
  // So few curves need no index above them.
  const FEW = 6;
  const LEGEND = [
    ["line", "cost relative to the first run"],
    ["band", "its interval at 99 %"],
    ["baseline", "a new baseline"],
    ["step", "a step, with its size"],
    ["bad", "regressed, over budget"],
    ["good", "improved"],
    ["unsure", "inconclusive"],
  ];

  const legend = ({ allowed_drift: allowed = null }) => LEGEND.concat(
    allowed === null ? [] : [["budget", "the drift since the first run that is allowed"]]);

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
    #axis = "date";

    constructor(entry, shared) {
      this.#entry = entry;
      this.#shared = shared;
      this.#index = entry.count - 1;
      this.chart.setAttribute("aria-valuemax", entry.count);
      this.chart.setAttribute("aria-label", `runs of ${entry.model} ${caseText(entry)}`);
      this.chart.addEventListener("pointermove", (event) => this.#follow(event));
      this.chart.addEventListener("pointerdown", (event) => this.#follow(event));
      this.chart.addEventListener("keydown", (event) => this.#press(event));
      this.element = el("article", { class: "history-card" },
        el("h3", {}, nameText(entry.model)),
        el("p", { class: "hint" }, nameText(caseText(entry)), " · ", ...this.#summary()),
        this.chart, this.#details);
    }

    // Draws the curve for the present width.
    show(axis) {
      const width = this.chart.clientWidth;
      if (!width) return;
      this.#axis = axis;
      if (!this.#curve) {
        this.#points = new Points(this.#entry, this.#shared);
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

    #press(event) {
      if (!this.#curve || event.ctrlKey || event.altKey || event.metaKey) return;
      const last = this.#entry.count;
      const moves = {
        ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1,
        PageDown: -PAGE, PageUp: PAGE, Home: -last, End: last,
      };
      if (!(event.key in moves)) return;
      event.preventDefault();
      this.#look(this.#curve.neighbour(this.#index, moves[event.key]));
    }

    #look(index) {
      this.#index = index;
      this.#curve.mark(index);
      const facts = this.#facts(index);
      this.chart.setAttribute("aria-valuenow", index + 1);
      this.chart.setAttribute("aria-valuetext", facts.map((fact) => fact.textContent).join(", "));
      this.#details.replaceChildren(
        el("p", {}, ...facts.flatMap((fact, at) => (at ? [" · ", fact] : [fact]))),
        ...this.#reasons(index),
      );
    }

    // The reasons, or for a run with the same ones as before a link to the run that has them.
    #reasons(index) {
      const { first, texts } = this.#points.reasons(index);
      if (!texts.length) return [];
      if (first === index) {
        const items = texts.map((text) => el("li", {}, nameText(text)));
        return [el("ul", { class: "notes" }, ...items)];
      }
      const text = `the same reasons as ${minuteText(this.#points.dates[first])}`;
      const go = () => {
        this.#look(first);
        this.chart.focus({ preventScroll: true });
      };
      return [el("p", {}, jumpButton(text, go))];
    }

    #facts(index) {
      const points = this.#points;
      const bounds = points.widths[index] ? ` (${interval(points.bounds(index), percent)})` : "";
      const facts = [el("span", { text: minuteText(points.dates[index]) })];
      const commit = points.commit(index);
      if (commit) facts.push(this.#commit(commit));
      facts.push(
        el("b", { class: points.tone(index), text: points.verdict(index) }),
        el("span", { text: `${percent(points.change(index))}${bounds}` }),
      );
      const step = points.steps.get(index);
      if (step) {
        const { text, range } = step;
        facts.push(el("span", { text: `step ${text}${range && ` (${range})`}` }));
      }
      const baseline = points.baseline(index);
      if (baseline) facts.push(el("span", { title: baseline, text: `baseline ${shortCommit(baseline)}` }));
      const run = points.run(index);
      if (run) facts.push(link(run, "the run"));
      return facts;
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
    #shared;
    #cards;
    #table = new SortableTable({ class: "history-cases sticky-head", kept: "sort", sort: { id: null },
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
    }

    draw(root) {
      const table = sortableBox("Cases", this.#table);
      const isIndex = this.#cards.size > FEW;
      root.replaceChildren(
        el("div", { class: "toolbar sticky-toolbar" }, ...this.#filters(),
          toggle("Cases", AMOUNTS, amount(), (id) => this.#choose({ cases: id })),
          toggle("Runs", AXES, axis(), (id) => {
            choose({ axis: id });
            this.#redraw();
          })),
        this.#count,
        ...(isIndex ? [table] : []),
        el("ul", { class: "legend" }, ...legend(this.#shared).map(([kind, meaning]) =>
          el("li", {}, el("span", { class: `key history-key key-${kind}`, "aria-hidden": "true" }),
            meaning))),
        note("Point at a curve to read its runs; the arrow keys, Home and End move from run to run."),
        this.#printNote, this.#none, this.#grid,
        ...(isIndex ? [] : [table]),
      );
      this.#table.setColumns(columns(this.#shared, (entry) => this.#jump(entry)));
      this.#widths.observe(this.#grid);
    }

    stop() {
      this.#watcher.disconnect();
      this.#widths.disconnect();
    }

    // For other colours nothing needs to be drawn; paper has another width and shows all curves.
    repaint() {
      const cards = this.#shown.map((entry) => this.#cards.get(entry));
      cards.forEach((card, place) => {
        card.element.hidden = isOnPaper() && place >= PRINTED_CARDS;
        if (isOnPaper() && place < PRINTED_CARDS) card.show(axis());
        else if (!this.#inView.has(card)) card.hide();
      });
      const isCut = isOnPaper() && cards.length > PRINTED_CARDS;
      this.#printNote.textContent = isCut
        ? `The first ${PRINTED_CARDS} of ${wholeText(cards.length)} curves.`
        : "";
      if (!isOnPaper()) this.#redraw();
    }

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

    #showCards(shown) {
      this.#shown = shown;
      this.#count.textContent =
        `${wholeText(shown.length)} of ${wholeText(this.#shared.cases.length)} cases`;
      this.#none.hidden = shown.length > 0;
      for (const card of this.#inView) card.hide();
      this.#inView.clear();
      this.#watcher.disconnect();
      this.#grid.replaceChildren(...shown.map((entry) => this.#cards.get(entry).element));
      for (const element of this.#grid.children) this.#watcher.observe(element);
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
          if (!isOnPaper()) card.hide();
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
  const isOnPaper = () => document.documentElement.classList.contains("printing");
  const amount = () => choiceOf("cases", AMOUNTS);

  let shown = null;

  section("history", {
    draw(root, view) {
      shown?.stop();
      shown = null;
      if (!view.data.history.cases.length) {
        hide(root);
        return;
      }
      shown = new Curves(view.data.history);
      shown.draw(root);
    },
    redraw: () => shown?.repaint(),
  });
})();
