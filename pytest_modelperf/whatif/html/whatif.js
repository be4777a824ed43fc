// The what-if: how fast each level is, and the layers of the chosen levels.
(() => {
  "use strict";

  const { choose, el, hide, isKnown, picker, section, toggle } = modelperf;
  const { note } = modelperf.tables;
  const { VIEWS, choiceOf, drawSpeedups, hasSpeedups, remarks, summaries } =
    modelperf.whatifLevels;
  const { TypeSummary } = modelperf.whatifTypes;
  const { LayerTable } = modelperf.whatifLayers;

  class WhatIf {
    #entry;
    #speedups = el("div", { class: "plot", role: "figure", "aria-label":
      "How many times as fast each level is; the same figures are in the overview." });
    #remarks = el("div", { "aria-live": "polite" });
    #printNote = el("p", { class: "print-note" });
    #types = null;
    #layers = null;

    constructor(entry) {
      const areTimed = (rows) => rows.some(({ ms }) => ms.some(isKnown));
      this.#entry = entry;
      if (areTimed(entry.types)) this.#types = new TypeSummary(entry);
      if (areTimed(entry.layers)) this.#layers = new LayerTable(entry);
    }

    draw(root) {
      const { summary, view } = choiceOf(this.#entry);
      const parts = [
        el("div", { class: "toolbar whatif-toolbar" },
          picker("Summary", summaries(this.#entry), summary, (id) => this.#choose({ summary: id })),
          toggle("Times as", VIEWS, view, (id) => this.#choose({ view: id }))),
        this.#printNote,
        this.#remarks,
        ...headed("Layer types", this.#types, "The layer types have no times."),
        ...headed("Layers", this.#layers, "The layers have no times."),
      ];
      if (hasSpeedups(this.#entry)) parts.unshift(this.#speedups);
      root.replaceChildren(...parts);
      this.#update();
    }

    repaint() {
      if (hasSpeedups(this.#entry)) drawSpeedups(this.#speedups, this.#entry);
      this.#types?.repaint();
    }

    showForPrint() {
      this.#layers?.showForPrint();
    }

    showForScreen() {
      this.#layers?.showForScreen();
    }

    #choose(changes) {
      choose(changes);
      this.#update();
    }

    #update() {
      const choice = choiceOf(this.#entry);
      const [, title] = summaries(this.#entry).find(([id]) => id === choice.summary);
      this.#printNote.textContent = `Summary: ${title}, times as ${choice.view}.`;
      this.#remarks.replaceChildren(...remarks(this.#entry, choice).map(note));
      if (hasSpeedups(this.#entry)) drawSpeedups(this.#speedups, this.#entry);
      this.#types?.show(choice);
      this.#layers?.show(choice);
    }
  }

  const headed = (heading, part, whyNot) =>
    [el("h3", { text: heading }), part ? part.element : note(whyNot)];

  // The parts that show the chosen case.
  let shown = null;

  section("whatif", {
    draw(root, view) {
      shown = null;
      if (!view.case?.whatif) {
        hide(root);
        return;
      }
      shown = new WhatIf(view.case.whatif);
      shown.draw(root);
    },
    redraw: () => shown?.repaint(),
  });
  window.addEventListener("beforeprint", () => shown?.showForPrint());
  window.addEventListener("afterprint", () => shown?.showForScreen());
})();
