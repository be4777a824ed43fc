"""Profiles, comparisons, sweeps and runs as what a page says of them without JavaScript."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_modelperf.machine_facts import MachineFacts
from pytest_modelperf.outcomes import CaseOutcome, RunReport
from pytest_modelperf.records import CaseProfile, Outcome, Profile
from pytest_modelperf.report.conditions import describe_engine, doubt_lines, unmeasured_lines
from pytest_modelperf.report.html.case_view import TONES, CaseView, cases_table
from pytest_modelperf.report.html.facts import (
    ModelRow,
    format_share,
    models_table,
    run_table,
)
from pytest_modelperf.report.html.latency_data import engine_name
from pytest_modelperf.report.html.overview import CaseSection, Overview, Tone
from pytest_modelperf.report.measured_tables import latency_tables, performance_table
from pytest_modelperf.report.model_names import name_models
from pytest_modelperf.report.outcome_names import name_outcomes
from pytest_modelperf.report.run_lines import (
    describe_counts,
    describe_ending,
    describe_outcome,
    describe_place,
    describe_writing,
    is_worth_a_line,
    list_names,
    next_steps,
    rank_outcome,
)
from pytest_modelperf.report.static_tables import summary_table, uncounted_table
from pytest_modelperf.report.sweep_tables import (
    format_limit,
    is_measured,
    labels_of,
    row_styles,
    scaling_table,
    whole_table,
)
from pytest_modelperf.report.sweep_text import unmeasured_lines as unmeasured_points
from pytest_modelperf.report.verdict_lines import (
    FAILED,
    OF_PYTEST,
    describe_run,
    describe_verdict,
    verdict_word,
)
from pytest_modelperf.sweeps import Sweep, SweepSide
from pytest_modelperf.text.units import format_rate
from pytest_modelperf.verdicts import Comparison, Verdict

# Of more cases, those that passed are a row of the table and no more.
_MAX_SECTIONS = 40


# -- a profile


def profile_overview(profile: Profile, made: dt.datetime | None = None) -> Overview:
    has_run = any(case.measured is not None for case in profile.cases)
    engines = [case.measured.engine for case in profile.cases if case.measured is not None]
    model = ModelRow("", profile.model, ", ".join(dict.fromkeys(map(engine_name, engines))))
    machines = [] if profile.machine is None else [profile.machine]
    asked = [("engine", describe_engine(e).removeprefix("engine ")) for e in engines]
    return Overview(
        title=profile.model.name,
        cases=performance_table(profile.cases) if has_run else None,
        tables=latency_tables(profile.cases)[:1] if has_run else (),
        sections=tuple(_counted_sections(profile.cases)),
        facts=(models_table([model]), run_table(machines, dict.fromkeys(asked), made)),
        notes=(*unmeasured_lines(profile.cases), *doubt_lines(profile.cases)),
    )


def _counted_sections(cases: Sequence[CaseProfile]) -> Iterator[CaseSection]:
    """What the graph tells, once for each set of shapes that it was bound to."""
    shown: set[int] = set()
    for case in cases:
        counted = case.counted
        if counted is None or id(counted) in shown:
            continue
        shown.add(id(counted))
        uncounted = uncounted_table(counted)
        yield CaseSection(
            name=case.case.id,
            sentence="what the graph tells",
            tone=Tone.PLAIN if case.outcome is not Outcome.FAILED else Tone.BAD,
            tables=(summary_table(case), *([] if uncounted is None else [uncounted])),
            facts=tuple(("note", note) for note in counted.notes),
            is_open=len(shown) == 1,
        )


# -- a comparison


def comparison_overview(
    comparison: Comparison,
    machine: MachineFacts | None = None,
    made: dt.datetime | None = None,
) -> Overview:
    views = [
        CaseView(name=case.id, word=verdict_word(case), compared=case) for case in comparison.cases
    ]
    headline = describe_run(comparison)
    engines = comparison.engines or ("",)
    rows = [
        ModelRow("A, before", comparison.before, engines[0]),
        ModelRow("B, now", comparison.after, engines[-1]),
    ]
    rule = [
        ("tolerance", format_share(comparison.tolerance)),
        ("confidence", format_share(comparison.confidence)),
        ("rounds", _took(comparison)),
    ]
    is_one = len(views) == 1
    return Overview(
        title=" → ".join(name_models((comparison.before, comparison.after))),
        headline=headline,
        tone=TONES[FAILED if headline == FAILED else comparison.verdict.value],
        cases=cases_table(views),
        tones=tuple(view.tone for view in views),
        sections=tuple(
            view.section(
                describe_verdict(view.compared, comparison.confidence),
                is_open=True if is_one else None,
            )
            for view in views
        ),
        facts=(models_table(rows), run_table([] if machine is None else [machine], rule, made)),
    )


def _took(comparison: Comparison) -> str:
    if comparison.rounds is None:
        return ""
    seconds = comparison.seconds
    return f"{comparison.rounds}" if seconds is None else f"{comparison.rounds} in {seconds:.1f} s"


# -- a test run


def run_overview(report: RunReport) -> Overview:
    named = list(zip(report.outcomes, name_outcomes(report.outcomes), strict=True))
    named.sort(key=lambda pair: rank_outcome(pair[0]))
    views = [_run_view(outcome, name) for outcome, name in named]
    steps = [f"{word}: {text}" for word, text in next_steps(report)]
    writing = [describe_writing(report)] if report.plans else []
    confidences = dict.fromkeys(
        format_share(o.confidence) for o in report.outcomes if o.comparison.rounds is not None
    )
    headline, ending = describe_counts(report.outcomes) or "no case", describe_ending(report)
    rule = [
        ("tolerance", format_share(report.tolerance)),
        ("confidence", ", ".join(filter(None, confidences))),
    ]
    return Overview(
        title="Model performance",
        headline=headline,
        tone=views[0].tone if views else Tone.PLAIN,
        lines=(describe_place(report), *([ending] if ending != f"{headline}." else [])),
        cases=cases_table(views) if views else None,
        tones=tuple(view.tone for view in views),
        sections=tuple(
            view.section(
                describe_outcome(outcome),
                options=OF_PYTEST,
                accept=_accept(outcome),
                advice=outcome.advice,
            )
            for view, (outcome, _) in zip(views, named, strict=True)
            if len(views) <= _MAX_SECTIONS or is_worth_a_line(outcome)
        ),
        facts=(
            models_table(ModelRow(o.baseline or "", o.model, o.engine) for o in report.outcomes),
            run_table(_machines(report), rule, report.started),
        ),
        notes=(*steps, *writing, *(f"note: {note}" for note in report.notes)),
    )


def _run_view(outcome: CaseOutcome, name: str) -> CaseView:
    case = outcome.comparison
    # The reason why a case is new is its verdict.
    is_new = case.verdict is Verdict.NEW and not case.has_failed
    return CaseView(
        name=name,
        word=outcome.word,
        compared=replace(case, reasons=case.reasons[1:]) if is_new else case,
        latency=outcome.latency,
        static=outcome.static,
    )


def _accept(outcome: CaseOutcome) -> str | None:
    """The command that takes it as it is, where it is one that may be taken so."""
    return outcome.accept if outcome.comparison.regressed else None


def _machines(report: RunReport) -> list[MachineFacts]:
    found = (report.machine, *(outcome.machine for outcome in report.outcomes))
    return [machine for machine in found if machine is not None]


# -- a sweep


def sweep_overview(sweep: Sweep, made: dt.datetime | None = None) -> Overview:
    sides = list(zip(labels_of(sweep), sweep.sides, strict=True))
    limit = "" if sweep.threshold_ms is None else format_limit(sweep.threshold_ms)
    rule = [
        ("threshold", limit),
        ("confidence", format_share(sweep.confidence)),
        ("passes", f"{sweep.passes} in {sweep.seconds:.1f} s" if sweep.passes else ""),
    ]
    measured = whole_table(sweep) if is_measured(sweep) else None
    scaling = (scaling_table(side, label) for label, side in sides)
    styles = () if measured is None else row_styles(measured)
    return Overview(
        title=" → ".join(name_models([side.model for side in sweep.sides])),
        headline=FAILED if sweep.has_failed else "",
        tone=Tone.BAD if sweep.has_failed else Tone.PLAIN,
        lines=tuple(_spot(label, side, limit) for label, side in sides),
        cases=measured,
        tones=tuple(Tone.GOOD if style else Tone.PLAIN for style in styles),
        tables=tuple(table for table in scaling if table is not None),
        sections=_sections_at_best(sweep),
        facts=(
            models_table(
                ModelRow(label, side.model, engine_name(side.engine) if side.engine else "")
                for label, side in sides
            ),
            run_table([] if sweep.machine is None else [sweep.machine], rule, made),
        ),
        notes=(*unmeasured_points(sweep), *(f"note: {note}" for note in sweep.notes)),
    )


def _sections_at_best(sweep: Sweep) -> tuple[CaseSection, ...]:
    if sweep.comparison is not None:
        return comparison_overview(sweep.comparison).sections
    return () if sweep.profile is None else profile_overview(sweep.profile).sections


def _spot(label: str, side: SweepSide, limit: str) -> str:
    """`A: best within 20 ms is b8-c2, 61.31 items/s; b4-c2 cannot be told from it`."""
    spot = side.spot
    within = f" within {limit}" if limit else ""
    if spot.best is not None:
        throughput = side.point(spot.best).throughput
        rate = format_rate(None if throughput is None else throughput.value)
        text = f"best{within} is {spot.best}, {rate} items/s"
    elif any(point.latency is not None for point in side.points):
        text = f"no configuration is surely{within}"
    else:
        text = "no configuration could be measured"
    if spot.equals:
        text += f"; {list_names(spot.equals)} cannot be told from it"
    if spot.undecided:
        text += f"; {list_names(spot.undecided)} may be{within} or beyond"
    return f"{label}: {text}" if label else text
