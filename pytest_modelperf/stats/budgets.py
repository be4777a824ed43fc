"""Judge absolute limits on percentiles and on single inferences by the whole interval."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.stats.decisions import BudgetAnswer, BudgetDecision, imply
from pytest_modelperf.stats.estimates import (
    MEDIAN,
    Times,
    bounded_exp,
    effective_samples,
    estimate_percentile,
    logs,
    typical_interval,
)
from pytest_modelperf.stats.quantiles import beta_quantile, normal_quantile, tolerance_factor
from pytest_modelperf.stats.records import PERCENTS

# Another kind of rounds can be at most this many times as slow as the slowest inference of some
# rounds, or as fast as the fastest.
_FAR = 5.0
# The t quantile of fewer rounds makes any interval useless. So their inferences are divided into
# this many parts, in the order in which they ran.
FEWEST_ROUNDS = 5
_PARTS = 10
# Parts of a few sessions do not show how much sessions differ, so this factor widens the bounds.
# The standard deviation between sessions was 1 to 4 %.
SESSION_FACTOR = 1.25
# A percentile's error levels are divided between its own samples and the other percentiles.
_OWN_SHARE = 0.9
_OTHER_SHARE = (1.0 - _OWN_SHARE) / (len(PERCENTS) - 1)


def judge_percentile(  # noqa: PLR0913, PLR0917  # a limit, and what else is limited
    rounds: Sequence[Times],
    percent: float,
    limit_ns: float,
    level: float,
    pass_level: float | None = None,
    limited: Collection[float] = (),
) -> BudgetDecision:
    """Judge whether a percentile of the latency keeps to its limit.

    The interval has the error level of alarms. A tail with too few samples has an upper bound only
    if its rounds show that it is below the limit, with the error level `pass_level`. A limit far
    above all samples is kept even if there are too few to estimate the percentile.

    If a lower percentile is over the limit, so is this one. If a higher one is within the limit, so
    is this one. The other percentiles share a part of both levels, but those that are `limited`
    themselves have levels of their own.
    """
    passing = level if pass_level is None else pass_level

    def judge(each: float, share: float) -> BudgetDecision:
        return _judge_alone(rounds, each, limit_ns, share * level, share * passing)

    def judge_other(each: float) -> BudgetDecision:
        return judge(each, _OWN_SHARE if each in limited else _OTHER_SHARE)

    own = replace(judge(percent, _OWN_SHARE), confidence=1.0 - 2.0 * level)
    if own.answer is not BudgetAnswer.OPEN:
        return own
    lower = [judge_other(each) for each in PERCENTS if each < percent]
    return imply(own, lower, [judge_other(each) for each in PERCENTS if each > percent])


def _judge_alone(
    rounds: Sequence[Times], percent: float, limit_ns: float, level: float, pass_level: float
) -> BudgetDecision:
    share, confidence = percent / 100.0, 1.0 - 2.0 * level
    is_far = _is_far_below(rounds, share, limit_ns, pass_level)
    replicates, factor = rounds, 1.0
    if len(rounds) < FEWEST_ROUNDS:
        replicates, factor = in_parts(rounds), SESSION_FACTOR
    found = estimate_percentile(replicates, percent, confidence)
    if found.value_ns is None or len(replicates) < 2:
        few = _judge_few(replicates, limit_ns, level, pass_level) if percent == MEDIAN else None
        return few or BudgetDecision(
            answer=BudgetAnswer.WITHIN if is_far else BudgetAnswer.OPEN,
            limit=limit_ns,
            confidence=confidence,
            samples_needed=None if is_far else found.needed,
        )
    low_ns, high_ns, needed = found.low_ns, found.high_ns, None
    if percent == MEDIAN:
        low_ns, high_ns = _bounds_of_median(replicates, found.value_ns, confidence)
    low_ns, high_ns = _moved(low_ns, high_ns, factor)
    answer = BudgetAnswer.WITHIN if is_far else compare_with_limit(low_ns, high_ns, limit_ns)
    if answer is BudgetAnswer.WITHIN and percent != MEDIAN and not is_far:
        needed = _samples_for_a_bound(replicates, found.value_ns, share, pass_level)
        bound_ns = factor * _bound_by_rounds(replicates, share, pass_level)
        if needed is not None and bound_ns >= limit_ns:
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


def in_parts(rounds: Sequence[Times]) -> list[Times]:
    """Divide the inferences of a few rounds into parts of equal length.

    This is the method of batch means: Conway, "Some tactical problems in digital simulation",
    Management Science 10 (1963).
    """
    pooled = [ns for times in rounds for ns in times]
    count = min(len(pooled), _PARTS)
    ends = [len(pooled) * number // count for number in range(count + 1)]
    return [pooled[first:last] for first, last in pairwise(ends)]


def _moved(low: float | None, high: float | None, factor: float) -> tuple[float | None, ...]:
    return None if low is None else low / factor, None if high is None else high * factor


def _judge_few(
    samples: Sequence[Times], limit_ns: float, level: float, pass_level: float
) -> BudgetDecision | None:
    """Judge the median by fewer samples than support it. Return None if the answer is open.

    The interval is that of the mean of their logarithms, which are taken to be normal. If they are
    not, all samples are on one side of the median with the chance 2^-n. If that is more than the
    level, only a limit that is far from all samples is decided: a kind of inferences that was not
    seen does not differ by that much.
    """
    times = [float(ns) for each in samples for ns in each]
    if len(times) < 2:
        return None
    confidence, chance = 1.0 - 2.0 * level, 0.5 ** len(times)
    low, high = typical_interval(times, confidence)
    low, high = low / SESSION_FACTOR, high * SESSION_FACTOR
    answer = compare_with_limit(low, high, limit_ns)
    is_far = limit_ns * _FAR < min(times) or limit_ns > _FAR * max(times)
    allowed = level if answer is BudgetAnswer.OVER else pass_level
    if answer is BudgetAnswer.OPEN or not (is_far or chance <= allowed):
        return None
    return BudgetDecision(
        answer=answer,
        limit=limit_ns,
        confidence=confidence,
        value=float(np.median(times)),
        low=low,
        high=high,
    )


def judge_typical(values: Sequence[float], limit: float, level: float) -> BudgetDecision:
    """Judge the limit of a figure that is measured once a round, by its median over the rounds."""
    confidence = 1.0 - 2.0 * level
    value = float(np.median(values)) if values else None
    if value is None or len(values) < 2:
        return BudgetDecision(
            answer=BudgetAnswer.OPEN,
            limit=limit,
            confidence=confidence,
            value=value,
            samples_needed=FEWEST_ROUNDS,
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
    """Return the t interval of the rounds' medians, extended to the median of all samples.

    Five rounds are all on one side of the median in one case of sixteen. So with five rounds, a
    sample cannot be a bound at the level of an alarm.
    """
    low, high = typical_interval([float(np.median(times)) for times in rounds], confidence)
    return min(low, value_ns), max(high, value_ns)


def _samples_for_a_bound(
    rounds: Sequence[Times], value_ns: float, share: float, level: float
) -> int | None:
    """Estimate how many samples give this percentile an upper bound, if there are too few.

    With fewer independent samples, all of them can be below the percentile by chance, so that even
    the largest is not an upper bound.
    """
    effective = effective_samples(rounds, value_ns, share, 1.0 - 2.0 * level)
    wanted = math.log(level) / math.log(share)
    if effective >= wanted:
        return None
    return math.ceil(sum(map(len, rounds)) * wanted / effective)


def _bound_by_rounds(rounds: Sequence[Times], share: float, level: float) -> float:
    """Return an upper bound of a percentile that has few samples in similar rounds.

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

    If more than 1 - `share` of the inferences were above the limit, all samples would be below it
    with at most the chance `level`. For the 99th percentile at 1 %, 459 samples are enough. This
    takes samples as independent. Rounds can come in kinds, one of which was not seen, but no kind
    exceeds the slowest inference by that much. The percentile is not estimated, because a noisy
    moment would make the estimate worthless.
    """
    slowest_ns = max(map(max, rounds))
    return limit_ns > _FAR * slowest_ns and share ** sum(map(len, rounds)) <= level


def compare_with_limit(low: float | None, high: float | None, limit: float) -> BudgetAnswer:
    """Compare an interval with a limit: `WITHIN` or `OVER` if all of it is on one side."""
    if low is None or high is None or math.isnan(limit):
        return BudgetAnswer.OPEN
    if low > limit:
        return BudgetAnswer.OVER
    return BudgetAnswer.WITHIN if high < limit else BudgetAnswer.OPEN


# -- limits on single inferences


# The confidence that a run would include an inference above the slowest one.
SEEN_CONFIDENCE = 0.99


def judge_slowest(rounds: Sequence[Times], limit_ns: float, level: float) -> BudgetDecision:
    """Judge whether the slowest inference of these rounds kept to its limit.

    The answer holds for these inferences alone. See `seen_share` for further inferences.
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
    """Return the smallest share of slow inferences that samples of this number would show."""
    # Independent samples contain no slow inference with the chance (1 - share)^n.
    return float(1.0 - (1.0 - confidence) ** (1.0 / samples))


def samples_without_a_miss(allowed: float, level: float) -> int:
    """Return how many inferences without a miss show that their share is below `allowed`."""
    return math.ceil(math.log(level) / math.log1p(-allowed))


def judge_misses(
    rounds: Sequence[Times], deadline_ns: float, allowed: float, level: float, pass_level: float
) -> BudgetDecision:
    """Judge whether the share of inferences above a deadline keeps to the allowed share.

    The bounds are those of Clopper and Pearson for the `effective_samples`, as for percentiles. The
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
    """The share of late inferences, and the number of independent ones with this variance."""

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
    """Estimate how many independent inferences decide, if this share of them is late."""
    fewest = samples_without_a_miss(allowed, pass_level)
    if share == 0.0:
        return fewest
    distance = abs(share - allowed)
    if distance == 0.0:
        return math.inf
    is_below = share < allowed
    quantile = normal_quantile(1.0 - (pass_level if is_below else level))
    needed = quantile**2 * share * (1.0 - share) / distance**2
    return max(fewest, needed) if is_below else needed
