"""The records of profiles that are kept under names, and of two of them side by side."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

from pytest_modelperf.comparing.changes import LayerChange, LayerTypeChange
from pytest_modelperf.profiler import measurements
from pytest_modelperf.profiler.counting.records import LAYER_TYPE, TOTALS
from pytest_modelperf.profiler.machine.hardware import MACHINE
from pytest_modelperf.profiler.records import PROFILE, Case, CaseProfile, Profile
from pytest_modelperf.profiler.rows import LAYER
from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.roofline.records import Roofline

_KeptTime: TypeAlias = Annotated[dt.datetime, Meta(tz=True)]
# The reserved name of the counts, which are always available and never kept.
FLOPS = "flops"
# Differences in these conditions decide which command is advised.
MODEL_FILE, ENGINE, DIMENSIONS = "model file", "engine", "dimensions"


class NamedProfile(Struct, frozen=True, kw_only=True):
    """A profile and its name. `date` is None for the counts: these are never kept.

    `rooflines` has the roofline of each case that has one, by its id.
    """

    name: str
    date: dt.datetime | None
    profile: Profile
    rooflines: Mapping[str, Roofline] = field(default_factory=dict)

    @property
    def is_flops(self) -> bool:
        return self.date is None

    @property
    def second(self) -> _KeptTime | None:
        return None if self.date is None else self.date.replace(microsecond=0)


NAMED = JsonDocument(
    NamedProfile,
    "name date=second profile",
    about="A kept profile: the content of its file. Only the profile may have keys that are"
    " unknown.",
    forbids_unknown=True,
    profile=PROFILE,
)
LISTED_CASE = JsonObject(
    CaseProfile,
    "id=case.id batch_size=case.batch_size cores=case.cores dims=case.varied outcome=state"
    " engine=measured.engine p50_ms=measured.latency.p50_ms"
    " items_per_second=measured.latency.items_per_second static=counted",
    title="ListedCase",
    about="A case of a kept profile, without its layers and samples.",
    engine=measurements.ENGINE.or_nulls,
    static=TOTALS.or_nulls,
)
LISTED_PROFILE = JsonObject(
    NamedProfile,
    "name date=second is_older_model= machine=profile.machine cases=profile.cases",
    title="ListedProfile",
    about="A profile in the list of a model.",
    is_older_model=bool | None,
    machine=MACHINE,
    cases=LISTED_CASE,
)
COMPARED_PROFILE = JsonObject(
    NamedProfile,
    "name date=second model=profile.model machine=profile.machine",
    title="ComparedProfile",
    about="The name of a profile, and what was measured where.",
    machine=MACHINE,
)


class UnusableProfile(Struct, frozen=True):
    """A profile that cannot be listed, and why."""

    name: str
    reason: str


class ProfileList(Struct, frozen=True, kw_only=True):
    """All profiles of a model.

    `older` names the profiles of a model file other than the present one, and is None without a
    present file. `flops` is None if nothing can be counted: then `unusable` says why, or the model
    is a Python function. `folder` is their folder, if that is not the usual one.
    """

    model: str
    flops: NamedProfile | None
    kept: tuple[NamedProfile, ...]
    unusable: tuple[UnusableProfile, ...] = ()
    older: frozenset[str] | None = None
    folder: str | None = None

    @property
    def profiles(self) -> tuple[NamedProfile, ...]:
        """The counts, if there are any, and the profiles that were kept."""
        return self.kept if self.flops is None else (self.flops, *self.kept)

    def is_of_older_model(self, named: NamedProfile) -> bool | None:
        """Whether a profile is of another model file, or None if that is unknown."""
        return None if self.older is None or named.is_flops else named.name in self.older


PROFILE_LIST = JsonDocument(ProfileList, "model profiles unusable", profiles=LISTED_PROFILE)


class DifferentCondition(Struct, frozen=True, kw_only=True):
    """A condition that differed between the measurements of two profiles."""

    what: str
    before: str
    after: str


class CasePair(Struct, frozen=True, kw_only=True):
    """One case in both profiles, and how much more time its layers took in the second.

    The two runs did not take turns, so no change has an interval or a share.
    """

    before: CaseProfile
    after: CaseProfile
    layer_types: tuple[LayerTypeChange, ...]
    layers: tuple[LayerChange, ...]

    @property
    def id(self) -> str:
        """The id of the case, or both ids if they differ."""
        old, new = self.before.case.id, self.after.case.id
        return old if old == new else f"{old} -> {new}"

    @property
    def ratio(self) -> float | None:
        """The median now over the median before, or None if either is unknown."""
        before, after = self.before.latency.p50_ms, self.after.latency.p50_ms
        return after / before if before and after is not None else None


LAYER_TYPE_PAIR = JsonObject(
    LayerTypeChange,
    "before after change_ms=time.ns",
    title="LayerTypePair",
    about="One operator in both profiles; null if a profile does not have it.",
    before=LAYER_TYPE,
    after=LAYER_TYPE,
)
LAYER_PAIR = JsonObject(
    LayerChange,
    "before after change_ms=time.ns",
    title="LayerPair",
    about="One layer in both profiles; null if a profile does not have it.",
    before=LAYER,
    after=LAYER,
)
CASE_PAIR = JsonObject(
    CasePair,
    "before after ratio layer_types layers",
    before=LISTED_CASE,
    after=LISTED_CASE,
    layer_types=LAYER_TYPE_PAIR,
    layers=LAYER_PAIR,
)


class SingleCase(Struct, frozen=True, kw_only=True):
    """A case that only one profile has, or that failed in the other."""

    profile: str
    id: str


class SideBySide(Struct, frozen=True, kw_only=True):
    """Two profiles of one model that were measured at different times.

    `single` has the cases that only one of them measured, with its name.
    """

    before: NamedProfile
    after: NamedProfile
    pairs: tuple[CasePair, ...]
    single: tuple[tuple[str, Case], ...]
    unlike: tuple[DifferentCondition, ...]

    @property
    def singles(self) -> tuple[SingleCase, ...]:
        return tuple(SingleCase(profile=name, id=case.id) for name, case in self.single)


SIDE_BY_SIDE = JsonDocument(
    SideBySide,
    "before after unlike cases=pairs single=singles",
    before=COMPARED_PROFILE,
    after=COMPARED_PROFILE,
    cases=CASE_PAIR,
)


class WorkAndTime(Struct, frozen=True, kw_only=True):
    """The counts and the times of a profile, for each case that has times of layers."""

    kept: NamedProfile
    cases: tuple[CaseProfile, ...]
    without_times: tuple[Case, ...]


WORK_AND_TIME = JsonDocument(
    WorkAndTime,
    "profile=kept cases without_times=without_times.id",
    profile=COMPARED_PROFILE,
    cases=JsonObject(
        CaseProfile,
        "id=case.id static=counted p50_ms=measured.latency.p50_ms layer_types=layer_types.*",
        title="WorkAndTimeCase",
        about="The counts and the times of a case.",
        static=TOTALS.or_nulls,
        layer_types=LAYER_TYPE,
    ),
)
