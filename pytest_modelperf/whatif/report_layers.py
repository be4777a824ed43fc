"""The tables of a what-if with the times of layer types and layers at each level, and its page."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.measurements import RowKind
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.profiler.shown.page_data import (
    case_entry,
    model_entry,
    side_entry,
    whole_page,
)
from pytest_modelperf.profiler.shown.page_latency import Entry, ratio_entry
from pytest_modelperf.profiler.shown.page_layers import fused_entries, kind_of
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns
from pytest_modelperf.text.units import ESTIMATE, format_ms, format_share, percent, table_decimals
from pytest_modelperf.text.words import count_of
from pytest_modelperf.whatif.records import (
    SHORTEST_MS,
    WAITING,
    Level,
    WhatIf,
    WhatIfCase,
    times_as_fast,
)

_NS_PER_MS = 1e6
_NOTHING = "-"
_OUTSIDE = "*"
_LEAST_NAME = 16


class View(enum.Enum):
    """How the tables of layers show a time."""

    MS = "ms"
    PERCENT = "percent"
    SPEEDUP = "speedup"


_TITLES = {
    View.MS: "in ms",
    View.PERCENT: "in percent of the whole unchanged model",
    View.SPEEDUP: "in ms, then how many times as fast",
}


class _Row(Struct, frozen=True):
    """The cells before the times, and the time at each level, None for no time."""

    head: tuple[str, ...]
    times: tuple[float | None, ...]
    # The places of the levels at which it ran outside of the accelerated engine.
    outside: frozenset[int] = frozenset()
    # The half widths of the times, relative to the times, if known.
    half_widths: tuple[float | None, ...] = ()

    @property
    def doubt(self) -> str:
        known = [width for width in self.half_widths if width is not None]
        return percent(max(known)) if known else ""

    @property
    def base(self) -> float | None:
        return self.times[0]

    @property
    def gain(self) -> float:
        if self.base is None:
            return -max((time for time in self.times if time is not None), default=0.0)
        return max((self.base - (time or 0.0) for time in self.times[1:]), default=0.0)


def layer_type_table(case: WhatIfCase, view: View) -> Table | None:
    """Return the time of each operator at each level, or None if none is known."""
    levels = _with_times(case, lambda level: level.layer_types)
    counted = case.baseline.layer_types
    rows = []
    for op in dict.fromkeys(op for level in levels for op in level.layer_types):
        is_layer = op in counted and counted[op].count > 0
        count = str(counted[op].count) if is_layer else ""
        rows.append(_Row((op, count), tuple(level.layer_types.get(op) for level in levels)))
    rows.sort(key=lambda row: (-(row.base or 0.0), -max(time or 0.0 for time in row.times)))
    head = (
        Column("layer type", is_name=True, least=_LEAST_NAME, is_repeated=True),
        Column("count", is_repeated=True),
    )
    return _times_table("by layer type", view, head, levels, rows) if rows else None


def layer_table(case: WhatIfCase, view: View, top: int | None, for_all: str) -> Table | None:
    """Return the layers with the largest gains, and the time of the rest, or None without times."""
    levels = _with_times(case, lambda level: level.layers)
    counted = case.baseline.counted
    if not levels or counted is None:
        return None
    timed = {layer for level in levels for layer in level.layers}
    rows = [_layer_row(layer, levels) for layer in counted.layers if layer.id in timed]
    rows.sort(key=lambda row: -row.gain)
    shown = rows if top is None else rows[:top]
    hidden = len(rows) - len(shown)
    head = (
        Column("layer", is_name=True, least=_LEAST_NAME, is_repeated=True),
        Column("type", is_name=True, is_repeated=True),
        Column("weight", is_name=True, rank=1, is_repeated=True),
    )
    more = f"{count_of(hidden, 'more layer')}: {for_all}" if hidden else ""
    rows = [*shown, *_others(shown, levels)]
    title = "by layer, what gains most first"
    return drop_blank_columns(_times_table(title, view, head, levels, rows, more=more))


def _with_times(
    case: WhatIfCase, read: Callable[[Level], Mapping[str, float]]
) -> tuple[Level, ...]:
    return tuple(filter(read, case.levels)) if read(case.unchanged) else ()


def _layer_row(layer: StaticLayer, levels: Sequence[Level]) -> _Row:
    return _Row(
        (layer.name or layer.id, layer.qualified_op, layer.weight or ""),
        tuple(level.layers.get(layer.id) for level in levels),
        frozenset(at for at, level in enumerate(levels) if layer.id in level.outside),
        tuple(level.relative_half_width(layer.id) for level in levels),
    )


def _others(shown: Sequence[_Row], levels: Sequence[Level]) -> tuple[_Row, ...]:
    """Return the rows of all other layers and the runtime, and of the time spent waiting."""
    waited = tuple(level.layer_types.get(WAITING) for level in levels)
    times = []
    for at, level in enumerate(levels):
        spent = sum(row.times[at] or 0.0 for row in shown) + (waited[at] or 0.0)
        times.append(None if level.ms is None else max(0.0, level.ms - spent))
    rest = _Row(("(all else)", "", ""), tuple(times))
    has_waited = any(ms is not None for ms in waited)
    return (rest, _Row((f"({WAITING})", "", ""), waited)) if has_waited else (rest,)


def _times_table(  # noqa: PLR0913  # the parts of a table
    title: str,
    view: View,
    head: tuple[Column, ...],
    levels: Sequence[Level],
    rows: Sequence[_Row],
    *,
    more: str = "",
) -> Table:
    whole = levels[0].ms
    decimals = table_decimals((whole or 0.0) * _NS_PER_MS)
    is_sure = any(row.doubt for row in rows)

    def cells(row: _Row) -> tuple[str, ...]:
        times = (_show(view, row, at, whole, decimals) for at in range(len(levels)))
        return (*row.head, *times, *([row.doubt] if is_sure else []))

    blanks = ("",) * (len(head) - 1)
    total = _Row(("total", *blanks), tuple(level.ms for level in levels))
    notes = [more] if more else []
    if any(level.is_estimate for level in levels):
        notes.append(f"{ESTIMATE}: an estimate, between two levels that were measured")
    if any(row.outside for row in rows):
        notes.append(f"{_OUTSIDE}: it ran outside of the accelerated engine: no speedup")
    if is_sure:
        notes.append("±: how sure the least sure time of a row is")
    return Table(
        f"{title}, {_TITLES[view]}",
        (
            *head,
            *(Column(_short_title(level), is_repeated=not at) for at, level in enumerate(levels)),
            *([Column("±")] if is_sure else []),
        ),
        tuple(map(cells, rows)),
        cells(total),
        "\n".join(notes),
    )


def _short_title(level: Level) -> str:
    if level.is_estimate and level.variant is not None:
        return f"{level.variant.title} {ESTIMATE}"
    return level.title


def _show(view: View, row: _Row, at: int, whole: float | None, decimals: int) -> str:
    """Return the time of a row at a level, or its speedup, except at the unchanged model."""
    time = row.times[at]
    if view is View.SPEEDUP and at:
        if 0 in row.outside or at in row.outside:
            return _OUTSIDE
        faster = times_as_fast(row.base, time)
        return _NOTHING if faster is None else f"x{faster:.2f}"
    text = _NOTHING
    if time is not None and view is View.PERCENT:
        text = format_share(time, whole)
    elif time is not None:
        text = format_ms(time * _NS_PER_MS, decimals)
    return f"{text}{_OUTSIDE}" if at in row.outside else text


# -- a what-if as data for the scripts of a page


_NOT_LAYERS = frozenset(kind.value for kind in RowKind if kind is not RowKind.LAYER)


def _whatif_entry(case: WhatIfCase) -> Entry:
    totals = [sum(level.layer_types.values()) or level.ms for level in case.levels]
    return {
        "levels": [
            _level_entry(level, total) for level, total in zip(case.levels, totals, strict=True)
        ],
        "types": [_with_shares(row, totals) for row in _type_entries(case)],
        "layers": [_with_shares(row, totals) for row in _layer_entries(case)],
    }


def _with_shares(row: Mapping[str, Any], totals: Sequence[float | None]) -> Entry:
    # A layer that ran outside the accelerated engine has no speedup.
    times, outside = row["ms"], row.get("outside", (False,) * len(totals))
    before = times[0] if not outside[0] and (times[0] or 0.0) >= SHORTEST_MS else None
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
        # The percentages of a level refer to this time of the whole level.
        "total_ms": total_ms,
        "speedup": None if level.speedup is None else ratio_entry(level.speedup),
        "text": _speedup_text(level),
        "failure": level.failure,
    }


def _speedup_text(level: Level) -> str:
    if level.speedup is None:
        return ""
    interval = level.speedup.interval
    bounds = "" if interval is None else " ({:.2f} … {:.2f})".format(*interval)
    estimate = ", an estimate" if level.is_estimate else ""
    return f"{level.title}: x{level.speedup.value:.2f}{bounds}{estimate}"


def _type_entries(case: WhatIfCase) -> list[Entry]:
    counted = case.baseline.layer_types
    of_levels = (op for level in case.levels for op in level.layer_types)
    return [
        {
            "type": op,
            "is_layer": op not in _NOT_LAYERS,
            # Use the unchanged model's count, because a quantized one has operators that it lacks.
            "count": counted[op].count if op in counted and op not in _NOT_LAYERS else None,
            "kind": kind_of(op, is_layer=op not in _NOT_LAYERS),
            "ms": [level.layer_types.get(op) for level in case.levels],
        }
        for op in dict.fromkeys((*counted, *of_levels))
    ]


def _layer_entries(case: WhatIfCase) -> list[Entry]:
    rows = {row.static.id: row for row in case.layers if row.static is not None}
    unlisted = (layer for level in case.levels for layer in level.layers)
    outside = [frozenset(level.outside) for level in case.levels]
    return [
        _layer_entry(layer_id, rows.get(layer_id), depth, case.levels, outside)
        for depth, layer_id in enumerate(dict.fromkeys((*rows, *unlisted)))
    ]


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
    return {**entry, "whatif": _whatif_entry(case)}
