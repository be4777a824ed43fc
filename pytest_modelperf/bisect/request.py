"""A request to bisect a model, by releases or files of commits, or the program of a test."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.bisect.records import (
    Bisect,
    BisectFigure,
    Judged,
    RangeKind,
    Version,
    VersionRange,
)
from pytest_modelperf.bisect.search import Question, SearchRule, find_regressions
from pytest_modelperf.bisect.versions import OPTION
from pytest_modelperf.comparing.by_running import Details, compare_outputs_of
from pytest_modelperf.comparing.gates import Gate, median_gate
from pytest_modelperf.comparing.limits import OUTPUTS, WORK, Tolerances
from pytest_modelperf.comparing.records import CaseComparison, Comparison, Metric, Verdict
from pytest_modelperf.comparing.request import CompareRequest
from pytest_modelperf.errors import ChangedModelError, MeasureError, UsageError
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.model_request import ModelRun, telling
from pytest_modelperf.profiler.records import ModelFacts
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.programs.checked import CheckedProgram, ProgramCheck
from pytest_modelperf.programs.rounds import Pace
from pytest_modelperf.programs.work import WORK_METRICS
from pytest_modelperf.revisions.commits import find_commit, taken_from_git
from pytest_modelperf.text.escaping import printable

# The time of the second attempt, relative to that of the first.
MORE_TIME = 4.0
_METRICS = {BisectFigure.LATENCY: "latency_p50", BisectFigure.OUTPUTS: OUTPUTS}

# Runs the duet of two versions, here or on another machine.
RunDuet: TypeAlias = Callable[[CompareRequest, Watch], Comparison]
CompareVersions: TypeAlias = Callable[[Question, Watch], Comparison]


class BisectRequest(Struct, frozen=True, kw_only=True):
    """A request to bisect one case of a model between two versions, with its rule.

    The releases are those of `package`. Each runs in its own environment, which is made if needed.
    Without a package the versions are commits.
    """

    model: str
    request: ProfileRequest
    range: VersionRange
    setup: Setup
    rule: SearchRule
    package: str | None = None

    def run(
        self, extensions: Extensions, watch: Watch = lambda _: None, run_duet: RunDuet | None = None
    ) -> Bisect:
        """Find the versions between both ends that made the model worse."""

        def compare(question: Question, watch: Watch) -> Comparison:
            versions = question.good, question.other
            with ExitStack() as stack:
                good, other = (stack.enter_context(self._opened(v, watch)) for v in versions)
                before, after = (
                    replace(model, setup=setup_at(model.setup, question.attempt))
                    for model in (good, other)
                )
                duet = CompareRequest(
                    before=before,
                    after=after,
                    request=self.request,
                    gate=gate_for(question, after.setup),
                    details=details_of(question),
                )
                if self.rule.is_exact:
                    return _compare_outputs(duet, question, extensions, watch)
                if run_duet is not None:
                    return run_duet(duet, watch)
                return duet.run(extensions, watch)

        return self.search(compare, watch)

    def search(self, compare: CompareVersions, watch: Watch = lambda _: None) -> Bisect:
        """Search with a function that compares the versions of each question."""
        begun = time.monotonic()
        is_one_model = self.range.kind is RangeKind.RELEASES
        judge = _Judge(compare, watch, _METRICS[self.rule.judges], is_one_model=is_one_model)
        search = find_regressions(self.range.versions, judge, self.rule)
        return Bisect(
            model=self.model,
            engine=self.setup.engine.name,
            case=judge.case_id,
            range=self.range,
            search=search,
            tolerance=self.rule.tolerance,
            level=self.rule.level,
            seconds=time.monotonic() - begun,
            judges=self.rule.judges,
            options=self.setup.options,
        )

    @contextmanager
    def _opened(self, version: Version, watch: Watch) -> Iterator[ModelRun]:
        """Yield the model in a version. The files of a commit last as long as the context."""
        if self.package is not None:
            yield ModelRun(self.model, self.setup, (f"{self.package}=={version.name}",))
            return
        path = Path(self.model)
        telling(watch)("taking the model from git")
        commit = find_commit(version.name, path.absolute().parent, OPTION)
        with taken_from_git(commit, path) as taken:
            yield ModelRun(str(taken), self.setup)


def _compare_outputs(
    duet: CompareRequest, question: Question, extensions: Extensions, watch: Watch
) -> Comparison:
    with duet.opened_sides(extensions, watch) as (good, other):
        return compare_outputs_of(
            good,
            other,
            duet.request,
            question.allowed,
            extensions,
            watch,
            searches=question.has_details,
        )


def numbered(watch: Watch, question: Question) -> Watch:
    """Return a watch that shows the progress of a comparison as a step of the search."""

    def see(progress: Progress) -> None:
        watch(
            replace(
                progress,
                case_id=question.other.label,
                case_number=question.number,
                cases=question.planned,
            )
        )

    return see


class _Judge(Struct):
    """A judge that answers each question by this metric of a comparison.

    `is_one_model` means that all versions run the same model.
    """

    compare: CompareVersions
    watch: Watch
    metric: str
    is_one_model: bool = False
    model: ModelFacts | None = None
    # The name from the comparisons, because the model may be missing in the work tree.
    case_id: str = ""

    def __call__(self, question: Question) -> Judged:
        compared = self.compare(question, numbered(self.watch, question))
        if self.is_one_model:
            self._require_same(compared.after)
        (case,) = compared.cases
        self.case_id = case.id
        return _judged(case, question, self.metric)

    def _require_same(self, model: ModelFacts) -> None:
        """Raise ChangedModelError if this is not the model of the first comparison."""
        self.model = self.model or model
        if model.sha256 != self.model.sha256:
            raise ChangedModelError(
                f"{printable(model.name)} was changed after the first step, which ran another "
                "model. Search again when no program writes it."
            )


def setup_at(setup: Setup, attempt: int) -> Setup:
    """Return the setup, with more time after the first attempt."""
    if not attempt:
        return setup
    policy = replace(setup.policy, max_seconds=MORE_TIME * setup.policy.max_seconds)
    stretch = setup.stretch_seconds
    if stretch is not None:
        stretch *= MORE_TIME
    return replace(setup, policy=policy, stretch_seconds=stretch)


def details_of(question: Question) -> Details:
    """Return whether to time layers too: only the last comparison of a search does."""
    return Details.ALWAYS if question.has_details else Details.NEVER


def gate_for(question: Question, setup: Setup) -> Gate:
    return median_gate(question.allowed, question.level, setup.policy.max_seconds)


def _judged(case: CaseComparison, question: Question, name: str) -> Judged:
    if case.failure is not None:
        raise MeasureError(
            f"{question.good.label} and {question.other.label} could not be compared: "
            f"{case.failure}"
        )
    if case.outcome is not None:
        return Judged(case.outcome, None, case)
    metric = next(metric for metric in case.metrics if metric.name == name)
    return Judged(metric.verdict, metric, case)


# -- a bisect of a program: by the work of a call, which is exact, and then by its time


# Compares the first commit with the second, with the given settings of the check.
CompareCommits = Callable[[str, str, ProgramCheck], CheckedProgram]

_MEDIAN = 50.0
# Every comparison takes one round, although the work is known before it.
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
            # Work has no limit: the search ignores growth that is undone before the bad end.
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
            raise MeasureError(
                f"{question.good.label} and {question.other.label} could not be compared in time."
            )
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
    """Return the first and the last line of a failure. The last one names the error."""
    first, *others = failure.splitlines()
    last = others[-1].removeprefix("E").strip() if others else ""
    return f"{first.removesuffix(':')}: {last}" if last else first


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
