"""Exact figures compared without a run: which got worse, and which changes explain it."""

from __future__ import annotations

from pytest_modelperf.baselines.records import ModelBaseline
from pytest_modelperf.comparing.by_counts import EXACT, compare_cases, compare_with_baseline
from pytest_modelperf.comparing.limits import Tolerances
from pytest_modelperf.comparing.records import Comparison
from pytest_modelperf.comparing.sizes import with_size
from pytest_modelperf.errors import Remedy, UsageError
from pytest_modelperf.graph.model_file import ModelSource
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.text.escaping import printable


def compare_profiles(before: Profile, after: Profile, tolerances: Tolerances = EXACT) -> Comparison:
    """Every case of `before` against the same case of `after`."""
    pairs = tuple(zip(before.cases, after.cases, strict=False))
    if [case.case.id for case in before.cases] != [case.case.id for case in after.cases]:
        raise UsageError(
            f"{printable(before.model.name)} was profiled at {_case_ids(before)} and "
            f"{printable(after.model.name)} at {_case_ids(after)}: they cannot be compared.",
            Remedy("Give both the same with {batch} and {dims}."),
        )
    sizes = before.model.total_bytes, after.model.total_bytes
    return Comparison(
        before.model,
        after.model,
        tuple(
            with_size(compare_cases(old, new, tolerances), *sizes, tolerances) for old, new in pairs
        ),
    )


def compare_with_recorded(
    baseline: ModelBaseline,
    source: ModelSource,
    request: ProfileRequest,
    extensions: Extensions,
    tolerances: Tolerances,
) -> Comparison:
    """Every case of a model against what a baseline has of it."""
    profile = profile_model(source, request, extensions.operators)
    given = Model.load(source, request, extensions).given_inputs
    return compare_with_baseline(baseline, profile, given, tolerances)


def _case_ids(profile: Profile) -> str:
    return ", ".join(printable(case.case.id) for case in profile.cases) or "no case"
