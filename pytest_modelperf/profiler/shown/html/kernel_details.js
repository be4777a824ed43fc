// The details of one layer: its times, its parameters, and the other layers in its kernel.
modelperf.kernelDetails = (() => {
  "use strict";

  const { UNKNOWN, el, format } = modelperf;
  const { hasTwo, sideIndexes, sideTag } = modelperf.sides;
  const { changeText, isKnown, latest, rangeText, ratioText } = modelperf.figures;
  const { shareText, timeText, tone, wholeText } = modelperf.figures;
  const { nameText, note } = modelperf.tables;
  const { deltaOf, hasTimeOfItsOwn, isThere, namesOf } = modelperf.layers;
  const { parametersOf, ratioOf, whyNoTime } = modelperf.layers;

  class KernelDetails {
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
      const number = latest(layer.numbers ?? [layer.depth]);
      const place = isKnown(number) ? `, #${number}` : "";
      const kind = layer.is_layer ? place : ", beside the layers";
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

    // Layers that only one side fuses stand out, compared by type because names may differ.
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

  // Counts are shortened unless two different ones would then look equal.
  function parameterTexts(values) {
    const short = values.map((value) => (typeof value === "number" ? format.count(value) : value));
    const isMisleading = new Set(short).size < new Set(values).size;
    return values.map((value, side) => {
      if (!isKnown(value)) return UNKNOWN;
      return typeof value === "number" && isMisleading ? wholeText(value) : short[side];
    });
  }

  return { KernelDetails };
})();
