"""The table of what changed in the graphs, by operator."""

from __future__ import annotations

from collections.abc import Callable

from pytest_modelperf.comparing.records import CaseComparison, LayerTypeChange
from pytest_modelperf.comparing.tables.cells import MARK, layer_counts
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.report.tables import Column, Table, table_of
from pytest_modelperf.text.units import UNKNOWN, format_count, format_signed_count
from pytest_modelperf.text.words import count_of


def shows_graphs(case: CaseComparison) -> bool:
    """Whether there is anything to show: a type of layers changed."""
    return any(not change.is_equal for change in case.layer_types)


def layer_type_change_table(case: CaseComparison, most: int | None = None) -> Table:
    """A row for each of the first `most` operators that changed; the caption counts the rest."""
    changed = [change for change in case.layer_types if not change.is_equal]
    culprit = max(changed, key=lambda c: (c.added_macs, c.added_ops), default=None)
    has_grown = culprit is not None and (culprit.added_macs > 0 or culprit.added_ops > 0)
    same = len(case.layer_types) - len(changed)
    captions = [f"{same} other type{'s are' if same > 1 else ' is'} the same"] if same else []
    shown = changed[:most]
    if len(shown) < len(changed):
        captions.insert(0, f"{count_of(len(changed) - len(shown), 'other type')} changed")
    return table_of(
        "by layer type",
        shown,
        (Column("layer type", is_name=True), lambda each: each.op),
        (Column("count"), layer_counts),
        (Column("MACs before"), lambda each: _macs(each.before)),
        (Column("MACs now"), lambda each: _macs(each.after)),
        (Column("MACs change"), lambda each: _added(each.added_macs, each, lambda kind: kind.macs)),
        (
            Column("elementwise"),
            lambda each: _added(each.added_ops, each, lambda kind: kind.elementwise_ops),
        ),
        (Column("", is_text=True), lambda each: MARK if has_grown and each is culprit else ""),
        caption=", ".join(captions),
    )


def _macs(kind: LayerType | None) -> str:
    return "-" if kind is None else format_count(kind.macs)


def _added(added: int, change: LayerTypeChange, read: Callable[[LayerType], int | None]) -> str:
    """The change of a cost: unknown if that of a side is."""
    sides = (change.before, change.after)
    is_known = all(read(side) is not None for side in sides if side is not None)
    return format_signed_count(added) if is_known else UNKNOWN
