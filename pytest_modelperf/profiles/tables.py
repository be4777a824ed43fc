"""The tables of kept profiles: the list, two side by side, and times beside counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from msgspec.structs import replace

from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.comparing.tables import (
    INTERVAL,
    format_layer_ms,
    layer_change_name,
    layer_change_type,
    type_difference_table,
    without_column,
)
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.shown.conditions import describe_instruction_sets
from pytest_modelperf.profiler.shown.tables.layer_columns import layer_total_ns
from pytest_modelperf.profiles.records import FLOPS, CasePair, NamedProfile, ProfileList, SideBySide
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import (
    UNKNOWN,
    format_count,
    format_ms,
    format_rate,
    format_share,
    percent,
    table_decimals,
)
from pytest_modelperf.text.words import count_of

OLDER = "*"
_MINUTES = "%Y-%m-%d %H:%M"
_DAY = "%Y-%m-%d"
_ENGINE, _SETS = "engine", "instruction sets"
_LEAST_NAME = 16


# -- the list


def profile_list_tables(found: ProfileList) -> tuple[Table, ...]:
    """A row for each case of each profile, the counts first; and narrower tables."""
    return (
        _profile_list_table(found, _MINUTES, has_conditions=True),
        _profile_list_table(found, _DAY, has_conditions=True),
        _profile_list_table(found, _DAY, has_conditions=False),
    )


def _profile_list_table(found: ProfileList, date: str, *, has_conditions: bool) -> Table:
    columns = (
        Column("profile", is_name=True, least=_LEAST_NAME),
        Column("date", is_text=True, least=len("2026-01-31 12:00")),
        Column("batch"),
        Column("cores"),
        Column("dims", is_text=True),
        Column("phase", is_name=True, least=_LEAST_NAME),
        Column("ms per batch"),
        Column("items/s"),
        Column("MACs"),
        Column("params"),
        *(
            (Column(_ENGINE, is_text=True), Column(_SETS, is_text=True, least=len(_SETS)))
            if has_conditions
            else ()
        ),
    )
    shown = found.kept if found.flops is None else (found.flops, *found.kept)
    rows = (row[: len(columns)] for named in shown for row in _rows(named, found, date))
    caption = "\n".join(_captions(found, has_conditions=has_conditions))
    return drop_blank_columns(Table("profiles", columns, tuple(rows), None, caption))


def _captions(found: ProfileList, *, has_conditions: bool) -> Iterator[str]:
    if found.older:
        yield f"{OLDER} measured of another model file than the present one"
    if any(value is None for value in _medians(found)):
        yield f"{UNKNOWN} too few inferences to tell; a larger max-seconds makes time for more"
    if not has_conditions:
        yield from _condition_lines(found.kept)


def _condition_lines(kept: Sequence[NamedProfile]) -> Iterator[str]:
    """Lines in place of columns: `engine: onnxruntime 1.31.1 (a, b), openvino 2026.4.1 (c)`."""
    engines: dict[str, list[str]] = {}
    sets: dict[str, list[str]] = {}
    for named in kept:
        name = printable(named.name)
        runs = (case.measured for case in named.profile.cases)
        for engine in dict.fromkeys(printable(run.engine.label) for run in runs if run):
            engines.setdefault(engine, []).append(name)
        sets.setdefault(_instruction_sets(named) or UNKNOWN, []).append(name)
    for title, found in ((_ENGINE, engines), (_SETS, sets)):
        if len(found) > 1:
            yield f"{title}: " + ", ".join(f"{text} ({' '.join(of)})" for text, of in found.items())
        elif found:
            yield f"{title}: {next(iter(found))}"


def _medians(found: ProfileList) -> Iterator[float | None]:
    """The medians of the cases that ran; None: there were too few inferences."""
    for named in found.kept:
        for case in named.profile.cases:
            if case.measured is not None:
                yield case.measured.latency.percentile(50.0).value_ns


def _rows(named: NamedProfile, found: ProfileList, date: str) -> list[tuple[str, ...]]:
    """The rows of a profile; only the first has its name and date."""
    is_older = found.older is not None and named.name in found.older
    name = f"{printable(named.name)} {OLDER}" if is_older else printable(named.name)
    when = "always there" if named.date is None else named.date.strftime(date)
    sets = "" if named.is_flops else _instruction_sets(named)
    rows = []
    for index, case in enumerate(named.profile.cases):
        head = (name, when) if index == 0 else ("", "")
        rows.append((*head, *_case_cells(case, is_flops=named.is_flops), sets))
    return rows


def _instruction_sets(named: NamedProfile) -> str:
    machine = named.profile.machine
    return "" if machine is None else printable(describe_instruction_sets(machine))


def _case_cells(case: CaseProfile, *, is_flops: bool) -> tuple[str, ...]:
    counted, run = case.counted, case.measured
    latency = "" if is_flops else case.outcome.value
    return (
        str(case.case.batch_size),
        "" if is_flops else str(case.case.cores),
        ", ".join(f"{printable(name)}={size}" for name, size in case.case.dims),
        "" if case.case.phase is None else case.case.phase.id,
        latency if run is None else format_ms(run.latency.percentile(50.0).value_ns),
        "" if run is None else format_rate(run.latency.items_per_second),
        "" if counted is None else format_count(counted.macs),
        "" if counted is None else format_count(counted.params),
        "" if run is None else printable(run.engine.label),
    )


# -- side by side


def case_pair_table(found: SideBySide) -> Table:
    """A row for each case that both have."""
    return table_of(
        "ms per batch",
        found.pairs,
        (Column("case", is_name=True, least=24), lambda pair: printable(pair.id)),
        (Column("ms before"), lambda pair: _median_ms(pair.before)),
        (Column("ms now"), lambda pair: _median_ms(pair.after)),
        (Column("ratio"), lambda pair: UNKNOWN if pair.ratio is None else f"{pair.ratio:.3f}"),
        (Column("items/s before"), lambda pair: format_rate(pair.before.latency.items_per_second)),
        (Column("items/s now"), lambda pair: format_rate(pair.after.latency.items_per_second)),
        (
            Column("rounds differ by"),
            lambda pair: (
                f"{_round_spread(pair.before.measured)}, {_round_spread(pair.after.measured)}"
            ),
        ),
        caption="rounds differ by: the slowest from the fastest, in their medians, before and now",
    )


def _median_ms(case: CaseProfile) -> str:
    return format_ms(case.latency.percentile(50.0).value_ns)


def _round_spread(run: Measurement | None) -> str:
    """How far the medians of the rounds are apart, as a share of the fastest."""
    medians = [] if run is None else [median(made.times_ns) for made in run.rounds]
    if len(medians) < 2 or not min(medians):
        return UNKNOWN
    return percent(max(medians) / min(medians) - 1)


def type_pair_table(pair: CasePair) -> Table:
    """The time of each operator in both. The caption on explained changes is left out."""
    whole = CaseComparison(pair.after.case, (), pair.layer_types)
    table = without_column(type_difference_table(whole), INTERVAL)
    return replace(table, caption="")


def layer_pair_table(pair: CasePair, top: int | None) -> Table:
    """The layers whose times differ most, either way."""
    decimals = max(table_decimals(layer_total_ns(case)) for case in (pair.before, pair.after))
    shown = pair.layers[:top]
    more = len(pair.layers) - len(shown)
    return table_of(
        "layers that differ most, in ms",
        shown,
        (Column("layer", is_name=True, least=16), layer_change_name),
        (Column("type", is_name=True), layer_change_type),
        (Column("before"), lambda change: format_layer_ms(change.before, decimals)),
        (Column("now"), lambda change: format_layer_ms(change.after, decimals)),
        (
            Column("difference"),
            lambda change: "" if change.time is None else f"{change.time.ns / 1e6:+.{decimals}f}",
        ),
        caption=f"{count_of(more, 'more row')}: --top 0 shows all" if more else "",
    )


# -- work and time


def work_and_time_table(case: CaseProfile) -> Table:
    """A row per operator: its share of the MACs and of the time, the longest first."""
    total_ns = layer_total_ns(case)
    macs = case.static.macs
    decimals = table_decimals(total_ns)
    kinds = sorted(
        case.layer_types.values(), key=lambda kind: (-(kind.ns or 0.0), kind.qualified_op)
    )
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
        (Column("layer type", is_name=True), lambda kind: printable(kind.qualified_op)),
        (Column("count"), lambda kind: str(kind.count) if kind.count else ""),
        (Column("MACs"), lambda kind: format_count(kind.macs) if kind.count else ""),
        (Column("share of MACs"), lambda kind: format_share(kind.macs, macs) if kind.count else ""),
        (Column("ms"), lambda kind: "" if kind.ns is None else format_ms(kind.ns, decimals)),
        (
            Column("share of time"),
            lambda kind: "" if kind.ns is None else format_share(kind.ns, total_ns),
        ),
        total=total,
        caption="no ms: it runs in the kernels of other layers, or not at all"
        if any(kind.ns is None for kind in kinds)
        else "",
    )
