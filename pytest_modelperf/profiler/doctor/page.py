"""Checkups as a page: what can be detected here, how the rounds went, and what to do."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from pytest_modelperf.profiler.doctor.page_data import checkups_data
from pytest_modelperf.profiler.doctor.records import Checkup
from pytest_modelperf.profiler.doctor.text import (
    TOLERANCE,
    advice_lines,
    describe_checkup,
    describe_growth,
    first_detecting,
    format_interval,
    format_kilobytes,
    format_ratio,
    format_seen,
    format_spread,
    format_took,
    may_be_one,
    noise_table,
    outlook_table,
)
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.shown.case_page import CASE_DRAWINGS
from pytest_modelperf.profiler.shown.conditions import describe_engine, find_noise
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
from pytest_modelperf.report.tables import Table

_DRAWINGS = Drawings(
    parts=(
        Drawing("detectable", "What could be detected"),
        Drawing("duet", "The second session against the first"),
        Drawing("rounds", "Samples by round"),
        Drawing("disturbances", "What disturbed the rounds"),
        Drawing("time", "Inference time"),
    ),
    styles=CASE_DRAWINGS.styles,
    scripts=(*CASE_DRAWINGS.scripts, Path(__file__).with_name("html") / "doctor.js"),
)
_FIT = "fit to measure"


def render_doctor_page(
    machine: MachineFacts, checkups: Sequence[Checkup], *, made: dt.datetime | None = None
) -> str:
    data = checkups_data(checkups, TOLERANCE)
    return render_page(
        replace(doctor_overview(machine, checkups, made), drawn=Drawn(_DRAWINGS, lambda: data))
    )


def doctor_overview(
    machine: MachineFacts, checkups: Sequence[Checkup], made: dt.datetime | None = None
) -> Report:
    headline = _headline(checkups)
    choices = tuple(Choice(0, place) for place in range(len(checkups)))
    advice = list(dict.fromkeys(advice_lines(machine, checkups)))
    growth = [describe_growth(each.cores, each.growth) for each in checkups if each.growth]
    rule = [
        ("engine", describe_engine(checkups[0].engine).removeprefix("engine ")),
        ("tolerance", format_share(TOLERANCE)),
    ]
    return Report(
        title=f"This machine, measured by {checkups[0].model}",
        headline=headline,
        tone=Tone.GOOD if headline == _FIT else Tone.UNSURE,
        opening=tuple(Line(text=describe_checkup(each)) for each in checkups),
        tiles=tuple(
            CaseTiles(choice, tuple(_tiles(each)))
            for choice, each in zip(choices, checkups, strict=True)
        ),
        blocks=(
            Rows(replace(noise_table(checkups), title=""), (), choices),
            Rows(_outlook(checkups)),
            *_advice_sections(advice),
        ),
        facts=(run_table([machine], rule, made),),
        closing=tuple(
            Line(text=text)
            for text in (*growth, *dict.fromkeys(note for each in checkups for note in each.notes))
        ),
    )


def _headline(checkups: Sequence[Checkup]) -> str:
    if all(first_detecting(each) is not None for each in checkups):
        return _FIT
    is_told = any(math.isfinite(look.change) for each in checkups for look in each.outlook)
    return "noisy" if is_told else "too few rounds to tell"


def _outlook(checkups: Sequence[Checkup]) -> Table:
    """The detectable slowdowns, with the time of each in its cell."""
    table = outlook_table(checkups)
    pairs = zip(table.rows[::2], table.rows[1::2], strict=True)
    rows = (
        (cores, *map(" ".join, zip(seen, took, strict=True)))
        for (cores, *seen), (_, *took) in pairs
    )
    return replace(table, rows=tuple(rows))


def _advice_sections(advice: Sequence[str]) -> tuple[Section, ...]:
    if not advice:
        return ()
    lines = Paragraph(tuple(Line(word="advice", text=text) for text in advice))
    return (Section(title="What to do", sentence="to measure with less noise", blocks=(lines,)),)


def _tiles(checkup: Checkup) -> Iterator[Tile]:
    enough = first_detecting(checkup)
    look = enough or min(checkup.outlook, key=lambda each: each.change)
    yield Tile(
        "a slowdown is seen from",
        format_seen(look.change),
        f"in {format_took(look.seconds)}, {look.rounds} rounds",
        Tone.UNSURE if enough is None else Tone.GOOD,
    )
    yield _difference(checkup)
    yield Tile(
        "spread within a session",
        f"± {format_spread(checkup.spread.inferences)}",
        f"between sessions ± {format_spread(checkup.spread.sessions)}",
    )
    noise = find_noise(checkup.noise, len(checkup.processors or ()) or checkup.cores)
    tone = Tone.UNSURE if noise else Tone.GOOD
    yield Tile("noise", "noisy" if noise else "quiet", "; ".join(noise), tone)
    if checkup.growth is not None:
        grows = checkup.growth.is_shown
        size = f"{format_kilobytes(checkup.growth.bytes_per_inference)} KB"
        value, unit = (size, "an inference") if grows else ("none shown", "")
        yield Tile("growth of memory", value, unit, Tone.BAD if grows else Tone.GOOD)


def _difference(checkup: Checkup) -> Tile:
    """How much the two sessions differ, which they would not without noise."""
    ratio = checkup.ratio
    name, value = "difference of the sessions", format_ratio(ratio.value)
    interval = format_interval(ratio)
    if not interval:
        return Tile(name, value, "no interval: too few rounds", Tone.UNSURE)
    tone = Tone.PLAIN if may_be_one(ratio) else Tone.UNSURE
    return Tile(name, value, f"95 % interval {interval}", tone)
