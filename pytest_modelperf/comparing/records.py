"""The records of a comparison: metrics with their verdicts, what changed by layer, and why."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct, field

from pytest_modelperf.profiler.measurements import SideRun
from pytest_modelperf.profiler.records import Case, LayerRow, LayerType, ModelFacts


class Verdict(str, Enum):
    """What a comparison says of a metric, a case, or a whole run."""

    PASSED = "passed"
    IMPROVED = "improved"
    REGRESSED = "regressed"
    OVER_BUDGET = "over budget"
    INCONCLUSIVE = "inconclusive"
    NEW = "new"
    UNCHANGED = "unchanged"


# The first of these that is among several decides what they are together.
VERDICT_ORDER = (
    Verdict.REGRESSED,
    Verdict.OVER_BUDGET,
    Verdict.INCONCLUSIVE,
    Verdict.IMPROVED,
    Verdict.NEW,
    Verdict.PASSED,
    Verdict.UNCHANGED,
)


class Metric(Struct, frozen=True):
    """One figure on both sides; one that is not `gated` is shown, and decides nothing.

    One that is gated and not `awaited` can fail a case, but leaves none open: where it is
    inconclusive, the other figures decide.

    `interval` and `detectable` are of the ratio: from where to where it may be, and the increase
    that would have been seen. `allowed` is the relative increase that is, `limit` an absolute one,
    to which `after_interval` is that of the figure itself. A figure that is exact has no interval.
    `confidence` is that of the interval. `rounds_needed` is about how many rounds would decide a
    figure that is open, `samples_needed` how many inferences a side, where that is what it lacks.
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

    @property
    def decides(self) -> bool:
        """Whether the verdict of the case follows from this figure."""
        return self.gated and (self.awaited or not self.is_open)

    @property
    def is_open(self) -> bool:
        return self.verdict is Verdict.INCONCLUSIVE

    @property
    def ratio(self) -> float | None:
        """After over before; of times that were measured in turn, the ratio of the pairs."""
        if self.measured_ratio is not None:
            return self.measured_ratio
        if self.before is None or self.after is None or self.before == 0:
            return None
        return self.after / self.before


class TimeChange(Struct, frozen=True, kw_only=True):
    """How much longer something takes now, with its interval.

    `share` is that of the whole difference; None where there is none to speak of.
    """

    ns: float
    low_ns: float | None = None
    high_ns: float | None = None
    share: float | None = None

    @property
    def is_within_noise(self) -> bool:
        """Whether the interval holds 0; where there is none, nothing says so."""
        if self.low_ns is None or self.high_ns is None:
            return False
        return self.low_ns <= 0.0 <= self.high_ns

    def explains(self, least: float) -> bool:
        """Whether it is a cause: so large a share of the difference, and more than noise."""
        return self.share is not None and self.share >= least and not self.is_within_noise


class LayerTypeChange(Struct, frozen=True):
    """All layers of one operator on both sides; None on a side that has none."""

    op: str
    before: LayerType | None
    after: LayerType | None
    time: TimeChange | None = None

    @property
    def added_macs(self) -> int:
        return _macs_of(self.after) - _macs_of(self.before)

    @property
    def added_ops(self) -> int:
        return _ops_of(self.after) - _ops_of(self.before)

    @property
    def is_equal(self) -> bool:
        return self.before == self.after


class LayerChange(Struct, frozen=True):
    """One layer on both sides; None on a side that does not have it.

    On a side where it runs inside the kernel of another layer its row has no time.
    """

    before: LayerRow | None
    after: LayerRow | None
    time: TimeChange | None = None


class OutputChange(Struct, frozen=True, kw_only=True):
    """One output of both models on the same inputs.

    `difference` says in words why they cannot be compared; then there are no figures.
    """

    name: str
    max_absolute: float | None = None
    max_relative: float | None = None
    cosine: float | None = None
    difference: str | None = None


class CaseComparison(Struct, frozen=True):
    """One case of two models, side by side; `reasons` say in words what changed and why.

    `outcome` is the verdict where none follows from metrics, a case that is unchanged or new,
    unless a budget says something else.
    In a duet both sides ran in turn in each of the `rounds`; else only the new one ran.
    `before` and `after` are what each side told as it ran, None for one that did not.
    """

    case: Case
    metrics: tuple[Metric, ...]
    layer_types: tuple[LayerTypeChange, ...]
    reasons: tuple[str, ...] = ()
    layers: tuple[LayerChange, ...] = ()
    outputs: tuple[OutputChange, ...] = ()
    notes: tuple[str, ...] = ()
    rounds: int | None = None
    is_duet: bool = True
    seconds: float | None = None
    outcome: Verdict | None = None
    failure: str | None = None
    before: SideRun | None = None
    after: SideRun | None = None

    @property
    def id(self) -> str:
        return self.case.id

    @property
    def verdict(self) -> Verdict:
        if self.outcome is not None:
            kept = (m.verdict for m in self.metrics if m.limit is not None)
            return worst([self.outcome, *(v for v in kept if v is not Verdict.PASSED)])
        return worst(metric.verdict for metric in self.metrics if metric.decides)

    @property
    def regressed(self) -> tuple[Metric, ...]:
        """The judged figures that are worse than before by more than is allowed."""
        return tuple(
            m for m in self.metrics
            if m.gated and m.limit is None and m.verdict is Verdict.REGRESSED
        )  # fmt: skip

    @property
    def engines(self) -> tuple[str, ...]:
        """The engine of each side that ran, once where both are the same."""
        sides = [side.engine.label for side in (self.before, self.after) if side is not None]
        return tuple(dict.fromkeys(sides))

    @property
    def has_failed(self) -> bool:
        """Whether it could not be measured, and nothing that is known without is worse."""
        is_worse = self.verdict in (Verdict.REGRESSED, Verdict.OVER_BUDGET)
        return self.failure is not None and not is_worse


class Comparison(Struct, frozen=True):
    """Two models compared at the same cases.

    `confidence` is that of each gated metric, `tolerance` the relative increase that is allowed;
    both are None where only what is exact was compared.
    """

    before: ModelFacts
    after: ModelFacts
    cases: tuple[CaseComparison, ...]
    tolerance: float | None = None
    confidence: float | None = None
    engines: tuple[str, ...] = field(default=())

    @property
    def verdict(self) -> Verdict:
        """The worst of all cases that did not fail."""
        return worst(case.verdict for case in self.cases if not case.has_failed)

    @property
    def rounds(self) -> int | None:
        """Of all cases together; None where nothing ran."""
        known = [case.rounds for case in self.cases if case.rounds is not None]
        return sum(known) if known else None

    @property
    def seconds(self) -> float | None:
        known = [case.seconds for case in self.cases if case.seconds is not None]
        return sum(known) if known else None


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of several together: one that regressed decides, then one that is unclear."""
    return min(verdicts, key=VERDICT_ORDER.index, default=Verdict.PASSED)


def _macs_of(kind: LayerType | None) -> int:
    return (kind.macs or 0) if kind is not None else 0


def _ops_of(kind: LayerType | None) -> int:
    return (kind.elementwise_ops or 0) if kind is not None else 0


# The word of a case that became the new baseline.
RECORDED = "recorded"
