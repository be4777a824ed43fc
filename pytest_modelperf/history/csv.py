"""Renders a history as CSV: a row for each point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_modelperf.history.records import INTERVAL_QUANTILE, History, shift_since
from pytest_modelperf.report.csv import render_rows
from pytest_modelperf.report.tables import Cell

_COLUMNS = ("model", "machine", "case", "engine", "date", "commit", "verdict", "baseline", "ratio",
            "low", "high", "is_step")  # fmt: skip


def render_history_csv(history: History) -> str:
    """The ratios are relative to the first point of each case; `is_step` marks change points."""
    return render_rows(_COLUMNS, _rows(history))


def _rows(history: History) -> Iterator[Sequence[Cell]]:
    for case in history.cases:
        steps = {id(step.after) for step in case.steps}
        for point in case.points:
            shift = shift_since(case.first, point)
            low, high = shift.bounds(INTERVAL_QUANTILE)
            yield (
                case.model, case.machine, case.case, case.engine, point.date.isoformat(),
                point.commit, point.verdict, point.baseline, shift.ratio,
                1.0 + low, 1.0 + high, int(id(point) in steps),
            )  # fmt: skip
