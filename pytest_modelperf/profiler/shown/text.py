"""The report of a profile that a terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from pytest_modelperf.profiler.records import CaseProfile, Outcome, Profile
from pytest_modelperf.profiler.shown.tables.generation import generation_table
from pytest_modelperf.profiler.shown.tables.layers import LayerView, layer_table
from pytest_modelperf.profiler.shown.tables.measured import (
    latency_tables,
    layer_type_time_table,
    performance_table,
)
from pytest_modelperf.profiler.shown.tables.static import (
    describe_model,
    layer_type_table,
    summary_table,
    uncounted_table,
)
from pytest_modelperf.report.page import Page, PageStyle, write_items
from pytest_modelperf.report.tables import transpose_table
from pytest_modelperf.text.escaping import printable

# Writes additional text about a case into the report.
Inset: TypeAlias = Callable[[Page], None]


def render_profile(
    profile: Profile,
    view: LayerView,
    style: PageStyle,
    insets: Mapping[str, Inset] | None = None,
) -> str:
    """The whole report of a profile: measurements, if it ran, and counts.

    `insets` write additional text about a case, by its id, below its layer types.
    """
    page = style.page()
    write_profile(page, profile, view, insets or {})
    return page.text()


def write_profile(
    page: Page, profile: Profile, view: LayerView, insets: Mapping[str, Inset]
) -> None:
    """Writes the report where more stands before or after it."""
    page.line(describe_model(profile.model), "bold")
    if any(case.measured or case.outcome is not Outcome.STATIC for case in profile.cases):
        _write_performance(page, profile)
    generation = generation_table(profile.cases)
    if generation is not None:
        page.table(generation, transpose_table(generation), generation)
    shown = _worth_showing(profile.cases, insets)
    known: set[int] = set()
    for case in shown:
        if len(shown) > 1:
            page.line("")
            page.line(printable(case.case.id), "bold")
        _write_case(
            page, case, view, insets.get(case.case.id), is_counted=id(case.counted) in known
        )
        known.add(id(case.counted))


def _write_performance(page: Page, profile: Profile) -> None:
    """The machine, how fast each case was, and how sure that is."""
    # Imported here: a static profile has none of it.
    from pytest_modelperf.profiler.shown.conditions import (
        describe_machine_line,
        doubt_lines,
        engine_lines,
        unmeasured_lines,
    )

    cases = profile.cases
    if profile.machine is not None:
        page.item(describe_machine_line(profile.machine))
    for line in engine_lines(cases):
        page.item(line)
    has_run = any(case.measured for case in cases)
    if has_run:
        page.table(performance_table(cases))
    write_items(page, unmeasured_lines(cases), "red")
    if has_run:
        page.table(*latency_tables(cases))
    write_items(page, doubt_lines(cases), "yellow")


def _worth_showing(cases: Sequence[CaseProfile], insets: Mapping[str, Inset]) -> list[CaseProfile]:
    """The cases with tables of their own.

    These are the cases with layer times or an inset, and one case of each other graph.
    """
    known = {id(case.counted) for case in cases if case.has_layer_times}
    shown: list[CaseProfile] = []
    for case in cases:
        is_new = case.counted is not None and id(case.counted) not in known
        if is_new or case.has_layer_times or case.case.id in insets:
            shown.append(case)
            known.add(id(case.counted))
    return shown


def _write_case(
    page: Page, case: CaseProfile, view: LayerView, inset: Inset | None, *, is_counted: bool
) -> None:
    """The tables of one case; tables of the graph only if no case before had them."""
    if case.counted is not None and not is_counted:
        page.table(summary_table(case))
        for note in case.counted.notes:
            page.line(f"note: {note}", "yellow")
        uncounted = uncounted_table(case.counted)
        if uncounted is not None:
            page.table(uncounted, style="yellow")
    if case.has_layer_times:
        page.table(layer_type_time_table(case))
    elif case.counted is not None and not is_counted:
        page.table(layer_type_table(case.counted))
    if inset is not None:
        inset(page)
    if case.has_layer_times or not is_counted:
        page.table(layer_table(case, view))
