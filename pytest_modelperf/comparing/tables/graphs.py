"""The table of what changed in the graphs, by operator."""

from __future__ import annotations

from collections.abc import Callable

from pytest_modelperf.comparing.records import CaseComparison, LayerTypeChange
from pytest_modelperf.comparing.tables.cells import MARK, layer_counts
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import UNKNOWN, format_count, format_signed_count


def shows_graphs(case: CaseComparison) -> bool:
    """Whether there is anything to show: a type of layers changed."""
    return any(not change.is_equal for change in case.layer_types)


def layer_type_change_table(case: CaseComparison) -> Table:
    """A row for each operator that changed; the caption counts the others."""
    columns = (
        Column("layer type", is_text=True, is_name=True),
        Column("count"),
        Column("MACs before"),
        Column("MACs now"),
        Column("MACs change"),
        Column("elementwise"),
        Column("", is_text=True),
    )
    changed = [change for change in case.layer_types if not change.is_equal]
    culprit = max(changed, key=lambda c: (c.added_macs, c.added_ops), default=None)
    rows = [_change_row(change, is_culprit=change is culprit) for change in changed]
    same = len(case.layer_types) - len(changed)
    caption = f"{same} other type{'s are' if same > 1 else ' is'} the same" if same else ""
    return Table("by layer type", columns, tuple(rows), None, caption)


def _change_row(change: LayerTypeChange, *, is_culprit: bool) -> tuple[str, ...]:
    grew = change.added_macs > 0 or change.added_ops > 0
    return (
        printable(change.op),
        layer_counts(change),
        _macs(change.before),
        _macs(change.after),
        _added(change.added_macs, change, lambda kind: kind.macs),
        _added(change.added_ops, change, lambda kind: kind.elementwise_ops),
        MARK if is_culprit and grew else "",
    )


def _macs(kind: LayerType | None) -> str:
    return "-" if kind is None else format_count(kind.macs)


def _added(added: int, change: LayerTypeChange, read: Callable[[LayerType], int | None]) -> str:
    """The change of a cost: unknown if that of a side is."""
    sides = (change.before, change.after)
    is_known = all(read(side) is not None for side in sides if side is not None)
    return format_signed_count(added) if is_known else UNKNOWN
