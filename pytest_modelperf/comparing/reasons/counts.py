"""Reasons that follow from counts alone, where the graph of a side is not known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_modelperf.comparing.records import LayerTypeChange
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.text.escaping import printable


def lower_bounds(*uncounted_ops: Iterable[str]) -> tuple[str, ...]:
    """Why a verdict may be unclear: the operators that could not be counted on either side."""
    ops = dict.fromkeys(op for side in uncounted_ops for op in side)
    if not ops:
        return ()
    return (f"MACs are lower bounds: {', '.join(map(printable, ops))} could not be counted",)


def reasons_of_counts(changes: Iterable[LayerTypeChange]) -> tuple[str, ...]:
    """The changes in the number of each operator."""
    reasons = []
    for change in changes:
        before, after = _count(change.before), _count(change.after)
        if before != after:
            reasons.append(describe_count_change(change.op, before, after))
        elif change.added_macs:
            reasons.append(f"{printable(change.op)}: {after} as before, of other shapes")
    return tuple(reasons)


def causes_by_counts(changes: Sequence[LayerTypeChange]) -> dict[str, str]:
    """What made a count larger, by the name of its metric: the operator that added most of it."""
    causes: dict[str, str] = {}
    for name, added in (("macs", _added_macs), ("params", _added_params)):
        most = max(changes, key=added, default=None)
        if most is not None and added(most) > 0:
            causes.update((name, text) for text in reasons_of_counts((most,)))
    return causes


def _added_macs(change: LayerTypeChange) -> int:
    return change.added_macs


def _added_params(change: LayerTypeChange) -> int:
    before, after = (0 if side is None else side.params for side in (change.before, change.after))
    return after - before


def describe_count_change(op: str, before: int, after: int) -> str:
    """`3 Conv added`, or `Conv: 3 before, 4 now`."""
    name = printable(op)
    if before == 0:
        return f"{after} {name} added"
    if after == 0:
        return f"{before} {name} removed, none left"
    return f"{name}: {before} before, {after} now"


def _count(kind: LayerType | None) -> int:
    return 0 if kind is None else kind.count
