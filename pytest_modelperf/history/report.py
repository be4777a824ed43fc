"""A history as a report: a row for each case, its steps, and what drifted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.files.names import model_name
from pytest_modelperf.history.page_data import (
    case_name,
    describe_beginning,
    describe_step,
    format_shift,
    history_data,
    metric_title,
    name_case,
    name_place,
    sparkline,
)
from pytest_modelperf.history.records import (
    INTERVAL_QUANTILE,
    LISTED_POINTS,
    CaseHistory,
    History,
    HistoryPoint,
    Step,
    shift_since,
)
from pytest_modelperf.history.repository import is_web_address
from pytest_modelperf.history.summary import Drift
from pytest_modelperf.profiler.shown.drawn import CASE_DRAWINGS
from pytest_modelperf.profiler.shown.facts import run_table
from pytest_modelperf.report.model import (
    Drawing,
    Drawings,
    Drawn,
    Line,
    Link,
    Paragraph,
    Report,
    Rows,
    Section,
    Sheet,
    Tone,
    lines_of,
)
from pytest_modelperf.report.tables import MIN_TEXT, Cell, Column, FilledColumn, Table, table_of
from pytest_modelperf.text.words import count_of

_FOLDER = Path(__file__).with_name("html")
_DRAWINGS = Drawings(
    parts=(Drawing("history", "Curves", leads=True),),
    styles=(*CASE_DRAWINGS.styles, _FOLDER / "history.css"),
    scripts=tuple(_FOLDER / f"{name}.js" for name in ("history_curve", "history")),
    needs_plotly=False,
)
# A longer list is folded at first.
_MOST_OPEN_STEPS = 10
_MAX_FINDINGS = 3
# The verdicts of runs that failed.
_FAILED = frozenset({"regressed", "over budget"})
_DAY_LENGTH = 10
_NO_POINT = (
    "no point has a {metric}: a run measures it against a baseline; --metric macs lists what every "
    "run counts"
)
_NO_FIGURE = "no point has a {metric}: not stored yet; the next run will store it"
_NONE_SINCE = "no point since {day} has a {metric}: an earlier day for --since lists more"
_SHEET_COLUMNS = ("model", "machine", "case", "engine", "date", "commit", "verdict", "baseline",
                  "ratio", "low", "high", "is_step")  # fmt: skip


def history_report(
    history: History,
    made: dt.datetime | None = None,
    *,
    commit_url: str | None = None,
    allowed_drift: float | None = None,
    drifts: Sequence[Drift] = (),
) -> Report:
    """Return the cases in a table, and each step with its reasons.

    `commit_url` is the address of a commit, with `{commit}` in it. `allowed_drift` is how much the
    cost may grow since the first run, shown as a line in each curve. `drifts` grew by more.
    """
    name = f"history of {metric_title(history.metric)}"
    headline = _headline(history)
    tag = [] if history.tag is None else [("last tag", history.tag.name)]
    beginnings = (
        f"{name_case(case)}: {describe_beginning(case)}"
        for case in history.cases
        if case.earlier_points
    )
    return Report(
        title=f"H{name[1:]}",
        subject=f"{name}{headline and ': '}{headline}",
        headline=headline,
        opening=(Line(text=_describe(history)), *drift_lines(drifts, allowed_drift or 0.0)),
        findings=tuple(_findings(history)),
        blocks=tuple(_sections(history)),
        closing=lines_of((*history.notes, *beginnings), "note"),
        facts=(run_table([], [*tag, ("intervals", "99 %")], made),),
        sheet=Sheet(_SHEET_COLUMNS, _PointRows(history)),
        drawn=Drawn(
            _DRAWINGS, partial(history_data, history, commit_url, allowed_drift=allowed_drift)
        ),
    )


def _findings(history: History) -> Iterator[Section]:
    """Yield the latest steps that made a case slower, then other cases whose last run failed.

    No later step followed a step that is shown.
    """
    last = [(case, case.steps[-1]) for case in history.cases if case.steps]
    worse = [each for each in last if each[1].shift.change > 0]
    worse.sort(key=lambda each: (each[1].after.date, each[1].shift.change), reverse=True)
    steps = [_finding(case, "step", describe_step(step), step.after) for case, step in worse]
    stepped = {id(case) for case, _ in worse}
    failed = [
        _finding(case, point.verdict, f"the last run, at {name_place(point)}", point)
        for case in history.cases
        if id(case) not in stepped and (point := case.points[-1]).verdict in _FAILED
    ]
    yield from (*steps, *failed)[:_MAX_FINDINGS]


def _finding(case: CaseHistory, word: str, sentence: str, point: HistoryPoint) -> Section:
    page = _run_link(point)
    run = () if page is None else (Line(text="made by", link=page),)
    return Section(
        title=name_case(case),
        word=word,
        sentence=f"on {case.machine}: {sentence}",
        tone=Tone.BAD,
        blocks=(Paragraph((*lines_of(point.reasons, "why"), *run)),),
    )


def drift_lines(drifts: Sequence[Drift], allowed: float) -> tuple[Line, ...]:
    return tuple(
        Line(
            word="drift",
            text=f"{name_case(drift.case)} is {format_shift(drift.shift)} since {drift.since}, "
            f"and {100 * allowed:g} % is allowed",
            tone=Tone.BAD,
        )
        for drift in drifts
    )


def _headline(history: History) -> str:
    """Return `3 steps in 2 of 300 cases; 1 failed in the last run`, or "" without cases."""
    if not history.cases:
        return ""
    steps = [len(case.steps) for case in history.cases]
    changed = f"{sum(map(bool, steps)):,} of {count_of(len(steps), 'case')}"
    shown = f"{count_of(sum(steps), 'step')} in {changed}" if any(steps) else "no steps"
    failed = sum(case.points[-1].verdict in _FAILED for case in history.cases)
    return f"{shown}; {failed:,} failed in the last run" if failed else shown


def _describe(history: History) -> str:
    """Return the number of points, or the reason for none."""
    cases, title = history.cases, metric_title(history.metric)
    if cases:
        points = count_of(sum(case.count for case in cases), "point")
        models = count_of(len({case.model for case in cases}), "model")
        first = min(case.first.date for case in cases).date()
        last = max(case.points[-1].date for case in cases).date()
        return f"{points} of {count_of(len(cases), 'case')} of {models}, from {first} to {last}"
    if history.since is not None:
        return _NONE_SINCE.format(day=history.since.date(), metric=title)
    return (_NO_FIGURE if history.metric.is_exact else _NO_POINT).format(metric=title)


def _sections(history: History) -> Iterator[Section]:
    if history.cases:
        yield Section(
            title="Cases",
            sentence="how much each changed",
            blocks=(Rows(_cases_table(history)),),
            is_open=False,
        )
    steps = tuple(_step_line(case, step) for case in history.cases for step in case.steps)
    yield Section(
        title="Steps",
        sentence="where the cost of a case changed",
        blocks=(Paragraph(steps),),
        is_open=len(steps) <= _MOST_OPEN_STEPS,
    )


def _step_line(case: CaseHistory, step: Step) -> Line:
    """Return the step with its reasons, and the page of the first run with the new level."""
    reasons = "; ".join(step.after.reasons)
    return Line(
        word=name_case(case),
        text=f"on {case.machine}: {describe_step(step)}{reasons and ': '}{reasons}",
        link=_run_link(step.after),
    )


def _run_link(point: HistoryPoint) -> Link | None:
    address = point.run_url
    return Link("the run", address) if address and is_web_address(address) else None


def _cases_table(history: History) -> Table:
    tag = history.tag
    since_tag: list[FilledColumn[CaseHistory]] = (
        []
        if tag is None
        else [(Column(f"since {tag.name}"), lambda case: format_shift(case.since_tag))]
    )
    return table_of(
        "",
        history.cases,
        (Column("model", is_name=True, least=MIN_TEXT), lambda case: model_name(case.model)),
        (
            Column("case", is_name=True, least=MIN_TEXT),
            lambda case: case_name(case.case, case.engine),
        ),
        (
            Column("history", is_text=True, least=LISTED_POINTS),
            lambda case: sparkline([point.level for point in case.points[-LISTED_POINTS:]]),
        ),
        (Column("points"), lambda case: f"{case.count:,}"),
        (
            Column("since", is_text=True, least=_DAY_LENGTH),
            lambda case: f"{case.first.date.date()}",
        ),
        (Column("change"), lambda case: format_shift(case.since_first)),
        (Column("steps"), lambda case: f"{len(case.steps)}"),
        *since_tag,
        (Column("machine", is_name=True), lambda case: case.machine),
    )


class _PointRows(Struct, frozen=True):
    """The rows of up to hundreds of thousands of points, each made when it is written.

    The ratios are relative to the first point of each case; `is_step` marks change points.
    """

    history: History

    def __iter__(self) -> Iterator[tuple[Cell, ...]]:
        for case in self.history.cases:
            steps = {id(step.after) for step in case.steps}
            for point in case.points:
                shift = shift_since(case.first, point)
                low, high = shift.bounds(INTERVAL_QUANTILE)
                yield (
                    case.model, case.machine, case.case, case.engine, point.date.isoformat(),
                    point.commit, point.verdict, point.baseline, shift.ratio,
                    1.0 + low, 1.0 + high, int(id(point) in steps),
                )  # fmt: skip
