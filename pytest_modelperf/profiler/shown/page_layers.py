"""Layers and layer types as the scripts of a page read them, and the entry of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.profiler.counting.records import Attribute, LayerType, StaticLayer
from pytest_modelperf.profiler.measurements import provider_name
from pytest_modelperf.profiler.records import CaseProfile, LayerRow
from pytest_modelperf.profiler.shown.page_latency import Entry
from pytest_modelperf.profiler.shown.tables.layer_columns import LAYER_COLUMNS
from pytest_modelperf.text.units import format_shape

# An attribute can have thousands of values: the first ones are enough.
_MAX_ATTRIBUTE = 200

Precisions: TypeAlias = Mapping[str, Mapping[str, int]]


# The change of a layer that only one side has.
NO_CHANGE: Entry = {"change_ms": None, "change_interval_ms": None, "explains": None}


# -- layer types


def profile_types(case: CaseProfile) -> list[Entry]:
    """Every operator of the model, and each kind of time that belongs to no layer."""
    rows = case.layers
    alone = [row for row in rows if row.time is None and row.runs_in is None]
    precisions = precisions_of(rows, (layer for row in alone for layer in row.layers))
    return [
        type_entry(op, (kind,), (precisions,), NO_CHANGE) for op, kind in case.layer_types.items()
    ]


def type_entry(
    op: str,
    kinds: Sequence[LayerType | None],
    precisions: Sequence[Precisions],
    change: Entry,
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
        **change,
    }


def precisions_of(rows: Iterable[LayerRow], unplaced: Iterable[StaticLayer]) -> Precisions:
    """How many layers of each operator ran in which precision, by their kernels."""
    found: dict[str, Counter[str]] = {}
    placed = (
        (layer, row.time.precision) for row in rows if row.time is not None for layer in row.layers
    )
    for layer, ran in (*placed, *((layer, None) for layer in unplaced)):
        precision = ran or layer.precision
        if precision is not None:
            found.setdefault(layer.qualified_op, Counter())[precision] += 1
    return found


# -- layers


def profile_layers(case: CaseProfile) -> list[Entry]:
    """The layers in graph order, then the times that belong to none of them."""
    side = SideLayers.of(case.layers, "not there" if case.has_layer_times else "ran")
    layers = () if case.counted is None else case.counted.layers
    side = replace(side, numbers={layer.id: number for number, layer in enumerate(layers)})
    return [layer_entry((row,), (side,), depth, NO_CHANGE) for depth, row in enumerate(case.layers)]


class SideLayers(Struct, frozen=True):
    """All rows of one side: the names of its layers, and which of them ran in a kernel.

    `numbers` has the position of each layer in its graph, as far as its kernel tells it. `absent`
    is the state of the layers that did not run: missing, if this case has layer times.
    """

    names: Mapping[str, str]
    numbers: Mapping[str, int]
    ran: frozenset[str]
    absent: str

    @classmethod
    def of(cls, rows: Sequence[LayerRow], absent: str) -> SideLayers:
        layers = [layer for row in rows for layer in row.layers]
        numbers = {
            layer.id: number
            for row in rows
            if row.time is not None and row.time.layer is not None
            for layer, number in zip(row.layers, (row.time.layer, *row.time.fused), strict=False)
        }
        ran = (layer.id for row in rows if row.time is not None for layer in row.layers)
        names = {layer.id: layer.name or layer.id for layer in layers}
        return cls(names, numbers, frozenset(ran), absent)

    def name(self, layer_id: str) -> str:
        return self.names.get(layer_id, layer_id)

    def state(self, row: LayerRow | None) -> str:
        if row is None:
            return "not there"
        if row.time is not None:
            return "ran"
        is_within = row.static is not None and row.static.id in self.ran
        return "in another kernel" if is_within or row.runs_in is not None else self.absent


def layer_entry(
    rows: Sequence[LayerRow | None], sides: Sequence[SideLayers], depth: int, change: Entry
) -> Entry:
    known = [row for row in rows if row is not None]
    layers = [None if row is None else row.static for row in rows]
    times = [None if row is None else row.time for row in rows]
    read_name = LAYER_COLUMNS["name"].read
    return {
        "type": known[-1].qualified_op,
        "is_layer": any(layer is not None for layer in layers),
        "depth": depth,
        # The position in the graph of its side, which is the same on every page.
        "numbers": [
            None if layer is None else side.numbers.get(layer.id)
            for layer, side in zip(layers, sides, strict=True)
        ],
        "names": [None if row is None else read_name(row) for row in rows],
        "ids": [None if layer is None else layer.id for layer in layers],
        "states": [side.state(row) for row, side in zip(rows, sides, strict=True)],
        "ms": [None if row is None else row.ms for row in rows],
        # Half the interval of each time, relative to it.
        "half_widths": [None if row is None else row.half_width for row in rows],
        "precisions": [None if row is None else row.precision for row in rows],
        "providers": [
            None if ran is None or ran.provider is None else provider_name(ran.provider)
            for ran in times
        ],
        "kernels": [None if ran is None else ran.kernel or None for ran in times],
        "macs": [None if layer is None else layer.macs for layer in layers],
        "flops": [None if layer is None else layer.flops for layer in layers],
        "memory": [None if layer is None else layer.memory_bytes for layer in layers],
        "gmacs": [None if row is None else row.gmacs_per_second for row in rows],
        "params": [None if layer is None else layer.params for layer in layers],
        **_sparsity(rows),
        "inputs": [None if layer is None else _shape(layer.input_shape) for layer in layers],
        "outputs": [None if layer is None else _shape(layer.output_shape) for layer in layers],
        "weights": [None if layer is None else layer.weight for layer in layers],
        "fused": [None if row is None else fused_entries(row) for row in rows],
        "runs_in": [
            None if row is None or row.runs_in is None else side.name(row.runs_in)
            for row, side in zip(rows, sides, strict=True)
        ],
        "attributes": [None if layer is None else _attributes(layer) for layer in layers],
        **change,
    }


def _sparsity(rows: Sequence[LayerRow | None]) -> Entry:
    """The zeros of the weights; nothing if none was read, as for most pages."""
    reads = {
        "sparsity": LAYER_COLUMNS["sparsity"].read,
        "patterns": _pattern,
        "effective_macs": LAYER_COLUMNS["effective-macs"].read,
    }
    found = {
        name: [None if row is None else read(row) for row in rows] for name, read in reads.items()
    }
    is_known = any(value is not None for value in found["sparsity"])
    return {**found} if is_known else {}


def _pattern(row: LayerRow) -> str | None:
    """The pattern of the zeros of a weight: `1x4, 2:4`."""
    found = (LAYER_COLUMNS[name].read(row) for name in ("pattern", "n:m"))
    return ", ".join(str(part) for part in found if part is not None) or None


def _shape(shape: tuple[int | None, ...] | None) -> str | None:
    return None if shape is None else format_shape(shape)


def fused_entries(row: LayerRow) -> list[Entry] | None:
    """The layers that the kernel of a row runs, too, with all names by which they are found."""
    if not row.fused:
        return None
    return [
        {
            "name": layer.name or layer.id,
            "id": layer.id,
            "type": layer.qualified_op,
            "weight": layer.weight,
        }
        for layer in row.fused
    ]


def _attributes(layer: StaticLayer) -> dict[str, str]:
    return {name: _attribute(value) for name, value in layer.attributes.items()}


def _attribute(value: Attribute) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= _MAX_ATTRIBUTE else f"{text[:_MAX_ATTRIBUTE]}…"
