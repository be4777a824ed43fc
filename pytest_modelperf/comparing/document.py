"""A comparison as JSON: the types of its document, and how records become them.

Their times are in ms and their keys flat; a figure is in a range that a reader can rely on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from pytest_modelperf.comparing.records import (
    CaseComparison,
    Comparison,
    FirstDifference,
    How,
    KernelCounts,
    LayerChange,
    LayerTypeChange,
    OutputChange,
    PartChange,
    TensorDifference,
    TimeChange,
    Verdict,
)
from pytest_modelperf.files.documents import Confidence, Count, Figure, Number
from pytest_modelperf.graph.phases import GenerationPhase, Phase
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.profiler.shown.facts_document import (
    LayerJson,
    LayerTypeJson,
    layer_to_json,
    layer_type_to_json,
)
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document, ms
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
    least: Figure | None
    reason: str | None
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


class TensorJson(Struct, frozen=True, kw_only=True):
    """A tensor inside of both models; `share` is its difference by its largest value before."""

    name: str
    layer: str
    op_type: str
    share: Figure | None
    max_absolute: float | None
    largest: float | None
    difference: str | None


class FirstDifferenceJson(Struct, frozen=True, kw_only=True):
    """Where an output begins to differ by more than `allowed`."""

    allowed: float
    output: str
    tensor: TensorJson
    inputs: tuple[TensorJson, ...]
    others: tuple[str, ...]
    fused: bool
    readers: tuple[str, ...]
    runs: Count


class PartJson(Struct, frozen=True, kw_only=True):
    """Kernels that differ between both sides, with their times in turn."""

    kernels: KernelCounts
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
    failed_side: Literal["before", "after"] | None = None
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
    first_difference: FirstDifferenceJson | None
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
    before: ModelFacts
    after: ModelFacts
    cases: tuple[ComparedCaseJson, ...]


def dump_comparison(comparison: Comparison) -> str:
    """The comparison as JSON text."""
    return dump_document(comparison_to_json(comparison))


def comparison_to_json(comparison: Comparison) -> ComparisonJson:
    has_verdict = any(not case.has_failed for case in comparison.cases)
    return copy_fields(
        ComparisonJson,
        comparison,
        schema=SCHEMA,
        verdict=comparison.verdict if has_verdict else None,
        cases=tuple(map(case_comparison_to_json, comparison.cases)),
    )


def case_comparison_to_json(case: CaseComparison) -> ComparedCaseJson:
    return copy_fields(
        ComparedCaseJson,
        case,
        verdict=None if case.has_failed else case.verdict,
        metrics=tuple(copy_fields(MetricJson, metric) for metric in case.metrics),
        parts=tuple(map(_part, case.parts)),
        elsewhere=None if case.elsewhere is None else _elsewhere(case.elsewhere),
        layer_types=tuple(map(_layer_type_change, case.layer_types)),
        layers=tuple(map(_layer_change, case.layers)),
        outputs=outputs_to_json(case.outputs),
        first_difference=_first_difference(case.first_difference),
        **phase_keys(case.case),
    )


def phase_keys(case: Case) -> dict[str, Any]:
    """The phase of a generation; null for a plain case."""
    return {key: getattr(case.phase, key, None) for key in GenerationPhase.__struct_fields__}


def outputs_to_json(outputs: Sequence[OutputChange]) -> tuple[OutputJson, ...]:
    return tuple(copy_fields(OutputJson, output) for output in outputs)


def _first_difference(found: FirstDifference | None) -> FirstDifferenceJson | None:
    if found is None:
        return None
    return copy_fields(
        FirstDifferenceJson,
        found,
        tensor=_tensor(found.tensor),
        inputs=tuple(map(_tensor, found.inputs)),
        fused=found.is_fused,
    )


def _tensor(found: TensorDifference) -> TensorJson:
    share = found.values.share
    return copy_fields(
        TensorJson,
        found.values,
        layer=found.layer,
        op_type=found.op_type,
        share=share if share is not None and math.isfinite(share) else None,
    )


def _elsewhere(time: TimeChange) -> ElsewhereJson:
    return ElsewhereJson(change_ms=ms(time.ns), interval_ms=time.interval_ms)


def _part(part: PartChange) -> PartJson:
    return PartJson(
        kernels=part.kernels,
        before_ms=ms(part.before_ns),
        after_ms=ms(part.after_ns),
        change_ms=ms(part.time.ns),
        interval_ms=part.time.interval_ms,
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
        "change_interval_ms": None if time is None else time.interval_ms,
        "explains": None if time is None else time.explained,
    }


def ratio_interval(ratio: Ratio | None) -> Interval:
    """The interval of a ratio; None if the ratio or a bound is unknown."""
    return None if ratio is None else ratio.interval
