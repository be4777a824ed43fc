"""The budgets of a case: measuring for them, and judging them with drift and improvement."""

from __future__ import annotations

import datetime as dt
import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.budgets import Budget, FigureSource
from pytest_modelperf.comparing.by_running import Details, compare_models
from pytest_modelperf.comparing.figures import GROWTH, is_sampled, metric_title
from pytest_modelperf.comparing.gates import Gate, median_gate
from pytest_modelperf.comparing.judged_case import side_run
from pytest_modelperf.comparing.records import IMPROVEMENT, CaseComparison, How, Metric, Verdict
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.comparing.time_limits import PASS_LEVEL
from pytest_modelperf.environments.records import InstalledSize
from pytest_modelperf.errors import MeasureError, UsageError
from pytest_modelperf.history.page_data import (
    describe_beginning,
    describe_step,
    format_shift,
    name_place,
)
from pytest_modelperf.history.records import LINE_SCHEMA, CaseHistory, HistoryMetric, P50Line
from pytest_modelperf.history.summary import (
    Drift,
    HistoryQuery,
    chain_lines,
    list_drifts,
    summarize_case,
)
from pytest_modelperf.profiler.measured_cases import measure_case
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.model_in_worker import started_rig
from pytest_modelperf.profiler.pairs.plans import save_plan
from pytest_modelperf.profiler.prepare import prepare
from pytest_modelperf.profiler.records import CaseProfile, Outcome
from pytest_modelperf.profiler.sampling.policy import coarsened, deciding_limits, filling_time
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.spec.run_definitions import HISTORY, UpdateMode
from pytest_modelperf.stats.records import Growth
from pytest_modelperf.testing.budgets import (
    LimitedFigures,
    budget_notes,
    static_budget_metrics,
    timed_budget_metrics,
)
from pytest_modelperf.testing.case_check import BoundCheck, CaseCheck, CaseResult, CheckContext
from pytest_modelperf.testing.history_lines import ratio_to_baseline
from pytest_modelperf.text.escaping import printable

_METRIC = HistoryMetric.P50


class DriftFound(Struct, frozen=True):
    """The metric of the drift if it is judged, and notes on its beginning or why it is not."""

    metrics: tuple[Metric, ...] = ()
    notes: tuple[str, ...] = ()


def require_history(context: CheckContext, check: CaseCheck) -> None:
    """Raise UsageError for a budget of drift in a check without a baseline or a history."""
    if _budget(check) is None:
        return
    if check.baseline is None:
        raise UsageError(
            "the budget drift limits the ratios of a model to its baselines, and this case has "
            "no baseline: leave drift out, or check a model that has a baseline."
        )
    if context.history is None and context.against is None:
        raise UsageError(
            f"the budget drift needs a history: give its folder with {HISTORY.flag}=history, or as "
            'history = "history" in [tool.modelperf].'
        )


def _budget(check: CaseCheck) -> Budget | None:
    return next((budget for budget in check.budgets if budget.figure.is_change), None)


def judge_drift(bound: BoundCheck, result: CaseResult) -> DriftFound:
    """Judge the drift up to this run, if there is such a budget and something ran."""
    context, budget = bound.context, _budget(bound.check)
    if budget is None or context.is_static:
        return DriftFound()
    if context.against is not None:
        return _not_judged("--modelperf-against does not compare with a baseline")
    linked = None if result.link is None else result.link.comparison
    compared = linked or result.comparison
    stored = context.baseline(str(bound.check.baseline), bound.machine.key)
    case = None if stored is None else stored.model.case(bound.case.id)
    if case is None or (compared.outcome is Verdict.NEW and result.recording is None):
        return _not_judged(f"there is no baseline of {bound.case.id} to compare with")
    ratio = ratio_to_baseline(compared, compared.typical_name, is_static=False)
    if ratio is None or case.model_sha256 is None:
        problem = None if result.link is None else result.link.problem
        unknown = Metric("drift", None, None, Verdict.INCONCLUSIVE, limit=budget.limit)
        return _not_judged(problem or "no ratio to the baseline was measured", unknown)
    measured = result.profile.measured
    line = P50Line(
        schema=LINE_SCHEMA,
        date=dt.datetime.now(dt.timezone.utc).replace(microsecond=0),
        commit=context.revision.commit,
        case=bound.case.id,
        engine=case.engine if measured is None else measured.engine.name,
        digest=None,
        baseline=case.model_sha256,
        verdict=compared.verdict.value,
        p50=ratio,
        reasons=compared.reasons,
    )
    return _judge_drift(bound, budget, line)


def _not_judged(reason: str, *metrics: Metric) -> DriftFound:
    return DriftFound(metrics, (f"the budget drift is not judged: {reason}",))


def _judge_drift(bound: BoundCheck, budget: Budget, line: P50Line) -> DriftFound:
    """Judge the drift including this line, which is not written yet."""
    context = bound.context
    past = context.past_runs(str(bound.check.baseline), bound.machine.key)
    known = past.chains.get((line.case, line.engine))
    query = HistoryQuery(metric=_METRIC, tag=context.last_tag)
    chain = chain_lines([line], _METRIC) if known is None else known.followed_by(line)
    history = summarize_case(past.file, line.case, line.engine, chain, query)
    if history is None:
        return DriftFound()
    drifts = list_drifts(history, context.last_tag)
    level = bound.check.gate.level / len(drifts)
    quantile = NormalDist().inv_cdf(1.0 - level)
    worst = max(drifts, key=lambda drift: drift.shift.bounds(quantile)[0])
    low, high = (1.0 + change for change in worst.shift.bounds(quantile))
    pass_quantile = NormalDist().inv_cdf(1.0 - PASS_LEVEL)
    if low > budget.limit:
        verdict = Verdict.OVER_BUDGET
    elif all(1.0 + each.shift.bounds(pass_quantile)[1] <= budget.limit for each in drifts):
        verdict = Verdict.PASSED
    else:
        verdict = Verdict.INCONCLUSIVE
    metric = Metric(
        "drift",
        None,
        worst.shift.ratio,
        verdict,
        limit=budget.limit,
        after_interval=(low, high) if worst.shift.error else None,
        confidence=1.0 - 2.0 * level,
    )
    notes = _drift_notes(history, worst) if verdict is not Verdict.PASSED else ()
    beginning = (describe_beginning(history),) if history.earlier_points else ()
    return DriftFound((metric,), (*notes, *(f"drift: {each}" for each in beginning), *past.notes))


def _drift_notes(history: CaseHistory, drift: Drift) -> Iterator[str]:
    """Yield notes on when the case began to cost more, and on the steps since then."""
    runs = sum(point.date >= drift.start.date for point in history.points)
    yield (
        f"drift since {printable(drift.since)}, {name_place(drift.start)}: "
        f"{format_shift(drift.shift)} in {runs} runs"
    )
    steps = [step for step in history.steps if step.after.date > drift.start.date]
    for step in steps:
        yield f"drift step: {describe_step(step)}"
        for reason in step.after.reasons:
            yield f"drift step: {reason}"
    if not steps:
        yield "drift: no single step is shown: it grew little by little"


# -- the budget of an improvement


# The figures in which an improvement over the baseline is looked for.
_FIGURES = frozenset({"latency_p50", "macs", "params", "size_bytes"})
_ORDER = (Verdict.OVER_BUDGET, Verdict.INCONCLUSIVE, Verdict.PASSED)


def improvement_metric(budgets: Sequence[Budget], compared: CaseComparison) -> Metric | None:
    """Return the figure that improved by more than a budget allows, or the nearest to that.

    Return None without such a budget, or if nothing was compared.
    """
    budget = next((b for b in budgets if b.figure.source is FigureSource.BASELINE), None)
    if budget is None:
        return None
    found = [
        _judge_improvement(
            each, budget.limit, is_exact=compared.how is How.PLAN or not is_sampled(each.name)
        )
        for each in compared.metrics
        if each.name in _FIGURES and each.limit is None and each.ratio is not None
    ]
    return min(found, key=lambda m: (_ORDER.index(m.verdict), m.after), default=None)


def _judge_improvement(metric: Metric, least: float, *, is_exact: bool) -> Metric:
    ratio = metric.ratio
    low, high = (ratio, ratio) if is_exact else metric.interval or (None, None)
    verdict = Verdict.INCONCLUSIVE
    # The interval of a figure with another verdict has the error level of a pass.
    is_sure = is_exact or metric.verdict is Verdict.IMPROVED
    if is_sure and high is not None and high < least:
        verdict = Verdict.OVER_BUDGET
    elif low is not None and low >= least:
        verdict = Verdict.PASSED
    return Metric(
        IMPROVEMENT,
        None,
        ratio,
        verdict,
        limit=least,
        after_interval=None if is_exact else metric.interval,
        confidence=metric.confidence,
        detail=metric_title(metric.name),
        # The duet ends as soon as the model is surely not worse, even if this is undecided.
        awaited=False,
    )


# -- judging the budgets of a case, and adding them to its result


NO_PLAN = "the engine shows no plan of this model, so its kernels are not counted"
NOTHING_RAN = "budgets of measured figures are not judged without a run"


def with_budgets(bound: BoundCheck, result: CaseResult) -> CaseResult:
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
    """Add the rounds and seconds of a case that ran alone for its budgets."""
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
    context = bound.context
    if context.against is not None or context.update is UpdateMode.IMPROVED:
        return None
    return improvement_metric(bound.check.budgets, result.comparison)


def _insert(judged: tuple[Metric, ...], metrics: tuple[Metric, ...]) -> tuple[Metric, ...]:
    is_shown = [not m.gated and not m.name.startswith("latency") for m in judged]
    place = is_shown.index(True) if True in is_shown else len(judged)
    return (*judged[:place], *metrics, *judged[place:])


def _notes(bound: BoundCheck, result: CaseResult, counts: tuple[Metric, ...]) -> tuple[str, ...]:
    """Return the notes of the comparison, and those on budgets that could not be judged."""
    notes, counted = result.comparison.notes, result.profile.counted
    if counted is not None and any(metric.is_open for metric in counts):
        # The notes on the counts name the layers that only a run can count.
        notes = tuple(dict.fromkeys((*notes, *counted.notes)))
    budgets, measured = bound.check.budgets, result.profile.measured
    if bound.context.is_static and any(budget.figure.needs_run for budget in budgets):
        notes = (*notes, NOTHING_RAN)
    if any(metric.name == "kernels" and metric.is_open for metric in counts):
        notes = (*notes, NO_PLAN) if not bound.context.is_static else notes
    return (*notes, *budget_notes(budgets, measured, bound.machine.key))


def _without_reason(comparison: CaseComparison) -> CaseComparison:
    """Turn the reason why a case is new into a note, because it explains no other verdict."""
    if comparison.outcome is not Verdict.NEW:
        return comparison
    return replace(comparison, reasons=(), notes=(*comparison.reasons, *comparison.notes))


# -- measuring a model alone for its budgets


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
    from pytest_modelperf.profiler.doctor.checkup import measure_growth

    level = bound.check.gate.limit_level
    return measure_growth(prepare(bound.model), bound.check.setup, bound.place, level)


def kernels_for_budgets(bound: BoundCheck) -> int | None:
    """Count the kernels of the plan if a budget limits them. None: the plan is unknown."""
    is_limited = any(b.figure.source is FigureSource.PLAN for b in bound.check.budgets)
    if bound.context.is_static or not is_limited:
        return None
    model = prepare(bound.model)
    with started_rig(model, bound.check.setup, bound.place) as rig:
        saved = save_plan(rig, model.static.weight_bytes)
    return None if saved is None else saved.plan.digest.kernels


def installed_for_budgets(budgets: Sequence[Budget]) -> Mapping[str, InstalledSize]:
    names = [
        name
        for budget in budgets
        if budget.figure.source is FigureSource.INSTALLED
        and isinstance(name := budget.companion, str)
    ]
    if not names:
        return {}
    # Imported here, because few cases have such a budget.
    from pytest_modelperf.environments.installing import installed_size

    return {name: installed_size(name) for name in names}


def require_measured(profile: CaseProfile) -> CaseProfile:
    """Return the profile, or raise MeasureError if it failed or was skipped."""
    if profile.outcome in {Outcome.FAILED, Outcome.SKIPPED} and profile.measured is None:
        raise MeasureError(profile.reason)
    return profile


# -- the budget of a speedup


def judge_speedup(bound: BoundCheck) -> Metric | None:
    """Judge the speedup over another model or function, if a budget limits it.

    Both run in turn until the limit is decided. A tolerance is never negative, so a model that has
    to be faster is the first side, and the other one may take longer.
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
        from pytest_modelperf.programs.callables import Compared, ComparedPair, compare_callables

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
