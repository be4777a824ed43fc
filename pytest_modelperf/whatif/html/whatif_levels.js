// The levels of a what-if: which are shown, how each looks, and what its times read as.
modelperf.whatifLevels = (() => {
  "use strict";

  const { UNKNOWN, chartText, chosen, colors, el, isKnown, plot } = modelperf;
  const { known, msText, shareText, sum } = modelperf.figures;
  const { errorBars } = modelperf.sides;
  const { numberCell } = modelperf.tables;

  const ALL = "all";
  const VIEWS = [["ms", "ms"], ["log", "log"], ["percent", "percent"]];
  // So many colours are in the style sheet.
  const COLORS = 8;
  // A nanosecond: what is said to take less is left of a subtraction.
  const SHORTEST_MS = 1e-6;
  const OUTSIDE = "ran outside the accelerated engine: no speedup is given";

  // What is there to choose from: the model as it is, each level, and all of them.
  function summaries({ levels }) {
    const word = ({ failure }) => (failure === null ? "" : " · failed");
    return [
      [ALL, "all side by side"],
      ...levels.map((level) => [level.title, `${level.title}${word(level)}`]),
    ];
  }

  // What is chosen, in the address as well; a level beside the model as it is.
  function choiceOf({ levels, types, layers }) {
    const title = chosen("summary");
    const picked = levels.findIndex((level) => level.title === title);
    const isAll = picked < 0;
    const wanted = isAll ? [...levels.keys()] : [...new Set([0, picked])];
    const hasTimes = (index) =>
      [...types, ...layers].some(({ ms }) => isKnown(ms[index]));
    return {
      summary: isAll ? ALL : title,
      view: VIEWS.find(([id]) => id === chosen("view"))?.[0] ?? "ms",
      isAll,
      isBaseline: picked === 0,
      // Where none was chosen, what has no times would be a column of dashes.
      shown: isAll ? wanted.filter(hasTimes) : wanted,
      wanted,
    };
  }

  // What is wrong with the levels that were asked for, or to be known of them.
  function remarks({ levels, layers }, { wanted, shown }) {
    const told = wanted
      .filter((index) => levels[index].failure !== null)
      .map((index) => `${levels[index].title} failed: ${levels[index].failure}`);
    if (shown.some((index) => levels[index].is_estimate)) {
      told.push("An estimate lies between two levels that were measured, and has no interval.");
    }
    if (layers.some(({ outside }) => shown.some((index) => outside[index]))) {
      told.push(`outside: the layer ${OUTSIDE}.`);
    }
    return told;
  }

  // The whole of a level, of which its percentages are.
  function totalsOf({ levels, types }) {
    return levels.map(({ ms }, index) => sum(types.map((type) => type.ms[index])) || ms);
  }

  // As it is drawn, or shown, of a row of types or of layers.
  function heightOf(ms, index, { view }, totals) {
    if (view !== "percent") return ms;
    return isKnown(ms) && totals[index] ? ms / totals[index] : null;
  }

  function heightText(height, { view }, decimals) {
    return view === "percent" ? shareText(height) : msText(height, decimals);
  }

  // As on the terminal.
  const speedupText = (value) => (isKnown(value) ? `x${value.toFixed(2)}` : UNKNOWN);

  // What is outside on either side was not sped up by the engine, whatever its times are.
  function speedupOf({ ms, outside }, index) {
    if (outside?.[0] || outside?.[index]) return null;
    return ms[0] >= SHORTEST_MS && ms[index] ? ms[0] / ms[index] : null;
  }

  // The columns of the figures of the levels that are shown; `text` makes the text of a time.
  function columnsOf({ levels }, choice, text) {
    const unit = choice.view === "percent" ? "%" : "ms";
    const columns = choice.shown.map((index) => ({
      id: `ms-${index}`,
      title: `${levels[index].title} ${unit}`,
      width: "level",
      read: ({ ms }) => ms[index],
      cell: (row) => timeCell(row, index, levels[index], choice, text),
    }));
    if (!choice.isAll && !choice.isBaseline) {
      const index = choice.shown.at(-1);
      columns.push({
        id: `speedup-${index}`,
        title: "speedup",
        width: "level",
        note: `time of ${levels[0].title} / time of ${levels[index].title}`,
        read: (row) => speedupOf(row, index),
        cell: (row) => speedupCell(row, index, levels[index]),
      });
    }
    return columns;
  }

  // Where there is no column of its own for it, what it is faster by stands below a time.
  function timeCell(row, index, level, { isAll, isBaseline }, text) {
    const cell = numberCell("", level.is_estimate ? { class: "number estimate" } : {});
    cell.append(el("span", { text: text(row.ms[index], index) }));
    if (row.outside?.[index] && (isAll || isBaseline)) cell.append(outsideTag());
    else if (isAll && index > 0) {
      const speedup = speedupOf(row, index);
      cell.append(el("small", { text: isKnown(speedup) ? speedupText(speedup) : "" }));
    }
    return cell;
  }

  function speedupCell(row, index, level) {
    if (row.outside?.[index]) return el("td", { class: "number" }, outsideTag());
    const attributes = level.is_estimate ? { class: "number estimate" } : {};
    return numberCell(speedupText(speedupOf(row, index)), attributes);
  }

  const outsideTag = () => el("small", { class: "outside", text: "outside", title: OUTSIDE });

  // Bars of a level; an estimate is striped, and so is what shares its colour with another.
  function barMarker(index, { is_estimate: isEstimate }) {
    const shape = isEstimate ? "/" : index < COLORS ? "" : "x";
    const stripes = { size: 6, solidity: 0.35, fillmode: "overlay", fgcolor: colors().background };
    return { color: colorOf(index), pattern: { shape, ...stripes } };
  }

  // As the style sheet has it in the present theme.
  function colorOf(index) {
    const probe = el("span");
    probe.style.color = `var(--level-${index % COLORS})`;
    document.body.append(probe);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  }

  // How many times as fast each level is, with its interval.
  function drawSpeedups(chart, { levels }) {
    const shown = [...levels.keys()].filter((index) => isKnown(levels[index].speedup?.[0]));
    const named = shown.map((index) => chartText(levels[index].title));
    const values = shown.map((index) => levels[index].speedup[0]);
    const bounds = shown.map((index) => {
      const [, low, high] = levels[index].speedup;
      return isKnown(low) && isKnown(high) ? [low, high] : null;
    });
    const { text, muted } = colors();
    const ends = known([...values, ...bounds.flat(), 1]);
    const margin = 0.12 * (Math.max(...ends) - Math.min(...ends) || 1);
    const trace = {
      type: "scatter",
      mode: "markers",
      x: values,
      y: named,
      error_x: errorBars(values, bounds, muted),
      marker: {
        size: 10,
        color: shown.map(colorOf),
        symbol: shown.map((index) => (levels[index].is_estimate ? "circle-open" : "circle")),
        line: { width: 2 },
      },
      hoverinfo: "text",
      hovertext: shown.map((index) => chartText(describe(levels[index]))),
    };
    plot(chart, [trace], {
      height: 28 * shown.length + 80,
      margin: { l: 8, r: 12, t: 8, b: 44 },
      xaxis: {
        title: "times as fast",
        range: [Math.min(...ends) - margin, Math.max(...ends) + margin],
        zeroline: false,
        fixedrange: true,
      },
      yaxis: {
        type: "category", autorange: "reversed", automargin: true, fixedrange: true,
        tickvals: named, ticktext: named,
      },
      shapes: [{
        type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, layer: "below",
        line: { color: text, width: 1, dash: "dot" },
      }],
    });
  }

  function describe({ title, is_estimate: isEstimate, speedup: [value, low, high] }) {
    const isSure = isKnown(low) && isKnown(high);
    const bounds = isSure ? ` (${low.toFixed(2)} … ${high.toFixed(2)})` : "";
    return `${title}: ${speedupText(value)}${bounds}${isEstimate ? ", an estimate" : ""}`;
  }

  const hasSpeedups = ({ levels }) =>
    levels.filter(({ speedup }) => isKnown(speedup?.[0])).length > 1;

  return {
    VIEWS,
    summaries,
    choiceOf,
    remarks,
    totalsOf,
    heightOf,
    heightText,
    SHORTEST_MS,
    speedupOf,
    speedupText,
    columnsOf,
    barMarker,
    drawSpeedups,
    hasSpeedups,
  };
})();
