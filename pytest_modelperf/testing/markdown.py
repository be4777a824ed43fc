"""A test run as Markdown, for the summary of a job or a comment on a pull request.

Names come from model files and from whoever wrote the tests: see `report.markdown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pytest_modelperf.comparing.markdown import case_blocks
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.comparing.verdict_lines import SEVERITY
from pytest_modelperf.report.markdown import code, escape_markdown, folded, markdown_table
from pytest_modelperf.testing.outcome_names import name_outcomes
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport
from pytest_modelperf.testing.run_lines import (
    describe_counts,
    describe_ending,
    describe_outcome,
    describe_place,
    describe_writing,
    is_worth_a_line,
    next_steps,
)
from pytest_modelperf.testing.run_table import outcome_table
from pytest_modelperf.testing.wording import recording_with
from pytest_modelperf.text.escaping import printable

# GitHub does not show a longer summary.
MAX_BYTES = 1 << 20
# With more cases, those that passed are folded.
_MAX_ROWS = 40
# The share of a table, so that there is room for the explanations.
_TABLE_BYTES = MAX_BYTES // 4
_CUT = "_This report was cut: a summary may have 1 MiB. The JSON of the run has everything._"
# The table says everything about these.
_HAVE_NO_SECTION = frozenset({Verdict.PASSED, Verdict.UNCHANGED, Verdict.NEW})


def render_run_markdown(report: RunReport) -> str:
    """The whole report, the worst case first; what does not fit into a summary is left out."""
    kept: list[str] = []
    room = MAX_BYTES - len(f"{_CUT}\n")
    for section in _sections(report):
        room -= len(section.encode()) + 2
        if room < 0:
            kept.append(_CUT)
            break
        kept.append(section)
    return "\n\n".join(kept) + "\n"


def _sections(report: RunReport) -> Iterator[str]:
    """The parts of the report, none of which can be cut in two."""
    yield f"### Model performance: {describe_counts(report.outcomes) or 'no case'}"
    yield escape_markdown(describe_place(report))
    named = list(zip(report.outcomes, name_outcomes(report.outcomes), strict=True))
    quiet = [pair for pair in named if not is_worth_a_line(pair[0])]
    is_long = len(named) > _MAX_ROWS
    yield from _table([p for p in named if is_worth_a_line(p[0])] if is_long else named)
    yield escape_markdown(describe_ending(report))
    lines = [f"- error: {escape_markdown(error)}" for error in report.errors]
    lines += [f"- {word}: {escape_markdown(text)}" for word, text in next_steps(report)]
    if report.plans:
        lines.append(f"- {escape_markdown(describe_writing(report))}")
    lines += [f"- note: {escape_markdown(note)}" for note in report.notes]
    if lines:
        yield "\n".join(lines)
    for outcome, name in sorted(named, key=lambda pair: SEVERITY.index(pair[0].word)):
        if outcome.has_failed or outcome.verdict not in _HAVE_NO_SECTION:
            yield "\n\n".join(_case(outcome, name))
    if is_long and quiet:
        title = f"{len(quiet):,} cases that passed or are unchanged"
        yield "\n\n".join(folded(title, _table(quiet)))


def _table(named: Sequence[tuple[CaseOutcome, str]]) -> Iterator[str]:
    """The table of these cases, without the last ones if it would be too long."""
    if not named:
        return
    table = outcome_table([outcome for outcome, _ in named], [name for _, name in named])
    lines = markdown_table(table).splitlines()
    size = 0
    for index, line in enumerate(lines):
        size += len(line.encode()) + 1
        if size > _TABLE_BYTES:
            yield "\n".join(lines[:index])
            yield f"{len(lines) - index:,} more cases are not shown."
            return
    yield "\n".join(lines)


def _case(outcome: CaseOutcome, name: str) -> Iterator[str]:
    title = f"{code(name)} {escape_markdown(describe_outcome(outcome))}"
    yield from case_blocks(outcome.comparison, title, recording_with(outcome.accept))
    if outcome.comparison.regressed and outcome.advice is not None:
        yield f"To accept it: {escape_markdown(outcome.advice)}"
    if outcome.comparison.regressed and outcome.accept is not None:
        yield "To accept it:"
        yield _fenced(outcome.accept)


def _fenced(command: str) -> str:
    """A command to copy; Markdown in it is not interpreted."""
    shown = printable(command)
    longest = max(map(len, re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}console\n{shown}\n{fence}"
