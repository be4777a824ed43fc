"""A sweep as JSON: the types of its document, and how records become them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import astuple

from pytest_modelperf.comparing.document import (
    ComparisonJson,
    Interval,
    comparison_to_json,
    phase_keys,
    ratio_interval,
)
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.records import ModelFacts, Outcome
from pytest_modelperf.profiler.shown.document import OutcomeJson, ProfileJson, profile_to_json
from pytest_modelperf.profiler.shown.facts_document import (
    EngineJson,
    LatencyJson,
    MachineJson,
    engine_to_json,
    latency_to_json,
    machine_to_json,
)
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document, ms
from pytest_modelperf.stats.records import Ratio, RoundSpread
from pytest_modelperf.sweep.records import (
    PointChange,
    Scaling,
    Sweep,
    SweepPoint,
    SweepSide,
    SweetSpot,
)


class RoundSpreadJson(Struct, frozen=True):
    """The spread of the latencies of one round: a `RoundSpread` in ms."""

    samples: int
    min_ms: float | None
    p5_ms: float | None
    p25_ms: float | None
    p50_ms: float | None
    p75_ms: float | None
    p95_ms: float | None
    max_ms: float | None


class ConfigurationJson(Struct, frozen=True, kw_only=True):
    """One configuration of one model."""

    id: str
    batch_size: int
    cores: int
    streams: int
    dims: Mapping[str, int]
    phase: Phase | None
    prompt: int | None
    generate: int | None
    outcome: OutcomeJson
    reason: str | None
    latency: LatencyJson
    items_per_second: float | None
    interval: Interval
    rounds: tuple[RoundSpreadJson, ...]


class ScalingJson(Struct, frozen=True, kw_only=True):
    """The gain from more of one thing, all else equal."""

    of: str
    base: str
    id: str
    factor: float | None
    gain: float | None
    interval: Interval
    efficiency: float | None


class SweepSideJson(Struct, frozen=True, kw_only=True):
    """All configurations of one model."""

    model: ModelFacts
    engine: EngineJson
    configurations: tuple[ConfigurationJson, ...]
    sweet_spot: SweetSpot
    scaling: tuple[ScalingJson, ...]


class ChangeRatioJson(Struct, frozen=True, kw_only=True):
    """A figure of the second model over the same figure of the first."""

    ratio: float | None
    interval: Interval


class ConfigurationChangeJson(Struct, frozen=True, kw_only=True):
    """One configuration that was measured for both models."""

    id: str
    latency: ChangeRatioJson
    throughput: ChangeRatioJson


class SweepJson(Struct, frozen=True, kw_only=True):
    """One model or two at many configurations."""

    schema: int
    latency_threshold_ms: float | None
    confidence: float | None
    passes: int
    seconds: float | None
    machine: MachineJson | None
    sides: tuple[SweepSideJson, ...]
    changes: tuple[ConfigurationChangeJson, ...]
    profile: ProfileJson | None
    comparison: ComparisonJson | None
    notes: tuple[str, ...]


def dump_sweep(sweep: Sweep) -> str:
    """The sweep as JSON text."""
    return dump_document(sweep_to_json(sweep))


def sweep_to_json(sweep: Sweep) -> SweepJson:
    comparison = sweep.comparison
    return copy_fields(
        SweepJson,
        sweep,
        schema=SCHEMA,
        latency_threshold_ms=sweep.threshold_ms,
        machine=machine_to_json(sweep.machine),
        sides=tuple(map(_side, sweep.sides)),
        changes=tuple(map(_change, sweep.changes)),
        profile=None if sweep.profile is None else profile_to_json(sweep.profile),
        comparison=None if comparison is None else comparison_to_json(comparison),
    )


def _side(side: SweepSide) -> SweepSideJson:
    return SweepSideJson(
        model=side.model,
        engine=engine_to_json(side.engine),
        configurations=tuple(map(_configuration, side.points)),
        sweet_spot=side.spot,
        scaling=tuple(map(_scaling, side.scaling)),
    )


def _configuration(point: SweepPoint) -> ConfigurationJson:
    case, throughput = point.configuration.case, point.throughput
    unmeasured = OutcomeJson((point.outcome or Outcome.FAILED).value)
    return ConfigurationJson(
        id=point.id,
        batch_size=case.batch_size,
        cores=case.cores,
        streams=point.configuration.streams,
        dims=dict(case.dims),
        outcome=unmeasured if point.latency is None else OutcomeJson.MEASURED,
        reason=point.reason,
        latency=latency_to_json(point.latency),
        items_per_second=None if throughput is None else throughput.value,
        interval=ratio_interval(throughput),
        rounds=tuple(map(_round_spread, point.rounds)),
        **phase_keys(case),
    )


def _round_spread(spread: RoundSpread) -> RoundSpreadJson:
    samples, *times_ns = astuple(spread)
    return RoundSpreadJson(samples, *map(ms, times_ns))


def _scaling(scaling: Scaling) -> ScalingJson:
    gain = scaling.gain
    return copy_fields(ScalingJson, scaling, gain=gain.value, interval=ratio_interval(gain))


def _change(change: PointChange) -> ConfigurationChangeJson:
    return ConfigurationChangeJson(
        id=change.id,
        latency=_ratio(change.latency),
        throughput=_ratio(change.throughput),
    )


def _ratio(ratio: Ratio) -> ChangeRatioJson:
    return ChangeRatioJson(ratio=ratio.value, interval=ratio_interval(ratio))
