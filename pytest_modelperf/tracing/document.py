"""Renders the totals of a trace as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytest_modelperf.profiler.facts_document import LatencyJson, latency_to_json
from pytest_modelperf.report.document import SCHEMA, Json, dump_document, ms
from pytest_modelperf.tracing.totals import Grouping, OperatorTime, TraceSummary

# Keys that only a measurement in rounds has, not a trace.
_OF_ROUNDS = ("rounds", "items_per_second", "confidence", "intervals_ms")


def dump_trace_summary(
    summaries: Sequence[TraceSummary], notes: Sequence[str], grouping: Grouping
) -> str:
    """The summaries as JSON text; operators are in the order of the summary."""
    return dump_document(
        {
            "schema": SCHEMA,
            "by": grouping.value,
            "notes": list(notes),
            "traces": [_summary(summary) for summary in summaries],
        }
    )


def _summary(summary: TraceSummary) -> dict[str, Json]:
    return {
        "name": summary.name,
        "peak_bytes": summary.peak_bytes,
        "inferences_ms": ms(summary.inference_ns),
        "between_operators_ms": ms(summary.between_ns),
        "inferences": [
            {"name": group.name, "latency": _without_rounds(latency_to_json(group.latency))}
            for group in summary.inferences
        ],
        "operators": [_operator(time, summary.operator_ns) for time in summary.operators],
    }


def _without_rounds(latency: LatencyJson) -> dict[str, Json]:
    found = msgspec.to_builtins(latency)
    return {key: value for key, value in found.items() if key not in _OF_ROUNDS}


def _operator(time: OperatorTime, whole_ns: int) -> dict[str, Json]:
    return {
        "name": time.name,
        "op_type": time.op_type,
        "provider": time.provider,
        "precision": time.precision,
        "calls": time.calls,
        "total_ms": ms(time.total_ns),
        "share": time.total_ns / whole_ns if whole_ns else 0.0,
        "mean_ms": ms(time.mean_ns),
        "min_ms": ms(time.min_ns),
        "max_ms": ms(time.max_ns),
    }
