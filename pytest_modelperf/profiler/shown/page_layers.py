"""Entries of layers and layer types for the scripts of a page, and the kinds of operators.

Operators of one kind have the same colour on all pages and in all charts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.profiler.counting.records import Attribute, LayerType, StaticLayer
from pytest_modelperf.profiler.measurements import provider_name
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.profiler.shown.page_latency import Entry
from pytest_modelperf.profiler.shown.tables.layer_columns import LAYER_COLUMNS
from pytest_modelperf.text.units import format_count, format_shape

_BESIDE = ("beside", "beside the layers")
_OTHER = ("other", "other operators")
# The id in the style sheet, the title, and a pattern of names. The first kind that matches wins.
# `re` compiles and keeps each of them when it is first tried: most runs try few.
_KINDS = (
    ("attention", "attention and recurrent", r"Attention|LSTM|GRU|RNN|RotaryEmbedding"),
    ("quantization", "quantization", r"uantizeLinear"),
    ("convolution", "convolution", r"Conv"),
    ("product", "matrix product", r"MatMul|Gemm|Einsum"),
    ("normalization", "normalization", r"(?<!Random)Norm|LRN"),
    ("reduction", "pooling and reduction", r"Pool|^(QLinear)?Reduce|^Arg|TopK|^Cum(Sum|Prod)"),
    (
        "movement",
        "movement of data",
        (
            r"Reshape|Transpose|Concat|Slice|Gather|Scatter|Split|^Pad|Resize|Upsample|Expand|"
            r"queeze$|Flatten|Tile|^Cast|Identity|ToSpace|ToDepth|^Constant|^Shape|Reorder|MemcpyTo"
        ),
    ),
    (
        "elementwise",
        "elementwise",
        (
            r"^(Bias|QLinear)?(Add|Sub|Mul|Div|Pow|Sqrt|Exp|Log|Neg|Abs|Max|Min|Mod|Where|Clip|Erf|"
            r"Reciprocal|Floor|Ceil|Round|Sign|Not|And|Or|Xor|Bitwise|BitShift|Equal|Greater|Less|"
            r"IsInf|IsNaN|Shrink|Sum$|Mean$|A?([Ss]in|[Cc]os|[Tt]an)h?$)|[eE]lu|GELU|LU$|"
            r"Sigmoid|Softmax|Softplus|Softsign|Swish|Mish|Tanh|Dropout"
        ),
    ),
)


def kind_of(op_type: str, *, is_layer: bool = True) -> dict[str, str]:
    """Return the kind of an operator: its name in the style sheet, and its title."""
    return dict(zip(("id", "title"), _kind(op_type) if is_layer else _BESIDE, strict=True))


def _kind(op_type: str) -> tuple[str, str]:
    name = op_type.rpartition("::")[2]
    found = ((kind, title) for kind, title, pattern in _KINDS if re.search(pattern, name))
    return next(found, _OTHER)


# An attribute can have thousands of values, of which the first ones are enough.
_MAX_ATTRIBUTE = 200

Precisions: TypeAlias = Mapping[str, Mapping[str, int]]


# The change of a layer that only one side has.
NO_CHANGE: Entry = {"change_ms": None, "change_interval_ms": None, "explains": None}


# -- layer types


def profile_types(case: CaseProfile) -> list[Entry]:
    """Return every operator of the model, and each kind of time that belongs to no layer."""
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
        "flops": [None if kind is None else kind.flops for kind in layers],
        "params": [None if kind is None else kind.params for kind in layers],
        **change,
    }


def precisions_of(rows: Iterable[LayerRow], unplaced: Iterable[StaticLayer]) -> Precisions:
    """Return how many layers of each operator ran in which precision, by their kernels."""
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
    """Return the layers in graph order, then the times that belong to none of them."""
    side = SideLayers.of(case.layers, "not there" if case.has_layer_times else "ran")
    layers = () if case.counted is None else case.counted.layers
    side = replace(side, numbers={layer.id: number for number, layer in enumerate(layers)})
    return [layer_entry((row,), (side,), depth, NO_CHANGE) for depth, row in enumerate(case.layers)]


class SideLayers(Struct, frozen=True):
    """All rows of one side: the names of its layers, and which of them ran in a kernel.

    `numbers` has the position of each layer in its graph, as far as its kernel shows it. `absent`
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
        # The half-width of the interval of each time, relative to the time.
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
    """Return the sparsity of the weights, or an empty entry if no weights were read."""
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
    """Return the pattern of a weight's zeros, such as `1x4, 2:4`."""
    found = (LAYER_COLUMNS[name].read(row) for name in ("pattern", "n:m"))
    return ", ".join(str(part) for part in found if part is not None) or None


def _shape(shape: tuple[int | None, ...] | None) -> str | None:
    return None if shape is None else format_shape(shape)


def fused_entries(row: LayerRow) -> list[Entry] | None:
    """Return the other layers that the kernel of a row runs, with all names for a search."""
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


# -- the facts that follow from the layers of a case


_NOT_EXECUTED = "not executed"
_UNKNOWN = "unknown"
# These follow after all precisions.
_PLACES_LAST = (_UNKNOWN, "did not run", "in another kernel", _NOT_EXECUTED)
# The parameters of a layer other than its attributes, by the key of the entry. Exporters number
# names differently, so a different name alone does not count as a difference.
_PARAMETERS = {
    "precision": "precisions",
    "provider": "providers",
    "inputs": "inputs",
    "outputs": "outputs",
    "MACs": "macs",
    "params": "params",
    "weight": "weights",
    "kernel": "kernels",
}
_NAMES = frozenset({"weight", "kernel"})


def with_layer_facts(case: Mapping[str, Any]) -> Entry:
    """Return the entry of a case with the facts that follow from its layers and layer types."""
    layers = [_with_facts(layer) for layer in case["layers"]]
    types = [
        {
            **kind,
            "kind": kind_of(kind["type"], is_layer=kind["is_layer"]),
            "precision_texts": [_counts_text(counts) for counts in kind["precisions"]],
        }
        for kind in case["types"]
    ]
    sums = _precision_sums([layer for layer in layers if layer["is_layer"]])
    return {**case, "types": types, "layers": layers, "precisions": sums}


def _with_facts(layer: Mapping[str, Any]) -> dict[str, Any]:
    sides = range(len(layer["names"]))
    is_pair = len(sides) > 1
    reasons = [_why_no_time(layer, side) for side in sides]
    places = [
        layer["precisions"][side] or _UNKNOWN
        if reasons[side] is None
        else _NOT_EXECUTED
        if layer["states"][side] == "not there"
        else layer["states"][side]
        for side in sides
    ]
    parameters = _parameters(layer)
    return {
        **{key: value for key, value in layer.items() if key != "attributes"},
        "kind": kind_of(layer["type"], is_layer=layer["is_layer"]),
        "why_no_time": reasons,
        "places": places if layer["is_layer"] else [],
        "parameters": parameters,
        "delta_ms": _delta_ms(layer) if is_pair else None,
        "ratio": _ratio(layer) if is_pair else None,
        "differs": is_pair and _differs(layer, parameters),
    }


def _counts_text(counts: Mapping[str, int] | None) -> str | None:
    """Return a text such as `int8 12, float32 2`, the most frequent first, or None if empty."""
    ordered = sorted((counts or {}).items(), key=lambda each: -each[1])
    return ", ".join(f"{name} {count}" for name, count in ordered) or None


def _why_no_time(layer: Mapping[str, Any], side: int) -> str | None:
    """Return why a layer has no time of its own.

    None means that it has one, or that no times were measured.
    """
    state: str = layer["states"][side]
    if state in {"ran", "not measured"}:
        return None
    host = layer["runs_in"][side]
    if state == "not there":
        return _NOT_EXECUTED
    return f"in {host}" if host else state


def _delta_ms(layer: Mapping[str, Any]) -> float | None:
    before, after = layer["ms"]
    if layer["change_ms"] is not None or before is None or after is None:
        known: float | None = layer["change_ms"]
        return known
    return float(after - before)


def _ratio(layer: Mapping[str, Any]) -> float | None:
    before, after = layer["ms"]
    return after / before if before and after is not None else None


def _parameters(layer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parameters that any side has, with the text of each side."""
    attributes = [found or {} for found in layer.get("attributes", ())]
    values: dict[str, list[Any]] = {
        name: [found.get(name) for found in attributes] for name in sorted(set().union(*attributes))
    }
    values.update({name: layer[key] for name, key in _PARAMETERS.items()})
    return [
        {"name": name, "values": _texts(found), "is_different": len(set(found)) > 1}
        for name, found in values.items()
        if any(value is not None for value in found)
    ]


def _texts(values: Sequence[Any]) -> list[str | None]:
    """Return the values as text. Counts are short unless different ones would look equal."""
    short = [format_count(value) if isinstance(value, int) else value for value in values]
    if len(set(short)) == len(set(values)):
        return short
    return [f"{value:,}" if isinstance(value, int) else value for value in values]


def _differs(layer: Mapping[str, Any], parameters: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the sides clearly differ in state, fused layers, parameters or time."""
    low, high = layer["change_interval_ms"] or (0.0, 0.0)
    fused = {tuple(sorted(each["type"] for each in side or ())) for side in layer["fused"]}
    return (
        len(set(layer["states"])) > 1
        or low > 0
        or high < 0
        or len(fused) > 1
        or any(each["is_different"] and each["name"] not in _NAMES for each in parameters)
    )


def _precision_sums(layers: Sequence[Mapping[str, Any]]) -> Entry:
    """Return layers and times of each precision by side, and of each change from A to B."""
    counts = Counter(place for layer in layers for place in layer["places"])
    places = sorted(counts, key=lambda place: (_rank(place), -counts[place]))
    sides = range(len(layers[0]["names"]) if layers else 0)
    totals = [_sum(layer["ms"][side] for layer in layers) for side in sides]
    rows = []
    for place in places:
        here = [[layer for layer in layers if layer["places"][side] == place] for side in sides]
        times = [_sum(layer["ms"][side] for layer in here[side]) for side in sides]
        rows.append(
            {
                "place": place,
                "counts": [len(found) for found in here],
                "ms": times,
                "shares": [
                    ms / total if ms is not None and total else None
                    for ms, total in zip(times, totals, strict=True)
                ],
            }
        )
    return {"rows": rows, "transitions": _transitions(layers, places) if len(sides) > 1 else []}


def _rank(place: str) -> int:
    return _PLACES_LAST.index(place) if place in _PLACES_LAST else -1


def _transitions(layers: Sequence[Mapping[str, Any]], places: Sequence[str]) -> list[Entry]:
    """Return the changes of precision that occur, in the order of the places."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for layer in layers:
        found.setdefault((layer["places"][0], layer["places"][1]), []).append(layer)
    return [
        {
            "before": before,
            "after": after,
            "count": len(found[before, after]),
            "change_ms": _sum(layer["delta_ms"] for layer in found[before, after]),
        }
        for before in places
        for after in places
        if (before, after) in found
    ]


def _sum(values: Any) -> float | None:  # noqa: ANN401  # of entries
    """Return the sum of the known values, or None if there are none."""
    known = [value for value in values if value is not None]
    return float(sum(known)) if known else None
