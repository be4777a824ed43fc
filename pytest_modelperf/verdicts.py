"""The records of a comparison: metrics with their verdicts, and what changed by layer type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from pytest_modelperf.records import LayerType, ModelFacts


class Verdict(str, Enum):
    """What a comparison says of a metric, a case, or a whole run."""

    PASSED = "passed"
    IMPROVED = "improved"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure on both sides; one that is not `gated` is shown, and decides nothing."""

    name: str
    before: int | None
    after: int | None
    verdict: Verdict
    gated: bool = True

    @property
    def ratio(self) -> float | None:
        if self.before is None or self.after is None or self.before == 0:
            return None
        return self.after / self.before


@dataclass(frozen=True, slots=True)
class LayerTypeChange:
    """All layers of one operator on both sides; None on a side that has none."""

    op: str
    before: LayerType | None
    after: LayerType | None

    @property
    def added_macs(self) -> int:
        return _macs_of(self.after) - _macs_of(self.before)

    @property
    def added_ops(self) -> int:
        return _ops_of(self.after) - _ops_of(self.before)

    @property
    def is_equal(self) -> bool:
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class CaseComparison:
    """One case of two models, side by side; `reasons` say in words what changed in the graph."""

    id: str
    metrics: tuple[Metric, ...]
    layer_types: tuple[LayerTypeChange, ...]
    reasons: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return worst(metric.verdict for metric in self.metrics if metric.gated)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two models compared at the same cases."""

    before: ModelFacts
    after: ModelFacts
    cases: tuple[CaseComparison, ...]

    @property
    def verdict(self) -> Verdict:
        return worst(case.verdict for case in self.cases)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of several together: one that regressed decides, then one that is unclear."""
    order = (Verdict.REGRESSED, Verdict.INCONCLUSIVE, Verdict.IMPROVED, Verdict.PASSED)
    return min(verdicts, key=order.index, default=Verdict.PASSED)


def _macs_of(kind: LayerType | None) -> int:
    return (kind.macs or 0) if kind is not None else 0


def _ops_of(kind: LayerType | None) -> int:
    return (kind.elementwise_ops or 0) if kind is not None else 0
