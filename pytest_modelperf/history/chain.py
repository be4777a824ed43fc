"""Ratios to different baselines, chained to one curve.

A run measures a model relative to its baseline. Both are known by their digests, so a model that
was measured against one baseline and became the next one links the two. Logarithms of ratios are
added along the links, and so are their variances. Where a baseline was never measured against the
one before, a new chain begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from statistics import NormalDist

from msgspec import Struct, field

from pytest_modelperf.history.records import (
    ChainedLine,
    HistoryMetric,
    HistoryPoint,
    StoredRatio,
)


class ModelLevel(Struct, frozen=True, gc=False):
    """The logarithm of the cost of a model relative to the start of a chain, with its variance."""

    value: float
    variance: float


class ChainOfCase(Struct):
    """The latest chain of one case, which grows line by line.

    `unlinked` says why nothing links it to the chain before, if that is known.
    """

    metric: HistoryMetric
    points: list[HistoryPoint] = field(default_factory=list)
    earlier_points: int = 0
    # The levels of the models that were measured in this chain, by their digests.
    levels: dict[str, ModelLevel] = field(default_factory=dict)
    unlinked: str | None = None
    # Why the models that became baselines have no ratio to the one before, by their digests.
    problems: dict[str, str] = field(default_factory=dict)

    def add(self, line: ChainedLine) -> None:
        metric = self.metric
        if metric is HistoryMetric.P50:
            self._add_ratio(line, line.p50)
        elif metric is HistoryMetric.P95:
            self._add_ratio(line, line.p95)
        else:
            self._add_exact(line)

    def followed_by(self, line: ChainedLine) -> ChainOfCase:
        """A chain with one more line; this one stays as it is."""
        longer = ChainOfCase(
            self.metric,
            [*self.points],
            self.earlier_points,
            {**self.levels},
            self.unlinked,
            {**self.problems},
        )
        longer.add(line)
        return longer

    def _add_exact(self, line: ChainedLine) -> None:
        value = None if line.figures is None else getattr(line.figures, self.metric.value)
        if value:
            self.points.append(_point(line, math.log(value)))

    def _add_ratio(self, line: ChainedLine, ratio: StoredRatio | None) -> None:
        if line.unlinked is not None and line.digest is not None:
            self.problems[line.digest] = line.unlinked
        if ratio is None or line.baseline is None:
            return
        base = self.levels.get(line.baseline)
        if base is None:
            self._begin(line.baseline)
            base = self.levels[line.baseline]
        value, variance = base.value + math.log(ratio.ratio), variance_of(ratio)
        self.points.append(_point(line, value, variance, base.variance))
        if line.digest is not None:
            self._learn(line.digest, value, base.variance + variance)

    def _begin(self, baseline: str) -> None:
        """Begins a new chain at a baseline that nothing links to the points so far."""
        self.earlier_points += len(self.points)
        self.points.clear()
        self.unlinked = self.problems.get(baseline)
        self.levels = {baseline: ModelLevel(0.0, 0.0)}

    def _learn(self, digest: str, value: float, variance: float) -> None:
        """Keeps the most certain level of each model; the choice does not look at its value."""
        known = self.levels.get(digest)
        if known is None or variance < known.variance:
            self.levels[digest] = ModelLevel(value, variance)


def chain_cases(
    lines: Iterable[ChainedLine], metric: HistoryMetric
) -> dict[tuple[str, str | None], ChainOfCase]:
    """The latest chain of each case and engine, from the lines of one file in their order."""
    chains: dict[tuple[str, str | None], ChainOfCase] = {}
    for line in lines:
        key = (line.case, line.engine)
        chain = chains.get(key)
        if chain is None:
            chain = chains[key] = ChainOfCase(metric)
        chain.add(line)
    return chains


def variance_of(ratio: StoredRatio) -> float:
    """The variance of the logarithm, as the width of the interval tells it.

    The intervals hold after all interim looks, so they are wider than this many standard errors:
    the variance is rather too large than too small.
    """
    width = math.log(ratio.high) - math.log(ratio.low)
    return (width / (2.0 * _quantile_of(ratio.confidence))) ** 2


@lru_cache
def _quantile_of(confidence: float) -> float:
    """A quantile of the normal distribution, cached: a history has few different confidences."""
    return NormalDist().inv_cdf((1.0 + confidence) / 2.0)


def _point(
    line: ChainedLine, level: float, variance: float = 0.0, shared_variance: float = 0.0
) -> HistoryPoint:
    return HistoryPoint(
        date=line.date,
        commit=line.commit,
        verdict=line.verdict,
        baseline=line.baseline,
        level=level,
        variance=variance,
        shared_variance=shared_variance,
        reasons=line.reasons,
    )
