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

  // The points of a case, each with what is known of its run.
  function readPoints(entry, shared) {
    const [levels, widths] = [entry.levels, entry.widths].map((packed) =>
      numbers(packed).map((value) => value * shared.log_unit));
    const [dates, commits, baselines] = [entry.dates, entry.commits, entry.baselines]
      .map((packed) => sums(numbers(packed)));
    const runs = entry.runs ? sums(numbers(entry.runs)) : [];
    const verdicts = numbers(entry.verdicts);
    const steps = new Map(entry.steps.map((step) => [step.after, step]));
    // The first of the points in a row that have the same reasons.
    let first = 0;
    return dates.map((date, at) => {
      if (entry.reasons[at]) first = at;
      const verdict = shared.verdicts[verdicts[at]];
      return {
        date, verdict, tone: toneOf(verdict), change: Math.expm1(levels[at]),
        bounds: [levels[at] - widths[at], levels[at] + widths[at]].map(Math.expm1),
        hasInterval: widths[at] > 0, step: steps.get(at),
        commit: shared.commits[commits[at]], baseline: shared.baselines[baselines[at]],
        isRebased: at > 0 && baselines[at] !== baselines[at - 1],
        run: shared.runs[runs[at]], first,
        reasons: (entry.reasons[first] ?? []).map((number) => shared.reasons[number]),
      };
    });
  }

  // A moment to the minute: its day is the first ten characters.
  const minuteText = (seconds) =>
    new Date(1000 * seconds).toISOString().slice(0, "2026-01-01 08:30".length).replace("T", " ");

  const shortCommit = (commit) => commit.slice(0, SHORT_COMMIT);

  const commitAddress = (commit, template) =>
    (template && COMMIT.test(commit) ? template.replaceAll("{commit}", commit) : null);

  // -- the curve

  const HEIGHT = 190;
  const MARGIN = { left: 58, right: 10, top: 20, bottom: 22 };
  // A range of changes that is smaller does not fill the height.
  const LEAST_RANGE = 0.02;
  // The widest intervals are cut, so that a few of them do not flatten the curve.
  const WHOLE_INTERVALS = 0.95;
  const LEAST_LEVELS = 2.5;
  // A label is 70 wide, and the outer ones are wholly inside.
  const DATE_LABEL = 110;
  // In less time the labels need the hour; without the year they take as much room.
  const FEW_DAYS = 4 * 24 * 3600;
  const STEP_LABEL = 64;
  // More dots than these cannot be distinguished.
  const MOST_DOTS = 150;

  const round = (value) => Math.round(10 * value) / 10;

  class Curve {
    element = svg("svg", { class: "history-drawing", "aria-hidden": "true", height: HEIGHT });
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
        svg("path", {
          class: "history-line", d: this.#path(this.#order, ({ change }) => change),
        }),
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
      const y = round(this.#y(this.#points[index].change));
      this.#cursor.replaceChildren(
        svg("path", { d: `M${x} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}` }),
        svg("circle", { cx: x, cy: y, r: 4 }),
      );
    }

    // Places the runs evenly, or by date. Runs of one moment then keep their order.
    #place(axis) {
      const dates = this.#points.map(({ date }) => date);
      const indices = [...dates.keys()];
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
      const changes = points.map(({ change }) => change);
      const last = Math.ceil(WHOLE_INTERVALS * (points.length - 1));
      const least = -Float64Array.from(points, ({ bounds }) => -bounds[0]).sort()[last];
      const most = Float64Array.from(points, ({ bounds }) => bounds[1]).sort()[last];
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

    #path(order, read) {
      return `M${order.map((index) =>
        `${round(this.#x[index])} ${round(this.#y(read(this.#points[index])))}`).join("L")}`;
    }

    #band() {
      const upper = this.#path(this.#order, ({ bounds }) => bounds[1]);
      const lower = this.#path(this.#order.toReversed(), ({ bounds }) => bounds[0]);
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
      const [first, last] = [0, -1].map((at) => this.#points[this.#order.at(at)].date);
      const form = last - first > FEW_DAYS ? [0, 10] : [5];
      const texts = places.map((left) => minuteText(this.#dateAt(left)).slice(...form));
      return places.flatMap((left, at) => texts.indexOf(texts[at]) < at ? [] : svg("text",
        { class: "history-date", x: round(left), y: HEIGHT - 6, "text-anchor": anchors[at] },
        texts[at]));
    }

    // Between two runs, the date is in between, too.
    #dateAt(left) {
      const near = this.nearest(left);
      const other = this.neighbour(near, this.#x[near] < left ? 1 : -1);
      const gap = this.#x[other] - this.#x[near];
      const share = gap ? (left - this.#x[near]) / gap : 0;
      const [date, next] = [near, other].map((index) => this.#points[index].date);
      return date + share * (next - date);
    }

    // A line halfway to the first run that was held against the new baseline.
    #baselines() {
      const d = this.#points.map(({ isRebased }, index) =>
        (isRebased ? this.#upright(index - 1, index) : ""));
      return svg("path", { class: "history-baseline", d: d.join("") });
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
        const { tone, change } = this.#points[index];
        if (!tone && this.#points.length > MOST_DOTS) continue;
        const dot = `M${round(this.#x[index])} ${round(this.#y(change))}h0`;
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

  return { Curve, readPoints, minuteText, shortCommit, commitAddress, toneOf };
})();
