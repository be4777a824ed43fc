"""A tuning as a page: its parts that need no JavaScript, and the script that draws intervals."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

from pytest_modelperf.profiler.shown.page_facts import (
    ModelRow,
    format_share,
    models_table,
    run_table,
)
from pytest_modelperf.report.html.drawings import Drawing, Drawings
from pytest_modelperf.report.html.overview import CaseSection, Overview, Tone
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.units import format_bytes, format_confidence
from pytest_modelperf.text.words import count_of
from pytest_modelperf.tuning.page_data import tuning_data
from pytest_modelperf.tuning.records import SideCosts, TunedCase, Tuning
from pytest_modelperf.tuning.tables import (
    cost_table,
    format_interval,
    format_ms_of,
    format_speedup,
    tried_table,
)
from pytest_modelperf.tuning.text import (
    answer_lines,
    failure_lines,
    limit_lines,
    pasted_blocks,
    reason_lines,
)

_FOLDER = Path(__file__).with_name("html")
_DRAWINGS = Drawings(
    parts=(Drawing("tuning", "Speedups"),),
    styles=(_FOLDER / "tuning.css",),
    scripts=(_FOLDER / "tuning.js",),
    needs_plotly=False,
)


def render_tuning_page(tuning: Tuning, *, made: dt.datetime | None = None) -> str:
    return render_page(tuning_data(tuning), tuning_overview(tuning, made), _DRAWINGS)


def tuning_overview(tuning: Tuning, made: dt.datetime | None = None) -> Overview:
    failed = sum(case.failure is not None for case in tuning.cases)
    limits = tuning.limits
    memory = limits.memory_bytes
    rule = [
        ("confidence", format_confidence(tuning.confidence)),
        ("outputs may differ by", format_share(tuning.outputs_tolerance)),
        ("limit of latency", "" if limits.latency_ms is None else f"{limits.latency_ms:g} ms"),
        ("limit of memory", "" if memory is None else format_bytes(memory)),
        ("took", f"{tuning.seconds:.1f} s"),
    ]
    engine = "" if tuning.engine is None else tuning.engine.label
    return Overview(
        title=f"{tuning.model.name}: tuning",
        headline=f"{failed} of {count_of(len(tuning.cases), 'case')} failed" if failed else "",
        tone=Tone.BAD if failed else Tone.PLAIN,
        lines=tuple(_lines(tuning)),
        cases=_cases_table(tuning),
        tones=tuple(map(_tone, tuning.cases)),
        sections=tuple(_section(tuning, case) for case in tuning.cases),
        facts=(
            models_table([ModelRow("", tuning.model, engine)]),
            run_table([tuning.machine], rule, made),
        ),
    )


def _lines(tuning: Tuning) -> Iterator[str]:
    """The answer of each case."""
    for case in tuning.cases:
        if case.failure is None:
            name = f"{case.id}: " if len(tuning.cases) > 1 else ""
            yield f"{name}{next(answer_lines(case, tuning.confidence))}"


def _tone(case: TunedCase) -> Tone:
    if case.failure is not None:
        return Tone.BAD
    return Tone.PLAIN if case.winner is None else Tone.GOOD


def _cases_table(tuning: Tuning) -> Table:
    table = table_of(
        "",
        tuning.cases,
        (Column("case", is_text=True), lambda case: case.id),
        (Column("better", is_name=True), _answer),
        (Column("speedup"), lambda case: format_speedup(_speedup(case))),
        (Column("interval"), lambda case: format_interval(_speedup(case))),
        (Column("p50 ms now"), lambda case: format_ms_of(case.baseline.p50_ms)),
        (
            Column("p50 ms best"),
            lambda case: format_ms_of((case.winner_costs or SideCosts()).p50_ms),
        ),
        (Column("tried"), lambda case: str(len(case.tried))),
        (Column("rounds"), lambda case: str(case.rounds)),
    )
    return drop_blank_columns(table)


def _answer(case: TunedCase) -> str:
    if case.failure is not None:
        return "failed"
    return "nothing is shown to help" if case.winner is None else case.winner.name


def _speedup(case: TunedCase) -> Ratio | None:
    return None if case.confirmed is None else case.confirmed.speedup


def _section(tuning: Tuning, case: TunedCase) -> CaseSection:
    tables = (cost_table(case), tried_table(case, tuning.least_gain) if case.tried else None)
    return CaseSection(
        name=case.id,
        sentence="what was tried, and what it costs",
        tone=_tone(case),
        failure=tuple(failure_lines(case)),
        tables=tuple(table for table in tables if table is not None),
        facts=tuple(_facts(tuning, case)),
    )


def _facts(tuning: Tuning, case: TunedCase) -> Iterator[tuple[str, str]]:
    if case.failure is not None:
        return
    for line in answer_lines(case, tuning.confidence):
        yield "answer", line
    for line in limit_lines(case, tuning.limits):
        yield "limit", line
    for title, code in pasted_blocks(tuning, case):
        for index, line in enumerate(code.splitlines()):
            yield "" if index else title, line
    for line in reason_lines(case):
        yield "not recommended", line
    for note in case.notes:
        yield "note", note
