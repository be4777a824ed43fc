"""A comparison as JSON: the types of its document, and how records become them."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from pytest_modelperf.comparing.records import (
    CaseComparison,
    Comparison,
    How,
    LayerChange,
    LayerTypeChange,
    Metric,
    OutputChange,
    PartChange,
    TimeChange,
    Verdict,
)
from pytest_modelperf.files.documents import Confidence, Count, Figure, Number
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.facts_document import (
    LayerJson,
    LayerTypeJson,
    ModelJson,
    layer_to_json,
    layer_type_to_json,
    model_to_json,
)
from pytest_modelperf.report.document import SCHEMA, dump_document, ms, number
from pytest_modelperf.stats.records import Ratio

# None if unknown; a bound that is infinite is null.
Interval: TypeAlias = tuple[Figure | None, Figure | None] | None


class MetricJson(Struct, frozen=True, kw_only=True):
    """One figure on both sides, with its verdict."""

    name: str
    before: Figure | None
    after: Figure | None
    ratio: Figure | None
    interval: Interval
    confidence: Confidence | None
    detectable: Figure | None
    allowed: Figure | None
    limit: Figure | None
    after_interval: Interval
    gated: bool
    awaited: bool
    verdict: Verdict


class LayerTypeChangeJson(Struct, frozen=True, kw_only=True):
    """All layers of one operator on both sides; null on a side that has none."""

    op_type: str | None
    domain: str | None
    change_ms: Figure | None
    change_interval_ms: Interval
    explains: Figure | None
    before: LayerTypeJson | None
    after: LayerTypeJson | None


class LayerChangeJson(Struct, frozen=True, kw_only=True):
    """One layer on both sides; null on a side that does not have it."""

    change_ms: Figure | None
    change_interval_ms: Interval
    explains: Figure | None
    before: LayerJson | None
    after: LayerJson | None


class OutputJson(Struct, frozen=True, kw_only=True):
    """How far one output is from the same output of the other model."""

    name: str
    max_absolute: float | None
    max_relative: float | None
    cosine: float | None
    difference: str | None


class KernelCountsJson(Struct, frozen=True, kw_only=True):
    """The number of kernels of a part on both sides."""

    before: Count
    after: Count


class PartJson(Struct, frozen=True, kw_only=True):
    """Kernels that differ between both sides, with their times in turn."""

    kernels: KernelCountsJson
    before_ms: Figure | None
    after_ms: Figure | None
    change_ms: Figure | None
    interval_ms: Interval
    reasons: tuple[str, ...]


class ElsewhereJson(Struct, frozen=True, kw_only=True):
    """How much longer the whole model takes than the parts that changed tell."""

    change_ms: Figure | None
    interval_ms: Interval


class ComparedCaseJson(Struct, frozen=True, kw_only=True):
    """One case of a comparison; a plain case has no phase of a generation."""

    id: str
    phase: Phase | None
    prompt: Count | None
    generate: Count | None
    verdict: Verdict | None
    failure: str | None
    how: How | None
    seconds: Number | None
    rounds: Count | None
    metrics: tuple[MetricJson, ...]
    parts: tuple[PartJson, ...]
    elsewhere: ElsewhereJson | None
    layer_types: tuple[LayerTypeChangeJson, ...]
    layers: tuple[LayerChangeJson, ...]
    reasons: tuple[str, ...]
    outputs: tuple[OutputJson, ...]
    notes: tuple[str, ...]


class ComparisonJson(Struct, frozen=True, kw_only=True):
    """Two models compared."""

    schema: int
    verdict: Verdict | None
    seconds: Number | None
    rounds: Count | None
    confidence: Confidence | None
    tolerance: Figure | None
    engines: tuple[str, ...]
    before: ModelJson
    after: ModelJson
    cases: tuple[ComparedCaseJson, ...]


def dump_comparison(comparison: Comparison) -> str:
    """The comparison as JSON text."""
    return dump_document(comparison_to_json(comparison))


def comparison_to_json(comparison: Comparison) -> ComparisonJson:
    has_verdict = any(not case.has_failed for case in comparison.cases)
    return ComparisonJson(
        schema=SCHEMA,
        verdict=comparison.verdict if has_verdict else None,
        seconds=number(comparison.seconds),
        rounds=comparison.rounds,
        confidence=number(comparison.confidence),
        tolerance=number(comparison.tolerance),
        engines=comparison.engines,
        before=model_to_json(comparison.before),
        after=model_to_json(comparison.after),
        cases=tuple(map(case_comparison_to_json, comparison.cases)),
    )


def case_comparison_to_json(case: CaseComparison) -> ComparedCaseJson:
    phase = case.case.phase
    return ComparedCaseJson(
        id=case.id,
        phase=None if phase is None else phase.phase,
        prompt=None if phase is None else phase.prompt,
        generate=None if phase is None else phase.generate,
        verdict=None if case.has_failed else case.verdict,
        failure=case.failure,
        how=case.how,
        seconds=number(case.seconds),
        rounds=case.rounds,
        metrics=tuple(map(_metric, case.metrics)),
        parts=tuple(map(_part, case.parts)),
        elsewhere=None if case.elsewhere is None else _elsewhere(case.elsewhere),
        layer_types=tuple(map(_layer_type_change, case.layer_types)),
        layers=tuple(map(_layer_change, case.layers)),
        reasons=case.reasons,
        outputs=tuple(map(output_to_json, case.outputs)),
        notes=case.notes,
    )


def _metric(metric: Metric) -> MetricJson:
    return MetricJson(
        name=metric.name,
        before=number(metric.before),
        after=number(metric.after),
        ratio=number(metric.ratio),
        interval=_bounds(metric.interval),
        confidence=number(metric.confidence),
        detectable=number(metric.detectable),
        allowed=number(metric.allowed),
        limit=number(metric.limit),
        after_interval=_bounds(metric.after_interval),
        gated=metric.gated,
        awaited=metric.awaited,
        verdict=metric.verdict,
    )


def _elsewhere(time: TimeChange) -> ElsewhereJson:
    return ElsewhereJson(change_ms=ms(time.ns), interval_ms=_bounds_ms(time.low_ns, time.high_ns))


def _bounds_ms(low_ns: float | None, high_ns: float | None) -> Interval:
    return None if low_ns is None or high_ns is None else (ms(low_ns), ms(high_ns))


def _part(part: PartChange) -> PartJson:
    return PartJson(
        kernels=KernelCountsJson(before=part.kernels_before, after=part.kernels_after),
        before_ms=ms(part.before_ns),
        after_ms=ms(part.after_ns),
        change_ms=ms(part.change_ns),
        interval_ms=_bounds_ms(part.low_ns, part.high_ns),
        reasons=part.reasons,
    )


def _layer_type_change(change: LayerTypeChange) -> LayerTypeChangeJson:
    known = change.after or change.before
    is_layer = known is not None and known.count > 0
    return LayerTypeChangeJson(
        op_type=known.op_type if known else None,
        domain=known.domain if known and is_layer else None,
        before=None if change.before is None else layer_type_to_json(change.before),
        after=None if change.after is None else layer_type_to_json(change.after),
        **_time_change(change.time),
    )


def _layer_change(change: LayerChange) -> LayerChangeJson:
    return LayerChangeJson(
        before=None if change.before is None else layer_to_json(change.before),
        after=None if change.after is None else layer_to_json(change.after),
        **_time_change(change.time),
    )


def _time_change(time: TimeChange | None) -> dict[str, Any]:
    """The keys about time that a layer and a layer type share."""
    return {
        "change_ms": None if time is None else ms(time.ns),
        "change_interval_ms": None if time is None else _bounds_ms(time.low_ns, time.high_ns),
        "explains": None if time is None else number(time.share),
    }


def output_to_json(output: OutputChange) -> OutputJson:
    return OutputJson(
        name=output.name,
        max_absolute=number(output.max_absolute),
        max_relative=number(output.max_relative),
        cosine=number(output.cosine),
        difference=output.difference,
    )


def ratio_interval(ratio: Ratio | None) -> Interval:
    """The interval of a ratio; None if the ratio or a bound is unknown."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return number(ratio.low), number(ratio.high)


def _bounds(interval: tuple[float, float] | None) -> Interval:
    return None if interval is None else (number(interval[0]), number(interval[1]))
