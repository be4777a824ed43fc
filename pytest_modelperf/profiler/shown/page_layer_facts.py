"""The facts that follow from the layers of a case, so that the scripts of a page only show them.

They are the kind of each operator, the precision that each layer ran in, its parameters, the
changes between two sides, and the sums by precision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_modelperf.profiler.shown.operator_kinds import kind_of
from pytest_modelperf.profiler.shown.page_latency import Entry
from pytest_modelperf.text.units import format_count

_NOT_EXECUTED = "not executed"
_UNKNOWN = "unknown"
# These follow all precisions.
_PLACES_LAST = (_UNKNOWN, "did not run", "in another kernel", _NOT_EXECUTED)
# The parameters of a layer apart from its attributes, by the key of the entry. Exporters number
# names differently, so another name alone is not a difference.
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
    """The entry of a case with what follows from its layers and layer types."""
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
    """`int8 12, float32 2`, the most frequent first; None if there is none."""
    ordered = sorted((counts or {}).items(), key=lambda each: -each[1])
    return ", ".join(f"{name} {count}" for name, count in ordered) or None


def _why_no_time(layer: Mapping[str, Any], side: int) -> str | None:
    """Why a layer has no time of its own; None if it has one, or nothing was measured."""
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
    """The parameters with the text of each side; those that no side has are left out."""
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
    """Counts are shortened unless two different ones would then look equal."""
    short = [format_count(value) if isinstance(value, int) else value for value in values]
    if len(set(short)) == len(set(values)):
        return short
    return [f"{value:,}" if isinstance(value, int) else value for value in values]


def _differs(layer: Mapping[str, Any], parameters: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a side lacks the layer, fuses others into it, or its time surely changed."""
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
    """Layers and times by the precision on each side, and of each change from A to B."""
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
    """The changes of precision that there are, in the order of the places."""
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
    """The sum of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return float(sum(known)) if known else None
