"""A what-if as CSV: a row for each level, and for each layer type and layer at a level."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from io import StringIO

from pytest_modelperf.report.csv import plain_cell
from pytest_modelperf.report.tables import Cell
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.whatif.records import Level, WhatIf, WhatIfCase, times_as_fast

WHATIF_COLUMNS = (
    *("case", "batch_size", "cores", "dims", "level", "kind", "share", "form", "estimate"),
    *("row", "name", "op_type", "weight", "ms", "speedup", "speedup_low", "speedup_high"),
    *("items_per_second", "macs", "params", "size_bytes", "zeros", "outside", "failure"),
)
_BLANKS = (None,) * 5


def render_whatif_csv(whatif: WhatIf) -> str:
    """All levels of all cases; `row` says whether a row is for a model, layer type or layer."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(WHATIF_COLUMNS)
    for case in whatif.cases:
        for level in case.levels:
            head = (*_case(case), *_level(level))
            for cells in _rows(case, level):
                writer.writerow(map(plain_cell, (*head, *cells)))
    return file.getvalue()


def _case(case: WhatIfCase) -> tuple[Cell, ...]:
    dims = " ".join(f"{name}={size}" for name, size in case.case.dims)
    return case.id, case.case.batch_size, case.case.cores, dims


def _level(level: Level) -> tuple[Cell, ...]:
    variant = level.variant
    kind = None if variant is None else variant.kind.value
    share = None if variant is None else variant.level
    form = None if variant is None else variant.form or None
    return level.title, kind, share, form, "yes" if level.is_estimate else "no"


def _rows(case: WhatIfCase, level: Level) -> Iterator[tuple[Cell, ...]]:
    sizes = (level.macs, level.params, level.size_bytes, level.zeros)
    yield (
        *("model", None, None, None, level.ms, *_ratio(level.speedup)),
        *(case.items_per_second(level), *sizes, None, level.failure),
    )
    first = case.levels[0]
    for op, ms in level.layer_types.items():
        gained = _speedup(first.layer_types, level, op, ms)
        yield ("layer type", None, op, None, ms, gained, None, None, *_BLANKS, None, None)
    counted = case.baseline.counted
    known = {layer.id: layer for layer in (() if counted is None else counted.layers)}
    # Those that only the variant has come last.
    for layer_id in (
        *(each for each in known if each in level.layers),
        *(each for each in level.layers if each not in known),
    ):
        layer, ms = known.get(layer_id), level.layers[layer_id]
        is_outside = case.is_outside(layer_id, level)
        gained = None if is_outside else _speedup(first.layers, level, layer_id, ms)
        about = (layer_id, *((None, None) if layer is None else (layer.qualified_op, layer.weight)))
        where = "yes" if is_outside else "no"
        yield ("layer", *about, ms, gained, None, None, *_BLANKS, where, None)


def _speedup(base: Mapping[str, float], level: Level, name: str, ms: float) -> float | None:
    return None if level.variant is None else times_as_fast(base.get(name), ms)


def _ratio(ratio: Ratio | None) -> tuple[Cell, ...]:
    return (None,) * 3 if ratio is None else (ratio.value, ratio.low, ratio.high)
