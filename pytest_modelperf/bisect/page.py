"""A bisect as a page: the steps as a picture, and the versions that they found in full."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from pytest_modelperf.bisect.page_data import VersionPair, bisect_data, shown_pairs
from pytest_modelperf.bisect.records import (
    Answer,
    Bisect,
    BisectFigure,
    RangeKind,
    Regression,
    Version,
)
from pytest_modelperf.bisect.text import (
    describe_answer,
    describe_change,
    describe_regression,
    doubt_of,
    note_lines,
    short_name,
    step_table,
)
from pytest_modelperf.comparing.case_view import TONES, CaseView
from pytest_modelperf.comparing.verdict_lines import describe_verdict, verdict_word
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.shown.case_options import case_options, engine_options
from pytest_modelperf.profiler.shown.case_page import CASE_DRAWINGS
from pytest_modelperf.profiler.shown.page_facts import format_share, run_table
from pytest_modelperf.report.html.drawings import Drawing, Drawings
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.model import (
    CaseTiles,
    Choice,
    Drawn,
    Line,
    Paragraph,
    Report,
    Rows,
    Section,
    Tile,
    Tone,
)
from pytest_modelperf.text.quoting import shell_path, shell_word
from pytest_modelperf.text.units import format_seconds

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


def render_bisect_page(bisect: Bisect, wording: Wording, *, made: dt.datetime | None = None) -> str:
    return render_page(
        replace(
            bisect_overview(bisect, wording, made),
            drawn=Drawn(_DRAWINGS, lambda: bisect_data(bisect)),
        )
    )


def bisect_overview(bisect: Bisect, wording: Wording, made: dt.datetime | None = None) -> Report:
    search = bisect.search
    doubt = doubt_of(bisect, wording)
    failed = (step for step in search.steps if step.reason is not None)
    rule = [
        ("model", bisect.model),
        ("case", bisect.case),
        ("engine", bisect.engine),
        ("tolerance", format_share(bisect.tolerance)),
        ("took", format_seconds(bisect.seconds)),
    ]
    if bisect.judges is BisectFigure.LATENCY:
        rule.insert(-1, ("chance of a wrong answer", f"at most {format_share(bisect.level)}"))
    return Report(
        title=f"{bisect.model}: {short_name(bisect.range.good)} to {short_name(bisect.range.bad)}",
        headline=describe_answer(bisect),
        tone=Tone.PLAIN if search.verdict is None else TONES[search.verdict.value],
        opening=() if doubt is None else (Line(text=doubt),),
        tiles=tuple(_all_tiles(bisect)),
        blocks=(
            Rows(step_table(bisect), tuple(_TONES[step.answer] for step in search.steps)),
            *_pair_sections(bisect, wording),
            Section(title="What to do next", blocks=(Paragraph(_next_lines(bisect, wording)),)),
        ),
        facts=(run_table([], rule, made),),
        closing=tuple(
            Line(text=text)
            for text in (
                *(
                    each
                    for found in search.regressions
                    for each in describe_regression(found, bisect)
                ),
                *(f"{short_name(step.version)} failed: {step.reason}" for step in failed),
                *note_lines(bisect, wording),
            )
        ),
    )


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
        change, _, interval = describe_change(ends).partition(" (")
        note = f"{interval.removesuffix(')')}, {short_name(ends.version)} against the good end"
        yield CaseTiles(Choice(0, 0), (Tile("change", change, note.removeprefix(", ")), steps))
    for number, found in enumerate(bisect.search.regressions):
        yield CaseTiles(Choice(number, 0), (*_found_tiles(found, bisect.judges), steps))


def _found_tiles(found: Regression, judges: BisectFigure) -> Iterator[Tile]:
    since = "slower since" if judges is BisectFigure.LATENCY else "other outputs since"
    name = f"{'or before: ' if found.between else ''}{found.first_bad.title}"
    yield Tile(since, short_name(found.first_bad), name)
    yield Tile("last good", short_name(found.last_good), found.last_good.title)
    step = found.pair or found.after
    change, _, interval = describe_change(step).partition(" (")
    yield Tile("change between them", change, interval.removesuffix(")"))


def _pair_sections(bisect: Bisect, wording: Wording) -> Iterator[Section]:
    """The figures and reasons of the two versions of each regression."""
    for number, pair in enumerate(shown_pairs(bisect)):
        case = pair.compared
        if case is None:
            continue
        view = CaseView(
            name=pair.name, word=verdict_word(case), compared=case, choice=Choice(number, 0)
        )
        yield view.section(describe_verdict(case, None), wording, is_open=not number)


def _next_lines(bisect: Bisect, wording: Wording) -> tuple[Line, ...]:
    return tuple(Line(word=word, text=text) for word, text in _next_steps(bisect, wording))


def _next_steps(bisect: Bisect, wording: Wording) -> Iterator[tuple[str, str]]:
    """A purpose and what to type for it."""
    found = bisect.search.regressions
    for pair in shown_pairs(bisect):
        if bisect.range.kind is RangeKind.COMMITS and found:
            yield f"see what {short_name(pair.after)} did", f"git show {pair.after.name}"
        elif bisect.range.kind is RangeKind.RELEASES:
            yield f"measure {pair.name} again", _comparing(bisect, pair)
        if bisect.range.kind is RangeKind.RELEASES and found:
            requirement = f"{_package(pair.before)}=={pair.before.name}"
            yield f"stay at {short_name(pair.before)}", f"pip install {shell_word(requirement)}"
    if bisect.may_have_more:
        yield "find other regressions in the range", "the same command with --all"
    is_timed = bisect.judges is BisectFigure.LATENCY
    if is_timed and any(step.answer is Answer.INCONCLUSIVE for step in bisect.search.steps):
        yield "decide what is open", f"the same command with {wording.names['max_seconds']}"


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
    """The package of a release, which its label begins with."""
    return release.label.rpartition(" ")[0]
