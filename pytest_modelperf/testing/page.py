"""A test run as an HTML page, as it reads without JavaScript."""

from __future__ import annotations

from pytest_modelperf.comparing.case_view import (
    CaseView,
    cases_rows,
    describe_views,
    worst_view,
)
from pytest_modelperf.profiler.shown.case_page import render_case_page
from pytest_modelperf.profiler.shown.page_facts import (
    ModelRow,
    format_share,
    models_table,
    run_table,
)
from pytest_modelperf.report.model import Choice, Line, Report, Tone
from pytest_modelperf.testing.outcome_names import name_outcomes
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport
from pytest_modelperf.testing.page_data import choices_of, run_data
from pytest_modelperf.testing.run_lines import (
    describe_alarms,
    describe_outcome,
    describe_place,
    describe_writing,
    is_worth_a_line,
    next_steps,
    rank_outcome,
    untold,
)
from pytest_modelperf.testing.wording import recording_with


def render_run_page(report: RunReport) -> str:
    return render_case_page(run_data(report), run_overview(report))


# If there are more cases, those that passed have only a row in the table.
_MAX_SECTIONS = 40


def run_overview(report: RunReport) -> Report:
    names, choices = name_outcomes(report.outcomes), choices_of(report)
    named = list(zip(report.outcomes, names, choices, strict=True))
    named.sort(key=lambda each: rank_outcome(each[0]))
    views = [_run_view(*each) for each in named]
    worst = worst_view(views)
    confidences = dict.fromkeys(
        format_share(o.confidence) for o in report.outcomes if o.comparison.rounds is not None
    )
    machines = (report.machine, *(outcome.machine for outcome in report.outcomes))
    rule = [
        ("tolerance", format_share(report.tolerance)),
        ("confidence", ", ".join(filter(None, confidences))),
    ]
    return Report(
        title="Model performance",
        headline=describe_views(views) if views else "no case",
        tone=Tone.BAD if report.errors else views[0].tone if views else Tone.PLAIN,
        opening=(
            *(Line(word="error", text=error) for error in report.errors),
            *(
                Line(text=text)
                for text in (describe_place(report), describe_alarms(report))
                if text
            ),
        ),
        blocks=(
            *([cases_rows(views)] if views else []),
            *(
                view.section(
                    describe_outcome(outcome),
                    recording_with(outcome.accept),
                    accept=outcome.accept if outcome.comparison.regressed else None,
                    advice=outcome.advice,
                    is_open=view is worst,
                )
                for view, (outcome, *_) in zip(views, named, strict=True)
                if len(views) <= _MAX_SECTIONS or is_worth_a_line(outcome)
            ),
        ),
        facts=(
            models_table(ModelRow(o.baseline or "", o.model, o.engine) for o in report.outcomes),
            run_table(machines, rule, report.started),
        ),
        closing=(
            *(Line(word=word, text=text) for word, text in next_steps(report)),
            *([Line(text=describe_writing(report))] if report.plans else []),
            *(Line(word="note", text=note) for note in report.notes),
        ),
    )


def _run_view(outcome: CaseOutcome, name: str, choice: Choice) -> CaseView:
    return CaseView(
        name=name,
        word=outcome.word,
        compared=untold(outcome),
        latency=outcome.latency,
        static=outcome.static,
        choice=choice,
    )
