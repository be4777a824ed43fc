"""Checks of Python functions: they have budgets, but no graph, baseline or older version."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.figures import GROWTH
from pytest_modelperf.comparing.judged_case import side_run
from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.measured_cases import measure_function
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.records import Case, CaseProfile, ModelFacts, Profile
from pytest_modelperf.testing.budget_figures import require_measured
from pytest_modelperf.testing.budgets import LimitedFigures, time_limits, timed_budget_metrics
from pytest_modelperf.testing.case_budgets import NOTHING_RAN, with_run
from pytest_modelperf.testing.case_check import CaseCheck, CaseResult, CheckContext
from pytest_modelperf.testing.outcomes import NO_OLDER_VERSION


class CheckedFunction(Struct, frozen=True):
    """The result of a function, and the facts that are known of it as a model."""

    facts: ModelFacts
    result: CaseResult


def check_function(context: CheckContext, check: CaseCheck, watch: Watch) -> CheckedFunction:
    """The result of a function, judged by its budgets alone."""
    is_static = context.is_static
    if any(budget.figure.metric == GROWTH for budget in check.budgets):
        raise UsageError(
            "growth_kb_per_inference is for models, which run in a process of their own: leave it "
            "out for a Python function."
        )
    if callable(check.model) and any(
        budget.figure.metric == "peak_rss_bytes" for budget in check.budgets
    ):
        raise UsageError(
            "peak_memory_mb needs a process that runs nothing else, and a function that is given "
            "runs in the process of the test: name it, as in 'my_package.models:run', so that a "
            "process of its own imports it."
        )
    found = _not_run(check) if is_static else _run(context, check, watch)
    (profile,) = found.cases
    case, measured = profile.case, profile.measured
    figures = LimitedFigures(None, None, case.batch_size, measured)
    metrics = timed_budget_metrics(check.budgets, figures, check.gate.limit_level)
    notes = [
        *([NO_OLDER_VERSION] if context.against is not None else []),
        *([NOTHING_RAN] if is_static and check.budgets else []),
    ]
    comparison = CaseComparison(case, metrics, (), notes=tuple(notes), after=side_run(measured))
    return CheckedFunction(found.model, CaseResult(with_run(comparison, measured), profile))


def count_function(check: CaseCheck) -> CaseProfile:
    """The profile of a function without a run: only its case."""
    (size,), (cores,) = check.request.batch_sizes, check.request.cores
    return CaseProfile(Case(size or 1, cores), None)


def run_function(context: CheckContext, check: CaseCheck, watch: Watch) -> CaseProfile:
    """The profile of the function of a check; MeasureError if it cannot be measured."""
    return _run(context, check, watch).cases[0]


def _run(context: CheckContext, check: CaseCheck, watch: Watch) -> Profile:
    if not callable(check.model) and not isinstance(check.model, str):
        raise UsageError(
            "the engine callable runs a Python function: give one, or its name, such as "
            "'my_package.models:run'."
        )
    engine = context.extensions.engines.find("callable")
    setup = replace(check.setup, engine=engine)
    (size,) = check.request.batch_sizes
    gate = replace(check.gate, limits=time_limits(check.budgets, size or 1))
    is_enough = gate.fits if gate.limits else None
    profile = measure_function(check.model, check.request, setup, watch, is_enough)
    require_measured(profile.cases[0])
    return profile


def _not_run(check: CaseCheck) -> Profile:
    model = check.model
    name = model if isinstance(model, str) else getattr(model, "__qualname__", type(model).__name__)
    return Profile(ModelFacts.named(str(name)), (count_function(check),))
