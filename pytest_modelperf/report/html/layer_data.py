"""Layers and layer types as the scripts of a page read them, of one side or of two in a row."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pytest_modelperf.records import Attribute, CaseProfile, LayerRow, LayerType, StaticLayer
from pytest_modelperf.report.html.latency_data import Entry
from pytest_modelperf.report.layer_columns import LAYER_COLUMNS
from pytest_modelperf.text.units import format_shape
from pytest_modelperf.verdicts import CaseComparison, LayerChange, LayerTypeChange, TimeChange

_NS_PER_MS = 1e6
_PROVIDER = "ExecutionProvider"
# Of an attribute with thousands of values the first are enough.
_MAX_ATTRIBUTE = 200

Precisions: TypeAlias = Mapping[str, Mapping[str, int]]


# -- layer types


def profile_types(case: CaseProfile) -> list[Entry]:
    """Every operator of the model, and each kind of time that belongs to no layer."""
    rows = case.layers
    alone = [row for row in rows if row.time is None and row.runs_in is None]
    precisions = _precisions(rows, (layer for row in alone for layer in _layers_of(row)))
    return [_type_entry(op, (kind,), (precisions,), None) for op, kind in case.layer_types.items()]


def comparison_types(
    case: CaseComparison, sides: int, counted: Mapping[str, LayerType] | None = None
) -> list[Entry]:
    """The same of the last so many sides, what explains most first.

    Where there was nothing to compare with, it is what is counted of the model now.
    """
    changes = case.layer_types or [
        LayerTypeChange(op, None, kind) for op, kind in (counted or {}).items()
    ]
    precisions = [
        _precisions([row for row in rows if row is not None], ())
        for rows in ([c.before for c in case.layers], [c.after for c in case.layers])
    ]
    return [
        _type_entry(
            change.op,
            (change.before, change.after)[-sides:],
            precisions[-sides:],
            change.time if sides > 1 else None,
        )
        for change in changes
        if sides > 1 or change.after is not None
    ]


def _type_entry(
    op: str,
    kinds: Sequence[LayerType | None],
    precisions: Sequence[Precisions],
    time: TimeChange | None,
) -> Entry:
    is_layer = any(kind is not None and kind.count > 0 for kind in kinds)
    layers = [kind if is_layer else None for kind in kinds]
    return {
        "type": op,
        "is_layer": is_layer,
        "counts": [None if kind is None else kind.count for kind in layers],
        "precisions": [dict(found[op]) if op in found else None for found in precisions],
        "ms": [None if kind is None else kind.ms for kind in kinds],
        "shares": [None if kind is None else kind.share for kind in kinds],
        "macs": [None if kind is None else kind.macs for kind in layers],
        "params": [None if kind is None else kind.params for kind in layers],
        **_change_entry(time),
    }


def _precisions(rows: Iterable[LayerRow], unplaced: Iterable[StaticLayer]) -> Precisions:
    """How many layers of each operator ran in which precision, each in that of its kernel."""
    found: dict[str, Counter[str]] = {}
    placed = (
        (layer, row.time.precision)
        for row in rows
        if row.time is not None
        for layer in _layers_of(row)
    )
    for layer, ran in (*placed, *((layer, None) for layer in unplaced)):
        precision = ran or layer.precision
        if precision is not None:
            found.setdefault(layer.qualified_op, Counter())[precision] += 1
    return found


# -- layers


def profile_layers(case: CaseProfile) -> list[Entry]:
    """The layers in graph order, then the times that belong to none of them."""
    has_times = case.measured is not None and case.measured.layer_times is not None
    side = _Side.of(case.layers, "not there" if has_times else "ran")
    return [_layer_entry((row,), (side,), depth, None) for depth, row in enumerate(case.layers)]


def comparison_layers(case: CaseComparison) -> list[Entry]:
    """Each layer that has a time on either side in graph order, then the times of none."""
    sides = [
        _Side.of([row for row in rows if row is not None], "not there")
        for rows in ([c.before for c in case.layers], [c.after for c in case.layers])
    ]
    return [
        _layer_entry((change.before, change.after), sides, depth, change.time)
        for depth, change in enumerate(_in_graph_order(case.layers))
    ]


@dataclass(frozen=True, slots=True)
class _Side:
    """All rows of one side: what its layers are called, and which of them have run in a kernel.

    `absent` is the state of those that have not: as if they were not there, where others have.
    """

    names: Mapping[str, str]
    ran: frozenset[str]
    absent: str

    @classmethod
    def of(cls, rows: Sequence[LayerRow], absent: str) -> _Side:
        layers = [layer for row in rows for layer in _layers_of(row)]
        ran = (layer.id for row in rows if row.time is not None for layer in _layers_of(row))
        return cls({layer.id: layer.name or layer.id for layer in layers}, frozenset(ran), absent)

    def name(self, layer_id: str) -> str:
        return self.names.get(layer_id, layer_id)

    def state(self, row: LayerRow | None) -> str:
        if row is None:
            return "not there"
        if row.time is not None:
            return "ran"
        is_within = row.static is not None and row.static.id in self.ran
        return "in another kernel" if is_within or row.runs_in is not None else self.absent


def _layers_of(row: LayerRow) -> tuple[StaticLayer, ...]:
    return row.fused if row.static is None else (row.static, *row.fused)


def _layer_entry(
    rows: Sequence[LayerRow | None], sides: Sequence[_Side], depth: int, time: TimeChange | None
) -> Entry:
    known = [row for row in rows if row is not None]
    layers = [None if row is None else row.static for row in rows]
    times = [None if row is None else row.time for row in rows]
    read = {name: LAYER_COLUMNS[name].read for name in ("name", "type", "precision")}
    return {
        "type": read["type"](known[-1]),
        "is_layer": any(layer is not None for layer in layers),
        "depth": depth,
        "names": [None if row is None else read["name"](row) for row in rows],
        "states": [side.state(row) for row, side in zip(rows, sides, strict=True)],
        "ms": [None if row is None else row.ms for row in rows],
        "precisions": [None if row is None else read["precision"](row) for row in rows],
        "providers": [
            None if ran is None or ran.provider is None else ran.provider.removesuffix(_PROVIDER)
            for ran in times
        ],
        "kernels": [None if ran is None else ran.kernel or None for ran in times],
        "macs": [None if layer is None else layer.macs for layer in layers],
        "params": [None if layer is None else layer.params for layer in layers],
        "inputs": [None if layer is None else _shape(layer.input_shape) for layer in layers],
        "outputs": [None if layer is None else _shape(layer.output_shape) for layer in layers],
        "weights": [None if layer is None else layer.weight for layer in layers],
        "fused": [None if row is None else _fused(row) for row in rows],
        "runs_in": [
            None if row is None or row.runs_in is None else side.name(row.runs_in)
            for row, side in zip(rows, sides, strict=True)
        ],
        "attributes": [None if layer is None else _attributes(layer) for layer in layers],
        **_change_entry(time),
    }


def _change_entry(time: TimeChange | None) -> Entry:
    interval = None
    if time is not None and time.low_ns is not None and time.high_ns is not None:
        interval = [time.low_ns / _NS_PER_MS, time.high_ns / _NS_PER_MS]
    return {
        "change_ms": None if time is None else time.ns / _NS_PER_MS,
        "change_interval_ms": interval,
        "explains": None if time is None else time.share,
    }


def _shape(shape: tuple[int | None, ...] | None) -> str | None:
    return None if shape is None else format_shape(shape)


def _fused(row: LayerRow) -> list[Entry] | None:
    if not row.fused:
        return None
    return [{"name": layer.name or layer.id, "type": layer.qualified_op} for layer in row.fused]


def _attributes(layer: StaticLayer) -> dict[str, str]:
    return {name: _attribute(value) for name, value in layer.attributes.items()}


def _attribute(value: Attribute) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= _MAX_ATTRIBUTE else f"{text[:_MAX_ATTRIBUTE]}…"


# -- where a layer stands


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    """Where a layer comes: at a layer of now, or after it, in the order of before."""

    now: float
    is_gone: bool
    before: float


def _in_graph_order(changes: Sequence[LayerChange]) -> list[LayerChange]:
    """The layers in the order of the graph now; one that is gone follows what was before it."""
    old_heads = _heads(change.before for change in changes)
    new_heads = _heads(change.after for change in changes)
    indexes = [
        (_index(change.before, old_heads), _index(change.after, new_heads)) for change in changes
    ]
    both = sorted((old, new) for old, new in indexes if old is not None and new is not None)
    known = [old for old, _ in both]
    places = []
    for old, new in indexes:
        if new is not None:
            places.append(_Place(new, is_gone=False, before=0))
        elif old is not None:
            rank = bisect_right(known, old)
            places.append(_Place(both[rank - 1][1] if rank else -1, is_gone=True, before=old))
        else:
            places.append(_Place(float("inf"), is_gone=False, before=0))
    order = sorted(range(len(changes)), key=places.__getitem__)
    return [changes[index] for index in order]


def _heads(rows: Iterable[LayerRow | None]) -> Mapping[str, int]:
    """The place in its graph of each layer that a time is shown at, by its id."""
    return {
        row.static.id: row.time.layer
        for row in rows
        if row is not None and row.static is not None
        if row.time is not None and row.time.layer is not None
    }


def _index(row: LayerRow | None, heads: Mapping[str, int]) -> int | None:
    """The place of a layer in its graph, or of the one that it runs in."""
    if row is None or row.static is None:
        return None
    return heads.get(row.static.id if row.time is not None else row.runs_in or "")
