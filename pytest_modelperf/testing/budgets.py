"""The budgets of a case judged: over or within a limit only if the whole interval is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import StoredStatic
from pytest_modelperf.comparing.figures import CACHE, GROWTH
from pytest_modelperf.comparing.gates import START_METRICS, LatencyLimit, StartLimit
from pytest_modelperf.comparing.limits import Budget
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.stats.budgets import FEWEST_ROUNDS, SESSION_FACTOR, compare_with_limit
from pytest_modelperf.stats.decisions import BudgetAnswer, BudgetDecision
from pytest_modelperf.stats.records import Growth
from pytest_modelperf.text.words import count_of

_VERDICTS = {
    BudgetAnswer.OVER: Verdict.OVER_BUDGET,
    BudgetAnswer.WITHIN: Verdict.PASSED,
    BudgetAnswer.OPEN: Verdict.INCONCLUSIVE,
}
# Sums over layers; uncounted layers are missing in them.
_SUMMED = frozenset({"macs", "flops"})
_NS_PER_MS = 1e6
_NS_PER_S = 1e9


class LimitedFigures(Struct, frozen=True):
    """The figures of a case that budgets limit. A Python function has no counts.

    `observed` is what an earlier run of this very case completed of its counts.
    `cache_bytes_per_token` is None for a case that generates nothing.
    """

    counted: StaticProfile | None
    size_bytes: int | None
    batch_size: int
    measured: Measurement | None = None
    growth: Growth | None = None
    observed: StoredStatic | None = None
    cache_bytes_per_token: int | None = None


def time_limits(
    budgets: Sequence[Budget], batch_size: int
) -> tuple[LatencyLimit | StartLimit, ...]:
    """The limits that budgets set on the times of rounds."""
    limits = (_time_limit(budget, batch_size) for budget in budgets)
    return tuple(limit for limit in limits if limit is not None)


def _time_limit(budget: Budget, batch_size: int) -> LatencyLimit | StartLimit | None:
    """The limit on a time; None for another figure."""
    figure = budget.figure
    if figure.percent is not None:
        return LatencyLimit(figure.percent, _limit_ns(budget, batch_size))
    return StartLimit(figure.metric, budget.limit) if figure.metric in START_METRICS else None


def static_budget_metrics(budgets: Sequence[Budget], figures: LimitedFigures) -> tuple[Metric, ...]:
    """The budgets of counts and sizes. Counts that only a run can tell are bounds."""
    return tuple(
        _static(budget, figures)
        for budget in budgets
        if not (budget.figure.is_timed or budget.figure.is_change)
    )


def timed_budget_metrics(
    budgets: Sequence[Budget], figures: LimitedFigures, level: float
) -> tuple[Metric, ...]:
    """The budgets of measured figures; nothing if the case did not run."""
    if figures.measured is None:
        return ()
    return tuple(_timed(budgets, figures, figures.measured, level))


def few_rounds_note(budgets: Sequence[Budget], measured: Measurement | None) -> str | None:
    """A note if there were too few rounds to show how much sessions differ."""
    has_limit = any(budget.figure.percent is not None for budget in budgets)
    if measured is None or not has_limit or len(measured.rounds) >= FEWEST_ROUNDS:
        return None
    sessions = count_of(len(measured.rounds), "session")
    return (
        f"budgets are judged by the inferences of {sessions}, with bounds "
        f"{100 * (SESSION_FACTOR - 1.0):g} % further away for sessions that did not run"
    )


class _Figure(Struct, frozen=True):
    """A count or a size: the model takes no less if `is_least`, and no more if `is_most`."""

    value: int | None
    is_least: bool = True
    is_most: bool = True


def _static(budget: Budget, figures: LimitedFigures) -> Metric:
    name = budget.figure.metric
    whole = {"size_bytes": figures.size_bytes, CACHE: figures.cache_bytes_per_token}
    return _exact(budget, _Figure(whole[name]) if name in whole else _counted(name, figures))


def _exact(budget: Budget, found: _Figure) -> Metric:
    """A figure without an interval, compared as it is; inconclusive if it is not known."""
    if found.value is None:
        verdict = Verdict.INCONCLUSIVE
    elif found.value > budget.limit:
        verdict = Verdict.OVER_BUDGET if found.is_least else Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.PASSED if found.is_most else Verdict.INCONCLUSIVE
    return Metric(budget.figure.metric, None, found.value, verdict, limit=budget.limit)


def _counted(name: str, figures: LimitedFigures) -> _Figure:
    """The count that a run completed, now or earlier; without a run, the bound of the graph."""
    static = figures.counted
    if static is None:
        return _Figure(None)
    if name not in _SUMMED:
        return _Figure(int(getattr(static, name)))
    observed = static.observed or figures.observed
    if observed is not None:
        return _Figure(int(getattr(observed, name)), is_most=observed.coverage == 1.0)
    alone = static.from_graph
    value = int(getattr(alone, name))
    return _Figure(value, is_least=alone.undecided == 0, is_most=alone.coverage == 1.0)


def _timed(
    budgets: Sequence[Budget], figures: LimitedFigures, measured: Measurement, level: float
) -> Iterator[Metric]:
    limited = [b.figure.percent for b in budgets if b.figure.percent is not None]
    for budget in budgets:
        figure, limit = budget.figure, _time_limit(budget, figures.batch_size)
        decision = None if limit is None else limit.judge(measured.rounds, level, limited)
        if figure.metric == "peak_rss_bytes":
            # The peak of one process has no interval.
            yield _exact(budget, _Figure(measured.peak_rss_bytes))
        elif figure.metric == GROWTH:
            yield _of_growth(budget, figures.growth)
        elif decision is not None and figure.percent is not None:
            metric = _of_latency(budget, decision, figures.batch_size)
            times_ns = [made.times_ns for made in measured.rounds]
            yield _with_needs(_with_least(metric, decision), decision, times_ns)
        elif decision is not None:
            found = (decision.value, decision.low, decision.high)
            metric = _metric(budget, decision.answer, found, decision.confidence)
            # Each round has one of these, and the first one is cold.
            needed = decision.samples_needed
            yield replace(metric, rounds_needed=None if needed is None else needed + 1)


def _of_latency(budget: Budget, decision: BudgetDecision, batch_size: int) -> Metric:
    found = (decision.value, decision.low, decision.high)
    if budget.figure.is_least:
        value, high, low = (None if ns is None else _rate(batch_size, ns) for ns in found)
    else:
        value, low, high = (None if ns is None else ns / _NS_PER_MS for ns in found)
    return _metric(budget, decision.answer, (value, low, high), decision.confidence)


def _with_least(metric: Metric, decision: BudgetDecision) -> Metric:
    """The figure with the bound that is known of it, if it has no value."""
    if decision.value is not None or decision.low is None:
        return metric
    return replace(metric, least=decision.low / _NS_PER_MS)


def _with_needs(
    metric: Metric, decision: BudgetDecision, rounds: Sequence[Sequence[int]]
) -> Metric:
    """The figure with the number of samples and of rounds that would decide it."""
    needed = decision.samples_needed
    if needed is None:
        return metric
    samples = sum(map(len, rounds))
    return replace(
        metric,
        samples_needed=needed,
        rounds_needed=math.ceil(len(rounds) * needed / samples) if samples else None,
    )


def _of_growth(budget: Budget, growth: Growth | None) -> Metric:
    """The growth of memory; nothing is known of it where nothing of its own ran."""
    if growth is None:
        return _exact(budget, _Figure(None))
    answer = compare_with_limit(growth.low, growth.high, budget.limit)
    found = (growth.bytes_per_inference, growth.low, growth.high)
    return _metric(budget, answer, found, growth.confidence)


def _metric(
    budget: Budget,
    answer: BudgetAnswer,
    found: tuple[float | None, float | None, float | None],
    confidence: float,
) -> Metric:
    """A figure by its value and the ends of its interval."""
    value, low, high = found
    return Metric(
        budget.figure.metric,
        None,
        value,
        _VERDICTS[answer],
        limit=budget.limit,
        after_interval=None if low is None or high is None else (low, high),
        confidence=confidence,
    )


def _limit_ns(budget: Budget, batch_size: int) -> float:
    if budget.figure.is_least:
        return _rate(batch_size, budget.limit)
    return budget.limit * _NS_PER_MS


def _rate(batch_size: int, value: float) -> float:
    """Items a second of a latency in nanoseconds, and the other way round."""
    return batch_size * _NS_PER_S / value if value else 0.0
