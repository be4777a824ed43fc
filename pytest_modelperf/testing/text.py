"""A run in the terminal: the failure of one test, and the summary of all."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.baselines.report import plan_table
from pytest_modelperf.comparing.case_text import (
    verdict_style,
    write_doubts,
    write_fact,
    write_findings,
    write_main_findings,
)
from pytest_modelperf.comparing.figures import describe_sides
from pytest_modelperf.comparing.records import RECORDED, Verdict
from pytest_modelperf.comparing.verdict_lines import SEVERITY, failing_metrics
from pytest_modelperf.profiler.generation import NamedFigures
from pytest_modelperf.profiler.shown.tables.generation import tables_of_generations
from pytest_modelperf.report.commands import fold_command
from pytest_modelperf.report.model import Rows
from pytest_modelperf.report.page import Page, TextStyle
from pytest_modelperf.report.render import write_blocks
from pytest_modelperf.testing.commands import profile_alone
from pytest_modelperf.testing.outcome_names import name_outcomes
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport
from pytest_modelperf.testing.run_lines import (
    describe_ending,
    describe_outcome,
    describe_place,
    describe_writing,
    is_worth_a_line,
    next_steps,
    untold,
)
from pytest_modelperf.testing.run_table import fitting_table
from pytest_modelperf.testing.wording import recording_with
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import join_words, list_names

# With more cases, only those that need attention have a line, and at most so many of the worst.
MAX_LINES = 40
MAX_PLANS = 20
# If there are many cases, the line of counts says enough about these.
_SUMMED_UP = frozenset(
    {
        Verdict.PASSED.value,
        Verdict.UNCHANGED.value,
        Verdict.IMPROVED.value,
        Verdict.NEW.value,
        RECORDED,
    }
)
_QUIET, _VERBOSE = -1, 1


def short_verdict(outcome: CaseOutcome) -> str:
    """The verdict in one line, for a list of failures: `regressed: p50 latency +11.8 %, ...`."""
    return printable(describe_outcome(outcome, is_short=True))


def render_outcome(outcome: CaseOutcome, style: TextStyle, *, verbosity: int = 0) -> str:
    """The failure of one test: what happened, how sure, why, and what to type.

    All figures, layers, reasons and notes are shown from a verbosity of 1 on.
    """
    page = Page(style)
    case = outcome.comparison
    is_brief = verbosity < _VERBOSE
    headline = describe_outcome(outcome)
    failing = failing_metrics(case)
    if is_brief and len(failing) == 1:
        headline = "; ".join(filter(None, (headline, describe_sides(failing[0]))))
    page.sentence(headline, style=f"bold {verdict_style(case)}".strip())
    wording = recording_with(outcome.accept)
    write_doubts(page, case, wording)
    if case.id not in outcome.test:
        file = outcome.model.function_file
        place = "" if file is None else f" from {printable(file)}"
        write_fact(page, "case", f"{printable(case.id)} of {printable(outcome.model.name)}{place}")
    write = write_main_findings if is_brief else write_findings
    write(page, untold(outcome), wording)
    page.end_table()
    _write_advice(page, outcome)
    return page.text()


def _write_advice(page: Page, outcome: CaseOutcome) -> None:
    """Write the command that accepts it, records it, or shows what is wrong."""
    case = outcome.comparison
    if case.has_failed:
        command = None if outcome.is_upgrade else profile_alone(outcome)
        if command is not None:
            _write_command(page, "try it alone", command)
        return
    if case.regressed and outcome.advice is not None:
        write_fact(page, "accept", printable(outcome.advice))
    if outcome.accept is None:
        return
    if case.verdict is Verdict.NEW:
        _write_command(page, "record", outcome.accept)
    elif case.regressed:
        _write_command(page, "accept", outcome.accept)


def _write_command(page: Page, word: str, command: str) -> None:
    for line in fold_command(word, printable(command), page.width):
        page.line(line)


def render_summary(report: RunReport, style: TextStyle, *, verbosity: int = 0) -> str:
    """The outcomes of all cases, and what to do next; empty if there is nothing to say.

    Below a verbosity of 0 only cases that did not pass have a line, from 1 on all have one. The
    notes of the run are always there, because they say what it did not do.
    """
    page = Page(style)
    if report.plans:
        _write_plans(page, report, verbosity)
    if report.outcomes:
        _write_cases(page, report, verbosity)
    if verbosity > _QUIET:
        for word, text in next_steps(report):
            write_fact(page, word, text)
    for note in report.notes:
        write_fact(page, "note", printable(note))
    return page.text().lstrip("\n")


def _write_plans(page: Page, report: RunReport, verbosity: int) -> None:
    """Write how the baselines change, and whether that was written."""
    changing = [plan for plan in report.plans if not plan.is_empty]
    if verbosity > _QUIET:
        shown = changing if verbosity >= _VERBOSE else changing[:MAX_PLANS]
        write_blocks(page, [Rows(plan_table(plan)) for plan in shown])
        more = len(changing) - len(shown)
        page.line("")
        if more:
            page.item(f"{more:,} more baselines change: -v lists how")
    page.item(describe_writing(report), style="bold")
    if verbosity > _QUIET and report.outcomes:
        page.line("")


def _write_cases(page: Page, report: RunReport, verbosity: int) -> None:
    if verbosity > _QUIET:
        page.item(describe_place(report))
    names = name_outcomes(report.outcomes)
    named = list(zip(report.outcomes, names, strict=True))
    lines = _lines(report.outcomes, verbosity)
    shown = [pair for place, pair in enumerate(named) if place in lines]
    hidden = [outcome for place, (outcome, _) in enumerate(named) if place not in lines]
    if shown:
        table = fitting_table([o for o, _ in shown], [name for _, name in shown], page.width)
        styles = ["" if o.is_xfailed else verdict_style(o.comparison) for o, _ in shown]
        page.table(table, row_styles=styles)
        _write_generations(page, shown)
    if verbosity > _QUIET:
        _write_notes(page, [pair for pair in named if _tells_notes(pair[0], verbosity)])
    if verbosity > _QUIET:
        page.line("")
    if hidden and (verbosity > _QUIET or any(map(is_worth_a_line, hidden))):
        page.item(_describe_hidden(hidden))
    page.item(describe_ending(report), style="bold")


def _write_generations(page: Page, shown: Sequence[tuple[CaseOutcome, str]]) -> None:
    """Write the figures of the generations that ran, each with both phases on a line."""
    named = [
        NamedFigures(name, outcome.comparison.case.phase, outcome.generation)
        for outcome, name in shown
        if outcome.comparison.case.phase is not None
        and outcome.generation is not None
        and outcome.latency is not None
        and not outcome.is_upgrade
    ]
    tables = tables_of_generations(named)
    if tables:
        page.table(*tables)


def _lines(outcomes: Sequence[CaseOutcome], verbosity: int) -> set[int]:
    """The indexes of the cases that have a line of their own."""
    places = [i for i, each in enumerate(outcomes) if _is_shown(each, len(outcomes), verbosity)]
    if verbosity < _VERBOSE:
        places = sorted(places, key=lambda i: SEVERITY.index(outcomes[i].word))[:MAX_LINES]
    return set(places)


def _is_shown(outcome: CaseOutcome, cases: int, verbosity: int) -> bool:
    if verbosity <= _QUIET:
        return is_worth_a_line(outcome)
    return verbosity >= _VERBOSE or cases <= MAX_LINES or outcome.word not in _SUMMED_UP


def _describe_hidden(hidden: Sequence[CaseOutcome]) -> str:
    """`1,980 passed and unchanged cases are not shown: -v lists them`."""
    found = {outcome.word for outcome in hidden}
    words = join_words([word for word in SEVERITY if word in found])
    is_one = len(hidden) == 1
    cases, them = ("case is", "it") if is_one else ("cases are", "them")
    return f"{len(hidden):,} {words} {cases} not shown: -v lists {them}"


def _tells_notes(outcome: CaseOutcome, verbosity: int) -> bool:
    """Whether the summary has the notes of a case: without -v, only where its latency is open."""
    return verbosity >= _VERBOSE or outcome.comparison.is_unjudged


def _write_notes(page: Page, named: Sequence[tuple[CaseOutcome, str]]) -> None:
    """Write each note once, with its cases."""
    found: dict[str, list[str]] = {}
    for outcome, name in named:
        for note in outcome.comparison.notes:
            found.setdefault(note, []).append(name)
    if found:
        page.line("")
    for note, names in found.items():
        write_fact(page, "note", f"{printable(note)} ({list_names(names)})")
