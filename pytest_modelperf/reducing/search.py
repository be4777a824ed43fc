"""The search: which kernels to run by themselves in which order, and the result.

It does not depend on an engine. A `UnitJudge` runs some units of both plans in turn; in tests it is
a table of times. The search tries the unit that slows down most according to a profile, then the
first two, the first four, until some are shown to be slower. Then it leaves out all units it can,
by halves, quarters and so on, as Zeller and Hildebrandt do ("Simplifying and isolating
failure-inducing input", IEEE TSE 28 (2002)). The profile decides only the order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.errors import ChangedModelError, MeasureError
from pytest_modelperf.reducing.records import ReduceStep, StepAnswer, UnitSearch
from pytest_modelperf.stats.decisions import SearchLevels


class UnitQuestion(Struct, frozen=True, kw_only=True):
    """The question to a judge: whether these units are slower than `allowed` by themselves."""

    units: tuple[int, ...]
    allowed: float
    # The bound on the chance of a wrong answer in either direction.
    level: float
    number: int


# Runs units of both plans in turn, or raises MeasureError if they do not run by themselves.
UnitJudge: TypeAlias = Callable[[UnitQuestion], Metric]


class ReduceRule(Struct, frozen=True, kw_only=True):
    """The change that counts as slower, the level of the whole search, and its longest time.

    The duets share the level, and one of them is reserved for the files that are written.
    """

    allowed: float
    level: float
    max_seconds: float = math.inf


def levels_for(units: int, level: float) -> SearchLevels:
    """Return the levels of the duets of a search among this number of units."""
    return SearchLevels(units + 1, level)


def find_smallest(
    longer: Sequence[float],
    judge: UnitJudge,
    rule: ReduceRule,
    clock: Callable[[], float] = time.monotonic,
) -> UnitSearch:
    """Find the fewest units that still show the slowdown, trying those first that took `longer`."""
    ranked = sorted(range(len(longer)), key=lambda index: (-longer[index], index))
    search = _Leaving(judge, rule, levels_for(len(ranked), rule.level), clock, clock())
    kept: Sequence[int] = ()
    for size in _sizes(len(ranked)):
        if search.is_over:
            break
        if search.shows_slowdown(ranked[:size]):
            kept = ranked[:size]
            break
    smallest, is_smallest = search.leave_out(sorted(kept))
    return UnitSearch(
        steps=tuple(search.steps), kept=tuple(smallest), is_smallest=bool(kept) and is_smallest
    )


def _sizes(units: int) -> Iterator[int]:
    size = 1
    while size < units:
        yield size
        size *= 2
    if units:
        yield units


class _Leaving(Struct):
    judge: UnitJudge
    rule: ReduceRule
    levels: SearchLevels
    clock: Callable[[], float]
    begun: float
    steps: list[ReduceStep] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.clock() - self.begun > self.rule.max_seconds

    def leave_out(self, units: Sequence[int]) -> tuple[Sequence[int], bool]:
        """Return the units that cannot be left out, and whether the search is complete."""
        parts = 2
        while len(units) > 1:
            for chunk in _chunks(units, parts):
                if self.is_over:
                    return units, False
                rest = [unit for unit in units if unit not in chunk]
                if self.shows_slowdown(rest):
                    units, parts = rest, max(parts - 1, 2)
                    break
            else:
                if parts >= len(units):
                    break
                parts = min(2 * parts, len(units))
        return units, True

    def shows_slowdown(self, units: Sequence[int]) -> bool:
        asked = tuple(sorted(units))
        known = next((step for step in self.steps if step.units == asked), None)
        step = known or self._ask(asked)
        return step.shown is StepAnswer.SLOWER

    def _ask(self, units: tuple[int, ...]) -> ReduceStep:
        begun, allowed = self.clock(), self.rule.allowed
        number = len(self.steps) + 1
        metric, reason = None, None
        try:
            level = self.levels.of(number)
            question = UnitQuestion(units=units, allowed=allowed, level=level, number=number)
            metric = self.judge(question)
        except ChangedModelError:
            # The previous steps measured another model.
            raise
        except MeasureError as error:
            reason = error.message
        step = ReduceStep(
            units=units,
            shown=StepAnswer.FAILED if metric is None else _SHOWN[metric.verdict],
            allowed=allowed,
            metric=metric,
            reason=reason,
            seconds=self.clock() - begun,
        )
        self.steps.append(step)
        return step


_SHOWN = {
    Verdict.REGRESSED: StepAnswer.SLOWER,
    Verdict.PASSED: StepAnswer.NOT_SLOWER,
    Verdict.IMPROVED: StepAnswer.NOT_SLOWER,
    Verdict.INCONCLUSIVE: StepAnswer.OPEN,
}


def _chunks(units: Sequence[int], parts: int) -> Iterator[Sequence[int]]:
    for number in range(parts):
        start, stop = (len(units) * place // parts for place in (number, number + 1))
        yield units[start:stop]
