"""Percentiles and ratios of measured times, with intervals whose unit is the round.

Inferences in one session resemble each other far more than two sessions do. An interval that treats
them as independent is several times too narrow. docs/measuring.md has the rules, and how often they
held in tests.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_modelperf.stats.quantiles import (
    beta_quantile,
    noncentral_t,
    standard_error,
    t_critical,
    t_quantile,
)
from pytest_modelperf.stats.records import (
    PERCENTS,
    Latency,
    LatencySpread,
    Members,
    Percentile,
    Ratio,
    Turns,
    percentile_of,
)

Times: TypeAlias = Sequence[int]
PairedTurns: TypeAlias = tuple[Turns, Turns]
Floats: TypeAlias = npt.NDArray[np.float64]

MEDIAN = 50.0
# If at least this share of a round's pairs was undisturbed, only these pairs count.
_UNDISTURBED_SHARE = 0.6
# A turn that waited for this share of the typical turn has half the weight.
_LONG_WAIT = 0.05
# The quantile of the undisturbed turns that counts if few pairs were undisturbed, and the fewest
# turns of a side for it.
_LOW_SHARE = 0.25
_FEWEST_UNDISTURBED = 4
# A coarse clock can measure 0, which has no logarithm.
_SHORTEST_NS = 0.5
# Bounds from two very different rounds can exceed every float.
_LARGEST_LOG = 700.0
# Detectable changes above this are too large for their exact size to matter.
_LARGEST_CHANGE = 10.0
# The range of the number of samples that a percentile can need.
_COUNTS = range(2, 1 << 20)


@cache
def needed_samples(percent: float, confidence: float = 0.99) -> int:
    """Return the fewest samples that support a percentile.

    With this confidence, at least two of them are above the percentile: the smallest n with
    P(at most 1 of n above) <= 1 - confidence. This is the rule of MLPerf
    (mlcommons/inference_policies, inference_rules.adoc, "Early Stopping Criterion") for one query
    above the reported latency, with its tolerance d = 0.
    """
    below = percent / 100.0
    above = 1.0 - below

    def is_enough(count: int) -> bool:
        none, one = below**count, count * above * below ** (count - 1)
        return none + one <= 1.0 - confidence

    # Bisection works because the chance falls with each further sample.
    return _COUNTS[bisect.bisect_left(_COUNTS, 1, key=is_enough)]


def summarize(rounds: Sequence[Times], batch_size: int, confidence: float = 0.95) -> Latency:
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
    """Estimate a percentile of the samples of all rounds, with an interval by rounds."""
    pooled = _pool(rounds)
    needed = needed_samples(percent)
    if len(pooled) < needed:
        return Percentile(percent=percent, needed=needed)
    value = quantile_of(pooled, percent / 100.0)
    if len(rounds) < 2:
        return Percentile(percent=percent, needed=needed, value_ns=value)
    low, high = _interval(rounds, pooled, value, percent / 100.0, confidence)
    return Percentile(percent=percent, needed=needed, value_ns=value, low_ns=low, high_ns=high)


def quantile_of(values: Floats, share: float) -> float:
    return percentile_of(np.sort(values).tolist(), 100.0 * share)


def duet_ratio(pairs: Sequence[PairedTurns], confidence: float) -> Ratio:
    """Return the geometric mean of the rounds' ratios, second side over first, and its interval."""
    return _typical(_round_differences(pairs), confidence, resolution(pairs))


def round_ratios(pairs: Sequence[PairedTurns]) -> tuple[float, ...]:
    """Return the time after relative to before in each round, paired by turns."""
    return tuple(map(bounded_exp, _round_differences(pairs).tolist()))


def detectable_change(
    pairs: Sequence[PairedTurns], level: float = 0.01, power: float = 0.9, rounds: int | None = None
) -> float:
    """Return the relative slowdown that a one-sided t test at `level` detects with this power.

    The test has `rounds` rounds (by default those of `pairs`), which vary as `pairs` do. The
    slowdown is infinite for one round, whose spread is unknown, and if it is more than tenfold.
    """
    count = len(pairs) if rounds is None else rounds
    if min(count, len(pairs)) < 2:
        return math.inf
    spread = float(_round_differences(pairs).std(ddof=1))
    shift = min(shift_to_detect(level, power, count) * spread, _LARGEST_LOG)
    return reported_change(max(math.expm1(shift), math.expm1(resolution(pairs))))


def resolution(pairs: Sequence[PairedTurns]) -> float:
    """Return the log of the smallest ratio that the clock distinguishes from 1.

    Times are multiples of its tick. So rounds that agree exactly do not prove that the sides do.
    The first round shows about how long an inference takes.
    """
    if not pairs:
        return 0.0
    tick_ns = max(side.tick_ns for pair in pairs for side in pair)
    return log_of_tick(tick_ns, min(float(np.median(times)) for times in _own_times(pairs[0])))


def log_of_tick(tick_ns: float, time_ns: float) -> float:
    """Return the log of the ratio by which one more tick changes a time."""
    return math.log1p(tick_ns / max(time_ns, _SHORTEST_NS))


def describe_spread(rounds: Sequence[Times]) -> LatencySpread:
    """Return how much the inferences of one session vary, and the medians of sessions."""
    medians = logs([float(np.median(times)) for times in rounds])
    within = [float(logs(times).std(ddof=1)) for times in rounds if len(times) > 1]
    return LatencySpread(
        inferences=float(np.median(within)) if within else None,
        sessions=float(medians.std(ddof=1)) if len(medians) > 1 else None,
    )


def rate_of_rounds(rates: Sequence[float], confidence: float) -> Ratio:
    """Return the geometric mean of the rates of the rounds."""
    return _typical(logs(rates), confidence)


def ratio_of_rounds(before: Sequence[float], after: Sequence[float], confidence: float) -> Ratio:
    """Return the ratio of two figures that were measured once in each of the same rounds."""
    return _typical(logs(after) - logs(before), confidence)


def typical_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Return the t interval of the mean of the logs of figures that were measured once a round."""
    seen = logs(values)
    centre, half = float(seen.mean()), _t_half_width(seen, confidence)
    return bounded_exp(centre - half), bounded_exp(centre + half)


def effective_samples(
    rounds: Sequence[Times], value: float, share: float, confidence: float
) -> float:
    """Return the number of independent samples that vary around this quantile like these rounds."""
    sizes = np.array([len(times) for times in rounds])
    below = np.array([np.count_nonzero(np.asarray(times) <= value) for times in rounds])
    count, total = len(rounds), int(sizes.sum())
    excess = below - sizes * below.sum() / total
    variance = count / (count - 1) * float(excess @ excess) / total**2
    independent = share * (1.0 - share) / variance if variance > 0.0 else math.inf
    upper = (1.0 + confidence) / 2.0
    few_rounds = t_quantile(upper, total - 1) / t_quantile(upper, count - 1)
    # By chance, the result can exceed the number of samples, or be below one.
    return min(max(independent * float(few_rounds) ** 2, 1.0), float(total))


def paired_difference(pair: PairedTurns) -> float:
    """Return the difference of logs of one round, second side minus first.

    It is the median over the pairs of turns. Only the switches and the waits determine which turns
    count, never how long the model ran, so the choice favours no side. docs/statistics.md has the
    figures behind it. For a workload, it is the difference of the time of one pass.
    """
    before, after = pair
    if before.mix is not None:
        return _difference_of_pass(pair, before.mix.members)
    old, new = _own_logs(pair)
    differences = new - old
    if before.switches is None or after.switches is None:
        return float(np.median(differences))
    old_alone, new_alone = np.equal(before.switches, 0), np.equal(after.switches, 0)
    both_alone = old_alone & new_alone
    if np.mean(both_alone) >= _UNDISTURBED_SHARE:
        return float(np.median(differences[both_alone]))
    if before.running_ns is not None and after.running_ns is not None:
        return _difference_of_calm(pair)
    fewest = min(np.count_nonzero(old_alone), np.count_nonzero(new_alone))
    if fewest < _FEWEST_UNDISTURBED:
        return float(np.median(differences))
    return quantile_of(new[new_alone], _LOW_SHARE) - quantile_of(old[old_alone], _LOW_SHARE)


def _difference_of_pass(pair: PairedTurns, members: Members) -> float:
    """Return the log ratio of a pass. Members count by their share of its time.

    Each member has its own difference, between inferences of one kind. A member that did not run in
    this round is left out.
    """
    before_ns = after_ns = 0.0
    for place, weight in enumerate(members.weights):
        own = (pair[0].of_member(place), pair[1].of_member(place))
        if not own[0].times_ns:
            continue
        usual_ns = weight * max(float(np.median(_own_times(own)[0])), _SHORTEST_NS)
        before_ns += usual_ns
        after_ns += usual_ns * bounded_exp(paired_difference(own))
    return math.log(after_ns / before_ns) if before_ns else 0.0


def _difference_of_calm(pair: PairedTurns) -> float:
    """Return the difference of logs of a disturbed round.

    The longer a turn waited, the less it counts. Neighbouring turns were disturbed differently, so
    each side has a median of its own.
    """
    usual_ns = float(np.median([side.running_ns for side in pair]))
    medians = []
    for side, running in zip(pair, _own_logs(pair), strict=True):
        waited_ns = np.subtract(side.times_ns, side.running_ns or ())
        weights = 1.0 / (_LONG_WAIT + waited_ns / max(usual_ns, _SHORTEST_NS))
        medians.append(_weighted_median(running, weights))
    return medians[1] - medians[0]


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    weight = weights[order]
    middle = np.cumsum(weight) - weight / 2.0
    return float(np.interp(weights.sum() / 2.0, middle, values[order]))


def difference_of_medians(pair: PairedTurns) -> float:
    """Return the log of the ratio of the medians of one round, second side over first."""
    old, new = _own_logs(pair)
    return float(np.median(new) - np.median(old))


def _own_logs(pair: PairedTurns) -> tuple[Floats, Floats]:
    before, after = _own_times(pair)
    return logs(before), logs(after)


def _own_times(pair: PairedTurns) -> tuple[Times, Times]:
    """Return the times of both sides, without the waiting if it is known for both."""
    before, after = pair
    if before.running_ns is not None and after.running_ns is not None:
        return before.running_ns, after.running_ns
    return before.times_ns, after.times_ns


def logs(times: npt.ArrayLike) -> Floats:
    return np.log(np.maximum(np.asarray(times, dtype=np.float64), _SHORTEST_NS))


def bounded_exp(value: float) -> float:
    return math.exp(min(value, _LARGEST_LOG))


def reported_change(change: float) -> float:
    """Return a change that could be seen, or infinity if it is too large to be useful."""
    return change if change <= _LARGEST_CHANGE else math.inf


@cache
def shift_to_detect(level: float, power: float, count: int) -> float:
    """Return the shift, in standard deviations, that such a t test detects with this power."""
    # Cached: a value takes 50 us, and cases share their levels and often their rounds.
    freedom = count - 1
    critical = float(t_critical(level, freedom))
    return noncentral_t(1.0 - power, freedom, critical) / math.sqrt(count)


def _typical(seen: Floats, confidence: float, least: float = 0.0) -> Ratio:
    """Return the mean of logs and its t interval, as ratios. A single value has no interval.

    Each side of the interval has at least the length `least`.
    """
    centre = float(seen.mean())
    if len(seen) < 2:
        return Ratio(math.exp(centre), None, None)
    half = max(_t_half_width(seen, confidence), least)
    return Ratio(math.exp(centre), bounded_exp(centre - half), bounded_exp(centre + half))


def _pool(rounds: Sequence[Times]) -> Floats:
    return np.concatenate([np.asarray(times, dtype=np.float64) for times in rounds])


def _t_half_width(values: Floats, confidence: float) -> float:
    quantile = t_quantile((1.0 + confidence) / 2.0, len(values) - 1)
    return float(quantile * standard_error(values))


def _interval(
    rounds: Sequence[Times], pooled: Floats, value: float, share: float, confidence: float
) -> tuple[float, float]:
    """Return the interval of a quantile of samples that come in rounds.

    The mean of the quantiles of the rounds is not the quantile of all samples, and resampling few
    rounds underestimates a tail. So the interval is the one for surveys of clusters: Woodruff,
    "Confidence intervals for medians and other position measures", JASA 47 (1952), with the bounds
    of the share by Korn and Graubard, "Confidence intervals for proportions with small expected
    number of positive counts", Survey Methodology 24 (1998). That is the interval of Clopper and
    Pearson for the `effective_samples`.
    """
    effective = effective_samples(rounds, value, share, confidence)
    upper = (1.0 + confidence) / 2.0
    hits = share * effective
    low = beta_quantile(1.0 - upper, hits, effective - hits + 1.0)
    high = beta_quantile(upper, hits + 1.0, effective - hits)
    return quantile_of(pooled, low), quantile_of(pooled, high)


def _round_differences(pairs: Sequence[PairedTurns]) -> Floats:
    return np.array([paired_difference(pair) for pair in pairs])
