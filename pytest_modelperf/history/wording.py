"""The words for the cases, points and steps of a history."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.files.names import model_name
from pytest_modelperf.history.records import (
    INTERVAL_QUANTILE,
    CaseHistory,
    HistoryMetric,
    HistoryPoint,
    Shift,
    Step,
)
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE

_BARS = "▁▂▃▄▅▆▇█"
# The least range of the height of a sparkline.
_LEAST_RANGE = 0.02
_COMMIT_LENGTH = 9
_UNKNOWN = "-"


def metric_title(metric: HistoryMetric) -> str:
    return metric.value if metric.is_exact else f"latency {metric.value}"


def case_name(case_id: str, engine: str | None) -> str:
    """`b1-c1`, or `b1-c1 openvino` for another engine than the default."""
    return case_id if engine in {None, DEFAULT_ENGINE} else f"{case_id} {engine}"


def name_case(case: CaseHistory) -> str:
    return f"{model_name(case.model)} {case_name(case.case, case.engine)}"


def name_place(point: HistoryPoint) -> str:
    """`1a2b3c4d5 (2026-01-31)`; the day alone without a commit."""
    day = f"{point.date.date()}"
    return day if point.commit is None else f"{point.commit[:_COMMIT_LENGTH]} ({day})"


def describe_step(step: Step) -> str:
    return (
        f"{format_shift(step.shift)} between {name_place(step.before)} and "
        f"{name_place(step.after)}, whose verdict was {step.after.verdict}"
    )


def describe_beginning(case: CaseHistory) -> str:
    """Why the chain does not begin with the first point of all."""
    problem = "" if case.unlinked is None else f" ({case.unlinked})"
    return (
        f"the chain begins at {case.first.date.date()}, because its baseline was not measured "
        f"against the one before{problem}; earlier points are left out: {case.earlier_points:,}"
    )


def format_shift(shift: Shift | None) -> str:
    """`+5.2 % (+4.1 … +6.3 %)`; an exact change has no interval."""
    if shift is None:
        return _UNKNOWN
    text = f"{100 * shift.change:+.1f} %"
    if not shift.error:
        return "0 %" if not shift.log_ratio else text
    low, high = shift.bounds(INTERVAL_QUANTILE)
    return f"{text} ({100 * low:+.1f} … {100 * high:+.1f} %)"


def sparkline(levels: Sequence[float]) -> str:
    """The levels as bars of eight heights; a range within 2 % does not fill the height."""
    low, high = min(levels), max(levels)
    whole = max(high - low, _LEAST_RANGE)
    start = (low + high - whole) / 2
    top = len(_BARS) - 1
    return "".join(_BARS[round(top * (level - start) / whole)] for level in levels)
