"""The budgets of a case judged, and added to its result."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.comparing.judged_case import side_run
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.spec.run_definitions import UpdateMode
from pytest_modelperf.stats.records import Growth
from pytest_modelperf.testing.budget_figures import (
    growth_for_budgets,
    installed_for_budgets,
    kernels_for_budgets,
    with_memory,
)
from pytest_modelperf.testing.budgets import (
    LimitedFigures,
    budget_notes,
    static_budget_metrics,
    timed_budget_metrics,
)
from pytest_modelperf.testing.case_check import BoundCheck, CaseResult
from pytest_modelperf.testing.drift import judge_drift
from pytest_modelperf.testing.improvement import improvement_metric
from pytest_modelperf.testing.speedup import judge_speedup

NO_PLAN = "the engine shows no plan of this model, so its kernels are not counted"
NOTHING_RAN = "budgets of figures that are measured are not judged, for nothing ran"


def with_budgets(bound: BoundCheck, result: CaseResult) -> CaseResult:
    """The result with the verdicts of the budgets."""
    if result.comparison.failure is not None:
        return replace(result, comparison=_without_reason(result.comparison))
    result = replace(result, profile=with_memory(bound, result.profile))
    try:
        figures = _limited_figures(bound, result, growth_for_budgets(bound))
        speedup = judge_speedup(bound)
    except MeasureError as error:
        failure = error.worded(bound.check.setup.wording)
        return replace(result, comparison=replace(result.comparison, failure=failure))
    counts = static_budget_metrics(bound.check.budgets, figures)
    level = bound.check.gate.limit_level
    timed = timed_budget_metrics(bound.timed_budgets, figures, level)
    drift = judge_drift(bound, result)
    others = [each for each in (speedup, _improvement(bound, result)) if each is not None]
    measured = result.profile.measured
    comparison = replace(
        result.comparison,
        metrics=_insert(result.comparison.metrics, (*timed, *others, *drift.metrics, *counts)),
        notes=(*_notes(bound, result, counts), *drift.notes),
        after=result.comparison.after or side_run(measured),
    )
    if comparison.rounds is None and bound.timed_budgets:
        comparison = with_run(comparison, measured)
    if comparison.verdict is not Verdict.NEW:
        comparison = _without_reason(comparison)
    return replace(result, comparison=comparison)


def with_run(comparison: CaseComparison, measured: Measurement | None) -> CaseComparison:
    """The comparison of a case that ran alone, for its budgets."""
    if measured is None:
        return comparison
    rounds, seconds = len(measured.rounds), measured.seconds
    return replace(comparison, rounds=rounds, seconds=seconds)


def _limited_figures(
    bound: BoundCheck, result: CaseResult, growth: Growth | None
) -> LimitedFigures:
    generation = bound.model.static.generation
    return LimitedFigures(
        result.profile.counted,
        bound.file.total_bytes,
        bound.case.batch_size,
        result.profile.measured,
        growth,
        result.observed,
        None if generation is None else generation.cache_bytes,
        kernels_for_budgets(bound),
        installed_for_budgets(bound.check.budgets),
    )


def _improvement(bound: BoundCheck, result: CaseResult) -> Metric | None:
    """How much better than its baseline the case is, unless this run records it for that."""
    context = bound.context
    if context.against is not None or context.update is UpdateMode.IMPROVED:
        return None
    return improvement_metric(bound.check.budgets, result.comparison)


def _insert(judged: tuple[Metric, ...], metrics: tuple[Metric, ...]) -> tuple[Metric, ...]:
    """The metrics of budgets in front of the counts that are only shown."""
    is_shown = [not m.gated and not m.name.startswith("latency") for m in judged]
    place = is_shown.index(True) if True in is_shown else len(judged)
    return (*judged[:place], *metrics, *judged[place:])


def _notes(bound: BoundCheck, result: CaseResult, counts: tuple[Metric, ...]) -> tuple[str, ...]:
    """The notes of the comparison, and why a budget could not be judged."""
    notes, counted = result.comparison.notes, result.profile.counted
    if counted is not None and any(metric.is_open for metric in counts):
        # They name what only a run can count.
        notes = tuple(dict.fromkeys((*notes, *counted.notes)))
    budgets, measured = bound.check.budgets, result.profile.measured
    if bound.context.is_static and any(budget.figure.needs_run for budget in budgets):
        notes = (*notes, NOTHING_RAN)
    if any(metric.name == "kernels" and metric.is_open for metric in counts):
        notes = (*notes, NO_PLAN) if not bound.context.is_static else notes
    return (*notes, *budget_notes(budgets, measured, bound.machine.key))


def _without_reason(comparison: CaseComparison) -> CaseComparison:
    """The comparison with the reason why the case is new as a note.

    It explains no other verdict.
    """
    if comparison.outcome is not Verdict.NEW:
        return comparison
    return replace(comparison, reasons=(), notes=(*comparison.reasons, *comparison.notes))
