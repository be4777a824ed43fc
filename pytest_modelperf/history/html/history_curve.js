// The points of a case, taken apart when they are looked at, and their curve with its interval:
// baselines and steps as vertical lines, verdicts as dots.
modelperf.historyCurve = (() => {
  "use strict";

  const { svg } = modelperf;
  const { percent } = modelperf.format;

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

  const toneOf = (verdict) => TONES[verdict] ?? "";

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
      this.steps = new Map(entry.steps.map((step) => [step.after, step]));
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
      return toneOf(this.verdict(index));
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

  const dayText = (seconds) => new Date(1000 * seconds).toISOString().slice(0, 10);

  const secondText = (seconds) =>
    new Date(1000 * seconds).toISOString().slice(0, 19).replace("T", " ");

  const minuteText = (seconds) => secondText(seconds).slice(0, -":00".length);

  const shortCommit = (commit) => commit?.slice(0, SHORT_COMMIT) ?? null;

  function commitAddress(commit, template) {
    if (!template || !commit || !COMMIT.test(commit)) return null;
    return template.replaceAll("{commit}", commit);
  }

  // -- the curve

  const HEIGHT = 190;
  const MARGIN = { left: 58, right: 10, top: 20, bottom: 22 };
  // A range of changes that is smaller does not fill the height.
  const LEAST_RANGE = 0.02;
  // The widest intervals are cut, so that a few of them do not flatten the curve.
  const WHOLE_INTERVALS = 0.95;
  const LEAST_LEVELS = 2.5;
  // A label with its second is 95 wide, and the outer ones stand wholly inside.
  const DATE_LABEL = 130;
  const DAY = 24 * 3600;
  // In less time the labels need the hour; without the year they take as much room.
  const FEW_DAYS = 4;
  // In more time a label needs the year.
  const MANY_DAYS = 300;
  const withoutYear = (text) => text.slice("2026-".length);
  const STEP_LABEL = 64;
  // More dots than these cannot be distinguished.
  const MOST_DOTS = 150;

  const round = (value) => Math.round(10 * value) / 10;

  class Curve {
    element = svg("svg", { "aria-hidden": "true", height: HEIGHT });
    #points;
    #entry;
    #allowed;
    #cursor = svg("g", { class: "history-cursor" });
    #order = [];
    #x = [];
    #y = (change) => change;
    #width = 0;

    // `allowed` is the drift since the first run that a build allows; null if none is set.
    constructor(entry, points, { allowed_drift: allowed = null }) {
      this.#entry = entry;
      this.#points = points;
      this.#allowed = allowed;
    }

    // Draws all for this width in pixels; `axis` is "run" or "date".
    draw(width, axis) {
      this.#width = width;
      this.#place(axis);
      this.#scale();
      this.element.setAttribute("width", width);
      this.element.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
      this.element.replaceChildren(
        ...this.#levels(),
        ...this.#budget(),
        ...this.#days(),
        this.#band(),
        this.#baselines(),
        ...this.#steps(),
        svg("path", { class: "history-line", d: this.#path(this.#order) }),
        ...this.#dots(),
        this.#cursor,
      );
    }

    clear() {
      this.element.replaceChildren();
    }

    // The point that is nearest to this distance from the left.
    nearest(left) {
      const gap = (index) => Math.abs(this.#x[index] - left);
      return this.#order.reduce((best, index) => (gap(index) < gap(best) ? index : best));
    }

    // The point this number of places to the right.
    neighbour(index, places) {
      const place = this.#order.indexOf(index) + places;
      return this.#order[Math.max(0, Math.min(this.#order.length - 1, place))];
    }

    mark(index) {
      const x = round(this.#x[index]);
      const y = round(this.#y(this.#points.change(index)));
      this.#cursor.replaceChildren(
        svg("path", { d: `M${x} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}` }),
        svg("circle", { cx: x, cy: y, r: 4 }),
      );
    }

    // Places the runs evenly, or by date. Runs of one moment then keep their order.
    #place(axis) {
      const { dates, count } = this.#points;
      const indices = [...Array(count).keys()];
      const isByDate = axis === "date" && dates.some((date) => date !== dates[0]);
      this.#order = isByDate ? indices.sort((one, other) => dates[one] - dates[other]) : indices;
      const keys = isByDate ? dates : indices;
      const first = keys[this.#order[0]];
      const whole = keys[this.#order.at(-1)] - first || 1;
      const room = this.#width - MARGIN.left - MARGIN.right;
      this.#x = keys.map((key) => MARGIN.left + (room * (key - first)) / whole);
    }

    #scale() {
      const points = this.#points;
      const changes = this.#order.map((index) => points.change(index));
      const bounds = this.#order.map((index) => points.bounds(index));
      const last = Math.ceil(WHOLE_INTERVALS * (points.count - 1));
      const least = -Float64Array.from(bounds, ([low]) => -low).sort()[last];
      const most = Float64Array.from(bounds, ([, high]) => high).sort()[last];
      const [low, high] = [Math.min(...changes), Math.max(...changes)];
      const missing = Math.max(0, LEAST_RANGE - (high - low)) / 2;
      this.low = Math.min(low - missing, least);
      this.high = Math.max(high + missing, most, this.#allowed ?? low);
      const room = HEIGHT - MARGIN.top - MARGIN.bottom;
      const whole = this.high - this.low;
      this.#y = (change) => {
        const shown = Math.max(this.low, Math.min(this.high, change));
        return HEIGHT - MARGIN.bottom - (room * (shown - this.low)) / whole;
      };
    }

    #path(order, read = (index) => this.#points.change(index)) {
      return order.map((index, place) => {
        const letter = place ? "L" : "M";
        return `${letter}${round(this.#x[index])} ${round(this.#y(read(index)))}`;
      }).join("");
    }

    #band() {
      const back = [...this.#order].reverse();
      const upper = this.#path(this.#order, (index) => this.#points.bounds(index)[1]);
      const lower = this.#path(back, (index) => this.#points.bounds(index)[0]);
      return svg("path", { class: "history-band", d: `${upper}L${lower.slice(1)}Z` });
    }

    // Lines at round changes, with their texts.
    #levels() {
      const most = (this.high - this.low) / LEAST_LEVELS;
      const power = 10 ** Math.floor(Math.log10(most));
      const step = power * [5, 2, 1].find((factor) => factor * power <= most);
      const lines = [];
      for (let at = Math.ceil(this.low / step); at * step <= this.high; at++) {
        const y = round(this.#y(at * step));
        lines.push(
          svg("path", { class: at ? "history-grid" : "history-zero",
            d: `M${MARGIN.left} ${y}H${this.#width - MARGIN.right}` }),
          svg("text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" },
            percentText(at * step, step)),
        );
      }
      return lines;
    }

    // The line that the curve may not cross.
    #budget() {
      if (this.#allowed === null) return [];
      const y = round(this.#y(this.#allowed));
      const end = this.#width - MARGIN.right;
      return [
        svg("path", { class: "history-budget", d: `M${MARGIN.left} ${y}H${end}` }),
        svg("text", { class: "tone-bad", x: end, y: y + 12, "text-anchor": "end" },
          `${percent(this.#allowed)} allowed`),
      ];
    }

    #days() {
      const room = this.#width - MARGIN.left - MARGIN.right;
      const count = Math.max(2, Math.min(6, Math.floor(room / DATE_LABEL)));
      const places = [...Array(count).keys()].map((at) => MARGIN.left + (room * at) / (count - 1));
      const anchors = ["start", ...Array(count - 2).fill("middle"), "end"];
      const shown = this.#points.count > 1 ? places : places.slice(0, 1);
      const texts = this.#dateTexts(shown.map((left) => this.#dateAt(left)));
      return shown.flatMap((left, at) => texts.indexOf(texts[at]) < at ? [] : svg("text",
        { class: "history-date", x: round(left), y: HEIGHT - 6, "text-anchor": anchors[at] },
        texts[at]));
    }

    // The date as a day, or to the minute or second: the shortest form that separates most runs.
    #dateTexts(moments) {
      const { dates } = this.#points;
      const days = (dates[this.#order.at(-1)] - dates[this.#order[0]]) / DAY;
      const short = [minuteText, secondText].map((format) => (at) => withoutYear(format(at)));
      const ways = [
        ...(days > FEW_DAYS ? [dayText] : []),
        ...(days < MANY_DAYS ? short : []),
      ].map((write) => moments.map(write));
      const differing = (texts) => new Set(texts).size;
      return ways.reduce((best, texts) => differing(texts) > differing(best) ? texts : best);
    }

    // Between two runs, the date is in between, too.
    #dateAt(left) {
      const { dates } = this.#points;
      const near = this.nearest(left);
      const other = this.neighbour(near, this.#x[near] < left ? 1 : -1);
      const gap = this.#x[other] - this.#x[near];
      const share = gap ? (left - this.#x[near]) / gap : 0;
      return dates[near] + share * (dates[other] - dates[near]);
    }

    // A line halfway to the first run that was held against the new baseline.
    #baselines() {
      const d = this.#points.newBaselines.map((index) => this.#upright(index - 1, index)).join("");
      return svg("path", { class: "history-baseline", d });
    }

    #upright(before, after) {
      const x = round((this.#x[before] + this.#x[after]) / 2);
      return `M${x} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}`;
    }

    // Steps upward and downward differ in their colour and in the direction of their mark.
    #steps() {
      const steps = this.#entry.steps.map(({ before, after, log, text }) => ({
        x: round((this.#x[before] + this.#x[after]) / 2),
        line: this.#upright(before, after),
        tone: `tone-${log > 0 ? "bad" : "good"}`,
        mark: log > 0 ? "l-5 8h10Z" : "m-5 0h10l-5 8Z",
        text,
      })).sort((one, other) => one.x - other.x);
      return steps.flatMap(({ x, line, tone, mark, text }, at) => {
        const right = Math.min(steps[at + 1]?.x ?? Infinity, this.#width);
        const label = { class: tone, x: x + 8, y: MARGIN.top - 4 };
        return [
          svg("path", { class: `history-step ${tone}`, d: line }),
          svg("path", { class: `history-mark ${tone}`, d: `M${x} ${MARGIN.top - 11}${mark}` }),
          ...(right - x > STEP_LABEL ? [svg("text", label, text)] : []),
        ];
      });
    }

    // Lines of no length with round ends: a path for each tone, however many dots there are.
    #dots() {
      const byTone = new Map();
      for (const index of this.#order) {
        const tone = this.#points.tone(index);
        if (!tone && this.#points.count > MOST_DOTS) continue;
        const dot = `M${round(this.#x[index])} ${round(this.#y(this.#points.change(index)))}h0`;
        byTone.set(tone, (byTone.get(tone) ?? "") + dot);
      }
      return [...byTone].map(([tone, d]) =>
        svg("path", { class: `history-dots${tone && ` tone-${tone}`}`, d }));
    }
  }

  // The number of decimals that the distance of two lines needs.
  function percentText(change, step) {
    const decimals = Math.max(0, Math.min(6, -Math.floor(Math.log10(100 * step) + 1e-9)));
    const text = Math.abs(100 * change).toFixed(decimals);
    if (Number(text) === 0) return "0 %";
    return `${change < 0 ? "−" : "+"}${text} %`;
  }

  return { Curve, Points, minuteText, shortCommit, commitAddress, toneOf };
})();
