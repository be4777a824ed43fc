"""A profile as JSON: everything that was counted and measured, raw samples included."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.profiler.facts_document import (
    engine_to_json,
    latency_to_json,
    layer_to_json,
    layer_type_to_json,
    machine_to_json,
    model_to_json,
    noise_to_json,
    totals_to_json,
)
from pytest_modelperf.profiler.measurements import Round
from pytest_modelperf.profiler.records import CaseProfile, Profile, StaticProfile
from pytest_modelperf.report.document import SCHEMA, Json, dump_document, ms, number

_MEASURED = "measured"


def dump_profile(profile: Profile, rooflines: Mapping[str, Json] | None = None) -> str:
    """The profile as JSON text; `rooflines` has that of a case by its id, as JSON."""
    return dump_document(profile_to_json(profile, rooflines))


def profile_to_json(
    profile: Profile, rooflines: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    known = rooflines or {}
    return {
        "schema": SCHEMA,
        "model": model_to_json(profile.model),
        "machine": machine_to_json(profile.machine),
        "cases": [_case(case, known.get(case.case.id)) for case in profile.cases],
    }


def _case(case: CaseProfile, roofline: Json) -> dict[str, Json]:
    run = case.measured
    return {
        "id": case.case.id,
        "batch_size": case.case.batch_size,
        "cores": case.case.cores,
        "dims": dict(case.case.dims),
        "given_dims": None if case.case.given_dims is None else dict(case.case.given_dims),
        "outcome": _MEASURED if run is not None else case.outcome.value,
        "reason": None if run is not None else case.reason,
        "engine": engine_to_json(None if run is None else run.engine),
        "processors": None if run is None or run.processors is None else list(run.processors),
        "seconds": None if run is None else number(run.seconds),
        "notes": [] if run is None else list(run.notes),
        "static": _static(case.counted),
        "latency": latency_to_json(None if run is None else run.latency),
        "load_ms": None if run is None else number(run.load_ms),
        "first_load_ms": None if run is None else number(run.first_load_ms),
        "first_inference_ms": None if run is None else number(run.first_inference_ms),
        "peak_rss_bytes": None if run is None else run.peak_rss_bytes,
        "engine_peak_bytes": None if run is None else run.engine_peak_bytes,
        "layer_types": [layer_type_to_json(kind) for kind in case.layer_types.values()],
        "layers": [layer_to_json(row) for row in case.layers],
        "roofline": roofline,
        "raw": None if run is None else [_round(made) for made in run.rounds],
    }


def _static(static: StaticProfile | None) -> dict[str, Json]:
    uncounted: dict[str, Json] = {}
    for entry in static.uncounted if static is not None else ():
        uncounted[entry.op_type] = int(str(uncounted.get(entry.op_type, 0))) + entry.count
    return {
        **totals_to_json(static),
        "uncounted_ops": None if static is None else uncounted,
        "coverage": None if static is None else static.coverage,
        "notes": [] if static is None else list(static.notes),
    }


def _round(made: Round) -> dict[str, Json]:
    return {
        "load_ms": ms(made.load_ns),
        "first_ms": ms(made.first_ns),
        "warmup_runs": made.warmup_runs,
        "is_steady": made.is_steady,
        "noise": noise_to_json(made.block.noise),
        "begun_ns": _begun(made),
        "times_ns": list(made.times_ns),
    }


def _begun(made: Round) -> dict[str, Json] | None:
    """When the parts of a round began."""
    starts = made.starts
    if starts is None or made.block.start_ns is None:
        return None
    return {
        "load": starts.load_ns,
        "first": starts.first_ns,
        "warmup": starts.warmup_ns,
        "warmup_end": starts.warmup_end_ns,
        "block": made.block.start_ns,
    }
