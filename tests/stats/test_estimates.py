"""Percentiles and ratios as laws, and the share of intervals that hold the truth."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec.structs import astuple

from pytest_modelperf.stats.estimates import (
    describe_spread,
    detectable_change,
    duet_ratio,
    estimate_percentile,
    needed_samples,
    paired_difference,
    summarize,
)
from pytest_modelperf.stats.quantiles import (
    beta_quantile,
    noncentral_t,
    normal_chance,
    normal_quantile,
    standard_error,
    t_critical,
    t_quantile,
)
from pytest_modelperf.stats.records import (
    PERCENTS,
    LatencySpread,
    Percentile,
    Ratio,
    Turns,
    spread_of_round,
)

# Repeated, so that there are enough for the tail without drawing each of them.
times = st.builds(
    lambda times, repeats: times * repeats,
    st.lists(st.integers(1, 10**12), min_size=1, max_size=20),
    st.integers(1, 20),
)
several_rounds = st.lists(times, min_size=1, max_size=4)
duets = st.lists(
    st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)), min_size=1, max_size=20),
    min_size=1,
    max_size=5,
).map(lambda rounds: [tuple(zip(*turns, strict=True)) for turns in rounds])


def simulate(
    repeats: int, rounds: int, count: int, sessions: float, seed: int
) -> npt.NDArray[np.float64]:
    """Logs of times: sessions differ, neighbours are alike, one in 17 is far too slow."""
    rng = np.random.default_rng(seed)
    shape = (repeats, rounds, count)
    own = rng.normal(0.0, 0.015, shape)
    for i in range(1, count):
        own[..., i] = 0.6 * own[..., i - 1] + 0.8 * own[..., i]
    slow = (rng.random(shape) < 0.06) * rng.pareto(2.5, shape) * 0.15
    logs: npt.NDArray[np.float64] = rng.normal(0.0, sessions, (repeats, rounds, 1)) + own + slow
    return logs


def as_rounds(logs: npt.NDArray[np.float64]) -> list[list[int]]:
    return [[round(ns) for ns in times] for times in 1e7 * np.exp(logs)]


def naive_interval(samples: npt.NDArray[np.float64], share: float) -> tuple[float, float]:
    """The interval of the order statistics, as if all samples were independent."""
    ordered = np.sort(samples)
    low, high = scipy.stats.binom.ppf([0.025, 0.975], ordered.size, share).astype(int)
    return float(ordered[low - 1]), float(ordered[high])


def known(percentiles: Sequence[Percentile]) -> list[Percentile]:
    return [p for p in percentiles if p.value_ns is not None]


@pytest.mark.parametrize(
    ("percent", "needed"),
    [(50.0, 11), (90.0, 64), (95.0, 130), (97.0, 219), (99.0, 662), (99.9, 6636)],
)
def test_a_percentile_needs_the_samples_that_mlperf_requires(percent: float, needed: int) -> None:
    assert needed_samples(percent) == needed


@given(st.floats(1.0, 99.5), st.floats(0.5, 0.999))
def test_one_sample_less_does_not_show_two_above(percent: float, confidence: float) -> None:
    def chance_of_one(count: int) -> float:
        above = 1.0 - percent / 100.0
        return float((1.0 - above) ** count + count * above * (1.0 - above) ** (count - 1))

    count = needed_samples(percent, confidence)

    assert chance_of_one(count) <= 1.0 - confidence + 1e-9
    assert count == 2 or chance_of_one(count - 1) > 1.0 - confidence - 1e-9


@given(several_rounds)
def test_percentiles_are_those_of_all_samples_together(rounds: list[list[int]]) -> None:
    latency = summarize(rounds, batch_size=2)
    pooled = [ns for times in rounds for ns in times]

    assert (latency.samples, latency.rounds) == (len(pooled), len(rounds))
    assert (latency.min_ns, latency.max_ns) == (min(pooled), max(pooled))
    assert latency.mean_ns == pytest.approx(sum(pooled) / len(pooled))
    assert [p.percent for p in latency.percentiles] == list(PERCENTS)
    for percentile in latency.percentiles:
        assert (percentile.value_ns is None) == (len(pooled) < percentile.needed)
        if percentile.value_ns is not None:
            assert percentile.value_ns == np.percentile(pooled, percentile.percent)


def test_a_percentile_that_is_not_computed_is_named_with_those_that_are() -> None:
    latency = summarize([[1, 2, 3]], batch_size=1)
    with pytest.raises(
        ValueError, match=r"unknown percentile 75; choose one of 50, 90, 95, 97, 99, 99\.9"
    ):
        latency.percentile(75)


@given(several_rounds)
def test_an_interval_holds_its_value_and_needs_two_rounds(rounds: list[list[int]]) -> None:
    for percentile in known(summarize(rounds, batch_size=1).percentiles):
        assert (percentile.low_ns is None) == (len(rounds) == 1)
        if percentile.low_ns is not None:
            assert percentile.value_ns is not None
            assert percentile.high_ns is not None
            assert percentile.low_ns <= percentile.value_ns <= percentile.high_ns


@given(several_rounds)
def test_higher_percentiles_are_not_smaller(rounds: list[list[int]]) -> None:
    values = [p.value_ns or 0.0 for p in known(summarize(rounds, batch_size=1).percentiles)]

    assert values == sorted(values)


@given(several_rounds, st.integers(2, 1000))
def test_on_a_machine_that_is_slower_by_a_factor_all_is_larger_by_it(
    rounds: list[list[int]], factor: int
) -> None:
    plain = known(summarize(rounds, batch_size=1).percentiles)
    slower = known(summarize([[factor * ns for ns in r] for r in rounds], batch_size=1).percentiles)

    for a, b in zip(plain, slower, strict=True):
        for name in ("value_ns", "low_ns", "high_ns"):
            if getattr(a, name) is not None:
                assert getattr(b, name) == pytest.approx(factor * getattr(a, name), rel=1e-6)


@given(several_rounds)
def test_the_order_of_rounds_does_not_matter(rounds: list[list[int]]) -> None:
    for a, b in zip(
        known(summarize(rounds, batch_size=1).percentiles),
        known(summarize(rounds[::-1], batch_size=1).percentiles),
        strict=True,
    ):
        assert a.value_ns == b.value_ns
        if a.low_ns is not None:
            assert a.low_ns == pytest.approx(b.low_ns, rel=1e-6)
            assert a.high_ns == pytest.approx(b.high_ns, rel=1e-6)


def test_a_tail_that_all_rounds_share_is_estimated_from_all_samples() -> None:
    """If rounds do not differ, the interval is that of independent samples, not of six rounds."""
    rounds = [[1000 + i + r for i in range(0, 600, 6)] for r in range(6)]

    p90 = estimate_percentile(rounds, 90.0)

    low, high = naive_interval(np.array(rounds, dtype=np.float64).ravel(), 0.9)
    assert p90.low_ns == pytest.approx(low, abs=3.0)
    assert p90.high_ns == pytest.approx(high, abs=3.0)


@pytest.mark.parametrize(("percent", "least"), [(50.0, 0.93), (90.0, 0.90)])
def test_intervals_hold_the_truth_as_often_as_they_say(percent: float, least: float) -> None:
    """In 400 measurements with 2 % between sessions; taking samples as independent fails."""
    share = percent / 100.0
    truth = 1e7 * math.exp(np.quantile(simulate(8000, 1, 40, 0.02, seed=3), share))
    held = naive = 0

    for logs in simulate(400, 6, 40, 0.02, seed=4):
        interval = estimate_percentile(as_rounds(logs), percent, confidence=0.95)
        assert interval.low_ns is not None
        assert interval.high_ns is not None
        held += interval.low_ns <= truth <= interval.high_ns
        low, high = naive_interval(1e7 * np.exp(logs.ravel()), share)
        naive += low <= truth <= high

    assert least <= held / 400 <= 0.98
    assert naive / 400 < 0.6


@given(duets)
def test_the_ratio_of_swapped_sides_is_the_inverse(
    times: list[tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    pairs = [in_turn(before, after) for before, after in times]
    there = duet_ratio(pairs, confidence=0.99)
    back = duet_ratio([(after, before) for before, after in pairs], confidence=0.99)

    assert back.value == pytest.approx(1.0 / there.value, rel=1e-6)
    assert (there.low is None) == (len(pairs) == 1)
    if there.low is not None and there.high is not None:
        assert there.low <= there.value <= there.high
        # Bounds beyond all numbers are cut off, and have no inverse.
        if there.low > 1e-200 and there.high < 1e200:
            assert back.low == pytest.approx(1.0 / there.high, rel=1e-6)


def test_drift_cancels_within_a_turn() -> None:
    """A machine that gets slower by half in each round does not blur a ratio of 1.1."""
    drifting = [10_000 + 50 * i for i in range(100)]
    pairs = [in_turn(drifting, [round(1.1 * ns) for ns in drifting])] * 6

    ratio = duet_ratio(pairs, confidence=0.99)

    for value in (ratio.value, ratio.low, ratio.high):
        assert value == pytest.approx(1.1, rel=1e-4)


def test_ratio_intervals_hold_the_truth_as_often_as_they_say() -> None:
    before, after = simulate(600, 8, 20, 0.01, seed=5), simulate(600, 8, 20, 0.01, seed=6)
    held = 0
    for a, b in zip(before, after + math.log(1.05), strict=True):
        pairs = list(map(in_turn, as_rounds(a), as_rounds(b)))
        ratio = duet_ratio(pairs, confidence=0.95)
        assert ratio.low is not None
        assert ratio.high is not None
        held += ratio.low <= 1.05 <= ratio.high

    assert 0.93 <= held / 600 <= 0.97


def in_turn(before: Sequence[int], after: Sequence[int]) -> tuple[Turns, Turns]:
    return Turns(times_ns=tuple(before)), Turns(times_ns=tuple(after))


def duet_with(differences: Sequence[float]) -> list[tuple[Turns, Turns]]:
    """Rounds whose sides differ by exactly these logs."""
    return [in_turn([10**9] * 3, [round(10**9 * math.exp(d))] * 3) for d in differences]


# -- what disturbs a turn


def watched(
    times_ns: Sequence[int],
    switches: Sequence[int] | None = None,
    running_ns: Sequence[int] | None = None,
) -> Turns:
    return Turns(
        times_ns=tuple(times_ns),
        switches=None if switches is None else tuple(switches),
        running_ns=None if running_ns is None else tuple(running_ns),
    )


def test_pairs_that_were_disturbed_do_not_count_if_most_were_not() -> None:
    before = watched([100] * 10, [0] * 10)
    after = watched([110] * 7 + [900] * 3, [0] * 7 + [1, 2, 1])
    assert paired_difference((before, after)) == pytest.approx(math.log(1.1))

    # The choice is made from the switches alone: slow turns that were not disturbed do count.
    slow = watched([110] * 4 + [900] * 6, [0] * 10)
    assert paired_difference((before, slow)) == pytest.approx(math.log(9.0))


def test_with_few_undisturbed_pairs_the_quick_undisturbed_turns_decide() -> None:
    quiet = [100, 104, 108, 112, 116]
    before = watched(quiet + [700] * 15, [0] * 5 + [3] * 15)
    after = watched([800] * 15 + [2 * ns for ns in quiet], [2] * 15 + [0] * 5)
    assert paired_difference((before, after)) == pytest.approx(math.log(2.0))

    # Too few have no quantile: all pairs count again.
    fewer = watched([800] * 18 + [200, 208], [2] * 18 + [0] * 2)
    all_pairs = float(np.median(np.log(fewer.times_ns) - np.log(before.times_ns)))
    assert paired_difference((before, fewer)) == pytest.approx(all_pairs)


def test_waiting_for_a_processor_is_not_the_models_time() -> None:
    before = watched([100] * 6, [1] * 6, [100] * 6)
    after = watched([103, 700, 900, 400, 103, 800], [0, 1, 4, 2, 0, 3], [103] * 6)
    assert paired_difference((before, after)) == pytest.approx(math.log(1.03))
    # It takes both sides: else one would be compared by another clock.
    only_one = watched([200] * 6, [1] * 6)
    assert paired_difference((only_one, before)) == pytest.approx(math.log(0.5))


def test_in_a_disturbed_round_the_turns_that_hardly_waited_decide() -> None:
    """A long wait is never known exactly, so the time that is left is not either."""
    before = watched(
        [100, 101, 102, 900, 900, 900, 900], [1] * 7, [100, 101, 102, 20, 30, 500, 700]
    )
    after = watched([900, 900, 120, 900, 900, 121, 122], [1] * 7, [40, 90, 120, 30, 60, 121, 122])
    assert paired_difference((before, after)) == pytest.approx(math.log(1.2), abs=0.01)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.integers(0, 10**6))
def test_turns_that_waited_equally_long_count_alike(running: list[int], waited_ns: int) -> None:
    before = watched([100 + waited_ns] * len(running), [1] * len(running), [100] * len(running))
    after = watched([ns + waited_ns for ns in running], [1] * len(running), running)
    expected = float(np.median(np.log(running))) - math.log(100)
    assert paired_difference((before, after)) == pytest.approx(expected, abs=1e-9)


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)), min_size=1, max_size=30),
    st.integers(0, 2**32 - 1),
)
def test_swapping_the_sides_of_a_disturbed_round_changes_only_the_sign(
    pairs: list[tuple[int, int]], seed: int
) -> None:
    random = np.random.default_rng(seed)
    knows_waits = bool(random.integers(0, 2))
    sides = []
    for side in (0, 1):
        times = [pair[side] for pair in pairs]
        running = [int(random.integers(1, ns + 1)) for ns in times] if knows_waits else None
        sides.append(watched(times, random.integers(0, 2, len(pairs)).tolist(), running))
    there, back = paired_difference((sides[0], sides[1])), paired_difference((sides[1], sides[0]))
    assert there == pytest.approx(-back, abs=1e-9)


@pytest.mark.parametrize("rounds", [3, 6, 20])
def test_a_change_that_is_detectable_is_detected_with_that_power(rounds: int) -> None:
    """The one-sided t test of scipy finds it in 90 of 100 simulated measurements."""
    pairs = duet_with([-0.01, 0.002, 0.013, -0.004, 0.001])
    spread = float(np.std([-0.01, 0.002, 0.013, -0.004, 0.001], ddof=1))

    change = detectable_change(pairs, level=0.01, power=0.9, rounds=rounds)

    measured = np.random.default_rng(7).normal(math.log1p(change), spread, (20_000, rounds))
    found = scipy.stats.ttest_1samp(measured, 0.0, axis=1, alternative="greater").pvalue < 0.01
    assert found.mean() == pytest.approx(0.9, abs=0.01)


@given(st.integers(2, 60), st.floats(0.5, 0.99), st.floats(0.001, 0.1))
def test_more_rounds_detect_less(rounds: int, power: float, level: float) -> None:
    pairs = duet_with([-0.01, 0.002, 0.013])

    assert detectable_change(pairs, level, power, rounds + 1) < detectable_change(
        pairs, level, power, rounds
    )


def test_detectable_change_of_a_known_spread() -> None:
    pairs = duet_with([-0.005, 0.005, -0.005, 0.005, -0.005, 0.005])

    changes = [round(100 * detectable_change(pairs, rounds=n), 2) for n in (3, 6, 13, 35)]

    assert changes == snapshot([3.45, 1.14, 0.62, 0.35])


def test_two_rounds_that_have_nothing_in_common_leave_the_ratio_open() -> None:
    ratio = duet_ratio([in_turn([1], [10**9]), in_turn([10**9], [1])], confidence=0.999)

    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < 1e-300
    assert ratio.high > 1e300


def test_one_round_detects_nothing() -> None:
    pairs = duet_with([0.01])

    assert detectable_change(pairs) == math.inf
    assert detectable_change(duet_with([0.01, 0.02]), rounds=1) == math.inf
    ratio = duet_ratio(pairs, confidence=0.99)
    assert ratio == Ratio(ratio.value, None, None)
    assert ratio.value == pytest.approx(1.01005, rel=1e-5)


def test_rounds_that_vary_wildly_detect_nothing() -> None:
    pairs = duet_with([-1.0, 1.5, 0.2])

    assert detectable_change(pairs, level=0.0001) == math.inf
    assert math.isfinite(detectable_change(pairs, level=0.0001, rounds=100))


def test_a_clock_that_sees_no_time_pass_breaks_nothing() -> None:
    assert summarize([[0] * 12, [0] * 12], batch_size=1).percentile(50.0).low_ns == 0.0


def test_the_spread_of_inferences_is_distinguished_from_that_of_sessions() -> None:
    rng = np.random.default_rng(8)
    logs = rng.normal(0.0, 0.03, (300, 1)) + rng.normal(0.0, 0.01, (300, 400))

    spread = describe_spread(as_rounds(logs))

    assert spread.inferences == pytest.approx(0.01, rel=0.05)
    assert spread.sessions == pytest.approx(0.03, rel=0.1)
    assert describe_spread([[100]]) == LatencySpread(inferences=None, sessions=None)


@given(times)
def test_the_spread_of_a_round_is_that_of_numpy(times: Sequence[int]) -> None:
    samples, *times_ns = astuple(spread_of_round(times))
    assert samples == len(times)
    assert times_ns == pytest.approx(np.percentile(times, [0, 5, 25, 50, 75, 95, 100]))


LEVELS = st.floats(1e-12, 0.5)


@given(LEVELS, st.integers(1, 500))
def test_quantiles_of_t_are_those_of_scipy(level: float, freedom: int) -> None:
    expected = scipy.stats.t.isf(level, freedom)
    assert t_critical(level, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert t_quantile(level, freedom) == pytest.approx(-expected, rel=1e-9, abs=1e-12)


@given(LEVELS, st.floats(0.1, 500.0), st.floats(0.1, 500.0))
def test_quantiles_of_beta_are_those_of_scipy(level: float, a: float, b: float) -> None:
    assert beta_quantile(level, a, b) == pytest.approx(scipy.stats.beta.ppf(level, a, b))


@given(LEVELS, st.integers(1, 100))
def test_the_normal_and_the_noncentral_t_are_those_of_scipy(level: float, freedom: int) -> None:
    score = normal_quantile(level)
    assert score == pytest.approx(scipy.stats.norm.ppf(level))
    assert normal_chance(score) == pytest.approx(level)
    noncentrality = noncentral_t(0.1, freedom, 3.0)
    assert scipy.stats.nct.cdf(3.0, freedom, noncentrality) == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("percent", [10.0, 50.0, *PERCENTS])
def test_a_percentile_needs_the_fewest_samples_of_which_two_are_above_it(
    percent: float, confidence: float
) -> None:
    needed = needed_samples(percent, confidence)
    fewer, enough = scipy.stats.binom.cdf(1, [needed - 1, needed], 1.0 - percent / 100.0)
    assert enough <= 1.0 - confidence < fewer


@given(st.integers(2, 50))
def test_errors_are_those_of_scipy(count: int) -> None:
    values = np.random.default_rng(count).normal(size=(2, count))
    assert standard_error(values) == pytest.approx(scipy.stats.sem(values, axis=-1))


def test_a_duet_needs_only_the_special_functions() -> None:
    """The tests of scipy, its integrals and its roots take a second to import."""
    asked = (
        "import sys; from pytest_modelperf.stats import decisions, duet; "
        "import numpy, pytest_modelperf.comparing; "
        "first, last = decisions.spend_level((6, 35), (6, 35), 0.01); "
        "duet.find_bounds(numpy.arange(35.0).reshape(1, 35), last.level); "
        "print({'scipy.stats', 'scipy.optimize', 'scipy.integrate'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
