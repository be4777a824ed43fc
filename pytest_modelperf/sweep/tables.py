"""The tables of a sweep: the result of each configuration, and how throughput scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.shown.model_names import name_models
from pytest_modelperf.profiler.shown.tables.measured import format_percentile
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.stats.records import Percentile, Ratio
from pytest_modelperf.sweep.records import (
    Configuration,
    PointChange,
    Scaling,
    Sweep,
    SweepPoint,
    SweepSide,
)
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import (
    UNKNOWN,
    format_confidence,
    format_rate,
    percent,
    signed_percent,
)

# The model before and the model now, wherever there are two.
LABELS = ("A", "B")

_BEST, _EQUAL, _UNDECIDED = "<", "=", "?"
_MARKS = {"best": _BEST, "equal": _EQUAL, "undecided": _UNDECIDED, None: ""}
_NOTHING = "-"
_LEAST_DIMS = 12


def labels_of(sweep: Sweep) -> tuple[str, ...]:
    """The labels of its sides; a model alone needs none."""
    return LABELS[: len(sweep.sides)] if len(sweep.sides) > 1 else ("",)


def format_limit(threshold_ms: float) -> str:
    """`20 ms`, `0.5 ms`."""
    return f"{threshold_ms:.6g} ms"


def ordered_points(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """By the phase of a generation and its lengths, then batch, cores and streams."""
    return sorted(points, key=lambda point: _order(point.configuration))


def _order(configuration: Configuration) -> tuple[object, ...]:
    case = configuration.case
    return *_lengths(case), case.batch_size, case.cores, configuration.streams, case.dims


def _lengths(case: Case) -> tuple[bool, int, int]:
    """The phase and the lengths of a generation: prefills come first."""
    phase = case.phase
    if phase is None:
        return False, 0, 0
    return phase.phase is Phase.STEP, phase.prompt, phase.generate


# -- the configurations


def whole_table(sweep: Sweep, *, has_tail: bool = True) -> Table:
    """A row for each configuration: the results of both sides, and the change between them.

    The tail is the 95th percentile.
    """
    shown = _shown(sweep)
    has_dims = _has_dims(shown)
    columns = [*_head_columns(has_dims=has_dims)]
    for label in labels_of(sweep):
        columns += _side_columns(label, has_tail=has_tail)
    title = "latency and throughput"
    if len(sweep.sides) > 1:
        columns += _change_columns()
        title += ", and B over A"
    by_id = [{point.id: point for point in side.points} for side in sweep.sides]
    changes = {change.id: change for change in sweep.changes}
    rows = []
    for configuration in shown:
        row = [*_head_cells(configuration, has_dims=has_dims)]
        for side, points in zip(sweep.sides, by_id, strict=True):
            row += _side_cells(points.get(configuration.id), side, has_tail=has_tail)
        if len(sweep.sides) > 1:
            row += _change_cells(changes.get(configuration.id))
        rows.append(tuple(row))
    caption = _caption(sweep, has_tail=has_tail, has_changes=len(sweep.sides) > 1)
    return Table(title, tuple(columns), tuple(rows), None, caption)


def side_table(
    sweep: Sweep, index: int, *, has_tail: bool = True, has_caption: bool = True
) -> Table:
    """A row for each measured configuration of one of two sides."""
    side = sweep.sides[index]
    name = name_models([each.model for each in sweep.sides])[index]
    points = [point for point in ordered_points(side.points) if point.latency is not None]
    has_dims = _has_dims([point.configuration for point in points])
    return Table(
        f"{LABELS[index]}: {printable(name)}",
        (*_head_columns(has_dims=has_dims), *_side_columns("", has_tail=has_tail)),
        tuple(
            (
                *_head_cells(point.configuration, has_dims=has_dims),
                *_side_cells(point, side, has_tail=has_tail),
            )
            for point in points
        ),
        None,
        _caption(sweep, has_tail=has_tail) if has_caption else "",
    )


def row_styles(table: Table) -> tuple[str, ...]:
    """The style of each row of such a table: the best stands out."""
    return tuple("bold green" if _BEST in row else "" for row in table.rows)


def change_table(sweep: Sweep) -> Table:
    """A row for each configuration of both sides with the change, from passes that ran both."""
    changes = {change.id: change for change in sweep.changes}
    shown = [configuration for configuration in _shown(sweep) if configuration.id in changes]
    has_dims = _has_dims(shown)
    rows = tuple((*_head_cells(c, has_dims=has_dims), *_change_cells(changes[c.id])) for c in shown)
    columns = (*_head_columns(has_dims=has_dims), *_change_columns())
    return Table("B over A", columns, rows, None, f"interval: {_level(sweep)}, of pairs of rounds")


def _shown(sweep: Sweep) -> list[Configuration]:
    """The configurations that were measured on at least one side, in order."""
    known: dict[str, SweepPoint] = {}
    for side in sweep.sides:
        for point in side.points:
            if point.latency is not None:
                known.setdefault(point.id, point)
    return [point.configuration for point in ordered_points(list(known.values()))]


def _has_dims(shown: Sequence[Configuration]) -> bool:
    return any(c.case.dims or c.case.phase for c in shown)


def _head_columns(*, has_dims: bool) -> tuple[Column, ...]:
    dims = (Column("dims", is_name=True, least=_LEAST_DIMS),) if has_dims else ()
    return (Column("batch"), Column("cores"), Column("streams"), *dims)


def _head_cells(configuration: Configuration, *, has_dims: bool) -> tuple[str, ...]:
    case = configuration.case
    dims = (printable(" ".join(describe_sizes(case))),)
    numbers = (case.batch_size, case.cores, configuration.streams)
    return (*map(str, numbers), *(dims if has_dims else ()))


def describe_sizes(case: Case) -> Iterator[str]:
    """The sizes of dimensions, and the phase of a generation: `seq=64`, `prompt64-prefill`."""
    yield from (f"{name}={size}" for name, size in case.dims)
    if case.phase is not None:
        yield case.phase.id


def _side_columns(label: str, *, has_tail: bool) -> tuple[Column, ...]:
    return (
        Column(f"{label} p50 ms".lstrip()),
        *((Column("p95 ms"),) if has_tail else ()),
        Column("items/s"),
        Column("", is_text=True),
    )


def _side_cells(point: SweepPoint | None, side: SweepSide, *, has_tail: bool) -> tuple[str, ...]:
    if point is None or point.latency is None:
        return (*(_NOTHING,) * (3 if has_tail else 2), "")
    median, tail = point.latency.percentile(50.0), point.latency.percentile(95.0)
    return (
        _with_interval(median),
        *((format_percentile(tail),) if has_tail else ()),
        UNKNOWN if point.throughput is None else _rate(point.throughput),
        _MARKS[side.spot.role(point.id)],
    )


def _with_interval(percentile: Percentile) -> str:
    text = format_percentile(percentile)
    return text if percentile.value_ns is None else f"{text} ± {_share(percentile.half_width)}"


def _rate(rate: Ratio) -> str:
    """Items per second, and the larger side of the interval: `812.3 ± 0.8 %`."""
    return f"{format_rate(rate.value)} ± {_half_width(rate)}"


def _half_width(ratio: Ratio) -> str:
    """The larger side of the interval, relative to the value."""
    if ratio.low is None or ratio.high is None or not ratio.value:
        return UNKNOWN
    return _share(max(ratio.high - ratio.value, ratio.value - ratio.low) / ratio.value)


def _share(half_width: float | None) -> str:
    """`0.8 %`; `?` if it is unknown, `>100 %` if it is wider than the value."""
    if half_width is None:
        return UNKNOWN
    return ">100 %" if half_width > 1 else percent(half_width)


def _change_columns() -> tuple[Column, ...]:
    return Column("latency"), Column("interval"), Column("items/s"), Column("interval")


def _change_cells(change: PointChange | None) -> tuple[str, ...]:
    if change is None:
        return "", "", "", ""
    ratios = (change.latency, change.throughput)
    return tuple(
        text for ratio in ratios for text in (signed_percent(ratio.value - 1), _interval(ratio))
    )


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return ""
    return f"{100 * (ratio.low - 1):+.1f} … {100 * (ratio.high - 1):+.1f} %"


def describe_ratio(ratio: Ratio) -> str:
    """`+11.8 % (+10.2 … +13.1 %)`."""
    interval = _interval(ratio)
    change = signed_percent(ratio.value - 1)
    return f"{change} ({interval})" if interval else change


def _caption(sweep: Sweep, *, has_tail: bool, has_changes: bool = False) -> str:
    lines = [f"±: the larger side of the {_level(sweep)} interval"]
    if has_changes:
        lines.append(f"interval: {_level(sweep)}, of pairs of rounds")
    latencies = [p.latency for side in sweep.sides for p in side.points if p.latency is not None]
    percents = (50.0, 95.0) if has_tail else (50.0,)
    if any(latency.percentile(p).value_ns is None for latency in latencies for p in percents):
        lines.append("(n): it takes n samples to tell; a larger max-seconds makes time for more")
    lines.append("; ".join(_legend(sweep)))
    return "\n".join(line for line in lines if line)


def _legend(sweep: Sweep) -> list[str]:
    spots = [side.spot for side in sweep.sides]
    limit = "" if sweep.threshold_ms is None else f" within {format_limit(sweep.threshold_ms)}"
    parts = []
    if any(spot.best is not None for spot in spots):
        parts.append(f"{_BEST} most items/s{limit}")
    if any(spot.equals for spot in spots):
        parts.append(f"{_EQUAL} cannot be told from it")
    if any(spot.undecided for spot in spots):
        parts.append(f"{_UNDECIDED} may be{limit} or beyond")
    return parts


def _level(sweep: Sweep) -> str:
    return format_confidence(sweep.confidence)


# -- scaling


def scaling_table(side: SweepSide, label: str, *, has_caption: bool = True) -> Table | None:
    """The gain from more of each thing, with all else as in the best; None if nothing is known.

    If there is no best, all else is as in the first configuration. The last column has the least
    and the largest gain where several configurations tell it.
    """
    anchor = _anchor(side)
    if anchor is None:
        return None
    where = {point.id: point.configuration for point in side.points}
    groups: dict[tuple[str, float], list[Scaling]] = {}
    for scaling in side.scaling:
        groups.setdefault((scaling.of, scaling.factor), []).append(scaling)
    shown = [
        scaling
        for scaling in side.scaling
        if where[scaling.base].all_else(scaling.of) == anchor.all_else(scaling.of)
    ]
    if not shown:
        return None

    def everywhere(scaling: Scaling) -> str:
        gains = [each.gain.value for each in groups[scaling.of, scaling.factor]]
        return f"x{min(gains):.2f} … {max(gains):.2f}" if len(gains) > 1 else ""

    what = "the best" if side.spot.best is not None else "the first"
    caption = (
        "efficiency: the share of what there would be if all of the cores paid off\n"
        "everywhere: the least and the most, whatever all else is"
    )
    table = table_of(
        f"scaling{f' of {label}' if label else ''}, all else as in {what}, {printable(anchor.id)}",
        shown,
        (Column("more of", is_text=True), lambda each: f"{printable(each.of)} x{each.factor:g}"),
        (Column("from", is_name=True), lambda each: printable(each.base)),
        (Column("to", is_name=True), lambda each: printable(each.id)),
        (Column("items/s"), lambda each: f"x{each.gain.value:.2f} ± {_half_width(each.gain)}"),
        (
            Column("efficiency"),
            lambda each: "" if each.efficiency is None else f"{100 * each.efficiency:.0f} %",
        ),
        (Column("everywhere"), everywhere),
        caption=caption if has_caption else "",
    )
    return drop_blank_columns(table)


def _anchor(side: SweepSide) -> Configuration | None:
    if side.spot.best is not None:
        return side.point(side.spot.best).configuration
    first = next((p for p in ordered_points(side.points) if p.latency is not None), None)
    return None if first is None else first.configuration
