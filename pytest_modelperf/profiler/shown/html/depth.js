// The time of each layer by its position in the graph, or its FLOPs if nothing ran.
(() => {
  "use strict";

  const { el, format, toggle } = modelperf;
  const {
    barMarker, chartBox, chartPart, chartText, hasTwo, look, plot, sideIndexes, sideLabel, tooltip,
  } = modelperf.charts;
  const { decimalsFor, isKnown, known, largest, shareText, sum, timeText } = modelperf.figures;
  const { sortedBy } = modelperf.tables;
  const { IN_ANOTHER } = modelperf.layers;

  // The most layers whose bars fit side by side; with more, each side has its own chart.
  const MANY_LAYERS = 250;
  // The unit of each fact of a layer that can be drawn.
  const UNITS = { ms: "ms", flops: "FLOPs" };

  class DepthChart {
    parts;
    #view;
    #layers;
    #fact;
    #decimals;
    #totals;
    #isMany;
    #isApart;
    #shape;
    #scale;
    #plot = chartBox();

    constructor(view, layers, fact) {
      this.#view = view;
      this.#fact = fact;
      this.#scale = UNITS[fact];
      this.#layers = sortedBy(layers, (layer) => layer.depth, false);
      this.#totals = sideIndexes(view).map((side) =>
        sum(view.case.layers.map((layer) => layer[fact][side])));
      this.#decimals = decimalsFor(largest(this.#totals));
      this.#isMany = layers.length > MANY_LAYERS;
      this.#isApart = this.#isMany && hasTwo(view);
      this.#shape = this.#isMany ? "lines" : "bars";
      const choice = (label, options, chosen, take) =>
        toggle(label, options.map((option) => [option, option]), chosen, (option) => {
          take(option);
          this.draw();
        });
      this.parts = [el("div", { class: "toolbar" },
        choice("drawn as", ["bars", "lines"], this.#shape, (shape) => { this.#shape = shape; }),
        choice(`${fact === "ms" ? "time" : "FLOPs"} as`, [UNITS[fact], "log", "share"], this.#scale,
          (scale) => { this.#scale = scale; })),
      this.#plot];
    }

    draw = () => {
      const sides = sideIndexes(this.#view);
      const traces = [
        ...sides.map((side) => this.#trace(side)),
        ...(this.#fact === "ms" ? sides.map((side) => this.#hiddenTrace(side)) : [])
          .filter(({ x }) => x.length > 0),
      ];
      const isApart = this.#isApart;
      plot(this.#plot, traces, {
        height: isApart ? 440 : 340, barmode: "group", bargap: 0.15,
        margin: { l: 56, r: 12, t: 36, b: 44 }, hovermode: "closest",
        xaxis: { title: "position in the graph", zeroline: false, anchor: isApart ? "y2" : "y" },
        yaxis: this.#axis(isApart ? { domain: [0.53, 1] } : {}),
        ...(isApart ? { yaxis2: this.#axis({ domain: [0, 0.47], matches: "y" }) } : {}),
        showlegend: traces.length > 1,
      }, { onClick: ([{ customdata }]) => {
        if (isKnown(customdata)) modelperf.kernels.open(this.#layers[customdata]);
      } });
    };

    #axis(place) {
      const unit = UNITS[this.#fact];
      const titles = { log: `${unit} (logarithmic)`, share: "share of its side" };
      return {
        title: titles[this.#scale] ?? unit, type: this.#scale === "log" ? "log" : "linear",
        tickformat: this.#scale === "share" ? ".0%" : "", rangemode: "tozero", ...place,
      };
    }

    // The layers at these places of the list, at the height that `read` returns.
    #points(places, side, read) {
      const layers = places.map((at) => this.#layers[at]);
      const isShare = this.#scale === "share";
      return {
        yaxis: this.#isApart && side ? "y2" : "y", x: layers.map(({ depth }) => depth),
        y: layers.map((layer) => (isShare ? read(layer) / (this.#totals[side] || 1) : read(layer))),
        customdata: places, hoverinfo: "text",
        hovertext: layers.map((layer) => this.#hover(layer, side)),
      };
    }

    #placesWhere(holds) {
      return [...this.#layers.keys()].filter((at) => holds(this.#layers[at]));
    }

    #trace(side) {
      const read = (layer) => layer[this.#fact][side];
      const points = this.#points(this.#placesWhere((layer) => isKnown(read(layer))), side, read);
      const trace = { ...points, name: chartText(sideLabel(this.#view, side) || "time") };
      const marker = barMarker(side, hasTwo(this.#view));
      if (this.#shape === "bars") return { ...trace, type: "bar", marker };
      const { color, dash, symbol } = look(side);
      return {
        ...trace, type: "scatter", mode: this.#isMany ? "lines" : "lines+markers",
        // There is no time between two layers, so steps lead from one to the next.
        line: {
          color, width: this.#isMany ? 1 : 1.5, dash: this.#isApart ? "solid" : dash, shape: "hvh",
        },
        marker: { color, size: 5, symbol },
      };
    }

    // Layers without their own time are drawn at the time of their kernel.
    #hiddenTrace(side) {
      const hosts = new Map(this.#layers.map((layer) => [layer.names[side], layer.ms[side]]));
      const places = this.#placesWhere(({ states }) => states[side] === IN_ANOTHER);
      const label = sideLabel(this.#view, side);
      const { color, symbol } = look(side);
      return {
        ...this.#points(places, side, (layer) => hosts.get(layer.runs_in[side]) ?? 0),
        type: "scatter", mode: "markers", visible: "legendonly",
        name: chartText(label ? `${label}, ${IN_ANOTHER}` : IN_ANOTHER),
        marker: {
          color: modelperf.colors().muted, size: 7, symbol: `${symbol}-open`,
          line: { color, width: 1.5 },
        },
      };
    }

    #hover(layer, side) {
      const label = sideLabel(this.#view, side);
      const value = layer[this.#fact][side];
      const share = isKnown(value) && this.#totals[side] ? value / this.#totals[side] : null;
      const [text, whyNot] = this.#fact === "ms"
        ? [timeText(value, this.#decimals), layer.why_no_time[side]] : [format.count(value), null];
      const time = whyNot ?? `${text}, ${shareText(share)}`;
      const title = `${layer.names[side] ?? layer.type} (${layer.type})`;
      return tooltip([title, label ? `${label}: ${time}` : time]);
    }
  }

  chartPart("depth", (view) => {
    const layers = (view.case?.layers ?? []).filter((layer) => layer.is_layer);
    const fact = Object.keys(UNITS).find((each) => layers.some((layer) => known(layer[each]).length));
    if (fact) return new DepthChart(view, layers, fact);
    return layers.length ? "the layers of this case have neither times nor FLOPs" : null;
  });
})();
