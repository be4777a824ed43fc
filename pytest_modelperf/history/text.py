"""A history as text: a line for each case, its steps, and what drifted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_modelperf.files.names import model_name
from pytest_modelperf.history.records import (
    INTERVAL_QUANTILE,
    LISTED_POINTS,
    CaseHistory,
    History,
    HistoryMetric,
    HistoryPoint,
    Shift,
    Step,
)
from pytest_modelperf.history.summary import Drift
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.report.page import TextStyle, write_items
from pytest_modelperf.report.tables import MIN_TEXT, Column, Table
from pytest_modelperf.text.escaping import printable

_BARS = "▁▂▃▄▅▆▇█"
# The least range of the height of a sparkline.
_LEAST_RANGE = 0.02
_COMMIT_LENGTH = 9
_DAY_LENGTH = 10
_NO_POINT = (
    "no point has a {metric}: a run measures it against a baseline; --metric macs lists what every "
    "run counts"
)
_NO_FIGURE = "no point has a {metric}: no run so far stored it, and the next one does"
_NONE_SINCE = "no point since {day} has a {metric}: an earlier day for --since lists more"
_UNKNOWN = "-"


def render_history(history: History, style: TextStyle) -> str:
    page = style.page()
    page.line(f"history of {metric_title(history.metric)}", "bold")
    if history.cases:
        page.table(_table(history))
    else:
        page.sentence(no_point(history))
    for case in history.cases:
        for step in case.steps:
            page.line("")
            page.sentence(f"{name_case(case)}: {describe_step(step)}")
            for reason in step.after.reasons:
                page.item(f"  {printable(reason)}", indent=4)
    notes = [*map(printable, history.notes), *remarks(history.cases)]
    write_items(page, [f"note: {note}" for note in notes], "dim")
    return page.text()


def render_drifts(drifts: Sequence[Drift], allowed: float, style: TextStyle) -> str:
    """A line for each case that drifted."""
    page = style.page()
    for drift in drifts:
        page.sentence(
            f"drift: {name_case(drift.case)} is {format_shift(drift.shift)} since "
            f"{printable(drift.since)}, and {100 * allowed:g} % is allowed",
            style="red",
        )
    return page.text()


def describe_step(step: Step) -> str:
    return (
        f"{format_shift(step.shift)} between {name_place(step.before)} and "
        f"{name_place(step.after)}, whose verdict was {printable(step.after.verdict)}"
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


def _table(history: History) -> Table:
    columns = [
        Column("model", is_name=True, least=MIN_TEXT),
        Column("case", is_name=True, least=MIN_TEXT),
        Column("history", is_text=True, least=LISTED_POINTS),
        Column("points"),
        Column("since", is_text=True, least=_DAY_LENGTH),
        Column("change"),
        Column("steps"),
    ]
    if history.tag is not None:
        columns.append(Column(f"since {printable(history.tag.name)}"))
    columns.append(Column("machine", is_name=True))
    rows = tuple(_row(case, has_tag=history.tag is not None) for case in history.cases)
    return Table("", tuple(columns), rows)


def _row(case: CaseHistory, *, has_tag: bool) -> tuple[str, ...]:
    return (
        model_name(case.model),
        case_name(case.case, case.engine),
        sparkline([point.level for point in case.points[-LISTED_POINTS:]]),
        f"{case.count:,}",
        f"{case.first.date.date()}",
        format_shift(case.since_first),
        f"{len(case.steps)}",
        *([format_shift(case.since_tag)] if has_tag else []),
        printable(case.machine),
    )


def no_point(history: History) -> str:
    """Why a history has no cases."""
    title = metric_title(history.metric)
    if history.since is not None:
        return _NONE_SINCE.format(day=history.since.date(), metric=title)
    return (_NO_FIGURE if history.metric.is_exact else _NO_POINT).format(metric=title)


def remarks(cases: Sequence[CaseHistory]) -> Iterator[str]:
    for case in cases:
        if case.earlier_points:
            yield f"{name_case(case)}: {describe_beginning(case)}"


def describe_beginning(case: CaseHistory) -> str:
    """Why the chain does not begin with the first point of all."""
    problem = "" if case.unlinked is None else f" ({printable(case.unlinked)})"
    return (
        f"the chain begins at {case.first.date.date()}, because its baseline was not measured "
        f"against the one before{problem}; earlier points are left out: {case.earlier_points:,}"
    )


def metric_title(metric: HistoryMetric) -> str:
    return metric.value if metric.is_exact else f"latency {metric.value}"


def case_name(case_id: str, engine: str | None) -> str:
    """`b1-c1`, or `b1-c1 openvino` where another engine than the default ran it."""
    return printable(case_id if engine in {None, DEFAULT_ENGINE} else f"{case_id} {engine}")


def name_case(case: CaseHistory) -> str:
    return f"{model_name(case.model)} {case_name(case.case, case.engine)}"


def name_place(point: HistoryPoint) -> str:
    """`1a2b3c4d5 (2026-01-31)`; the day alone without a commit."""
    day = f"{point.date.date()}"
    return day if point.commit is None else f"{printable(point.commit[:_COMMIT_LENGTH])} ({day})"
