"""A bisect as JSON: the types of its document, and how records become them."""

from __future__ import annotations

from msgspec import Struct

from pytest_modelperf.bisect.records import (
    Answer,
    Bisect,
    BisectFigure,
    BisectStep,
    LeftOut,
    RangeKind,
    Regression,
    Version,
)
from pytest_modelperf.comparing.document import (
    ComparedCaseJson,
    Interval,
    case_comparison_to_json,
)
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.files.documents import Figure
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document


class VersionJson(Struct, frozen=True, kw_only=True):
    """A release, or a commit with its subject."""

    name: str
    title: str | None


class BisectStepJson(Struct, frozen=True, kw_only=True):
    """One version compared with a good one; the figures are null if it was not measured."""

    version: str
    against: str
    answer: Answer
    allowed: float
    ratio: float | None
    interval: Interval
    confidence: float | None
    before_ms: float | None
    after_ms: float | None
    same_model: bool
    rounds: int | None
    attempts: int
    outputs: Figure | None
    seconds: float
    failure: str | None


class RegressionJson(Struct, frozen=True, kw_only=True):
    """A step of the latency between two versions.

    `before` and `after` compare these with the good end of the search, and `pair` with one another;
    `comparison` has the layers and reasons of the pair.
    """

    last_good: VersionJson
    first_bad: VersionJson
    between: tuple[str, ...]
    gradual: bool
    before: BisectStepJson | None
    after: BisectStepJson
    pair: BisectStepJson | None
    comparison: ComparedCaseJson | None


class BisectJson(Struct, frozen=True, kw_only=True):
    """A whole bisect."""

    schema: int
    verdict: Verdict | None
    model: str
    engine: str
    case: str
    by: RangeKind
    good: VersionJson
    bad: VersionJson
    versions: tuple[VersionJson, ...]
    left_out: tuple[LeftOut, ...]
    judges: BisectFigure
    tolerance: float
    level: float
    seconds: float
    all: bool
    regressions: tuple[RegressionJson, ...]
    steps: tuple[BisectStepJson, ...]
    notes: tuple[str, ...]


def dump_bisect(bisect: Bisect) -> str:
    """The bisect as JSON text."""
    return dump_document(
        copy_fields(
            BisectJson,
            bisect,
            schema=SCHEMA,
            by=bisect.range.kind,
            good=_version(bisect.range.good),
            bad=_version(bisect.range.bad),
            versions=tuple(map(_version, bisect.range.versions)),
            left_out=bisect.range.left_out,
            all=bisect.search.is_whole,
            regressions=tuple(map(_regression, bisect.search.regressions)),
            steps=tuple(map(_step, bisect.search.steps)),
            notes=bisect.range.notes,
        )
    )


def _version(version: Version) -> VersionJson:
    return VersionJson(name=version.name, title=version.title or None)


def _step(step: BisectStep) -> BisectStepJson:
    metric, judged = step.metric, step.judged
    timed = None if step.is_of_outputs else metric
    return copy_fields(
        BisectStepJson,
        step,
        outputs=step.output_share,
        version=step.version.name,
        against=step.against.name,
        ratio=None if judged is None or step.is_of_outputs else judged.ratio,
        interval=None if metric is None else metric.interval,
        confidence=None if metric is None else metric.confidence,
        before_ms=None if timed is None else timed.before,
        after_ms=None if timed is None else timed.after,
        same_model=step.is_same_model,
        rounds=None if step.comparison is None else step.comparison.rounds,
        failure=step.reason,
    )


def _regression(found: Regression) -> RegressionJson:
    comparison = None if found.pair is None else found.pair.comparison
    return RegressionJson(
        last_good=_version(found.last_good),
        first_bad=_version(found.first_bad),
        between=tuple(version.name for version in found.between),
        gradual=found.is_gradual,
        before=None if found.before is None else _step(found.before),
        after=_step(found.after),
        pair=None if found.pair is None else _step(found.pair),
        comparison=None if comparison is None else case_comparison_to_json(comparison),
    )
