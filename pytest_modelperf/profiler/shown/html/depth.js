// The time of each layer by its position in the graph.
(() => {
  "use strict";

  const { el } = modelperf;
  const { chartText, plot } = modelperf.charts;
  const { barMarker, hasTwo, sideIndexes, sideLabel } = modelperf.sides;
  const { decimalsFor, isKnown, known, largest, shareText, sum, timeText } = modelperf.figures;
  const { sortedBy } = modelperf.tables;
  const { IN_ANOTHER, hasTimeOfItsOwn, whyNoTime } = modelperf.layers;

  // The most layers whose bars fit side by side; with more, each side has its own chart.
  const MANY_LAYERS = 250;

  class DepthChart {
    #view;
    #layers;
    #decimals;
    #totals;
    #isMany;
    #shape;
    #scale = "ms";
    #plot = el("div", { class: "plot" });

    constructor(view, layers) {
      this.#view = view;
      this.#layers = sortedBy(layers, (layer) => layer.depth, false);
      this.#totals = sideIndexes(view).map((side) =>
        sum(view.case.layers.map((layer) => layer.ms[side])),
      );
      this.#decimals = decimalsFor(largest(this.#totals));
      this.#isMany = layers.length > MANY_LAYERS;
      this.#shape = this.#isMany ? "lines" : "bars";
    }

    draw(root) {
      const shapes = choice("drawn as", ["bars", "lines"], this.#shape, (shape) => {
        this.#shape = shape;
        this.repaint();
      });
      const scales = choice("time as", ["ms", "log", "share"], this.#scale, (scale) => {
        this.#scale = scale;
        this.repaint();
      });
      root.replaceChildren(el("div", { class: "toolbar" }, shapes, scales), this.#plot);
      this.repaint();
    }

    repaint() {
      const sides = sideIndexes(this.#view);
      const traces = [
        ...sides.map((side) => this.#trace(side)),
        ...sides.map((side) => this.#hiddenTrace(side)).filter(({ x }) => x.length > 0),
      ];
      const isApart = this.#isApart();
      plot(this.#plot, traces, {
        height: isApart ? 440 : 340,
        barmode: "group",
        bargap: 0.15,
        margin: { l: 56, r: 12, t: 36, b: 44 },
        hovermode: "closest",
        xaxis: {
          title: { text: "position in the graph" },
          zeroline: false,
          anchor: isApart ? "y2" : "y",
        },
        yaxis: this.#axis(isApart ? { domain: [0.53, 1] } : {}),
        ...(isApart ? { yaxis2: this.#axis({ domain: [0, 0.47], matches: "y" }) } : {}),
        showlegend: traces.length > 1,
        legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal" },
      }, { onClick: ([point]) => this.#open(point) });
    }

    #isApart() {
      return this.#isMany && hasTwo(this.#view);
    }

    #axis(place) {
      const titles = { ms: "ms", log: "ms (logarithmic)", share: "share of its side" };
      return {
        title: { text: titles[this.#scale] },
        type: this.#scale === "log" ? "log" : "linear",
        tickformat: this.#scale === "share" ? ".0%" : "",
        rangemode: "tozero",
        ...place,
      };
    }

    #open({ customdata }) {
      if (isKnown(customdata)) modelperf.kernels.open(this.#layers[customdata]);
    }

    #height(ms, side) {
      if (!isKnown(ms)) return null;
      return this.#scale === "share" ? ms / (this.#totals[side] || 1) : ms;
    }

    #trace(side) {
      const places = [...this.#layers.keys()].filter((at) => isKnown(this.#layers[at].ms[side]));
      const layers = places.map((at) => this.#layers[at]);
      const name = sideLabel(this.#view, side) || "time";
      const trace = {
        yaxis: this.#isApart() && side ? "y2" : "y",
        name: chartText(name),
        x: layers.map(({ depth }) => depth),
        y: layers.map((layer) => this.#height(layer.ms[side], side)),
        customdata: places,
        hoverinfo: "text",
        hovertext: layers.map((layer) => this.#hover(layer, side)),
      };
      const marker = barMarker(side, hasTwo(this.#view));
      if (this.#shape === "bars") return { ...trace, type: "bar", marker };
      const dash = side && !this.#isApart() ? "dot" : "solid";
      const symbol = side ? "diamond" : "circle";
      return {
        ...trace,
        type: "scatter",
        mode: this.#isMany ? "lines" : "lines+markers",
        // No time lies between two layers, so steps lead from one to the next.
        line: { color: marker.color, width: this.#isMany ? 1 : 1.5, dash, shape: "hvh" },
        marker: { color: marker.color, size: 5, symbol },
      };
    }

    // Layers without their own time are drawn at the time of their kernel.
    #hiddenTrace(side) {
      const hosts = new Map(this.#layers.map((layer) => [layer.names[side], layer.ms[side]]));
      const places = [...this.#layers.keys()].filter(
        (at) => this.#layers[at].states[side] === IN_ANOTHER,
      );
      const layers = places.map((at) => this.#layers[at]);
      const label = sideLabel(this.#view, side);
      const { muted, a, b } = modelperf.colors();
      return {
        type: "scatter",
        mode: "markers",
        visible: "legendonly",
        yaxis: this.#isApart() && side ? "y2" : "y",
        name: chartText(label ? `${label}, ${IN_ANOTHER}` : IN_ANOTHER),
        x: layers.map(({ depth }) => depth),
        y: layers.map((layer) => this.#height(hosts.get(layer.runs_in[side]) ?? 0, side)),
        customdata: places,
        hoverinfo: "text",
        hovertext: layers.map((layer) => this.#hover(layer, side)),
        marker: {
          color: muted,
          size: 7,
          symbol: side ? "diamond-open" : "circle-open",
          line: { color: side ? b : a, width: 1.5 },
        },
      };
    }

    #hover(layer, side) {
      const label = sideLabel(this.#view, side);
      const ms = layer.ms[side];
      const own = `${timeText(ms, this.#decimals)}, ${shareText(this.#share(ms, side))}`;
      const time = hasTimeOfItsOwn(layer, side) ? own : whyNoTime(layer, side);
      const title = `${titleOf(layer, side)} (${layer.type})`;
      return [title, label ? `${label}: ${time}` : time].map(chartText).join("<br>");
    }

    #share(ms, side) {
      return isKnown(ms) && this.#totals[side] ? ms / this.#totals[side] : null;
    }
  }

  const choice = (label, options, chosen, onChange) =>
    modelperf.toggle(label, options.map((option) => [option, option]), chosen, onChange);

  function titleOf(layer, side) {
    return layer.names[side] ?? layer.type;
  }

  let repaint = () => {};

  modelperf.section("depth", {
    draw(root, view) {
      repaint = () => {};
      const layers = (view.case?.layers ?? []).filter((layer) => layer.is_layer);
      if (!layers.some((layer) => known(layer.ms).length > 0)) {
        modelperf.hide(root, layers.length ? "the layers of this case have no times" : null);
        return;
      }
      const chart = new DepthChart(view, layers);
      chart.draw(root);
      repaint = () => chart.repaint();
    },
    redraw: () => repaint(),
  });
})();
