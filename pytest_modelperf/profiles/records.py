"""The records of profiles that are kept under names, and of two of them side by side."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from msgspec import Struct, field

from pytest_modelperf.comparing.records import LayerChange, LayerTypeChange
from pytest_modelperf.profiler.records import Case, CaseProfile, Profile
from pytest_modelperf.roofline.records import Roofline

# The reserved name of the counts, which are always there and never kept.
FLOPS = "flops"
# The conditions whose difference decides which command is advised.
MODEL_FILE, ENGINE, DIMENSIONS = "model file", "engine", "dimensions"


class NamedProfile(Struct, frozen=True, kw_only=True):
    """A profile and its name. `date` is None for the counts, which are made now and never kept.

    `rooflines` has the roofline of each case that has one, by its id.
    """

    name: str
    date: dt.datetime | None
    profile: Profile
    rooflines: Mapping[str, Roofline] = field(default_factory=dict)

    @property
    def is_flops(self) -> bool:
        return self.date is None


class UnusableProfile(Struct, frozen=True):
    """A profile that cannot be listed, and why."""

    name: str
    reason: str


class ProfileList(Struct, frozen=True, kw_only=True):
    """All profiles of a model.

    `older` names the profiles of another model file than the present one; None: there is no file
    to compare them with. `flops` is None if nothing can be counted: then `unusable` says why, or
    the model is a Python function. `folder` is their folder, if that is not the usual one.
    """

    model: str
    flops: NamedProfile | None
    kept: tuple[NamedProfile, ...]
    unusable: tuple[UnusableProfile, ...] = ()
    older: frozenset[str] | None = None
    folder: str | None = None


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
        """The id of the case; both ids if they differ."""
        old, new = self.before.case.id, self.after.case.id
        return old if old == new else f"{old} -> {new}"

    @property
    def ratio(self) -> float | None:
        """The median now over the median before; None if either is unknown."""
        before, after = self.before.latency.p50_ms, self.after.latency.p50_ms
        return after / before if before and after is not None else None


class SideBySide(Struct, frozen=True, kw_only=True):
    """Two profiles of one model that were measured at different times.

    `single` has the cases that only one of them measured, with its name.
    """

    before: NamedProfile
    after: NamedProfile
    pairs: tuple[CasePair, ...]
    single: tuple[tuple[str, Case], ...]
    unlike: tuple[DifferentCondition, ...]


class WorkAndTime(Struct, frozen=True, kw_only=True):
    """The counts and the times of a profile, for each case that has times of layers."""

    kept: NamedProfile
    cases: tuple[CaseProfile, ...]
    without_times: tuple[Case, ...]
