"""The budget of a drift: how much more a case costs than at the start of its history."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from statistics import NormalDist

from msgspec import Struct

from pytest_modelperf.comparing.budgets import Budget
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.comparing.time_limits import PASS_LEVEL
from pytest_modelperf.errors import UsageError
from pytest_modelperf.history.chain import chain_lines
from pytest_modelperf.history.records import (
    LINE_SCHEMA,
    CaseHistory,
    HistoryMetric,
    P50Line,
)
from pytest_modelperf.history.summary import (
    Drift,
    HistoryQuery,
    list_drifts,
    summarize_case,
)
from pytest_modelperf.history.wording import (
    describe_beginning,
    describe_step,
    format_shift,
    name_place,
)
from pytest_modelperf.spec.run_definitions import HISTORY
from pytest_modelperf.testing.case_check import BoundCheck, CaseCheck, CaseResult, CheckContext
from pytest_modelperf.testing.history_ratio import ratio_to_baseline
from pytest_modelperf.text.escaping import printable

_METRIC = HistoryMetric.P50


class DriftFound(Struct, frozen=True):
    """The figure of the drift, if it is judged, and notes on where it began or why it is not."""

    metrics: tuple[Metric, ...] = ()
    notes: tuple[str, ...] = ()


def require_history(context: CheckContext, check: CaseCheck) -> None:
    """UsageError for a budget of a drift in a check that has no history."""
    if _budget(check) is None:
        return
    if check.baseline is None:
        raise UsageError(
            "the budget drift is about the ratios of a model to its baselines, and this case is "
            "compared with none: leave drift out, or check a model that has a baseline."
        )
    if context.history is None and context.against is None:
        raise UsageError(
            f"the budget drift needs a history: give its folder with {HISTORY.flag}=history, or as "
            'history = "history" in [tool.modelperf].'
        )


def _budget(check: CaseCheck) -> Budget | None:
    return next((budget for budget in check.budgets if budget.figure.is_change), None)


def judge_drift(bound: BoundCheck, result: CaseResult) -> DriftFound:
    """The drift up to this run; nothing without such a budget, or if nothing ran."""
    context, budget = bound.context, _budget(bound.check)
    if budget is None or context.is_static:
        return DriftFound()
    if context.against is not None:
        return _not_judged("--modelperf-against compares with no baseline")
    linked = None if result.link is None else result.link.comparison
    compared = linked or result.comparison
    stored = context.baseline(str(bound.check.baseline), bound.machine.key)
    case = None if stored is None else stored.model.case(bound.case.id)
    if case is None or (compared.outcome is Verdict.NEW and result.recording is None):
        return _not_judged(f"there is no baseline of {bound.case.id} to compare with")
    ratio = ratio_to_baseline(compared, "latency_p50", is_static=False)
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
    return _judge(bound, budget, line)


def _not_judged(reason: str, *metrics: Metric) -> DriftFound:
    return DriftFound(metrics, (f"the budget drift is not judged: {reason}",))


def _judge(bound: BoundCheck, budget: Budget, line: P50Line) -> DriftFound:
    """The drift up to the point of this line, which no file has yet."""
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
    notes = _notes(history, worst) if verdict is not Verdict.PASSED else ()
    beginning = (describe_beginning(history),) if history.earlier_points else ()
    return DriftFound((metric,), (*notes, *(f"drift: {each}" for each in beginning), *past.notes))


def _notes(history: CaseHistory, drift: Drift) -> Iterator[str]:
    """Since when the case costs more, and the steps since then."""
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
