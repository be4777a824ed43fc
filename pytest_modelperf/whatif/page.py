"""A what-if as a page: its parts that need no JavaScript, and the scripts that draw the rest."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

from pytest_modelperf.profiler.shown.case_page import CASE_DRAWINGS
from pytest_modelperf.profiler.shown.page_facts import (
    ModelRow,
    format_share,
    models_table,
    run_table,
)
from pytest_modelperf.report.html.drawings import Drawing, Drawings
from pytest_modelperf.report.html.overview import CaseSection, Overview
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.model import Tone
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, select_columns
from pytest_modelperf.text.units import (
    format_ms,
    format_rate,
    table_decimals,
)
from pytest_modelperf.text.words import count_of, shorten_list
from pytest_modelperf.whatif.outputs import judged_lines
from pytest_modelperf.whatif.page_data import operators_of, whatif_data
from pytest_modelperf.whatif.records import Level, WhatIf, WhatIfCase
from pytest_modelperf.whatif.tables import (
    format_speedup,
    format_speedup_interval,
    interval_lines,
    output_change_table,
    size_cells,
    speedup_interval,
    summary_table,
    verdict_of,
)
from pytest_modelperf.whatif.text import SPEED_ONLY, failed_lines, uncompared_lines

_FOLDER = Path(__file__).with_name("html")
_DRAWINGS = Drawings(
    parts=(Drawing("whatif", "What if"),),
    styles=(*CASE_DRAWINGS.styles, _FOLDER / "whatif.css"),
    scripts=(
        *CASE_DRAWINGS.scripts,
        _FOLDER / "whatif_levels.js",
        _FOLDER / "whatif.js",
    ),
    of_case=("whatif",),
)
_MAX_NAMED = 5
_NS_PER_MS = 1e6


def whatif_overview(whatif: WhatIf, made: dt.datetime | None = None) -> Overview:
    failed = sum(level.failure is not None for case in whatif.cases for level in case.levels)
    levels = sum(len(case.levels) for case in whatif.cases)
    rule = [
        ("confidence", format_share(whatif.confidence)),
        ("took", f"{whatif.seconds:.1f} s"),
    ]
    engine = "" if whatif.engine is None else whatif.engine.label
    return Overview(
        title=f"{whatif.model.name}: what if",
        headline=f"{failed} of {levels} levels failed" if failed else "",
        tone=Tone.BAD if failed else Tone.PLAIN,
        lines=(SPEED_ONLY, *(_describe_best(case, whatif) for case in whatif.cases)),
        summary=summary_table(whatif.cases),
        cases=_levels_table(whatif),
        tones=tuple(_tone(level) for case in whatif.cases for level in case.levels),
        sections=tuple(
            _section(case, is_open=index == 0) for index, case in enumerate(whatif.cases)
        ),
        facts=(
            models_table([ModelRow("", whatif.model, engine)]),
            run_table([whatif.machine], rule, made),
        ),
    )


def _describe_best(case: WhatIfCase, whatif: WhatIf) -> str:
    """`b1-c1: INT8 static is the fastest, x2.31 (2.25 … 2.37)`, if a level is shown to be faster.

    An estimate has no interval, so it is never the fastest.
    """
    name = f"{case.id}: " if len(whatif.cases) > 1 else ""
    best = case.best
    if best is None:
        kept = " with outputs within the tolerance" if whatif.outputs_tolerance is not None else ""
        return f"{name}no variant is shown to be faster{kept}"
    interval = format_speedup_interval(best.speedup)
    return f"{name}{best.title} is the fastest, {format_speedup(best.speedup)} ({interval})"


# -- levels


def _levels_table(whatif: WhatIf) -> Table:
    """A row for each level of each case; columns that have nothing to show are left out."""
    columns = (
        Column("case", is_text=True),
        # It has the colour of the row.
        Column("level", is_text=True, is_name=True),
        Column("ms per batch"),
        Column("items/s"),
        Column("speedup"),
        Column("interval"),
        Column("", is_text=True),
        Column("MACs"),
        Column("params"),
        Column("size"),
        Column("zeros"),
    )
    rows = ((case.id, *_level_cells(case, level)) for case in whatif.cases for level in case.levels)
    levels = [level for case in whatif.cases for level in case.levels]
    caption = "\n".join(interval_lines(whatif.confidence, levels))
    table = Table("", columns, tuple(rows), None, caption)
    if len(whatif.cases) == 1:
        table = select_columns(table, range(1, len(columns)))
    return drop_blank_columns(table)


def _level_cells(case: WhatIfCase, level: Level) -> tuple[str, ...]:
    rate = case.items_per_second(level)
    return (
        level.title,
        "" if level.ms is None else format_ms(level.ms * _NS_PER_MS),
        "" if rate is None else format_rate(rate),
        "" if level.speedup is None else format_speedup(level.speedup),
        speedup_interval(level),
        "estimate" if level.is_estimate and level.ms is not None else verdict_of(level),
        *size_cells(level),
    )


def _tone(level: Level) -> Tone:
    if level.failure is not None or level.is_slower or level.has_other_outputs:
        return Tone.BAD
    return Tone.GOOD if level.is_gain else Tone.PLAIN


# -- a case


def _section(case: WhatIfCase, *, is_open: bool) -> CaseSection:
    failure = tuple(failed_lines(case))
    tables = (_types_table(case), output_change_table(case))
    return CaseSection(
        name=case.id,
        sentence="by layer type",
        tone=Tone.BAD if failure else Tone.PLAIN,
        failure=failure,
        tables=tuple(table for table in tables if table is not None),
        facts=tuple(_facts(case)),
        is_open=is_open or bool(failure),
    )


def _facts(case: WhatIfCase) -> Iterator[tuple[str, str]]:
    yield from (("note", note) for note in case.notes)
    yield from (("outputs", line) for line in judged_lines(case))
    for level in case.levels:
        yield from ((level.title, note) for note in level.notes)
        yield from (
            (level.title, f"output {output.name}: {output.difference}")
            for output in level.outputs
            if output.difference is not None
        )
        if level.outside:
            yield level.title, _describe_outside(level.outside)
    yield from (("note", line) for line in uncompared_lines(case))


def _describe_outside(layers: tuple[str, ...]) -> str:
    """`2 layers ran outside the accelerated engine, so no speedup is given for them: a, b`."""
    them = "it" if len(layers) == 1 else "them"
    return (
        f"{count_of(len(layers), 'layer')} ran outside the accelerated engine, so no speedup is "
        f"given for {them}: {shorten_list(layers, _MAX_NAMED)}"
    )


def _types_table(case: WhatIfCase) -> Table | None:
    """The milliseconds of each operator at every level that has them, sorted by the longest."""
    levels = [level for level in case.levels if level.layer_types]
    if not levels:
        return None
    counted = case.baseline.layer_types
    totals = [sum(level.layer_types.values()) for level in levels]
    decimals = table_decimals(max(totals) * _NS_PER_MS)

    def cells(times: list[float | None]) -> tuple[str, ...]:
        return tuple("" if ms is None else f"{ms:.{decimals}f}" for ms in times)

    times = {op: [level.layer_types.get(op) for level in levels] for op in operators_of(case)}
    timed = [op for op, found in times.items() if any(ms is not None for ms in found)]
    timed.sort(key=lambda op: max(ms for ms in times[op] if ms is not None), reverse=True)
    rows = (
        (op, str(counted[op].count or "") if op in counted else "", *cells(times[op]))
        for op in timed
    )
    heads = (Column(f"{level.title} ms") for level in levels)
    return Table(
        "",
        (Column("layer type", is_text=True, is_name=True), Column("layers"), *heads),
        tuple(rows),
        ("all", "", *cells([*totals])),
        "layers: of the unchanged model",
    )


def render_whatif_page(whatif: WhatIf, *, made: dt.datetime | None = None) -> str:
    return render_page(whatif_data(whatif), whatif_overview(whatif, made), _DRAWINGS)
