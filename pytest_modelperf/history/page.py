"""A history as a page: the parts that need no JavaScript, and the scripts that draw the curves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

from pytest_modelperf.files.names import model_name
from pytest_modelperf.history.page_data import history_data
from pytest_modelperf.history.records import History, Step
from pytest_modelperf.history.run_page import is_web_address
from pytest_modelperf.history.text import (
    describe_step,
    format_shift,
    metric_title,
    name_case,
    no_point,
    remarks,
)
from pytest_modelperf.profiler.shown.case_page import CASE_DRAWINGS
from pytest_modelperf.profiler.shown.page_facts import run_table
from pytest_modelperf.report.html.drawings import Drawing, Drawings
from pytest_modelperf.report.html.overview import CaseSection, Link, Overview
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.text.words import count_of

_FOLDER = Path(__file__).with_name("html")
_DRAWINGS = Drawings(
    parts=(Drawing("history", "Curves", leads=True),),
    styles=(*CASE_DRAWINGS.styles, _FOLDER / "history.css"),
    scripts=tuple(_FOLDER / f"{name}.js" for name in ("history_curve", "history")),
    needs_plotly=False,
)
# A longer list is closed at first.
_MOST_OPEN_STEPS = 10


def render_history_page(
    history: History,
    commit_url: str | None = None,
    *,
    made: dt.datetime | None = None,
    allowed_drift: float | None = None,
) -> str:
    """The page; `commit_url` is the address of a commit, with `{commit}` in it.

    `allowed_drift` is how much the cost may grow since the first run: a line in each curve.
    """
    data = history_data(history, commit_url, allowed_drift=allowed_drift)
    return render_page(data, history_overview(history, made), _DRAWINGS)


def history_overview(history: History, made: dt.datetime | None = None) -> Overview:
    notes = (*history.notes, *remarks(history.cases))
    if not history.cases:
        notes = (no_point(history), *notes)
    tag = [] if history.tag is None else [("last tag", history.tag.name)]
    return Overview(
        title=f"History of {metric_title(history.metric)}",
        headline=_headline(history),
        lines=tuple(_lines(history)),
        sections=tuple(_sections(history)),
        facts=(run_table([], [*tag, ("intervals", "99 %")], made),),
        notes=notes,
    )


def _headline(history: History) -> str:
    """`3 steps in 2 of 300 cases`; empty without cases."""
    if not history.cases:
        return ""
    steps = [len(case.steps) for case in history.cases]
    where = f"{sum(map(bool, steps)):,} of {count_of(len(steps), 'case')}"
    return f"{count_of(sum(steps), 'step')} in {where}" if any(steps) else "no steps"


def _lines(history: History) -> Iterator[str]:
    if history.cases:
        points = [point.date for case in history.cases for point in case.points]
        models = len({case.model for case in history.cases})
        yield (
            f"{count_of(len(points), 'point')} of {count_of(len(history.cases), 'case')} of "
            f"{count_of(models, 'model')}, from {min(points).date()} to {max(points).date()}"
        )


def _sections(history: History) -> Iterator[CaseSection]:
    steps = tuple(_step_facts(history))
    if steps:
        yield CaseSection(
            name="Steps",
            sentence="where the cost of a case changed",
            facts=steps,
            links=tuple(_run_link(step) for case in history.cases for step in case.steps),
            is_open=len(steps) <= _MOST_OPEN_STEPS,
        )
    if history.cases:
        yield CaseSection(
            name="Cases",
            sentence="how much each changed",
            tables=(_cases_table(history),),
            is_open=False,
        )


def _step_facts(history: History) -> Iterator[tuple[str, str]]:
    """The name of a case and a sentence on its step, for each step."""
    for case in history.cases:
        for step in case.steps:
            reasons = "; ".join(step.after.reasons)
            sentence = f"{describe_step(step)}{reasons and f': {reasons}'}"
            yield name_case(case), f"on {case.machine}: {sentence}"


def _run_link(step: Step) -> Link | None:
    """The page of the run that is the first with the new level."""
    address = step.after.run_url
    return Link("the run", address) if address and is_web_address(address) else None


def _cases_table(history: History) -> Table:
    since_tag = "" if history.tag is None else f"since {history.tag.name}"
    table = table_of(
        "",
        history.cases,
        (Column("model", is_name=True), lambda case: model_name(case.model)),
        (Column("case", is_text=True), lambda case: case.case),
        (Column("engine", is_text=True), lambda case: case.engine or ""),
        (Column("machine", is_text=True), lambda case: case.machine),
        (Column("points"), lambda case: f"{case.count:,}"),
        (Column("since", is_text=True), lambda case: f"{case.first.date.date()}"),
        (Column("change"), lambda case: format_shift(case.since_first)),
        (
            Column(since_tag),
            lambda case: "" if case.since_tag is None else format_shift(case.since_tag),
        ),
        (Column("steps"), lambda case: f"{len(case.steps)}"),
    )
    return drop_blank_columns(table)
