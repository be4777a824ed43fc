"""Kept profiles as reports: their list, the page of one, and its times next to its counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.shown.facts import describe_instruction_sets
from pytest_modelperf.profiler.shown.report import profile_report
from pytest_modelperf.profiler.shown.tables.layer_columns import layer_total_ns
from pytest_modelperf.profiler.shown.tables.layers import LayerView, describe_model
from pytest_modelperf.profiles.records import FLOPS, NamedProfile, ProfileList, WorkAndTime
from pytest_modelperf.profiles.report_pairs import describe_kept, engines_of, ms_of, pairs_page
from pytest_modelperf.profiles.side_by_side import BesideFirst, roofline_command
from pytest_modelperf.report.model import (
    Code,
    Line,
    On,
    Paragraph,
    Report,
    ReportBlock,
    Rows,
    Section,
    Sheet,
    Tone,
)
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.roofline.report import roofline_additions
from pytest_modelperf.text.units import (
    UNKNOWN,
    format_count,
    format_ms,
    format_rate,
    format_share,
    table_decimals,
)
from pytest_modelperf.text.words import shell_path

_OLDER = "*"
_LEAST_NAME = 16


# -- the list


def profile_list_report(found: ProfileList, compared: BesideFirst | None = None) -> Report:
    """List the counts and the kept profiles.

    A page also compares each kept profile with the first.
    """
    known = found.flops or next(reversed(found.kept), None)
    unusable = [Line(word=each.name, text=each.reason, tone=Tone.BAD) for each in found.unusable]
    blocks: list[ReportBlock] = []
    if known is not None:
        blocks.append(Rows(_profiles_table(found)))
    conditions = tuple(_condition_lines(found.kept))
    if conditions:
        blocks.append(Paragraph(conditions))
    if not found.kept:
        blocks.append(Paragraph((Line(text="none is kept"),)))
        blocks.append(Code("keep one", _first_command(found), is_command=True))
    if unusable:
        blocks.append(Paragraph(tuple(unusable)))
    page = _only_on_page(_page_of_list(found, compared))
    return replace(
        page,
        subject=found.model if known is None else describe_model(known.profile.model),
        blocks=(*blocks, *page.blocks),
        sheet=_list_sheet(found),
    )


def _page_of_list(found: ProfileList, compared: BesideFirst | None) -> Report:
    if compared is not None:
        return pairs_page(compared.pairs, compared.notes)
    return named_report(found.kept[0]) if len(found.kept) == 1 else Report(title=found.model)


def _first_command(found: ProfileList) -> str:
    """Return the command that keeps a first profile, of a function if no counts are known."""
    is_function = found.flops is None and not found.unusable
    engine = " --engine callable" if is_function else ""
    folder = "" if found.folder is None else f" --profile-dir {shell_path(found.folder)}"
    return f"modelperf profile {shell_path(found.model)}{engine} --name baseline{folder}"


def _profiles_table(found: ProfileList) -> Table:
    columns = (
        Column("profile", is_name=True, least=_LEAST_NAME),
        Column("date", is_text=True, least=len("always there")),
        Column("time", is_text=True, rank=1),
        Column("batch"),
        Column("cores"),
        Column("dims", is_text=True),
        Column("phase", is_name=True, least=_LEAST_NAME),
        Column("ms per batch"),
        Column("items/s"),
        Column("MACs"),
        Column("params"),
    )
    rows = (row for named in found.profiles for row in _profile_rows(named, found))
    captions = []
    if found.older:
        captions.append(f"{_OLDER} measured with a different version of the model file")
    if any(_has_few_inferences(named) for named in found.kept):
        captions.append(
            f"{UNKNOWN} too few inferences to tell; a larger max-seconds makes time for more"
        )
    return drop_blank_columns(Table("profiles", columns, tuple(rows), None, "\n".join(captions)))


def _has_few_inferences(named: NamedProfile) -> bool:
    return any(
        case.measured is not None and case.measured.latency.percentile(50.0).value_ns is None
        for case in named.profile.cases
    )


def _profile_rows(named: NamedProfile, found: ProfileList) -> Iterator[tuple[str, ...]]:
    mark = f" {_OLDER}" if named.name in (found.older or ()) else ""
    date = ("always there", "")
    if named.date is not None:
        date = (named.date.strftime("%Y-%m-%d"), named.date.strftime("%H:%M"))
    for index, case in enumerate(named.profile.cases):
        head = ("", "", "") if index else (f"{named.name}{mark}", *date)
        yield (*head, *_case_cells(case, is_flops=named.is_flops))


def _case_cells(case: CaseProfile, *, is_flops: bool) -> tuple[str, ...]:
    counted, run = case.counted, case.measured
    latency = "" if is_flops else case.outcome.value
    return (
        str(case.case.batch_size),
        "" if is_flops else str(case.case.cores),
        ", ".join(f"{name}={size}" for name, size in case.case.dims),
        "" if case.case.phase is None else case.case.phase.id,
        latency if run is None else format_ms(run.latency.percentile(50.0).value_ns),
        "" if run is None else format_rate(run.latency.items_per_second),
        "" if counted is None else format_count(counted.macs),
        "" if counted is None else format_count(counted.params),
    )


def _condition_lines(kept: Sequence[NamedProfile]) -> Iterator[Line]:
    """Yield the engines and the instruction sets, each with the names of the profiles.

    For example `engine: onnxruntime 1.31.1 (a, b), openvino 2026.4.1 (c)`.
    """
    engines: dict[str, list[str]] = {}
    sets: dict[str, list[str]] = {}
    for named in kept:
        for engine in engines_of(named):
            engines.setdefault(engine, []).append(named.name)
        machine = named.profile.machine
        known = "" if machine is None else describe_instruction_sets(machine)
        sets.setdefault(known or UNKNOWN, []).append(named.name)
    for word, found in (("engine", engines), ("instruction sets", sets)):
        texts = [f"{text} ({', '.join(names)})" for text, names in found.items()]
        if texts:
            yield Line(word=word, text=", ".join(texts if len(texts) > 1 else found))


def _list_sheet(found: ProfileList) -> Sheet:
    columns = (
        *("profile", "date", "batch_size", "cores", "dims", "phase", "outcome"),
        *("p50_ms", "items_per_second", "macs", "params", "engine"),
    )
    rows = tuple(
        (
            named.name,
            None if named.date is None else named.date.isoformat(),
            case.case.batch_size,
            None if named.is_flops else case.case.cores,
            " ".join(f"{name}={size}" for name, size in case.case.dims),
            None if case.case.phase is None else case.case.phase.id,
            case.outcome.value,
            None if run is None else run.latency.p50_ms,
            None if run is None else run.latency.items_per_second,
            None if case.counted is None else case.counted.macs,
            None if case.counted is None else case.counted.params,
            None if run is None else run.engine.label,
        )
        for named in found.profiles
        for case in named.profile.cases
        for run in [case.measured]
    )
    return Sheet(columns, rows)


# -- one of them


def named_report(
    named: NamedProfile,
    view: LayerView | None = None,
    *,
    is_older: bool = False,
    notes: Sequence[str] = (),
) -> Report:
    """Show a profile as `modelperf profile` does, with its date and its rooflines.

    A note says why a case has no roofline.
    """
    additions = roofline_additions(named.rooflines, None if view is None else view.top)
    report = profile_report(named.profile, view, named.date, additions)
    older = "of a different version of the model file"
    kept = Line(text=describe_kept(named), is_bold=True, on=On.PAGE)
    if named.date is not None:
        model = Line(text=report.subject, on=On.TEXT)
        report = replace(report, subject=kept.text, opening=(kept, model, *report.opening))
    missing = tuple(_missing_rooflines(named))
    return replace(
        report,
        title=f"{named.profile.model.name}: {named.name}",
        opening=(*([Line(text=older, tone=Tone.UNSURE)] if is_older else []), *report.opening),
        blocks=(*report.blocks, *missing),
        closing=tuple(Line(text=note, tone=Tone.UNSURE) for note in notes),
    )


def _missing_rooflines(named: NamedProfile) -> Iterator[ReportBlock]:
    without = [
        case
        for case in named.profile.cases
        if case.measured is not None and case.case.id not in named.rooflines
    ]
    timed = [case for case in without if case.measured and case.measured.layer_times]
    for some, why in (
        ([case for case in without if case not in timed], "there are no times of layers"),
        (timed, "none was kept"),
    ):
        if some:
            ids = ", ".join(case.case.id for case in some)
            yield Paragraph((Line(text=f"no roofline of {ids}: {why}"),), on=On.TEXT)
    if timed:
        yield Code("with one", roofline_command(named, timed), is_command=True, on=On.TEXT)


def _only_on_page(report: Report) -> Report:
    """Limit a report to the page, as a part of one that has another text."""
    return replace(
        report,
        opening=tuple(replace(line, on=line.on & On.PAGE) for line in report.opening),
        blocks=tuple(replace(block, on=block.on & On.PAGE) for block in report.blocks),
        closing=tuple(replace(line, on=line.on & On.PAGE) for line in report.closing),
    )


# -- work and time


def work_and_time_report(found: WorkAndTime) -> Report:
    """Show shares of the MACs next to shares of the time. The page is that of the profile."""
    page = _only_on_page(named_report(found.kept))
    sections = [
        Section(title=case.case.id, blocks=(Rows(_work_and_time_table(case)),))
        for case in found.cases
    ]
    missing = tuple(Line(text=f"{each.id} has no times of layers") for each in found.without_times)
    return replace(
        page,
        subject=f"{FLOPS} and {describe_kept(found.kept)}",
        blocks=(
            *(sections[0].blocks if len(sections) == 1 else sections),
            *([Paragraph(missing)] if missing else []),
            *page.blocks,
        ),
        sheet=_work_and_time_sheet(found),
    )


def _work_and_time_table(case: CaseProfile) -> Table:
    """Make a row per operator: its share of the MACs and of the time, the longest first."""
    total_ns = layer_total_ns(case)
    macs = case.static.macs
    decimals = table_decimals(total_ns)
    kinds = _longest_first(case)
    total = (
        "total",
        str(len(case.static.layers)),
        format_count(macs),
        "",
        format_ms(total_ns, decimals),
        "",
    )
    # A time that belongs to no layer has no counts.
    return table_of(
        f"{FLOPS} and time by layer type",
        kinds,
        (Column("layer type", is_name=True), lambda kind: kind.qualified_op),
        (Column("count"), lambda kind: str(kind.count) if kind.count else ""),
        (Column("MACs"), lambda kind: format_count(kind.macs) if kind.count else ""),
        (Column("share of MACs"), lambda kind: format_share(kind.macs, macs) if kind.count else ""),
        (Column("ms"), lambda kind: "" if kind.ns is None else format_ms(kind.ns, decimals)),
        (
            Column("share of time", has_bars=True),
            lambda kind: "" if kind.ns is None else format_share(kind.ns, total_ns),
        ),
        total=total,
        caption="no ms: it runs in the kernels of other layers, or not at all"
        if any(kind.ns is None for kind in kinds)
        else "",
    )


def _longest_first(case: CaseProfile) -> list[LayerType]:
    kinds = case.layer_types.values()
    return sorted(kinds, key=lambda kind: (-(kind.ns or 0.0), kind.qualified_op))


def _work_and_time_sheet(found: WorkAndTime) -> Sheet:
    rows = tuple(
        (
            case.case.id,
            kind.qualified_op,
            kind.count,
            kind.macs if kind.count else None,
            ms_of(kind),
        )
        for case in found.cases
        for kind in _longest_first(case)
    )
    return Sheet(("case", "op_type", "count", "macs", "ms"), rows)
