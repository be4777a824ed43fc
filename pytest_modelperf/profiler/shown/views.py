"""The tables and charts of a profile for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pytest_modelperf.profiler.records import CaseProfile, Profile
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.profiler.shown.report import layer_sheet
from pytest_modelperf.profiler.shown.tables.layer_columns import ALL_COLUMNS, sort_layers
from pytest_modelperf.report.charts import MOST_BARS, BarChart, BarSeries, series_of
from pytest_modelperf.report.model import Report, Sheet
from pytest_modelperf.report.notebook import Views
from pytest_modelperf.report.tables import Cell
from pytest_modelperf.stats.records import Ratio

_CASE_COLUMNS = (
    *("case", "batch_size", "cores", "outcome", "p50_ms", "p50_low_ms", "p50_high_ms", "p95_ms"),
    *("items_per_second", "load_ms", "first_inference_ms", "peak_rss_bytes"),
    *("macs", "flops", "params", "weight_bytes", "activation_bytes"),
)
_TYPE_COLUMNS = ("case", "op_type", "count", "ms", "macs", "flops", "params")


def profile_views(profile: Profile, report: Callable[[], Report]) -> Views:
    return Views(
        report=report,
        sheets={
            "layers": lambda: layer_sheet(profile, tuple(ALL_COLUMNS)),
            "layer types": lambda: Sheet(_TYPE_COLUMNS, tuple(_type_rows(profile))),
            "cases": lambda: Sheet(_CASE_COLUMNS, tuple(map(_case_cells, profile.cases))),
        },
        charts={
            "layer types": lambda: _type_chart(profile),
            "layers": lambda: _layer_chart(profile),
            "cases": lambda: _case_chart(profile),
        },
    )


def ratio_cells(ratio: Ratio | None) -> tuple[Cell, ...]:
    return (None,) * 3 if ratio is None else (ratio.value, ratio.low, ratio.high)


def ratio_series(name: str, ratios: Iterable[Ratio | None]) -> BarSeries:
    """Make a series with a bar for each ratio, or for each figure that has the form of one."""
    return series_of(
        name,
        ratios,
        lambda ratio: None if ratio is None else ratio.value,
        lambda ratio: None if ratio is None else ratio.interval,
    )


def _case_cells(case: CaseProfile) -> tuple[Cell, ...]:
    times: tuple[Cell, ...] = (None,) * 8
    if case.measured is not None:
        p50, p95 = (case.latency.percentile(percent) for percent in (50.0, 95.0))
        bounds = p50.interval_ms or (None, None)
        starts = case.load_ms, case.first_inference_ms, case.peak_rss_bytes
        times = (case.latency.p50_ms, *bounds, _ms(p95.value_ns), case.items_per_second, *starts)
    counts: tuple[Cell, ...] = (None,) * 5
    if case.counted is not None:
        found = case.counted
        sizes = found.params, found.weight_bytes, found.activation_bytes
        counts = (found.macs, found.flops, *sizes)
    named = (case.case.id, case.case.batch_size, case.case.cores, case.state.value)
    return (*named, *times, *counts)


def _type_rows(profile: Profile) -> Iterator[tuple[Cell, ...]]:
    for case in profile.cases:
        for kind in case.layer_types.values():
            counts = (kind.macs, kind.flops, kind.params)
            yield (case.case.id, kind.qualified_op, kind.count, _ms(kind.ns), *counts)


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


# -- charts


def _case_chart(profile: Profile) -> BarChart:
    measured = [case for case in profile.cases if case.measured is not None]
    bars = series_of(
        "latency",
        measured,
        lambda case: _ms(case.typical.value_ns),
        lambda case: case.typical.interval_ms,
    )
    names = tuple(case.case.id for case in measured)
    return BarChart(f"latency of {profile.model.name}", "ms", names, (bars,))


def _type_chart(profile: Profile) -> BarChart:
    """Return the time of each layer type in each case, or its MACs if nothing ran."""
    cases = _timed(profile)
    has_times = any(case.has_layer_times for case in cases)

    def amount(case: CaseProfile, op: str) -> float | None:
        kind = case.layer_types.get(op)
        if kind is None:
            return None
        return _ms(kind.ns) if has_times else kind.macs

    known = dict.fromkeys(op for case in cases for op in case.layer_types)
    most = {op: max(amount(case, op) or 0.0 for case in cases) for op in known}
    names = tuple(sorted(filter(most.get, known), key=lambda op: -most[op])[:MOST_BARS])
    series = tuple(
        BarSeries(case.case.id, tuple(amount(case, op) for op in names)) for case in cases
    )
    title = f"layer types of {profile.model.name}"
    return BarChart(title, _unit(has_times=has_times), names, series)


def _layer_chart(profile: Profile) -> BarChart:
    """Return the most expensive layers of the first case that has times, or else MACs."""
    case = _timed(profile)[0]
    has_times = case.has_layer_times
    rows: Sequence[LayerRow] = sort_layers(case.layers, "ms" if has_times else "macs")[:MOST_BARS]
    read = ALL_COLUMNS["ms" if has_times else "macs"].read

    def amount(row: LayerRow) -> float | None:
        found = read(row)
        return None if found is None or isinstance(found, str) else found

    title = f"layers of {profile.model.name} at {case.case.id}"
    bars = series_of(case.case.id, rows, amount, _interval if has_times else lambda _: None)
    return BarChart(title, _unit(has_times=has_times), tuple(map(_name, rows)), (bars,))


def _name(row: LayerRow) -> str:
    """Return the name of the layer or kernel, or else the kind of time."""
    has_kernel = row.time is not None and not row.time.kind.is_outside_kernels
    is_named = row.static is not None or has_kernel
    return str(ALL_COLUMNS["name"].read(row)) if is_named else row.qualified_op


def _interval(row: LayerRow) -> tuple[float, float] | None:
    if row.ms is None or row.half_width is None:
        return None
    return row.ms * (1 - row.half_width), row.ms * (1 + row.half_width)


def _timed(profile: Profile) -> Sequence[CaseProfile]:
    timed = [case for case in profile.cases if case.has_layer_times]
    if timed:
        return timed
    graphs = {id(case.counted): case for case in reversed(profile.cases)}
    return tuple(graphs.values())[::-1]


def _unit(*, has_times: bool) -> str:
    return "ms" if has_times else "MACs"
