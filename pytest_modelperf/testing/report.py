"""Reports of a run: the failure of one test, the summary of all cases, the JSON and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from pytest_modelperf.baselines.report import plan_table
from pytest_modelperf.comparing.figures import describe_sides
from pytest_modelperf.comparing.page_data import (
    ShownComparison,
    compared_model,
    comparison_picture,
    engine_of_runs,
)
from pytest_modelperf.comparing.records import RECORDED, CaseComparison, Verdict
from pytest_modelperf.comparing.report import (
    case_blocks,
    case_finding,
    case_section,
    main_blocks,
    views_with_findings,
)
from pytest_modelperf.comparing.tables import (
    CaseView,
    cases_rows,
    count_views,
    describe_views,
    worst_view,
)
from pytest_modelperf.comparing.verdict_lines import SEVERITY, failing_metrics, is_quiet
from pytest_modelperf.profiler.generation import NamedFigures
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.shown.drawn import case_drawn
from pytest_modelperf.profiler.shown.facts import (
    ModelRow,
    describe_machine_line,
    format_share,
    models_table,
    run_table,
)
from pytest_modelperf.profiler.shown.names import name_models
from pytest_modelperf.profiler.shown.page_data import side_entry, whole_page
from pytest_modelperf.profiler.shown.page_latency import Entry, RanFigures
from pytest_modelperf.profiler.shown.tables.cases import table_of_generations
from pytest_modelperf.report.document import dump_document
from pytest_modelperf.report.model import (
    Choice,
    Code,
    Line,
    Link,
    On,
    Paragraph,
    Report,
    ReportBlock,
    Rows,
    Section,
    Tone,
    lines_of,
)
from pytest_modelperf.report.picture.drawn import MOST_BOXES
from pytest_modelperf.report.picture.layout import SeenBox, seen_boxes
from pytest_modelperf.testing.outcome_names import name_outcomes
from pytest_modelperf.testing.outcomes import RUN, CaseOutcome, RunReport
from pytest_modelperf.testing.wording import (
    describe_alarms,
    describe_ending,
    describe_outcome,
    describe_place,
    describe_writing,
    is_worth_a_line,
    next_steps,
    profile_alone,
    rank_outcome,
    recording_with,
    view_of,
    without_shown_reason,
)
from pytest_modelperf.text.words import join_words, list_names


def run_data(report: RunReport) -> Entry:
    """Return the page data: one model per baseline, or per path without one, in outcome order."""
    groups: dict[int, list[tuple[CaseOutcome, str]]] = {}
    outcomes, choices = report.outcomes, choices_of(report)
    for choice, outcome, name in zip(choices, outcomes, name_outcomes(outcomes), strict=True):
        groups.setdefault(choice.model, []).append((outcome, name))
    named = list(groups.values())
    names = name_models([pairs[0][0].model for pairs in named])
    ranks = [min(rank_outcome(outcome) for outcome, _ in pairs) for pairs in named]
    worst = ranks.index(min(ranks)) if ranks else 0
    return whole_page([_tested_model(*each) for each in zip(names, named, strict=True)], worst)


def choices_of(report: RunReport) -> list[Choice]:
    """Return the indices of the model and the case of each outcome in the page data."""
    models: dict[tuple[str | None, str], int] = {}
    cases = Counter[int]()
    choices = []
    for outcome in report.outcomes:
        model, baseline = outcome.model, outcome.baseline
        key = (baseline, (model.path or model.name) if baseline is None else "")
        place = models.setdefault(key, len(models))
        choices.append(Choice(place, cases[place]))
        cases[place] += 1
    return choices


def _tested_model(model: str, named: Sequence[tuple[CaseOutcome, str]]) -> Entry:
    shown = []
    times = Counter[str]()
    for outcome, name in named:
        case_id = outcome.case_id
        times[case_id] += 1
        # Several tests may check the same case of one model.
        own_id = case_id if times[case_id] == 1 else f"{case_id} ({times[case_id]})"
        alone = None if outcome.latency is None else RanFigures(latency=outcome.latency)
        counted = None if outcome.static is None else outcome.static.layer_types
        shown.append(
            ShownComparison(own_id, name, outcome.word, outcome.comparison, alone, counted)
        )
    engine = next((outcome.engine for outcome, _ in named if outcome.engine), "")
    now = side_entry("", model, engine)
    if not any(each.has_before for each in shown):
        return compared_model(model, [now], shown)
    before = engine_of_runs(each.compared.before for each in shown)
    sides = [side_entry("A", "before", before), {**now, "label": "B"}]
    return compared_model(model, sides, shown)


# -- a run as a report


# GitHub does not show a longer summary.
MAX_BYTES = 1 << 20
# With more cases, a terminal shows at most this many lines, only for cases that need attention.
# Markdown folds the other cases, and a page has no sections for them.
MAX_LINES = 40
MAX_PLANS = 20
# If there are many cases, these are only counted.
_SUMMED_UP = frozenset(
    {
        Verdict.PASSED.value,
        Verdict.UNCHANGED.value,
        Verdict.IMPROVED.value,
        Verdict.NEW.value,
        RECORDED,
    }
)
# The table says everything about these.
_HAVE_NO_SECTION = frozenset({Verdict.PASSED, Verdict.UNCHANGED, Verdict.NEW})
_QUIET, _VERBOSE = -1, 1


# -- one test


def outcome_report(outcome: CaseOutcome) -> Report:
    """Report the failure of one test: what happened, with which confidence, why, and what to type.

    The details are all figures, layers, reasons and notes.
    """
    case, shown = outcome.comparison, without_shown_reason(outcome)
    failing = failing_metrics(case)
    headline = describe_outcome(outcome)
    # A change from 0 has no percentage, so the headline already has both values.
    if len(failing) == 1 and failing[0].ratio is not None:
        headline = "; ".join(filter(None, (headline, describe_sides(failing[0]))))
    wording = recording_with(outcome.accept)
    return Report(
        title=case.id,
        subject=headline,
        tone=view_of(outcome, "").tone,
        opening=tuple(_whose(outcome)),
        blocks=(
            *(replace(block, is_brief=True) for block in main_blocks(shown, wording)),
            *(replace(block, is_detail=True) for block in case_blocks(shown, wording)),
            *_advice(outcome),
        ),
    )


def _whose(outcome: CaseOutcome) -> Iterator[Line]:
    case, model = outcome.comparison, outcome.model
    if case.id not in outcome.test:
        place = "" if model.function_file is None else f" from {model.function_file}"
        yield Line(word="case", text=f"{case.id} of {model.name}{place}")


def _advice(outcome: CaseOutcome) -> Iterator[ReportBlock]:
    """Yield the command that accepts or records the case, or runs it alone."""
    case = outcome.comparison
    if case.has_failed:
        command = None if outcome.is_upgrade else profile_alone(outcome)
        if command is not None:
            yield Code("try it alone", command, is_command=True)
        return
    if case.regressed and outcome.advice is not None:
        yield Paragraph((Line(word="accept", text=outcome.advice),))
    is_changed = bool(case.regressed) or case.is_too_good
    if outcome.accept is not None and (is_changed or case.verdict is Verdict.NEW):
        word = "accept" if is_changed else "record"
        yield Code(word, outcome.accept, is_command=True)


def short_verdict(outcome: CaseOutcome) -> str:
    """Return the verdict in one line for lists: `regressed: p50 latency +11.8 %, ...`."""
    return describe_outcome(outcome, is_short=True)


# -- the run


def run_report(report: RunReport, *, verbosity: int = 0, links: Sequence[Link] = ()) -> Report:
    """Report the outcomes of all cases, the worst first, and what to do next.

    On a terminal, cases that passed have no line if the verbosity is below 0, and all have one from
    1 on. The notes of the run are always shown, because they say what it did not do. A page has the
    `links`.
    """
    views = list(map(view_of, report.outcomes, name_outcomes(report.outcomes), choices_of(report)))
    named = sorted(zip(report.outcomes, views, strict=True), key=lambda each: each[1].rank)
    views = [view for _, view in named]
    confidences = dict.fromkeys(
        format_share(o.confidence) for o in report.outcomes if o.comparison.rounds is not None
    )
    rule = [
        ("tolerance", format_share(report.tolerance)),
        ("confidence", ", ".join(filter(None, confidences))),
    ]
    return Report(
        title="Model performance",
        headline=describe_views(views) if views else "no case",
        counts=count_views(views) if views else "",
        tone=Tone.BAD if report.errors else views[0].tone if views else Tone.PLAIN,
        opening=tuple(_opening(report, verbosity)),
        links=tuple(links),
        findings=tuple(_findings(named)),
        blocks=(
            *(_plan_blocks(report, verbosity) if report.plans else ()),
            *_table_blocks(named, verbosity),
            *_ending_blocks(report, named, verbosity),
            *_sections(named),
            *_quiet_sections(named),
        ),
        closing=lines_of(report.notes, "note"),
        facts=(
            models_table(ModelRow(o.baseline or "", o.model, o.engine) for o in report.outcomes),
            run_table(_machines(report), rule, report.started),
        ),
        drawn=case_drawn(partial(run_data, report)),
    )


Named = tuple[CaseOutcome, CaseView]


def _machines(report: RunReport) -> list[MachineFacts]:
    found = (report.machine, *(outcome.machine for outcome in report.outcomes))
    return [machine for machine in found if machine is not None]


def _opening(report: RunReport, verbosity: int) -> Iterator[Line]:
    # On a terminal, pytest shows the errors.
    others = On.MARKDOWN | On.PAGE
    yield from (Line(word="error", text=error, on=others) for error in report.errors)
    is_on_terminal = bool(report.outcomes) and verbosity > _QUIET
    yield Line(text=describe_place(report), on=On.ALL if is_on_terminal else others)
    described = dict.fromkeys(map(describe_machine_line, _machines(report)))
    yield from (Line(text=text, on=On.PAGE) for text in described)
    alarms = describe_alarms(report)
    if alarms:
        yield Line(text=alarms, on=On.PAGE)


def _plan_blocks(report: RunReport, verbosity: int) -> Iterator[ReportBlock]:
    changing = [plan for plan in report.plans if not plan.is_empty]
    lines = [Line(text=describe_writing(report), is_bold=True)]
    if verbosity > _QUIET:
        shown = changing if verbosity >= _VERBOSE else changing[:MAX_PLANS]
        yield from (Rows(plan_table(plan), on=On.TERMINAL) for plan in shown)
        more = len(changing) - len(shown)
        if more:
            text = f"{more:,} more baselines change: -v lists how"
            lines.insert(0, Line(text=text, on=On.TERMINAL))
    yield Paragraph(tuple(lines))


def _table_blocks(named: Sequence[Named], verbosity: int) -> Iterator[ReportBlock]:
    """Yield the tables of cases. If there are many, texts show only those that need attention."""
    whole = [view for _, view in named]
    shown = [view for outcome, view in named if _has_line(outcome, len(named), verbosity)]
    if verbosity < _VERBOSE:
        shown = shown[:MAX_LINES]
    if shown:
        yield cases_rows(shown, on=On.TERMINAL)
    if len(named) <= MAX_LINES:
        if whole:
            yield cases_rows(whole, on=On.MARKDOWN | On.PAGE)
    else:
        yield cases_rows(whole, on=On.PAGE)
        worth = [view for outcome, view in named if is_worth_a_line(outcome)]
        if worth:
            yield cases_rows(worth, on=On.MARKDOWN)
    yield from _generations([each for each in named if each[1] in shown])
    hidden = [outcome for outcome, view in named if view not in shown]
    if hidden and (verbosity > _QUIET or any(map(is_worth_a_line, hidden))):
        yield Paragraph((Line(text=_describe_hidden(hidden)),), on=On.TERMINAL)


def _generations(named: Sequence[Named]) -> Iterator[ReportBlock]:
    figures = [
        NamedFigures(view.name, outcome.comparison.case.phase, outcome.generation)
        for outcome, view in named
        if outcome.comparison.case.phase is not None
        and outcome.generation is not None
        and outcome.latency is not None
        and not outcome.is_upgrade
    ]
    table = table_of_generations(figures)
    if table is not None:
        yield Rows(table, may_turn=True)


def _has_line(outcome: CaseOutcome, cases: int, verbosity: int) -> bool:
    if verbosity <= _QUIET:
        return is_worth_a_line(outcome)
    return verbosity >= _VERBOSE or cases <= MAX_LINES or outcome.word not in _SUMMED_UP


def _describe_hidden(hidden: Sequence[CaseOutcome]) -> str:
    """Return `1,980 passed and unchanged cases are not shown: -v lists them`."""
    found = {outcome.word for outcome in hidden}
    words = join_words([word for word in SEVERITY if word in found])
    is_one = len(hidden) == 1
    cases, them = ("case is", "it") if is_one else ("cases are", "them")
    return f"{len(hidden):,} {words} {cases} not shown: -v lists {them}"


def _ending_blocks(
    report: RunReport, named: Sequence[Named], verbosity: int
) -> Iterator[ReportBlock]:
    """Yield the notes of the cases, the end of the run, and the next steps."""
    is_quiet = verbosity <= _QUIET
    if not is_quiet:
        yield Paragraph(tuple(_notes(named, verbosity)), on=On.TERMINAL)
    ending = Line(text=describe_ending(report), is_bold=True, on=On.TEXT)
    steps = tuple(Line(word=word, text=text) for word, text in next_steps(report))
    if report.outcomes:
        yield Paragraph((ending, *(() if is_quiet else steps)), on=On.TEXT)
    yield Paragraph(steps, on=On.PAGE)


def _findings(named: Sequence[Named]) -> Iterator[Section]:
    """Yield the cases that need attention, each with the command that accepts it."""
    shown = views_with_findings([view for _, view in named])
    for outcome, view in named:
        if any(view is each for each in shown):
            wording = recording_with(outcome.accept)
            yield case_finding(view, describe_outcome(outcome), wording, _advice(outcome))


def _notes(named: Sequence[Named], verbosity: int) -> Iterator[Line]:
    found: dict[str, list[str]] = {}
    for outcome, view in named:
        # The notes on a recorded program say what later runs cannot compare.
        is_recorded_program = outcome.program is not None
        if verbosity >= _VERBOSE or outcome.comparison.is_unjudged or is_recorded_program:
            for note in outcome.comparison.notes:
                found.setdefault(note, []).append(view.name)
    for note, names in found.items():
        yield Line(word="note", text=f"{note} ({list_names(names)})")


def _sections(named: Sequence[Named]) -> Iterator[Section]:
    """Yield a section for each case with more details in Markdown or on a page."""
    worst = worst_view([view for _, view in named])
    for outcome, view in named:
        on = On(0)
        if len(named) <= MAX_LINES or is_worth_a_line(outcome):
            on |= On.PAGE
        if outcome.has_failed or outcome.verdict not in _HAVE_NO_SECTION:
            on |= On.MARKDOWN
        if not on:
            continue
        blocks = [*case_blocks(view.compared, recording_with(outcome.accept), outcome.advice)]
        is_changed = outcome.comparison.regressed or outcome.comparison.is_too_good
        if is_changed and outcome.accept is not None:
            blocks.append(Code("To accept it", outcome.accept, is_command=True))
        sentence = describe_outcome(outcome)
        yield replace(case_section(view, sentence, blocks, is_open=view is worst), on=on)


def _quiet_sections(named: Sequence[Named]) -> Iterator[Section]:
    """Yield the cases that need no attention, if the table of a summary does not have them."""
    quiet = [view for outcome, view in named if not is_worth_a_line(outcome)]
    if quiet and len(named) > MAX_LINES:
        yield Section(
            title=f"{len(quiet):,} cases that passed or are unchanged",
            blocks=(cases_rows(quiet),),
            is_detail=True,
            on=On.MARKDOWN,
        )


# -- a test run as JSON, with the pictures of its cases


def dump_run(report: RunReport) -> str:
    document = RUN.of(report)
    for outcome, case in zip(report.outcomes, document["cases"], strict=True):
        case["picture"] = _picture(outcome.comparison)
    return dump_document(document)


def _picture(case: CaseComparison) -> tuple[SeenBox, ...]:
    """Return the boxes of a case that needs attention, if they are few enough for a comment."""
    boxes = () if is_quiet(case) else seen_boxes(comparison_picture(case))
    return boxes if len(boxes) <= MOST_BOXES else ()
