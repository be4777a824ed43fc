// Figures as text, as they read on the terminal. Unknown values are in no sum, and show as a dash.
modelperf.figures = (() => {
  "use strict";

  const { UNKNOWN } = modelperf;

  const isKnown = (value) => value !== null && value !== undefined;
  const known = (values) => values.filter(isKnown);
  const largest = (values) => (known(values).length ? Math.max(...known(values)) : null);
  const latest = (values) => known(values).at(-1) ?? null;
  const sum = (values) => known(values).reduce((total, value) => total + value, 0);

  // The items by their keys, in the order in which the keys first come.
  function groupBy(items, keyOf) {
    const groups = new Map();
    for (const item of items) {
      const key = keyOf(item);
      if (groups.has(key)) groups.get(key).push(item);
      else groups.set(key, [item]);
    }
    return groups;
  }

  // Four digits, however large or small: 6.708, 61.31, 1204.
  function number(value) {
    if (!isKnown(value)) return UNKNOWN;
    const rounded = Math.abs(Number(value.toPrecision(4)));
    const decimals = rounded ? Math.max(0, 3 - Math.floor(Math.log10(rounded))) : 0;
    return value.toFixed(Math.min(6, decimals));
  }

  function count(value) {
    if (!isKnown(value)) return UNKNOWN;
    const prefixes = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
    // 999,999 is 1 M, not 1000 k: from this bound on, four digits would round up.
    const prefix = prefixes.find(([factor]) => Math.abs(value) >= Math.max(1000, factor * 0.99995));
    if (prefix) return `${number(value / prefix[0])} ${prefix[1]}`;
    return Number.isInteger(value) ? String(value) : number(value);
  }

  // A change in percent: 0.031 is +3.1 %.
  function percent(value) {
    if (!isKnown(value)) return UNKNOWN;
    if (value === 0) return "0 %";
    if (Math.abs(value) < 0.0005) return "<0.1 %";
    return `${value > 0 ? "+" : "−"}${Math.abs(100 * value).toFixed(1)} %`;
  }

  // Both ends of an interval, with their unit once if it is the same: 6.701 … 6.722, +3.1 … +4.0 %.
  function interval(bounds, format = number) {
    if (!bounds || !bounds.every(isKnown)) return UNKNOWN;
    const [low, high] = bounds.map((bound) => format(bound));
    const gap = low.lastIndexOf(" ");
    const isSameUnit = gap > 0 && high.endsWith(low.slice(gap));
    return `${isSameUnit ? low.slice(0, gap) : low} … ${high}`;
  }

  // All times of a table have the same decimals, so that they line up.
  function decimalsFor(totalMs) {
    if (!totalMs) return 3;
    return Math.min(6, Math.max(3, 3 - Math.floor(Math.log10(totalMs))));
  }

  function msText(value, decimals) {
    if (!isKnown(value)) return UNKNOWN;
    const text = value.toFixed(decimals);
    return text.replace("-", Number(text) === 0 ? "" : "−");
  }

  const timeText = (value, decimals) =>
    (isKnown(value) ? `${msText(value, decimals)} ms` : UNKNOWN);

  function changeText(value, decimals) {
    if (!isKnown(value)) return UNKNOWN;
    const text = Math.abs(value).toFixed(decimals);
    if (Number(text) === 0) return text;
    return (value < 0 ? "−" : "+") + text;
  }

  const shareText = (value) => (isKnown(value) ? `${msText(100 * value, 1)} %` : UNKNOWN);
  // Empty for a time whose interval is not known.
  const halfWidthText = (value) => (isKnown(value) ? shareText(value) : "");
  const ratioText = (value) => (isKnown(value) ? `${value.toFixed(3)}x` : UNKNOWN);
  const speedupText = (value) => (isKnown(value) ? `x${value.toFixed(2)}` : UNKNOWN);
  // Made once: to make it takes longer than to use it.
  const whole = new Intl.NumberFormat("en");
  const wholeText = (value) => (isKnown(value) ? whole.format(value) : UNKNOWN);

  // As in the tables of a terminal: `97.49 MiB`, `512 B`.
  function bytesText(value) {
    if (!isKnown(value)) return UNKNOWN;
    const prefixes = ["", "Ki", "Mi", "Gi", "Ti"];
    const power = Math.min(4, Math.floor(Math.log2(Math.max(1, value * 1.00005)) / 10));
    return `${power ? number(value / 1024 ** power) : value} ${prefixes[power]}B`;
  }

  const rangeText = (bounds, decimals) =>
    (bounds ? bounds.map((bound) => changeText(bound, decimals)).join(" … ") : "");

  // An interval without 0 shows that the change is not chance.
  const isSure = (bounds) => Boolean(bounds) && (bounds[0] > 0 || bounds[1] < 0);

  function tone(value, bounds) {
    if (!isSure(bounds)) return "";
    return value > 0 ? "worse" : "better";
  }

  modelperf.format = { ms: number, number, count, percent, interval };
  return {
    isKnown, known, groupBy, largest, latest, sum, decimalsFor, msText, timeText, changeText, shareText,
    halfWidthText, ratioText, speedupText, wholeText, bytesText, rangeText, isSure, tone,
  };
})();
