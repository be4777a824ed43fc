"""A bisect as a report: the answer, every step, and what explains each regression."""

from __future__ import annotations

import datetime as dt
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
from pytest_modelperf.comparing.advice import describe_doubt
from pytest_modelperf.comparing.figures import (
    format_change,
    format_figure,
    format_interval,
    metric_title,
)
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.comparing.report import case_blocks, case_section
from pytest_modelperf.comparing.tables import TONES, CaseView
from pytest_modelperf.comparing.verdict_lines import describe_verdict, verdict_word
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.shown.case_options import case_options, engine_options
from pytest_modelperf.profiler.shown.page_data import CASE_DRAWINGS, format_share, run_table
from pytest_modelperf.report.html.drawings import Drawing, Drawings
from pytest_modelperf.report.model import (
    CaseTiles,
    Choice,
    Code,
    Drawn,
    On,
    Paragraph,
    Report,
    Rows,
    Section,
    Sheet,
    Tile,
    Tone,
    lines_of,
)
from pytest_modelperf.report.tables import Column, FilledColumn, Table, table_of
from pytest_modelperf.text.quoting import shell_path, shell_word
from pytest_modelperf.text.units import format_seconds
from pytest_modelperf.text.words import count_of, shorten_list

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
    Answer.FAILED: Tone.UNSURE,
}
_TIME = "latency_p50"
_LISTED = 8
_SHEET_COLUMNS = (
    "step", "version", "title", "answer", "against", "before_ms", "after_ms", "ratio",
    "low", "high", "outputs", "allowed", "rounds", "seconds",
)  # fmt: skip


def bisect_report(bisect: Bisect, wording: Wording, made: dt.datetime | None = None) -> Report:
    """Return every step in a table, the versions of each regression, and the next commands."""
    search = bisect.search
    answer = _describe_answer(bisect)
    failed = (
        f"{short_name(step.version)} failed: {step.reason}"
        for step in search.steps
        if step.reason is not None
    )
    next_commands = tuple(Code(*each, is_command=True) for each in _next_commands(bisect))
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
        opening=(
            *(
                line
                for found in search.regressions
                for line in lines_of(_describe_regression(found, bisect))
            ),
            *lines_of(_doubts(bisect, wording), tone=Tone.UNSURE),
        ),
        tiles=tuple(_all_tiles(bisect)),
        blocks=(
            Rows(_step_table(bisect), tuple(_TONES[step.answer] for step in search.steps)),
            Paragraph(lines_of(failed, tone=Tone.UNSURE)),
            *_pair_sections(bisect, wording),
            Section(title="What to do next", blocks=next_commands),
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
    # The work of two neighbours says the same as that of each and the good end.
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


def _all_tiles(bisect: Bisect) -> Iterator[CaseTiles]:
    tried = len({step.version for step in bisect.search.steps} | {bisect.range.good})
    versions = len(bisect.range.versions)
    steps = Tile(
        "steps",
        str(len(bisect.search.steps)),
        f"{tried} of {versions} {bisect.range.kind.value}, {format_seconds(bisect.seconds)}",
    )
    if not bisect.search.regressions:
        ends = bisect.search.ends
        change, interval = _split_change(ends)
        note = ", ".join(
            filter(None, (interval, f"{short_name(ends.version)} against the good end"))
        )
        yield CaseTiles(Choice(0, 0), (Tile("change", change, note), steps))
    for number, found in enumerate(bisect.search.regressions):
        yield CaseTiles(Choice(number, 0), (*_found_tiles(found, bisect), steps))


def _found_tiles(found: Regression, bisect: Bisect) -> Iterator[Tile]:
    since = f"{_WORSE[bisect.judges]} since"
    notes = filter(None, ("or before" if found.between else "", found.first_bad.title))
    yield Tile(since, short_name(found.first_bad), ": ".join(notes))
    yield Tile("last good", short_name(found.last_good), found.last_good.title)
    yield Tile("change between them", *_split_change(found.pair or found.after))


def _split_change(step: BisectStep) -> tuple[str, str]:
    if step.is_of_work and step.metric is not None:
        return _format_work(step.metric), ""
    change, _, interval = describe_change(step).partition(" (")
    return change, interval.removesuffix(")")


# -- the steps


def _step_table(bisect: Bisect) -> Table:
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
    )
    rows = tuple((str(number), *row) for number, row in enumerate(table.rows, 1))
    return replace(table, columns=(Column("step"), *table.columns), rows=rows)


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
        # The text report has already said everything about ends that are not worse.
        on = On.ALL if bisect.search.regressions else On.PAGE
        yield replace(case_section(view, sentence, blocks, is_open=not number), on=on)


# -- what to do, and what is left to know


def _next_commands(bisect: Bisect) -> Iterator[tuple[str, str]]:
    found = bisect.search.regressions
    for pair in shown_pairs(bisect):
        if bisect.range.kind is RangeKind.COMMITS and found:
            yield f"see what {short_name(pair.after)} did", f"git show {pair.after.name}"
        elif bisect.range.kind is RangeKind.RELEASES:
            yield f"measure {pair.name} again", _comparing(bisect, pair)
        if bisect.range.kind is RangeKind.RELEASES and found:
            requirement = f"{_package(pair.before)}=={pair.before.name}"
            yield f"stay at {short_name(pair.before)}", f"pip install {shell_word(requirement)}"


def _comparing(bisect: Bisect, pair: VersionPair) -> str:
    model = shell_path(bisect.model)
    sides = zip("ab", (pair.before, pair.after), strict=True)
    pins = (
        f"--requirement-{side} {shell_word(f'{_package(each)}=={each.name}')}"
        for side, each in sides
    )
    options = (f"{name}={value}" for name, value in bisect.options.items())
    compared = bisect.search.ends.comparison
    words = [
        f"modelperf compare {model} {model}",
        *pins,
        *engine_options(bisect.engine),
        *(f"--engine-option {shell_word(option)}" for option in options),
        *([] if compared is None else case_options(compared.case)),
    ]
    return " ".join(words)


def _package(release: Version) -> str:
    """Return the package of a release, with which its label begins."""
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
