// The figures of layers and their texts: unknown values are in no sum, and show as a dash.
modelperf.figures = (() => {
  "use strict";

  const { UNKNOWN, format } = modelperf;

  // Whether a value of any kind is known.
  const isKnown = (value) => value !== null && value !== undefined;
  const known = (values) => values.filter(isKnown);
  const largest = (values) => (known(values).length ? Math.max(...known(values)) : null);
  const latest = (values) => known(values).at(-1) ?? null;
  const sum = (values) => known(values).reduce((total, value) => total + value, 0);

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

  function timeText(value, decimals) {
    return isKnown(value) ? `${msText(value, decimals)} ms` : UNKNOWN;
  }

  function changeText(value, decimals) {
    if (!isKnown(value)) return UNKNOWN;
    const text = Math.abs(value).toFixed(decimals);
    if (Number(text) === 0) return text;
    return (value < 0 ? "−" : "+") + text;
  }

  const shareText = (value) => (isKnown(value) ? `${msText(100 * value, 1)} %` : UNKNOWN);
  // Of a time that nobody knows how sure it is, nothing is said.
  const halfWidthText = (value) => (isKnown(value) ? shareText(value) : "");
  const ratioText = (value) => (isKnown(value) ? `${value.toFixed(3)}x` : UNKNOWN);
  // Made once: to make it takes longer than to use it.
  const whole = new Intl.NumberFormat("en");
  const wholeText = (value) => (isKnown(value) ? whole.format(value) : UNKNOWN);

  // As in the tables of a terminal: `97.49 MiB`, `512 B`.
  function bytesText(value) {
    if (!isKnown(value)) return UNKNOWN;
    const prefixes = ["", "Ki", "Mi", "Gi", "Ti"];
    const power = Math.min(4, Math.floor(Math.log2(Math.max(1, value * 1.00005)) / 10));
    return `${power ? format.number(value / 1024 ** power) : value} ${prefixes[power]}B`;
  }

  function rangeText(interval, decimals) {
    if (!interval) return "";
    return interval.map((bound) => changeText(bound, decimals)).join(" … ");
  }

  // An interval without 0 shows that the change is not chance.
  const isSure = (interval) => Boolean(interval) && (interval[0] > 0 || interval[1] < 0);

  function tone(value, interval) {
    if (!isSure(interval)) return "";
    return value > 0 ? "worse" : "better";
  }

  return {
    isKnown,
    known,
    largest,
    latest,
    sum,
    decimalsFor,
    msText,
    timeText,
    changeText,
    shareText,
    halfWidthText,
    ratioText,
    wholeText,
    bytesText,
    rangeText,
    isSure,
    tone,
  };
})();
