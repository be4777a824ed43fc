"""Ratios to different baselines, chained to one curve.

A run measures a model relative to its baseline. Both are known by their digests, so a model that
was measured against one baseline and became the next one links the two. Logarithms of ratios are
added along the links, and so are their variances. A baseline that comes back has its level again.
If a baseline was never measured against the one before, a new chain begins.
"""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from operator import attrgetter, ne
from statistics import NormalDist

from msgspec import Struct, field

from pytest_modelperf.history.records import (
    ChainedLine,
    HistoryMetric,
    HistoryPoint,
    Shift,
    StoredRatio,
)
from pytest_modelperf.stats.linked_levels import Levels, LinkedBaselines, moderated

# The place of the first baseline of a chain.
_NO_LINE = -1


class ModelLevel(Struct, frozen=True):
    """The logarithm of the cost of a model relative to the start of a chain, with its variance.

    `place` is the line that measured it, against the baseline with the number `parent`. No line
    measured the first baseline of a chain.
    """

    value: float
    variance: float
    parent: int
    place: int = _NO_LINE


class ChainOfCase(Struct, frozen=True, dict=True):
    """The latest chain of one case: the lines of its points, and their levels.

    `past` has all lines of the case. `unlinked` says why the chain is not linked to the one before,
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
        """Return the point of the line at this place, which is made once."""
        if place not in self.made:
            line, levels = self.lines[place], self.levels
            self.made[place] = HistoryPoint(
                date=line.date,
                commit=line.commit,
                verdict=line.verdict,
                baseline=line.baseline,
                level=levels.values[place],
                variance=levels.own_variance(place),
                link_variance=self._variances_from_first[levels.baselines[place]],
                reasons=line.reasons,
                run_url=line.run_url,
            )
        return self.made[place]

    def shift(self, before: int, after: int) -> Shift:
        """Return the change between the points of these places."""
        levels = self.levels
        size = levels.values[after] - levels.values[before]
        if before == after:
            return Shift(size)
        links = levels.linked.variances_from(levels.baselines[before])[levels.baselines[after]]
        variance = levels.own_variance(before) + levels.own_variance(after) + links
        return Shift(size, math.sqrt(variance))

    def followed_by(self, line: ChainedLine) -> ChainOfCase:
        """Return the chain with one more line. This one stays as it is."""
        return chain_lines([*self.past, line], self.metric)

    def since(self, date: dt.datetime) -> ChainOfCase:
        """Return the chain without its older points."""
        kept = [place for place, line in enumerate(self.lines) if line.date >= date]
        return ChainOfCase(
            self.metric,
            self.past,
            [self.lines[place] for place in kept],
            self.levels.at(kept),
            self.earlier_points,
            self.unlinked,
        )

    @cached_property
    def _variances_from_first(self) -> Sequence[float]:
        return self.levels.linked.variances_from(self.levels.baselines[0])


def chain_cases(
    lines: Iterable[ChainedLine], metric: HistoryMetric
) -> dict[tuple[str, str | None], ChainOfCase]:
    """Return the latest chain of each case and engine, from the lines of one file."""
    by_case: defaultdict[tuple[str, str | None], list[ChainedLine]] = defaultdict(list)
    for line in lines:
        by_case[line.case, line.engine].append(line)
    return {key: chain_lines(own, metric) for key, own in by_case.items()}


def chain_lines(lines: Iterable[ChainedLine], metric: HistoryMetric) -> ChainOfCase:
    """Return the latest chain of one case, from all of its lines.

    The lines are sorted by date, because a pull or a merge adds older lines behind newer ones.
    """
    by_date = sorted(lines, key=attrgetter("date"))
    return _chain_exact(by_date, metric) if metric.is_exact else _chain_ratios(by_date, metric)


def variances_of(ratios: Sequence[StoredRatio]) -> list[float]:
    """Return the variance of the logarithm of each ratio, from the width of its interval.

    The intervals hold after all interim looks, so they are wider than this many standard errors:
    the variances are too large rather than too small.
    """
    # A history has few different confidences.
    confidences = {ratio.confidence for ratio in ratios}
    errors = {each: 0.5 / NormalDist().inv_cdf((1.0 + each) / 2.0) for each in confidences}
    return [(math.log(each.high / each.low) * errors[each.confidence]) ** 2 for each in ratios]


def _chain_exact(lines: Sequence[ChainedLine], metric: HistoryMetric) -> ChainOfCase:
    figures = map(attrgetter("figures"), lines)
    values = [None if each is None else getattr(each, metric.value) for each in figures]
    counted = [line for line, value in zip(lines, values, strict=True) if value]
    levels = [math.log(value) for value in values if value]
    count = len(levels)
    exact = Levels(levels, [0.0] * count, [0] * count, [False] * count)
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
    """Return the place at which the last chain begins, and its levels.

    A baseline has the most certain level that its model was measured to have. The choice does not
    depend on the value of the level.
    """
    variances = moderated(variances_of(ratios))
    baselines = [line.baseline for line in lines]
    differs = enumerate(map(ne, baselines, baselines[1:]), 1)
    begins = [0, *(place for place, is_other in differs if is_other)]
    needed = {baselines[begin] for begin in begins}
    links = [place for place, line in enumerate(lines) if line.digest in needed]
    first = 0
    values: list[float] = []
    numbers: list[int] = []
    linked = LinkedBaselines()
    known: dict[str | None, ModelLevel] = {}
    # The numbers of baselines by the lines that measured them.
    made: dict[int, int] = {}
    for begin, end in pairwise([*begins, len(lines)]):
        base = known.get(baselines[begin])
        if base is None:
            first, base = begin, ModelLevel(0.0, 0.0, 0)
            known = {baselines[begin]: base}
            values, numbers, linked, made = [], [], LinkedBaselines(), {base.place: 0}
        if base.place not in made:
            made[base.place] = linked.add(base.parent, variances[base.place])
        number = made[base.place]
        values += [base.value + math.log(ratio.ratio) for ratio in ratios[begin:end]]
        numbers += [number] * (end - begin)
        for place in links[bisect_left(links, begin) : bisect_left(links, end)]:
            digest, variance = lines[place].digest, base.variance + variances[place]
            if digest not in known or variance < known[digest].variance:
                known[digest] = ModelLevel(values[place - first], variance, number, place)
    are_links = [place in made for place in range(first, len(lines))]
    for place, number in made.items():
        if place != _NO_LINE:
            numbers[place - first] = number
    return first, Levels(values, variances[first:], numbers, are_links, linked)


def _why_unlinked(lines: Sequence[ChainedLine], first: ChainedLine) -> str | None:
    """Return why the baseline of a chain's first line has no ratio to the one before, if known."""
    known = None
    for line in lines:
        if line.unlinked is not None and line.digest == first.baseline:
            known = line.unlinked
        if line is first:
            break
    return known
