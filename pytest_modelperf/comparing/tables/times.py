"""The tables of the times of layers, or of the stages of a program, on both sides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from pytest_modelperf.comparing.changes import LayerChange, LayerTypeChange, StageChange, TimeChange
from pytest_modelperf.comparing.figures import format_signed_ms
from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.comparing.tables.figures import INTERVAL, MARK, layer_counts, without_column
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.profiler.measurements import RowKind
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.text.units import change_decimals, format_ms, ms_decimals, table_decimals
from pytest_modelperf.text.words import count_of

# A row that explains at least this share of the difference is marked.
_MARKED = 0.1
# A type with less than this share of the difference and of the whole time has no row of its own. A
# change of less than `_LEAST_OF_WHOLE` of the whole time does not count as a difference.
_SHOWN = 0.01
_LEAST_OF_WHOLE = 0.001
_MAX_TYPES = 12
_MAX_LAYERS = 6
_LEAST_DECIMALS = 2
_EXPLAINS = "explains"
_TIME_COLUMNS = (
    Column("before", rank=1),
    *map(Column, ("now", "change", INTERVAL)),
    Column(_EXPLAINS, has_bars=True),
    Column("", is_text=True),
)


def has_times(case: CaseComparison) -> bool:
    return any(change.time is not None for change in case.layer_types)


def layers_that_explain(case: CaseComparison) -> Sequence[LayerChange]:
    return [change for change in case.layers if _is_cause(change.time, _SHOWN)]


def _is_cause(time: TimeChange | None, least: float) -> bool:
    return time is not None and time.explains(least)


# -- by operator


def type_difference_table(case: CaseComparison) -> Table:
    return _layer_type_times(case, _timed_types(case))


def main_type_difference_table(case: CaseComparison, most: int) -> Table | None:
    """Return the times of the first `most` operators that explain something, or None."""
    timed = _timed_types(case)
    main = [
        each
        for each in timed
        if each.time is not None and abs(each.time.explained or 0.0) >= _SHOWN
    ]
    if not main:
        return None
    return replace(_layer_type_times(case, timed, main[:most]), total=None)


def _timed_types(case: CaseComparison) -> Sequence[LayerTypeChange]:
    return [change for change in case.layer_types if change.time is not None]


def _layer_type_times(
    case: CaseComparison,
    timed: Sequence[LayerTypeChange],
    main: Sequence[LayerTypeChange] | None = None,
) -> Table:
    """Return a row for each type of `main`, or else for each that has enough weight."""
    decimals = _decimals(case)
    if main is None:
        large, small = _split_by_weight(timed)
    else:
        large, small = list(main), [each for each in timed if each not in main]
    rows = [
        (
            change.op,
            _layer_count(change),
            *_time_cells(change, decimals),
            _share(change.time),
            _mark(change),
        )
        for change in large
    ]
    if small:
        cells = _sum_cells(small, decimals)
        rows.append((count_of(len(small), "other type"), "", *cells, _share_of_all(small), ""))
    table = _without_blank_intervals(
        Table(
            "time by layer type, in ms",
            (Column("layer type", is_name=True), Column("count", rank=2), *_TIME_COLUMNS),
            tuple(rows),
            ("total", "", *_sum_cells(timed, decimals), "", ""),
        )
    )
    if any(_explained(timed)):
        return table
    is_real = any(change.time is not None and change.time.share is not None for change in timed)
    whose = "every change" if is_real else "the difference"
    note = f"{whose} is within the noise: no row explains {'the difference' if is_real else 'it'}"
    return replace(without_column(table, _EXPLAINS), caption=note)


def _split_by_weight(
    changes: Sequence[LayerTypeChange],
) -> tuple[list[LayerTypeChange], list[LayerTypeChange]]:
    """Return the changes with a row of their own, and those summed up, in the given order."""
    whole = max(_total(c.before for c in changes), _total(c.after for c in changes))
    weights = [_weight(change, whole) for change in changes]
    heaviest = sorted(range(len(changes)), key=lambda index: -weights[index])[:_MAX_TYPES]
    kept = {index for index in heaviest if weights[index] >= _SHOWN}
    if len(changes) - len(kept) == 1:
        kept = set(range(len(changes)))
    large = [change for index, change in enumerate(changes) if index in kept]
    return large, [change for index, change in enumerate(changes) if index not in kept]


def _weight(change: LayerTypeChange, whole: float) -> float:
    """Return its share of the whole time, or of the difference if that is larger."""
    if not whole:
        return _SHOWN
    share = max(_total([change.before]), _total([change.after])) / whole
    time = change.time
    if time is None or time.share is None or abs(time.ns) < _LEAST_OF_WHOLE * whole:
        return share
    return max(share, abs(time.share))


def _layer_count(change: LayerTypeChange) -> str:
    """Return the count, which is empty for a time that belongs to no layer."""
    has_layers = any(side is not None and side.count for side in (change.before, change.after))
    return layer_counts(change) if has_layers else ""


def _sum_cells(changes: Sequence[LayerTypeChange], decimals: int) -> tuple[str, ...]:
    """Return the cells before, now, change, and an empty interval."""
    before, after = _total(c.before for c in changes), _total(c.after for c in changes)
    change = format_signed_ms(after - before, decimals)
    return (format_ms(before, decimals), format_ms(after, decimals), change, "")


def _share_of_all(changes: Sequence[LayerTypeChange]) -> str:
    explained = _explained(changes)
    return _percent_of(math.fsum(explained)) if explained else ""


def _explained(changes: Sequence[LayerTypeChange]) -> list[float]:
    shares = (change.time.explained for change in changes if change.time is not None)
    return [share for share in shares if share is not None]


# -- layer by layer


def layer_difference_table(case: CaseComparison, wording: Wording) -> Table:
    decimals = _decimals(case)
    shown = layers_that_explain(case)
    rows = tuple(
        (
            layer_change_name(change),
            layer_change_type(change),
            *_time_cells(change, decimals),
            _share(change.time),
            _mark(change),
        )
        for change in shown[:_MAX_LAYERS]
    )
    more = len(shown) - len(rows)
    caption = f"{count_of(more, 'more layer')}: {wording.names['json']} has them"
    return _without_blank_intervals(
        Table(
            "layers that explain most, in ms",
            (
                Column("layer", is_name=True, least=16),
                Column("type", is_name=True, rank=2),
                *_TIME_COLUMNS,
            ),
            rows,
            None,
            caption if more else "",
        )
    )


def _known(change: LayerChange) -> LayerRow:
    row = change.after or change.before
    if row is None:
        raise ValueError("a change of a layer that is on neither side")
    return row


def layer_change_type(change: LayerChange) -> str:
    return _known(change).qualified_op


def layer_change_name(change: LayerChange) -> str:
    row = _known(change)
    if row.static is not None:
        return row.static.name or row.static.id
    if _is_elsewhere(change):
        return "kernels of both plans"
    kernel = "" if row.time is None else row.time.kernel
    return kernel or "(no kernel)"


# -- the cells of both tables


def _time_cells(change: LayerTypeChange | LayerChange, decimals: int) -> tuple[str, ...]:
    """Return the cells before, now, change, and interval."""
    return (
        format_layer_ms(change.before, decimals),
        format_layer_ms(change.after, decimals),
        "" if change.time is None else format_signed_ms(change.time.ns, decimals),
        _interval(change.time, decimals),
    )


def _without_blank_intervals(table: Table) -> Table:
    """Leave out the intervals if there are none, as after too few rounds."""
    at = [column.title for column in table.columns].index(INTERVAL)
    return table if any(row[at] for row in table.rows) else without_column(table, INTERVAL)


def format_layer_ms(side: LayerType | LayerRow | None, decimals: int) -> str:
    return "-" if side is None or side.ns is None else format_ms(side.ns, decimals)


def _interval(time: TimeChange | None, decimals: int) -> str:
    if time is None or time.low_ns is None or time.high_ns is None:
        return ""
    if time.low_ns == time.high_ns == 0.0:
        # The time has not changed.
        return ""
    low, high = (format_signed_ms(bound, decimals) for bound in (time.low_ns, time.high_ns))
    return f"{low} … {high}"


def _share(time: TimeChange | None) -> str:
    return "" if time is None or time.explained is None else _percent_of(time.explained)


def _percent_of(share: float) -> str:
    return f"{100 * share:.0f} %" if abs(share) >= 0.005 else "0 %"


def _mark(change: LayerTypeChange | LayerChange) -> str:
    mark = MARK if _is_cause(change.time, _MARKED) else ""
    return " ".join(part for part in (mark, _news(change)) if part)


def _news(change: LayerTypeChange | LayerChange) -> str:
    """Return the word for a layer or a time that only one side has."""
    before, after = change.before, change.after
    if _is_elsewhere(change):
        return ""
    if before is None or after is None:
        return "new" if before is None else "gone"
    if (before.ns is None) == (after.ns is None):
        return ""
    return "was fused" if before.ns is None else "fused now"


def _is_elsewhere(change: LayerTypeChange | LayerChange) -> bool:
    if isinstance(change, LayerTypeChange):
        return change.op == RowKind.ELSEWHERE.value
    return _known(change).qualified_op == RowKind.ELSEWHERE.value


def _total(sides: Iterable[LayerType | None]) -> float:
    return math.fsum(side.ns for side in sides if side is not None and side.ns is not None)


def _decimals(case: CaseComparison) -> int:
    """Return the decimals of all times of a case, so that they are easy to compare."""
    return max(_LEAST_DECIMALS, ms_decimals(_total(c.after for c in case.layer_types)))


# -- the table of what the stages of a program take on both sides


# The text before the name of a stage in its row, by kind.
_WORDS = {"session": "", "rest": "", "label": "label ", "input": "input "}


def stage_table(case: CaseComparison) -> Table:
    """Return a row for each session, label and input, and for the rest.

    Marks show what is new, what explains much, and which sessions do the same work.
    """
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
        (Column(INTERVAL, rank=-1), _stage_interval),
        (Column("", is_text=True), _stage_mark),
    )
    return drop_blank_columns(table)


def _calls(stage: StageChange) -> str:
    """Return `3`, or `3 -> 6`."""
    before, after = (0.0 if side is None else side.calls for side in (stage.before, stage.after))
    if stage.kind in {"rest", "input"}:
        return ""
    return f"{after:g}" if before == after else f"{before:g} -> {after:g}"


def _change(stage: StageChange) -> str:
    if stage.time is None:
        return ""
    return format_signed_ms(stage.time.ns, change_decimals(stage.time.ns))


def _stage_interval(stage: StageChange) -> str:
    found = None if stage.time is None else stage.time.interval_ms
    if found is None or stage.time is None:
        return ""
    decimals = change_decimals(stage.time.ns)
    return " … ".join(format_signed_ms(bound * 1e6, decimals) for bound in found)


def _stage_mark(stage: StageChange) -> str:
    is_cause = stage.time is not None and stage.time.explains(_MARKED)
    if stage.before is None and stage.after is not None:
        return f"{MARK} new"
    if is_cause:
        return MARK
    return "same work" if stage.kind == "session" and not stage.is_judged else ""
