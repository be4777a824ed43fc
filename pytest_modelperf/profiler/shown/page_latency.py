"""Latencies as the scripts of a page read them: points, percentiles, and the spread of rounds."""

from __future__ import annotations

import math
from typing import TypeAlias

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


def point_entry(  # noqa: PLR0913  # one for each thing that there is to know of it
    point_id: str,
    case: Case,
    told: RanFigures | None,
    *,
    streams: int = 1,
    throughput: Ratio | None = None,
    reason: str | None = None,
) -> Entry:
    """A point of the chart; if no throughput was measured, it is computed from the median."""
    latency = None if told is None else told.latency
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
        "rounds": round_entries(told),
    }


def change_entry(
    latency: Ratio, throughput: Ratio | None = None, p95: Ratio | None = None
) -> Entry:
    """The change at a point; throughput changes by the inverse of latency.

    The ratio of p95 comes from the rounds as well. It is null if the rounds gave none, because the
    quotient of the two figures is another number.
    """
    return {
        "latency": ratio_entry(latency),
        "p95": None if p95 is None else ratio_entry(p95),
        "throughput": ratio_entry(throughput or _inverted(latency)),
    }


def _sizes(case: Case) -> dict[str, int | str]:
    """The sizes of dimensions, and the phase of a generation, of which a line has only one."""
    phase = {} if case.phase is None else {"phase": case.phase.id}
    return {**dict(case.dims), **phase}


def latency_entry(told: RanFigures | None) -> Entry | None:
    """Every percentile with its interval, as far as the samples tell it."""
    if told is None:
        return None
    latency = told.latency
    return {
        "percentiles": [
            {"name": p.name, "ms": ms(p.value_ns), "low": ms(p.low_ns), "high": ms(p.high_ns)}
            for p in latency.percentiles
        ],
        "items_per_second": latency.items_per_second,
        "samples": latency.samples,
        "rounds": latency.rounds,
    }


def round_entries(told: RanFigures | None) -> list[list[float]]:
    """The times of each round that its spread names, the shortest first."""
    rounds = () if told is None else told.rounds
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
