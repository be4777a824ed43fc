"""A what-if as CSV: a row for each level, and for each layer type and layer at a level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_modelperf.profiler.records import LayerRow
from pytest_modelperf.report.csv import render_rows
from pytest_modelperf.report.tables import Cell
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.whatif.records import Level, WhatIf, WhatIfCase, times_as_fast

WHATIF_COLUMNS = (
    *("case", "batch_size", "cores", "dims", "level", "kind", "share", "form", "estimate"),
    *("row", "name", "op_type", "weight", "ms", "speedup", "speedup_low", "speedup_high"),
    *("items_per_second", "macs", "params", "size_bytes", "zeros", "outside", "failure"),
    *("half_width_ms", "fused", "runs_in"),
)
_BLANKS = (None,) * 5
_NO_LAYER = (None,) * 3


def render_whatif_csv(whatif: WhatIf) -> str:
    """All levels of all cases; `row` says whether a row is for a model, layer type or layer."""
    rows = (
        (*_case(case), *_level(level), *cells)
        for case in whatif.cases
        for level in case.levels
        for cells in _rows(case, level)
    )
    return render_rows(WHATIF_COLUMNS, rows)


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
        *(case.items_per_second(level), *sizes, None, level.failure, *_NO_LAYER),
    )
    first = case.levels[0]
    for op, ms in level.layer_types.items():
        gained = _speedup(first.layer_types, level, op, ms)
        yield ("layer type", None, op, None, ms, gained, *(None,) * 2, *_BLANKS, *(None,) * 5)
    known = {row.static.id: row for row in case.baseline.layers if row.static is not None}
    # Those that only the variant has come last.
    for layer_id in (
        *(each for each, row in known.items() if each in level.layers or _is_fused(row, level)),
        *(each for each in level.layers if each not in known),
    ):
        yield _layer_row(case, level, layer_id, known.get(layer_id))


def _is_fused(row: LayerRow, level: Level) -> bool:
    """Whether it has no time, as the kernel of another layer runs it."""
    return row.runs_in is not None and bool(level.layers)


def _layer_row(
    case: WhatIfCase, level: Level, layer_id: str, row: LayerRow | None
) -> tuple[Cell, ...]:
    ms = level.layers.get(layer_id)
    is_outside = case.is_outside(layer_id, level)
    base = case.unchanged.layers
    gained = None if is_outside or ms is None else _speedup(base, level, layer_id, ms)
    layer = None if row is None else row.static
    about = (layer_id, *((None, None) if layer is None else (layer.qualified_op, layer.weight)))
    where = "yes" if is_outside else "no"
    fused = () if row is None else (other.id for other in row.fused)
    kernel = (" ".join(fused) or None, None if row is None else row.runs_in)
    sure = level.half_widths.get(layer_id)
    return ("layer", *about, ms, gained, None, None, *_BLANKS, where, None, sure, *kernel)


def _speedup(base: Mapping[str, float], level: Level, name: str, ms: float) -> float | None:
    return None if level.variant is None else times_as_fast(base.get(name), ms)


def _ratio(ratio: Ratio | None) -> tuple[Cell, ...]:
    return (None,) * 3 if ratio is None else (ratio.value, ratio.low, ratio.high)
