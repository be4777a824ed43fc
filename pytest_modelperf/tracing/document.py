"""The totals of a trace as JSON: the types of the document, and how records become them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.files.documents import Count, DurationMs
from pytest_modelperf.profiler.shown.facts_document import (
    ByPercentile,
    NeededSamplesJson,
    latency_to_json,
)
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document, ms
from pytest_modelperf.tracing.totals import Grouping, OperatorTime, TraceSummary


class TracedLatencyJson(ByPercentile[DurationMs | None], frozen=True, kw_only=True):
    """A latency without the keys that only a measurement in rounds has."""

    min_ms: DurationMs | None
    max_ms: DurationMs | None
    mean_ms: DurationMs | None
    samples: Count
    needed: NeededSamplesJson


class InferencesJson(Struct, frozen=True, kw_only=True):
    """All inferences of one name."""

    name: str
    latency: TracedLatencyJson


class OperatorJson(Struct, frozen=True, kw_only=True):
    """All operators of one name, type or layer, added up."""

    name: str
    op_type: str | None
    provider: str | None
    precision: str | None
    calls: int
    total_ms: float | None
    share: float
    mean_ms: float | None
    min_ms: float | None
    max_ms: float | None
    layer: str | None
    fused: tuple[str, ...]


class TraceJson(Struct, frozen=True, kw_only=True):
    """The totals of one process of a trace, of one session, or of one case."""

    name: str
    peak_bytes: int | None
    inferences_ms: float | None
    between_operators_ms: float | None
    inferences: tuple[InferencesJson, ...]
    operators: tuple[OperatorJson, ...]


class TraceTotalsJson(Struct, frozen=True, kw_only=True):
    """The totals of a file."""

    schema: int
    by: Grouping
    notes: tuple[str, ...]
    traces: tuple[TraceJson, ...]


def dump_trace_summary(
    summaries: Sequence[TraceSummary], notes: Sequence[str], grouping: Grouping
) -> str:
    """The summaries as JSON text; operators are in the order of the summary."""
    return dump_document(
        TraceTotalsJson(
            schema=SCHEMA,
            by=grouping,
            notes=tuple(notes),
            traces=tuple(map(_trace, summaries)),
        )
    )


def _trace(summary: TraceSummary) -> TraceJson:
    return TraceJson(
        name=summary.name,
        peak_bytes=summary.peak_bytes,
        inferences_ms=ms(summary.inference_ns),
        between_operators_ms=ms(summary.between_ns),
        inferences=tuple(
            InferencesJson(
                name=times.name,
                latency=copy_fields(TracedLatencyJson, latency_to_json(times.latency)),
            )
            for times in summary.inferences
        ),
        operators=tuple(_operator(time, summary.operator_ns) for time in summary.operators),
    )


def _operator(time: OperatorTime, whole_ns: int) -> OperatorJson:
    return copy_fields(
        OperatorJson,
        time,
        total_ms=ms(time.total_ns),
        share=time.total_ns / whole_ns if whole_ns else 0.0,
        mean_ms=ms(time.mean_ns),
        min_ms=ms(time.min_ns),
        max_ms=ms(time.max_ns),
    )
