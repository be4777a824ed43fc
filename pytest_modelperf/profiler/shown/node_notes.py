"""Write figures of a model's nodes for programs that show models: Model Explorer and Netron."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.records import CaseProfile, Profile
from pytest_modelperf.profiler.rows import LayerRow

_DECIMALS = 6
# The colours from small to large values, as stops of Model Explorer.
_GRADIENT = (
    {"stop": 0.0, "bgColor": "#f5f6f7"},
    {"stop": 0.5, "bgColor": "#f3b8a8"},
    {"stop": 1.0, "bgColor": "#d1483c"},
)


def dump_node_data(profile: Profile) -> str:
    """Return node data for Model Explorer: the ms of each node, or its MACs if nothing ran.

    A node that runs in the kernel of another one has no value: the time of the kernel is at the
    other node.
    """
    case, rows = _chosen(profile)
    is_timed = any(row.ms is not None for row in rows)
    values = {
        row.static.name or row.static.id: row.ms if is_timed else row.static.macs
        for row in rows
        if row.static is not None
    }
    data = {
        "name": f"modelperf {case.case.id}: {'ms' if is_timed else 'MACs'}",
        "results": {
            name: {"value": round(value, _DECIMALS)}
            for name, value in values.items()
            if value is not None
        },
        "gradient": _GRADIENT,
    }
    return json.dumps(data, indent=2) + "\n"


def node_notes(profile: Profile) -> Mapping[str, Mapping[str, str]]:
    """Return notes on each node by the id of its layer: `modelperf.ms`, `modelperf.share` etc."""
    case, rows = _chosen(profile)
    total_ns = sum(row.ns or 0.0 for row in rows)
    names = {row.static.id: row.static.name or row.static.id for row in rows if row.static}
    return {
        row.static.id: {
            "modelperf.case": case.case.id,
            **{f"modelperf.{key}": text for key, text in _texts(row, total_ns, names)},
        }
        for row in rows
        if row.static is not None
    }


def _texts(row: LayerRow, total_ns: float, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    layer = row.static
    if row.time is not None and row.ms is not None:
        yield "ms", f"{row.ms:.{_DECIMALS}f}"
        if total_ns:
            yield "share", f"{100 * row.time.ns / total_ns:.2f} %"
        yield "kernel", row.time.kernel
    if row.runs_in is not None:
        yield "runs_in", names.get(row.runs_in, row.runs_in)
    if layer is None:
        return
    figures = (("macs", layer.macs), ("params", layer.params), ("precision", row.precision))
    for key, value in figures:
        if value is not None:
            yield key, str(value)


def _chosen(profile: Profile) -> tuple[CaseProfile, tuple[LayerRow, ...]]:
    """Return the first case whose layers have times, or else the first case with layers."""
    cases = [case for case in profile.cases if case.counted is not None]
    if not cases:
        raise UsageError(
            f"{profile.model.name} has no nodes to write figures for: give an ONNX model."
        )
    case = next((c for c in cases if c.measured is not None and c.measured.layer_times), cases[0])
    return case, case.layers
