"""The part of a profile's report that tells how fast the model was, and how sure that is."""

from __future__ import annotations

from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.shown.conditions import (
    describe_machine_line,
    doubt_lines,
    engine_lines,
    unmeasured_lines,
)
from pytest_modelperf.profiler.shown.tables.measured import latency_tables, performance_table
from pytest_modelperf.report.page import Page, write_items


def write_performance(page: Page, profile: Profile) -> None:
    """The machine, how fast each case was, and how sure that is."""
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
