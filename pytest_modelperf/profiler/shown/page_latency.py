"""Make entries of latencies for the scripts of a page: points, percentiles, spread of rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from pytest_modelperf.profiler.records import Case
from pytest_modelperf.report.document import ms
from pytest_modelperf.stats.records import Latency, Ratio, RoundSpread

Entry: TypeAlias = dict[str, object]

_NS_PER_MS = 1e6


class RanFigures(Struct, frozen=True, kw_only=True):
    """The data of one side at one case that a page shows."""

    latency: Latency
    rounds: tuple[RoundSpread, ...] = ()


def point_entry(  # noqa: PLR0913  # one argument for each fact of a point
    point_id: str,
    case: Case,
    figures: RanFigures | None,
    *,
    streams: int = 1,
    throughput: Ratio | None = None,
    reason: str | None = None,
) -> Entry:
    """Return a point of the chart.

    If no throughput was measured, it is computed from the median.
    """
    latency = None if figures is None else figures.latency
    if throughput is None and latency is not None:
        throughput = _throughput_of(latency)
    return {
        "id": point_id,
        "batch": case.batch_size,
        "cores": case.cores,
        "streams": streams,
        "dims": _sizes(case),
        "is_step": case.is_step,
        "ms": None if latency is None else latency.p50_ms,
        "interval_ms": None if latency is None else latency.percentile(50.0).interval_ms,
        "p95_ms": None if latency is None else latency.p95_ms,
        "per_second": None if throughput is None else throughput.value,
        "per_second_interval": None if throughput is None else throughput.interval,
        "reason": reason,
        "rounds": round_entries(figures),
    }


def with_point_facts(model: Mapping[str, Any]) -> Entry:
    """Return the entry of a model with the facts that follow from its points."""
    points = [_with_spot_facts(side) for side in model["points"]]
    return {**model, "points": points}


def _with_spot_facts(points: Sequence[Entry]) -> list[Entry]:
    """Add to the points of a side the facts that decide which one is the sweet spot.

    The user can hide points on a page and choose a threshold. So each point has the thresholds from
    which it is certainly within and from which it may be, its rank by throughput, and the points
    whose throughput may be the same. The rules are those of `sweep.records.find_sweet_spot`.
    """
    measured = [
        point for point in points if point["reason"] is None and point["per_second"] is not None
    ]
    measured.sort(key=lambda point: -_number(point["per_second"]))
    ranks = {id(point): rank for rank, point in enumerate(measured)}
    return [
        {
            **point,
            "rank": ranks.get(id(point)),
            "within_ms": _bound(point, 1),
            "maybe_ms": _bound(point, 0) if point["interval_ms"] else _fastest_ms(point),
            "ties": [
                other["id"] for other in measured if other is not point and _ties(point, other)
            ]
            if id(point) in ranks
            else [],
        }
        for point in points
    ]


def _bound(point: Entry, end: int) -> float | None:
    interval: Any = point["interval_ms"]
    return None if interval is None else _number(interval[end])


def _fastest_ms(point: Entry) -> float | None:
    """Return the fastest sample.

    Without an interval, it is the lower bound of the median.
    """
    rounds: Any = point["rounds"]
    fastest = min((times[0] for times in rounds), default=point["ms"])
    return None if fastest is None else _number(fastest)


def _ties(one: Entry, other: Entry) -> bool:
    """Whether both throughputs may be equal, which is also so if one has no interval."""
    a: Any = one["per_second_interval"]
    b: Any = other["per_second_interval"]
    return a is None or b is None or bool(a[0] <= b[1] and b[0] <= a[1])


def _number(value: Any) -> float:  # noqa: ANN401  # of an entry
    return float(value)


def change_entry(
    latency: Ratio, throughput: Ratio | None = None, p95: Ratio | None = None
) -> Entry:
    """Return the entry of the change at a point.

    Throughput changes by the inverse of latency. The ratio of p95 also comes from the rounds. It is
    null if the rounds gave none, because the quotient of the two figures would be a different
    number.
    """
    return {
        "latency": ratio_entry(latency),
        "p95": None if p95 is None else ratio_entry(p95),
        "throughput": ratio_entry(throughput or _inverted(latency)),
    }


def _sizes(case: Case) -> dict[str, int | str]:
    """Return the sizes of dimensions and the phase of a generation.

    A line in the chart has only one phase.
    """
    phase = {} if case.phase is None else {"phase": case.phase.id}
    return {**dict(case.dims), **phase}


def latency_entry(figures: RanFigures | None) -> Entry | None:
    """Return every percentile with its interval, as far as there are enough samples."""
    if figures is None:
        return None
    latency = figures.latency
    throughput = _throughput_of(latency)
    return {
        "percentiles": [
            {"name": p.name, "ms": ms(p.value_ns), "low": ms(p.low_ns), "high": ms(p.high_ns)}
            for p in latency.percentiles
        ],
        "items_per_second": latency.items_per_second,
        "items_per_second_interval": throughput.interval if throughput else None,
        "samples": latency.samples,
        "rounds": latency.rounds,
    }


def round_entries(figures: RanFigures | None) -> list[list[float]]:
    """Return the times in the spread of each round, the shortest first."""
    rounds = () if figures is None else figures.rounds
    return [[ns / _NS_PER_MS for ns in astuple(spread)[1:]] for spread in rounds]


def _throughput_of(latency: Latency) -> Ratio | None:
    value = latency.items_per_second
    if value is None:
        return None
    median, items_ns = latency.percentile(50.0), latency.batch_size * 1e9
    if not median.low_ns or not median.high_ns:
        return Ratio(value, None, None)
    return Ratio(value, items_ns / median.high_ns, items_ns / median.low_ns)


def _inverted(ratio: Ratio) -> Ratio:
    low = 1 / ratio.high if ratio.high else None
    high = 1 / ratio.low if ratio.low else None
    return Ratio(1 / ratio.value if ratio.value else math.nan, low, high)


def ratio_entry(ratio: Ratio) -> list[float | None]:
    return [ratio.value, ratio.low, ratio.high]
