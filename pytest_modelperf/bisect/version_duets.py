"""Compares two versions by a duet: releases in environments of their own, or files of commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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
from pytest_modelperf.comparing.by_duet import Details, compare_models
from pytest_modelperf.comparing.by_outputs import compare_outputs_of
from pytest_modelperf.comparing.gates import Gate, median_gate
from pytest_modelperf.comparing.limits import OUTPUTS
from pytest_modelperf.comparing.records import CaseComparison, Comparison
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.environments.making import make_environment
from pytest_modelperf.errors import ChangedModelError, MeasureError
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.records import ModelFacts
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.gateway import interpreter_spec
from pytest_modelperf.revisions.commits import RefOption, find_commit, taken_from_git
from pytest_modelperf.text.escaping import printable

# The time of the second attempt, relative to that of the first.
MORE_TIME = 4.0
_METRICS = {BisectFigure.LATENCY: "latency_p50", BisectFigure.OUTPUTS: OUTPUTS}

# Compares the two versions of a question with the time and the level that the question gives.
CompareVersions: TypeAlias = Callable[[Question, Watch], Comparison]

# Opens a version as a side of a comparison, whose files last as long as the context. The function
# that it takes is called with the name of each step.
OpenSide: TypeAlias = Callable[[Version, Callable[[str], None]], AbstractContextManager[Side]]


class BisectRequest(Struct, frozen=True, kw_only=True):
    """A request to bisect one case of a model between two versions, with its rule."""

    model: str
    request: ProfileRequest
    range: VersionRange
    setup: Setup
    rule: SearchRule
    extensions: Extensions


def run_bisect(
    asked: BisectRequest, compare: CompareVersions, watch: Watch = lambda _: None
) -> Bisect:
    """Finds the versions between both ends that made the model worse."""
    begun = time.monotonic()
    is_one_model = asked.range.kind is RangeKind.RELEASES
    judge = _Judge(compare, watch, _METRICS[asked.rule.judges], is_one_model=is_one_model)
    search = find_regressions(asked.range.versions, judge, asked.rule)
    return Bisect(
        model=asked.model,
        engine=asked.setup.engine.name,
        case=judge.case_id,
        range=asked.range,
        search=search,
        tolerance=asked.rule.tolerance,
        level=asked.rule.level,
        seconds=time.monotonic() - begun,
        judges=asked.rule.judges,
        options=asked.setup.options,
    )


def release_sides(model: str, package: str, setup: Setup) -> OpenSide:
    """The model on a release of its engine, in an environment that is made if it is not there."""

    @contextmanager
    def open_side(version: Version, tell: Callable[[str], None]) -> Iterator[Side]:
        environment = make_environment([f"{package}=={version.name}"], on_progress=tell)
        spec = interpreter_spec(str(environment.python), "the environment")
        yield Side(model, replace(setup, spec=spec))

    return open_side


def commit_sides(model: str, setup: Setup, option: RefOption) -> OpenSide:
    """The model as it was in a commit."""
    path = Path(model)

    @contextmanager
    def open_side(version: Version, tell: Callable[[str], None]) -> Iterator[Side]:
        tell("taking the model from git")
        commit = find_commit(version.name, path.absolute().parent, option)
        with taken_from_git(commit, path) as taken:
            yield Side(str(taken), setup)

    return open_side


def compare_here(asked: BisectRequest, open_side: OpenSide) -> CompareVersions:
    """Compares two versions by a duet on this machine."""

    def compare(question: Question, watch: Watch) -> Comparison:
        tell = telling(watch)
        with open_side(question.good, tell) as good, open_side(question.other, tell) as other:
            before, after = (
                replace(side, setup=setup_at(side.setup, question.attempt))
                for side in (good, other)
            )
            gate, details = gate_for(question, after.setup), details_of(question)
            return compare_models(
                before, after, asked.request, gate, asked.extensions, watch, details
            )

    return compare


def telling(watch: Watch) -> Callable[[str], None]:
    """Tells a step before a comparison."""

    def tell(step: str) -> None:
        watch(Progress(case_id="", case_number=0, cases=0, step=step))

    return tell


def numbered(watch: Watch, question: Question) -> Watch:
    """Shows the progress of a comparison as that of a step of the search."""

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


def compare_outputs_here(asked: BisectRequest, open_side: OpenSide) -> CompareVersions:
    """Compares the outputs of two versions by one inference of each on this machine."""

    def compare(question: Question, watch: Watch) -> Comparison:
        tell = telling(watch)
        with open_side(question.good, tell) as good, open_side(question.other, tell) as other:
            return compare_outputs_of(
                good,
                other,
                asked.request,
                question.allowed,
                asked.extensions,
                watch,
                searches=question.has_details,
            )

    return compare


class _Judge(Struct):
    """Answers each question by a comparison, in which this metric decides.

    `is_one_model` claims that all versions run the same model.
    """

    compare: CompareVersions
    watch: Watch
    metric: str
    is_one_model: bool = False
    model: ModelFacts | None = None
    # As the comparisons name it: the model of a commit need not lie in the work tree.
    case_id: str = ""

    def __call__(self, question: Question) -> Judged:
        compared = self.compare(question, numbered(self.watch, question))
        if self.is_one_model:
            self._require_same(compared.after)
        (case,) = compared.cases
        self.case_id = case.id
        return _judged(case, question, self.metric)

    def _require_same(self, model: ModelFacts) -> None:
        """Raise ChangedModelError if it is another model than that of the first comparison."""
        self.model = self.model or model
        if model.sha256 != self.model.sha256:
            raise ChangedModelError(
                f"{printable(model.name)} was changed after the first step, which ran another "
                "model. Search again when nothing writes it."
            )


def setup_at(setup: Setup, attempt: int) -> Setup:
    """The setup, with more time after the first attempt."""
    if not attempt:
        return setup
    policy = replace(setup.policy, max_seconds=MORE_TIME * setup.policy.max_seconds)
    stretch = setup.stretch_seconds
    if stretch is not None:
        stretch *= MORE_TIME
    return replace(setup, policy=policy, stretch_seconds=stretch)


def details_of(question: Question) -> Details:
    """Only the last comparison of a search times layers as well."""
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
