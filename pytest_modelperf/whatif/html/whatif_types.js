// Layers by type at each level of a what-if: a chart and a table.
modelperf.whatifTypes = (() => {
  "use strict";

  const { el, isKnown } = modelperf;
  const { chartText, logAxis, plot } = modelperf.charts;
  const { decimalsFor, known, largest, timeText, wholeText } = modelperf.figures;
  const { short } = modelperf.sides;
  const { nameText, note, numberCell, scrollBox, sortableHead, sortedBy } = modelperf.tables;
  const { SHORTEST_MS, barMarker, columnsOf, heightOf, heightText, speedupText, totalsOf } =
    modelperf.whatifLevels;

  const LONGEST_LABEL = 18;
  // The most bars that a chart shows, and the least types that it shows for many levels.
  const MOST_BARS = 48;
  const LEAST_TYPES = 5;

  class TypeSummary {
    element;
    #entry;
    #totals;
    #decimals;
    #choice = null;
    #sort = { id: "ms-0", isDescending: true };
    #chart = el("div", { class: "plot", role: "figure", "aria-label":
      "The time of each layer type; the same figures are in the table below." });
    #hint = el("p", { class: "hint" });
    #table = el("table", { class: "types-table whatif-types" });

    constructor(entry) {
      this.#entry = entry;
      this.#totals = totalsOf(entry);
      this.#decimals = decimalsFor(largest(this.#totals));
      this.element = el(
        "div",
        {},
        this.#chart,
        this.#hint,
        scrollBox("layer types", this.#table),
      );
    }

    show(choice) {
      this.#choice = choice;
      this.#fill();
      this.repaint();
    }

    #text = (ms, index) =>
      heightText(heightOf(ms, index, this.#choice, this.#totals), this.#choice, this.#decimals);

    // A type that ran at none of the shown levels has no line.
    #rows() {
      const { shown } = this.#choice;
      return this.#entry.types.filter(({ ms }) => shown.some((index) => isKnown(ms[index])));
    }

    #columns() {
      return [
        {
          id: "type",
          title: "layer type",
          isText: true,
          read: ({ type }) => type,
          cell: typeCell,
        },
        {
          id: "count",
          title: "layers",
          note: "of the unchanged model",
          read: ({ count }) => count,
          cell: ({ count, is_layer: isLayer }) => numberCell(isLayer ? wholeText(count) : ""),
        },
        ...columnsOf(this.#entry, this.#choice, this.#text),
      ];
    }

    #fill() {
      const columns = this.#columns();
      // The table may be sorted by a column of a level that is no longer shown.
      if (!columns.some(({ id }) => id === this.#sort.id)) {
        this.#sort = { id: columns[2].id, isDescending: true };
      }
      const body = el("tbody", {});
      const order = () => {
        const { read } = columns.find(({ id }) => id === this.#sort.id);
        const rows = sortedBy(this.#rows(), read, this.#sort.isDescending);
        body.replaceChildren(...rows.map((row) => typeRow(row, columns)));
      };
      order();
      const head = sortableHead(columns, this.#sort, order);
      this.#table.replaceChildren(head, body, el("tfoot", {}, this.#sum(columns)));
    }

    #sum(columns) {
      const { levels } = this.#entry;
      const cells = columns.slice(2).map(({ id }) => {
        const [kind, index] = id.split("-");
        const { speedup } = levels[index];
        const value = speedup?.[0] ?? null;
        if (kind === "speedup") return numberCell(speedupText(value));
        const cell = numberCell("");
        cell.append(el("span", { text: this.#text(this.#totals[index], Number(index)) }));
        if (this.#choice.isAll && index > 0 && isKnown(value)) {
          cell.append(el("small", { text: speedupText(value) }));
        }
        return cell;
      });
      return el("tr", {}, el("th", { scope: "row", class: "text", text: "all" }), el("td"), ...cells);
    }

    repaint() {
      const { shown } = this.#choice;
      const most = (row) => largest(shown.map((index) => this.#height(row, index)));
      const rows = sortedBy(this.#rows(), most, true);
      const drawn = rows.slice(0, Math.max(LEAST_TYPES, Math.floor(MOST_BARS / shown.length)));
      this.#hint.textContent = this.#describe(rows.length, drawn.length);
      const levels = shown.filter((index) => drawn.some(({ ms }) => isKnown(ms[index])));
      this.#chart.hidden = levels.length === 0;
      if (!levels.length) return;
      const traces = levels.map((index) => this.#trace(drawn, index));
      plot(this.#chart, traces, {
        // Room for every bar and the names beside them.
        height: drawn.length * Math.max(26, 15 * levels.length + 8) + 110,
        barmode: "group",
        bargap: 0.25,
        margin: { l: 8, r: 8, t: 28, b: 44 },
        xaxis: { ...this.#axis(traces), tickangle: 0, nticks: 5, fixedrange: true },
        yaxis: {
          type: "category",
          autorange: "reversed",
          automargin: true,
          fixedrange: true,
          // A long name would leave no room for the bars.
          tickvals: drawn.map(({ type }) => chartText(type)),
          ticktext: drawn.map(({ type }) => short(type, LONGEST_LABEL)),
        },
        showlegend: levels.length > 1,
        legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal" },
      });
    }

    #describe(types, drawn) {
      const cut = drawn < types ? `The ${drawn} types that take most; all are in the table. ` : "";
      return this.#choice.view === "percent"
        ? `${cut}Percentages are those of the whole of each level.`
        : cut;
    }

    #height(row, index) {
      return heightOf(row.ms[index], index, this.#choice, this.#totals);
    }

    #axis(traces) {
      const { view } = this.#choice;
      const values = known(traces.flatMap(({ x }) => x));
      // Remainders of a subtraction would add decades to a logarithmic axis.
      const positive = values.filter((value) => value >= SHORTEST_MS);
      // The figures stand beside the bars.
      if (view === "log" && positive.length) {
        const ends = [0.5 * Math.min(...positive), 4 * Math.max(...positive)];
        return { ...logAxis(ends), title: "ms (logarithmic)", range: ends.map(Math.log10) };
      }
      const range = [0, 1.25 * Math.max(...values) || 1];
      return view === "percent"
        ? { title: "share of its level", tickformat: ".0%", range }
        : { title: "ms", range };
    }

    #trace(rows, index) {
      const level = this.#entry.levels[index];
      const heights = rows.map((row) => this.#height(row, index));
      return {
        type: "bar",
        orientation: "h",
        name: chartText(level.title),
        y: rows.map(({ type }) => chartText(type)),
        x: heights,
        text: heights.map((height) =>
          isKnown(height) ? heightText(height, this.#choice, this.#decimals) : ""),
        textposition: "outside",
        textfont: { size: 11 },
        cliponaxis: false,
        hoverinfo: "text",
        hovertext: rows.map((row) =>
          [row.type, `${level.title}: ${timeText(row.ms[index], this.#decimals)}`]
            .map(chartText)
            .join("<br>")),
        marker: barMarker(index, level),
      };
    }
  }

  function typeCell({ type, is_layer: isLayer }) {
    const cell = el("th", { scope: "row", class: "text" }, nameText(type));
    if (!isLayer) cell.append(el("small", { text: "beside the layers" }));
    return cell;
  }

  function typeRow(row, columns) {
    const line = el("tr", { class: row.is_layer ? "" : "beside" });
    line.append(...columns.map(({ cell }) => cell(row)));
    line.dataset.type = row.type;
    return line;
  }

  return { TypeSummary };
})();
