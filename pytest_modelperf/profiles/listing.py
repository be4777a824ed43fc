"""All profiles of a model: its counts, and the kept ones."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.errors import ModelError, ModelPerfError, Wording
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Operators
from pytest_modelperf.profiler.request import ProfileRequest, model_facts, profile_model
from pytest_modelperf.profiles.place import is_function
from pytest_modelperf.profiles.records import FLOPS, NamedProfile, ProfileList, UnusableProfile
from pytest_modelperf.profiles.store import ProfileStore


def count_flops(model: str, request: ProfileRequest, operators: Operators) -> NamedProfile:
    """The counts of a model as a profile, which is always there."""
    return NamedProfile(name=FLOPS, date=None, profile=profile_model(model, request, operators))


def list_profiles(
    store: ProfileStore,
    request: ProfileRequest,
    operators: Operators,
    wording: Wording,
) -> ProfileList:
    """The counts and the kept profiles; unusable ones are listed with their reason.

    A missing model is a ModelError, unless a profile of it was kept.
    """
    contents = store.read_all()
    unusable = list(contents.unusable)
    flops = None
    if not is_function(store.model):
        try:
            flops = count_flops(store.model, request, operators)
        except ModelPerfError as error:
            if not contents.kept and not contents.unusable:
                raise
            unusable.insert(0, UnusableProfile(FLOPS, error.worded(wording)))
    return ProfileList(
        model=store.model,
        flops=flops,
        kept=contents.kept,
        unusable=tuple(unusable),
        older=find_older(store.model, contents.kept),
        folder=str(store.root) if store.is_elsewhere else None,
    )


def find_older(model: str, kept: Sequence[NamedProfile]) -> frozenset[str] | None:
    """The profiles of another model file than the present one; None if there is no file."""
    digests = {named.name: named.profile.model.sha256 for named in kept}
    if not any(digests.values()):
        return None
    try:
        now = model_facts(open_model(model), reads_all=True).sha256
    except ModelError:
        return None
    return frozenset(name for name, digest in digests.items() if digest not in {None, now})
