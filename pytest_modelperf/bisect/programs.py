"""Two commits of a program compared: by the work of a call, which is exact, and then by its time.

If the bad end does more work than the good one, each step of the search compares work alone.
Otherwise the times decide, and the work of a commit between may differ.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.bisect.records import Bisect, BisectFigure, Judged, VersionRange
from pytest_modelperf.bisect.request import MORE_TIME, numbered
from pytest_modelperf.bisect.search import Question, SearchRule, find_regressions
from pytest_modelperf.comparing.limits import WORK, Tolerances
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.errors import MeasureError, UsageError
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.programs.checked import CheckedProgram, ProgramCheck
from pytest_modelperf.programs.rounds import Pace
from pytest_modelperf.programs.work import WORK_METRICS

# Compares the first commit with the second, with the given settings of the check.
CompareCommits = Callable[[str, str, ProgramCheck], CheckedProgram]

_MEDIAN = 50.0
# One round, which every comparison takes: the work is known before it.
_SHORTEST = Pace(seconds=0.0, max_rounds=1)


class ProgramBisect(Struct, frozen=True, kw_only=True):
    """A request to bisect a program: its test, its check in the work tree, and the commits.

    The tolerances are those of the check.
    """

    test: str
    check: ProgramCheck
    range: VersionRange
    finds_all: bool = False


def bisect_program(
    asked: ProgramBisect, compare: CompareCommits, clock: Callable[[], float] = time.monotonic
) -> Bisect:
    """Find the commits between both ends that made the program do more work, or take longer."""
    begun, versions = clock(), asked.range.versions
    tolerances, found = asked.check.gate.tolerances, asked.range
    rule = SearchRule(
        tolerance=tolerances.of_figure(WORK), finds_all=asked.finds_all, judges=BisectFigure.WORK
    )
    search = find_regressions(versions, _WorkJudge(asked.check, compare), rule, clock)
    if search.verdict is not Verdict.REGRESSED:
        good, bad = found.good.label, found.bad.label
        note = f"a call does no more work in {bad} than in {good}, so its time was judged"
        found = replace(found, notes=(*found.notes, note))
        rule = SearchRule(tolerance=tolerances.of(_MEDIAN), finds_all=asked.finds_all)
        search = find_regressions(versions, _TimeJudge(asked.check, compare), rule, clock)
    return Bisect(
        model=asked.test,
        engine=f"Python {platform.python_version()}",
        case=asked.check.case.id,
        range=found,
        search=search,
        tolerance=rule.tolerance,
        level=rule.level,
        seconds=clock() - begun,
        judges=rule.judges,
    )


class _WorkJudge(Struct, frozen=True):
    """A judge that decides by the exact work of a call."""

    check: ProgramCheck
    compare: CompareCommits

    def __call__(self, question: Question) -> Judged:
        # Results that differ would end the comparison, and are not part of the question.
        check = replace(self.check, pace=_SHORTEST, outputs=None)
        case = _compared(question, check, self.compare)
        metrics = [metric for metric in case.metrics if metric.name in WORK_METRICS]
        metric = max(metrics, key=lambda each: (_is_worse(each), each.name == "inferences"))
        verdict = Verdict.REGRESSED if _is_worse(metric) else Verdict.PASSED
        return Judged(verdict, metric, case)


class _TimeJudge(Struct, frozen=True):
    check: ProgramCheck
    compare: CompareCommits

    def __call__(self, question: Question) -> Judged:
        check = self.check
        pace = _longer(check.pace) if question.attempt else check.pace
        gate = replace(
            check.gate,
            # Work has no limit: the search does not look for growth that is undone before the bad
            # end.
            tolerances=Tolerances(
                shares=((_MEDIAN, question.allowed),), figures=((WORK, math.inf),)
            ),
            # Both wrong answers are equally bad.
            level=question.level,
            pass_level=question.level,
            judges_starts=False,
            rounds=pace.max_rounds,
        )
        check = replace(check, gate=gate, pace=pace, outputs=None)
        case = _compared(question, check, self.compare)
        metric = case.metric("latency_p50")
        if metric is None:
            raise MeasureError(f"{_both(question)} could not be compared in time.")
        return Judged(metric.verdict, metric, _without_work_limits(case))


def _compared(question: Question, check: ProgramCheck, compare: CompareCommits) -> CaseComparison:
    """Compare both commits.

    Raise MeasureError if one of them cannot be run, and UsageError if the good one does not have
    the test.
    """
    watch: Watch = numbered(check.watch, question)
    good, other = question.good.name, question.other.name
    case = compare(good, other, replace(check, watch=watch)).comparison
    if case.outcome is Verdict.NEW:
        reasons = "; ".join(case.reasons)
        raise UsageError(f"{reasons}. Give --good a later commit than {question.good.label}.")
    if case.failure is not None:
        raise MeasureError(_in_one_line(case.failure))
    return case


def _without_work_limits(case: CaseComparison) -> CaseComparison:
    metrics = (
        replace(metric, allowed=None, gated=False) if metric.name in WORK_METRICS else metric
        for metric in case.metrics
    )
    return replace(case, metrics=tuple(metrics))


def _in_one_line(failure: str) -> str:
    """Return the first line of a failure and the last, which names the error."""
    first, *others = failure.splitlines()
    last = others[-1].removeprefix("E").strip() if others else ""
    return f"{first.removesuffix(':')}: {last}" if last else first


def _both(question: Question) -> str:
    return f"{question.good.label} and {question.other.label}"


def _is_worse(metric: Metric) -> bool:
    return metric.verdict is Verdict.REGRESSED


def _longer(pace: Pace) -> Pace:
    stretch = pace.stretch_seconds
    return Pace(
        seconds=MORE_TIME * pace.seconds,
        stretch_seconds=None if stretch is None else MORE_TIME * stretch,
        stretch_rounds=2 * pace.stretch_rounds,
        max_rounds=2 * pace.max_rounds,
    )
