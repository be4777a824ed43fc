"""Ratios to different baselines, chained to one curve.

A run measures a model relative to its baseline. Both are known by their digests, so a model that
was measured against one baseline and became the next one links the two. Logarithms of ratios are
added along the links, and so are their variances. Where a baseline was never measured against the
one before, a new chain begins.
"""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import attrgetter, ne
from statistics import NormalDist

from msgspec import Struct, field

from pytest_modelperf.history.records import (
    ChainedLine,
    HistoryMetric,
    HistoryPoint,
    StoredRatio,
)


class ModelLevel(Struct, frozen=True):
    """The logarithm of the cost of a model relative to the start of a chain, with its variance.

    `place` is the line that measured it; None for the first baseline of a chain.
    """

    value: float
    variance: float
    place: int | None = None


class Levels(Struct, frozen=True):
    """The levels of the points of a chain with their variances, as `HistoryPoint` has them.

    `are_links` tells which points measured a later baseline: their error is that of its link.
    """

    values: Sequence[float] = ()
    variances: Sequence[float] = ()
    shared_variances: Sequence[float] = ()
    are_links: Sequence[bool] = ()

    def at(self, places: Sequence[int]) -> Levels:
        return Levels(
            [self.values[place] for place in places],
            [self.variances[place] for place in places],
            [self.shared_variances[place] for place in places],
            [self.are_links[place] for place in places],
        )


class ChainOfCase(Struct, frozen=True):
    """The latest chain of one case: the lines of its points, and their levels.

    `past` has all lines of the case. `unlinked` says why nothing links the chain to the one before,
    if that is known.
    """

    metric: HistoryMetric
    past: Sequence[ChainedLine]
    lines: Sequence[ChainedLine]
    levels: Levels
    earlier_points: int = 0
    unlinked: str | None = None
    made: dict[int, HistoryPoint] = field(default_factory=dict)

    @property
    def points(self) -> tuple[HistoryPoint, ...]:
        return tuple(map(self.point, range(len(self.lines))))

    def point(self, place: int) -> HistoryPoint:
        """The point of the line at this place, which is made once."""
        if place not in self.made:
            line, levels = self.lines[place], self.levels
            self.made[place] = HistoryPoint(
                date=line.date,
                commit=line.commit,
                verdict=line.verdict,
                baseline=line.baseline,
                level=levels.values[place],
                variance=levels.variances[place],
                shared_variance=levels.shared_variances[place],
                reasons=line.reasons,
                run_url=line.run_url,
            )
        return self.made[place]

    def followed_by(self, line: ChainedLine) -> ChainOfCase:
        """The chain with one more line; this one stays as it is."""
        return chain_lines([*self.past, line], self.metric)

    def since(self, date: dt.datetime) -> ChainOfCase:
        """The chain without its older points."""
        kept = [place for place, line in enumerate(self.lines) if line.date >= date]
        return ChainOfCase(
            self.metric,
            self.past,
            [self.lines[place] for place in kept],
            self.levels.at(kept),
            self.earlier_points,
            self.unlinked,
        )


def chain_cases(
    lines: Iterable[ChainedLine], metric: HistoryMetric
) -> dict[tuple[str, str | None], ChainOfCase]:
    """The latest chain of each case and engine, from the lines of one file."""
    by_case: defaultdict[tuple[str, str | None], list[ChainedLine]] = defaultdict(list)
    for line in lines:
        by_case[line.case, line.engine].append(line)
    return {key: chain_lines(own, metric) for key, own in by_case.items()}


def chain_lines(lines: Iterable[ChainedLine], metric: HistoryMetric) -> ChainOfCase:
    """The latest chain of one case, from all of its lines, which are of the metric or whole ones.

    They are taken by date: a pull or a merge adds older lines behind newer ones.
    """
    by_date = sorted(lines, key=attrgetter("date"))
    return _chain_exact(by_date, metric) if metric.is_exact else _chain_ratios(by_date, metric)


def variances_of(ratios: Sequence[StoredRatio]) -> list[float]:
    """The variance of the logarithm of each ratio, as the width of its interval tells it.

    The intervals hold after all interim looks, so they are wider than this many standard errors:
    the variances are rather too large than too small.
    """
    # A history has few different ones.
    confidences = {ratio.confidence for ratio in ratios}
    errors = {each: 0.5 / NormalDist().inv_cdf((1.0 + each) / 2.0) for each in confidences}
    return [(math.log(each.high / each.low) * errors[each.confidence]) ** 2 for each in ratios]


def _chain_exact(lines: Sequence[ChainedLine], metric: HistoryMetric) -> ChainOfCase:
    figures = map(attrgetter("figures"), lines)
    values = [None if each is None else getattr(each, metric.value) for each in figures]
    counted = [line for line, value in zip(lines, values, strict=True) if value]
    levels = [math.log(value) for value in values if value]
    zeros = [0.0] * len(levels)
    exact = Levels(levels, zeros, zeros, [False] * len(levels))
    return ChainOfCase(metric, lines, counted, exact)


def _chain_ratios(lines: Sequence[ChainedLine], metric: HistoryMetric) -> ChainOfCase:
    ratio_of = attrgetter(metric.value)
    measured = [each for each in lines if each.baseline is not None and ratio_of(each) is not None]
    if not measured:
        return ChainOfCase(metric, lines, (), Levels())
    first, levels = _link(measured, [*map(ratio_of, measured)])
    chained = measured[first:]
    unlinked = _why_unlinked(lines, chained[0])
    return ChainOfCase(metric, lines, chained, levels, first, unlinked)


def _link(lines: Sequence[ChainedLine], ratios: Sequence[StoredRatio]) -> tuple[int, Levels]:
    """The place at which the last chain begins, and its levels.

    A baseline has the most certain level that its model was measured to have; the choice does not
    look at its value.
    """
    variances = variances_of(ratios)
    baselines = [line.baseline for line in lines]
    differs = enumerate(map(ne, baselines, baselines[1:]), 1)
    begins = [0, *(place for place, is_other in differs if is_other)]
    needed = {baselines[begin] for begin in begins}
    links = [place for place, line in enumerate(lines) if line.digest in needed]
    first = 0
    values: list[float] = []
    shared: list[float] = []
    known: dict[str | None, ModelLevel] = {}
    used: set[int | None] = set()
    for begin, end in pairwise([*begins, len(lines)]):
        base = known.get(baselines[begin])
        if base is None:
            first, base = begin, ModelLevel(0.0, 0.0)
            known = {baselines[begin]: base}
            values.clear()
            shared.clear()
        used.add(base.place)
        values += [base.value + math.log(ratio.ratio) for ratio in ratios[begin:end]]
        shared += [base.variance] * (end - begin)
        for place in links[bisect_left(links, begin) : bisect_left(links, end)]:
            digest, variance = lines[place].digest, base.variance + variances[place]
            if digest not in known or variance < known[digest].variance:
                known[digest] = ModelLevel(values[place - first], variance, place)
    are_links = [place in used for place in range(first, len(lines))]
    return first, Levels(values, variances[first:], shared, are_links)


def _why_unlinked(lines: Sequence[ChainedLine], first: ChainedLine) -> str | None:
    """Why the baseline of the first line of a chain has no ratio to the one before, if known."""
    known = None
    for line in lines:
        if line.unlinked is not None and line.digest == first.baseline:
            known = line.unlinked
        if line is first:
            break
    return known
