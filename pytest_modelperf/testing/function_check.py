"""Checks of Python functions, which have budgets but no graph, baseline or older version."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.budgets import Budget
from pytest_modelperf.comparing.judged_case import side_run
from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.measured_cases import measure_function
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.records import Case, CaseProfile, ModelFacts, Profile
from pytest_modelperf.testing.budget_figures import (
    installed_for_budgets,
    require_measured,
    setup_for_limits,
)
from pytest_modelperf.testing.budgets import (
    LimitedFigures,
    budget_notes,
    static_budget_metrics,
    time_limits,
    timed_budget_metrics,
)
from pytest_modelperf.testing.case_budgets import NOTHING_RAN, with_run
from pytest_modelperf.testing.case_check import CaseCheck, CaseResult, CheckContext
from pytest_modelperf.testing.outcomes import NO_OLDER_VERSION, NOTHING_JUDGED, NOTHING_RECORDED

_MEMORY = "peak_memory_mb"


class CheckedFunction(Struct, frozen=True):
    """The result of a function, and its known facts as a model."""

    facts: ModelFacts
    result: CaseResult


def check_function(context: CheckContext, check: CaseCheck, watch: Watch) -> CheckedFunction:
    """Judge a function by its budgets alone."""
    is_static = context.is_static
    _require_times(check)
    found = _not_run(check) if is_static else _run(context, check, watch)
    (profile,) = found.cases
    case, measured = profile.case, profile.measured
    installed = installed_for_budgets(check.budgets)
    figures = LimitedFigures(None, None, case.batch_size, measured, installed=installed)
    metrics = (
        *timed_budget_metrics(_timed(check), figures, check.gate.limit_level),
        *static_budget_metrics(check.budgets, figures),
    )
    notes = [
        *budget_notes(check.budgets, measured, context.machine.key),
        *([NOTHING_JUDGED] if not check.budgets else []),
        *([NOTHING_RECORDED] if context.update is not None else []),
        *([NO_OLDER_VERSION] if context.against is not None else []),
        *([NOTHING_RAN] if is_static and _timed(check) else []),
    ]
    comparison = CaseComparison(case, metrics, (), notes=tuple(notes), after=side_run(measured))
    return CheckedFunction(found.model, CaseResult(with_run(comparison, measured), profile))


def _timed(check: CaseCheck) -> list[Budget]:
    return [budget for budget in check.budgets if budget.figure.is_timed]


def _require_times(check: CaseCheck) -> None:
    """Raise UsageError for budgets of figures that a function does not have.

    A function has no load time per round, because its module is imported only once.
    """
    for budget in check.budgets:
        if not budget.figure.is_of_code:
            raise UsageError(
                f"{budget.word} is for models, and this is a Python function: leave it out, and "
                "limit its latency or peak_memory_mb."
            )
        if budget.word == _MEMORY and callable(check.model):
            raise UsageError(
                "peak_memory_mb needs a process of its own, and a function object runs in the "
                "process of the test: give the name of the function, as in "
                "'my_package.models:run', so that another process imports it."
            )


def count_function(check: CaseCheck) -> CaseProfile:
    """Return the profile of a function without a run, which has only its case."""
    (size,), (cores,) = check.request.batch_sizes, check.request.cores
    return CaseProfile(Case(size or 1, cores), None)


def run_function(context: CheckContext, check: CaseCheck, watch: Watch) -> CaseProfile:
    """Measure the function of a check, or raise MeasureError if that fails."""
    return _run(context, check, watch).cases[0]


def _run(context: CheckContext, check: CaseCheck, watch: Watch) -> Profile:
    if not callable(check.model) and not isinstance(check.model, str):
        raise UsageError(
            "the engine callable runs a Python function: give one, or its name, such as "
            "'my_package.models:run'."
        )
    engine = context.extensions.engines.find("callable")
    (size,) = check.request.batch_sizes
    gate = replace(check.gate, limits=time_limits(check.budgets, size or 1))
    setup = setup_for_limits(replace(check.setup, engine=engine), gate)
    is_enough = gate.fits if gate.limits else None
    profile = measure_function(check.model, check.request, setup, watch, is_enough)
    require_measured(profile.cases[0])
    return profile


def _not_run(check: CaseCheck) -> Profile:
    model = check.model
    name = model if isinstance(model, str) else getattr(model, "__qualname__", type(model).__name__)
    return Profile(ModelFacts.named(str(name)), (count_function(check),))
