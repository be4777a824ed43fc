// What all parts about layers share: the marks of their kinds, their names, and their filters.
modelperf.layers = (() => {
  "use strict";

  const { choose, chosen, el, searchBox, tickBox } = modelperf;
  const { isKnown, known, wholeText } = modelperf.figures;
  const { nameText } = modelperf.tables;

  const IN_ANOTHER = "in another kernel";
  // What a search looks into.
  const SEARCHED = [
    "id", "ids", "name", "names", "weight", "weights", "kernel", "kernels", "fused", "type",
    "precision", "precisions", "providers", "inputs", "outputs",
  ];

  // The mark of a kind before the name of an operator.
  const kindMark = ({ id, title }) =>
    el("span", { class: `kind-mark kind-${id}`, title, "aria-hidden": "true" });

  // The colour in the present theme, as rgb(...).
  const kindColor = ({ id }) => modelperf.colorOf("--kind", `kind-${id}`);

  // A mark with its words for each of these kinds.
  function legend(kinds) {
    const found = new Map(kinds.map((kind) => [kind.id, kind]));
    const items = [...found.values()].map((kind) => el("li", {}, kindMark(kind), kind.title));
    return el("ul", { class: "legend", "aria-label": "kinds of operators" }, ...items);
  }

  // The name of a layer type, or of what ran beside the layers.
  function typeCell({ type, kind, is_layer: isLayer }, scope) {
    const small = isLayer ? null : el("small", { text: "beside the layers" });
    return el("th", { scope, class: "text" }, kind && kindMark(kind), nameText(type), small);
  }

  // Each name once, A's first.
  function namesOf(layer) {
    const names = [...new Set(known(layer.names))];
    return names.length ? names : [layer.type];
  }

  // The length of the common start of all names, up to a separator of their parts; `last` is that and
  // what follows it.
  function alikeLength(names, last = null) {
    const [first = ""] = names;
    const differs = (at) => names.some((name) => name[at] !== first[at]);
    let end = names.length > 1 ? 0 : first.length;
    while (end < first.length && !differs(end)) end += 1;
    const alike = first.slice(0, end);
    return alike.search(last ?? (first.includes("/") ? /\/[^/]*$/ : /[.:][^.:]*$/)) + 1;
  }

  const texts = new WeakMap();

  // All texts of a layer, and of those in its kernel: they are found there by each of their names.
  function searchedText(layer) {
    if (!texts.has(layer)) {
      const found = known(SEARCHED.flatMap((key) => layer[key] ?? []).flat())
        .flatMap((value) => (typeof value === "object" ? known(Object.values(value)) : value));
      texts.set(layer, [...new Set(found)].join("\n").toLowerCase());
    }
    return texts.get(layer);
  }

  const emptyFilter = () => ({
    text: "", types: [], precisions: [], limits: {}, onlyDifferences: false, transition: [],
  });

  // The filter in the address, as far as it is valid: an address may have any text.
  function keptFilter() {
    const kept = [];
    try {
      kept.push(...Object.entries(JSON.parse(chosen("filter") ?? "{}")));
    } catch {
      // Nothing is kept in this case.
    }
    const empty = emptyFilter();
    const fits = ([key, value]) => key in empty && isKnown(value) &&
      typeof value === typeof empty[key] && Array.isArray(value) === Array.isArray(empty[key]);
    return { ...empty, ...Object.fromEntries(kept.filter(fits)) };
  }

  function matches(layer, filter, measures) {
    const { types, precisions, transition } = filter;
    const { places } = layer;
    return (!filter.text || searchedText(layer).includes(filter.text)) &&
      (!types.length || types.includes(layer.type)) &&
      (!precisions.length || places.some((place) => precisions.includes(place))) &&
      (!filter.onlyDifferences || layer.differs) &&
      transition.every((place, side) => places[side] === place) &&
      measures.every(({ id, read }) => isWithin(read(layer), filter.limits[id]));
  }

  function isWithin(value, limit) {
    if (!limit) return true;
    const { least, most } = limit;
    return isKnown(value) && value >= (least ?? -Infinity) && value <= (most ?? Infinity);
  }

  // By the text of any field, type, precision, numbers and, for a pair, difference.
  class LayerFilters {
    element = el("div", { class: "filters" });
    filter = keptFilter();
    #layers;
    #measures;
    #isPair;
    #onChange;
    #shown = el("output", { class: "shown" });

    constructor(layers, measures, isPair, onChange) {
      this.#layers = layers;
      this.#measures = measures;
      this.#isPair = isPair;
      this.#onChange = () => {
        choose({ filter: this.isActive ? JSON.stringify(this.filter) : null });
        onChange();
      };
      this.#build();
    }

    select() {
      const found = this.#layers.filter((layer) => matches(layer, this.filter, this.#measures));
      this.#shown.textContent = `${wholeText(found.length)} of ${wholeText(this.#layers.length)}`;
      return found;
    }

    replace(filter) {
      this.filter = { ...emptyFilter(), ...filter };
      this.#build();
      this.#onChange();
    }

    get isActive() {
      return JSON.stringify(this.filter) !== JSON.stringify(emptyFilter());
    }

    #change(changes) {
      Object.assign(this.filter, changes);
      this.#onChange();
    }

    #build() {
      const { types, precisions } = this.filter;
      const clear = { click: () => this.replace({}) };
      this.element.replaceChildren(
        this.#search(),
        manyOf("type", this.#counts(({ type }) => [type]), types, this.#onChange),
        manyOf("precision", this.#counts(({ places }) => new Set(places)), precisions,
          this.#onChange),
        this.#numbers(),
        ...(this.#isPair ? this.#ofTwoSides() : []),
        el("button", { type: "button", class: "clear", text: "clear all", on: clear }),
        this.#shown,
      );
    }

    // Most frequent first.
    #counts(read) {
      const counts = new Map();
      for (const layer of this.#layers) {
        for (const value of read(layer)) counts.set(value, (counts.get(value) ?? 0) + 1);
      }
      return [...counts].sort((one, other) => other[1] - one[1]);
    }

    #search() {
      const box = searchBox("any field contains", "name, type, weight, ID …",
        (text) => this.#change({ text }));
      box.value = this.filter.text;
      return box;
    }

    #numbers() {
      const [list, say] = choices("numbers", () => Object.keys(this.filter.limits).length || "");
      list.lastChild.append(...this.#measures.map((measure) => el("div", { class: "limits" },
        el("span", { text: measure.title }),
        ...["least", "most"].map((bound) => this.#bound(measure, bound, say)))));
      return list;
    }

    #bound({ id, title }, bound, say) {
      const { limits } = this.filter;
      const read = () => {
        const value = Number.isNaN(box.valueAsNumber) ? null : box.valueAsNumber;
        limits[id] = { ...limits[id], [bound]: value };
        if (!known(Object.values(limits[id])).length) delete limits[id];
        say();
        this.#onChange();
      };
      const box = el("input", {
        type: "number", step: "any", placeholder: `at ${bound}`, on: { input: read },
        "aria-label": `${title} at ${bound}`,
      });
      box.value = limits[id]?.[bound] ?? "";
      return box;
    }

    #ofTwoSides() {
      const { onlyDifferences, transition } = this.filter;
      const tick = tickBox("only differences", onlyDifferences,
        (isOn) => this.#change({ onlyDifferences: isOn }));
      tick.title =
        "runs on one side only, has other parameters (names apart), or its time surely changed";
      if (!transition.length) return [tick];
      const chip = {
        type: "button", class: "chip", title: "show all precisions again",
        text: `${transition.join(" → ")}  ×`,
        on: { click: () => this.replace({ ...this.filter, transition: [] }) },
      };
      return [tick, el("button", chip)];
    }
  }

  // A list below a button that shows what is chosen, and a function that updates the button.
  function choices(title, chosen) {
    const summary = el("summary", {});
    const say = () => {
      summary.textContent = `${title}: ${chosen() || "all"}`;
      summary.classList.toggle("active", Boolean(chosen()));
    };
    say();
    return [el("details", { class: "pick" }, summary, el("div", { class: "choices" })), say];
  }

  // A list with several choices.
  function manyOf(title, counts, chosen, onChange) {
    const [list, say] = choices(title, () =>
      (chosen.length <= 2 ? chosen.join(", ") : `${chosen.length} chosen`));
    list.lastChild.append(...counts.map(([value, count]) => {
      const change = (isOn) => {
        if (isOn) chosen.push(value);
        else chosen.splice(chosen.indexOf(value), 1);
        say();
        onChange();
      };
      const label = tickBox(value, chosen.includes(value), change, { value });
      label.append(el("small", { text: wholeText(count) }));
      return label;
    }));
    return list;
  }

  // A list of columns to tick; `names` are the picked ones, null for the usual.
  class ColumnPicker {
    element = el("details", { class: "pick columns" }, el("summary", { text: "columns" }));
    #picked;

    constructor(columns, names, onChange) {
      const usual = columns.filter(({ isOptional }) => !isOptional).map(({ id }) => id);
      this.#picked = new Set(names === null ? usual : names.split(","));
      const boxes = columns.filter(({ isFixed }) => !isFixed).map(({ id, title, note }) => {
        const box = tickBox(title, this.#picked.has(id), (isOn) => {
          if (isOn) this.#picked.add(id);
          else this.#picked.delete(id);
          onChange([...this.#picked].join(","));
        });
        if (note) box.title = note;
        return box;
      });
      this.element.append(el("div", { class: "choices" }, ...boxes));
    }

    shows({ id, isFixed }) {
      return isFixed || this.#picked.has(id);
    }
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

  return {
    IN_ANOTHER, alikeLength, kindMark, kindColor, legend, typeCell, namesOf, searchedText,
    LayerFilters, ColumnPicker,
  };
})();
