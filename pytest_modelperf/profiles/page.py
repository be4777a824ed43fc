"""Kept profiles as a page: one of them, or each beside the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pytest_modelperf.profiler.shown.case_page import render_case_page
from pytest_modelperf.profiler.shown.page import profile_report
from pytest_modelperf.profiler.shown.page_data import profile_data
from pytest_modelperf.profiler.shown.page_facts import ModelRow, models_table, run_table
from pytest_modelperf.profiles.advice import UNTESTED, is_large, judging_command
from pytest_modelperf.profiles.page_data import ARROW, pairs_data
from pytest_modelperf.profiles.records import CasePair, NamedProfile, SideBySide
from pytest_modelperf.profiles.tables import case_pair_table
from pytest_modelperf.profiles.text import describe_date, describe_single
from pytest_modelperf.report.model import (
    CaseTiles,
    Choice,
    Line,
    Paragraph,
    Report,
    Rows,
    Section,
    Tile,
    Tone,
)
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.roofline.report import roofline_addition
from pytest_modelperf.text.units import format_ms, format_rate


def render_named_page(named: NamedProfile, notes: Sequence[str] = ()) -> str:
    """The page of `modelperf profile`, also of the counts; with the rooflines that there are."""
    report = profile_report(named.profile, named.date)
    report = replace(
        report,
        title=f"{named.profile.model.name}: {named.name}",
        opening=() if named.date is None else (Line(text=f"kept {describe_date(named)}"),),
        closing=(*report.closing, *_lines(notes)),
    )
    data = profile_data(named.profile)
    return render_case_page(data, report, roofline_addition(named.rooflines))


def render_pairs_page(pairs: Sequence[SideBySide], notes: Sequence[str] = ()) -> str:
    """Pairs of profiles of one model; they have the first profile in common."""
    return render_case_page(pairs_data(pairs), pairs_overview(pairs, notes))


def pairs_overview(pairs: Sequence[SideBySide], notes: Sequence[str] = ()) -> Report:
    choices = tuple(
        Choice(number, place)
        for number, pair in enumerate(pairs)
        for place in range(len(pair.pairs))
    )
    both = [(pair, case) for pair in pairs for case in pair.pairs]
    kept = {named.name: named for pair in pairs for named in (pair.before, pair.after)}
    names = ", ".join(kept) if len(pairs) > 1 else ARROW.join(kept)
    return Report(
        title=f"{pairs[0].after.profile.model.name}: {names}",
        opening=(Line(text=UNTESTED),),
        tiles=tuple(
            CaseTiles(choice, tuple(_tiles(pair, case)))
            for choice, (pair, case) in zip(choices, both, strict=True)
        ),
        blocks=(
            Rows(_cases_table(pairs), (), choices),
            *(_section(pair, is_open=len(pairs) == 1) for pair in pairs),
        ),
        facts=(
            models_table(
                ModelRow(named.name, named.profile.model, _engines(named))
                for named in kept.values()
            ),
            run_table(named.profile.machine for named in kept.values()),
        ),
        closing=_lines(notes),
    )


def _lines(texts: Sequence[str]) -> tuple[Line, ...]:
    return tuple(Line(text=text) for text in texts)


def _tiles(pair: SideBySide, case: CasePair) -> Iterator[Tile]:
    sides = ((pair.before, case.before), (pair.after, case.after))
    for word, (named, each) in zip(("before", "now"), sides, strict=True):
        rate = format_rate(each.latency.items_per_second)
        yield Tile(
            f"p50 {word}",
            f"{format_ms(each.latency.percentile(50.0).value_ns)} ms",
            f"{named.name}, {rate} items/s",
        )
    if case.ratio is not None:
        change = f"{100 * (case.ratio - 1):+.1f} %"
        usual = "more than" if is_large(case) else "no more than"
        yield Tile("change of p50", change, f"{usual} runs of one model may differ", Tone.UNSURE)


def _cases_table(pairs: Sequence[SideBySide]) -> Table:
    """The cases of all pairs, with the names of the profiles where there are several pairs."""
    tables = [case_pair_table(pair) for pair in pairs]
    if len(pairs) == 1:
        return replace(tables[0], title="")
    return replace(
        tables[0],
        title="",
        columns=(Column("profiles", is_name=True), *tables[0].columns),
        rows=tuple(
            (_names(pair), *row)
            for pair, table in zip(pairs, tables, strict=True)
            for row in table.rows
        ),
    )


def _section(pair: SideBySide, *, is_open: bool) -> Section:
    facts = (
        *((each.what, f"{each.before}{ARROW}{each.after}") for each in pair.unlike),
        *(
            (case.id, f"measured in {describe_single(pair, name, case)}")
            for name, case in pair.single
        ),
        ("to know", judging_command(pair)),
    )
    return Section(
        title=_names(pair),
        sentence="what differed, and what would tell",
        blocks=(Paragraph(tuple(Line(word=word, text=text) for word, text in facts)),),
        is_open=is_open,
    )


def _names(pair: SideBySide) -> str:
    return f"{pair.before.name}{ARROW}{pair.after.name}"


def _engines(named: NamedProfile) -> str:
    runs = (case.measured for case in named.profile.cases)
    return ", ".join(dict.fromkeys(run.engine.label for run in runs if run is not None))
