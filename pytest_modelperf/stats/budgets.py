"""Absolute limits: a figure is over or within its budget only where its whole interval is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytest_modelperf.stats.decisions import BudgetAnswer, BudgetDecision
from pytest_modelperf.stats.estimates import (
    MEDIAN,
    Times,
    bounded_exp,
    effective_samples,
    estimate_percentile,
    logs,
    typical_interval,
)
from pytest_modelperf.stats.quantiles import tolerance_factor

# How many times as slow as the slowest inference of some rounds another kind of rounds can be.
_FAR = 5.0


def judge_percentile(
    rounds: Sequence[Times],
    percent: float,
    limit_ns: float,
    level: float,
    pass_level: float | None = None,
) -> BudgetDecision:
    """Whether a percentile of the latency keeps to its limit.

    The interval has the error level of alarms. A tail with too few samples for an upper bound has
    none, unless its rounds show that it is below the limit, with the error level `pass_level`.
    A limit far above all samples is kept even if there are too few to estimate the percentile.
    """
    confidence = 1.0 - 2.0 * level
    share, chance = percent / 100.0, level if pass_level is None else pass_level
    is_far = percent != MEDIAN and _is_far_below(rounds, share, limit_ns, chance)
    found = estimate_percentile(rounds, percent, confidence)
    if found.value_ns is None:
        return BudgetDecision(
            answer=BudgetAnswer.WITHIN if is_far else BudgetAnswer.OPEN,
            limit=limit_ns,
            confidence=confidence,
            samples_needed=None if is_far else found.needed,
        )
    low_ns, high_ns, needed = found.low_ns, found.high_ns, None
    if percent == MEDIAN and len(rounds) > 1:
        low_ns, high_ns = _bounds_of_median(rounds, found.value_ns, confidence)
    # A single round has no interval, but the samples of one are enough for such a limit.
    answer = BudgetAnswer.WITHIN if is_far else compare_with_limit(low_ns, high_ns, limit_ns)
    if answer is BudgetAnswer.WITHIN and percent != MEDIAN and not is_far:
        needed = _samples_for_a_bound(rounds, found.value_ns, share, chance)
        if needed is not None and _bound_by_rounds(rounds, share, chance) >= limit_ns:
            answer, high_ns = BudgetAnswer.OPEN, None
    return BudgetDecision(
        answer=answer,
        limit=limit_ns,
        confidence=confidence,
        value=found.value_ns,
        low=low_ns,
        high=high_ns,
        samples_needed=needed if answer is BudgetAnswer.OPEN else None,
    )


def judge_typical(values: Sequence[float], limit: float, level: float) -> BudgetDecision:
    """Whether a figure that is measured once a round, such as the load time, keeps to its limit.

    The value is the median over the rounds.
    """
    confidence = 1.0 - 2.0 * level
    value = float(np.median(values)) if values else None
    if value is None or len(values) < 2:
        return BudgetDecision(
            answer=BudgetAnswer.OPEN,
            limit=limit,
            confidence=confidence,
            value=value,
            samples_needed=2,
        )
    low, high = typical_interval(values, confidence)
    low, high = min(low, value), max(high, value)
    return BudgetDecision(
        answer=compare_with_limit(low, high, limit),
        limit=limit,
        confidence=confidence,
        value=value,
        low=low,
        high=high,
    )


def _bounds_of_median(
    rounds: Sequence[Times], value_ns: float, confidence: float
) -> tuple[float, float]:
    """The t interval of the medians of the rounds, extended to the median of all samples.

    All of five rounds lie on one side of the median in one case of sixteen. So at the level of an
    alarm no sample is a bound for so few rounds.
    """
    low, high = typical_interval([float(np.median(times)) for times in rounds], confidence)
    return min(low, value_ns), max(high, value_ns)


def _samples_for_a_bound(
    rounds: Sequence[Times], value_ns: float, share: float, level: float
) -> int | None:
    """About how many samples give this percentile an upper bound; None if there are enough.

    With fewer independent samples, all of them can lie below the percentile by chance, and even the
    largest is no upper bound.
    """
    effective = effective_samples(rounds, value_ns, share, 1.0 - 2.0 * level)
    wanted = math.log(level) / math.log(share)
    if effective >= wanted:
        return None
    return math.ceil(sum(map(len, rounds)) * wanted / effective)


def _bound_by_rounds(rounds: Sequence[Times], share: float, level: float) -> float:
    """An upper bound of a percentile with few samples, whose rounds are much alike.

    If at most 1 - `share` of the rounds have an inference above the bound, at most this share of
    the inferences are above it. The bound is the one-sided tolerance bound of the logarithms of the
    rounds' maxima, which are assumed to be normal (Natrella, "Experimental Statistics", NBS
    Handbook 91 (1963), section 2-5).
    """
    slowest = logs([max(times) for times in rounds])
    factor = tolerance_factor(share, level, len(slowest))
    return bounded_exp(float(slowest.mean()) + factor * float(slowest.std(ddof=1)))


def _is_far_below(rounds: Sequence[Times], share: float, limit_ns: float, level: float) -> bool:
    """Whether the samples alone show that a percentile is below a limit far above all of them.

    If more than 1 - `share` of the inferences were above the limit, so many samples would all be
    below it with at most the chance `level`: none of 459 are enough for the 99th percentile at 1 %.
    That takes samples as independent. Rounds can come in kinds, of which one was not seen, but no
    kind is slower than the slowest inference by this much. No estimate of the percentile takes
    part, which a noisy moment makes worthless.
    """
    slowest_ns = max(map(max, rounds))
    return limit_ns > _FAR * slowest_ns and share ** sum(map(len, rounds)) <= level


def compare_with_limit(low: float | None, high: float | None, limit: float) -> BudgetAnswer:
    """Whether an interval shows that a figure keeps to its limit."""
    if low is None or high is None or math.isnan(limit):
        return BudgetAnswer.OPEN
    if low > limit:
        return BudgetAnswer.OVER
    return BudgetAnswer.WITHIN if high < limit else BudgetAnswer.OPEN
