"""A what-if as a report: the gain of each variant, by layer type and layer, and doubts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from pytest_modelperf.comparing.tables import OUTPUT_COLUMNS
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.profiler.shown.drawn import CASE_DRAWINGS
from pytest_modelperf.profiler.shown.facts import (
    ModelRow,
    describe_engine,
    describe_machine_line,
    models_table,
    run_table,
)
from pytest_modelperf.profiler.shown.tables.layers import describe_model
from pytest_modelperf.profiler.shown.views import ratio_cells, ratio_series
from pytest_modelperf.report.charts import MOST_BARS, BarChart, BarSeries
from pytest_modelperf.report.model import (
    Drawing,
    Drawings,
    Drawn,
    Failure,
    Line,
    On,
    Paragraph,
    Report,
    ReportBlock,
    Rows,
    Section,
    Sheet,
    Tone,
)
from pytest_modelperf.report.notebook import Views
from pytest_modelperf.report.tables import (
    Cell,
    Column,
    FilledColumn,
    Table,
    drop_blank_columns,
    table_of,
)
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.units import (
    UNKNOWN,
    change_decimals,
    format_bytes,
    format_confidence,
    format_count,
    format_ms,
    format_rate,
    format_share,
)
from pytest_modelperf.text.words import count_of, shorten_list
from pytest_modelperf.whatif.records import (
    WAITING,
    Level,
    VariantKind,
    WhatIf,
    WhatIfCase,
    times_as_fast,
)
from pytest_modelperf.whatif.report_layers import View, layer_table, layer_type_table, whatif_data
from pytest_modelperf.whatif.variants import judged_lines

_Value = TypeVar("_Value", int, float)

_FOLDER = Path(__file__).with_name("html")
_DRAWINGS = Drawings(
    parts=(
        Drawing("speedups", "Speedups", leads=True),
        Drawing("whatif", "Layer types and layers"),
    ),
    styles=(*CASE_DRAWINGS.styles, _FOLDER / "whatif.css"),
    scripts=(*CASE_DRAWINGS.scripts, _FOLDER / "whatif.js"),
    of_case=("whatif",),
)
WHATIF_COLUMNS = (
    *("case", "batch_size", "cores", "dims", "level", "kind", "share", "form", "estimate"),
    *("row", "name", "op_type", "weight", "ms", "speedup", "speedup_low", "speedup_high"),
    *("items_per_second", "macs", "params", "size_bytes", "zeros", "outside", "failure"),
    *("half_width_ms", "fused", "runs_in"),
)
_NO_SIZES = (None,) * 5
_NO_KERNEL = (None,) * 3
SPEED_ONLY = "speed only: what a variant does to accuracy is not measured"
_NEITHER = "neither"
_UNKNOWN_OUTPUTS = "outputs unknown"
_NOTHING = "-"
_CHANGED = {VariantKind.PRUNED: "pruned weights", VariantKind.NARROWED: "removed channels"}
_NS_PER_MS = 1e6
_LEAST_NAME = 16
_LEAST_LEVEL = 24
_MAX_NAMED = 5
# The layer types that a page names first.
_MOST_CHANGES = 3
# A wider interval is not informative.
_WIDEST = 100.0


class WhatIfView(Struct, frozen=True):
    """The number of layers to show, the form of their times, and how to see all layers."""

    top: int | None = None
    times: View = View.MS
    for_all: str = "--top 0 shows all"
    for_details: str = "-v shows the layer types and layers of each case"


def whatif_report(whatif: WhatIf, view: WhatIfView, made: dt.datetime | None = None) -> Report:
    levels = [level for case in whatif.cases for level in case.levels]
    failed = sum(level.failure is not None for level in levels)
    machine, engine = whatif.machine, whatif.engine
    rule = [
        ("confidence", format_confidence(whatif.confidence)),
        ("took", f"{whatif.seconds:.1f} s"),
    ]
    return Report(
        title=f"{whatif.model.name}: what if",
        subject=describe_model(whatif.model),
        headline=f"{failed} of {len(levels)} levels failed" if failed else "",
        tone=Tone.BAD if failed else Tone.PLAIN,
        opening=(
            *([] if machine is None else [Line(text=describe_machine_line(machine))]),
            *([] if engine is None else [Line(text=describe_engine(engine))]),
            *(Line(text=_describe_best(case, whatif), on=On.TEXT) for case in whatif.cases),
            Line(text=SPEED_ONLY, tone=Tone.UNSURE),
        ),
        findings=tuple(_findings(whatif)),
        blocks=(
            Rows(_summary_table(whatif.cases)),
            _levels(whatif, whatif.cases, On.ALL if len(whatif.cases) == 1 else On.PAGE),
            *(_section(whatif, case, view) for case in whatif.cases),
            *_brief_blocks(whatif.cases, view),
        ),
        closing=(Line(word="how", text=_method(whatif)),),
        facts=(
            models_table([ModelRow("", whatif.model, "" if engine is None else engine.label)]),
            run_table([machine], rule, made),
        ),
        sheet=level_sheet(whatif),
        drawn=Drawn(_DRAWINGS, partial(whatif_data, whatif)),
    )


def _findings(whatif: WhatIf) -> Iterator[Section]:
    """Yield the levels that failed, then the best level of each case with its largest gains."""
    for case in whatif.cases:
        name = f"{case.id}: " if len(whatif.cases) > 1 else ""
        for level in case.levels:
            if level.failure is not None:
                yield Section(
                    title=f"{name}{level.title}",
                    word="failed",
                    sentence=level.failure.partition("\n")[0],
                    tone=Tone.BAD,
                )
        title = case.id if case.best is None else f"{name}{case.best.title}"
        yield Section(
            title=title,
            word="" if case.best is None else "faster",
            sentence=_describe_best(case, whatif).removeprefix(
                name if case.best is None else title
            ),
            tone=Tone.PLAIN if case.best is None else Tone.GOOD,
            blocks=tuple(_largest_changes(case, case.best)),
        )


def _largest_changes(case: WhatIfCase, level: Level | None) -> Iterator[ReportBlock]:
    """Yield `Conv -2.15 ms, Relu -0.31 ms`: the layer types whose times differ most."""
    if level is None or not level.layer_types:
        return
    before, now = case.unchanged.layer_types, level.layer_types
    changes = {
        name: now.get(name, 0.0) - before.get(name, 0.0)
        for name in {**before, **now}
        if name != WAITING
    }
    # Changes below a nanosecond are rounding errors.
    known = [name for name, change in changes.items() if round(change, 6)]
    largest = sorted(known, key=lambda name: -abs(changes[name]))[:_MOST_CHANGES]
    texts = (
        f"{name} {changes[name]:+.{change_decimals(1e6 * changes[name])}f} ms" for name in largest
    )
    yield Paragraph((Line(word="why", text=", ".join(texts)),))


def _describe_best(case: WhatIfCase, whatif: WhatIf) -> str:
    """Return `b1-c1: INT8 static is the fastest, x2.31 (2.25 … 2.37)`, if that is shown."""
    name = f"{case.id}: " if len(whatif.cases) > 1 else ""
    best = case.best
    if best is None:
        kept = " with outputs within the tolerance" if whatif.outputs_tolerance is not None else ""
        return f"{name}no variant is shown to be faster{kept}"
    interval = _format_interval(best.speedup)
    return f"{name}{best.title} is the fastest, {_format_speedup(best.speedup)} ({interval})"


def _method(whatif: WhatIf) -> str:
    levels = [level for case in whatif.cases for level in case.levels if level.rounds is not None]
    rounds = sum(level.rounds or 0 for level in levels)
    return (
        f"{count_of(rounds, 'round')} in {count_of(len(levels), 'duet')} of a variant and the "
        f"unchanged model, {whatif.seconds:.1f} s; "
        "the time of a variant is the time of the unchanged model times their ratio"
    )


def _summary_table(cases: Sequence[WhatIfCase]) -> Table:
    about: tuple[FilledColumn[WhatIfCase], ...] = (
        (Column("case", is_name=True, least=_LEAST_NAME), lambda case: case.id),
    )
    if len(cases) == 1:
        about = (
            (Column("batch"), lambda case: str(case.case.batch_size)),
            (Column("cores"), lambda case: str(case.case.cores)),
        )
    caption = "ms: of a batch; estimated: of the level with the largest speedup that was shown"
    if any(case.best is None and case.summarized is not None for case in cases):
        caption += "; without one, of the fastest, with what was found"
    if any(case.summarized is None for case in cases):
        caption += f"\n{_NOTHING}: no level was faster, or none could be measured"
    return table_of(
        "model summary",
        cases,
        *about,
        (Column("measured ms"), lambda case: _ms(case.unchanged) or _NOTHING),
        (Column("items/s", rank=1), lambda case: _rate(case, case.unchanged) or _NOTHING),
        (Column("estimated ms"), lambda case: _ms(case.summarized) or _NOTHING),
        (Column("items/s", rank=1), lambda case: _rate(case, case.summarized) or _NOTHING),
        (Column("speedup"), lambda case: _speedup(case.summarized) or _NOTHING),
        (Column("level", is_text=True, least=len("INT8 dynamic")), _level_in_summary),
        caption=caption,
    )


def _level_in_summary(case: WhatIfCase) -> str:
    level = case.summarized
    if level is None:
        return _NOTHING
    return level.title if level.is_gain else f"{level.title}, {verdict_of(level)}"


class _Row(Struct, frozen=True):
    case: WhatIfCase
    level: Level


def _levels(whatif: WhatIf, cases: Sequence[WhatIfCase], on: On) -> Rows:
    rows = [_Row(case, level) for case in cases for level in case.levels]
    case = Column("case", is_text=True, is_repeated=True)
    # A page colours names.
    level = Column("level", is_text=True, is_name=True, least=_LEAST_LEVEL, is_repeated=True)
    several: tuple[FilledColumn[_Row], ...] = ((case, lambda row: row.case.id),)
    table = table_of(
        "",
        rows,
        *(several if len(cases) > 1 else ()),
        (level, lambda row: row.level.title),
        (Column("ms per batch"), lambda row: _ms(row.level)),
        (Column("items/s"), lambda row: _rate(row.case, row.level)),
        (Column("speedup", has_bars=True), lambda row: _speedup(row.level)),
        (Column("interval"), lambda row: _interval(row.level)),
        (
            Column("", is_text=True, is_verdict=True, least=len(_UNKNOWN_OUTPUTS)),
            lambda row: verdict_of(row.level),
        ),
        (Column("MACs"), lambda row: _known(row.level.macs, format_count)),
        (Column("params"), lambda row: _known(row.level.params, format_count)),
        (Column("size"), lambda row: _known(row.level.size_bytes, format_bytes)),
        (Column("zeros"), lambda row: _known(row.level.zeros, partial(format_share, whole=1.0))),
        caption="\n".join(_legend(whatif.confidence, [row.level for row in rows])),
    )
    return Rows(drop_blank_columns(table), tuple(_tone(row.level) for row in rows), on=on)


def _legend(confidence: float, levels: Iterable[Level]) -> Iterator[str]:
    shown = list(levels)
    yield f"interval: {format_confidence(confidence)}, of the speedup"
    if any(_interval(level) == UNKNOWN for level in shown):
        yield f"{UNKNOWN} too few rounds to tell; a larger max-seconds makes time for more"
    if any(verdict_of(level) == _NEITHER for level in shown):
        yield f"{_NEITHER}: not decided whether it is faster or slower"


def verdict_of(level: Level) -> str:
    """Return `faster`, `slower`, `neither` or `failed`, or an empty string if not measured.

    `neither` means that neither was shown. `other outputs` replaces all of these speeds, and
    `outputs unknown` a gain that may be wrong.
    """
    if level.failure is not None:
        return "failed"
    if level.variant is None or level.is_estimate or level.ms is None:
        return ""
    if level.has_other_outputs:
        return "other outputs"
    if level.is_faster:
        return "faster" if level.is_gain else _UNKNOWN_OUTPUTS
    return "slower" if level.is_slower else _NEITHER


def _tone(level: Level) -> Tone:
    if level.failure is not None or level.is_slower or level.has_other_outputs:
        return Tone.BAD
    if level.is_gain:
        return Tone.GOOD
    return Tone.UNSURE if verdict_of(level) in {_NEITHER, _UNKNOWN_OUTPUTS} else Tone.PLAIN


def _ms(level: Level | None) -> str:
    return "" if level is None or level.ms is None else format_ms(level.ms * _NS_PER_MS)


def _rate(case: WhatIfCase, level: Level | None) -> str:
    return "" if level is None else _known(case.items_per_second(level), format_rate)


def _speedup(level: Level | None) -> str:
    is_timed = level is not None and level.variant is not None and level.ms is not None
    return _format_speedup(level.speedup) if level is not None and is_timed else ""


def _interval(level: Level) -> str:
    has_duet = level.variant is not None and level.ms is not None and not level.is_estimate
    return _format_interval(level.speedup) if has_duet else ""


def _format_speedup(ratio: Ratio | None) -> str:
    return UNKNOWN if ratio is None else f"x{ratio.value:.2f}"


def _format_interval(ratio: Ratio | None) -> str:
    """Return `1.85 … 2.02`, or `?` if the interval is unknown or too wide to say anything."""
    interval = None if ratio is None else ratio.interval
    if interval is None or interval[1] > _WIDEST * interval[0]:
        return UNKNOWN
    return "{:.2f} … {:.2f}".format(*interval)


def _known(value: _Value | None, show: Callable[[_Value], str]) -> str:
    return "" if value is None else show(value)


def _brief_blocks(cases: Sequence[WhatIfCase], view: WhatIfView) -> Iterator[ReportBlock]:
    """Yield what a terminal shows of several cases instead of their layer types and layers."""
    if len(cases) > 1:
        yield Paragraph((Line(text=view.for_details, tone=Tone.DIM),), is_brief=True)


def _section(whatif: WhatIf, case: WhatIfCase, view: WhatIfView) -> Section:
    is_single = len(whatif.cases) == 1
    # A page has the levels of all cases in one table, which is too wide for a terminal.
    levels = [] if is_single else [_levels(whatif, [case], On.TEXT)]
    return Section(
        title=case.id,
        is_titled=not is_single,
        sentence="by layer type",
        tone=Tone.BAD if case.has_failed else Tone.PLAIN,
        blocks=(*levels, *_blocks(case, view, has_others=not is_single)),
        is_open=case is whatif.cases[0] or case.has_failed,
    )


def _blocks(case: WhatIfCase, view: WhatIfView, *, has_others: bool) -> Iterator[ReportBlock]:
    yield from map(Failure, failures_of(case))
    judged = tuple(Line(text=text, tone=Tone.BAD) for text in judged_lines(case))
    if judged:
        yield Paragraph(judged)
    types = layer_type_table(case, view.times)
    if types is not None:
        yield Rows(types, is_detail=has_others)
    # A page draws the layers.
    layers = layer_table(case, view.times, view.top, view.for_all)
    if layers is not None:
        yield Rows(layers, on=On.TEXT, is_detail=has_others)
    outputs = _outputs_table(case)
    if outputs is not None:
        yield Rows(outputs)
    notes = tuple(Line(word="note", text=text) for text in _notes(case))
    if notes:
        yield Paragraph(notes)


def failures_of(case: WhatIfCase) -> list[str]:
    """Return why levels have no time. Levels with the same reason share a text."""
    return _with_titles(
        (level.title, level.failure) for level in case.levels if level.failure is not None
    )


def _with_titles(texts: Iterable[tuple[str, str]]) -> list[str]:
    about: dict[str, list[str]] = {}
    for title, text in texts:
        about.setdefault(text, []).append(title)
    return [f"{', '.join(titles)}: {text}" for text, titles in about.items()]


def _notes(case: WhatIfCase) -> Iterator[str]:
    yield from case.notes
    yield from _with_titles(
        (level.title, text) for level in case.levels for text in _notes_of_level(level)
    )
    kinds = {level.variant.kind for level in case.levels if level.variant and level.ms is not None}
    changed = [words for kind, words in _CHANGED.items() if kind in kinds]
    if changed:
        yield f"outputs with {' and '.join(changed)} mean nothing, so they are not compared"


def _notes_of_level(level: Level) -> Iterator[str]:
    yield from level.notes
    for output in level.outputs:
        if output.difference is not None:
            yield f"output {output.name}: {output.difference}"
    if level.outside:
        them = "it" if len(level.outside) == 1 else "them"
        yield (
            f"{count_of(len(level.outside), 'layer')} ran outside the accelerated engine, so no "
            f"speedup is given for {them}: {shorten_list(level.outside, _MAX_NAMED)}"
        )


def _outputs_table(case: WhatIfCase) -> Table | None:
    rows = tuple(
        (level.title, *(show(output) for _, show in OUTPUT_COLUMNS))
        for level in case.levels
        for output in level.outputs
        if output.difference is None
    )
    columns = (Column("", is_text=True), *(column for column, _ in OUTPUT_COLUMNS))
    return Table("outputs against those of the unchanged model", columns, rows) if rows else None


def level_sheet(whatif: WhatIf) -> Sheet:
    """Return all levels of all cases. `row` shows if a row is for a model, layer type or layer."""
    rows = tuple(
        (*_case_cells(case), *_level_cells(level), *cells)
        for case in whatif.cases
        for level in case.levels
        for cells in _sheet_rows(case, level)
    )
    return Sheet(WHATIF_COLUMNS, rows)


def _case_cells(case: WhatIfCase) -> tuple[Cell, ...]:
    dims = " ".join(f"{name}={size}" for name, size in case.case.dims)
    return case.id, case.case.batch_size, case.case.cores, dims


def _level_cells(level: Level) -> tuple[Cell, ...]:
    variant = level.variant
    kind = None if variant is None else variant.kind.value
    share = None if variant is None else variant.level
    form = None if variant is None else variant.form or None
    return level.title, kind, share, form, "yes" if level.is_estimate else "no"


def _sheet_rows(case: WhatIfCase, level: Level) -> Iterator[tuple[Cell, ...]]:
    sizes = (level.macs, level.params, level.size_bytes, level.zeros)
    yield (
        *("model", None, None, None, level.ms, *ratio_cells(level.speedup)),
        *(case.items_per_second(level), *sizes, None, level.failure, *_NO_KERNEL),
    )
    first = case.levels[0]
    for op, ms in level.layer_types.items():
        gained = _times_faster(first.layer_types, level, op, ms)
        yield ("layer type", None, op, None, ms, gained, *(None,) * 2, *_NO_SIZES, *(None,) * 5)
    known = {row.static.id: row for row in case.layers if row.static is not None}
    # Layers of the variant alone come last.
    for layer_id in dict.fromkeys((*known, *level.layers)):
        row = known.get(layer_id)
        # A layer that the kernel of another layer runs has no time.
        is_fused = row is not None and row.runs_in is not None and bool(level.layers)
        if layer_id in level.layers or is_fused:
            yield _layer_cells(case, level, layer_id, row)


def _layer_cells(
    case: WhatIfCase, level: Level, layer_id: str, row: LayerRow | None
) -> tuple[Cell, ...]:
    ms = level.layers.get(layer_id)
    is_outside = case.is_outside(layer_id, level)
    base = case.unchanged.layers
    gained = None if is_outside or ms is None else _times_faster(base, level, layer_id, ms)
    layer = None if row is None else row.static
    about = (layer_id, *((None, None) if layer is None else (layer.qualified_op, layer.weight)))
    outside = "yes" if is_outside else "no"
    fused = () if row is None else (other.id for other in row.fused)
    kernel = (" ".join(fused) or None, None if row is None else row.runs_in)
    sure = level.half_widths.get(layer_id)
    return ("layer", *about, ms, gained, None, None, *_NO_SIZES, outside, None, sure, *kernel)


def _times_faster(base: Mapping[str, float], level: Level, name: str, ms: float) -> float | None:
    return None if level.variant is None else times_as_fast(base.get(name), ms)


_ROW = "row"


def whatif_views(whatif: WhatIf, report: Callable[[], Report]) -> Views:
    return Views(
        report=report,
        sheets={
            "levels": lambda: _rows(whatif, "model"),
            "layers": lambda: _rows(whatif, "layer"),
            "layer types": lambda: _rows(whatif, "layer type"),
        },
        charts={
            "levels": lambda: _level_chart(whatif),
            "layers": lambda: _time_chart(whatif, "layers", lambda level: level.layers),
            "layer types": lambda: _time_chart(
                whatif, "layer types", lambda level: level.layer_types
            ),
        },
    )


def _rows(whatif: WhatIf, kind: str) -> Sheet:
    """Return the rows of one kind, without the columns that are empty in all of them."""
    sheet = level_sheet(whatif)
    at = sheet.columns.index(_ROW)
    rows = [row for row in sheet.rows if row[at] == kind]
    kept = [
        place
        for place, name in enumerate(sheet.columns)
        if name != _ROW and any(row[place] is not None for row in rows)
    ]
    names = tuple(sheet.columns[place] for place in kept)
    return Sheet(names, tuple(tuple(row[place] for place in kept) for row in rows))


def _level_chart(whatif: WhatIf) -> BarChart:
    """Return the speedup of each variant and estimate in each case."""
    found = [(case, level) for case in whatif.cases for level in case.levels[1:]]
    is_one = len(whatif.cases) == 1
    names = tuple(each.title if is_one else f"{case.id} {each.title}" for case, each in found)
    bars = ratio_series("speedup", [level.speedup for _, level in found])
    return BarChart(f"variants of {whatif.model.name}", "times as fast", names, (bars,))


def _time_chart(
    whatif: WhatIf, what: str, read: Callable[[Level], Mapping[str, float | None]]
) -> BarChart:
    """Return the longest times in the first case, with a series for each level."""
    case = whatif.cases[0]
    base = read(case.unchanged)
    longest = sorted(base, key=lambda name: -(base[name] or 0.0))[:MOST_BARS]
    known = {row.static.id: row.static.name for row in case.layers if row.static is not None}
    series = tuple(
        BarSeries(level.title, tuple(read(level).get(name) for name in longest))
        for level in case.levels
    )
    names = tuple(known.get(name) or name for name in longest)
    return BarChart(f"{what} of {whatif.model.name} at {case.id}", "ms", names, series)
