// The curves of all cases, which of them are shown, and the table that orders them.
(() => {
  "use strict";

  const { choose, chosen, el, hide, picker, section, toggle } = modelperf;
  const { wholeText } = modelperf.figures;
  const { nameText, numberCell, note, scrollBox, sortableHead, sortedBy } = modelperf.tables;
  const { shiftRange, shiftText } = modelperf.historyPoints;
  const { Card } = modelperf.historyCard;

  const FILTERS = [["model", "Model"], ["machine", "Machine"], ["engine", "Engine"]];
  const AXES = [["date", "by date"], ["run", "run by run"]];
  const AMOUNTS = [["all", "all cases"], ["steps", "with steps"]];
  // Curves are drawn before they come into view.
  const MARGIN = "400px";
  const PRINTED_CARDS = 60;
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

  const columns = ({ tag, log_unit: unit }) => [
    { id: "model", title: "model", isText: true, read: (entry) => entry.model },
    { id: "case", title: "case", isText: true, read: (entry) => entry.case },
    { id: "engine", title: "engine", isText: true, read: (entry) => entry.engine },
    { id: "machine", title: "machine", isText: true, read: (entry) => entry.machine },
    { id: "runs", title: "runs", read: (entry) => entry.count },
    { id: "since", title: "since", isText: true, read: (entry) => entry.since },
    { id: "change", title: "change", shift: (entry) => entry.change },
    ...(tag === null ? [] : [
      { id: "tag", title: `since ${tag}`, shift: (entry) => entry.since_tag },
    ]),
    { id: "steps", title: "steps", read: (entry) => entry.steps.length },
    { id: "verdict", title: "last verdict", isText: true, read: (entry) => entry.verdict },
  ].map((column) => ({
    read: (entry) => column.shift(entry)?.[0] ?? null,
    fill: (entry) => fill(column, entry, unit),
    ...column,
  }));

  function fill({ read, shift, isText }, entry, unit) {
    if (!shift) return isText ? el("td", {}, nameText(read(entry))) : numberCell(wholeText(read(entry)));
    const cell = numberCell("", { class: "number change" });
    const range = shiftRange(shift(entry), unit);
    cell.append(el("span", { text: shiftText(shift(entry), unit) }));
    if (range) cell.append(el("small", { text: range }));
    return cell;
  }

  class Curves {
    #shared;
    #columns;
    #cards;
    #sort = { id: null, isDescending: false };
    #grid = el("div", { class: "history-grid-of-cards" });
    #rows = el("tbody", {});
    #count = el("p", { class: "hint", role: "status" });
    #none = note("No case fits these choices.");
    #printNote = el("p", { class: "print-note" });
    #inView = new Set();
    #byElement = new Map();
    #watcher = new IntersectionObserver((seen) => this.#notice(seen), { rootMargin: MARGIN });
    #width = 0;
    #widths = new ResizeObserver(() => this.#fit());

    constructor(shared) {
      this.#shared = shared;
      this.#columns = columns(shared);
      this.#cards = new Map(shared.cases.map((entry) => [entry, new Card(entry, shared)]));
      for (const card of this.#cards.values()) this.#byElement.set(card.element, card);
    }

    draw(root) {
      const head = sortableHead(this.#columns, this.#sort, () => this.#update());
      root.replaceChildren(
        el("div", { class: "toolbar history-toolbar" }, ...this.#filters(),
          toggle("Cases", AMOUNTS, amount(), (id) => this.#choose({ cases: id })),
          toggle("Runs", AXES, axis(), (id) => {
            choose({ axis: id });
            this.#redraw();
          })),
        this.#count,
        scrollBox("Cases", el("table", { class: "history-cases" }, head, this.#rows)),
        el("ul", { class: "history-legend" }, ...legend(this.#shared).map(([kind, meaning]) =>
          el("li", {}, el("span", { class: `history-key key-${kind}`, "aria-hidden": "true" }),
            meaning))),
        note("Point at a curve to read its runs; the arrow keys, Home and End move from run to run."),
        this.#printNote, this.#none, this.#grid,
      );
      this.#update();
      this.#widths.observe(this.#grid);
    }

    stop() {
      this.#watcher.disconnect();
      this.#widths.disconnect();
    }

    // For other colours nothing needs to be drawn; paper has another width and shows all curves.
    repaint() {
      const cards = this.#shown().map((entry) => this.#cards.get(entry));
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
      this.#update();
    }

    #shown() {
      const { cases } = this.#shared;
      const fits = (entry) => FILTERS.every(([key]) => {
        const value = chosen(`of-${key}`);
        return value === null || !cases.some((each) => each[key] === value) || entry[key] === value;
      });
      const shown = cases.filter(
        (entry) => fits(entry) && (amount() === "all" || entry.steps.length));
      const column = this.#columns.find(({ id }) => id === this.#sort.id);
      return column ? sortedBy(shown, column.read, this.#sort.isDescending) : shown;
    }

    // The curves stand in the order of the table.
    #update() {
      const shown = this.#shown();
      this.#rows.replaceChildren(...shown.map((entry) => this.#row(entry)));
      this.#count.textContent =
        `${wholeText(shown.length)} of ${wholeText(this.#shared.cases.length)} cases`;
      this.#none.hidden = shown.length > 0;
      for (const card of this.#inView) card.hide();
      this.#inView.clear();
      this.#watcher.disconnect();
      this.#grid.replaceChildren(...shown.map((entry) => this.#cards.get(entry).element));
      for (const element of this.#grid.children) this.#watcher.observe(element);
    }

    #row(entry) {
      const [first, ...others] = this.#columns.map((column) => column.fill(entry));
      const name = el("button", { type: "button", class: "history-jump",
        on: { click: () => this.#jump(entry) } }, ...first.childNodes);
      return el("tr", {}, el("th", { scope: "row" }, name), ...others);
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
