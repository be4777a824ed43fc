"""The totals of a trace as JSON, with the share of each operator."""

from __future__ import annotations

from pytest_modelperf.report.document import dump_document
from pytest_modelperf.tracing.totals import TRACE_TOTALS, TraceTotals


def dump_trace_totals(totals: TraceTotals) -> str:
    """The totals as JSON text."""
    document = TRACE_TOTALS.of(totals)
    for trace, found in zip(totals.traces, document["traces"], strict=True):
        whole_ns = trace.operator_ns
        for time, operator in zip(trace.operators, found["operators"], strict=True):
            operator["share"] = time.total_ns / whole_ns if whole_ns else 0.0
    return dump_document(document)
