"""Limits on single inferences: the slowest one, and the share of them that miss a deadline."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy
from msgspec import Struct

from pytest_modelperf.stats.budgets import FEWEST_ROUNDS, SESSION_FACTOR, in_parts
from pytest_modelperf.stats.decisions import BudgetAnswer, BudgetDecision
from pytest_modelperf.stats.estimates import Times, effective_samples
from pytest_modelperf.stats.quantiles import beta_quantile

# The confidence with which a run would have seen an inference above the slowest one.
SEEN_CONFIDENCE = 0.99


def judge_slowest(rounds: Sequence[Times], limit_ns: float, level: float) -> BudgetDecision:
    """Whether the slowest inference of these rounds kept to its limit.

    It is about these inferences alone. `seen_share` says what they show of others.
    """
    slowest_ns = max(map(max, rounds))
    is_over = slowest_ns > limit_ns
    return BudgetDecision(
        answer=BudgetAnswer.OVER if is_over else BudgetAnswer.WITHIN,
        limit=limit_ns,
        confidence=1.0 - 2.0 * level,
        value=float(slowest_ns),
    )


def seen_share(samples: int, confidence: float = SEEN_CONFIDENCE) -> float:
    """The smallest share of slow inferences of which this many samples contain at least one.

    They contain none with the chance (1 - share)^n, if they are independent.
    """
    return float(1.0 - (1.0 - confidence) ** (1.0 / samples))


def samples_without_a_miss(allowed: float, level: float) -> int:
    """How many inferences show a share below `allowed` if none of them misses the deadline."""
    return math.ceil(math.log(level) / math.log1p(-allowed))


def judge_misses(
    rounds: Sequence[Times], deadline_ns: float, allowed: float, level: float, pass_level: float
) -> BudgetDecision:
    """Whether the share of inferences above a deadline keeps to what is allowed.

    The bounds are those of Clopper and Pearson for the `effective_samples`, as of percentiles. The
    lower one errs with the chance `level`, and the upper one with `pass_level`.
    """
    total, confidence = sum(map(len, rounds)), 1.0 - level - pass_level
    replicates, factor = rounds, 1.0
    if len(rounds) < FEWEST_ROUNDS:
        replicates, factor = in_parts(rounds), SESSION_FACTOR

    def count(limit_ns: float) -> _Late:
        return _Late.count(replicates, limit_ns, confidence)

    share = count(deadline_ns).share
    low = count(deadline_ns * factor).low(level)
    above = count(deadline_ns / factor)
    high = above.high(pass_level)
    if low > allowed:
        answer = BudgetAnswer.OVER
    else:
        answer = BudgetAnswer.WITHIN if high < allowed else BudgetAnswer.OPEN
    needed = _needed(above.share, allowed, level, pass_level) * total / above.effective
    is_open = answer is BudgetAnswer.OPEN and math.isfinite(needed)
    return BudgetDecision(
        answer=answer,
        limit=allowed,
        confidence=confidence,
        value=share,
        low=low,
        high=high,
        samples_needed=max(math.ceil(needed), total + 1) if is_open else None,
    )


class _Late(Struct, frozen=True):
    """The share of late inferences, and the number of independent ones that vary like them."""

    share: float
    effective: float

    @classmethod
    def count(cls, rounds: Sequence[Times], limit_ns: float, confidence: float) -> _Late:
        late = sum(int(np.count_nonzero(np.asarray(times) > limit_ns)) for times in rounds)
        share = late / sum(map(len, rounds))
        if len(rounds) < 2:
            # A single inference does not show how others differ.
            return cls(share, 1.0)
        return cls(share, effective_samples(rounds, limit_ns, 1.0 - share, confidence))

    def low(self, level: float) -> float:
        hits = self.share * self.effective
        return beta_quantile(level, hits, self.effective - hits + 1.0) if hits > 0.0 else 0.0

    def high(self, level: float) -> float:
        misses = (1.0 - self.share) * self.effective
        hits = self.effective - misses
        return beta_quantile(1.0 - level, hits + 1.0, misses) if misses > 0.0 else 1.0


def _needed(share: float, allowed: float, level: float, pass_level: float) -> float:
    """About how many independent inferences decide, if this share of them is late."""
    fewest = samples_without_a_miss(allowed, pass_level)
    if share == 0.0:
        return fewest
    distance = abs(share - allowed)
    if distance == 0.0:
        return math.inf
    is_below = share < allowed
    quantile = float(scipy.special.ndtri(1.0 - (pass_level if is_below else level)))
    needed = quantile**2 * share * (1.0 - share) / distance**2
    return max(fewest, needed) if is_below else needed
