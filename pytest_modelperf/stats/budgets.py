"""Absolute limits: a figure is over or within its budget only where its whole interval is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytest_modelperf.decisions import BudgetDecision, Fit
from pytest_modelperf.stats.estimates import (
    MEDIAN,
    Times,
    effective_samples,
    estimate_percentile,
    needed_samples,
    typical_interval,
)


def judge_percentile(
    rounds: Sequence[Times], percent: float, limit_ns: float, level: float
) -> BudgetDecision:
    """Whether a percentile of the latency keeps to its limit."""
    confidence = 1.0 - 2.0 * level
    found = estimate_percentile(rounds, percent, confidence)
    if found.value_ns is None:
        return BudgetDecision(
            answer=Fit.OPEN, limit=limit_ns, confidence=confidence, samples_needed=found.needed
        )
    answer = _compare(found.low_ns, found.high_ns, limit_ns)
    needed = None
    if answer is Fit.WITHIN and percent != MEDIAN:
        share = percent / 100.0
        # So many independent samples can all lie below the percentile by chance, and then even
        # the largest of them is no upper bound.
        if share ** effective_samples(rounds, found.value_ns, share, confidence) > level:
            answer = Fit.OPEN
            samples = sum(map(len, rounds))
            needed = max(needed_samples(percent, 1.0 - level), 2 * samples)
    return BudgetDecision(
        answer=answer,
        limit=limit_ns,
        confidence=confidence,
        value=found.value_ns,
        low=found.low_ns,
        high=found.high_ns,
        samples_needed=needed,
    )


def judge_typical(values: Sequence[float], limit: float, level: float) -> BudgetDecision:
    """Whether what was seen once a round keeps to its limit: the time to load, say.

    The value is the median of what was seen.
    """
    confidence = 1.0 - 2.0 * level
    value = float(np.median(values)) if values else None
    if value is None or len(values) < 2:
        return BudgetDecision(
            answer=Fit.OPEN, limit=limit, confidence=confidence, value=value, samples_needed=2
        )
    low, high = typical_interval(values, confidence)
    low, high = min(low, value), max(high, value)
    return BudgetDecision(
        answer=_compare(low, high, limit),
        limit=limit,
        confidence=confidence,
        value=value,
        low=low,
        high=high,
    )


def _compare(low: float | None, high: float | None, limit: float) -> Fit:
    if low is None or high is None or math.isnan(limit):
        return Fit.OPEN
    if low > limit:
        return Fit.OVER
    return Fit.WITHIN if high < limit else Fit.OPEN
