"""The tables of measured cases: performance, latency, layer types, generations and workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from pytest_modelperf.profiler.counting.records import LayerType, StaticProfile
from pytest_modelperf.profiler.generation import (
    NamedFigures,
    WholeGeneration,
    named_figures,
    whole_generations,
)
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.rows import (
    GenerationFigures,
    LayerRow,
    MemberFigures,
    WorkloadFigures,
)
from pytest_modelperf.profiler.shown.tables.layer_columns import layer_total_ns
from pytest_modelperf.profiler.shown.tables.layers import costliest_first, shared_params_line
from pytest_modelperf.report.tables import Column, FilledColumn, Table, drop_blank_columns, table_of
from pytest_modelperf.stats.records import Percentile, Slope
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import (
    UNKNOWN,
    format_bytes,
    format_count,
    format_ms,
    format_rate,
    format_share,
    percent,
    table_decimals,
)

# The end of an id has the dimensions of the case, so keep most of it.
_SHARE = Column("share", has_bars=True)
CASE_COLUMN = Column("case", is_name=True, least=24)
_TAIL_COLUMN = Column("p95 ms", rank=1, is_extra=True)
_NS_PER_MS = 1e6
_NEEDED = "(n): it takes n samples to tell; a larger max-seconds makes time for more"
# How many layer types of each case a report of several cases shows.
_MOST_TYPES = 5


def performance_table(cases: Sequence[CaseProfile], *, has_tail: bool = False) -> Table:
    """Return a row per measured case: median with interval, throughput, start, memory.

    A workload has the mean of its pass, because no single inference of it is typical. With
    `has_tail`, a terminal with room shows a percentile of the tail, too.
    """
    measured = [case for case in cases if case.measured is not None]
    caption = "load, first: a session's creation and first inference, medians over rounds"
    confidence = _confidence(measured)
    if confidence is not None:
        is_mixed = any(case.case.members for case in measured)
        of_workload = ", of a workload the mean of a pass," if is_mixed else ""
        caption = f"ms per batch: the median{of_workload} ± its {confidence} interval\n{caption}"
    if any(map(_late, measured)):
        caption += "\nlate: inferences that ended after the next one had arrived"
    show = format_percentile if confidence is None else _with_interval
    if any(case.typical.value_ns is None for case in measured):
        caption += f"\n{_NEEDED}"
    elif has_tail and any(_tail(case).value_ns is None for case in measured):
        caption += f"\n{_TAIL_COLUMN.title}: (n) takes n samples to tell"
    table = table_of(
        "performance",
        measured,
        (CASE_COLUMN, lambda case: case.case.id),
        (Column("batch"), lambda case: str(case.case.batch_size)),
        (Column("cores"), lambda case: str(case.case.cores)),
        (Column("ms per batch"), lambda case: show(case.typical)),
        (Column("late"), _late),
        (Column("items/s"), lambda case: format_rate(case.items_per_second)),
        (Column("load ms"), lambda case: format_ms(case.load_ms * _NS_PER_MS)),
        (Column("first ms"), lambda case: format_ms(case.first_inference_ms * _NS_PER_MS)),
        (Column("peak memory"), lambda case: format_bytes(case.peak_rss_bytes)),
        *([(_TAIL_COLUMN, lambda case: format_percentile(_tail(case)))] if has_tail else []),
        caption=caption,
    )
    return drop_blank_columns(table)


def counts_table(cases: Sequence[CaseProfile]) -> Table:
    """Return a row per case of what its graph costs, for cases that did not run."""

    def of_graph(show: Callable[[StaticProfile], str]) -> Callable[[CaseProfile], str]:
        return lambda case: "" if case.counted is None else show(case.counted)

    def least(count: int, static: StaticProfile) -> str:
        return format_count(count) if static.coverage >= 1 else f"at least {format_count(count)}"

    return table_of(
        "counts",
        cases,
        (CASE_COLUMN, lambda case: case.case.id),
        (Column("batch"), lambda case: str(case.case.batch_size)),
        (Column("MACs"), of_graph(lambda static: least(static.macs, static))),
        (Column("FLOPs"), of_graph(lambda static: least(static.flops, static))),
        (Column("params"), of_graph(lambda static: format_count(static.params))),
        (Column("activations"), of_graph(lambda static: format_bytes(static.activation_bytes))),
        (Column("peak"), of_graph(lambda static: format_bytes(static.peak_activation_bytes))),
        caption="peak: of the activations that are alive at one time",
    )


def _tail(case: CaseProfile) -> Percentile:
    return case.latency.percentile(95.0)


def _late(case: CaseProfile) -> str:
    """Return the share of inferences that ended after the next one had arrived.

    It is empty if inferences do not arrive at a pace.
    """
    late = None if case.measured is None else case.measured.late
    return "" if late is None else f"{100 * late:.3g} %"


def latency_table(cases: Sequence[CaseProfile]) -> Table:
    measured = [case for case in cases if case.measured is not None]
    confidence = _confidence(measured)
    show = format_percentile if confidence is None else _with_interval
    captions = ["samples in rounds, each with a fresh session"]
    if confidence is not None:
        captions.insert(0, f"± is the larger side of the {confidence} interval")
    table = table_of(
        "latency in ms",
        measured,
        (replace(CASE_COLUMN, is_repeated=True), lambda case: case.case.id),
        (Column("samples"), lambda case: f"{case.latency.samples} in {case.latency.rounds}"),
        *(
            _percentile_column(place, each.name, show)
            for place, each in enumerate(measured[0].latency.percentiles if measured else ())
        ),
        (Column("min"), lambda case: format_ms(case.latency.min_ns)),
        (Column("max"), lambda case: format_ms(case.latency.max_ns)),
        (Column("mean"), lambda case: format_ms(case.latency.mean_ns)),
        caption="\n".join(captions),
    )
    return _with_legend(table)


def _with_legend(table: Table) -> Table:
    """Explain `(11)` below the table if a percentile has too few samples."""
    is_explained = any(cell.startswith("(") for row in table.rows for cell in row[1:])
    return replace(table, caption=f"{table.caption}\n{_NEEDED}") if is_explained else table


def _percentile_column(
    place: int, name: str, show: Callable[[Percentile], str]
) -> FilledColumn[CaseProfile]:
    return Column(name), lambda case: show(case.latency.percentiles[place])


def _with_interval(percentile: Percentile) -> str:
    text, width = format_percentile(percentile), percentile.half_width
    if percentile.value_ns is None:
        return text
    return f"{text} ± {UNKNOWN if width is None else percent(width)}"


def format_percentile(percentile: Percentile) -> str:
    """Return the milliseconds of a percentile.

    If there are too few samples, it is the number that is needed, in parentheses.
    """
    if percentile.value_ns is None:
        return f"({percentile.needed})"
    return format_ms(percentile.value_ns)


def _confidence(cases: Sequence[CaseProfile]) -> str | None:
    """Return the confidence, such as `99 %`, or None if no case has an interval."""
    found = [
        case.latency.confidence
        for case in cases
        if any(p.half_width is not None for p in case.latency.percentiles)
    ]
    return f"{100 * found[0]:.4g} %" if found else None


def top_types_table(cases: Sequence[CaseProfile]) -> Table:
    """Return the most expensive layer types of each case: by time, or else by FLOPs."""
    has_times = any(case.has_layer_times for case in cases)
    rows = []
    for case in cases:
        made = _types_by_time(case) if case.has_layer_times else _types_by_flops(case)
        cells = list(islice(made, _MOST_TYPES))
        names = [case.case.id, *[""] * (len(cells) - 1)]
        rows += [(name, *row) for name, row in zip(names, cells, strict=True)]
    columns = (
        CASE_COLUMN,
        Column("layer type", is_name=True),
        Column("count"),
        Column("ms"),
        Column("FLOPs"),
        _SHARE,
    )
    of = "ms" if has_times else "FLOPs"
    title = f"the {_MOST_TYPES} most expensive layer types of each case, by {of}"
    return drop_blank_columns(Table(title, columns, tuple(rows)))


def _types_by_time(case: CaseProfile) -> Iterator[tuple[str, ...]]:
    total_ns = layer_total_ns(case)
    decimals = table_decimals(total_ns)
    for kind in _longest_first(case):
        if kind.ns is not None:
            count = str(kind.count) if kind.count else ""
            figures = format_ms(kind.ns, decimals), "", format_share(kind.ns, total_ns)
            yield (kind.qualified_op, count, *figures)


def _types_by_flops(case: CaseProfile) -> Iterator[tuple[str, ...]]:
    counted = case.counted
    if counted is None:
        return
    for kind in costliest_first(counted):
        figures = "", format_count(kind.flops), format_share(kind.flops, counted.flops)
        yield (kind.qualified_op, str(kind.count), *figures)


def _longest_first(case: CaseProfile) -> list[LayerType]:
    return sorted(
        case.layer_types.values(),
        key=lambda kind: (kind.ns is None, -(kind.ns or 0.0), kind.qualified_op),
    )


def layer_type_time_table(case: CaseProfile) -> Table:
    """Return a row per operator and per kind of time without a layer, the longest first."""
    kinds = _longest_first(case)
    rates = _rates(case.layers)
    counted = case.counted
    total_ns = layer_total_ns(case)
    decimals = table_decimals(total_ns)
    total = (
        "total",
        "" if counted is None else str(len(counted.layers)),
        format_ms(total_ns, decimals),
        "",
        "" if counted is None else format_count(counted.macs),
        _rate(counted.macs / total_ns if counted and counted.macs and total_ns else None),
        "" if counted is None else format_count(counted.params),
    )
    notes = ["" if counted is None else shared_params_line(counted)]
    if any(kind.ns is None for kind in kinds):
        notes.append("no ms: it runs in the kernels of other layers, or not at all")
    # Rows without a layer have no figures of the graph; zeros would look like figures.
    return table_of(
        "by layer type",
        kinds,
        (Column("layer type", is_name=True), lambda kind: kind.qualified_op),
        (Column("count"), lambda kind: str(kind.count) if kind.count else ""),
        (Column("ms"), lambda kind: "" if kind.ns is None else format_ms(kind.ns, decimals)),
        (_SHARE, lambda kind: "" if kind.ns is None else format_share(kind.ns, total_ns)),
        (Column("MACs"), lambda kind: format_count(kind.macs) if kind.count else ""),
        (Column("GMAC/s"), lambda kind: _rate(rates.get(kind.qualified_op))),
        (Column("params"), lambda kind: format_count(kind.params) if kind.count else ""),
        total=total,
        caption="\n".join(filter(None, notes)),
    )


def _rates(rows: Sequence[LayerRow]) -> dict[str, float]:
    """Return the rate of the layers with a time for each operator, in GMAC/s."""
    macs: dict[str, float] = {}
    ns: dict[str, float] = {}
    for row in rows:
        rate = row.gmacs_per_second
        if rate is not None and row.ns is not None:
            macs[row.qualified_op] = macs.get(row.qualified_op, 0.0) + rate * row.ns
            ns[row.qualified_op] = ns.get(row.qualified_op, 0.0) + row.ns
    return {op: macs[op] / ns[op] for op in ns}


def _rate(value: float | None) -> str:
    return "" if value is None else format_rate(value)


# -- the table of a workload


def member_table(case: str, workload: WorkloadFigures) -> Table:
    """Return a row for each member, with the time of a pass as the total."""
    inferences = sum(member.weight for member in workload.members)
    total = "" if workload.total_ms is None else format_ms(workload.total_ms * _NS_PER_MS)
    macs = None if workload.mean_macs is None else format_count(round(workload.mean_macs))
    largest = [member.name for member in workload.members if member.is_largest]
    captions = [f"counts and layers are those of the largest, {printable(largest[0])}"]
    if macs is not None:
        captions.append("MACs of the pass: the mean of its inferences")
    table = table_of(
        f"workload of {printable(case)}",
        workload.members,
        (Column("member", is_name=True), lambda member: member.name),
        (Column("in a pass"), lambda member: str(member.weight)),
        (Column("p50 ms"), _median),
        (Column("of the time"), _share),
        (Column("MACs"), lambda m: "" if m.macs is None else format_count(m.macs)),
        total=("pass", str(inferences), total, "", macs or ""),
        caption="\n".join(captions),
    )
    return drop_blank_columns(_with_legend(table))


def _median(member: MemberFigures) -> str:
    if member.p50 is None:
        return ""
    width = member.p50.half_width
    text = format_percentile(member.p50)
    return text if width is None else f"{text} ± {percent(width)}"


def _share(member: MemberFigures) -> str:
    return "" if member.share is None else f"{100 * member.share:.0f} %"


# -- the table of generations


_TITLE = "generation"
# For a phase that was not requested, or that the model does not have.
_ABSENT = "-"


def generation_table(cases: Sequence[CaseProfile]) -> Table | None:
    return table_of_generations(named_figures(cases))


def table_of_generations(named: Iterable[NamedFigures]) -> Table | None:
    found = whole_generations(named)
    if not found:
        return None
    return _measured(found) if any(map(_has_run, found)) else _counted(found)


def _has_run(made: WholeGeneration) -> bool:
    figures = (made.prefill, made.step)
    return any(each is not None and (each.ttft or each.token_p50) for each in figures)


def _measured(found: Sequence[WholeGeneration]) -> Table:
    caption = (
        "first token: the median of the prefill; token: the median of the steps\n"
        "growth: how much longer each step takes than the one before it"
    )
    confidence = [m.step.growth.confidence for m in found if m.step and m.step.growth]
    if confidence:
        caption += f", ± its {100 * confidence[0]:.4g} % interval"
    table = table_of(
        _TITLE,
        found,
        (CASE_COLUMN, lambda made: made.id),
        (
            Column("first token ms"),
            lambda made: _ABSENT if made.prefill is None else _ms(made.prefill.ttft),
        ),
        (Column("token ms"), _of_step(lambda step: _ms(step.token_p50))),
        (Column("p95"), _of_step(lambda step: _ms(step.token_p95))),
        (Column("growth ns"), _of_step(lambda step: _growth(step.growth))),
        (Column("tokens/s"), _of_step(lambda step: format_rate(step.tokens_per_second))),
        (Column("cache/token"), _cache),
        caption=caption,
    )
    return _with_legend(table)


def _counted(found: Sequence[WholeGeneration]) -> Table:
    return table_of(
        _TITLE,
        found,
        (CASE_COLUMN, lambda made: made.id),
        (Column("MACs of the first step"), _of_step(lambda step: format_count(step.first_macs))),
        (Column("of the last step"), _of_step(lambda step: format_count(step.last_macs))),
        (Column("cache/token"), _cache),
    )


def _of_step(show: Callable[[GenerationFigures], str]) -> Callable[[WholeGeneration], str]:
    return lambda made: _ABSENT if made.step is None else show(made.step)


def _cache(made: WholeGeneration) -> str:
    figures = made.step or made.prefill
    return format_bytes(None if figures is None else figures.cache_bytes)


def _ms(percentile: Percentile | None) -> str:
    return UNKNOWN if percentile is None else format_percentile(percentile)


def _growth(slope: Slope | None) -> str:
    if slope is None:
        return UNKNOWN
    return f"{slope.ns_per_step:+,.0f} ± {slope.high - slope.ns_per_step:,.0f}"
