"""The search: the order in which versions are compared, and what follows from the answers.

It does not know any engine. A `Judge` compares two versions; in tests it is a table of times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.bisect.records import (
    Answer,
    BisectFigure,
    BisectStep,
    Judged,
    Regression,
    Search,
    Version,
)
from pytest_modelperf.comparing.gates import RUN_LEVEL
from pytest_modelperf.comparing.limits import DEFAULT_TOLERANCE
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import ChangedModelError, ModelPerfError
from pytest_modelperf.stats.decisions import SearchLevels, middle_change, series_share

# An inconclusive duet is repeated once, with more time.
ATTEMPTS = 2


class Question(Struct, frozen=True, kw_only=True):
    """The question to a judge: whether the second version is worse by more than `allowed`.

    `level` bounds the chance of either wrong answer. `attempt` counts from 0; a later one has more
    time. `number` is the current step of the search, and `planned` the expected number of steps.
    """

    good: Version
    other: Version
    allowed: float
    level: float
    attempt: int = 0
    has_details: bool = False
    number: int = 1
    planned: int = 1


class Judge(Protocol):
    """A function that compares two versions, or raises a ModelPerfError that says why it cannot."""

    def __call__(self, question: Question, /) -> Judged: ...


class SearchRule(Struct, frozen=True, kw_only=True):
    """The allowed change, the chance of a wrong answer, and whether one regression is enough.

    `judges` is the figure that is compared. Outputs and work are exact, so each version is compared
    with the tolerance itself, and only once.
    """

    tolerance: float = DEFAULT_TOLERANCE
    level: float = RUN_LEVEL
    finds_all: bool = False
    judges: BisectFigure = BisectFigure.LATENCY

    @property
    def is_exact(self) -> bool:
        return self.judges is not BisectFigure.LATENCY


def find_regressions(
    versions: Sequence[Version],
    judge: Judge,
    rule: SearchRule,
    clock: Callable[[], float] = time.monotonic,
) -> Search:
    """Find the versions that made a model worse, between a good end and a bad end.

    An error of the first comparison is raised: without it there is nothing to look for. Versions
    that cannot be compared later are skipped.
    """
    steps: list[BisectStep] = []
    found: list[Regression] = []
    waiting = [(0, len(versions) - 1)]
    searches = 0
    while waiting and (rule.finds_all or not searches):
        good, bad = waiting.pop(0)
        searches += 1
        share = series_share(searches) if rule.finds_all else 1.0
        levels = SearchLevels(bad - good + 1, rule.level * share)
        halving = _Halving(versions, judge, rule, levels, clock, steps)
        regression = halving.search(good, bad)
        if regression is not None:
            found.append(regression)
            places = versions.index(regression.last_good), versions.index(regression.first_bad)
            sides = ((good, places[0]), (places[1], bad))
            waiting += [side for side in sides if side[0] < side[1]]
    return Search(
        ends=steps[0],
        steps=tuple(steps),
        regressions=tuple(sorted(found, key=lambda each: versions.index(each.last_good))),
        is_whole=rule.finds_all,
    )


class _Halving(Struct):
    versions: Sequence[Version]
    judge: Judge
    rule: SearchRule
    levels: SearchLevels
    clock: Callable[[], float]
    steps: list[BisectStep]
    asked: int = 0

    def search(self, good: int, bad: int) -> Regression | None:
        """Return the regression between these, or None if no difference is shown."""
        is_pair = bad - good == 1
        ends = self._compare(good, bad, self.rule.tolerance, has_details=is_pair)
        if ends.answer is not Answer.BAD or ends.judged is None:
            return None
        exact = self.rule.tolerance if self.rule.is_exact else None
        middle = middle_change(ends.judged.ratio) if exact is None else exact
        low, high, open_between = good, bad, set[int]()
        known = {bad: ends}
        while left := [place for place in range(low + 1, high) if place not in open_between]:
            # The middle: both distances differ least there, and their sum is constant.
            place = min(left, key=lambda each: abs(2 * each - low - high))
            step = known[place] = self._compare(good, place, middle)
            if step.answer is Answer.GOOD:
                low = place
            elif step.answer is Answer.BAD:
                high = place
            else:
                open_between.add(place)
        pair = ends
        if not is_pair:
            pair = self._compare(low, high, self.rule.tolerance, has_details=True)
        return Regression(
            last_good=self.versions[low],
            first_bad=self.versions[high],
            before=known.get(low),
            after=known[high],
            pair=None if pair.answer is Answer.FAILED else pair,
            between=tuple(self.versions[place] for place in range(low + 1, high)),
        )

    def _compare(
        self, good: int, other: int, allowed: float, *, has_details: bool = False
    ) -> BisectStep:
        self.asked += 1
        begun = self.clock()
        question = Question(
            good=self.versions[good],
            other=self.versions[other],
            allowed=allowed,
            level=self.levels.of(self.asked) / ATTEMPTS,
            has_details=has_details,
            number=len(self.steps) + 1,
            planned=len(self.steps) + 1 + max(self.levels.planned - self.asked, 0),
        )
        attempts, judged, reason = 1, None, None
        most = 1 if self.rule.is_exact else ATTEMPTS
        try:
            judged = self.judge(question)
            while judged.verdict is Verdict.INCONCLUSIVE and attempts < most:
                judged = self.judge(replace(question, attempt=attempts))
                attempts += 1
        except ChangedModelError:
            # The earlier steps measured another model.
            raise
        except ModelPerfError as error:
            if not self.steps:
                raise
            judged, reason = None, error.message
        step = BisectStep(
            version=question.other,
            against=question.good,
            allowed=allowed,
            answer=_ANSWERS[judged.verdict] if judged is not None else Answer.FAILED,
            attempts=attempts,
            judged=judged,
            reason=reason,
            seconds=self.clock() - begun,
        )
        self.steps.append(step)
        return step


_ANSWERS = {
    Verdict.REGRESSED: Answer.BAD,
    Verdict.PASSED: Answer.GOOD,
    Verdict.IMPROVED: Answer.GOOD,
    Verdict.UNCHANGED: Answer.GOOD,
    Verdict.INCONCLUSIVE: Answer.INCONCLUSIVE,
}
