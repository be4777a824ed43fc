"""A reduction as JSON: the types of its document, and how records become them."""

from __future__ import annotations

from msgspec import Struct

from pytest_modelperf.comparing.document import Interval
from pytest_modelperf.comparing.records import KernelCounts, Metric, Verdict
from pytest_modelperf.reducing.records import ReduceStep, Reduction, StepAnswer
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document


class ReducedFigureJson(Struct, frozen=True, kw_only=True):
    """The median latency of both sides of something that ran in turn."""

    verdict: Verdict
    before_ms: float | None
    after_ms: float | None
    ratio: float | None
    interval: Interval
    confidence: float | None
    detectable: float | None
    allowed: float | None


class ReducedUnitJson(Struct, frozen=True, kw_only=True):
    """Kernels in the same place of both plans, by their operators."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    changed: bool
    longer_ms: float
    kept: bool


class ReduceStepJson(Struct, frozen=True, kw_only=True):
    """A duet of some units, by their indexes; the figure is null if they did not run."""

    units: tuple[int, ...]
    shown: StepAnswer
    figure: ReducedFigureJson | None
    failure: str | None
    seconds: float


class ReducedPairJson(Struct, frozen=True, kw_only=True):
    """The files that were written, with what their drawn weights show."""

    target: str
    kernels: KernelCounts
    sizes: tuple[int, int]
    figure: ReducedFigureJson
    smallest: bool
    warnings: tuple[str, ...]


class ReductionJson(Struct, frozen=True, kw_only=True):
    """A whole reduction; `written` is null where no file was."""

    schema: int
    verdict: Verdict
    before: str
    after: str
    case: str
    engines: tuple[str, ...]
    tolerance: float
    level: float
    seconds: float
    whole: ReducedFigureJson | None
    units: tuple[ReducedUnitJson, ...]
    steps: tuple[ReduceStepJson, ...]
    written: ReducedPairJson | None


def dump_reduction(found: Reduction, target: str) -> str:
    """The reduction as JSON text; `target` is where its files were put."""
    search, written = found.search, found.written
    kept = () if search is None else search.kept
    return dump_document(
        copy_fields(
            ReductionJson,
            found,
            schema=SCHEMA,
            case=found.comparison.id,
            engines=tuple(engine.label for engine in found.engines or ()),
            whole=_figure(found.whole),
            units=tuple(
                ReducedUnitJson(
                    before=unit.before,
                    after=unit.after,
                    changed=unit.is_changed,
                    longer_ms=unit.longer_ns / 1e6,
                    kept=index in kept,
                )
                for index, unit in enumerate(found.units)
            ),
            steps=() if search is None else tuple(map(_step, search.steps)),
            written=None
            if written is None
            else copy_fields(
                ReducedPairJson,
                written,
                target=target,
                kernels=found.kernels,
                figure=_known_figure(written.metric),
                smallest=search is not None and search.is_smallest,
            ),
        )
    )


def _figure(metric: Metric | None) -> ReducedFigureJson | None:
    return None if metric is None else _known_figure(metric)


def _known_figure(metric: Metric) -> ReducedFigureJson:
    return copy_fields(ReducedFigureJson, metric, before_ms=metric.before, after_ms=metric.after)


def _step(step: ReduceStep) -> ReduceStepJson:
    return copy_fields(ReduceStepJson, step, figure=_figure(step.metric), failure=step.reason)
