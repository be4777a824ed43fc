"""A what-if as the data that the scripts of a page draw: levels, and their layer times.

Every list of times has one time for each level, in order; the first is the unchanged model's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_modelperf.profiler.measurements import RowKind
from pytest_modelperf.profiler.records import LayerRow
from pytest_modelperf.profiler.shown.operator_kinds import kind_of
from pytest_modelperf.profiler.shown.page_data import (
    case_entry,
    model_entry,
    side_entry,
    whole_page,
)
from pytest_modelperf.profiler.shown.page_latency import Entry, ratio_entry
from pytest_modelperf.profiler.shown.page_layers import fused_entries
from pytest_modelperf.whatif.records import Level, WhatIf, WhatIfCase

# One nanosecond, in ms: a shorter time is a remainder of a subtraction.
_SHORTEST_MS = 1e-6
_BESIDE_LAYERS = frozenset(kind.value for kind in RowKind if kind is not RowKind.LAYER)


def whatif_entry(case: WhatIfCase) -> Entry:
    totals = [sum(level.layer_types.values()) or level.ms for level in case.levels]
    return {
        "levels": [
            _level_entry(level, total) for level, total in zip(case.levels, totals, strict=True)
        ],
        "types": [_with_shares(row, totals) for row in _type_entries(case)],
        "layers": [_with_shares(row, totals) for row in _layer_entries(case)],
    }


def _with_shares(row: Mapping[str, Any], totals: Sequence[float | None]) -> Entry:
    """The row with its shares of the levels, and how many times as fast it is at each of them.

    A layer that ran outside the accelerated engine has no speedup.
    """
    times, outside = row["ms"], row.get("outside", (False,) * len(totals))
    before = times[0] if not outside[0] and (times[0] or 0.0) >= _SHORTEST_MS else None
    return {
        **row,
        "shares": [
            ms / total if ms is not None and total else None
            for ms, total in zip(times, totals, strict=True)
        ],
        "speedups": [
            before / ms if before and ms and not is_outside else None
            for ms, is_outside in zip(times, outside, strict=True)
        ],
    }


def _level_entry(level: Level, total_ms: float | None) -> Entry:
    return {
        "title": level.title,
        "is_estimate": level.is_estimate,
        # The time of the whole level, which its percentages refer to.
        "total_ms": total_ms,
        "speedup": None if level.speedup is None else ratio_entry(level.speedup),
        "text": _speedup_text(level),
        "failure": level.failure,
    }


def _speedup_text(level: Level) -> str:
    """`Pruned 0.5: x1.41 (1.38 … 1.44)`; empty without a speedup."""
    if level.speedup is None:
        return ""
    interval = level.speedup.interval
    bounds = "" if interval is None else " ({:.2f} … {:.2f})".format(*interval)
    estimate = ", an estimate" if level.is_estimate else ""
    return f"{level.title}: x{level.speedup.value:.2f}{bounds}{estimate}"


# -- layer types


def operators_of(case: WhatIfCase) -> tuple[str, ...]:
    """Every operator of the model and of its variants, in order."""
    counted = case.baseline.layer_types
    of_levels = (op for level in case.levels for op in level.layer_types)
    return tuple(dict.fromkeys((*counted, *of_levels)))


def _type_entries(case: WhatIfCase) -> list[Entry]:
    counted = case.baseline.layer_types
    return [
        {
            "type": op,
            "is_layer": op not in _BESIDE_LAYERS,
            # The unchanged model's count: a quantized one has operators that it lacks.
            "count": counted[op].count if op in counted and op not in _BESIDE_LAYERS else None,
            "kind": kind_of(op, is_layer=op not in _BESIDE_LAYERS),
            "ms": [level.layer_types.get(op) for level in case.levels],
        }
        for op in operators_of(case)
    ]


# -- layers


def _layer_entries(case: WhatIfCase) -> list[Entry]:
    """The layers of the model in the order of its graph, then other rows of the levels."""
    rows = [row for row in case.baseline.layers if row.static is not None]
    ids = [row.static.id for row in rows if row.static is not None]
    known = set(ids)
    beside = dict.fromkeys(
        layer for level in case.levels for layer in level.layers if layer not in known
    )
    outside = [frozenset(level.outside) for level in case.levels]
    found = [
        _layer_entry(layer_id, row, depth, case.levels, outside)
        for depth, (layer_id, row) in enumerate(zip(ids, rows, strict=True))
    ]
    found.extend(
        _layer_entry(layer_id, None, depth, case.levels, outside)
        for depth, layer_id in enumerate(beside, len(found))
    )
    return found


def _layer_entry(
    layer_id: str,
    row: LayerRow | None,
    depth: int,
    levels: Sequence[Level],
    outside: Iterable[frozenset[str]],
) -> Entry:
    layer = None if row is None else row.static
    return {
        "id": layer_id,
        "is_layer": layer is not None,
        "depth": depth,
        "name": "" if layer is None else layer.name,
        "type": "" if layer is None else layer.qualified_op,
        "kind": None if layer is None else kind_of(layer.qualified_op),
        "weight": None if layer is None else layer.weight,
        "precision": None if row is None else row.precision,
        "places": [] if row is None else [_place(row)],
        "kernel": None if row is None or row.time is None else row.time.kernel,
        "fused": None if row is None else fused_entries(row),
        "runs_in": None if row is None else row.runs_in,
        "ms": [level.layers.get(layer_id) for level in levels],
        "half_widths": [level.relative_half_width(layer_id) for level in levels],
        "outside": [layer_id in ids for ids in outside],
    }


def _place(row: LayerRow) -> str:
    """The precision of a layer, or why it has none of its own."""
    return "in another kernel" if row.runs_in is not None else row.precision or "unknown"


def whatif_data(whatif: WhatIf) -> Entry:
    name = whatif.model.name
    engine = "" if whatif.engine is None else whatif.engine.label
    model = model_entry(
        name,
        sides=[side_entry("", name, engine)],
        points=[[]],
        cases=[_case_entry(case) for case in whatif.cases],
    )
    return whole_page([model])


def _case_entry(case: WhatIfCase) -> Entry:
    entry = case_entry(case.id, case.id, case.case, word="", ran=[None], types=[], layers=[])
    return {**entry, "whatif": whatif_entry(case)}
