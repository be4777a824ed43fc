// The time of each layer by its position in the graph.
(() => {
  "use strict";

  const { el, toggle } = modelperf;
  const {
    barMarker, chartBox, chartPart, chartText, hasTwo, look, plot, sideIndexes, sideLabel, tooltip,
  } = modelperf.charts;
  const { decimalsFor, isKnown, known, largest, shareText, sum, timeText } = modelperf.figures;
  const { sortedBy } = modelperf.tables;
  const { IN_ANOTHER } = modelperf.layers;

  // The most layers whose bars fit side by side; with more, each side has its own chart.
  const MANY_LAYERS = 250;
  const TITLES = { ms: "ms", log: "ms (logarithmic)", share: "share of its side" };

  class DepthChart {
    parts;
    #view;
    #layers;
    #decimals;
    #totals;
    #isMany;
    #isApart;
    #shape;
    #scale = "ms";
    #plot = chartBox();

    constructor(view, layers) {
      this.#view = view;
      this.#layers = sortedBy(layers, (layer) => layer.depth, false);
      this.#totals = sideIndexes(view).map((side) =>
        sum(view.case.layers.map(({ ms }) => ms[side])));
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
        choice("time as", Object.keys(TITLES), this.#scale, (scale) => { this.#scale = scale; })),
      this.#plot];
    }

    draw = () => {
      const sides = sideIndexes(this.#view);
      const traces = [
        ...sides.map((side) => this.#trace(side)),
        ...sides.map((side) => this.#hiddenTrace(side)).filter(({ x }) => x.length > 0),
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
      return {
        title: TITLES[this.#scale], type: this.#scale === "log" ? "log" : "linear",
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
      const places = this.#placesWhere(({ ms }) => isKnown(ms[side]));
      const points = this.#points(places, side, ({ ms }) => ms[side]);
      const trace = { ...points, name: chartText(sideLabel(this.#view, side) || "time") };
      const marker = barMarker(side, hasTwo(this.#view));
      if (this.#shape === "bars") return { ...trace, type: "bar", marker };
      const { color, dash, symbol } = look(side);
      return {
        ...trace, type: "scatter", mode: this.#isMany ? "lines" : "lines+markers",
        // No time lies between two layers, so steps lead from one to the next.
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
      const ms = layer.ms[side];
      const share = isKnown(ms) && this.#totals[side] ? ms / this.#totals[side] : null;
      const time = layer.why_no_time[side] ??
        `${timeText(ms, this.#decimals)}, ${shareText(share)}`;
      const title = `${layer.names[side] ?? layer.type} (${layer.type})`;
      return tooltip([title, label ? `${label}: ${time}` : time]);
    }
  }

  chartPart("depth", (view) => {
    const layers = (view.case?.layers ?? []).filter((layer) => layer.is_layer);
    if (layers.some(({ ms }) => known(ms).length)) return new DepthChart(view, layers);
    return layers.length ? "the layers of this case have no times" : null;
  });
})();
