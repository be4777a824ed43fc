// The filters of the kernel table: by the text of any field, type, precision, numbers and difference.
modelperf.kernelFilters = (() => {
  "use strict";

  const { el } = modelperf;
  const { isKnown, known, wholeText } = modelperf.figures;
  const { isTransition } = modelperf.layers;

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

    // Most frequent first.
    #counts(read) {
      const counts = new Map();
      for (const row of this.#rows) {
        for (const value of read(row)) counts.set(value, (counts.get(value) ?? 0) + 1);
      }
      return [...counts].sort((one, other) => other[1] - one[1]);
    }

    #search() {
      const box = el("input", { type: "search", placeholder: "name, type, weight, ID …" });
      box.setAttribute("aria-label", "any field contains");
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

  function tickBox(label, isOn, onChange, attributes = {}) {
    const box = el("input", { type: "checkbox", ...attributes });
    box.checked = isOn;
    box.addEventListener("change", () => onChange(box.checked));
    return el("label", { class: "tick" }, box, el("span", { text: label }));
  }

  // A list with several choices behind a button that names them.
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

  // An open list closes like a menu.
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

  return { KernelFilters, tickBox };
})();
