// The points of a case, taken apart when somebody looks at them, and their texts.
modelperf.historyPoints = (() => {
  "use strict";

  const { UNKNOWN } = modelperf;
  const { percent, interval } = modelperf.format;

  // A commit of which an address can be made: stored lines may have any text.
  const COMMIT = /^[0-9a-f]{7,64}$/;
  const SHORT_COMMIT = 9;
  const TONES = {
    regressed: "bad",
    "over budget": "bad",
    failed: "bad",
    improved: "good",
    inconclusive: "unsure",
  };

  const numbers = (text) => text.split(",").map(Number);

  function sums(differences) {
    let total = 0;
    return differences.map((difference) => (total += difference));
  }

  class Points {
    #shared;
    #reasons;
    // The points whose reasons are others than those before them.
    #changed;

    constructor(entry, shared) {
      const unit = shared.log_unit;
      this.#shared = shared;
      this.#reasons = entry.reasons;
      this.#changed = Object.keys(entry.reasons).map(Number);
      this.count = entry.count;
      this.dates = sums(numbers(entry.dates));
      this.levels = numbers(entry.levels).map((level) => level * unit);
      this.widths = numbers(entry.widths).map((width) => width * unit);
      this.commits = sums(numbers(entry.commits));
      this.baselines = sums(numbers(entry.baselines));
      this.runs = entry.runs ? sums(numbers(entry.runs)) : [];
      this.verdicts = numbers(entry.verdicts);
      this.steps = new Map(entry.steps.map(([, after, ...shift]) => [after, shift]));
    }

    change(index) {
      return Math.expm1(this.levels[index]);
    }

    bounds(index) {
      const [level, width] = [this.levels[index], this.widths[index]];
      return [Math.expm1(level - width), Math.expm1(level + width)];
    }

    verdict(index) {
      return this.#shared.verdicts[this.verdicts[index]];
    }

    tone(index) {
      return TONES[this.verdict(index)] ?? "";
    }

    commit(index) {
      return this.#shared.commits[this.commits[index]] ?? null;
    }

    baseline(index) {
      return this.#shared.baselines[this.baselines[index]] ?? null;
    }

    // The address of the page of the run; null if it is not known.
    run(index) {
      return this.#shared.runs[this.runs[index]] ?? null;
    }

    // The reasons of a point, and the first of the points in a row that have them.
    reasons(index) {
      const first = this.#changed.findLast((changed) => changed <= index) ?? index;
      const texts = (this.#reasons[first] ?? []).map((number) => this.#shared.reasons[number]);
      return { first, texts };
    }

    // The indices of the points that were held against another baseline than the one before.
    get newBaselines() {
      const indices = [...this.baselines.keys()].slice(1);
      return indices.filter((index) => this.baselines[index] !== this.baselines[index - 1]);
    }
  }

  const taken = new WeakMap();

  function pointsOf(entry, shared) {
    if (!taken.has(entry)) taken.set(entry, new Points(entry, shared));
    return taken.get(entry);
  }

  const dayText = (seconds) => new Date(1000 * seconds).toISOString().slice(0, 10);

  const secondText = (seconds) =>
    new Date(1000 * seconds).toISOString().slice(0, 19).replace("T", " ");

  const minuteText = (seconds) => secondText(seconds).slice(0, -":00".length);

  const shortCommit = (commit) => commit?.slice(0, SHORT_COMMIT) ?? null;

  function commitAddress(commit, template) {
    if (!template || !commit || !COMMIT.test(commit)) return null;
    return template.replaceAll("{commit}", commit);
  }

  // `+10.0 %` of a logarithm and the width of its interval; a dash without one.
  const shiftText = (shift, unit) => (shift ? percent(Math.expm1(shift[0] * unit)) : UNKNOWN);

  // Empty for an exact figure, which has no interval.
  function shiftRange(shift, unit) {
    if (!shift || !shift[1]) return "";
    const bounds = [shift[0] - shift[1], shift[0] + shift[1]];
    return interval(bounds.map((bound) => Math.expm1(bound * unit)), percent);
  }

  return {
    pointsOf,
    dayText,
    minuteText,
    secondText,
    shortCommit,
    commitAddress,
    shiftText,
    shiftRange,
  };
})();
