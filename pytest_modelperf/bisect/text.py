"""A bisect as text: the answer first, then every step, then what explains each regression."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_modelperf.bisect.records import (
    Answer,
    Bisect,
    BisectFigure,
    BisectStep,
    RangeKind,
    Regression,
    Version,
)
from pytest_modelperf.comparing.advice import describe_doubt
from pytest_modelperf.comparing.case_text import write_findings
from pytest_modelperf.comparing.figures import (
    format_change,
    format_figure,
    format_interval,
    interval_clause,
)
from pytest_modelperf.comparing.limits import OUTPUTS
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import Wording
from pytest_modelperf.report.page import Page, PageStyle, write_items
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of, shorten_list

_COLORS = {
    Answer.GOOD: "",
    Answer.BAD: "red",
    Answer.INCONCLUSIVE: "yellow",
    Answer.FAILED: "yellow",
}
_TIME = "latency_p50"
_COLUMNS = {
    BisectFigure.LATENCY: ("p50", "change", "interval", "limit", "rounds"),
    BisectFigure.OUTPUTS: ("outputs", "limit"),
}
_LISTED = 8


def render_bisect(bisect: Bisect, style: PageStyle, wording: Wording) -> str:
    page = style.page()
    found = bisect.search.regressions
    color = "red" if found else ""
    start = f"{printable(bisect.model)} {printable(bisect.case)} on {printable(bisect.engine)}"
    page.sentence(f"{start}: {describe_answer(bisect)}", style=f"bold {color}".strip())
    for regression in found:
        for line in describe_regression(regression, bisect):
            page.sentence(line)
    doubt = doubt_of(bisect, wording)
    if doubt is not None:
        page.sentence(doubt, style="yellow")
    page.table(step_table(bisect), row_styles=[_COLORS[s.answer] for s in bisect.search.steps])
    for step in bisect.search.steps:
        if step.reason is not None:
            page.item(
                f"{short_name(step.version)} failed: {printable(step.reason)}", style="yellow"
            )
    for regression in found:
        _write_pair(page, regression, wording)
    write_items(page, [f"note: {note}" for note in note_lines(bisect, wording)], "dim")
    return page.text()


def describe_answer(bisect: Bisect) -> str:
    """The answer in a sentence."""
    search = bisect.search
    if search.regressions:
        names = ", ".join(_culprit(each) for each in search.regressions)
        what = "other outputs" if _is_of_outputs(bisect) else "slower"
        since = "since" if bisect.range.kind is RangeKind.RELEASES else "since the commit"
        return f"{what} {since} {names}"
    ends = search.ends
    bad, good = _label(ends.version), short_name(ends.against)
    if _is_of_outputs(bisect) and search.verdict is not Verdict.UNCHANGED:
        return _headline_of_outputs(bisect)
    change = f"{describe_change(ends)}, allowed {100 * bisect.tolerance:+.4g} %"
    if search.verdict is Verdict.INCONCLUSIVE:
        return f"inconclusive: whether {bad} is slower than {good} is not shown: {change}"
    if search.verdict is Verdict.UNCHANGED:
        return f"{bad} and {good} have the same model"
    if search.verdict is Verdict.IMPROVED:
        return f"{bad} is faster than {good}: {change}"
    return f"{bad} is not slower than {good}: {change}"


def _headline_of_outputs(bisect: Bisect) -> str:
    """The answer for ends whose outputs are not shown to differ."""
    ends = bisect.search.ends
    both = f"the outputs of {_label(ends.version)} and {short_name(ends.against)}"
    if bisect.search.verdict is Verdict.INCONCLUSIVE:
        return f"inconclusive: {both} cannot be compared"
    return f"{both} {describe_change(ends)}, allowed {_percent(bisect.tolerance)}"


def _is_of_outputs(bisect: Bisect) -> bool:
    return bisect.judges is BisectFigure.OUTPUTS


def _percent(share: float) -> str:
    return format_figure(OUTPUTS, share)


def doubt_of(bisect: Bisect, wording: Wording) -> str | None:
    """Advice that would decide inconclusive ends."""
    comparison = bisect.search.ends.comparison
    is_open = bisect.search.verdict is Verdict.INCONCLUSIVE and not _is_of_outputs(bisect)
    return None if comparison is None or not is_open else describe_doubt(comparison, wording)


def _culprit(found: Regression) -> str:
    name = _label(found.first_bad)
    return f"{name} or a version before it" if found.between else name


def describe_regression(found: Regression, bisect: Bisect) -> Iterator[str]:
    """A regression: where it is, how large, and how sure that is."""
    before = (
        f"{short_name(found.last_good)} is the good end"
        if found.before is None
        else _describe_step(found.before, bisect)
    )
    yield f"{before}; {_describe_step(found.after, bisect)}"
    if found.first_bad.title:
        yield f"commit {short_name(found.first_bad)}: {printable(found.first_bad.title)}"
    if found.between:
        names = shorten_list([short_name(each) for each in found.between], _LISTED)
        yield f"{names} between them could not be judged: the step may be there, too"
    # The ends of a range can be neighbours: then one step compares both.
    if found.pair is not None and found.pair != found.after:
        told = _describe_step(found.pair, bisect)
        if found.is_gradual and _is_of_outputs(bisect):
            told += (
                f"; that is not more than {_percent(bisect.tolerance)}, so the outputs changed in "
                "several versions"
            )
        elif found.is_gradual:
            told += (
                f"; that is not shown to be more than {100 * bisect.tolerance:+.4g} %, so the time "
                "grew in several versions"
            )
        yield told


def _describe_step(step: BisectStep, bisect: Bisect) -> str:
    """How a version differs from the one that it was compared with."""
    new, old = short_name(step.version), short_name(step.against)
    change = describe_change(step)
    if _is_of_outputs(bisect) and not step.is_same_model:
        return f"the outputs of {new} and {old} {change}"
    return f"{new}: {change} against {old}"


def describe_change(step: BisectStep) -> str:
    """`+7.8 % (99.8 % interval +7.0 … +8.7 %)`, or `differ by 3.1 %`."""
    if step.is_same_model:
        return "the same model"
    if step.is_of_outputs:
        return _output_change(step)
    metric = step.metric
    if metric is None or metric.ratio is None:
        return "unknown"
    return f"{format_change(metric)}{interval_clause(metric)}"


def _output_change(step: BisectStep) -> str:
    """How far the outputs of a step are apart."""
    share = step.output_share
    if share is None:
        is_open = step.answer is Answer.INCONCLUSIVE
        return "cannot be compared" if is_open else "differ in more than their values"
    return f"differ by {_percent(share)}" if share else "are equal"


def step_table(bisect: Bisect) -> Table:
    is_commits = bisect.range.kind is RangeKind.COMMITS
    columns = [
        Column("step"),
        Column("commit" if is_commits else "version", is_text=True, least=10),
        Column("answer", is_text=True, least=12, is_verdict=True),
        Column("against", is_text=True, least=10),
        *map(Column, _COLUMNS[bisect.judges]),
        Column("time"),
    ]
    if is_commits:
        columns.append(Column("subject", is_text=True, rank=1))
    steps = bisect.search.steps
    figures = _output_figures if _is_of_outputs(bisect) else _time_figures
    rows = (
        (
            str(number),
            short_name(step.version),
            step.answer.value,
            short_name(step.against),
            *figures(step),
            f"{step.seconds:.0f} s",
            *([printable(step.version.title)] if is_commits else []),
        )
        for number, step in enumerate(steps, 1)
    )
    return Table("", tuple(columns), tuple(rows))


def _output_figures(step: BisectStep) -> tuple[str, ...]:
    """The cells of `outputs` and `limit`."""
    shown = "" if step.judged is None else _output_change(step).removeprefix("differ by ")
    return "same model" if step.is_same_model else shown, _percent(step.allowed)


def _time_figures(step: BisectStep) -> tuple[str, ...]:
    """The cells of `p50`, `change`, `interval`, `limit` and `rounds`."""
    rounds = None if step.comparison is None else step.comparison.rounds
    metric, figures = step.metric, ("", "same model" if step.is_same_model else "", "")
    if metric is not None:
        shown = format_figure(_TIME, metric.after)
        figures = shown, format_change(metric), format_interval(metric)
    return (
        *figures,
        f"{100 * step.allowed:+.1f} %",
        "" if rounds is None else f"{rounds}",
    )


def _write_pair(page: Page, found: Regression, wording: Wording) -> None:
    """Writes figures, layers and reasons of the two versions of a regression."""
    comparison = None if found.pair is None else found.pair.comparison
    if comparison is None:
        return
    page.line("")
    page.line(f"{short_name(found.last_good)} -> {short_name(found.first_bad)}", "bold")
    write_findings(page, comparison, wording)


def note_lines(bisect: Bisect, wording: Wording) -> Iterator[str]:
    search = bisect.search
    yield from map(printable, bisect.range.notes)
    if bisect.range.left_out:
        names = shorten_list([printable(each.name) for each in bisect.range.left_out], _LISTED)
        yield f"not tried: {names} ({bisect.range.left_out[0].reason})"
    open_steps = [s for s in search.steps[1:] if s.answer is Answer.INCONCLUSIVE]
    if open_steps:
        names = shorten_list([short_name(s.version) for s in open_steps], _LISTED)
        longer = wording.names["max_seconds"]
        yield (
            f"outputs that could not be compared: {names}"
            if _is_of_outputs(bisect)
            else f"inconclusive, also with more time: {names}; {longer} gives each step more"
        )
    if bisect.may_have_more:
        what = "changes" if _is_of_outputs(bisect) else "regressions"
        yield f"other {what} in the range were not looked for: --all finds them"
    told = f"{count_of(len(search.steps), 'step')} in {bisect.seconds:.0f} s"
    if not _is_of_outputs(bisect):
        level = f"{100 * bisect.level:g} %"
        told += f"; the chance of any wrong answer is at most {level}"
    yield told


def _label(version: Version) -> str:
    return printable(version.label)


def short_name(version: Version) -> str:
    """`1.22.0`, or the start of a commit's id."""
    return printable(version.label.rpartition(" ")[2])
