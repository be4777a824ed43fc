"""A sweep as JSON: every configuration of each side, the best of them, and what changed."""

from __future__ import annotations

from pytest_modelperf.comparing.document import comparison_to_json
from pytest_modelperf.profiler.document import profile_to_json
from pytest_modelperf.profiler.facts_document import (
    engine_to_json,
    latency_to_json,
    machine_to_json,
    model_to_json,
)
from pytest_modelperf.profiler.records import Outcome
from pytest_modelperf.report.document import SCHEMA, Json, dump_document, ms, number
from pytest_modelperf.stats.records import Ratio, RoundSpread
from pytest_modelperf.sweep.records import PointChange, Scaling, Sweep, SweepPoint, SweepSide

_MEASURED = "measured"


def dump_sweep(sweep: Sweep) -> str:
    """The sweep as JSON text."""
    return dump_document(sweep_to_json(sweep))


def sweep_to_json(sweep: Sweep) -> dict[str, Json]:
    return {
        "schema": SCHEMA,
        "latency_threshold_ms": number(sweep.threshold_ms),
        "confidence": number(sweep.confidence),
        "passes": sweep.passes,
        "seconds": number(sweep.seconds),
        "machine": machine_to_json(sweep.machine),
        "sides": [_side(side) for side in sweep.sides],
        "changes": [_change(change) for change in sweep.changes],
        "profile": None if sweep.profile is None else profile_to_json(sweep.profile),
        "comparison": None if sweep.comparison is None else comparison_to_json(sweep.comparison),
        "notes": list(sweep.notes),
    }


def _side(side: SweepSide) -> dict[str, Json]:
    return {
        "model": model_to_json(side.model),
        "engine": engine_to_json(side.engine),
        "configurations": [_point(point) for point in side.points],
        "sweet_spot": {
            "best": side.spot.best,
            "equals": list(side.spot.equals),
            "undecided": list(side.spot.undecided),
        },
        "scaling": [_scaling(scaling) for scaling in side.scaling],
    }


def _point(point: SweepPoint) -> dict[str, Json]:
    case = point.configuration.case
    throughput = point.throughput
    return {
        "id": point.id,
        "batch_size": case.batch_size,
        "cores": case.cores,
        "streams": point.configuration.streams,
        "dims": dict(case.dims),
        "outcome": _outcome(point),
        "reason": point.reason,
        "latency": latency_to_json(point.latency),
        "items_per_second": None if throughput is None else number(throughput.value),
        "interval": _interval(throughput),
        "rounds": [_round(made) for made in point.rounds],
    }


def _outcome(point: SweepPoint) -> str:
    if point.latency is not None:
        return _MEASURED
    return (point.outcome or Outcome.FAILED).value


def _round(made: RoundSpread) -> dict[str, Json]:
    return {
        "samples": made.samples,
        "min_ms": ms(made.min_ns),
        "p5_ms": ms(made.p5_ns),
        "p25_ms": ms(made.p25_ns),
        "p50_ms": ms(made.p50_ns),
        "p75_ms": ms(made.p75_ns),
        "p95_ms": ms(made.p95_ns),
        "max_ms": ms(made.max_ns),
    }


def _scaling(scaling: Scaling) -> dict[str, Json]:
    return {
        "of": scaling.of,
        "base": scaling.base,
        "id": scaling.id,
        "factor": number(scaling.factor),
        "gain": number(scaling.gain.value),
        "interval": _interval(scaling.gain),
        "efficiency": number(scaling.efficiency),
    }


def _change(change: PointChange) -> dict[str, Json]:
    return {
        "id": change.id,
        "latency": _ratio(change.latency),
        "throughput": _ratio(change.throughput),
    }


def _ratio(ratio: Ratio) -> dict[str, Json]:
    return {"ratio": number(ratio.value), "interval": _interval(ratio)}


def _interval(ratio: Ratio | None) -> Json:
    """Both ends, or null."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return [number(ratio.low), number(ratio.high)]
