"""Two kept profiles side by side as a report, and several pairs as one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from pytest_modelperf.comparing.changes import TimeChange
from pytest_modelperf.comparing.judged_case import side_run
from pytest_modelperf.comparing.page_data import ShownComparison, compared_case, engine_of_runs
from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.comparing.tables import (
    INTERVAL,
    format_layer_ms,
    layer_change_name,
    layer_change_type,
    type_difference_table,
    without_column,
)
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.profiler.shown.drawn import case_drawn
from pytest_modelperf.profiler.shown.facts import ModelRow, models_table, run_table
from pytest_modelperf.profiler.shown.page_data import LABELS, model_entry, side_entry, whole_page
from pytest_modelperf.profiler.shown.page_latency import Entry
from pytest_modelperf.profiler.shown.tables.layer_columns import layer_total_ns
from pytest_modelperf.profiles.records import CasePair, NamedProfile, SideBySide
from pytest_modelperf.profiles.side_by_side import (
    UNTESTED,
    describe_doubt,
    is_large,
    judging_command,
)
from pytest_modelperf.report.model import (
    CaseTiles,
    Choice,
    Code,
    Line,
    On,
    Paragraph,
    Report,
    ReportBlock,
    Rows,
    Section,
    Sheet,
    Tile,
    Tone,
)
from pytest_modelperf.report.tables import Cell, Column, FilledColumn, Table, table_of
from pytest_modelperf.text.units import UNKNOWN, format_ms, format_rate, percent, table_decimals
from pytest_modelperf.text.words import count_of

ARROW = " → "


def pairs_data(pairs: Sequence[SideBySide]) -> Entry:
    """Return the data of each pair of profiles. A reader chooses one pair."""
    return {**whole_page([_pair_entry(pair) for pair in pairs]), "choice": "Profiles"}


def _pair_entry(pair: SideBySide) -> Entry:
    shown = [ShownComparison(each.id, each.id, "", _compared(each)) for each in pair.pairs]
    points = [side for each in shown if None not in (side := each.points())]
    names = (pair.before.name, pair.after.name)
    runs = [[each.compared.before for each in shown], [each.compared.after for each in shown]]
    return model_entry(
        ARROW.join(names),
        sides=[
            side_entry(label, name, engine_of_runs(found))
            for label, name, found in zip(LABELS, names, runs, strict=True)
        ],
        points=list(zip(*points, strict=True)),
        cases=[compared_case(each, len(LABELS)) for each in shown],
    )


def _compared(pair: CasePair) -> CaseComparison:
    """Return a case of both. They took no turns, so no figure is judged or has an interval."""
    return CaseComparison(
        pair.after.case,
        (),
        tuple(replace(change, time=_untested(change.time)) for change in pair.layer_types),
        layers=tuple(replace(change, time=_untested(change.time)) for change in pair.layers),
        before=side_run(pair.before.measured),
        after=side_run(pair.after.measured),
    )


def _untested(time: TimeChange | None) -> TimeChange | None:
    return None if time is None else TimeChange(ns=time.ns)


# -- two kept profiles side by side as a report


_LEAST_NAME = 16
_NS_PER_MS = 1e6


def side_by_side_report(found: SideBySide, top: int | None) -> Report:
    return replace(
        pairs_page([found], (), top),
        subject=f"{found.before.name} -> {found.after.name}",
        sheet=_pair_sheet(found),
    )


def pairs_page(pairs: Sequence[SideBySide], notes: Sequence[str], top: int | None = None) -> Report:
    """Show pairs of profiles of one model. All pairs have the same first profile."""
    choices = tuple(
        Choice(number, place)
        for number, pair in enumerate(pairs)
        for place in range(len(pair.pairs))
    )
    both = [(pair, case) for pair in pairs for case in pair.pairs]
    kept = {named.name: named for pair in pairs for named in (pair.before, pair.after)}
    names = ", ".join(kept) if len(pairs) > 1 else ARROW.join(kept)
    sections = [_pair_section(pair, top) for pair in pairs]
    engines = {name: ", ".join(engines_of(named)) for name, named in kept.items()}
    return Report(
        title=f"{pairs[0].after.profile.model.name}: {names}",
        opening=(
            *_lines([describe_kept(named) for named in kept.values()]),
            Line(text=UNTESTED, tone=Tone.UNSURE),
        ),
        tiles=tuple(
            CaseTiles(choice, tuple(_tiles(pair, case)))
            for choice, (pair, case) in zip(choices, both, strict=True)
        ),
        blocks=(
            Rows(_cases_table(pairs), (), choices),
            *(sections[0].blocks if len(sections) == 1 else sections),
        ),
        facts=(
            models_table(
                ModelRow(name, named.profile.model, engines[name]) for name, named in kept.items()
            ),
            run_table(named.profile.machine for named in kept.values()),
        ),
        closing=_lines(notes),
        drawn=case_drawn(partial(pairs_data, pairs)),
    )


def describe_kept(named: NamedProfile) -> str:
    """Return `baseline, kept 2026-01-31 12:05 UTC`, or the name alone for the counts."""
    if named.date is None:
        return named.name
    return f"{named.name}, kept {named.date.strftime('%Y-%m-%d %H:%M UTC')}"


def _lines(texts: Sequence[str]) -> tuple[Line, ...]:
    return tuple(Line(text=text) for text in texts)


def _tiles(pair: SideBySide, case: CasePair) -> Iterator[Tile]:
    sides = ((pair.before, case.before), (pair.after, case.after))
    for word, (named, each) in zip(("before", "now"), sides, strict=True):
        yield Tile(f"p50 {word}", f"{_median_ms(each)} ms", f"{named.name}, {_rate(each)} items/s")
    if case.ratio is not None:
        change = f"{100 * (case.ratio - 1):+.1f} %"
        usual = "more than" if is_large(case) else "no more than"
        yield Tile("change of p50", change, f"{usual} runs of one model may differ", Tone.UNSURE)


class _Row(NamedTuple):
    pair: SideBySide
    case: CasePair


def _cases_table(pairs: Sequence[SideBySide]) -> Table:
    names: list[FilledColumn[_Row]] = [
        (Column("profiles", is_name=True), lambda row: _names(row.pair))
    ]
    return table_of(
        "ms per batch",
        [_Row(pair, case) for pair in pairs for case in pair.pairs],
        *(names if len(pairs) > 1 else ()),
        (Column("case", is_name=True, least=24), lambda row: row.case.id),
        (Column("ms before"), lambda row: _median_ms(row.case.before)),
        (Column("ms now"), lambda row: _median_ms(row.case.after)),
        (Column("ratio"), lambda row: _format_ratio(row.case.ratio)),
        (Column("items/s before"), lambda row: _rate(row.case.before)),
        (Column("items/s now"), lambda row: _rate(row.case.after)),
        (
            Column("rounds differ by"),
            lambda row: f"{_round_spread(row.case.before)}, {_round_spread(row.case.after)}",
        ),
        caption="rounds differ by: the slowest from the fastest, in their medians, before and now",
    )


def _names(pair: SideBySide) -> str:
    return f"{pair.before.name}{ARROW}{pair.after.name}"


def _median_ms(case: CaseProfile) -> str:
    return format_ms(case.latency.percentile(50.0).value_ns)


def _rate(case: CaseProfile) -> str:
    return format_rate(case.latency.items_per_second)


def _format_ratio(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{ratio:.3f}"


def _round_spread(case: CaseProfile) -> str:
    """Return how far apart the medians of the rounds are, as a share of the fastest."""
    rounds = () if case.measured is None else case.measured.rounds
    medians = [median(made.times_ns) for made in rounds]
    if len(medians) < 2 or not min(medians):
        return UNKNOWN
    return percent(max(medians) / min(medians) - 1)


def engines_of(named: NamedProfile) -> Sequence[str]:
    runs = (case.measured for case in named.profile.cases)
    return tuple(dict.fromkeys(run.engine.label for run in runs if run is not None))


def _pair_section(pair: SideBySide, top: int | None) -> Section:
    unlike = (
        Line(text=f"{each.what}: {each.before} -> {each.after}", tone=Tone.UNSURE)
        for each in pair.unlike
    )
    single = (Line(text=_describe_single(pair, *each)) for each in pair.single)
    layers = [_layers_section(case, top) for case in pair.pairs]
    doubt = Line(text=describe_doubt(pair), tone=Tone.UNSURE)
    return Section(
        title=_names(pair),
        sentence="what differed, and what would show a change",
        blocks=(
            Paragraph((*unlike, *single, doubt)),
            Code("to know", judging_command(pair), is_command=True),
            # A page draws them.
            *(layers[0].blocks if len(layers) == 1 else layers),
        ),
        is_open=False,
    )


def _describe_single(pair: SideBySide, name: str, case: Case) -> str:
    """Return `b2-c1 was measured in pruned only`, and a failure in the other if any."""
    other = pair.after if name == pair.before.name else pair.before
    is_there = any(each.case.id == case.id for each in other.profile.cases)
    failed = f": in {other.name} it failed" if is_there else ""
    return f"{case.id} was measured in {name} only{failed}"


def _layers_section(pair: CasePair, top: int | None) -> Section:
    tables = (_types_table(pair), _layers_table(pair, top)) if pair.layers else ()
    blocks: tuple[ReportBlock, ...] = tuple(Rows(table, on=On.TEXT) for table in tables)
    if not pair.layers:
        line = Line(text=f"{pair.id}: no times of layers on both sides")
        blocks = (Paragraph((line,), on=On.TEXT),)
    return Section(title=pair.id, blocks=blocks, on=On.TEXT)


def _types_table(pair: CasePair) -> Table:
    whole = CaseComparison(pair.after.case, (), pair.layer_types)
    table = without_column(type_difference_table(whole), INTERVAL)
    return replace(table, caption="")


def _layers_table(pair: CasePair, top: int | None) -> Table:
    decimals = max(table_decimals(layer_total_ns(case)) for case in (pair.before, pair.after))
    shown = pair.layers[:top]
    more = len(pair.layers) - len(shown)
    return table_of(
        "layers that differ most, in ms",
        shown,
        (Column("layer", is_name=True, least=_LEAST_NAME), layer_change_name),
        (Column("type", is_name=True), layer_change_type),
        (Column("before"), lambda change: format_layer_ms(change.before, decimals)),
        (Column("now"), lambda change: format_layer_ms(change.after, decimals)),
        (
            Column("difference"),
            lambda change: (
                "" if change.time is None else f"{change.time.ns / _NS_PER_MS:+.{decimals}f}"
            ),
        ),
        caption=f"{count_of(more, 'more row')}: --top 0 shows all" if more else "",
    )


def _pair_sheet(found: SideBySide) -> Sheet:
    """Return a row for each case, layer type and layer, as the column `row` says."""
    rows: list[tuple[Cell, ...]] = []
    for pair in found.pairs:
        before, after = pair.before.latency.p50_ms, pair.after.latency.p50_ms
        rows.append((pair.id, "model", None, None, before, after))
        rows += [
            (pair.id, "layer type", None, kind.op, ms_of(kind.before), ms_of(kind.after))
            for kind in pair.layer_types
        ]
        for layer in pair.layers:
            about = (layer_change_name(layer), layer_change_type(layer))
            rows.append((pair.id, "layer", *about, ms_of(layer.before), ms_of(layer.after)))
    return Sheet(("case", "row", "name", "op_type", "before_ms", "now_ms"), tuple(rows))


def ms_of(side: LayerType | LayerRow | None) -> float | None:
    return None if side is None or side.ns is None else side.ns / _NS_PER_MS
