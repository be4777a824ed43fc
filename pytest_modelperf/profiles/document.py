"""Kept profiles as JSON: one of them, the list of a model, and two side by side."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from msgspec import Meta, Struct

from pytest_modelperf.comparing.records import LayerChange, LayerTypeChange
from pytest_modelperf.files.documents import ContradictionError, DocumentFile, shortened
from pytest_modelperf.profiler.document import ProfileJson, profile_to_json
from pytest_modelperf.profiler.document_reader import read_profile
from pytest_modelperf.profiler.facts_document import (
    engine_to_json,
    layer_to_json,
    layer_type_to_json,
    machine_to_json,
    model_to_json,
    totals_to_json,
)
from pytest_modelperf.profiler.records import CaseProfile, Profile
from pytest_modelperf.profiles.records import (
    CasePair,
    NamedProfile,
    ProfileList,
    SideBySide,
    WorkAndTime,
)
from pytest_modelperf.report.document import SCHEMA, Json, dump_document, ms, number
from pytest_modelperf.roofline.document import RooflineJson, read_roofline, rooflines_to_json
from pytest_modelperf.roofline.records import Roofline
from pytest_modelperf.text.escaping import printable

# The schema of the document around a profile. The profile has a schema of its own.
NAMED_SCHEMA = 1


class NamedProfileJson(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kept profile: the content of its file. Only the profile may have keys that are unknown."""

    schema: int
    name: str
    date: Annotated[dt.datetime, Meta(tz=True)] | None
    profile: ProfileJson


def dump_named(named: NamedProfile) -> str:
    """The content of the file of a kept profile."""
    return dump_document(
        NamedProfileJson(
            schema=NAMED_SCHEMA,
            name=named.name,
            date=_date(named),
            profile=profile_to_json(named.profile, rooflines_to_json(named.rooflines)),
        )
    )


def read_named(data: bytes, file: DocumentFile) -> NamedProfile:
    """The kept profile in a file, which is named after it."""
    document = file.parse(data)
    file.check_schema(document, NAMED_SCHEMA)
    profile = document.get("profile")
    if isinstance(profile, dict):
        # A profile of a newer schema need not have the keys of this one.
        file.check_schema(profile, SCHEMA, "profile")
    found = file.convert(document, NamedProfileJson)
    if found.name != file.path.stem:
        raise file.error(
            f'the name is "{shortened(found.name)}", but the file is {printable(file.path.name)}',
            "name",
            "Name the file after the profile that is in it.",
        )
    if found.date is None or found.date.utcoffset():
        raise file.error("expected a time in UTC such as 2026-01-31T12:00:00Z", "date")
    with _contradictions(file, "profile"):
        made = read_profile(found.profile)
    return NamedProfile(
        name=found.name,
        date=found.date,
        profile=made,
        rooflines=_read_rooflines(found.profile, made, file),
    )


def _read_rooflines(
    found: ProfileJson, profile: Profile, file: DocumentFile
) -> dict[str, Roofline]:
    """The rooflines of the cases that have one, by their ids."""
    rooflines = {}
    for index, (kept, case) in enumerate(zip(found.cases, profile.cases, strict=True)):
        if kept.roofline is None:
            continue
        place = f"profile.cases[{index}].roofline"
        roofline = file.convert(kept.roofline, RooflineJson, place)
        # Of several layers with one id the first is meant, as where layers are fused.
        layers = () if case.counted is None else reversed(case.counted.layers)
        with _contradictions(file, place):
            names = {layer.id: layer.name for layer in layers}
            rooflines[case.case.id] = read_roofline(roofline, names)
    return rooflines


@contextmanager
def _contradictions(file: DocumentFile, place: str) -> Iterator[None]:
    """Turn a ContradictionError at `place` into an error of the file."""
    try:
        yield
    except ContradictionError as error:
        raise file.error(error.problem, f"{place}.{error.place}") from None


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


def _date(named: NamedProfile) -> dt.datetime | None:
    return None if named.date is None else named.date.replace(microsecond=0)


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
