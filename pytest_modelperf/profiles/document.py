"""Kept profiles as JSON: one of them, the list of a model, and two side by side."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from pytest_modelperf.comparing.records import LayerChange, LayerTypeChange
from pytest_modelperf.files.documents import ContradictionError, DocumentFile, shortened
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.records import CaseProfile, ModelFacts, Profile
from pytest_modelperf.profiler.shown.document import OutcomeJson, ProfileJson, profile_to_json
from pytest_modelperf.profiler.shown.document_reader import read_profile
from pytest_modelperf.profiler.shown.facts_document import (
    EngineJson,
    LayerJson,
    LayerTypeJson,
    MachineJson,
    TotalsJson,
    all_null,
    engine_to_json,
    layer_to_json,
    layer_type_to_json,
    machine_to_json,
)
from pytest_modelperf.profiles.records import (
    CasePair,
    DifferentCondition,
    NamedProfile,
    ProfileList,
    SideBySide,
    UnusableProfile,
    WorkAndTime,
)
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document, ms
from pytest_modelperf.roofline.document import RooflineJson, read_roofline, rooflines_to_json
from pytest_modelperf.roofline.records import Roofline
from pytest_modelperf.text.escaping import printable

KeptTime: TypeAlias = Annotated[dt.datetime, Meta(tz=True)]


class NamedProfileJson(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kept profile: the content of its file. Only the profile may have keys that are unknown."""

    schema: int
    name: str
    date: KeptTime | None
    profile: ProfileJson


class ListedCaseJson(Struct, frozen=True, kw_only=True):
    """A case of a kept profile, without its layers and samples."""

    id: str
    batch_size: int
    cores: int
    dims: Mapping[str, int]
    outcome: OutcomeJson
    engine: EngineJson
    p50_ms: float | None
    items_per_second: float | None
    static: TotalsJson


class ListedProfileJson(Struct, frozen=True, kw_only=True):
    """A profile in the list of a model."""

    name: str
    date: KeptTime | None
    is_older_model: bool | None
    machine: MachineJson | None
    cases: tuple[ListedCaseJson, ...]


class ProfileListJson(Struct, frozen=True, kw_only=True):
    """All profiles of a model."""

    schema: int
    model: str
    profiles: tuple[ListedProfileJson, ...]
    unusable: tuple[UnusableProfile, ...]


class ComparedProfileJson(Struct, frozen=True, kw_only=True):
    """The name of a profile, and what was measured where."""

    name: str
    date: KeptTime | None
    model: ModelFacts
    machine: MachineJson | None


class LayerTypePairJson(Struct, frozen=True, kw_only=True):
    """One operator in both profiles; null where a profile does not have it."""

    before: LayerTypeJson | None
    after: LayerTypeJson | None
    change_ms: float | None


class LayerPairJson(Struct, frozen=True, kw_only=True):
    """One layer in both profiles; null where a profile does not have it."""

    before: LayerJson | None
    after: LayerJson | None
    change_ms: float | None


class CasePairJson(Struct, frozen=True, kw_only=True):
    """One case in both profiles."""

    before: ListedCaseJson
    after: ListedCaseJson
    ratio: float | None
    layer_types: tuple[LayerTypePairJson, ...]
    layers: tuple[LayerPairJson, ...]


class SingleCaseJson(Struct, frozen=True, kw_only=True):
    """A case that only one profile has, or that failed in the other."""

    profile: str
    id: str


class SideBySideJson(Struct, frozen=True, kw_only=True):
    """Two profiles of one model."""

    schema: int
    before: ComparedProfileJson
    after: ComparedProfileJson
    unlike: tuple[DifferentCondition, ...]
    cases: tuple[CasePairJson, ...]
    single: tuple[SingleCaseJson, ...]


class WorkAndTimeCaseJson(Struct, frozen=True, kw_only=True):
    """The counts and the times of a case."""

    id: str
    static: TotalsJson
    p50_ms: float | None
    layer_types: tuple[LayerTypeJson, ...]


class WorkAndTimeJson(Struct, frozen=True, kw_only=True):
    """The counts and the times of a profile."""

    schema: int
    profile: ComparedProfileJson
    cases: tuple[WorkAndTimeCaseJson, ...]
    without_times: tuple[str, ...]


def dump_named(named: NamedProfile) -> str:
    """The content of the file of a kept profile."""
    return dump_document(
        NamedProfileJson(
            schema=SCHEMA,
            name=named.name,
            date=_date(named),
            profile=profile_to_json(named.profile, rooflines_to_json(named.rooflines)),
        )
    )


def read_named(data: bytes, file: DocumentFile) -> NamedProfile:
    """The kept profile in a file, which is named after it."""
    document = file.parse(data)
    file.check_schema(document, SCHEMA)
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
        # If several layers have one id, it means the first, as it does for fused layers.
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
        ProfileListJson(
            schema=SCHEMA,
            model=found.model,
            profiles=tuple(_listed_profile(named, found) for named in kept),
            unusable=found.unusable,
        )
    )


def dump_side_by_side(found: SideBySide) -> str:
    return dump_document(
        SideBySideJson(
            schema=SCHEMA,
            before=_compared_profile(found.before),
            after=_compared_profile(found.after),
            unlike=found.unlike,
            cases=tuple(map(_pair, found.pairs)),
            single=tuple(SingleCaseJson(profile=name, id=case.id) for name, case in found.single),
        )
    )


def dump_work_and_time(found: WorkAndTime) -> str:
    return dump_document(
        WorkAndTimeJson(
            schema=SCHEMA,
            profile=_compared_profile(found.kept),
            cases=tuple(map(_work_and_time, found.cases)),
            without_times=tuple(case.id for case in found.without_times),
        )
    )


def _date(named: NamedProfile) -> dt.datetime | None:
    return None if named.date is None else named.date.replace(microsecond=0)


def _listed_profile(named: NamedProfile, found: ProfileList) -> ListedProfileJson:
    older = None if found.older is None or named.is_flops else named.name in found.older
    return ListedProfileJson(
        name=named.name,
        date=_date(named),
        is_older_model=older,
        machine=machine_to_json(named.profile.machine),
        cases=tuple(map(_listed_case, named.profile.cases)),
    )


def _listed_case(case: CaseProfile) -> ListedCaseJson:
    run = case.measured
    return copy_fields(
        ListedCaseJson,
        case.case,
        dims=dict(case.case.dims),
        outcome=OutcomeJson(case.outcome.value) if run is None else OutcomeJson.MEASURED,
        engine=engine_to_json(None if run is None else run.engine),
        p50_ms=None if run is None else run.latency.p50_ms,
        items_per_second=None if run is None else run.latency.items_per_second,
        static=_totals(case.counted),
    )


def _totals(static: StaticProfile | None) -> TotalsJson:
    return all_null(TotalsJson) if static is None else copy_fields(TotalsJson, static)


def _compared_profile(named: NamedProfile) -> ComparedProfileJson:
    return ComparedProfileJson(
        name=named.name,
        date=_date(named),
        model=named.profile.model,
        machine=machine_to_json(named.profile.machine),
    )


def _pair(pair: CasePair) -> CasePairJson:
    return CasePairJson(
        before=_listed_case(pair.before),
        after=_listed_case(pair.after),
        ratio=pair.ratio,
        layer_types=tuple(map(_layer_type_pair, pair.layer_types)),
        layers=tuple(map(_layer_pair, pair.layers)),
    )


def _layer_type_pair(change: LayerTypeChange) -> LayerTypePairJson:
    return LayerTypePairJson(
        before=None if change.before is None else layer_type_to_json(change.before),
        after=None if change.after is None else layer_type_to_json(change.after),
        change_ms=None if change.time is None else ms(change.time.ns),
    )


def _layer_pair(change: LayerChange) -> LayerPairJson:
    return LayerPairJson(
        before=None if change.before is None else layer_to_json(change.before),
        after=None if change.after is None else layer_to_json(change.after),
        change_ms=None if change.time is None else ms(change.time.ns),
    )


def _work_and_time(case: CaseProfile) -> WorkAndTimeCaseJson:
    return WorkAndTimeCaseJson(
        id=case.case.id,
        static=_totals(case.counted),
        p50_ms=case.latency.p50_ms,
        layer_types=tuple(map(layer_type_to_json, case.layer_types.values())),
    )
