"""The tables of a what-if: its levels, and the times of layer types and layers at each level."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.tables import OUTPUT_COLUMNS
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.report.tables import Column, Table, least_width, table_width
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import (
    UNKNOWN,
    format_bytes,
    format_count,
    format_ms,
    format_rate,
    format_share,
    percent,
    table_decimals,
)
from pytest_modelperf.text.words import count_of
from pytest_modelperf.whatif.records import WAITING, Level, WhatIfCase, times_as_fast

_NS_PER_MS = 1e6
_NOTHING = "-"
_OUTSIDE = "*"
_ESTIMATE = "~"
_NEITHER = "neither"
_LEAST_NAME = 16
_WIDEST = 100.0


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


def format_speedup(ratio: Ratio | None) -> str:
    """`x1.93`."""
    if ratio is None:
        return UNKNOWN
    return f"x{ratio.value:.2f}"


def format_speedup_interval(ratio: Ratio | None) -> str:
    """`1.85 … 2.02`; `?` if it is unknown, or too wide to say anything."""
    interval = None if ratio is None else ratio.interval
    if interval is None or interval[1] > _WIDEST * interval[0]:
        return UNKNOWN
    return "{:.2f} … {:.2f}".format(*interval)


# -- the summary


def summary_table(cases: Sequence[WhatIfCase]) -> Table:
    """A row for each case: how fast the model is, beside how fast its best level lets it be."""
    is_single = len(cases) == 1
    about = (
        (Column("batch"), Column("cores"))
        if is_single
        else (Column("case", is_name=True, least=_LEAST_NAME),)
    )
    columns = (
        *about,
        Column("measured ms"),
        Column("items/s"),
        Column("estimated ms"),
        Column("items/s"),
        Column("speedup"),
        Column("level", is_text=True, least=len("INT8 dynamic")),
    )
    rows = tuple((*_about(case, is_single=is_single), *_summary_cells(case)) for case in cases)
    caption = "ms: of a batch; estimated: of the level with the largest speedup that was shown"
    if any(case.best is None and case.summarized is not None for case in cases):
        caption += "; without one, of the fastest, with what was found"
    if any(case.summarized is None for case in cases):
        caption += f"\n{_NOTHING}: no level was faster, or none could be measured"
    return Table("model summary", columns, rows, None, caption)


def _about(case: WhatIfCase, *, is_single: bool) -> tuple[str, ...]:
    return (str(case.case.batch_size), str(case.case.cores)) if is_single else (printable(case.id),)


def _summary_cells(case: WhatIfCase) -> tuple[str, ...]:
    best = case.summarized
    return (
        *_speed_cells(case, case.unchanged),
        *_speed_cells(case, best),
        _NOTHING if best is None else format_speedup(best.speedup),
        _NOTHING if best is None else printable(_title_in_summary(best)),
    )


def _title_in_summary(level: Level) -> str:
    """`Pruned 0.9`, or `Pruned 0.5, neither` for a level that was not shown to be a gain."""
    return level.title if level.is_gain else f"{level.title}, {verdict_of(level)}"


def _speed_cells(case: WhatIfCase, level: Level | None) -> tuple[str, str]:
    if level is None or level.ms is None:
        return _NOTHING, _NOTHING
    return format_ms(level.ms * _NS_PER_MS), format_rate(case.items_per_second(level))


# -- the levels


def level_tables(case: WhatIfCase, confidence: float, width: int) -> list[Table]:
    """A row for each level with its time, speedup and size; in two tables if one is too wide."""
    times, sizes = _speed_table(case, confidence), _size_table(case)
    columns = sizes.columns[1:]
    whole = Table(
        "",
        (*times.columns, *columns),
        tuple((*row, *more[1:]) for row, more in zip(times.rows, sizes.rows, strict=True)),
        None,
        times.caption,
    )
    return [whole] if table_width(whole) <= width else [times, sizes]


def _speed_table(case: WhatIfCase, confidence: float) -> Table:
    columns = (
        Column("", is_text=True, least=24),
        Column("ms per batch"),
        Column("items/s"),
        Column("speedup"),
        Column("interval"),
        Column("", is_text=True),
    )
    rows = tuple(_speed_row(case, level) for level in case.levels)
    return Table("", columns, rows, None, "\n".join(interval_lines(confidence, case.levels)))


def speedup_interval(level: Level) -> str:
    """The interval of a level's speedup; empty for the unchanged model and for estimates."""
    has_duet = level.variant is not None and level.ms is not None and not level.is_estimate
    return format_speedup_interval(level.speedup) if has_duet else ""


def interval_lines(confidence: float, levels: Iterable[Level]) -> Iterator[str]:
    """Explains the intervals of these levels, and the words beside them."""
    shown = list(levels)
    yield f"interval: {100 * confidence:.4g} %, of the speedup"
    if any(speedup_interval(level) == UNKNOWN for level in shown):
        yield f"{UNKNOWN} too few rounds to tell; a larger max-seconds makes time for more"
    if any(verdict_of(level) == _NEITHER for level in shown):
        yield f"{_NEITHER}: not shown to be faster or slower"


def _speed_row(case: WhatIfCase, level: Level) -> tuple[str, ...]:
    speedup = "" if level.variant is None else format_speedup(level.speedup)
    return (
        printable(level.title),
        *_speed_cells(case, level),
        _NOTHING if level.ms is None else speedup,
        speedup_interval(level),
        verdict_of(level),
    )


def _size_table(case: WhatIfCase) -> Table:
    titles = ("MACs", "params", "size", "zeros")
    rows = (
        (printable(level.title), *(cell or _NOTHING for cell in size_cells(level)))
        for level in case.levels
    )
    return Table("", (Column("", is_text=True, least=24), *map(Column, titles)), tuple(rows))


def size_cells(level: Level) -> tuple[str, ...]:
    """MACs, params, size and zeros; empty where they are unknown."""
    return (
        "" if level.macs is None else format_count(level.macs),
        "" if level.params is None else format_count(level.params),
        "" if level.size_bytes is None else format_bytes(level.size_bytes),
        "" if level.zeros is None else format_share(level.zeros, 1.0),
    )


OTHER_OUTPUTS = "other outputs"


def verdict_of(level: Level) -> str:
    """`faster`, `slower`, `neither` if neither was shown, `failed`; or empty if not measured.

    `other outputs` stands for all speeds, `outputs unknown` for a gain that may be wrong.
    """
    if level.failure is not None:
        return "failed"
    if level.variant is None or level.is_estimate or level.ms is None:
        return ""
    if level.has_other_outputs:
        return OTHER_OUTPUTS
    if level.is_faster:
        return "faster" if level.is_gain else "outputs unknown"
    return "slower" if level.is_slower else _NEITHER


# -- the times of layer types and layers


class _Row(Struct, frozen=True):
    """One row of times: the cells before them, and the time at each level, None for no time.

    `outside` has the places of the levels at which it ran outside of the accelerated engine.
    `half_widths` is how sure the times are, relative to them, where that is known.
    """

    head: tuple[str, ...]
    times: tuple[float | None, ...]
    outside: frozenset[int] = frozenset()
    half_widths: tuple[float | None, ...] = ()

    def doubt_at(self, places: Iterable[int]) -> str:
        """The largest half width at these levels."""
        known = [w for at in places if self.half_widths and (w := self.half_widths[at]) is not None]
        return percent(max(known)) if known else ""

    @property
    def base(self) -> float | None:
        return self.times[0]

    @property
    def gain(self) -> float:
        """The most time that a level saves against the unchanged model."""
        if self.base is None:
            return -max((time for time in self.times if time is not None), default=0.0)
        return max((self.base - (time or 0.0) for time in self.times[1:]), default=0.0)


class _Grid(Struct, frozen=True):
    """A table of times that can be split by levels."""

    title: str
    head: tuple[Column, ...]
    levels: tuple[Level, ...]
    rows: tuple[_Row, ...]
    beside: tuple[_Row, ...]
    caption: str

    def table(self, chosen: Sequence[int], view: View) -> Table:
        """The table of the unchanged model and the levels at these places."""
        places = (0, *chosen)
        whole = self.levels[0].ms
        decimals = table_decimals((whole or 0.0) * _NS_PER_MS)
        show = _SHOW[view]

        shown = [row for row in self.rows if any(row.times[at] is not None for at in places)]
        is_sure = any(row.doubt_at(places) for row in shown)

        def cells(row: _Row) -> tuple[str, ...]:
            doubt = (row.doubt_at(places),) if is_sure else ()
            return (*row.head, *(show(row, at, whole, decimals) for at in places), *doubt)

        rows = [cells(row) for row in (*shown, *self.beside)]
        blank = ("",) * (len(self.head) - 1)
        total = _Row(("total", *blank), tuple(level.ms for level in self.levels))
        notes = [self.caption]
        if any(self.levels[at].is_estimate for at in places):
            notes.append(f"{_ESTIMATE}: an estimate, between two levels that were measured")
        if any(at in row.outside for row in shown for at in places):
            notes.append(f"{_OUTSIDE}: it ran outside of the accelerated engine: no speedup")
        if is_sure:
            notes.append("±: how sure the least sure time of a row is")
        columns = [_short_title(self.levels[at]) for at in places] + ["±"] * is_sure
        return Table(
            f"{self.title}, {_TITLES[view]}",
            (*self.head, *map(Column, columns)),
            tuple(rows),
            cells(total),
            "\n".join(filter(None, notes)),
        )


def _short_title(level: Level) -> str:
    if level.is_estimate and level.variant is not None:
        return f"{level.variant.title} {_ESTIMATE}"
    return printable(level.title)


_Show: TypeAlias = Callable[[_Row, int, "float | None", int], str]


def _show_ms(row: _Row, at: int, _: float | None, decimals: int) -> str:
    time = row.times[at]
    text = _NOTHING if time is None else format_ms(time * _NS_PER_MS, decimals)
    return f"{text}{_OUTSIDE}" if at in row.outside else text


def _show_percent(row: _Row, at: int, whole: float | None, _: int) -> str:
    time = row.times[at]
    text = _NOTHING if time is None else format_share(time, whole)
    return f"{text}{_OUTSIDE}" if at in row.outside else text


def _show_speedup(row: _Row, at: int, whole: float | None, decimals: int) -> str:
    """Unchanged model: time; other levels: speedup."""
    if at == 0:
        return _show_ms(row, at, whole, decimals)
    if 0 in row.outside or at in row.outside:
        return _OUTSIDE
    faster = times_as_fast(row.base, row.times[at])
    return _NOTHING if faster is None else f"x{faster:.2f}"


_SHOW: Mapping[View, _Show] = {
    View.MS: _show_ms,
    View.PERCENT: _show_percent,
    View.SPEEDUP: _show_speedup,
}


def layer_type_level_tables(case: WhatIfCase, view: View, width: int) -> list[Table]:
    """The time of each operator at each level; each table has as many levels as fit its width."""
    levels = _with_times(case, lambda level: level.layer_types)
    if not levels:
        return []
    counted = case.baseline.layer_types
    names = dict.fromkeys(op for level in levels for op in level.layer_types)
    rows = []
    for op in names:
        is_layer = op in counted and counted[op].count > 0
        count = str(counted[op].count) if is_layer else ""
        times = tuple(level.layer_types.get(op) for level in levels)
        rows.append(_Row((printable(op), count), times))
    rows.sort(key=lambda row: (-(row.base or 0.0), -max(time or 0.0 for time in row.times)))
    head = (Column("layer type", is_name=True, least=_LEAST_NAME), Column("count"))
    return _parted(_Grid("by layer type", head, levels, tuple(rows), (), ""), view, width)


def layer_level_tables(
    case: WhatIfCase, view: View, width: int, top: int | None, for_all: str
) -> list[Table]:
    """The layers that gain most at some level, and the time of all others.

    The tables name their weights if there is room. `for_all` says how to see all layers.
    """
    levels = _with_times(case, lambda level: level.layers)
    counted = case.baseline.counted
    if not levels or counted is None:
        return []
    known = {layer.id: layer for layer in counted.layers}
    names = [name for name in known if any(name in level.layers for level in levels)]
    rows = [_layer_row(known[name], levels) for name in names]
    rows.sort(key=lambda row: -row.gain)
    shown = rows if top is None else rows[:top]
    hidden = len(rows) - len(shown)
    beside = _beside(shown, levels)
    more = f"{count_of(hidden, 'more layer')}: {for_all}" if hidden else ""
    head = (
        Column("layer", is_name=True, least=_LEAST_NAME),
        Column("type", is_name=True),
        Column("weight", is_name=True, least=_LEAST_NAME),
    )

    def cut(rows: Sequence[_Row], count: int) -> tuple[_Row, ...]:
        return tuple(replace(row, head=row.head[:count]) for row in rows)

    def parted(count: int) -> list[Table]:
        """The tables with so many columns before the times."""
        rows = cut(shown, count), cut(beside, count)
        grid = _Grid("by layer, what gains most first", head[:count], levels, *rows, more)
        return _parted(grid, view, width)

    usual, named = parted(len(head) - 1), parted(len(head))
    has_weights = any(row.head[-1] for row in shown)
    return named if has_weights and _are_parted_alike(named, usual, width) else usual


def _layer_row(layer: StaticLayer, levels: Sequence[Level]) -> _Row:
    return _Row(
        (
            printable(layer.name or layer.id),
            printable(layer.qualified_op),
            printable(layer.weight or ""),
        ),
        tuple(level.layers.get(layer.id) for level in levels),
        frozenset(at for at, level in enumerate(levels) if layer.id in level.outside),
        tuple(level.relative_half_width(layer.id) for level in levels),
    )


def _beside(shown: Sequence[_Row], levels: Sequence[Level]) -> tuple[_Row, ...]:
    """The time of all other layers, of layers that only a variant has, and of the runtime.

    What was waited for a processor has a row of its own.
    """
    waited = tuple(level.layer_types.get(WAITING) for level in levels)
    times = []
    for at, level in enumerate(levels):
        spent = sum(row.times[at] or 0.0 for row in shown) + (waited[at] or 0.0)
        times.append(None if level.ms is None else max(0.0, level.ms - spent))
    rest = _Row(("(all else)", "", ""), tuple(times))
    if all(ms is None for ms in waited):
        return (rest,)
    return rest, _Row((f"({WAITING})", "", ""), waited)


def _with_times(
    case: WhatIfCase, read: Callable[[Level], Mapping[str, float]]
) -> tuple[Level, ...]:
    """The unchanged model and the levels that have such times; empty if the model has none."""
    first, *others = case.levels
    if not read(first):
        return ()
    return (first, *(level for level in others if read(level)))


def _parted(grid: _Grid, view: View, width: int) -> list[Table]:
    """The grid as one table, or as several that have some of its levels each."""
    tables: list[Table] = []
    chosen: list[int] = []
    for at in range(1, len(grid.levels)):
        wider = grid.table([*chosen, at], view)
        if chosen and least_width(wider) > width:
            tables.append(grid.table(chosen, view))
            chosen = []
        chosen.append(at)
    tables.append(grid.table(chosen, view))
    return tables


def _are_parted_alike(wider: Sequence[Table], usual: Sequence[Table], width: int) -> bool:
    """Whether the extra column fits, and leaves each level in the same table."""
    moved = [len(table.columns) - 1 for table in wider] != [len(table.columns) for table in usual]
    return not moved and all(least_width(table) <= width for table in wider)


# -- outputs


def output_change_table(case: WhatIfCase) -> Table | None:
    """How far outputs differ from the unchanged model's; None if none were compared."""
    rows = tuple(
        (printable(level.title), *(show(output) for _, show in OUTPUT_COLUMNS))
        for level in case.levels
        for output in level.outputs
        if output.difference is None
    )
    columns = (Column("", is_text=True), *(column for column, _ in OUTPUT_COLUMNS))
    return Table("outputs against those of the unchanged model", columns, rows) if rows else None
