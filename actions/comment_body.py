"""The comment on a pull request: a table of all cases, what got worse and why, and their history.

How the run ended comes from GitHub, and curves from the branch that keeps the history. Everything
else is written by the code of a pull request: the comment says so, and each text is escaped; see
`pytest_modelperf.report.markdown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct
from run_reader import ReadCase
from workflow import StepError

from pytest_modelperf.comparing.tables import cases_table, metric_rows
from pytest_modelperf.comparing.verdict_lines import SEVERITY, failure_lines, is_quiet
from pytest_modelperf.files.names import model_name
from pytest_modelperf.history.page_data import case_name, format_shift, sparkline
from pytest_modelperf.history.records import HistoryPoint, shift_since
from pytest_modelperf.report.markdown import code, escape_markdown, folded, markdown_table
from pytest_modelperf.report.picture.drawn import render_mermaid
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.testing.wording import describe_counts, describe_outcome, view_of
from pytest_modelperf.text.words import count_of, shorten_list

# GitHub refuses a comment of more than 65,536 characters.
MAX_CHARACTERS = 60_000
LAST_POINTS = 30
_MAX_ROWS = 100
# Names may be long, and a character that is escaped becomes several.
_MAX_TABLE_CHARACTERS = 30_000
# More would push what got worse out of sight.
_MAX_CURVES = 40
_COMMIT_LENGTH = 9
_MAX_JOBS = 10
# The words of cases that nobody has to look at.
_UNCHANGED = frozenset({"passed", "unchanged"})
_UNEVENTFUL = frozenset({"success", "skipped", "neutral"})
# GitHub allows 100 characters of a name, and a matrix adds its values.
_MAX_JOB_NAME = 100
_CLAIM = (
    "These figures are the branch's own claim: its code measured them and wrote them down. "
    "How the run and its jobs ended comes from GitHub."
)
# It stands in a comment of HTML, which two hyphens would end.
_TITLE = re.compile(r"\w(?:[ \w.]|-(?!-)){0,58}\w", re.ASCII)


class Job(Struct, frozen=True):
    """A job of a run, and how it ended in a word of GitHub: `success`, `timed_out`."""

    name: str
    conclusion: str


class EndedRun(Struct, frozen=True):
    """The run that a comment is about, as GitHub knows it.

    Attributes:
        url: Its page.
        commit: The commit that it tested.
        conclusion: How it ended, in a word of GitHub.
        jobs: Its jobs. A run can succeed although one of them failed.

    """

    url: str
    commit: str
    conclusion: str
    jobs: tuple[Job, ...]


class Curve(Struct, frozen=True):
    """The history of one case on one kind of machine, by one engine."""

    model: str
    machine: str
    case: str
    points: tuple[HistoryPoint, ...]
    engine: str | None = None


def hidden_mark(title: str) -> str:
    """The line that the comment is found by. One title has one comment on each pull request."""
    if not _TITLE.fullmatch(title):
        raise StepError(
            f"the input title is 2 to 60 letters, digits, blanks, dots and hyphens, not {title!r}"
        )
    return f"<!-- pytest-modelperf: {title} -->"


def render_comment(
    title: str, cases: Sequence[ReadCase], curves: Sequence[Curve], run: EndedRun
) -> str:
    """The whole comment; explanations that do not fit are left to the page of the run."""
    outcomes = [case.outcome for case in cases]
    ranked = sorted(cases, key=lambda case: SEVERITY.index(case.outcome.word))
    counts = describe_counts(outcomes) or "no case"
    blocks = [
        hidden_mark(title),
        f"### {escape_markdown(title)}: {counts}; run: {_worded(run.conclusion)}",
        f"Commit {code(run.commit[:_COMMIT_LENGTH])}, [all reports of the run]({run.url})",
        *_unsuccessful(run.jobs),
        _CLAIM,
        *_table(ranked),
    ]
    ends = ["\n\n".join(folded(*_curves(ranked, curves)))] if curves else []
    room = MAX_CHARACTERS - sum(len(block) + 2 for block in (*blocks, *ends))
    bad = [case for case in ranked if not is_quiet(case.outcome.comparison)]
    for number, case in enumerate(bad):
        explanation = "\n\n".join(_explanation(case))
        room -= len(explanation) + 2
        if room < 0:
            blocks.append(f"{len(bad) - number:,} more cases are explained on the page of the run.")
            break
        blocks.append(explanation)
    return "\n\n".join([*blocks, *filter(None, ends)]) + "\n"


def _unsuccessful(jobs: Sequence[Job]) -> Iterator[str]:
    """A line with the jobs that were neither skipped nor successful; none if there are none."""
    ended = [
        f"job {code(job.name[:_MAX_JOB_NAME])}: **{_worded(job.conclusion)}**"
        for job in jobs
        if job.conclusion not in _UNEVENTFUL
    ]
    if ended:
        yield shorten_list(ended, _MAX_JOBS)


def _worded(conclusion: str) -> str:
    return escape_markdown(conclusion.replace("_", " "))


def _is_of(curve: Curve, path: str | None) -> bool:
    """Whether it is of the model at this path, which begins with the folder of the checkout."""
    return path is not None and f"/{path}".endswith(f"/{model_name(curve.model)}")


def _table(ranked: Sequence[ReadCase]) -> Iterator[str]:
    shown = ranked[:_MAX_ROWS]
    while len(_rows(shown)) > _MAX_TABLE_CHARACTERS:
        shown = shown[: len(shown) // 2]
    if not shown:
        yield "The run tested no case. Its log says why."
        return
    loud = [case for case in shown if not _is_unchanged(case)]
    still = shown[len(loud) :]
    if loud:
        yield _rows(loud)
    count = count_of(len(still), "case")
    yield from folded(f"{count} without a change", [_rows(still)] if still else [])
    if len(ranked) > len(shown):
        yield f"{len(ranked) - len(shown):,} more cases are on the page of the run."


def _rows(cases: Sequence[ReadCase]) -> str:
    return markdown_table(cases_table([view_of(case.outcome, case.name) for case in cases]))


def _is_unchanged(case: ReadCase) -> bool:
    return case.outcome.word in _UNCHANGED


def _explanation(case: ReadCase) -> Iterator[str]:
    """One case: its problem, its figures, and the reasons."""
    comparison = case.outcome.comparison
    yield f"**{code(case.name)} {escape_markdown(describe_outcome(case.outcome))}**"
    if comparison.failure is not None:
        yield f"<pre>{'<br>'.join(map(escape_markdown, failure_lines(comparison)))}</pre>"
    if comparison.metrics:
        yield markdown_table(metric_rows(comparison).table)
    if comparison.reasons:
        yield "\n".join(f"- {escape_markdown(reason)}" for reason in comparison.reasons)
    picture = render_mermaid(case.picture)
    if picture:
        yield from folded("The kernels that changed", [picture])


def _curves(ranked: Sequence[ReadCase], curves: Sequence[Curve]) -> tuple[str, list[str]]:
    """The title of the curves, and their table: the cases of this run, the worst first."""
    found = [
        curve
        for case in ranked
        for curve in curves
        if curve.case == case.id and _is_of(curve, case.outcome.model.path)
    ]
    rows = tuple(
        (
            model_name(curve.model),
            case_name(curve.case, curve.engine),
            sparkline([point.level for point in curve.points[-LAST_POINTS:]]),
            f"{curve.points[-LAST_POINTS:][0].date.date()}",
            f"{curve.points[-1].date.date()}",
            format_shift(shift_since(curve.points[0], curve.points[-1])),
            curve.machine,
        )
        for curve in found[:_MAX_CURVES]
    )
    columns = (
        Column("model", is_text=True, is_name=True),
        Column("case", is_text=True, is_name=True),
        Column("curve", is_text=True),
        Column("from", is_text=True),
        Column("to", is_text=True),
        Column("since the first point"),
        Column("machine", is_text=True, is_name=True),
    )
    more = len(found) - len(rows)
    blocks = [markdown_table(Table("", columns, rows))] if rows else []
    if more:
        blocks.append(f"{more:,} more cases have a history.")
    return f"Latency p50 before this change: the last {LAST_POINTS} points", blocks
