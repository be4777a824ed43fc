"""Renders the operators of a trace as CSV: a row each, in plain numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_modelperf.report.csv import render_rows
from pytest_modelperf.report.tables import Cell
from pytest_modelperf.tracing.totals import TraceSummary

_NS_PER_MS = 1e6
_COLUMNS = ("trace", "name", "type", "provider", "precision", "calls", "total_ms", "share",
            "mean_ms", "min_ms", "max_ms", "layer", "fused")  # fmt: skip


def render_trace_csv(summaries: Sequence[TraceSummary]) -> str:
    """A row for each operator, type or layer of each process, in the order of the summary."""
    return render_rows(_COLUMNS, _rows(summaries))


def _rows(summaries: Sequence[TraceSummary]) -> Iterator[Sequence[Cell]]:
    for summary in summaries:
        whole_ns = summary.operator_ns
        for time in summary.operators:
            yield (
                summary.name,
                time.name,
                time.op_type,
                time.provider,
                time.precision,
                time.calls,
                time.total_ns / _NS_PER_MS,
                time.total_ns / whole_ns if whole_ns else 0.0,
                time.mean_ns / _NS_PER_MS,
                time.min_ns / _NS_PER_MS,
                time.max_ns / _NS_PER_MS,
                time.layer,
                ", ".join(time.fused) or None,
            )
