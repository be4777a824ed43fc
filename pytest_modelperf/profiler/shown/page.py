"""A profile as a page: the part that needs no JavaScript."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from pytest_modelperf.profiler.records import CaseProfile, Outcome, Profile
from pytest_modelperf.profiler.shown.case_page import PageAddition, render_case_page
from pytest_modelperf.profiler.shown.conditions import (
    describe_engine,
    describe_failed,
    doubt_lines,
    unmeasured_lines,
)
from pytest_modelperf.profiler.shown.page_data import profile_data
from pytest_modelperf.profiler.shown.page_facts import ModelRow, models_table, run_table
from pytest_modelperf.profiler.shown.page_tiles import profile_tiles
from pytest_modelperf.profiler.shown.tables.generation import generation_table
from pytest_modelperf.profiler.shown.tables.measured import latency_tables, performance_table
from pytest_modelperf.profiler.shown.tables.static import summary_table, uncounted_table
from pytest_modelperf.report.model import Choice, Line, Paragraph, Report, Rows, Section, Tone


def render_profile_page(
    profile: Profile, *, made: dt.datetime | None = None, addition: PageAddition | None = None
) -> str:
    return render_case_page(profile_data(profile), profile_report(profile, made), addition)


def profile_report(profile: Profile, made: dt.datetime | None = None) -> Report:
    failed = describe_failed(profile.cases)
    generation = generation_table(profile.cases)
    has_run = any(case.measured is not None for case in profile.cases)
    engines = [case.measured.engine for case in profile.cases if case.measured is not None]
    model = ModelRow(
        "", profile.model, ", ".join(dict.fromkeys(engine.label for engine in engines))
    )
    machines = [] if profile.machine is None else [profile.machine]
    asked = [("engine", describe_engine(e).removeprefix("engine ")) for e in engines]
    return Report(
        title=profile.model.name,
        headline=failed,
        tone=Tone.BAD if failed else Tone.PLAIN,
        tiles=profile_tiles(profile.cases),
        blocks=(
            *([_performance_rows(profile.cases)] if has_run else []),
            *map(Rows, latency_tables(profile.cases)[:1] if has_run else ()),
            *([] if generation is None else [Rows(generation)]),
            *_counted_sections(profile.cases),
        ),
        facts=(models_table([model]), run_table(machines, dict.fromkeys(asked), made)),
        closing=tuple(
            Line(text=text)
            for text in (*unmeasured_lines(profile.cases), *doubt_lines(profile.cases))
        ),
    )


def _performance_rows(cases: Sequence[CaseProfile]) -> Rows:
    measured = (place for place, case in enumerate(cases) if case.measured is not None)
    choices = tuple(Choice(0, place) for place in measured)
    return Rows(performance_table(cases), (), choices)


def _counted_sections(cases: Sequence[CaseProfile]) -> Iterator[Section]:
    """The counts of the graph, once for each set of shapes that it was bound to."""
    shown: set[int] = set()
    for place, case in enumerate(cases):
        counted = case.counted
        if counted is None or id(counted) in shown:
            continue
        shown.add(id(counted))
        uncounted = uncounted_table(counted)
        tables = (summary_table(case), *([] if uncounted is None else [uncounted]))
        notes = tuple(Line(word="note", text=note) for note in counted.notes)
        yield Section(
            title=case.case.id,
            sentence="counts of its graph",
            tone=Tone.PLAIN if case.outcome is not Outcome.FAILED else Tone.BAD,
            blocks=(*map(Rows, tables), *([Paragraph(notes)] if notes else [])),
            is_open=False,
            choice=Choice(0, place),
        )
