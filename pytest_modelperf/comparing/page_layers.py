"""Layers and layer types of two sides as data for the scripts of a page."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from pytest_modelperf.comparing.records import (
    CaseComparison,
    LayerChange,
    LayerTypeChange,
    TimeChange,
)
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.profiler.records import LayerRow
from pytest_modelperf.profiler.shown.page_latency import Entry
from pytest_modelperf.profiler.shown.page_layers import (
    NO_CHANGE,
    SideLayers,
    layer_entry,
    precisions_of,
    type_entry,
)

_NS_PER_MS = 1e6


def comparison_types(
    case: CaseComparison, sides: int, counted: Mapping[str, LayerType] | None
) -> list[Entry]:
    """The layer types of the last `sides` sides, what explains most first.

    If there was no side before, these are the `counted` types of the model now.
    """
    changes = case.layer_types or [
        LayerTypeChange(op, None, kind) for op, kind in (counted or {}).items()
    ]
    precisions = [
        precisions_of([row for row in rows if row is not None], ())
        for rows in ([c.before for c in case.layers], [c.after for c in case.layers])
    ]
    return [
        type_entry(
            change.op,
            (change.before, change.after)[-sides:],
            precisions[-sides:],
            _change_entry(change.time if sides > 1 else None),
        )
        for change in changes
        if sides > 1 or change.after is not None
    ]


def comparison_layers(case: CaseComparison) -> list[Entry]:
    """Each layer that has a time on either side in graph order, then the times of no layer."""
    sides = [
        SideLayers.of([row for row in rows if row is not None], "not there")
        for rows in ([c.before for c in case.layers], [c.after for c in case.layers])
    ]
    return [
        layer_entry((change.before, change.after), sides, depth, _change_entry(change.time))
        for depth, change in enumerate(ordered_layers(case.layers))
    ]


def _change_entry(time: TimeChange | None) -> Entry:
    if time is None:
        return NO_CHANGE
    return {
        "change_ms": time.ns / _NS_PER_MS,
        "change_interval_ms": time.interval_ms,
        "explains": time.explained,
    }


def ordered_layers(changes: Sequence[LayerChange]) -> list[LayerChange]:
    """The layers in the order of the graph now; a removed one follows its predecessor before."""
    old_heads = _heads(change.before for change in changes)
    new_heads = _heads(change.after for change in changes)
    indexes = [
        (_index(change.before, old_heads), _index(change.after, new_heads)) for change in changes
    ]
    both = sorted((old, new) for old, new in indexes if old is not None and new is not None)
    known = [old for old, _ in both]
    # At a layer of the graph now, or after it in the order before.
    places: list[tuple[float, int]] = []
    for old, new in indexes:
        if new is not None:
            places.append((new, -1))
        elif old is not None:
            rank = bisect_right(known, old)
            places.append((both[rank - 1][1] if rank else -1, old))
        else:
            places.append((math.inf, -1))
    order = sorted(range(len(changes)), key=places.__getitem__)
    return [changes[index] for index in order]


def _heads(rows: Iterable[LayerRow | None]) -> Mapping[str, int]:
    """The index in the graph of each layer that has a time of its own, by the id of the layer."""
    return {
        row.static.id: row.time.layer
        for row in rows
        if row is not None and row.static is not None
        if row.time is not None and row.time.layer is not None
    }


def _index(row: LayerRow | None, heads: Mapping[str, int]) -> int | None:
    """The index in its graph of a layer, or of the layer whose kernel runs it."""
    if row is None or row.static is None:
        return None
    return heads.get(row.static.id if row.time is not None else row.runs_in or "")
