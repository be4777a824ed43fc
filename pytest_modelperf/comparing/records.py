"""The records of a comparison: metrics with their verdicts, changes by layer, and reasons."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from typing import Any, Literal

from msgspec import Struct, field

from pytest_modelperf.comparing.changes import (
    CALL,
    ELSEWHERE,
    FIRST_DIFFERENCE,
    LAYER_CHANGE,
    LAYER_TYPE_CHANGE,
    OUTPUT,
    PART,
    STAGE,
    CallChange,
    FirstDifference,
    Interval,
    KernelChange,
    LayerChange,
    LayerTypeChange,
    OutputChange,
    PartChange,
    StageChange,
    TimeChange,
)
from pytest_modelperf.files.documents import Confidence, Count, Figure, Number
from pytest_modelperf.profiler.measurements import SideRun
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.report.notebook import Shown
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import signed_percent

_UNKNOWN = "unknown"


class Speedup(Struct, frozen=True, eq=False):
    """How many times as fast the second side is: the time before divided by the time now.

    A comparison is true if it is true for the whole interval: `speedup > 2` compares its lower end,
    and `speedup < 2` its upper end. Both are false while the interval contains 2. Each comparison
    with an unknown bound is false.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of_slowdown(cls, slowdown: Ratio) -> Speedup:
        """Return the speedup for the ratio of the time now to the time before."""
        return cls(_inverse(slowdown.value), _inverse(slowdown.high), _inverse(slowdown.low))

    def __gt__(self, other: float) -> bool:
        return self.low is not None and self.low > other

    def __ge__(self, other: float) -> bool:
        return self.low is not None and self.low >= other

    def __lt__(self, other: float) -> bool:
        return self.high is not None and self.high < other

    def __le__(self, other: float) -> bool:
        return self.high is not None and self.high <= other

    def __float__(self) -> float:
        return math.nan if self.value is None else self.value

    def __repr__(self) -> str:
        """Return `2.31x (2.20 to 2.44)`, for failed assertions."""
        if self.value is None:
            return _UNKNOWN
        if self.low is None or self.high is None:
            return f"{_rounded(self.value)}x (interval {_UNKNOWN})"
        return f"{_rounded(self.value)}x ({_rounded(self.low)} to {_rounded(self.high)})"


def _inverse(ratio: float | None) -> float | None:
    if ratio is None:
        return None
    return 1.0 / ratio if ratio > 0.0 else math.inf


def _rounded(value: float) -> str:
    """Return three digits: `0.931`, `2.31`, `23.1`, `231`."""
    if not math.isfinite(value) or value >= 100:  # three digits
        return f"{value:.0f}"
    return f"{value:.{3 - len(f'{value:.0f}')}f}" if value >= 1 else f"{value:.3f}"


# A figure can be infinite in a record, but not in its document.
_FIGURE: Any = Figure | None


class Verdict(str, Enum):
    """The verdict on a metric, a case, or a whole run."""

    PASSED = "passed"
    IMPROVED = "improved"
    REGRESSED = "regressed"
    OVER_BUDGET = "over budget"
    INCONCLUSIVE = "inconclusive"
    NEW = "new"
    UNCHANGED = "unchanged"

    # Python 3.10 and 3.12 format a member differently in an f-string.
    __str__ = str.__str__


class How(str, Enum):
    """What the latency of a case was judged by.

    `PLAN`: the engine runs the same kernels on both sides, so no time had to be compared. `PARTS`:
    the kernels that differ ran in turn. `DUET`: both whole models ran in turn. `STORED`: the model
    ran alone, and its times were compared with those recorded in earlier processes.
    """

    PLAN = "plan"
    PARTS = "parts"
    DUET = "duet"
    STORED = "stored"

    __str__ = str.__str__


class Measure(str, Enum):
    """Which cases of a test run are measured against their baselines.

    `CHANGED`: those for which the engine runs other kernels than for the baseline, and of these
    only what differs. `ALWAYS`: all of them, as whole models in turn.
    """

    CHANGED = "changed"
    ALWAYS = "always"


# The verdict of several cases is the first of these that one of them has.
VERDICT_ORDER = (
    Verdict.REGRESSED, Verdict.OVER_BUDGET, Verdict.INCONCLUSIVE, Verdict.IMPROVED, Verdict.NEW,
    Verdict.PASSED, Verdict.UNCHANGED,
)  # fmt: skip
# The figure that limits how much better than its baseline a case may be.
IMPROVEMENT = "improvement"
# The only verdicts that are possible for a case that could not be measured.
_WORSE = frozenset({Verdict.REGRESSED, Verdict.OVER_BUDGET})


# The median of all inferences. A workload is judged by the time of one pass instead.
MEDIAN, TOTAL = "latency_p50", "latency_total"
# Prefix of the names of the medians of the members of a workload.
MEMBER = "latency_p50:"


class Metric(Struct, frozen=True):
    """One figure on both sides, which takes part in the verdict only if it is `gated`.

    A gated metric that is not `awaited` can fail a case but does not leave one open: while it is
    inconclusive, the other metrics decide.

    `interval` and `detectable` belong to the ratio: its bounds, and the smallest increase that
    would have been seen. `allowed` is the allowed relative increase. `limit` is an absolute limit
    of the figure, and `after_interval` are the bounds of the figure itself. An exact figure has no
    interval. `confidence` is the confidence of the interval. `rounds_needed` estimates how many
    rounds would decide an open metric, and `samples_needed` how many inferences it needs on each
    side. `reason` is the change that made this figure worse, or what leaves it open, if that is
    known. `least` is a lower bound for a figure without a value, because a percentile is at least
    as large as a lower one.
    `detail` says what the figure is of, such as `deadline 20 ms`.
    """

    name: str
    before: float | None
    after: float | None
    verdict: Verdict
    gated: bool = True
    interval: tuple[float, float] | None = None
    detectable: float | None = None
    allowed: float | None = None
    limit: float | None = None
    measured_ratio: float | None = None
    after_interval: tuple[float, float] | None = None
    awaited: bool = True
    confidence: float | None = None
    rounds_needed: int | None = None
    samples_needed: int | None = None
    reason: str | None = None
    least: float | None = None
    detail: str | None = None

    @property
    def decides(self) -> bool:
        """Whether the verdict of the case depends on this metric."""
        return self.gated and (self.awaited or not self.is_open)

    @property
    def is_open(self) -> bool:
        return self.verdict is Verdict.INCONCLUSIVE

    @property
    def ratio(self) -> Figure | None:
        """The ratio of after to before or, for times measured in turn, that of the pairs."""
        if self.measured_ratio is not None:
            return self.measured_ratio
        if self.before is None or self.after is None or self.before == 0:
            return None
        return self.after / self.before


METRIC = JsonObject(
    Metric,
    "name before after ratio interval confidence detectable allowed limit after_interval least"
    " detail reason gated awaited verdict",
    **dict.fromkeys(("before", "after", "detectable", "allowed", "limit", "least"), _FIGURE),
    interval=Interval,
    after_interval=Interval,
    confidence=Confidence | None,
)


class CaseComparison(Struct, frozen=True):
    """One case of two models, side by side. `reasons` are sentences on what changed and why.

    `failed_side` is the model that could not be measured, if the case failed and that is known.

    `outcome` is the verdict of a case that is unchanged or new, unless a budget overrules it. `how`
    says what the latency was judged by. It is None if the latency was not judged: in an unchanged,
    new or failed case, with counts alone, or in a case that `is_unjudged`. In a duet both sides ran
    in turn in each of the `rounds`, otherwise only the new one ran. `before` and `after` are the
    measurements of the sides, or None for a side that did not run. `parts` are the kernels that
    differ, if their times were measured, and `elsewhere` is what the whole model shows beyond them.
    `kernels` are those of both plans as one graph, if their times are known. `stages` are those of
    a program, and `calls` its call tree, if both sides were profiled. `first_difference` is where
    the outputs begin to differ, if that was found. `baseline_factor` is how long a baseline took
    compared with when it was recorded on this kind of machine, or None if it was not recorded or
    did not run.
    """

    case: Case
    metrics: tuple[Metric, ...]
    layer_types: tuple[LayerTypeChange, ...]
    reasons: tuple[str, ...] = ()
    layers: tuple[LayerChange, ...] = ()
    outputs: tuple[OutputChange, ...] = ()
    first_difference: FirstDifference | None = None
    notes: tuple[str, ...] = ()
    rounds: Count | None = None
    how: How | None = None
    seconds: Number | None = None
    outcome: Verdict | None = None
    failure: str | None = None
    failed_side: Literal["before", "after"] | None = None
    before: SideRun | None = None
    after: SideRun | None = None
    parts: tuple[PartChange, ...] = ()
    elsewhere: TimeChange | None = None
    kernels: tuple[KernelChange, ...] = ()
    stages: tuple[StageChange, ...] = ()
    calls: tuple[CallChange, ...] = ()
    baseline_factor: float | None = None

    def __repr__(self) -> str:
        """Return `<comparison b1-c1: regressed, latency_p50 +11.8 %>`, for failed assertions."""
        if self.failure is not None and self.has_failed:
            return f"<comparison {printable(self.id)}: failed, {printable(self.failure)}>"
        parts = [self.verdict.value]
        for metric in self.deciding[:1]:
            change = "" if metric.ratio is None else f" {signed_percent(metric.ratio - 1)}"
            parts.append(f"{printable(metric.name)}{change}")
        return f"<comparison {printable(self.id)}: {', '.join(parts)}>"

    @property
    def id(self) -> str:
        return self.case.id

    @property
    def is_duet(self) -> bool:
        """Whether both sides ran in turn, as whole models or as their parts."""
        return self.how in (How.DUET, How.PARTS)

    @property
    def is_unjudged(self) -> bool:
        """Whether the latency cannot be judged, because there are no times to compare."""
        median = self.metric(MEDIAN)
        return (
            self.how is None
            and median is not None
            and median.gated
            and median.is_open
            and median.before is None
            and median.after is not None
        )

    @property
    def verdict(self) -> Verdict:
        """The verdict by all figures. A failed case is inconclusive unless a figure is worse."""
        found = self._by_figures
        return found if self.failure is None or found in _WORSE else Verdict.INCONCLUSIVE

    @property
    def _by_figures(self) -> Verdict:
        if self.outcome is not None:
            kept = (m.verdict for m in self.metrics if m.limit is not None)
            return worst([self.outcome, *(v for v in kept if v is not Verdict.PASSED)])
        decided = [metric.verdict for metric in self.metrics if metric.decides]
        # A case in which nothing was judged has not passed.
        return worst(decided or [Verdict.INCONCLUSIVE])

    def metric(self, name: str) -> Metric | None:
        """Return the metric of this name that compares both sides, not one with a limit."""
        return next((m for m in self.metrics if m.name == name and m.limit is None), None)

    @property
    def typical(self) -> Metric | None:
        """The main latency of the case: its median or, for a workload, the time of a pass."""
        return self.metric(self.typical_name)

    @property
    def typical_name(self) -> str:
        return MEDIAN if self.metric(TOTAL) is None else TOTAL

    @property
    def speedup(self) -> Speedup:
        """How many times as fast the second side is, by the typical latency.

        It is 1 if the engine runs the same on both sides, and unknown if they did not run in turn.
        """
        if self.how is How.PLAN or self.outcome is Verdict.UNCHANGED:
            return Speedup(1.0, 1.0, 1.0)
        median = self.typical
        if median is None or median.ratio is None or not self.is_duet:
            return Speedup()
        return Speedup.of_slowdown(Ratio(median.ratio, *(median.interval or (None, None))))

    @property
    def deciding(self) -> tuple[Metric, ...]:
        """The metrics that lead to the verdict."""
        return tuple(m for m in self.metrics if m.decides and m.verdict is self.verdict)

    @property
    def regressed(self) -> tuple[Metric, ...]:
        """The judged metrics that are worse than before by more than is allowed."""
        return tuple(
            m for m in self.metrics
            if m.gated and m.limit is None and m.verdict is Verdict.REGRESSED
        )  # fmt: skip

    @property
    def is_too_good(self) -> bool:
        """Whether the case is better than its baseline by more than a budget allows."""
        return any(m.name == IMPROVEMENT and m.verdict is Verdict.OVER_BUDGET for m in self.metrics)

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines of the sides that ran, listed once if they are the same."""
        sides = [side.engine.label for side in (self.before, self.after) if side is not None]
        return tuple(dict.fromkeys(sides))

    @property
    def has_failed(self) -> bool:
        """Whether the case could not be measured and no known figure is worse."""
        return self.failure is not None and self.verdict not in _WORSE

    @property
    def known_verdict(self) -> Verdict | None:
        """The verdict, or None if the case could not be measured and no known figure is worse."""
        return None if self.has_failed else self.verdict


COMPARED_CASE = JsonObject(
    CaseComparison,
    "id phase=case.phase.phase prompt=case.phase.prompt generate=case.phase.generate"
    " verdict=known_verdict failure failed_side? how seconds rounds metrics parts elsewhere"
    " stages calls layer_types layers reasons outputs first_difference notes",
    about="One case of a comparison; a plain case has no phase of a generation.",
    metrics=METRIC,
    parts=PART,
    elsewhere=ELSEWHERE,
    stages=STAGE,
    calls=CALL,
    layer_types=LAYER_TYPE_CHANGE,
    layers=LAYER_CHANGE,
    outputs=OUTPUT,
    first_difference=FIRST_DIFFERENCE,
)


class Comparison(Shown, frozen=True):
    """Two models compared at the same cases.

    `confidence` is the confidence of each gated metric, and `tolerance` is the allowed relative
    increase. Both are None if only exact figures were compared.
    """

    before: ModelFacts
    after: ModelFacts
    cases: tuple[CaseComparison, ...]
    tolerance: Figure | None = None
    confidence: Confidence | None = None
    engines: tuple[str, ...] = field(default=())

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all cases. A case that could not be measured is inconclusive."""
        return worst(case.verdict for case in self.cases)

    @property
    def known_verdict(self) -> Verdict | None:
        """The verdict, or None if no case has one."""
        return None if all(case.has_failed for case in self.cases) else self.verdict

    @property
    def rounds(self) -> Count | None:
        """The rounds of all cases together, or None if nothing ran."""
        known = [case.rounds for case in self.cases if case.rounds is not None]
        return sum(known) if known else None

    @property
    def seconds(self) -> Number | None:
        known = [case.seconds for case in self.cases if case.seconds is not None]
        return sum(known) if known else None


COMPARISON = JsonDocument(
    Comparison,
    "verdict=known_verdict seconds rounds confidence tolerance engines before after cases",
    cases=COMPARED_CASE,
)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts, by `VERDICT_ORDER`."""
    return min(verdicts, key=VERDICT_ORDER.index, default=Verdict.PASSED)


# The word for a case that became the new baseline.
RECORDED = "recorded"
# The word for a case whose failure its test expects.
XFAILED = "xfailed"
