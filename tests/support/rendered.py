"""Reports of the capabilities on each face, in one call."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.records import Comparison
from pytest_modelperf.comparing.report import comparison_report
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.shown.drawn import CaseAdditions, case_drawn
from pytest_modelperf.profiler.shown.report import profile_report
from pytest_modelperf.profiler.shown.tables.layers import LayerView
from pytest_modelperf.profiles.records import NamedProfile
from pytest_modelperf.profiles.report import named_report
from pytest_modelperf.report.exports import render_csv
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.markdown import MarkdownStyle
from pytest_modelperf.report.model import Report
from pytest_modelperf.report.page import PageStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.sweep.records import Sweep
from pytest_modelperf.sweep.report import sweep_report
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport
from pytest_modelperf.testing.report import MAX_BYTES, outcome_report, run_report
from pytest_modelperf.tracing.page_data import MOST_SPANS, TracePage
from pytest_modelperf.tracing.records import Event
from pytest_modelperf.tracing.report import TraceView, trace_report
from pytest_modelperf.tracing.totals import Grouping, Order, TraceSummarizer


def render_case_page(
    data: Mapping[str, Any],
    report: Report = Report(title="Model performance"),  # noqa: B008  # frozen
) -> str:
    """The page of a report, and what the scripts draw of the data."""
    return render_page(replace(report, drawn=case_drawn(lambda: data)))


def render_trace_page(events: Iterable[Event], most: int = MOST_SPANS) -> str:
    page, summarizer = TracePage("program.json", most), TraceSummarizer(Grouping.OPERATOR)
    for event in events:
        page.add(event)
        summarizer.add(event)
    summaries = summarizer.finish(Order.TOTAL)
    return render_page(trace_report(summaries, (), TraceView(Grouping.OPERATOR, None), page))


def render_profile(
    profile: Profile,
    view: LayerView,
    style: PageStyle,
    additions: CaseAdditions | None = None,
) -> str:
    return render_report(profile_report(profile, view, None, additions or CaseAdditions()), style)


def render_profile_page(
    profile: Profile,
    *,
    made: dt.datetime | None = None,
    additions: CaseAdditions | None = None,
) -> str:
    return render_page(profile_report(profile, None, made, additions or CaseAdditions()))


def render_profile_csv(profile: Profile, columns: Sequence[str]) -> str:
    return render_csv(profile_report(profile, LayerView(columns)))


def render_named(named: NamedProfile, view: LayerView, style: PageStyle) -> str:
    return render_report(named_report(named, view), style)


def render_comparison(
    comparison: Comparison, style: PageStyle, wording: Wording = COMMAND_WORDING
) -> str:
    return render_report(comparison_report(comparison, wording), style)


def render_comparison_markdown(comparison: Comparison) -> str:
    return render_comparison(comparison, MarkdownStyle())


def render_comparison_csv(comparison: Comparison) -> str:
    return render_csv(comparison_report(comparison, COMMAND_WORDING))


def render_comparison_page(
    comparison: Comparison,
    *,
    machine: MachineFacts | None = None,
    made: dt.datetime | None = None,
) -> str:
    return render_page(comparison_report(comparison, COMMAND_WORDING, machine=machine, made=made))


def render_sweep(sweep: Sweep, style: PageStyle) -> str:
    return render_report(sweep_report(sweep, COMMAND_WORDING), style)


def render_sweep_page(sweep: Sweep) -> str:
    return render_page(sweep_report(sweep, COMMAND_WORDING))


def render_outcome(outcome: CaseOutcome, style: PageStyle, *, verbosity: int = 0) -> str:
    return render_report(outcome_report(outcome), style, has_details=verbosity > 0)


def render_summary(report: RunReport, style: PageStyle, *, verbosity: int = 0) -> str:
    return render_report(run_report(report, verbosity=verbosity), style).lstrip("\n")


def render_run_markdown(report: RunReport) -> str:
    return render_report(run_report(report), MarkdownStyle(MAX_BYTES))


def render_run_page(report: RunReport) -> str:
    return render_page(run_report(report))
