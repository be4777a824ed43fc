"""Report a profile: how fast each case was, how certain that is, and what its graph costs."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.records import CaseProfile, Outcome, Profile
from pytest_modelperf.profiler.shown.drawn import CaseAdditions, case_drawn
from pytest_modelperf.profiler.shown.facts import (
    WANTED_HALF_WIDTH,
    ModelRow,
    describe_engine,
    describe_failed,
    describe_machine_line,
    doubt_lines,
    models_table,
    noise_of,
    run_table,
    unmeasured_reasons,
)
from pytest_modelperf.profiler.shown.page_layers import kind_of
from pytest_modelperf.profiler.shown.tables.cases import (
    counts_table,
    generation_table,
    latency_table,
    layer_type_time_table,
    member_table,
    performance_table,
    top_types_table,
)
from pytest_modelperf.profiler.shown.tables.layer_columns import (
    DEFAULT_COLUMNS,
    MEASURED_COLUMNS,
    find_columns,
)
from pytest_modelperf.profiler.shown.tables.layers import (
    LayerView,
    describe_model,
    layer_table,
    layer_type_table,
    summary_table,
    uncounted_table,
)
from pytest_modelperf.report.model import (
    CaseTiles,
    Choice,
    Failure,
    Line,
    On,
    Paragraph,
    Report,
    ReportBlock,
    Rows,
    Section,
    ShareOfWhole,
    Sheet,
    Tile,
    Tone,
    lines_of,
)
from pytest_modelperf.report.tables import Column, table_of
from pytest_modelperf.text.units import (
    UNKNOWN,
    format_bytes,
    format_count,
    format_ms,
    format_rate,
    format_shape,
    format_share,
    percent,
)
from pytest_modelperf.text.words import count_of

# With more parts, a bar would have too many names to read.
_MAX_SHARES = 6
_LEAST_SHARE = 0.005
# `fused` and `runs-in` refer to layers by their ids.
_FINDS_FUSED = ("id", "runs-in")
_NO_ADDITIONS = CaseAdditions()


def profile_report(
    profile: Profile,
    view: LayerView | None = None,
    made: dt.datetime | None = None,
    additions: CaseAdditions = _NO_ADDITIONS,
) -> Report:
    cases = profile.cases
    failed = describe_failed(cases)
    engines = [case.measured.engine for case in cases if case.measured is not None]
    described = list(dict.fromkeys(map(describe_engine, engines)))
    asked = [("engine", text.removeprefix("engine ")) for text in described]
    labels = ", ".join(dict.fromkeys(engine.label for engine in engines))
    shown_view = view or _usual_view(cases)
    return Report(
        title=profile.model.name,
        subject=describe_model(profile.model),
        headline=failed,
        tone=Tone.BAD if failed else Tone.PLAIN,
        opening=tuple(_where(profile, described)),
        findings=tuple(
            Section(title="not measured", tone=Tone.BAD, blocks=(Failure(text),))
            for text in unmeasured_reasons(cases)
        ),
        tiles=tuple(_all_tiles(cases)),
        blocks=(
            *_measured_blocks(cases),
            *_brief_blocks(cases, shown_view, additions),
            *_sections(cases, shown_view, additions),
        ),
        facts=(
            models_table([ModelRow("", profile.model, labels)]),
            run_table([profile.machine], asked, made),
        ),
        sheet=layer_sheet(profile, shown_view.columns),
        drawn=case_drawn(partial(_page_data, profile), additions),
    )


def _page_data(profile: Profile) -> Mapping[str, Any]:
    # Imported here, because drawing a page takes long to import and most reports need none.
    from pytest_modelperf.profiler.shown.page_data import profile_data

    return profile_data(profile)


def _usual_view(cases: Sequence[CaseProfile]) -> LayerView:
    has_run = any(case.measured is not None for case in cases)
    return LayerView(MEASURED_COLUMNS if has_run else DEFAULT_COLUMNS)


def _where(profile: Profile, engines: Sequence[str]) -> Iterator[Line]:
    """Yield the machine and the engines, unless all cases are static."""
    if all(case.outcome is Outcome.STATIC and case.measured is None for case in profile.cases):
        return
    if profile.machine is not None:
        yield Line(text=describe_machine_line(profile.machine))
    yield from (Line(text=text) for text in engines)


def layer_sheet(profile: Profile, columns: Sequence[str]) -> Sheet:
    """Return all layers of all cases in graph order, with the times that belong to no layer.

    The times of a case add up to its median latency. The default columns of a measured profile are
    followed by those that show in which kernel a layer runs.
    """
    if tuple(columns[: len(MEASURED_COLUMNS)]) == MEASURED_COLUMNS:
        columns = (*columns, *(name for name in _FINDS_FUSED if name not in columns))
    chosen = find_columns([name for name in columns if not name.endswith("%")])
    rows = (
        (case.case.id, *(column.read(layer) for _, column in chosen))
        for case in profile.cases
        for layer in case.layers
    )
    return Sheet(("case", *(name for name, _ in chosen)), rows)


# -- the measurements


def _measured_blocks(cases: Sequence[CaseProfile]) -> Iterator[ReportBlock]:
    """Yield how fast each case was, and how certain that is, or what several cases cost."""
    measured = [place for place, case in enumerate(cases) if case.measured is not None]
    has_several = len(cases) > 1
    if measured:
        choices = tuple(Choice(0, place) for place in measured)
        yield Rows(performance_table(cases), (), choices, on=On.MARKDOWN | On.PAGE)
        yield Rows(performance_table(cases, has_tail=has_several), on=On.TERMINAL)
    elif len(graphs := _worth_showing(cases, _NO_ADDITIONS)) > 1:
        counts = counts_table([cases[place] for place in graphs])
        yield Rows(counts, (), tuple(Choice(0, place) for place in graphs))
    yield from (Failure(text, on=On.TEXT) for text in unmeasured_reasons(cases))
    if measured:
        yield Rows(latency_table(cases), may_turn=True, is_detail=has_several)
    for case in cases:
        if case.workload is not None:
            yield Rows(member_table(case.case.id, case.workload), is_detail=has_several)
    yield Paragraph(lines_of(doubt_lines(cases), tone=Tone.UNSURE))
    generation = generation_table(cases)
    if generation is not None:
        yield Rows(generation, may_turn=True)


def _brief_blocks(
    cases: Sequence[CaseProfile], view: LayerView, additions: CaseAdditions
) -> Iterator[ReportBlock]:
    """Yield what a terminal shows of several cases instead of a section for each."""
    if len(cases) > 1:
        shown = [cases[place] for place in _worth_showing(cases, additions)]
        yield Rows(top_types_table(shown), is_brief=True)
        yield Paragraph((Line(text=view.for_details, tone=Tone.DIM),), is_brief=True)


# -- one case


def _sections(
    cases: Sequence[CaseProfile], view: LayerView, additions: CaseAdditions
) -> Iterator[Section]:
    """Yield a section for each case that has tables of its own.

    The tables of a graph are in the first case with that graph.
    """
    shown = _worth_showing(cases, additions)
    known: set[int] = set()
    for place in shown:
        case = cases[place]
        is_counted = case.counted is None or id(case.counted) in known
        known.add(id(case.counted))
        yield Section(
            title=case.case.id,
            is_titled=len(shown) > 1,
            sentence="counts of its graph",
            tone=Tone.PLAIN if case.outcome is not Outcome.FAILED else Tone.BAD,
            blocks=tuple(_case_blocks(case, view, additions, is_counted=is_counted)),
            is_open=False,
            is_detail=len(cases) > 1,
            choice=Choice(0, place),
            on=On.TEXT if is_counted else On.ALL,
        )


def _worth_showing(cases: Sequence[CaseProfile], additions: CaseAdditions) -> list[int]:
    """Return the indexes of the cases with sections of their own.

    These are the cases with layer times or additions, and one case of each other graph.
    """
    known = {id(case.counted) for case in cases if case.has_layer_times}
    shown: list[int] = []
    for place, case in enumerate(cases):
        is_new = case.counted is not None and id(case.counted) not in known
        if is_new or case.has_layer_times or case.case.id in additions.blocks:
            shown.append(place)
            known.add(id(case.counted))
    return shown


def _case_blocks(
    case: CaseProfile, view: LayerView, additions: CaseAdditions, *, is_counted: bool
) -> Iterator[ReportBlock]:
    """Yield the tables of one case.

    Tables of the graph are included only if no earlier case had them.
    """
    counted = None if is_counted else case.counted
    if counted is not None:
        yield Rows(summary_table(case))
        yield Paragraph(lines_of(counted.notes, "note", Tone.UNSURE))
        uncounted = uncounted_table(counted)
        if uncounted is not None:
            yield Rows(uncounted, (Tone.UNSURE,) * len(uncounted.rows))
    # A page has drawings instead of the tables that follow.
    if case.has_layer_times:
        yield Rows(layer_type_time_table(case), on=On.TEXT)
    elif counted is not None:
        yield Rows(layer_type_table(counted), on=On.TEXT)
    yield from additions.blocks.get(case.case.id, ())
    if case.has_layer_times or counted is not None:
        yield Rows(layer_table(case, view), on=On.TEXT)


# -- the figures that a page shows first


def _all_tiles(cases: Sequence[CaseProfile]) -> Iterator[CaseTiles]:
    for place, case in enumerate(cases):
        tiles = tuple(_tiles(case))
        if tiles:
            whole = "where the time goes" if case.has_layer_times else "where the MACs go"
            yield CaseTiles(Choice(0, place), tiles, tuple(_shares(case)), whole)


def _shares(case: CaseProfile) -> Iterator[ShareOfWhole]:
    """Yield the share of each type of layers, the largest first, and of all others together."""
    is_timed = case.has_layer_times
    parts = {
        op: (kind.ns if is_timed else kind.macs) or 0.0 for op, kind in case.layer_types.items()
    }
    whole = math.fsum(parts.values())
    ordered = sorted(parts, key=parts.__getitem__, reverse=True)
    large = [op for op in ordered[:_MAX_SHARES] if whole and parts[op] / whole >= _LEAST_SHARE]
    for op in large:
        kind = kind_of(op, is_layer=case.layer_types[op].count > 0)
        yield _share(op, parts[op], whole, kind["id"], is_timed=is_timed)
    others = [op for op in ordered if op not in large and parts[op] > 0]
    if large and others:
        rest = math.fsum(parts[op] for op in others)
        name = count_of(len(others), "other type")
        yield _share(name, rest, whole, "other", is_timed=is_timed)


def _share(name: str, part: float, whole: float, kind: str, *, is_timed: bool) -> ShareOfWhole:
    figure = f"{format_ms(part)} ms" if is_timed else format_count(round(part))
    return ShareOfWhole(name, part / whole, f"{figure}, {format_share(part, whole)}", kind)


def _tiles(case: CaseProfile) -> Iterator[Tile]:
    if case.outcome is Outcome.FAILED:
        yield Tile("latency", "failed", "not measured", Tone.BAD)
    if case.measured is not None:
        yield _typical(case.measured)
        rate = format_rate(case.measured.items_per_second)
        yield Tile("items a second", rate, f"batch {case.case.batch_size}")
    static = case.counted
    if static is not None:
        least = "at least " if static.coverage < 1 else ""
        yield Tile("MACs", format_count(static.macs), least.strip())
        if case.measured is None:
            yield Tile("FLOPs", format_count(static.flops), least.strip())
        yield Tile("params", format_count(static.params), format_bytes(static.weight_bytes))
    if case.measured is not None and case.measured.peak_rss_bytes is not None:
        yield Tile("peak memory", format_bytes(case.measured.peak_rss_bytes), "of the process")
    elif static is not None and static.peak_activation_bytes is not None:
        yield Tile("peak activations", format_bytes(static.peak_activation_bytes))
    if case.measured is not None:
        yield _noise(case.measured)


def _typical(measured: Measurement) -> Tile:
    median = measured.typical
    note = "no interval: too few rounds"
    if median.low_ns is not None and median.high_ns is not None:
        bounds = f"{format_ms(median.low_ns)} … {format_ms(median.high_ns)}"
        note = f"{bounds}, {100 * measured.latency.confidence:.4g} % interval"
    title = "p50 latency" if measured.mixture is None else "mean latency"
    return Tile(title, f"{format_ms(median.value_ns)} ms", note)


def _noise(measured: Measurement) -> Tile:
    """Return a tile on how noisy the measurement was, and whether its interval is too wide."""
    found = noise_of(measured)
    if found:
        return Tile("noise", "noisy", "; ".join(found), Tone.UNSURE)
    width = measured.typical.half_width
    if width is None:
        return Tile("noise", "unknown", "too few rounds for an interval", Tone.UNSURE)
    is_wide = width > WANTED_HALF_WIDTH
    tone = Tone.UNSURE if is_wide else Tone.GOOD
    figure = "p50" if measured.mixture is None else "mean"
    word = "uneven" if is_wide else "quiet"
    return Tile("noise", word, f"{figure} ± {percent(width)}", tone)


# -- the shape of every tensor of a model as a report


def shapes_report(bound: BoundModel) -> Report:
    """Report the shape of every tensor: inputs first, the others in the order of computation."""
    roles = {
        **dict.fromkeys(bound.stored, "weight"),
        **{tensor.name: "output" for tensor in bound.graph.outputs},
        **{tensor.name: "input" for tensor in bound.graph.inputs},
    }
    tensors = sorted(bound.tensors.values(), key=lambda each: roles.get(each.name) != "input")
    known = sum(tensor.has_known_shape for tensor in tensors)
    table = table_of(
        "",
        tensors,
        (Column("tensor", is_name=True), lambda tensor: tensor.name),
        (Column("what", is_text=True), lambda tensor: roles.get(tensor.name, "hidden")),
        (Column("type", is_text=True), lambda tensor: tensor.dtype or UNKNOWN),
        (Column("shape", is_text=True), lambda tensor: format_shape(tensor.shape)),
    )
    return Report(
        title=f"{bound.file.name}: shapes",
        subject=f"{bound.file.name}: {known} of {len(tensors)} tensors have a shape",
        opening=tuple(Line(word="note", text=note) for note in bound.notes),
        blocks=(Rows(table),),
    )
