"""Profiles that are kept under names as JSON: one, the list of a model's, and two side by side."""

from __future__ import annotations

from pytest_modelperf.comparing.records import LayerChange, LayerTypeChange
from pytest_modelperf.profiler.document import profile_to_json
from pytest_modelperf.profiler.facts_document import (
    engine_to_json,
    layer_to_json,
    layer_type_to_json,
    machine_to_json,
    model_to_json,
    totals_to_json,
)
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiles.records import (
    CasePair,
    NamedProfile,
    ProfileList,
    SideBySide,
    WorkAndTime,
)
from pytest_modelperf.report.document import Json, dump_document, ms, number
from pytest_modelperf.roofline.document import rooflines_to_json

# That of the document around a profile, which has its own.
NAMED_SCHEMA = 1
DATE_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def dump_named(named: NamedProfile) -> str:
    """What is kept, and what a kept profile is read from."""
    return dump_document(
        {
            "schema": NAMED_SCHEMA,
            "name": named.name,
            "date": _date(named),
            "profile": profile_to_json(named.profile, rooflines_to_json(named.rooflines)),
        }
    )


def dump_profile_list(found: ProfileList) -> str:
    kept = found.kept if found.flops is None else (found.flops, *found.kept)
    return dump_document(
        {
            "schema": NAMED_SCHEMA,
            "model": found.model,
            "profiles": [_entry(named, found) for named in kept],
            "unusable": [{"name": each.name, "reason": each.reason} for each in found.unusable],
        }
    )


def dump_side_by_side(found: SideBySide) -> str:
    return dump_document(
        {
            "schema": NAMED_SCHEMA,
            "before": _side(found.before),
            "after": _side(found.after),
            "unlike": [
                {"what": each.what, "before": each.before, "after": each.after}
                for each in found.unlike
            ],
            "cases": [_pair(pair) for pair in found.pairs],
            "single": [{"profile": name, "id": case.id} for name, case in found.single],
        }
    )


def dump_work_and_time(found: WorkAndTime) -> str:
    return dump_document(
        {
            "schema": NAMED_SCHEMA,
            "profile": _side(found.kept),
            "cases": [
                {
                    "id": case.case.id,
                    "static": totals_to_json(case.counted),
                    "p50_ms": case.latency.p50_ms,
                    "layer_types": [layer_type_to_json(kind) for kind in case.layer_types.values()],
                }
                for case in found.cases
            ],
            "without_times": [case.id for case in found.without_times],
        }
    )


def _date(named: NamedProfile) -> str | None:
    return None if named.date is None else named.date.strftime(DATE_FORMAT)


def _entry(named: NamedProfile, found: ProfileList) -> dict[str, Json]:
    older = None if found.older is None or named.is_flops else named.name in found.older
    return {
        "name": named.name,
        "date": _date(named),
        "is_older_model": older,
        "machine": machine_to_json(named.profile.machine),
        "cases": [_case(case) for case in named.profile.cases],
    }


def _case(case: CaseProfile) -> dict[str, Json]:
    run = case.measured
    return {
        "id": case.case.id,
        "batch_size": case.case.batch_size,
        "cores": case.case.cores,
        "dims": dict(case.case.dims),
        "outcome": case.outcome.value if run is None else "measured",
        "engine": engine_to_json(None if run is None else run.engine),
        "p50_ms": None if run is None else number(run.latency.p50_ms),
        "items_per_second": None if run is None else number(run.latency.items_per_second),
        "static": totals_to_json(case.counted),
    }


def _side(named: NamedProfile) -> dict[str, Json]:
    return {
        "name": named.name,
        "date": _date(named),
        "model": model_to_json(named.profile.model),
        "machine": machine_to_json(named.profile.machine),
    }


def _pair(pair: CasePair) -> dict[str, Json]:
    return {
        "before": _case(pair.before),
        "after": _case(pair.after),
        "ratio": number(pair.ratio),
        "layer_types": [_type_change(change) for change in pair.layer_types],
        "layers": [_layer_change(change) for change in pair.layers],
    }


def _type_change(change: LayerTypeChange) -> dict[str, Json]:
    return {
        "before": None if change.before is None else layer_type_to_json(change.before),
        "after": None if change.after is None else layer_type_to_json(change.after),
        "change_ms": None if change.time is None else ms(change.time.ns),
    }


def _layer_change(change: LayerChange) -> dict[str, Json]:
    return {
        "before": None if change.before is None else layer_to_json(change.before),
        "after": None if change.after is None else layer_to_json(change.after),
        "change_ms": None if change.time is None else ms(change.time.ns),
    }
