// The levels of a what-if: which are shown, how each looks, and the text of its times.
modelperf.whatifLevels = (() => {
  "use strict";

  const { chosen, colorOf, colors, el } = modelperf;
  const { chartText, errorBars, nameAxis, plot, striped } = modelperf.charts;
  const { isKnown, known, msText, shareText, speedupText } = modelperf.figures;
  const { numberCell, stackedCell } = modelperf.tables;

  const ALL = "all";
  const VIEWS = [["ms", "ms"], ["log", "log"], ["percent", "percent"]];
  // The number of colours in the style sheet.
  const COLORS = 8;
  const OUTSIDE = "ran outside the accelerated engine: no speedup is given";

  // The choices: the unchanged model, each level, and all of them.
  function summaries({ levels }) {
    const word = ({ failure }) => (failure === null ? "" : " · failed");
    return [
      [ALL, "all side by side"],
      ...levels.map((level) => [level.title, `${level.title}${word(level)}`]),
    ];
  }

  // The choice, which the address keeps too: a level next to the unchanged model.
  function choiceOf({ levels, types, layers }) {
    const title = chosen("summary");
    const picked = levels.findIndex((level) => level.title === title);
    const isAll = picked < 0;
    const wanted = isAll ? [...levels.keys()] : [...new Set([0, picked])];
    const hasTimes = (index) => [...types, ...layers].some(({ ms }) => isKnown(ms[index]));
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

  // Texts about failures and estimates among the chosen levels.
  function remarks({ levels, layers }, { wanted, shown }) {
    const texts = wanted
      .filter((index) => levels[index].failure !== null)
      .map((index) => `${levels[index].title} failed: ${levels[index].failure}`);
    if (shown.some((index) => levels[index].is_estimate)) {
      texts.push("An estimate is between two levels that were measured, and has no interval.");
    }
    if (layers.some(({ outside }) => shown.some((index) => outside[index]))) {
      texts.push(`outside: the layer ${OUTSIDE}.`);
    }
    return texts;
  }

  // The value of a row at a level in the chosen unit, and its text.
  const heightOf = ({ ms, shares }, index, { view }) => (view === "percent" ? shares : ms)[index];

  const heightText = (height, { view }, decimals) =>
    (view === "percent" ? shareText(height) : msText(height, decimals));

  // The columns of figures for the shown levels.
  function columnsOf({ levels }, choice, decimals) {
    const unit = choice.view === "percent" ? "%" : "ms";
    const columns = choice.shown.map((index) => ({
      id: `ms-${index}`, title: `${levels[index].title} ${unit}`, width: "level",
      read: ({ ms }) => ms[index],
      cell: (row) => timeCell(row, index, levels[index], choice, decimals),
    }));
    if (!choice.isAll && !choice.isBaseline) {
      const index = choice.shown.at(-1);
      columns.push({
        id: `speedup-${index}`, title: "speedup", width: "level",
        note: `time of ${levels[0].title} / time of ${levels[index].title}`,
        read: ({ speedups }) => speedups[index],
        cell: (row) => speedupCell(row, index, levels[index]),
      });
    }
    return columns;
  }

  // Without a column of its own, the speedup is below the time.
  function timeCell(row, index, level, choice, decimals) {
    const { isAll, isBaseline } = choice;
    const text = heightText(heightOf(row, index, choice), choice, decimals);
    const isOutside = row.outside?.[index] && (isAll || isBaseline);
    const speedup = isAll && index > 0 ? row.speedups[index] : null;
    const cell = stackedCell(text, isKnown(speedup) && !isOutside ? speedupText(speedup) : "");
    if (level.is_estimate) cell.classList.add("estimate");
    if (isOutside) cell.append(outsideTag());
    return cell;
  }

  function speedupCell({ outside, speedups }, index, level) {
    if (outside?.[index]) return el("td", { class: "number" }, outsideTag());
    const attributes = level.is_estimate ? { class: "number estimate" } : {};
    return numberCell(speedupText(speedups[index]), attributes);
  }

  const outsideTag = () => el("small", { class: "outside", text: "outside", title: OUTSIDE });

  const colorOfLevel = (index) => colorOf(`--level-${index % COLORS}`);

  // The bars of a level; estimates and levels that share a colour are striped.
  const levelMarker = (index, { is_estimate: isEstimate }) =>
    striped(colorOfLevel(index), isEstimate ? "/" : index < COLORS ? "" : "x", 0.35);

  const hasSpeedup = ({ speedup }) => isKnown(speedup?.[0]);
  const hasSpeedups = ({ levels }) => levels.filter(hasSpeedup).length > 1;

  // The speedup of each level, with its interval.
  function drawSpeedups(chart, { levels }) {
    const shown = [...levels.keys()].filter((index) => hasSpeedup(levels[index]));
    const named = shown.map((index) => chartText(levels[index].title));
    const values = shown.map((index) => levels[index].speedup[0]);
    const bounds = shown.map((index) => levels[index].speedup.slice(1))
      .map((ends) => (ends.every(isKnown) ? ends : null));
    const { text, muted } = colors();
    const [least, most] = [Math.min(...values, 1), Math.max(...values, 1)];
    // A long error bar is cut before it flattens the chart.
    const room = Math.max(most - least, 0.1 * most);
    const ends = known([...values, ...bounds.flat(), 1]).map((end) =>
      Math.min(most + room, Math.max(least - room, end)));
    const margin = 0.12 * (Math.max(...ends) - Math.min(...ends));
    const trace = {
      type: "scatter", mode: "markers", x: values, y: named,
      error_x: errorBars(values, bounds, muted),
      marker: {
        size: 10, color: shown.map(colorOfLevel), line: { width: 2 },
        symbol: shown.map((index) => (levels[index].is_estimate ? "circle-open" : "circle")),
      },
      hoverinfo: "text", hovertext: shown.map((index) => chartText(levels[index].text)),
    };
    plot(chart, [trace], {
      height: 28 * shown.length + 80, margin: { l: 8, r: 12, t: 8, b: 44 },
      xaxis: {
        title: "times as fast", zeroline: false, fixedrange: true,
        range: [Math.min(...ends) - margin, Math.max(...ends) + margin],
      },
      yaxis: nameAxis(shown.map((index) => levels[index].title), 24),
      shapes: [{
        type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, layer: "below",
        line: { color: text, width: 1, dash: "dot" },
      }],
    });
  }

  return {
    VIEWS, summaries, choiceOf, remarks, heightOf, heightText, columnsOf, levelMarker, drawSpeedups,
    hasSpeedups,
  };
})();
