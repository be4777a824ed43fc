"""Measuring a model alone for its budgets, and its speedup over another model."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pytest_modelperf.comparing.budgets import Budget, FigureSource
from pytest_modelperf.comparing.by_duet import Details, compare_models
from pytest_modelperf.comparing.figures import GROWTH
from pytest_modelperf.comparing.gates import Gate, median_gate
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.environments.installed_size import InstalledSize, installed_size
from pytest_modelperf.errors import MeasureError, UsageError
from pytest_modelperf.profiler.doctor.checkup import measure_growth
from pytest_modelperf.profiler.measured_cases import measure_case
from pytest_modelperf.profiler.model_in_worker import started_rig
from pytest_modelperf.profiler.pairs.plans import save_plan
from pytest_modelperf.profiler.prepare import prepare
from pytest_modelperf.profiler.records import CaseProfile, Outcome
from pytest_modelperf.profiler.sampling.policy import coarsened, deciding_limits, filling_time
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.programs.callables import Compared, ComparedPair, compare_callables
from pytest_modelperf.stats.records import Growth
from pytest_modelperf.testing.case_check import BoundCheck
from pytest_modelperf.text.escaping import printable


def measure_for_budgets(bound: BoundCheck, *, is_new: bool) -> CaseProfile | None:
    """Measure until the budgets are decided, or return None if nothing runs.

    A new case without latency budgets is only shown, so a coarse measurement is enough.
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
        prepare(bound.model),
        setup,
        bound.place,
        takes_layers=False,
        is_enough=is_enough,
        arrivals=bound.check.request.arrivals,
    )
    return require_measured(found.profile)


def setup_for_limits(setup: Setup, gate: Gate) -> Setup:
    """Return the setup that runs a model until the limits of a gate are decided."""
    policy = replace(setup.policy, tail_samples=gate.samples_needed)
    if gate.limits:
        policy = deciding_limits(policy, setup.stretch_seconds)
    if gate.has_limits:
        policy = filling_time(policy)
    return replace(setup, policy=policy)


def with_memory(bound: BoundCheck, profile: CaseProfile) -> CaseProfile:
    """Add the peak of memory to the profile if a budget limits it.

    Two sides that shared a process have no separate peaks, so the model runs briefly alone.
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
    """Measure the growth of memory in a separate process, if a budget limits it."""
    if not any(b.figure.metric == GROWTH for b in bound.timed_budgets):
        return None
    level = bound.check.gate.limit_level
    return measure_growth(prepare(bound.model), bound.check.setup, bound.place, level)


def kernels_for_budgets(bound: BoundCheck) -> int | None:
    """Count the kernels of the plan if a budget limits them. None: the engine shows no plan."""
    if bound.context.is_static or not _has_source(bound, FigureSource.PLAN):
        return None
    model = prepare(bound.model)
    with started_rig(model, bound.check.setup, bound.place) as rig:
        saved = save_plan(rig, model.static.weight_bytes)
    return None if saved is None else saved.plan.digest.kernels


def installed_for_budgets(budgets: Sequence[Budget]) -> Mapping[str, InstalledSize]:
    """Return the installed sizes of the distributions that budgets name."""
    return {
        name: installed_size(name)
        for budget in budgets
        if budget.figure.source is FigureSource.INSTALLED
        and isinstance(name := budget.companion, str)
    }


def _has_source(bound: BoundCheck, source: FigureSource) -> bool:
    return any(budget.figure.source is source for budget in bound.check.budgets)


def require_measured(profile: CaseProfile) -> CaseProfile:
    """Return the profile, or raise MeasureError if it failed or was skipped."""
    if profile.outcome in {Outcome.FAILED, Outcome.SKIPPED} and profile.measured is None:
        raise MeasureError(profile.reason)
    return profile


# -- the budget of a speedup


def judge_speedup(bound: BoundCheck) -> Metric | None:
    """Judge the speedup over another model or function, if a budget limits it.

    Both run in turn until the limit is decided. If the model has to be faster, it is the first
    side and the other may take longer, because a tolerance is never negative.
    """
    budget = next(
        (b for b in bound.check.budgets if b.figure.source is FigureSource.OTHER_MODEL), None
    )
    if budget is None or bound.context.is_static:
        return None
    other, least = str(budget.companion), budget.limit
    is_exchanged = least > 1.0
    policy = bound.check.setup.policy
    gate = median_gate(
        max(least, 1.0 / least) - 1.0, bound.check.gate.limit_level, policy.max_seconds
    )
    case = _compare(bound, budget, gate, is_exchanged=is_exchanged)
    if case.failure is not None:
        raise MeasureError(f"the speedup over {printable(other)} is not known: {case.failure}")
    return speedup_metric(budget, case.metric("latency_p50"), is_exchanged=is_exchanged)


def _compare(
    bound: BoundCheck, budget: Budget, gate: Gate, *, is_exchanged: bool
) -> CaseComparison:
    check, watch, other = bound.check, bound.place.watch, str(budget.companion)
    if budget.names_function:
        feeds = prepare(bound.model).feeds
        both: list[Compared] = [_function(other), check.graph]
        before, after = reversed(both) if is_exchanged else both
        pair = ComparedPair(
            before=before,
            after=after,
            inputs=tuple(feed.array for feed in feeds.values()),
            setup=check.setup,
            cores=bound.case.cores,
        )
        return compare_callables(pair, gate, watch)
    sides = Side(Path(other), check.setup), Side(check.graph, check.setup)
    old, new = reversed(sides) if is_exchanged else sides
    extensions = bound.context.extensions
    return compare_models(old, new, check.request, gate, extensions, watch, Details.NEVER).cases[0]


def _function(name: str) -> Any:  # noqa: ANN401  # whatever has that name
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"speedup: there is no function {printable(name)}: {error}. Give the path of a model, "
            "or a function as in over='my_package.models:run'."
        ) from error
    return found


def speedup_metric(budget: Budget, p50: Metric | None, *, is_exchanged: bool) -> Metric:
    """Make the metric of a speedup from a duet. If `is_exchanged`, the model was its first side."""
    least, other = budget.limit, str(budget.companion)
    metric = Metric(
        budget.figure.metric,
        None,
        1.0,
        Verdict.PASSED if least <= 1.0 else Verdict.OVER_BUDGET,
        limit=least,
        detail=f"over {other if budget.names_function else Path(other).name}",
    )
    if p50 is None:
        # Both files are the same model.
        return metric
    value, interval = p50.ratio, p50.interval
    if not is_exchanged:
        value = None if value is None else 1.0 / value
        interval = None if interval is None else (1.0 / interval[1], 1.0 / interval[0])
    is_faster = (p50.verdict is Verdict.REGRESSED) is is_exchanged
    verdict = Verdict.PASSED if is_faster else Verdict.OVER_BUDGET
    return replace(
        metric,
        after=value,
        verdict=Verdict.INCONCLUSIVE if p50.is_open else verdict,
        after_interval=interval,
        confidence=p50.confidence,
        rounds_needed=p50.rounds_needed,
        samples_needed=p50.samples_needed,
    )
