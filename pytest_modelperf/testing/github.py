"""Annotations of a run for GitHub Actions: a command of the runner for each case to look at."""

from collections.abc import Sequence
from posixpath import join, normpath

from pytest_modelperf.comparing.advice import describe_doubt
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.comparing.verdict_lines import FAILED, failure_lines, word_of_reasons
from pytest_modelperf.testing.outcome_names import name_outcomes
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport
from pytest_modelperf.testing.run_lines import describe_outcome, rank_outcome
from pytest_modelperf.testing.wording import recording_with
from pytest_modelperf.text.escaping import printable

# GitHub shows so many of each kind in a step, and drops the others silently.
MAX_OF_A_KIND = 10

_TOP = "."
_TITLE = "model performance"
_ERROR, _WARNING, _NOTICE = "error", "warning", "notice"
_KINDS = {
    Verdict.REGRESSED.value: _ERROR,
    Verdict.OVER_BUDGET.value: _ERROR,
    FAILED: _ERROR,
    Verdict.INCONCLUSIVE.value: _WARNING,
    Verdict.NEW.value: _NOTICE,
}
# A message stands beside a line of code, so it has only the first reasons.
_MAX_REASONS = 3


def annotations(report: RunReport, folder: str = _TOP) -> tuple[str, ...]:
    """A line for each error of the run and each case to look at, to be printed as is.

    The worst case is first. `folder` is the root of the run in the repository, from where GitHub
    looks for files. Where more are of one kind than GitHub shows, the last of that kind says how
    many.
    """
    named = zip(report.outcomes, name_outcomes(report.outcomes), strict=True)
    worst_first = sorted(named, key=lambda pair: rank_outcome(pair[0]))
    lines = [_command(_ERROR, {"title": _TITLE}, printable(error)) for error in report.errors]
    for kind in (_ERROR, _WARNING, _NOTICE):
        found = [pair for pair in worst_first if _kind(pair[0], report) == kind]
        fits = len(found) <= MAX_OF_A_KIND
        shown = found if fits else found[: MAX_OF_A_KIND - 1]
        lines += [_annotate(kind, outcome, name, folder) for outcome, name in shown]
        more = len(found) - len(shown)
        if more:
            text = f"{more:,} more cases are like these: see the summary of the run"
            lines.append(_command(kind, {"title": _TITLE}, text))
    return tuple(lines)


def _kind(outcome: CaseOutcome, report: RunReport) -> str | None:
    """The kind of annotation: an error if the test failed."""
    kind = _KINDS.get(outcome.word)
    return _ERROR if kind is not None and report.is_strict else kind


def _annotate(kind: str, outcome: CaseOutcome, name: str, folder: str) -> str:
    lines: Sequence[str]
    if outcome.has_failed:
        lines = failure_lines(outcome.comparison)
    else:
        reasons = outcome.comparison.reasons[:_MAX_REASONS]
        doubt = describe_doubt(outcome.comparison, recording_with(outcome.accept))
        verdict = describe_outcome(outcome)
        word = word_of_reasons(outcome.comparison)
        why = (f"{word}: {printable(r)}" for r in reasons if printable(r) not in verdict)
        lines = [verdict, *([] if doubt is None else [doubt]), *why]
    if outcome.verdict is Verdict.REGRESSED:
        ways = (outcome.advice, outcome.accept)
        lines = [*lines, *(f"accept: {printable(way)}" for way in ways if way is not None)]
    file = outcome.source.path
    where = {"file": file if folder == _TOP else normpath(join(folder, file))}
    if outcome.source.line is not None:
        where["line"] = str(outcome.source.line)
    return _command(kind, {**where, "title": f"{name} {outcome.word}"}, "\n".join(lines))


def _command(kind: str, properties: dict[str, str], message: str) -> str:
    listed = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    return f"::{kind} {listed}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    """The message of a command, which ends with its line; `escapeData` in GitHub's toolkit."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    """The value of a property, which ends with a comma or a colon; `escapeProperty` there."""
    return _escape_data(printable(text)).replace(":", "%3A").replace(",", "%2C")
