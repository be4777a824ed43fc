// The levels of a what-if: which are shown, how each looks, and the text of its times.
modelperf.whatifLevels = (() => {
  "use strict";

  const { UNKNOWN, chosen, colors, el, isKnown } = modelperf;
  const { chartText, plot } = modelperf.charts;
  const { known, msText, shareText, sum } = modelperf.figures;
  const { errorBars, short } = modelperf.sides;
  const { numberCell } = modelperf.tables;

  const ALL = "all";
  const VIEWS = [["ms", "ms"], ["log", "log"], ["percent", "percent"]];
  // The number of colours in the style sheet.
  const COLORS = 8;
  // One nanosecond, in ms: a shorter time is a remainder of a subtraction.
  const SHORTEST_MS = 1e-6;
  const OUTSIDE = "ran outside the accelerated engine: no speedup is given";

  // The choices: the unchanged model, each level, and all of them.
  function summaries({ levels }) {
    const word = ({ failure }) => (failure === null ? "" : " · failed");
    return [
      [ALL, "all side by side"],
      ...levels.map((level) => [level.title, `${level.title}${word(level)}`]),
    ];
  }

  // The choice, which the address keeps too: a level beside the unchanged model.
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
      // Without a choice, a level without times would be a column of dashes.
      shown: isAll ? wanted.filter(hasTimes) : wanted,
      wanted,
    };
  }

  // Failures and estimates among the chosen levels, in words.
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

  // The time of a whole level, which its percentages refer to.
  function totalsOf({ levels, types }) {
    return levels.map(({ ms }, index) => sum(types.map((type) => type.ms[index])) || ms);
  }

  // The value of a row of types or layers in the chosen unit.
  function heightOf(ms, index, { view }, totals) {
    if (view !== "percent") return ms;
    return isKnown(ms) && totals[index] ? ms / totals[index] : null;
  }

  function heightText(height, { view }, decimals) {
    return view === "percent" ? shareText(height) : msText(height, decimals);
  }

  // The same format as on the terminal.
  const speedupText = (value) => (isKnown(value) ? `x${value.toFixed(2)}` : UNKNOWN);

  // A layer that ran outside the accelerated engine has no speedup.
  function speedupOf({ ms, outside }, index) {
    if (outside?.[0] || outside?.[index]) return null;
    return ms[0] >= SHORTEST_MS && ms[index] ? ms[0] / ms[index] : null;
  }

  // The columns of figures for the shown levels; `text` formats a time.
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

  // Without a column of its own, the speedup stands below the time.
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

  // The bars of a level; estimates and levels that share a colour are striped.
  function barMarker(index, { is_estimate: isEstimate }) {
    const shape = isEstimate ? "/" : index < COLORS ? "" : "x";
    const stripes = { size: 6, solidity: 0.35, fillmode: "overlay", fgcolor: colors().background };
    return { color: colorOf(index), pattern: { shape, ...stripes } };
  }

  // The colour in the present theme.
  function colorOf(index) {
    const probe = el("span");
    probe.style.color = `var(--level-${index % COLORS})`;
    document.body.append(probe);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  }

  // The speedup of each level, with its interval.
  function drawSpeedups(chart, { levels }) {
    const shown = [...levels.keys()].filter((index) => isKnown(levels[index].speedup?.[0]));
    const named = shown.map((index) => chartText(levels[index].title));
    const values = shown.map((index) => levels[index].speedup[0]);
    const bounds = shown.map((index) => {
      const [, low, high] = levels[index].speedup;
      return isKnown(low) && isKnown(high) ? [low, high] : null;
    });
    const { text, muted } = colors();
    const [least, most] = [Math.min(...values, 1), Math.max(...values, 1)];
    // A long error bar is cut before it flattens the chart.
    const room = Math.max(most - least, 0.1 * most);
    const ends = known([...values, ...bounds.flat(), 1]).map((end) =>
      Math.min(most + room, Math.max(least - room, end)));
    const margin = 0.12 * (Math.max(...ends) - Math.min(...ends));
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
        tickvals: named, ticktext: shown.map((index) => short(levels[index].title, 24)),
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
