"""The model of a check measured alone: for its budgets, or to show a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pytest_modelperf.comparing.budgets import Budget, FigureSource
from pytest_modelperf.comparing.figures import GROWTH
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.environments.installed_size import InstalledSize, installed_size
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.doctor.growth import measure_growth
from pytest_modelperf.profiler.measured_cases import measure_case
from pytest_modelperf.profiler.model_in_worker import started_rig
from pytest_modelperf.profiler.pairs.plans import save_plan
from pytest_modelperf.profiler.prepare import prepare
from pytest_modelperf.profiler.records import CaseProfile, Outcome
from pytest_modelperf.profiler.sampling.policy import coarsened, deciding_limits, filling_time
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.records import Growth
from pytest_modelperf.testing.case_check import BoundCheck


def measure_for_budgets(bound: BoundCheck, *, is_new: bool) -> CaseProfile | None:
    """The profile of a run that lasts until the budgets are decided; None if nothing runs.

    A new case without latency budgets is only shown, so a coarse measurement will do.
    """
    if bound.context.is_static:
        return None
    gate = bound.gate
    is_only_shown = is_new and not gate.limits
    setup = setup_for_limits(bound.check.setup, gate)
    if is_only_shown:
        setup = replace(setup, policy=coarsened(setup.policy, gate.tolerance))
    is_enough = None if is_only_shown else gate.fits
    found = measure_case(
        prepare(bound.model), setup, bound.place, takes_layers=False, is_enough=is_enough
    )
    return require_measured(found.profile)


def setup_for_limits(setup: Setup, gate: Gate) -> Setup:
    """The setup in which one side runs until the limits of a gate are decided."""
    policy = replace(setup.policy, tail_samples=gate.samples_needed)
    if gate.limits:
        policy = deciding_limits(policy, setup.stretch_seconds)
    if gate.has_limits:
        policy = filling_time(policy)
    return replace(setup, policy=policy)


def with_memory(bound: BoundCheck, profile: CaseProfile) -> CaseProfile:
    """The profile with the peak of memory, if a budget limits it.

    Two sides that shared a process have no peak of their own: one short run alone finds it.
    """
    measured = profile.measured
    has_budget = any(b.figure.metric == "peak_rss_bytes" for b in bound.timed_budgets)
    if measured is None or measured.peak_rss_bytes is not None or not has_budget:
        return profile
    policy = replace(bound.check.setup.policy, min_rounds=1, max_rounds=1, min_samples=1)
    setup = replace(bound.check.setup, policy=policy)
    found = measure_case(prepare(bound.model), setup, bound.place, takes_layers=False)
    alone = found.profile.measured
    peak = None if alone is None else alone.peak_rss_bytes
    return replace(profile, measured=replace(measured, peak_rss_bytes=peak))


def growth_for_budgets(bound: BoundCheck) -> Growth | None:
    """The growth of memory, in a process of its own, if a budget limits it."""
    if not any(b.figure.metric == GROWTH for b in bound.timed_budgets):
        return None
    level = bound.check.gate.limit_level
    return measure_growth(prepare(bound.model), bound.check.setup, bound.place, level)


def kernels_for_budgets(bound: BoundCheck) -> int | None:
    """The number of kernels of the plan, if a budget limits it; None if the engine shows none."""
    if bound.context.is_static or not _has_source(bound, FigureSource.PLAN):
        return None
    model = prepare(bound.model)
    with started_rig(model, bound.check.setup, bound.place) as rig:
        saved = save_plan(rig, model.static.weight_bytes)
    return None if saved is None else saved.plan.digest.kernels


def installed_for_budgets(budgets: Sequence[Budget]) -> Mapping[str, InstalledSize]:
    """The sizes of the distributions that budgets limit, by the names that they give."""
    return {
        name: installed_size(name)
        for budget in budgets
        if budget.figure.source is FigureSource.INSTALLED
        and isinstance(name := budget.companion, str)
    }


def _has_source(bound: BoundCheck, source: FigureSource) -> bool:
    return any(budget.figure.source is source for budget in bound.check.budgets)


def require_measured(profile: CaseProfile) -> CaseProfile:
    """The profile; MeasureError if it has no measurement."""
    if profile.outcome in {Outcome.FAILED, Outcome.SKIPPED} and profile.measured is None:
        raise MeasureError(profile.reason)
    return profile
