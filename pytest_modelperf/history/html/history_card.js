// A case: its name, its curve, and the run that is looked at.
modelperf.historyCard = (() => {
  "use strict";

  const { el } = modelperf;
  const { interval, percent } = modelperf.format;
  const { wholeText } = modelperf.figures;
  const { nameText } = modelperf.tables;
  const { commitAddress, minuteText, pointsOf, shiftRange, shiftText, shortCommit } =
    modelperf.historyPoints;
  const { Curve } = modelperf.historyCurve;

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

    get entry() {
      return this.#entry;
    }

    // Draws the curve for the present width.
    show(axis) {
      const width = this.chart.clientWidth;
      if (!width) return;
      this.#axis = axis;
      if (!this.#curve) {
        this.#points = pointsOf(this.#entry, this.#shared);
        this.#curve = new Curve(this.#entry, this.#points, this.#shared);
        this.chart.append(this.#curve.element);
      }
      this.#curve.draw(width, axis);
      this.#look(this.#index);
    }

    // Frees what the curve takes while nobody sees it.
    hide() {
      this.#curve?.clear();
    }

    #summary() {
      const { change, count, earlier, since } = this.#entry;
      const range = shiftRange(change, this.#shared.log_unit);
      return [
        el("b", { text: shiftText(change, this.#shared.log_unit) }),
        range && ` (${range})`,
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
      this.#look(this.#curve.beside(this.#index, moves[event.key]));
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

    // The reasons where they are new; a later run that has the same ones leads there.
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
      return [el("p", {}, el("button", { type: "button", class: "history-jump", text, on: { click: go } }))];
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
        const range = shiftRange(step, this.#shared.log_unit);
        const text = shiftText(step, this.#shared.log_unit);
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

  return { Card, caseText };
})();
