"""A comparison as an HTML page, as it looks without JavaScript."""

from __future__ import annotations

import datetime as dt

from pytest_modelperf.comparing.case_view import (
    CaseView,
    cases_rows,
    describe_views,
    worst_view,
)
from pytest_modelperf.comparing.page_data import comparison_data
from pytest_modelperf.comparing.records import Comparison
from pytest_modelperf.comparing.verdict_lines import describe_verdict, verdict_word
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.shown.case_page import render_case_page
from pytest_modelperf.profiler.shown.model_names import name_models
from pytest_modelperf.profiler.shown.page_facts import (
    ModelRow,
    format_share,
    models_table,
    run_table,
)
from pytest_modelperf.report.model import Choice, Report
from pytest_modelperf.text.units import format_confidence


def render_comparison_page(
    comparison: Comparison,
    wording: Wording,
    *,
    machine: MachineFacts | None = None,
    made: dt.datetime | None = None,
) -> str:
    """The whole page; `machine` is the one that both models ran on, where it is known."""
    report = comparison_overview(comparison, wording, machine, made)
    return render_case_page(comparison_data(comparison), report)


def comparison_overview(
    comparison: Comparison,
    wording: Wording,
    machine: MachineFacts | None = None,
    made: dt.datetime | None = None,
) -> Report:
    views = [
        CaseView(name=case.id, word=verdict_word(case), compared=case, choice=Choice(0, place))
        for place, case in enumerate(comparison.cases)
    ]
    engines, confidence = comparison.engines or ("",), comparison.confidence
    rows = [
        ModelRow("A, before", comparison.before, engines[0]),
        ModelRow("B, now", comparison.after, engines[-1]),
    ]
    rule = [
        ("tolerance", format_share(comparison.tolerance)),
        ("confidence", "" if confidence is None else format_confidence(confidence)),
        ("rounds", _took(comparison)),
    ]
    worst = views[0] if len(views) == 1 else worst_view(views)
    return Report(
        title=" → ".join(name_models((comparison.before, comparison.after))),
        headline=describe_views(views),
        tone=min(views, key=lambda view: view.rank).tone,
        blocks=(
            cases_rows(views),
            *(
                view.section(
                    describe_verdict(view.compared, comparison.confidence),
                    wording,
                    is_open=view is worst,
                )
                for view in views
            ),
        ),
        facts=(models_table(rows), run_table([machine], rule, made)),
    )


def _took(comparison: Comparison) -> str:
    if comparison.rounds is None:
        return ""
    seconds = comparison.seconds
    return f"{comparison.rounds}" if seconds is None else f"{comparison.rounds} in {seconds:.1f} s"
