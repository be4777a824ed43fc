"""Percentiles and ratios of measured times, with intervals whose unit is the round.

Inferences inside one session resemble each other far more than two sessions do, so an interval
that takes them as independent is too narrow by a factor. docs/measuring.md has the rules and how
often they were found to hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

from pytest_modelperf.stats.quantiles import (
    beta_quantile,
    binomial_chance,
    standard_error,
    t_critical,
    t_quantile,
)
from pytest_modelperf.stats.records import (
    PERCENTS,
    Latency,
    LatencySpread,
    Percentile,
    Ratio,
    RoundSpread,
    Turns,
)

Times: TypeAlias = Sequence[int]
PairedTurns: TypeAlias = tuple[Turns, Turns]
Floats: TypeAlias = npt.NDArray[np.float64]

MEDIAN = 50.0
# Where so many of the pairs of a round were left alone, they speak for the round.
_UNDISTURBED_SHARE = 0.6
# Where no more of the pairs had a turn that was left alone, all were disturbed.
_ALONE_BY_CHANCE = 0.2
# The quantile of the undisturbed turns where few pairs were left alone, and the fewest turns of a
# side that have one.
_LOW_SHARE = 0.25
_FEWEST_UNDISTURBED = 4
# A coarse clock can see no time pass, and nothing has no logarithm.
_SHORTEST_NS = 0.5
# Two rounds that differ a lot tell nothing, and the bounds of nothing are beyond all numbers.
_LARGEST_LOG = 700.0


@cache
def needed_samples(percent: float, confidence: float = 0.99) -> int:
    """The fewest samples from which a percentile may be told.

    So many that, with this confidence, at least two of them lie above the percentile: the
    smallest n with P(at most 1 of n above) <= 1 - confidence. This is the rule of MLPerf
    (mlcommons/inference_policies, inference_rules.adoc, "Early Stopping Criterion") for one query
    above the reported latency, with its tolerance d = 0.
    """
    above = 1.0 - percent / 100.0
    count = 2
    while not _has_two_above(count, above, confidence):
        count *= 2
    fewest = count // 2
    # The probability falls with every further sample, so the bound can be bisected.
    while count - fewest > 1:
        middle = (fewest + count) // 2
        if _has_two_above(middle, above, confidence):
            count = middle
        else:
            fewest = middle
    return count


def summarize(rounds: Sequence[Times], batch_size: int, confidence: float = 0.95) -> Latency:
    """The latency that these rounds show."""
    pooled = _pool(rounds)
    return Latency(
        batch_size=batch_size,
        confidence=confidence,
        percentiles=tuple(estimate_percentile(rounds, p, confidence) for p in PERCENTS),
        samples=len(pooled),
        rounds=len(rounds),
        min_ns=int(pooled.min()),
        max_ns=int(pooled.max()),
        mean_ns=float(pooled.mean()),
    )


def estimate_percentile(
    rounds: Sequence[Times], percent: float, confidence: float = 0.95
) -> Percentile:
    """A percentile of the samples of all rounds together, with the interval by rounds."""
    pooled = _pool(rounds)
    needed = needed_samples(percent)
    if len(pooled) < needed:
        return Percentile(percent=percent, needed=needed)
    value = float(np.quantile(pooled, percent / 100.0))
    if len(rounds) < 2:
        return Percentile(percent=percent, needed=needed, value_ns=value)
    low, high = _interval(rounds, pooled, value, percent / 100.0, confidence)
    return Percentile(percent=percent, needed=needed, value_ns=value, low_ns=low, high_ns=high)


def duet_ratio(pairs: Sequence[PairedTurns], confidence: float) -> Ratio:
    """The second side over the first.

    The mean over the rounds of what each shows, and its t interval.
    """
    return _typical(_round_differences(pairs), confidence)


def detectable_change(
    pairs: Sequence[PairedTurns],
    level: float = 0.01,
    power: float = 0.9,
    rounds: int | None = None,
) -> float:
    """The relative slowdown that a one-sided t test at `level` would detect with that power.

    Over as many rounds as there are pairs, or `rounds`, which differ as those of `pairs` did. It
    is infinite where one round tells nothing of how rounds differ.
    """
    count = len(pairs) if rounds is None else rounds
    if min(count, len(pairs)) < 2:
        return math.inf
    return float(_detectable(pairs, level, power, np.array([count]))[0])


def rounds_to_detect(
    pairs: Sequence[PairedTurns], change: float, level: float, power: float, max_rounds: int
) -> int | None:
    """The fewest rounds that would detect this relative slowdown; None if `max_rounds` do not."""
    counts = np.arange(2, max_rounds + 1)
    if len(pairs) < 2 or not counts.size:
        return None
    enough = counts[_detectable(pairs, level, power, counts) <= change]
    return int(enough[0]) if enough.size else None


def describe_spread(rounds: Sequence[Times]) -> LatencySpread:
    """How far inferences of one session lie apart, and how far the medians of sessions do."""
    medians = logs([float(np.median(times)) for times in rounds])
    within = [float(logs(times).std(ddof=1)) for times in rounds if len(times) > 1]
    return LatencySpread(
        inferences=float(np.median(within)) if within else None,
        sessions=float(medians.std(ddof=1)) if len(medians) > 1 else None,
    )


def spread_of_round(times: Times) -> RoundSpread:
    """One round in a few figures, for a picture of many."""
    values = np.asarray(times, dtype=np.float64)
    p5, p25, p50, p75, p95 = map(float, np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95]))
    return RoundSpread(
        samples=len(values),
        min_ns=float(values.min()),
        p5_ns=p5,
        p25_ns=p25,
        p50_ns=p50,
        p75_ns=p75,
        p95_ns=p95,
        max_ns=float(values.max()),
    )


def rate_of_rounds(rates: Sequence[float], confidence: float) -> Ratio:
    """What happens so often in a second, by what each round saw: their geometric mean."""
    return _typical(logs(rates), confidence)


def ratio_of_rounds(before: Sequence[float], after: Sequence[float], confidence: float) -> Ratio:
    """The second over the first, of figures that were seen once a round, in the same rounds."""
    return _typical(logs(after) - logs(before), confidence)


def typical_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """The t interval of the mean of the logs of what was seen once a round."""
    seen = logs(values)
    centre, half = float(seen.mean()), _t_half_width(seen, confidence)
    return bounded_exp(centre - half), bounded_exp(centre + half)


def effective_samples(
    rounds: Sequence[Times], value: float, share: float, confidence: float
) -> float:
    """So many independent samples would vary around this quantile like these rounds do."""
    sizes = np.array([len(times) for times in rounds])
    below = np.array([np.count_nonzero(np.asarray(times) <= value) for times in rounds])
    count, total = len(rounds), int(sizes.sum())
    excess = below - sizes * below.sum() / total
    variance = count / (count - 1) * float(excess @ excess) / total**2
    independent = share * (1.0 - share) / variance if variance > 0.0 else math.inf
    upper = (1.0 + confidence) / 2.0
    few_rounds = t_quantile(upper, total - 1) / t_quantile(upper, count - 1)
    # More independent samples than were taken is chance; less than one is no sample.
    return min(max(independent * float(few_rounds) ** 2, 1.0), float(total))


def paired_difference(pair: PairedTurns) -> float:
    """The log of the second side over the first, as one round shows it.

    The median over the pairs of turns. Which turns count follows from the switches alone, never
    from the times, so the choice favours no side. docs/statistics.md has the figures behind it.
    """
    before, after = pair
    old, new = _own_logs(pair)
    differences = new - old
    if before.switches is None or after.switches is None:
        return float(np.median(differences))
    old_alone, new_alone = np.equal(before.switches, 0), np.equal(after.switches, 0)
    both_alone = old_alone & new_alone
    if np.mean(both_alone) >= _UNDISTURBED_SHARE:
        return float(np.median(differences[both_alone]))
    if knows_running(pair):
        if np.mean(old_alone | new_alone) > _ALONE_BY_CHANCE:
            return float(np.median(differences))
        # Every turn was disturbed, each in its own way: those of a pair share nothing.
        return float(np.median(new[:, np.newaxis] - old))
    fewest = min(np.count_nonzero(old_alone), np.count_nonzero(new_alone))
    if fewest < _FEWEST_UNDISTURBED:
        return float(np.median(differences))
    return float(np.quantile(new[new_alone], _LOW_SHARE) - np.quantile(old[old_alone], _LOW_SHARE))


def difference_of_medians(pair: PairedTurns) -> float:
    """The log of the median of the second side over that of the first, in one round."""
    old, new = _own_logs(pair)
    return float(np.median(new) - np.median(old))


def knows_running(pair: PairedTurns) -> bool:
    """Whether both sides know what waiting for a processor cost each turn."""
    return all(side.running_ns is not None for side in pair)


def _own_logs(pair: PairedTurns) -> tuple[Floats, Floats]:
    """The times of both sides without that cost, where both know it."""
    before, after = pair
    if before.running_ns is not None and after.running_ns is not None:
        return logs(before.running_ns), logs(after.running_ns)
    return logs(before.times_ns), logs(after.times_ns)


def logs(times: npt.ArrayLike) -> Floats:
    return np.log(np.maximum(np.asarray(times, dtype=np.float64), _SHORTEST_NS))


def bounded_exp(value: float) -> float:
    return math.exp(min(value, _LARGEST_LOG))


def shift_to_detect(level: float, power: float, counts: npt.NDArray[np.int_]) -> Floats:
    """The shift, in standard deviations, at which a t test of so many values rejects this often."""
    freedom = counts - 1
    critical = t_critical(level, freedom)
    # The noncentrality at which a noncentral t stays below the critical value with 1 - power.
    noncentral = scipy.special.nctdtrinc(freedom, 1.0 - power, critical)
    return np.asarray(noncentral, dtype=np.float64) / np.sqrt(counts)


def _typical(seen: Floats, confidence: float) -> Ratio:
    """The mean of logs and its t interval; one value has none."""
    centre = float(seen.mean())
    if len(seen) < 2:
        return Ratio(math.exp(centre), None, None)
    half = _t_half_width(seen, confidence)
    return Ratio(math.exp(centre), bounded_exp(centre - half), bounded_exp(centre + half))


def _has_two_above(count: int, above: float, confidence: float) -> bool:
    return binomial_chance(1, count, above) <= 1.0 - confidence


def _pool(rounds: Sequence[Times]) -> Floats:
    return np.concatenate([np.asarray(times, dtype=np.float64) for times in rounds])


def _t_half_width(values: Floats, confidence: float) -> float:
    quantile = t_quantile((1.0 + confidence) / 2.0, len(values) - 1)
    return float(quantile * standard_error(values))


def _interval(
    rounds: Sequence[Times], pooled: Floats, value: float, share: float, confidence: float
) -> tuple[float, float]:
    """The quantiles at the bounds of how many samples truly lie below the percentile.

    The mean of the rounds' own quantiles is not the quantile of all samples, and resampling few
    rounds sees too little of a tail. So the interval is that of a survey in clusters: Woodruff,
    "Confidence intervals for medians and other position measures", JASA 47 (1952), with the
    bounds of the share by Korn and Graubard, "Confidence intervals for proportions with small
    expected number of positive counts", Survey Methodology 24 (1998). It is the interval of
    Clopper and Pearson for the `effective_samples`.
    """
    effective = effective_samples(rounds, value, share, confidence)
    upper = (1.0 + confidence) / 2.0
    hits = share * effective
    low = beta_quantile(1.0 - upper, hits, effective - hits + 1.0)
    high = beta_quantile(upper, hits + 1.0, effective - hits)
    return float(np.quantile(pooled, low)), float(np.quantile(pooled, high))


def _round_differences(pairs: Sequence[PairedTurns]) -> Floats:
    return np.array([paired_difference(pair) for pair in pairs])


def _detectable(
    pairs: Sequence[PairedTurns], level: float, power: float, counts: npt.NDArray[np.int_]
) -> Floats:
    """For each number of rounds the slowdown at which the test rejects with this power."""
    spread = float(_round_differences(pairs).std(ddof=1))
    return np.expm1(shift_to_detect(level, power, counts) * spread)
