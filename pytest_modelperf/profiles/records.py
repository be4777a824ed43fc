"""The records of profiles that are kept under names, and of two of them side by side."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from msgspec import Struct, field

from pytest_modelperf.comparing.records import LayerChange, LayerTypeChange
from pytest_modelperf.profiler.records import Case, CaseProfile, Profile
from pytest_modelperf.roofline.records import Roofline

# The name of what is counted, which is always there and never kept.
FLOPS = "flops"
# Of what may not be the same in two profiles, what tells how to judge their difference.
MODEL_FILE, ENGINE = "model file", "engine"


class NamedProfile(Struct, frozen=True, kw_only=True):
    """A profile and the name that it is kept under; what is counted now has no `date`.

    `rooflines` are those of its cases that have one, by their ids.
    """

    name: str
    date: dt.datetime | None
    profile: Profile
    rooflines: Mapping[str, Roofline] = field(default_factory=dict)

    @property
    def is_flops(self) -> bool:
        return self.date is None


class UnusableProfile(Struct, frozen=True):
    """What was to be listed and cannot be, and why."""

    name: str
    reason: str


class ProfileList(Struct, frozen=True, kw_only=True):
    """All that there is of a model.

    `older` names the profiles that were measured of another file than the model is now; it is
    None where there is no file to compare them with. `flops` is None where nothing can be counted:
    then `unusable` says why, or the model is a Python function. `folder` is where they are, if
    that is not the usual place.
    """

    model: str
    flops: NamedProfile | None
    kept: tuple[NamedProfile, ...]
    unusable: tuple[UnusableProfile, ...] = ()
    older: frozenset[str] | None = None
    folder: str | None = None


class DifferentCondition(Struct, frozen=True, kw_only=True):
    """Something that was not the same when two profiles were measured."""

    what: str
    before: str
    after: str


class CasePair(Struct, frozen=True, kw_only=True):
    """One case in both profiles, and what its layers took more in the second.

    The times come from two runs that did not take turns, so no change has an interval or a share.
    """

    before: CaseProfile
    after: CaseProfile
    layer_types: tuple[LayerTypeChange, ...]
    layers: tuple[LayerChange, ...]

    @property
    def id(self) -> str:
        """The id of the case; of two that differ, both."""
        old, new = self.before.case.id, self.after.case.id
        return old if old == new else f"{old} -> {new}"

    @property
    def ratio(self) -> float | None:
        """The median now over the one before; None where either is not known."""
        before, after = self.before.latency.p50_ms, self.after.latency.p50_ms
        return after / before if before and after is not None else None


class SideBySide(Struct, frozen=True, kw_only=True):
    """Two profiles of one model that were measured at different times.

    `single` are the cases that only one of them has, or that did not run in both.
    """

    before: NamedProfile
    after: NamedProfile
    pairs: tuple[CasePair, ...]
    single: tuple[tuple[str, Case], ...]
    unlike: tuple[DifferentCondition, ...]


class WorkAndTime(Struct, frozen=True, kw_only=True):
    """What a profile counted against what it measured, in every case that has times of layers."""

    kept: NamedProfile
    cases: tuple[CaseProfile, ...]
    without_times: tuple[Case, ...]
