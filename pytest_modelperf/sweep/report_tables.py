"""The tables of a sweep: each configuration, the change between two models, and scaling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.shown.names import name_models
from pytest_modelperf.profiler.shown.page_data import LABELS
from pytest_modelperf.profiler.shown.tables.cases import format_percentile
from pytest_modelperf.report.model import ReportBlock, Rows, Tone
from pytest_modelperf.report.tables import Column, FilledColumn, Table, drop_blank_columns, table_of
from pytest_modelperf.stats.records import Percentile, Ratio
from pytest_modelperf.sweep.records import (
    Configuration,
    PointChange,
    Scaling,
    Sweep,
    SweepPoint,
    SweepSide,
)
from pytest_modelperf.text.units import (
    UNKNOWN,
    format_confidence,
    format_rate,
    percent,
    signed_percent,
)

T = TypeVar("T")

_BEST, _EQUAL, _UNDECIDED = "<", "=", "?"
_MARKS = {"best": _BEST, "equal": _EQUAL, "undecided": _UNDECIDED, None: ""}
_LEAST_DIMS = 12


def labelled_sides(sweep: Sweep) -> list[tuple[str, SweepSide]]:
    """Return the sides with their labels. A model alone needs none."""
    labels = LABELS if len(sweep.sides) > 1 else ("",)
    return list(zip(labels, sweep.sides, strict=True))


def format_limit(threshold_ms: float) -> str:
    """Return `20 ms` or `0.5 ms`."""
    return f"{threshold_ms:.6g} ms"


# -- the configurations


def measured_blocks(sweep: Sweep) -> Iterator[ReportBlock]:
    """Yield a table of each model, and one of the change between them."""
    if sweep.has_failed:
        return
    names = name_models([side.model for side in sweep.sides])
    for name, (label, side) in zip(names, labelled_sides(sweep), strict=True):
        title = f"{label}: {name}" if label else "latency and throughput"
        is_last = side is sweep.sides[-1]
        yield _side_rows(side, title, _caption(sweep) if is_last else "")
    if sweep.changes:
        yield Rows(_change_table(sweep))


def _side_rows(side: SweepSide, title: str, caption: str) -> Rows:
    points = [point for point in ordered_points(side.points) if point.latency is not None]
    table = table_of(
        title,
        points,
        *_size_columns(_configuration_of),
        (Column("p50 ms"), _median),
        (Column("p95 ms", rank=1), lambda point: _plain(point, 95.0)),
        (Column("items/s", has_bars=True), lambda point: _rate(point.throughput)),
        (Column("", is_text=True), lambda point: _MARKS[side.spot.role(point.id)]),
        caption=caption,
    )
    tones = (Tone.GOOD if point.id == side.spot.best else Tone.PLAIN for point in points)
    return Rows(drop_blank_columns(table), tuple(tones))


def _change_table(sweep: Sweep) -> Table:
    """Make a row with the change of each configuration, from the passes of both sides."""
    by_id = [{point.id: point for point in side.points} for side in sweep.sides]
    shown = {
        point.configuration.id: point.configuration
        for point in ordered_points(sweep.sides[0].points)
    }
    changes = [change for name in shown for change in sweep.changes if change.id == name]

    def configuration_at(change: PointChange) -> Configuration:
        return shown[change.id]

    def median_of(place: int) -> Callable[[PointChange], str]:
        return lambda change: _plain(by_id[place][change.id], 50.0)

    table = table_of(
        "B over A",
        changes,
        *_size_columns(configuration_at),
        (Column("A p50 ms", rank=1), median_of(0)),
        (Column("B p50 ms", rank=1), median_of(1)),
        (Column("latency"), lambda change: signed_percent(change.latency.value - 1)),
        (Column("interval"), lambda change: _interval(change.latency)),
        (Column("items/s"), lambda change: signed_percent(change.throughput.value - 1)),
        (Column("interval"), lambda change: _interval(change.throughput)),
        caption=f"interval: {format_confidence(sweep.confidence)}, of pairs of rounds",
    )
    return drop_blank_columns(table)


def _configuration_of(point: SweepPoint) -> Configuration:
    return point.configuration


def ordered_points(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """Sort by the phase of a generation and its lengths, then by batch, cores and streams."""
    return sorted(points, key=lambda point: _order(point.configuration))


def _order(configuration: Configuration) -> tuple[object, ...]:
    case = configuration.case
    return *_lengths(case), case.batch_size, case.cores, configuration.streams, case.dims


def _lengths(case: Case) -> tuple[bool, int, int]:
    """Return the phase and the lengths of a generation. Prefills come first."""
    phase = case.phase
    if phase is None:
        return False, 0, 0
    return phase.phase is Phase.STEP, phase.prompt, phase.generate


def _size_columns(configuration_of: Callable[[T], Configuration]) -> Iterator[FilledColumn[T]]:
    yield Column("batch"), lambda each: str(configuration_of(each).case.batch_size)
    yield Column("cores"), lambda each: str(configuration_of(each).case.cores)
    yield Column("streams"), lambda each: str(configuration_of(each).streams)
    dims = Column("dims", is_name=True, least=_LEAST_DIMS)
    yield dims, lambda each: " ".join(_describe_sizes(configuration_of(each).case))


def _describe_sizes(case: Case) -> Iterator[str]:
    """Yield the sizes of dimensions, and the phase: `seq=64`, `prompt64-prefill`."""
    yield from (f"{name}={size}" for name, size in case.dims)
    if case.phase is not None:
        yield case.phase.id


def _median(point: SweepPoint) -> str:
    """Return `4.930 ± 0.8 %`."""
    median = percentile_of(point, 50.0)
    if median is None:
        return ""
    text = format_percentile(median)
    return text if median.value_ns is None else f"{text} ± {_share(median.half_width)}"


def _plain(point: SweepPoint, percent_: float) -> str:
    found = percentile_of(point, percent_)
    return "" if found is None else format_percentile(found)


def percentile_of(point: SweepPoint, percent_: float) -> Percentile | None:
    return None if point.latency is None else point.latency.percentile(percent_)


def _rate(rate: Ratio | None) -> str:
    """Return items per second, and the larger side of the interval: `812.3 ± 0.8 %`."""
    return UNKNOWN if rate is None else f"{format_rate(rate.value)} ± {_half_width(rate)}"


def _half_width(ratio: Ratio) -> str:
    """Return the larger side of the interval, relative to the value."""
    if ratio.low is None or ratio.high is None or not ratio.value:
        return UNKNOWN
    return _share(max(ratio.high - ratio.value, ratio.value - ratio.low) / ratio.value)


def _share(half_width: float | None) -> str:
    """Return `0.8 %`, or `?` if it is unknown, or `>100 %` if it is wider than the value."""
    if half_width is None:
        return UNKNOWN
    return ">100 %" if half_width > 1 else percent(half_width)


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return ""
    return f"{100 * (ratio.low - 1):+.1f} … {100 * (ratio.high - 1):+.1f} %"


def describe_ratio(ratio: Ratio) -> str:
    """Return `+11.8 % (+10.2 … +13.1 %)`."""
    interval = _interval(ratio)
    change = signed_percent(ratio.value - 1)
    return f"{change} ({interval})" if interval else change


def _caption(sweep: Sweep) -> str:
    level = format_confidence(sweep.confidence)
    lines = [f"±: the larger side of the {level} interval"]
    latencies = [p.latency for side in sweep.sides for p in side.points if p.latency is not None]
    if any(each.percentile(p).value_ns is None for each in latencies for p in (50.0, 95.0)):
        lines.append("(n): it takes n samples to tell; a larger max-seconds makes time for more")
    lines.append("; ".join(_legend(sweep)))
    return "\n".join(line for line in lines if line)


def _legend(sweep: Sweep) -> Iterator[str]:
    spots = [side.spot for side in sweep.sides]
    limit = "" if sweep.threshold_ms is None else f" within {format_limit(sweep.threshold_ms)}"
    if any(spot.best is not None for spot in spots):
        yield f"{_BEST} most items/s{limit}"
    if any(spot.equals for spot in spots):
        yield f"{_EQUAL} indistinguishable from it"
    if any(spot.undecided for spot in spots):
        yield f"{_UNDECIDED} may be{limit} or beyond"


# -- scaling


def scaling_blocks(sweep: Sweep) -> Iterator[ReportBlock]:
    tables = [_scaling_table(side, label) for label, side in labelled_sides(sweep)]
    known = [table for table in tables if table is not None]
    for table in known:
        yield Rows(table if table is known[-1] else replace(table, caption=""))


def _scaling_table(side: SweepSide, label: str) -> Table | None:
    """Return the gain from a larger batch, more cores or streams, else as in the best one.

    If there is no best, all else is as in the first configuration. The last column has the least
    and the largest gain if several configurations show it.
    """
    anchor = _anchor(side)
    if anchor is None:
        return None
    configurations = {point.id: point.configuration for point in side.points}
    groups: dict[tuple[str, float], list[Scaling]] = {}
    for scaling in side.scaling:
        groups.setdefault((scaling.of, scaling.factor), []).append(scaling)
    shown = [
        scaling
        for scaling in side.scaling
        if configurations[scaling.base].all_else(scaling.of) == anchor.all_else(scaling.of)
    ]
    if not shown:
        return None

    def everywhere(scaling: Scaling) -> str:
        gains = [each.gain.value for each in groups[scaling.of, scaling.factor]]
        return f"x{min(gains):.2f} … {max(gains):.2f}" if len(gains) > 1 else ""

    what = "the best" if side.spot.best is not None else "the first"
    table = table_of(
        f"scaling{f' of {label}' if label else ''}, all else as in {what}, {anchor.id}",
        shown,
        (Column("more of", is_text=True), lambda each: f"{each.of} x{each.factor:g}"),
        (Column("from", is_name=True), lambda each: each.base),
        (Column("to", is_name=True), lambda each: each.id),
        (Column("items/s"), lambda each: f"x{each.gain.value:.2f} ± {_half_width(each.gain)}"),
        (
            Column("efficiency"),
            lambda each: "" if each.efficiency is None else f"{100 * each.efficiency:.0f} %",
        ),
        (Column("everywhere"), everywhere),
        caption=(
            "efficiency: the share of what there would be if all of the cores paid off\n"
            "everywhere: the least and the most, whatever all else is"
        ),
    )
    return drop_blank_columns(table)


def _anchor(side: SweepSide) -> Configuration | None:
    if side.spot.best is not None:
        return side.point(side.spot.best).configuration
    first = next((p for p in ordered_points(side.points) if p.latency is not None), None)
    return None if first is None else first.configuration
