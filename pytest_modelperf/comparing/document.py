"""A comparison as JSON: what only a measurement tells is null where nothing ran."""

from __future__ import annotations

from pytest_modelperf.comparing.records import (
    CaseComparison,
    Comparison,
    LayerChange,
    LayerTypeChange,
    Metric,
    OutputChange,
    TimeChange,
)
from pytest_modelperf.profiler.facts_document import (
    layer_to_json,
    layer_type_to_json,
    model_to_json,
)
from pytest_modelperf.report.document import SCHEMA, Json, dump_document, ms, number


def dump_comparison(comparison: Comparison) -> str:
    """The comparison as JSON text; what only a measurement tells is null."""
    return dump_document(comparison_to_json(comparison))


def comparison_to_json(comparison: Comparison) -> dict[str, Json]:
    has_verdict = any(not case.has_failed for case in comparison.cases)
    return {
        "schema": SCHEMA,
        "verdict": comparison.verdict.value if has_verdict else None,
        "seconds": number(comparison.seconds),
        "rounds": comparison.rounds,
        "confidence": number(comparison.confidence),
        "tolerance": number(comparison.tolerance),
        "engines": list(comparison.engines),
        "before": model_to_json(comparison.before),
        "after": model_to_json(comparison.after),
        "cases": [case_comparison_to_json(case) for case in comparison.cases],
    }


def case_comparison_to_json(case: CaseComparison) -> dict[str, Json]:
    return {
        "id": case.id,
        "verdict": None if case.has_failed else case.verdict.value,
        "failure": case.failure,
        "seconds": number(case.seconds),
        "rounds": case.rounds,
        "metrics": [_metric(metric) for metric in case.metrics],
        "layer_types": [_layer_type_change(change) for change in case.layer_types],
        "layers": [_layer_change(change) for change in case.layers],
        "reasons": list(case.reasons),
        "outputs": [output_to_json(output) for output in case.outputs],
        "notes": list(case.notes),
    }


def _metric(metric: Metric) -> dict[str, Json]:
    return {
        "name": metric.name,
        "before": number(metric.before),
        "after": number(metric.after),
        "ratio": number(metric.ratio),
        "interval": _bounds(metric.interval),
        "confidence": number(metric.confidence),
        "detectable": number(metric.detectable),
        "allowed": number(metric.allowed),
        "limit": number(metric.limit),
        "after_interval": _bounds(metric.after_interval),
        "gated": metric.gated,
        "awaited": metric.awaited,
        "verdict": metric.verdict.value,
    }


def _bounds(interval: tuple[float, float] | None) -> Json:
    return None if interval is None else [number(bound) for bound in interval]


def _layer_type_change(change: LayerTypeChange) -> dict[str, Json]:
    known = change.after or change.before
    is_layer = known is not None and known.count > 0
    return {
        "op_type": known.op_type if known else None,
        "domain": known.domain if known and is_layer else None,
        **_time_change(change.time),
        "before": None if change.before is None else layer_type_to_json(change.before),
        "after": None if change.after is None else layer_type_to_json(change.after),
    }


def _layer_change(change: LayerChange) -> dict[str, Json]:
    return {
        **_time_change(change.time),
        "before": None if change.before is None else layer_to_json(change.before),
        "after": None if change.after is None else layer_to_json(change.after),
    }


def _time_change(time: TimeChange | None) -> dict[str, Json]:
    """What it takes more now. The interval is there with both ends or not at all."""
    interval: Json = None
    if time is not None and time.low_ns is not None and time.high_ns is not None:
        interval = [ms(time.low_ns), ms(time.high_ns)]
    return {
        "change_ms": None if time is None else ms(time.ns),
        "change_interval_ms": interval,
        "explains": None if time is None else number(time.share),
    }


def output_to_json(output: OutputChange) -> dict[str, Json]:
    return {
        "name": output.name,
        "max_absolute": number(output.max_absolute),
        "max_relative": number(output.max_relative),
        "cosine": number(output.cosine),
        "difference": output.difference,
    }
