"""A bisect as a report: the answer, every step, and what explains each regression."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from pytest_modelperf.bisect.page_data import VersionPair, bisect_data, shown_pairs
from pytest_modelperf.bisect.records import (
    Answer,
    Bisect,
    BisectFigure,
    BisectStep,
    RangeKind,
    Regression,
    Version,
    describe_change,
    describe_output_change,
    format_outputs,
    short_name,
)
from pytest_modelperf.comparing.figures import (
    format_change,
    format_figure,
    format_interval,
    metric_title,
)
from pytest_modelperf.comparing.findings import describe_doubt
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.comparing.report import case_blocks, case_section, cause_blocks
from pytest_modelperf.comparing.tables import TONES, CaseView
from pytest_modelperf.comparing.verdict_lines import describe_verdict, verdict_word
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.shown.drawn import CASE_DRAWINGS
from pytest_modelperf.profiler.shown.facts import format_share, run_table
from pytest_modelperf.profiler.shown.names import case_options, engine_options
from pytest_modelperf.report.model import (
    Choice,
    Code,
    Drawing,
    Drawings,
    Drawn,
    On,
    Paragraph,
    Report,
    Rows,
    Section,
    Sheet,
    Tone,
    lines_of,
)
from pytest_modelperf.report.tables import Column, FilledColumn, Table, drop_blank_columns, table_of
from pytest_modelperf.text.units import format_seconds
from pytest_modelperf.text.words import count_of, shell_path, shell_word, shorten_list

_DRAWINGS = CASE_DRAWINGS.plus(
    Drawings(
        parts=(Drawing("bisect", "Steps", leads=True),),
        scripts=(Path(__file__).with_name("html") / "bisect.js",),
    )
)
_TONES = {
    Answer.GOOD: Tone.GOOD,
    Answer.BAD: Tone.BAD,
    Answer.INCONCLUSIVE: Tone.UNSURE,
    Answer.FAILED: Tone.BAD,
}
_TIME = "latency_p50"
_LISTED = 8
# The shortest time that is worth a search again.
_LEAST_SECONDS = 60
_SHEET_COLUMNS = (
    "step", "version", "title", "answer", "against", "before_ms", "after_ms", "ratio",
    "low", "high", "outputs", "allowed", "rounds", "seconds",
)  # fmt: skip


def bisect_report(bisect: Bisect, wording: Wording, made: dt.datetime | None = None) -> Report:
    search = bisect.search
    answer = _describe_answer(bisect)
    failed = (
        f"{short_name(step.version)} failed: {step.reason}"
        for step in search.steps
        if step.reason is not None
    )
    tones = tuple(_TONES[step.answer] for step in search.steps)
    next_commands = tuple(
        code for pair in shown_pairs(bisect) for code in _next_commands(bisect, pair)
    )
    model = [("model", bisect.model), ("case", bisect.case)]
    rule = [
        *([("test", bisect.model)] if bisect.is_of_program else model),
        ("engine", bisect.engine),
        ("tolerance", format_share(bisect.tolerance)),
        ("took", format_seconds(bisect.seconds)),
    ]
    if _is_timed(bisect):
        rule.insert(-1, ("chance of a wrong answer", f"at most {format_share(bisect.level)}"))
    return Report(
        title=f"{bisect.model}: {short_name(bisect.range.good)} to {short_name(bisect.range.bad)}",
        subject=f"{_subject(bisect)}: {answer}",
        headline=answer,
        tone=Tone.PLAIN if search.verdict is None else TONES[search.verdict.value],
        counts=_count(bisect),
        opening=tuple(
            replace(line, on=On.TEXT)
            for line in (
                *(
                    line
                    for found in search.regressions
                    for line in lines_of(_describe_regression(found, bisect))
                ),
                *lines_of(_doubts(bisect, wording), tone=Tone.UNSURE),
            )
        ),
        findings=tuple(_findings(bisect, wording)),
        blocks=(
            Rows(_step_table(bisect), tones, on=On.TEXT),
            Rows(_step_table(bisect, has_reasons=True), tones, on=On.PAGE),
            Paragraph(lines_of(failed, tone=Tone.BAD), on=On.TEXT),
            *_pair_sections(bisect, wording),
            Section(title="What to do next", blocks=next_commands, on=On.TEXT),
        ),
        closing=lines_of(_notes(bisect, wording), "note"),
        facts=(run_table([], rule, made),),
        sheet=_sheet(bisect),
        drawn=Drawn(_DRAWINGS, partial(bisect_data, bisect)),
    )


def _subject(bisect: Bisect) -> str:
    subject = bisect.model if bisect.is_of_program else f"{bisect.model} {bisect.case}"
    return f"{subject} on {bisect.engine}"


# -- the answer


# The word for a worse version, by the figure that was judged.
_WORSE = {
    BisectFigure.LATENCY: "slower",
    BisectFigure.OUTPUTS: "other outputs",
    BisectFigure.WORK: "more work",
}


def _describe_answer(bisect: Bisect) -> str:
    search = bisect.search
    if search.regressions:
        names = ", ".join(map(_culprit, search.regressions))
        since = "since" if bisect.range.kind is RangeKind.RELEASES else "since the commit"
        return f"{_WORSE[bisect.judges]} {since} {names}"
    ends = search.ends
    bad, good = ends.version.label, short_name(ends.against)
    if search.verdict is Verdict.UNCHANGED:
        return f"{bad} and {good} have the same model"
    if _is_of_outputs(bisect):
        both = f"the outputs of {bad} and {good}"
        is_open = search.verdict is Verdict.INCONCLUSIVE
        answer = f"{describe_change(ends)}, allowed {format_outputs(bisect.tolerance)}"
        return f"inconclusive: {both} cannot be compared" if is_open else f"{both} {answer}"
    change = f"{describe_change(ends)}, allowed {100 * bisect.tolerance:+.4g} %"
    if search.verdict is Verdict.INCONCLUSIVE:
        return f"inconclusive: whether {bad} is slower than {good} is not decided: {change}"
    if search.verdict is Verdict.IMPROVED:
        return f"{bad} is faster than {good}: {change}"
    return f"{bad} is not slower than {good}: {change}"


def _is_of_outputs(bisect: Bisect) -> bool:
    return bisect.judges is BisectFigure.OUTPUTS


def _is_timed(bisect: Bisect) -> bool:
    return bisect.judges is BisectFigure.LATENCY


def _doubts(bisect: Bisect, wording: Wording) -> Iterator[str]:
    comparison = bisect.search.ends.comparison
    is_open = bisect.search.verdict is Verdict.INCONCLUSIVE and not _is_of_outputs(bisect)
    doubt = None if comparison is None or not is_open else describe_doubt(comparison, wording)
    if doubt is not None:
        yield doubt


def _culprit(found: Regression) -> str:
    name = found.first_bad.label
    return f"{name} or a version before it" if found.between else name


def _describe_regression(found: Regression, bisect: Bisect) -> Iterator[str]:
    # A comparison of two neighbours gives the same work as those with the good end.
    if not found.after.is_of_work or found.pair in {None, found.after} or found.is_gradual:
        before = (
            f"{short_name(found.last_good)} is the good end"
            if found.before is None
            else _describe_step(found.before, bisect)
        )
        yield f"{before}; {_describe_step(found.after, bisect)}"
    if found.first_bad.title:
        yield f"commit {short_name(found.first_bad)}: {found.first_bad.title}"
    if found.between:
        yield f"{_list(found.between)} between them could not be judged: the step may be there, too"
    # The ends of a range can be neighbours: then one step compares both.
    if found.pair is not None and found.pair != found.after:
        text = _describe_step(found.pair, bisect)
        if found.is_gradual and _is_of_outputs(bisect):
            text += (
                f"; that is not more than {format_outputs(bisect.tolerance)}, so the outputs "
                "changed in several versions"
            )
        elif found.is_gradual and not _is_timed(bisect):
            text += "; that is not more than allowed, so the work grew in several versions"
        elif found.is_gradual:
            text += (
                f"; that is not shown to be more than {100 * bisect.tolerance:+.4g} %, so the time "
                "grew in several versions"
            )
        yield text


def _describe_step(step: BisectStep, bisect: Bisect) -> str:
    new, old = short_name(step.version), short_name(step.against)
    change = describe_change(step)
    if _is_of_outputs(bisect) and not step.is_same_model:
        return f"the outputs of {new} and {old} {change}"
    if step.is_of_work:
        return f"{new} against {old}: {change}"
    return f"{new}: {change} against {old}"


def _list(versions: tuple[Version, ...]) -> str:
    return shorten_list([*map(short_name, versions)], _LISTED)


# -- what a page says first


# What a version did to the model, by the figure that was judged.
_DID = {
    BisectFigure.LATENCY: "made it slower",
    BisectFigure.OUTPUTS: "changed its outputs",
    BisectFigure.WORK: "made it do more work",
}


def _count(bisect: Bisect) -> str:
    """Return `1 of 9 releases made it slower`."""
    found = len(bisect.search.regressions)
    who = f"{found or 'none'} of {len(bisect.range.versions)} {bisect.range.kind.value}"
    return f"{who} {'' if found else 'is shown to have '}{_DID[bisect.judges]}"


def _findings(bisect: Bisect, wording: Wording) -> Iterator[Section]:
    """Yield each worse version with its reason and what to type, or the reason for none."""
    search = bisect.search
    for number, pair in enumerate(shown_pairs(bisect)):
        case = pair.compared
        causes = () if case is None else tuple(cause_blocks(case, wording))
        choice = None if case is None else Choice(number, 0)
        commands = _next_commands(bisect, pair)
        if not search.regressions:
            yield Section(
                title=pair.name,
                word="" if search.verdict is None else search.verdict.value,
                sentence=_describe_answer(bisect),
                tone=Tone.PLAIN if search.verdict is None else TONES[search.verdict.value],
                blocks=(*causes, *commands, *_search_again(bisect)),
                choice=choice,
            )
            continue
        found = search.regressions[number]
        step = found.pair or found.after
        lines = (
            line
            for line in _describe_regression(found, bisect)
            if line != _describe_step(step, bisect)
        )
        yield Section(
            title=_culprit(found),
            word=_WORSE[bisect.judges],
            sentence=f"against {short_name(step.against)}: {describe_change(step)}",
            tone=Tone.BAD,
            blocks=(Paragraph(lines_of(lines)), *causes, *commands),
            choice=choice,
        )


# -- the steps


def _step_table(bisect: Bisect, *, has_reasons: bool = False) -> Table:
    is_commits = bisect.range.kind is RangeKind.COMMITS
    figures = _COLUMNS[bisect.judges]
    subject: FilledColumn[BisectStep] = (
        Column("subject", is_text=True, rank=1), lambda step: step.version.title,
    )  # fmt: skip
    table = table_of(
        "",
        bisect.search.steps,
        (
            Column("commit" if is_commits else "version", is_text=True, least=10),
            lambda step: short_name(step.version),
        ),
        (Column("answer", is_text=True, least=12, is_verdict=True), lambda step: step.answer.value),
        (Column("against", is_text=True, least=10), lambda step: short_name(step.against)),
        *figures,
        (Column("time"), lambda step: f"{step.seconds:.0f} s"),
        *([subject] if is_commits else []),
        *([(Column("reason", is_name=True), _reason)] if has_reasons else []),
    )
    table = drop_blank_columns(table) if has_reasons else table
    rows = tuple((str(number), *row) for number, row in enumerate(table.rows, 1))
    return replace(table, columns=(Column("step"), *table.columns), rows=rows)


def _reason(step: BisectStep) -> str:
    return step.reason or ""


def _format_outputs_of(step: BisectStep) -> str:
    if step.is_same_model:
        return "same model"
    return "" if step.judged is None else describe_output_change(step).removeprefix("differ by ")


def _format_work_of(step: BisectStep) -> str:
    return "" if step.metric is None else _format_work(step.metric)


def _format_time_change(step: BisectStep) -> str:
    if step.metric is None:
        return "same model" if step.is_same_model else ""
    return format_change(step.metric)


_COLUMNS: Mapping[BisectFigure, tuple[FilledColumn[BisectStep], ...]] = {
    BisectFigure.OUTPUTS: (
        (Column("outputs"), _format_outputs_of),
        (Column("limit"), lambda step: format_outputs(step.allowed)),
    ),
    BisectFigure.LATENCY: (
        (Column("p50"), lambda s: "" if s.metric is None else format_figure(_TIME, s.metric.after)),
        (Column("change"), _format_time_change),
        (Column("interval"), lambda s: "" if s.metric is None else format_interval(s.metric)),
        (Column("limit"), lambda step: f"{100 * step.allowed:+.1f} %"),
        (Column("rounds"), lambda step: f"{_rounds(step) or ''}"),
    ),
    BisectFigure.WORK: (
        (Column("work", is_text=True), _format_work_of),
        (Column("limit"), lambda step: f"{100 * step.allowed:+.1f} %"),
    ),
}


def _format_work(metric: Metric) -> str:
    """Return `inferences 1 -> 3`."""
    before, after = (format_figure(metric.name, each) for each in (metric.before, metric.after))
    return f"{metric_title(metric.name)} {before} -> {after}"


def _rounds(step: BisectStep) -> int | None:
    return None if step.comparison is None else step.comparison.rounds


def _sheet(bisect: Bisect) -> Sheet:
    rows = []
    for number, step in enumerate(bisect.search.steps, 1):
        timed = None if step.timed is None else step.metric
        rows.append((
            number, step.version.name, step.version.title, step.answer.value, step.against.name,
            *((None,) * 3 if timed is None else (timed.before, timed.after, timed.ratio)),
            *((None if timed is None else timed.interval) or (None, None)),
            step.output_share, step.allowed, _rounds(step), step.seconds,
        ))  # fmt: skip
    return Sheet(_SHEET_COLUMNS, tuple(rows))


# -- the two versions of each regression


def _pair_sections(bisect: Bisect, wording: Wording) -> Iterator[Section]:
    for number, pair in enumerate(shown_pairs(bisect)):
        case = pair.compared
        if case is None:
            continue
        view = CaseView(
            name=pair.name, word=verdict_word(case), compared=case, choice=Choice(number, 0)
        )
        sentence, blocks = describe_verdict(case, None), case_blocks(case, wording)
        # The text report already says everything about ends that are not worse.
        on = On.ALL if bisect.search.regressions else On.PAGE
        yield replace(case_section(view, sentence, blocks, is_open=not number), on=on)


# -- what to do next


def _next_commands(bisect: Bisect, pair: VersionPair) -> Iterator[Code]:
    is_found = bool(bisect.search.regressions)
    if bisect.range.kind is RangeKind.COMMITS:
        if is_found:
            yield _command(f"see what {short_name(pair.after)} did", f"git show {pair.after.name}")
        return
    yield _command(f"measure {pair.name} again", _comparing(bisect, pair))
    if is_found:
        requirement = f"{_package(pair.before)}=={pair.before.name}"
        yield _command(
            f"stay at {short_name(pair.before)}", f"pip install {shell_word(requirement)}"
        )


def _command(title: str, text: str) -> Code:
    return Code(title, text, is_command=True)


def _search_again(bisect: Bisect) -> Iterator[Code]:
    """Yield the command to type next after a search that found nothing."""
    verdict, good, bad = bisect.verdict, bisect.range.good, bisect.range.bad
    if verdict is Verdict.INCONCLUSIVE and _is_timed(bisect):
        seconds = max(_LEAST_SECONDS, math.ceil(bisect.search.ends.seconds))
        yield _command("search with more time", f"{_bisecting(bisect)} --max-seconds {seconds}")
    elif verdict is Verdict.PASSED:
        option = "--outputs" if _is_of_outputs(bisect) else "--tolerance"
        yield _command(
            "search for a smaller change", f"{_bisecting(bisect)} {option} {bisect.tolerance / 2:g}"
        )
    elif bisect.range.kind is RangeKind.COMMITS:
        yield _command("see what changed", f"git log --oneline {good.name}..{bad.name}")


def _bisecting(bisect: Bisect) -> str:
    """Return the command of the bisect, without its time and tolerances."""
    good, bad = bisect.range.good, bisect.range.bad
    if bisect.range.kind is RangeKind.COMMITS:
        ends = f"--commits {good.name}..{bad.name}"
    else:
        ends = f"--good {good.name} --bad {bad.name} --package {shell_word(_package(good))}"
    run = [] if bisect.is_of_program else _run_options(bisect)
    return " ".join(["modelperf bisect", shell_path(bisect.model), ends, *run])


def _comparing(bisect: Bisect, pair: VersionPair) -> str:
    model = shell_path(bisect.model)
    sides = zip("ab", (pair.before, pair.after), strict=True)
    pins = (
        f"--requirement-{side} {shell_word(f'{_package(each)}=={each.name}')}"
        for side, each in sides
    )
    return " ".join([f"modelperf compare {model} {model}", *pins, *_run_options(bisect)])


def _run_options(bisect: Bisect) -> list[str]:
    """Return the options that run the same case on the same engine."""
    options = (f"{name}={value}" for name, value in bisect.options.items())
    compared = bisect.search.ends.comparison
    return [
        *engine_options(bisect.engine),
        *(f"--engine-option {shell_word(option)}" for option in options),
        *([] if compared is None else case_options(compared.case)),
    ]


def _package(release: Version) -> str:
    """Return the package of a release: its label begins with it."""
    return release.label.rpartition(" ")[0]


def _notes(bisect: Bisect, wording: Wording) -> Iterator[str]:
    search = bisect.search
    yield from bisect.range.notes
    if bisect.range.left_out:
        names = shorten_list([each.name for each in bisect.range.left_out], _LISTED)
        yield f"not tried: {names} ({bisect.range.left_out[0].reason})"
    still_open = tuple(s.version for s in search.steps[1:] if s.answer is Answer.INCONCLUSIVE)
    if still_open and _is_of_outputs(bisect):
        yield f"outputs that could not be compared: {_list(still_open)}"
    elif still_open:
        longer = wording.names["max_seconds"]
        yield (
            f"still inconclusive with more time: {_list(still_open)}; {longer} gives each step more"
        )
    if bisect.may_have_more:
        what = "changes" if _is_of_outputs(bisect) else "regressions"
        yield f"other {what} in the range were not looked for: --all finds them"
    text = f"{count_of(len(search.steps), 'step')} in {bisect.seconds:.0f} s"
    if _is_timed(bisect):
        text += f"; the chance of any wrong answer is at most {100 * bisect.level:g} %"
    yield text
