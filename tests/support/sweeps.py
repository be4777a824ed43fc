"""Sweeps made by hand, as if models had run: nothing in them depends on a machine."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.profiler.records import Case
from pytest_modelperf.stats.records import Latency, Percentile, Ratio, RoundSpread
from pytest_modelperf.sweep.records import (
    BATCH,
    CORES,
    STREAMS,
    Configuration,
    PointChange,
    Scaling,
    Sweep,
    SweepPoint,
    SweepSide,
    find_sweet_spot,
)
from tests.support.facts import make_model
from tests.support.known import known
from tests.support.profiles import ENGINE, MACHINE, NEEDED

NS_PER_MS = 1e6
CONFIDENCE = 0.95
PASSES = 6


def make_configuration(
    batch: int = 1, cores: int = 1, streams: int = 1, dims: tuple[tuple[str, int], ...] = ()
) -> Configuration:
    return Configuration(Case(batch, cores, dims), streams)


def make_latency(
    median_ms: float, batch: int = 1, half_width: float | None = 0.01, samples: int = 240
) -> Latency:
    """A median with its interval; percentiles grow by their distance from it."""
    percentiles = []
    for percent, needed in NEEDED.items():
        value = median_ms * NS_PER_MS * (1 + (percent - 50) / 500)
        is_known = samples >= needed
        has_interval = is_known and half_width is not None
        width = half_width or 0.0
        percentiles.append(
            Percentile(
                percent=percent,
                needed=needed,
                value_ns=value if is_known else None,
                low_ns=value * (1 - width / 2) if has_interval else None,
                high_ns=value * (1 + width) if has_interval else None,
            )
        )
    return Latency(
        batch_size=batch,
        confidence=CONFIDENCE,
        percentiles=tuple(percentiles),
        samples=samples,
        rounds=PASSES,
        min_ns=round(median_ms * NS_PER_MS * 0.9),
        max_ns=round(median_ms * NS_PER_MS * 1.5),
        mean_ns=median_ms * NS_PER_MS * 1.02,
    )


def make_ratio(value: float, half_width: float | None = 0.01) -> Ratio:
    if half_width is None:
        return Ratio(value, None, None)
    return Ratio(value, value * (1 - half_width), value * (1 + half_width))


def make_point(
    configuration: Configuration,
    median_ms: float,
    half_width: float | None = 0.01,
    samples: int = 240,
) -> SweepPoint:
    """A configuration whose requests keep its streams busy."""
    batch = configuration.case.batch_size
    median_ns = median_ms * NS_PER_MS
    return SweepPoint(
        configuration=configuration,
        latency=make_latency(median_ms, batch, half_width, samples),
        throughput=make_ratio(batch * configuration.streams * 1e3 / median_ms, half_width),
        rounds=(
            RoundSpread(
                samples=samples // PASSES,
                min_ns=0.9 * median_ns,
                p5_ns=0.95 * median_ns,
                p25_ns=0.98 * median_ns,
                p50_ns=median_ns,
                p75_ns=1.01 * median_ns,
                p95_ns=1.09 * median_ns,
                max_ns=1.5 * median_ns,
            ),
        ),
    )


def make_side(
    name: str, points: Sequence[SweepPoint], threshold_ms: float | None = None
) -> SweepSide:
    return SweepSide(
        model=make_model(name, name, "ab" * 32, 2875, {"ai.onnx": 21}),
        engine=ENGINE,
        points=tuple(points),
        spot=find_sweet_spot(points, threshold_ms),
        scaling=tuple(_scaling(points)),
    )


def make_sweep(*sides: SweepSide, threshold_ms: float | None = None) -> Sweep:
    return Sweep(
        sides=sides,
        changes=tuple(_changes(*sides)) if len(sides) > 1 else (),
        threshold_ms=threshold_ms,
        confidence=CONFIDENCE,
        seconds=61.24,
        passes=PASSES,
        machine=MACHINE,
    )


def _changes(before: SweepSide, after: SweepSide) -> list[PointChange]:
    old = {point.id: point for point in before.points}
    return [
        PointChange(
            id=point.id,
            latency=_over(point.p50_ms, old[point.id].p50_ms),
            throughput=_over(_rate(point), _rate(old[point.id])),
        )
        for point in after.points
        if point.latency is not None and old[point.id].latency is not None
    ]


def _scaling(points: Sequence[SweepPoint]) -> list[Scaling]:
    found = []
    for of in (BATCH, CORES, STREAMS):
        bases: dict[object, SweepPoint] = {}
        for point in sorted(points, key=lambda point: _amounts(point)[of]):
            if point.throughput is None:
                continue
            amounts = _amounts(point)
            amount = amounts.pop(of)
            base = bases.setdefault(tuple(amounts.items()), point)
            if base is not point:
                factor = amount / _amounts(base)[of]
                gain = _over(_rate(point), _rate(base))
                found.append(Scaling(of=of, base=base.id, id=point.id, factor=factor, gain=gain))
    return found


def _amounts(point: SweepPoint) -> dict[str, int]:
    case = point.configuration.case
    return {
        BATCH: case.batch_size,
        CORES: case.cores,
        STREAMS: point.configuration.streams,
        **dict(case.dims),
    }


def _rate(point: SweepPoint) -> float:
    return known(point.throughput).value


def _over(value: float | None, base: float | None) -> Ratio:
    return make_ratio(known(value) / known(base), 0.02)
