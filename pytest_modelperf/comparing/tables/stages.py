"""The table of what the stages of a program take on both sides."""

from __future__ import annotations

from pytest_modelperf.comparing.figures import format_signed_ms
from pytest_modelperf.comparing.records import CaseComparison, StageChange
from pytest_modelperf.comparing.tables.cells import INTERVAL, MARK
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.text.units import change_decimals, format_ms, table_decimals

# A stage that takes at least this share of what all of them take longer is marked.
_MARKED = 0.1
_WORDS = {"session": "", "rest": "", "label": "label ", "input": "input "}


def stage_table(case: CaseComparison) -> Table:
    """A row for each session, label and input, and for the rest; what is judged is marked."""
    times = [side.ns for each in case.stages for side in (each.before, each.after) if side]
    decimals = table_decimals(max(times, default=None))
    table = table_of(
        "time of a call by stage, in ms",
        case.stages,
        (Column("stage", is_name=True), lambda stage: f"{_WORDS[stage.kind]}{stage.name}"),
        (Column("calls", rank=2), _calls),
        (
            Column("before", rank=1),
            lambda stage: "" if stage.before is None else format_ms(stage.before.ns, decimals),
        ),
        (
            Column("now"),
            lambda stage: "" if stage.after is None else format_ms(stage.after.ns, decimals),
        ),
        (Column("change"), _change),
        (Column(INTERVAL, rank=-1), _interval),
        (Column("", is_text=True), _mark),
    )
    return drop_blank_columns(table)


def _calls(stage: StageChange) -> str:
    """`3`, or `3 -> 6`."""
    before, after = (0.0 if side is None else side.calls for side in (stage.before, stage.after))
    if stage.kind in {"rest", "input"}:
        return ""
    return f"{after:g}" if before == after else f"{before:g} -> {after:g}"


def _change(stage: StageChange) -> str:
    if stage.time is None:
        return ""
    return format_signed_ms(stage.time.ns, change_decimals(stage.time.ns))


def _interval(stage: StageChange) -> str:
    found = None if stage.time is None else stage.time.interval_ms
    if found is None or stage.time is None:
        return ""
    decimals = change_decimals(stage.time.ns)
    return " … ".join(format_signed_ms(bound * 1e6, decimals) for bound in found)


def _mark(stage: StageChange) -> str:
    is_cause = stage.time is not None and stage.time.explains(_MARKED)
    is_new = stage.before is None and stage.after is not None
    return f"{MARK} new" if is_new else MARK if is_cause else "" if stage.is_judged else "same work"
