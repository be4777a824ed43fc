"""Judging the budgets of a case: over or within a limit only if the whole interval is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import StoredStatic
from pytest_modelperf.comparing.budgets import MISSES, SLOWEST, Budget, FigureSource
from pytest_modelperf.comparing.figures import CACHE, GROWTH
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.comparing.time_limits import (
    LIMIT_PASS_LEVEL,
    START_METRICS,
    LatencyLimit,
    MissLimit,
    SlowestLimit,
    StartLimit,
    TimeLimit,
    judge_limit,
)
from pytest_modelperf.environments.records import InstalledSize
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.stats.budgets import (
    FEWEST_ROUNDS,
    SEEN_CONFIDENCE,
    SESSION_FACTOR,
    compare_with_limit,
    judge_percentile,
    seen_share,
)
from pytest_modelperf.stats.decisions import BudgetAnswer, BudgetDecision
from pytest_modelperf.stats.records import Growth
from pytest_modelperf.text.words import count_of

_VERDICTS = {
    BudgetAnswer.OVER: Verdict.OVER_BUDGET,
    BudgetAnswer.WITHIN: Verdict.PASSED,
    BudgetAnswer.OPEN: Verdict.INCONCLUSIVE,
}
# Sums over layers. They lack the layers that could not be counted.
_SUMMED = frozenset({"macs", "flops"})
_NS_PER_MS = 1e6
_NS_PER_S = 1e9
_MEDIAN = 50.0


class LimitedFigures(Struct, frozen=True):
    """The figures of a case that budgets limit. A Python function has no counts.

    `observed` are the counts of this case that an earlier run completed. `cache_bytes_per_token` is
    None for a case that generates nothing. `kernels` is the number of kernels in the engine's plan.
    `installed` are the sizes of distributions by their names in budgets. `items` are the times of
    the items of a generator by metric, with one sequence per process.
    """

    counted: StaticProfile | None
    size_bytes: int | None
    batch_size: int
    measured: Measurement | None = None
    growth: Growth | None = None
    observed: StoredStatic | None = None
    cache_bytes_per_token: int | None = None
    kernels: int | None = None
    installed: Mapping[str, InstalledSize] = {}
    items: Mapping[str, Sequence[Sequence[int]]] = {}


def time_limits(budgets: Sequence[Budget], batch_size: int) -> tuple[TimeLimit, ...]:
    limits = (_time_limit(budget, batch_size) for budget in budgets)
    return tuple(limit for limit in limits if limit is not None)


def _time_limit(budget: Budget, batch_size: int) -> TimeLimit | None:
    """Return the limit of a budget of a time, or None for other figures."""
    figure = budget.figure
    if not figure.is_timed:
        return None
    if figure.metric == SLOWEST:
        return SlowestLimit(budget.limit * _NS_PER_MS)
    if figure.metric == MISSES and isinstance(budget.companion, float):
        return MissLimit(budget.limit * _NS_PER_MS, budget.companion)
    if figure.percent is not None:
        return LatencyLimit(figure.percent, _limit_ns(budget, batch_size))
    return StartLimit(figure.metric, budget.limit) if figure.metric in START_METRICS else None


def static_budget_metrics(budgets: Sequence[Budget], figures: LimitedFigures) -> tuple[Metric, ...]:
    """Judge the budgets of counts and sizes. Counts that need a run are judged by their bounds."""
    return tuple(_static(budget, figures) for budget in budgets if budget.figure.is_exact)


def timed_budget_metrics(
    budgets: Sequence[Budget], figures: LimitedFigures, level: float
) -> tuple[Metric, ...]:
    """Judge the budgets of measured figures, if the case ran."""
    if figures.measured is None:
        return ()
    return tuple(_timed(budgets, figures, figures.measured, level))


def budget_notes(
    budgets: Sequence[Budget], measured: Measurement | None, machine: str
) -> tuple[str, ...]:
    notes = (
        few_rounds_note(budgets, measured),
        _slowest_note(budgets, measured),
        _machine_note(budgets, machine),
    )
    return tuple(note for note in notes if note is not None)


def few_rounds_note(budgets: Sequence[Budget], measured: Measurement | None) -> str | None:
    """Return a note if there were too few rounds to show how much sessions differ."""
    has_limit = any(
        budget.figure.is_latency and budget.figure.metric != SLOWEST for budget in budgets
    )
    if measured is None or not has_limit or len(measured.rounds) >= FEWEST_ROUNDS:
        return None
    sessions = count_of(len(measured.rounds), "session")
    return (
        f"budgets are judged by the inferences of {sessions}, with bounds "
        f"{100 * (SESSION_FACTOR - 1.0):g} % further away for sessions that did not run"
    )


def _slowest_note(budgets: Sequence[Budget], measured: Measurement | None) -> str | None:
    if measured is None or not any(budget.figure.metric == SLOWEST for budget in budgets):
        return None
    samples = sum(len(made.times_ns) for made in measured.rounds)
    return (
        f"with a confidence of {100 * SEEN_CONFIDENCE:g} %, fewer than "
        f"{100 * seen_share(samples):.3g} % of all take longer than the slowest of {samples:,}"
    )


def _machine_note(budgets: Sequence[Budget], key: str) -> str | None:
    """Return a note on limits that are special to this machine, and their patterns."""
    chosen = [
        f"{budget.word} by {pattern!r}" for budget in budgets for pattern, _ in budget.by_machine
    ]
    return f"limits of the machine {key}: {', '.join(chosen)}" if chosen else None


class _Figure(Struct, frozen=True):
    """A count or a size, which is a lower bound if `is_least` and an upper bound if `is_most`."""

    value: int | None
    is_least: bool = True
    is_most: bool = True


def _static(budget: Budget, figures: LimitedFigures) -> Metric:
    name = budget.figure.metric
    if name == "install_bytes":
        found = figures.installed[str(budget.companion)]
        return replace(_exact(budget, _Figure(found.total)), detail=found.describe())
    whole = {
        "size_bytes": figures.size_bytes,
        CACHE: figures.cache_bytes_per_token,
        "kernels": figures.kernels,
    }
    return _exact(budget, _Figure(whole[name]) if name in whole else _counted(name, figures))


def _exact(budget: Budget, found: _Figure) -> Metric:
    if found.value is None:
        verdict = Verdict.INCONCLUSIVE
    elif found.value > budget.limit:
        verdict = Verdict.OVER_BUDGET if found.is_least else Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.PASSED if found.is_most else Verdict.INCONCLUSIVE
    return Metric(budget.figure.metric, None, found.value, verdict, limit=budget.limit)


def _counted(name: str, figures: LimitedFigures) -> _Figure:
    """Return the count that a run completed, now or earlier, or the bound from the graph."""
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
        decision = None if limit is None else judge_limit(limit, measured.rounds, level, limited)
        if figure.metric == "peak_rss_bytes":
            # There is one process, so its peak has no interval.
            yield _exact(budget, _Figure(measured.peak_rss_bytes))
        elif figure.metric == GROWTH:
            yield _of_growth(budget, figures.growth)
        elif decision is not None and figure.is_latency:
            times_ns = [made.times_ns for made in measured.rounds]
            if figure.metric == MISSES:
                metric = _of_misses(budget, decision)
            else:
                metric = _of_latency(budget, decision, figures.batch_size)
            if figure.metric == SLOWEST:
                metric = replace(metric, detail=f"of {sum(map(len, times_ns)):,}")
            yield _with_needs(metric, decision, times_ns)
        elif decision is not None:
            found = (decision.value, decision.low, decision.high)
            metric = _metric(budget, decision.answer, found, decision.confidence)
            # Each round has one such time, and the first round does not count, because it is cold.
            needed = decision.samples_needed
            yield replace(metric, rounds_needed=None if needed is None else needed + 1)


def _of_latency(budget: Budget, decision: BudgetDecision, batch_size: int) -> Metric:
    found = (decision.value, decision.low, decision.high)
    detail, unit_ns = None, _NS_PER_MS
    if isinstance(budget.companion, float):
        unit_ns = budget.companion * batch_size * _NS_PER_S
        detail = f"for {budget.companion * batch_size:.4g} s of input"
    if budget.figure.is_least:
        value, high, low = (None if ns is None else _rate(batch_size, ns) for ns in found)
    else:
        value, low, high = (None if ns is None else ns / unit_ns for ns in found)
    metric = _metric(budget, decision.answer, (value, low, high), decision.confidence)
    # Even without a value, the lower bound may be known.
    has_bound = decision.value is None and decision.low is not None
    return replace(metric, detail=detail, least=low if has_bound else None)


def _of_misses(budget: Budget, decision: BudgetDecision) -> Metric:
    found = (decision.value, decision.low, decision.high)
    metric = _metric(budget, decision.answer, found, decision.confidence)
    return replace(metric, limit=decision.limit, detail=f"deadline {budget.limit:g} ms")


def item_metrics(
    budgets: Sequence[Budget], figures: LimitedFigures, level: float
) -> tuple[Metric, ...]:
    return tuple(
        _of_items(budget, figures.items.get(budget.figure.metric, ()), level)
        for budget in budgets
        if budget.figure.source is FigureSource.ITEMS
    )


def _of_items(budget: Budget, times_ns: Sequence[Sequence[int]], level: float) -> Metric:
    if not any(times_ns):
        return _exact(budget, _Figure(None))
    known = [times for times in times_ns if times]
    limit_ns = budget.limit * _NS_PER_MS
    decision = judge_percentile(known, _MEDIAN, limit_ns, level, LIMIT_PASS_LEVEL)
    return _with_needs(_of_latency(budget, decision, 1), decision, known)


def _with_needs(
    metric: Metric, decision: BudgetDecision, rounds: Sequence[Sequence[int]]
) -> Metric:
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
    if isinstance(budget.companion, float):
        return budget.limit * budget.companion * batch_size * _NS_PER_S
    return budget.limit * _NS_PER_MS


def _rate(batch_size: int, value: float) -> float:
    return batch_size * _NS_PER_S / value if value else 0.0
