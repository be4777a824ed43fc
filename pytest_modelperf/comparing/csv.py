"""A comparison as CSV: a row for each case and metric, with plain numbers."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.comparing.records import CaseComparison, Comparison, Metric
from pytest_modelperf.report.csv import render_rows
from pytest_modelperf.report.tables import Cell

COMPARISON_COLUMNS = (
    *("case", "batch_size", "cores", "dims", "case_verdict", "how", "rounds", "failure"),
    *("metric", "before", "after", "ratio", "ratio_low", "ratio_high", "allowed"),
    *("verdict", "gated"),
)


def render_comparison_csv(comparison: Comparison) -> str:
    """All metrics of all cases, with names and units as in the JSON.

    A case that failed has no verdict, and one row if it has no metrics. A metric that is not gated
    is not judged, and has no verdict.
    """
    rows = (
        (*_case(case), *figures)
        for case in comparison.cases
        for figures in [_figures(metric) for metric in case.metrics] or [(None,) * 9]
    )
    return render_rows(COMPARISON_COLUMNS, rows)


def _case(case: CaseComparison) -> Sequence[Cell]:
    dims = " ".join(f"{name}={size}" for name, size in case.case.dims)
    sizes = (case.id, case.case.batch_size, case.case.cores, dims)
    verdict = None if case.has_failed else case.verdict.value
    how = None if case.how is None else case.how.value
    return (*sizes, verdict, how, case.rounds, case.failure)


def _figures(metric: Metric) -> Sequence[Cell]:
    low, high = metric.interval or (None, None)
    values = (metric.name, metric.before, metric.after, metric.ratio)
    verdict = metric.verdict.value if metric.gated else None
    return (*values, low, high, metric.allowed, verdict, metric.gated)
