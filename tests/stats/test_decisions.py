"""The verdicts of measured times, proven by simulation, and their laws.

A rate may exceed its limit by what chance does to the number of simulated comparisons, not more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt
import pytest
import scipy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.stats.budgets import judge_percentile, judge_typical
from pytest_modelperf.stats.decisions import (
    LOOKS,
    SOONER,
    BudgetAnswer,
    BudgetDecision,
    Look,
    RatioAnswer,
    imply,
    plan_looks,
    share_level,
    spend_level,
)
from pytest_modelperf.stats.duet import (
    DuetRule,
    Schedule,
    find_bounds,
    has_modes,
    judge_differences,
    judge_duet,
    judge_once_a_round,
    judge_sequence,
    looks_worse,
)
from pytest_modelperf.stats.estimates import detectable_change, duet_ratio, needed_samples
from pytest_modelperf.stats.processes import (
    FEWEST_PROCESSES,
    KINDS,
    MOST_PAIRS,
    judge_processes,
    judge_stored,
    plan_processes,
)
from pytest_modelperf.stats.quantiles import tolerance_factor
from pytest_modelperf.stats.records import PERCENTS, Turns
from tests.support.known import known
from tests.support.simulation import (
    SETTINGS,
    Logs,
    Setting,
    group_quantiles,
    round_medians,
    simulate_duets,
    simulate_stored,
)

Floats = npt.NDArray[np.float64]
Pair = tuple[Turns, Turns]

COMPARISONS = 5_000
# The median of a case in a run of two.
RULE = DuetRule(tolerance=0.03, level=share_level(2))
# The median of a case in a run of twenty.
SUITE = DuetRule(tolerance=0.03, level=share_level(20))
# How many rounds of 12 are taken together for one difference of p95, and how many differences
# there are at each look; 130 samples are there after 11 rounds.
GROUP = 2
GROUPS_AT_LOOKS = (0, 0, 6, 9, 12, 17)
GROUPS_AT_EARLY_LOOKS = (0, 0, *GROUPS_AT_LOOKS)

rates = st.floats(1e-4, 0.02)
differences = st.lists(st.floats(-0.3, 0.3), min_size=2, max_size=40)


@lru_cache(maxsize=2)
def duets(setting: str) -> tuple[Logs, Logs]:
    return simulate_duets(SETTINGS[setting], COMPARISONS, rounds=35, turns=12, seed=1)


@cache
def medians(setting: str) -> Floats:
    return round_medians(*duets(setting))


@dataclass(frozen=True, slots=True)
class Rates:
    """The shares of simulated comparisons that ended with each answer."""

    worse: float
    not_worse: float


def schedule_of(
    rule: DuetRule,
    units: Sequence[int] = LOOKS,
    early_units: Sequence[int] | None = None,
    last_rounds: int | None = None,
) -> Schedule:
    """The looks of a comparison that has reached `units`."""
    early = rule.pass_looks if early_units is None else early_units
    alarms = spend_level(rule.looks, tuple(units), rule.level, last_rounds)
    passes = spend_level(rule.pass_looks, tuple(early), rule.pass_level, last_rounds, SOONER)
    patience = spend_level(rule.looks, rule.looks, rule.level)[0].rounds
    return Schedule(alarms, passes, patience)


def judge(values: Floats, ratio: float, schedule: Schedule | None = None) -> Rates:
    """Return the answers of a rule of many looks at this true ratio."""
    schedule = schedule or schedule_of(RULE)
    answer = judge_sequence(values + math.log(ratio), schedule, RULE.margin).answer
    return Rates(float(np.mean(answer > 0)), float(np.mean(answer < 0)))


def most_by_chance(level: float) -> float:
    """Return the limit of the share of errors in 999 of 1,000 simulations if `level` is kept."""
    return float(scipy.stats.binom.ppf(0.999, COMPARISONS, level)) / COMPARISONS


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_errors_keep_the_level(setting: str) -> None:
    """A model is hardly ever called slower than itself.

    At the boundary, with a ratio of just what is allowed, each answer is given as seldom as agreed.
    """
    values = medians(setting)
    at_boundary = judge(values, 1.03)

    assert judge(values, 1.0).worse <= 0.001
    assert at_boundary.worse <= most_by_chance(RULE.level)
    assert at_boundary.not_worse <= most_by_chance(RULE.pass_level)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_level_of_passes_is_not_shared_by_the_cases_of_a_run(setting: str) -> None:
    """In a run of twenty an unchanged model passes, and one at its tolerance seldom does."""
    values = medians(setting)
    at_boundary = judge(values, 1.03, schedule_of(SUITE))

    assert judge(values, 1.0, schedule_of(SUITE)).not_worse >= 0.97
    assert at_boundary.worse <= most_by_chance(SUITE.level)
    assert at_boundary.not_worse <= most_by_chance(SUITE.pass_level)
    assert judge(values, 1.05, schedule_of(SUITE)).not_worse <= 0.005


def test_errors_of_a_tail_keep_the_level() -> None:
    values = group_quantiles(*duets("usual"), share=0.95, rounds=GROUP)
    schedule = schedule_of(RULE, GROUPS_AT_LOOKS, GROUPS_AT_EARLY_LOOKS)
    at_boundary = judge(values, 1.03, schedule)

    assert judge(values, 1.0, schedule).worse <= 0.001
    assert at_boundary.worse <= most_by_chance(RULE.level)
    assert at_boundary.not_worse <= most_by_chance(RULE.pass_level)


@pytest.mark.slow
def test_errors_of_a_figure_of_each_round_keep_the_level() -> None:
    """Times to load, as they are on a busy machine: heavy tails, and the second side is faster.

    The sides are loaded in turn, so the other one is faster in every other round.
    """
    # One of the figures that share a tenth of the level of a case, in a run of five.
    rule = DuetRule(tolerance=0.15, level=share_level(4, 0.1 * share_level(5)))
    random = np.random.default_rng(5)
    noise = 0.15 * random.standard_t(3, size=(2 * COMPARISONS, 35))
    values = noise + 0.05 * (-1.0) ** np.arange(35)
    schedule = schedule_of(rule)

    def judged(ratio: float) -> npt.NDArray[np.int_]:
        return judge_sequence(values + math.log(ratio), schedule, rule.margin).answer

    assert np.mean(judged(1.0) > 0) == 0
    assert np.mean(judged(1.15) > 0) <= scipy.stats.binom.ppf(0.999, len(values), rule.level) / len(
        values
    )
    assert np.mean(judged(1.15) < 0) <= most_by_chance(rule.pass_level)
    assert np.mean(judged(2.0) > 0) >= 0.99


@pytest.mark.parametrize("kinds", [0.0, 0.2])
def test_errors_of_a_figure_of_processes_keep_the_level(kinds: float) -> None:
    """Memory varies by some thousandths, or comes in two kinds of processes a fifth apart."""
    rule = DuetRule(tolerance=0.05, level=share_level(4, 0.1 * share_level(5)))
    random = np.random.default_rng(6)
    shape = (2 * COMPARISONS, MOST_PAIRS)
    sides = [
        0.003 * random.standard_t(3, size=shape) + kinds * random.integers(2, size=shape)
        for _ in range(2)
    ]
    values, schedule = sides[1] - sides[0], plan_processes(rule)

    def judged(ratio: float) -> npt.NDArray[np.int_]:
        return judge_sequence(values + math.log(ratio), schedule, rule.margin).answer

    by_chance = scipy.stats.binom.ppf(0.999, len(values), rule.level) / len(values)
    assert np.mean(judged(1.0) > 0) <= by_chance
    assert np.mean(judged(1.05) > 0) <= by_chance
    if not kinds:
        assert np.mean(judged(1.05) < 0) <= most_by_chance(rule.pass_level)
        assert np.mean(judged(1.0) < 0) >= 0.99
        assert np.mean(judged(1.1) > 0) >= 0.99


@given(
    st.lists(
        st.tuples(st.floats(1.0, 1.0 + KINDS), st.floats(1.0, 1.0 + KINDS)), min_size=2, max_size=4
    ),
    st.floats(1.0, 3.0),
)
def test_large_growth_is_never_what_processes_of_one_model_differ_by(
    kinds: list[tuple[float, float]], growth: float
) -> None:
    rule = DuetRule(tolerance=0.05, level=1e-4)
    found = judge_processes([(1e8 * a, 1e8 * growth * b) for a, b in kinds], rule)
    if found.answer is RatioAnswer.WORSE:
        assert growth > 1.05
    assert (growth < 1.05 * (1 + KINDS) ** 3) or found.answer is RatioAnswer.WORSE


def test_more_pairs_of_processes_than_a_run_takes_are_not_asked_for() -> None:
    pairs = [(1e8, 1e8 * (1.02 + 0.02 * (-1) ** number)) for number in range(MOST_PAIRS)]
    found = judge_processes(pairs, RULE)
    assert (found.answer, found.rounds_needed) == (RatioAnswer.OPEN, None)
    few = judge_processes([(1e8, 1.00e8), (1e8, 1.02e8)], RULE)
    assert known(few.rounds_needed) <= MOST_PAIRS


@given(st.lists(st.tuples(st.floats(1e5, 1e9), st.floats(1e5, 1e9)), min_size=2, max_size=35))
def test_a_figure_of_each_round_is_judged_as_the_median_of_blocks_of_one(
    pairs: list[tuple[float, float]],
) -> None:
    blocks = [
        (Turns(times_ns=(round(before),)), Turns(times_ns=(round(after),)))
        for before, after in pairs
    ]
    rounded = [(float(round(before)), float(round(after))) for before, after in pairs]
    found = judge_once_a_round(rounded, RULE, len(pairs), is_last=True)
    # Modes are a matter of blocks.
    if not has_modes(blocks, RULE.tolerance):
        assert found.answer is judge_duet(blocks, RULE, is_last=True).answer


@pytest.mark.parametrize(
    ("setting", "least"),
    [("quiet", 0.999), ("usual", 0.999), ("autocorrelated", 0.9), ("contaminated", 0.9)],
)
def test_two_percent_beyond_what_is_allowed_is_found(setting: str, least: float) -> None:
    assert judge(medians(setting)[:1000], 1.05).worse >= least


def test_looking_often_without_spending_the_level_errs_too_often() -> None:
    """The simulation would notice: the same test at its full level at each look."""
    careless = Schedule(
        tuple(Look(rounds, rounds, RULE.level) for rounds in RULE.looks),
        tuple(Look(rounds, rounds, RULE.pass_level) for rounds in RULE.pass_looks),
    )
    found = judge(medians("quiet"), 1.03, careless)

    assert found.worse > 2 * most_by_chance(RULE.level)
    assert found.not_worse > 1.5 * most_by_chance(RULE.pass_level)


def test_taking_inferences_as_independent_errs_too_often() -> None:
    """The simulation would notice: the same test with turns for rounds."""
    before, after = (side[:500, :6] for side in duets("noisy"))
    turns = (after - before).reshape(500, -1).astype(np.float64)

    assert np.mean(find_bounds(turns, RULE.level).low > 0.0) > 10 * RULE.level


@pytest.mark.parametrize("processes", [0.01, 0.06])
def test_tests_of_stored_samples_raise_false_alarms(processes: float) -> None:
    """The purpose of the duet: two processes of one model, 100 inferences each."""
    setting = Setting(rounds=0.01, slow=0.06, processes=processes)
    before, after = simulate_stored(setting, comparisons=1000, samples=100, seed=2)

    rank_sum = scipy.stats.mannwhitneyu(after, before, alternative="greater", axis=1).pvalue
    distribution = [
        scipy.stats.ks_2samp(new, old, method="asymp").pvalue
        for new, old in zip(after[:300], before[:300], strict=True)
    ]
    faster = after.min(axis=1) > before.min(axis=1) + math.log(1.05)

    assert np.mean(rank_sum < 0.05) > 0.3
    assert np.mean(np.array(distribution) < 0.05) > 0.6
    # A fixed margin is right as long as processes differ less than that.
    assert np.mean(faster) < 0.01 if processes == 0.01 else np.mean(faster) > 0.15


def as_pairs(before: Logs, after: Logs) -> list[Pair]:
    """The rounds of one comparison in nanoseconds."""
    old, new = (
        np.rint(1e9 * np.exp(side.astype(np.float64))).astype(int) for side in (before, after)
    )
    return [(turns(a.tolist()), turns(b.tolist())) for a, b in zip(old, new, strict=True)]


def turns(times_ns: Sequence[int]) -> Turns:
    return Turns(times_ns=tuple(times_ns))


def duet_with(values: Sequence[float]) -> list[Pair]:
    """Rounds whose sides differ by these logs."""
    return [(turns([10**9] * 3), turns([round(10**9 * math.exp(d))] * 3)) for d in values]


@pytest.mark.parametrize("setting", ["usual", "noisy"])
@pytest.mark.parametrize("percent", [50.0, 95.0])
@pytest.mark.parametrize("ratio", [1.0, 1.05])
def test_the_simulated_rule_is_the_one_that_runs(
    setting: str, percent: float, ratio: float
) -> None:
    before, after = (side[:15] for side in duets(setting))
    after = after + np.float32(math.log(ratio))
    if percent == 50.0:
        values, schedule = round_medians(before, after), schedule_of(RULE)
    else:
        values = group_quantiles(before, after, percent / 100.0, GROUP)
        schedule = schedule_of(RULE, GROUPS_AT_LOOKS, GROUPS_AT_EARLY_LOOKS)
    ended = judge_sequence(values, schedule, RULE.margin)

    for i in range(len(before)):
        decision = judge_duet(as_pairs(before[i], after[i]), RULE, percent, is_last=True)

        assert decision.rounds == ended.rounds[i]
        assert math.log(known(decision.ratio)) == pytest.approx(ended.bounds.centre[i], abs=1e-6)
        assert math.log(known(decision.low)) == pytest.approx(ended.bounds.low[i], abs=1e-6)
        assert math.log(known(decision.high)) == pytest.approx(ended.bounds.high[i], abs=1e-6)
        assert decision.is_open == (ended.answer[i] == 0)


def duet_with_modes(slow_before: float, slow_now: float, seed: int = 0) -> list[Pair]:
    """Rounds of 400 inferences, of which these shares take seven times as long."""
    random = np.random.default_rng(seed)

    def block(share: float) -> Turns:
        is_slow = random.random(400) < share
        times = 10**6 * np.where(is_slow, 7.0, 1.0) * np.exp(random.normal(0.0, 0.02, 400))
        return turns(np.rint(times).astype(int).tolist())

    return [(block(slow_before), block(slow_now)) for _ in range(LOOKS[-1])]


@pytest.mark.parametrize(
    ("before", "now", "answer"),
    [
        (0.4, 0.6, RatioAnswer.WORSE),
        (0.6, 0.4, RatioAnswer.BETTER),
        (0.4, 0.4, RatioAnswer.NOT_WORSE),
    ],
)
def test_a_median_that_moved_to_another_mode_is_seen(
    before: float, now: float, answer: RatioAnswer
) -> None:
    """The typical pair has a quick and a slow inference, in either order: it shows nothing."""
    pairs = duet_with_modes(before, now)
    decision = judge_duet(pairs, RULE, is_last=True)
    assert decision.answer is answer
    assert has_modes(pairs, RULE.tolerance) == (before != now)


@pytest.mark.parametrize("setting", SETTINGS)
def test_noise_alone_seldom_looks_like_modes(setting: str) -> None:
    # A delay that is drawn can be longer than a number of nanoseconds holds.
    before, after = (np.minimum(side[:60], 10.0) for side in duets(setting))
    found = [
        has_modes(as_pairs(old, new), RULE.tolerance)
        for old, new in zip(before, after, strict=True)
    ]
    assert np.mean(found) <= 0.15


def test_an_answer_follows_from_its_interval() -> None:
    for ratio in (0.9, 0.97, 1.0, 1.03, 1.06, 1.2):
        for values in medians("usual")[:20] + math.log(ratio):
            decision = judge_duet(duet_with(values.tolist()), RULE)

            assert decision.high is not None
            has_passed = decision.answer is RatioAnswer.NOT_WORSE
            level = RULE.pass_level if has_passed else RULE.level
            assert decision.confidence == 1.0 - 2.0 * level
            assert decision.answer is (
                RatioAnswer.WORSE
                if known(decision.low) > 1.03
                else RatioAnswer.BETTER
                if decision.high < 1 / 1.03 and not has_passed
                else RatioAnswer.NOT_WORSE
                if decision.high < 1.03
                else RatioAnswer.OPEN
            )


@pytest.mark.slow
@given(st.lists(st.floats(-0.3, 0.3), min_size=6, max_size=40), rates)
def test_swapped_sides_have_the_opposite_answer(values: list[float], level: float) -> None:
    rule = DuetRule(level=level)
    pairs = duet_with(values)
    there = judge_duet(pairs, rule)
    back = judge_duet([(after, before) for before, after in pairs], rule)

    # Not worse can be shown of one side before the other is decided.
    if there.rounds == back.rounds:
        assert (there.answer is RatioAnswer.WORSE) == (back.answer is RatioAnswer.BETTER)
        assert (there.answer is RatioAnswer.BETTER) == (back.answer is RatioAnswer.WORSE)
        is_alike = there.confidence == back.confidence
        if is_alike and there.low is not None and back.high is not None:
            assert there.low == pytest.approx(1.0 / back.high, rel=1e-6)


@given(differences, rates)
def test_an_answer_stays_whatever_comes_after(values: list[float], level: float) -> None:
    rule = DuetRule(level=level)
    pairs = duet_with(values)
    first = judge_duet(pairs, rule)

    if not first.is_open:
        assert judge_duet([*pairs, *duet_with([9.0, -9.0] * 10)], rule, is_last=True) == first


@pytest.mark.slow
@given(
    st.integers(4, 40),
    st.integers(0, 10**6),
    st.floats(-0.15, 0.15),
    st.sampled_from([0.005, 4e-4]),
)
# It passes at a planned look, and the last look for alarms would show an improvement.
@example(rounds=6, seed=6, shift=-0.09375, level=0.005)
def test_an_answer_stays_if_no_more_rounds_come(
    rounds: int, seed: int, shift: float, level: float
) -> None:
    """The last look spends what is left of the level, and takes no answer back."""
    rule = DuetRule(level=level)
    pairs = duet_with(np.random.default_rng(seed).normal(shift, 0.015, rounds).tolist())
    now = judge_duet(pairs, rule)

    if not now.is_open:
        assert judge_duet(pairs, rule, is_last=True) == now


@pytest.mark.parametrize("rounds", [4, 6, 7, 11, 20, 25])
def test_when_time_is_over_the_rest_of_the_level_is_spent(rounds: int) -> None:
    """Less would leave open what is known, and more would break the level."""
    units, early = (
        (*(look for look in looks if look <= rounds), rounds)
        for looks in (RULE.looks, RULE.pass_looks)
    )
    schedule = schedule_of(RULE, units, early, rounds)
    ended = judge(medians("quiet")[:, :rounds], 1.03, schedule)

    assert schedule.in_order()[-1][0].rounds == rounds
    assert 0.5 * RULE.level < ended.worse <= most_by_chance(RULE.level)
    assert 0.5 * RULE.pass_level < ended.not_worse <= most_by_chance(RULE.pass_level)
    if rounds not in RULE.looks:
        assert spend_level(RULE.looks, units[:-1], RULE.level) == schedule.alarms[:-1]


@pytest.mark.parametrize("setting", ["quiet", "usual"])
def test_an_improvement_is_waited_for(setting: str) -> None:
    """A model that is 10 % faster is called improved, though it could pass sooner."""
    improved = judge_sequence(
        medians(setting)[:1000] + math.log(0.9), schedule_of(SUITE), SUITE.margin
    )

    assert np.mean(improved.answer == -2) > 0.9
    assert (
        np.mean(
            judge_sequence(medians(setting)[:1000], schedule_of(SUITE), SUITE.margin).answer == -2
        )
        < 0.001
    )


def test_a_tail_looks_worse_before_it_is_shown_to_be() -> None:
    """A tail that looks worse is measured further; another one is not."""
    worse = duet_with([0.2, 0.21, 0.19, 0.2])

    assert judge_duet(worse, SUITE).is_open
    assert looks_worse(worse, SUITE, 50.0)
    assert not looks_worse(duet_with([0.0, 0.01, -0.01, 0.0]), SUITE, 50.0)
    assert not looks_worse(worse, SUITE, 95.0)
    assert not looks_worse(worse[:1], SUITE, 50.0)


@given(st.integers(2, 14), st.floats(0.001, 0.05))
def test_bounds_are_where_the_test_of_scipy_turns(count: int, level: float) -> None:
    values = np.random.default_rng(count).normal(0.01, 0.02, count)
    low = float(find_bounds(values[np.newaxis], level).low[0])
    in_ranks = 2.0**-count <= level

    def p_value(bound: float) -> float:
        if in_ranks:
            test = scipy.stats.wilcoxon(values - bound, alternative="greater", method="exact")
        else:
            test = scipy.stats.ttest_1samp(values, bound, alternative="greater")
        return float(test.pvalue)

    assert p_value(low - 1e-9) <= level + 1e-6
    assert p_value(low + 1e-9) > level - 1e-6


def test_rounds_that_a_neighbour_disturbed_do_not_move_the_bounds() -> None:
    steady = np.random.default_rng(3).normal(0.0, 0.005, 35)
    disturbed = steady.copy()
    disturbed[:3] += 0.2

    plain = judge_duet(duet_with(steady[::-1].tolist()), DuetRule(looks=(35,)))
    hit = judge_duet(duet_with(disturbed[::-1].tolist()), DuetRule(looks=(35,)))

    assert hit.answer is RatioAnswer.NOT_WORSE
    assert known(hit.high) - known(plain.high) < 0.003


def test_percentiles_are_judged_apart() -> None:
    """A tail that got worse is worse, while the median is as it was."""
    rng = np.random.default_rng(4)
    pairs = []
    for _ in range(35):
        before, after = np.exp(rng.normal(0.0, 0.01, (2, 100)))
        after[:10] *= 1.5
        pairs.append(
            (turns([round(1e7 * t) for t in before]), turns([round(1e7 * t) for t in after]))
        )

    assert judge_duet(pairs, RULE, 50.0).answer is RatioAnswer.NOT_WORSE
    assert judge_duet(pairs, RULE, 95.0).answer is RatioAnswer.WORSE
    assert judge_duet(pairs[:6], RULE, 99.9).samples_needed == needed_samples(99.9)


def test_an_open_answer_says_what_would_help() -> None:
    values = (medians("noisy")[4][:9] + math.log(1.02)).tolist()

    decision = judge_duet(duet_with(values), RULE, is_last=True)

    assert decision.is_open
    assert known(decision.detectable) > 0.03
    assert known(decision.rounds_needed) > 9
    near = judge_duet(duet_with([RULE.margin - 0.02, RULE.margin + 0.02] * 5), RULE, is_last=True)
    assert (near.answer, near.rounds_needed) == (RatioAnswer.OPEN, None)


# Turns that agree exactly.
EQUAL = Turns(times_ns=(1000,) * 30)


def test_rounds_that_agree_exactly_agree_to_a_tick_of_the_clock() -> None:
    pairs = [(EQUAL, EQUAL)] * 35
    decision = judge_duet(pairs, RULE)
    assert decision.answer is RatioAnswer.NOT_WORSE
    assert (decision.low, decision.high) == pytest.approx((1 / 1.001, 1.001))
    ratio = duet_ratio(pairs, 0.95)
    assert (ratio.low, ratio.high) == pytest.approx((1 / 1.001, 1.001))
    assert detectable_change(pairs) == pytest.approx(0.001)


@pytest.mark.parametrize(
    "side",
    [
        pytest.param(replace(EQUAL, tick_ns=100), id="a coarse clock"),
        pytest.param(replace(EQUAL, running_ns=(0,) * 30), id="a process clock that stands still"),
    ],
)
def test_equal_times_of_a_coarse_clock_are_not_evidence(side: Turns) -> None:
    pairs = [(side, side)] * 35
    for percent in (50.0, 95.0):
        assert judge_duet(pairs, RULE, percent, is_last=True).is_open
    assert detectable_change(pairs) > 0.09
    loads = [(1000.0, 1000.0)] * 35
    assert judge_once_a_round(loads, RULE, 35, is_last=True, tick_ns=100).is_open


def test_more_rounds_do_not_help_if_the_clock_is_too_coarse() -> None:
    """A tick widens the interval as noise does, but more rounds do not narrow it again."""
    schedule = Schedule((Look(35, 35, RULE.level),), (Look(35, 35, RULE.pass_level),))
    values = math.log(1.02) + 0.06 * np.linspace(-1.0, 1.0, 35)

    fine, coarse, coarser = (
        judge_differences(values, schedule, RULE, math.log1p(tick)) for tick in (0.0, 0.009, 0.011)
    )

    assert all(found.is_open for found in (fine, coarse, coarser))
    assert fine.rounds_needed == coarse.rounds_needed is not None
    assert coarser.rounds_needed is None


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["quiet", "autocorrelated"])
def test_a_detectable_change_is_detected_nine_times_in_ten(setting: str) -> None:
    """At the median of what 300 runs of 13 rounds say they could see."""
    rule = DuetRule(level=RULE.level, looks=(13,))
    schedule = Schedule(spend_level((13,), (13,), RULE.level), ())
    slower = medians(setting)[:300] + rule.margin
    said = [judge_duet(duet_with(v[:13]), rule).detectable or 0.0 for v in slower]

    found = judge(medians(setting)[:, :13], 1.0 + float(np.median(said)), schedule).worse

    assert 0.83 <= found <= 0.97


def test_the_needs_of_a_tail_are_given_in_rounds() -> None:
    """If two rounds make one difference, twice the rounds are needed."""
    values = [0.0, 0.05, 0.01, 0.06, 0.02, 0.04, 0.03, 0.07]
    single = [
        (turns(before.times_ns * 10), turns(after.times_ns * 10))
        for before, after in duet_with(values)
    ]
    halves = [
        (turns([10**9] * 15), turns(after.times_ns[:15])) for _, after in single for _ in range(2)
    ]

    one = judge_duet(single, DuetRule(looks=(8,)), 95.0)
    two = judge_duet(halves, DuetRule(looks=(16,)), 95.0)

    assert (two.low, two.high) == (one.low, one.high)
    assert (two.rounds, two.rounds_needed) == (16, 2 * known(one.rounds_needed))


def test_rounds_needed_are_about_those_that_decide() -> None:
    """A slowdown of 5 % that stays open after 6 rounds is found in most cases by then."""
    values = medians("autocorrelated")[:200] + math.log(1.05)
    open_ones = []
    for row in values:
        decision = judge_duet(duet_with(row[:6].tolist()), RULE)
        if decision.is_open and decision.rounds_needed is not None:
            open_ones.append(decision.rounds_needed)

    assert len(open_ones) > 100
    assert 13 <= float(np.median(open_ones)) <= 40


def test_few_rounds_say_only_what_they_can() -> None:
    one = judge_duet(duet_with([0.05]), RULE, is_last=True)
    assert (one.answer, one.low, one.detectable) == (RatioAnswer.OPEN, None, None)
    assert one.ratio == pytest.approx(math.exp(0.05))
    assert judge_duet(duet_with([0.5, 0.5, 0.5]), RULE, is_last=True).is_open
    five = judge_duet(duet_with([0.1, 0.101, 0.1, 0.102, 0.1]), RULE, is_last=True)
    assert (five.answer, five.rounds) == (RatioAnswer.WORSE, 5)
    assert judge_duet([], RULE, is_last=True).is_open


def test_two_kinds_of_sessions_do_not_agree_by_chance_into_an_error() -> None:
    """Six rounds whose slower kind fell on one side prove nothing at a level so strict."""
    agreeing = duet_with([0.08, 0.08, 0.0801, 0.08, 0.0799, 0.08])

    assert judge_duet(agreeing, DuetRule(level=0.005)).answer is RatioAnswer.WORSE
    assert judge_duet(agreeing, DuetRule(level=0.0005), is_last=True).answer is RatioAnswer.WORSE
    assert judge_duet(agreeing, DuetRule(level=0.0001), is_last=True).is_open


@pytest.mark.slow
@given(st.lists(st.integers(2, 200), min_size=1, max_size=8, unique=True).map(sorted), rates)
def test_looks_together_spend_no_more_than_the_level(planned: list[int], level: float) -> None:
    looks = spend_level(tuple(planned), tuple(planned), level)

    assert all(0.0 < look.level <= level * (1 + 1e-6) for look in looks)
    assert sum(look.level for look in looks) >= level * (1 - 1e-6) or planned[-1] < 8
    if looks and len(planned) > 1:
        rng = np.random.default_rng(5)
        steps = np.diff([0, *(look.units for look in looks)])
        walk = np.cumsum(rng.normal(0.0, np.sqrt(steps), (COMPARISONS, len(steps))), axis=1)
        scores = walk / np.sqrt([look.units for look in looks])
        crossed = scores > scipy.stats.norm.isf([look.level for look in looks])
        assert crossed.any(axis=1).mean() <= level + 5 * math.sqrt(level / COMPARISONS)


def test_levels_of_the_usual_looks() -> None:
    looks = spend_level(LOOKS, LOOKS, 0.005)

    assert [round(1e5 * look.level) for look in looks] == snapshot([86, 63, 78, 101, 141, 202])
    assert [look.rounds for look in spend_level(LOOKS, LOOKS, 0.0005)] == snapshot(
        [9, 13, 18, 25, 35]
    )
    assert plan_looks(35) == LOOKS
    assert plan_looks(10) == (6, 9, 10)
    assert plan_looks(100) == snapshot((6, 9, 13, 18, 25, 35, 49, 69, 100))


def test_the_level_of_a_run_is_shared() -> None:
    assert share_level(4) == 0.0025
    assert share_level(0) == 0.01


# Budgets


@given(st.floats(0.5, 2.0), rates)
def test_a_budget_is_judged_by_the_whole_interval(limit_ms: float, level: float) -> None:
    rng = np.random.default_rng(6)
    rounds = [
        [round(1e6 * t) for t in np.exp(rng.normal(s, 0.02, 60))]
        for s in (0.0, 0.01, -0.01, 0.02, 0.0)
    ]
    limit = 1e6 * limit_ms

    for percent in (50.0, 90.0):
        decision = judge_percentile(rounds, percent, limit, level)

        assert (decision.answer is BudgetAnswer.OVER) == (known(decision.low) > limit)
        is_below = decision.high is not None and decision.high < limit
        assert (decision.answer is BudgetAnswer.WITHIN) == is_below


def test_a_percentile_without_support_is_open_and_says_what_it_takes() -> None:
    decision = judge_percentile([[100] * 50] * 5, 99.0, limit_ns=1e9, level=0.01)

    assert (decision.answer, decision.value) == (BudgetAnswer.OPEN, None)
    assert decision.samples_needed == needed_samples(99.0)


def test_rounds_that_resemble_themselves_give_a_tail_no_upper_bound() -> None:
    """The largest of few independent samples does not bound a percentile."""
    unlike = [[1000 * r + i for i in range(40)] for r in range(1, 6)]

    decision = judge_percentile(unlike, 95.0, limit_ns=6000.0, level=0.005)

    assert decision.answer is BudgetAnswer.OPEN
    assert decision.high is None
    assert known(decision.samples_needed) > 200


@pytest.mark.parametrize("percent", [90.0, 95.0, 99.0])
def test_a_limit_far_above_every_round_is_kept(percent: float) -> None:
    """Rounds that differ by a tenth say little of the percentile, and enough of ten times it."""
    rounds = [[round(1e6 * 1.1 ** (r % 3)) + i for i in range(80)] for r in range(9)]

    far, near = (judge_percentile(rounds, percent, limit, 1e-3) for limit in (1e7, 1.3e6))

    assert far.answer is BudgetAnswer.WITHIN
    assert far.samples_needed is None
    assert known(far.high) < 1.3e6
    assert (near.answer, near.high) == (BudgetAnswer.OPEN, None)
    assert known(near.samples_needed) > 720


def test_a_limit_far_above_all_samples_is_kept_despite_an_uncertain_percentile() -> None:
    """A noisy moment decides p99, and says nothing of a limit of thousands of times that."""
    rng = np.random.default_rng(3)
    noise = np.exp(np.abs(rng.normal(0.0, [[0.02], [1.0], [0.02], [2.0]], (4, 316))))
    rounds = [[round(160_000 * t) for t in each] for each in noise]
    slowest = max(map(max, rounds))

    far, near = (
        judge_percentile(rounds, 99.0, limit, 0.0005, pass_level=0.005)
        for limit in (5e9, 4.9 * slowest)
    )

    assert (far.answer, far.samples_needed) == (BudgetAnswer.WITHIN, None)
    assert near.answer is BudgetAnswer.OPEN
    assert known(near.samples_needed) > 2 * sum(map(len, rounds))
    broken = judge_percentile([*rounds, [6 * 10**9]], 99.0, 5e9, 0.0005, pass_level=0.005)
    assert broken.answer is BudgetAnswer.OPEN


@pytest.mark.parametrize(("samples", "answer"), [(450, "open"), (459, "within budget")])
def test_none_of_459_samples_above_the_limit_is_enough_for_99_percent(
    samples: int, answer: str
) -> None:
    # Nine tenths of the level are for its own samples.
    decision = judge_percentile([[160_000] * (samples // 9)] * 9, 99.0, 5e9, level=0.01 / 0.9)
    assert (decision.answer.value, decision.value) == (answer, None)


@pytest.mark.parametrize("samples", [120, 130, 400])
def test_more_samples_of_a_single_round_take_no_answer_away(samples: int) -> None:
    """From 130 on there is an estimate of p95, but one round gives no interval."""
    one_round = [[160_000 + i for i in range(samples)]]

    far, near = (
        judge_percentile(one_round, 95.0, limit, 1e-3, pass_level=0.005) for limit in (5e9, 2e5)
    )

    assert (far.answer, far.samples_needed) == (BudgetAnswer.WITHIN, None)
    assert near.answer is BudgetAnswer.OPEN


def test_one_slow_round_in_a_few_takes_the_bound_away() -> None:
    rounds = [[1_000_000 + i for i in range(80)]] * 8
    slow = [9_000_000 + i for i in range(80)]

    assert judge_percentile([*rounds, rounds[0]], 90.0, 1e7, 1e-3).answer is BudgetAnswer.WITHIN
    assert judge_percentile([*rounds, slow], 90.0, 1e7, 1e-3).answer is BudgetAnswer.OPEN


@pytest.mark.parametrize(("share", "count"), [(0.9, 6), (0.99, 9), (0.999, 100)])
def test_the_tolerance_factor_covers_as_often_as_it_says(share: float, count: int) -> None:
    drawn = np.random.default_rng(11).normal(size=(20_000, count))
    bounds = drawn.mean(axis=1) + tolerance_factor(share, 0.01, count) * drawn.std(axis=1, ddof=1)
    missed = np.count_nonzero(bounds < scipy.stats.norm.ppf(share))

    assert abs(missed - 200) < 5 * math.sqrt(200)


@pytest.mark.slow
def test_a_limit_that_a_slow_kind_of_rounds_breaks_is_seldom_kept() -> None:
    """A tenth of the rounds is four times as slow: p95 is theirs, and the limit is below it."""
    rng = np.random.default_rng(12)
    answers = []
    for _ in range(400):
        slow = np.where(rng.random(35) < 0.1, math.log(4.0), 0.0)
        times = np.exp(rng.normal(slow[:, np.newaxis], 0.03, (35, 40)))
        rounds = [[round(1e6 * t) for t in each] for each in times]
        answers.append(judge_percentile(rounds, 95.0, 3.5e6, 0.025).answer)

    assert answers.count(BudgetAnswer.WITHIN) <= scipy.stats.binom.ppf(0.999, 400, 0.05)


@pytest.mark.parametrize("percent", [50.0, 90.0])
def test_a_budget_that_is_just_met_is_seldom_judged(percent: float) -> None:
    """At a limit that is the true percentile both answers are errors, each at most at the level."""
    setting = Setting(rounds=0.01 * math.sqrt(2.0))
    many, _ = simulate_duets(setting, 1, 4000, 40, seed=7)
    limit = 1e7 * math.exp(float(np.quantile(many, percent / 100.0)))
    runs, _ = simulate_duets(setting, 600, 8, 40, seed=8)

    answers = [
        judge_percentile(
            [[round(ns) for ns in times] for times in 1e7 * np.exp(run)], percent, limit, 0.025
        ).answer
        for run in runs
    ]

    for wrong in (BudgetAnswer.OVER, BudgetAnswer.WITHIN):
        assert answers.count(wrong) <= scipy.stats.binom.ppf(0.999, 600, 0.035)


# Implications for other percentiles


ANSWERS = st.builds(
    BudgetDecision,
    answer=st.sampled_from(BudgetAnswer),
    limit=st.just(1.0),
    confidence=st.just(0.99),
    low=st.none() | st.floats(0.1, 10.0),
    high=st.none() | st.floats(0.1, 10.0),
)


@given(ANSWERS, st.lists(ANSWERS), st.lists(ANSWERS))
def test_other_percentiles_never_undo_an_answer_or_widen_an_interval(
    own: BudgetDecision, lower: list[BudgetDecision], higher: list[BudgetDecision]
) -> None:
    found = imply(own, lower, higher)

    if own.answer is not BudgetAnswer.OPEN:
        assert found == own
    elif any(each.answer is BudgetAnswer.OVER for each in lower):
        assert found.answer is BudgetAnswer.OVER
    else:
        is_within = any(each.answer is BudgetAnswer.WITHIN for each in higher)
        assert (found.answer is BudgetAnswer.WITHIN) == is_within
    assert own.low is None or (found.low is not None and found.low >= own.low)
    assert own.high is None or (found.high is not None and found.high <= own.high)
    assert imply(found, lower, higher) == found


@given(
    st.lists(st.lists(st.integers(1, 1000), min_size=1, max_size=40), min_size=1, max_size=9),
    st.floats(0.5, 2000.0),
    rates,
)
@settings(deadline=None)
def test_a_limit_broken_at_a_lower_percentile_is_broken_at_a_higher_one(
    rounds: list[list[int]], limit: float, level: float
) -> None:
    answers = [
        judge_percentile(rounds, percent, limit, level, limited=PERCENTS).answer
        for percent in PERCENTS
    ]

    # From the lowest to the highest: within, then open, then over.
    order = [BudgetAnswer.WITHIN, BudgetAnswer.OPEN, BudgetAnswer.OVER]
    assert answers == sorted(answers, key=order.index)


def test_a_tail_is_over_a_limit_that_the_median_exceeds() -> None:
    """Twenty inferences do not support p95, and show that it is not below p50."""
    rounds = [[200_100_000 + 10_000 * i for i in range(4)] for _ in range(5)]

    found = judge_percentile(rounds, 95.0, 50e6, 0.001)

    assert (found.answer, found.value, found.samples_needed) == (BudgetAnswer.OVER, None, None)
    assert 200e6 < known(found.low) < 200.2e6
    assert judge_percentile(rounds, 95.0, 210e6, 0.001).answer is BudgetAnswer.OPEN


# Few rounds


@pytest.mark.parametrize("count", [2, 3, 5, 10])
@pytest.mark.parametrize(("limit_s", "answer"), [(0.1, "over budget"), (30.0, "within budget")])
def test_few_slow_inferences_decide_a_limit_that_is_far(
    count: int, limit_s: float, answer: str
) -> None:
    one_round = [[3 * 10**9 + 10**6 * (i % 3) for i in range(count)]]

    found = judge_percentile(one_round, 50.0, limit_s * 1e9, 0.0005, 0.004)

    assert found.answer.value == answer
    assert known(found.low) <= 3e9 / 1.25
    assert known(found.high) >= 3e9 * 1.25


@pytest.mark.parametrize("limit_s", [0.7, 2.9, 3.1, 14.0])
def test_few_slow_inferences_decide_no_limit_that_is_near(limit_s: float) -> None:
    one_round = [[3 * 10**9 + 10**6 * (i % 3) for i in range(5)]]

    found = judge_percentile(one_round, 50.0, limit_s * 1e9, 0.0005, 0.004)

    assert (found.answer, found.value) == (BudgetAnswer.OPEN, None)
    assert found.samples_needed == needed_samples(50.0)


def test_one_round_of_many_inferences_has_an_interval_wider_than_sessions_differ() -> None:
    rng = np.random.default_rng(4)
    one_round = [[round(1e6 * t) for t in np.exp(rng.normal(0.0, 0.02, 400))]]

    for percent, limit in ((50.0, 1.3e6), (90.0, 1.4e6), (95.0, 1.4e6)):
        within, near, over = (
            judge_percentile(one_round, percent, each, 0.001).answer
            for each in (limit, 1.02e6, 0.7e6)
        )
        assert (within, near, over) == (BudgetAnswer.WITHIN, BudgetAnswer.OPEN, BudgetAnswer.OVER)


@pytest.mark.parametrize(
    ("shape", "spread", "jitter"),
    [
        *(
            pytest.param((1000, count, 60), 0.04, 0.01, marks=pytest.mark.slow)
            for count in (1, 2, 4)
        ),
        # Five that differ far more than their inferences are all slow once in 32 times.
        ((1000, 5, 20), 0.05, 0.001),
    ],
)
def test_few_sessions_seldom_misjudge_a_limit(
    shape: tuple[int, int, int], spread: float, jitter: float
) -> None:
    """Sessions differ more than their inferences; the limit is the true median."""
    random = np.random.default_rng(10)
    sessions = random.normal(0.0, spread, (*shape[:2], 1))
    runs = 1e7 * np.exp(sessions + random.normal(0.0, jitter, shape))

    answers = [judge_percentile(run.tolist(), 50.0, 1e7, 0.005).answer for run in runs]

    for wrong in (BudgetAnswer.OVER, BudgetAnswer.WITHIN):
        assert answers.count(wrong) <= scipy.stats.binom.ppf(0.999, 1000, 0.005)


def test_figures_with_one_sample_a_round_have_a_budget_too() -> None:
    loads = [101.0, 99.0, 100.0, 102.0, 98.0, 100.0]

    assert judge_typical(loads, 90.0, 0.005).answer is BudgetAnswer.OVER
    assert judge_typical(loads, 110.0, 0.005).answer is BudgetAnswer.WITHIN
    assert judge_typical(loads, 100.5, 0.005).answer is BudgetAnswer.OPEN
    assert judge_typical(loads[:1], 1000.0, 0.005).answer is BudgetAnswer.OPEN
    assert judge_typical([], 1.0, 0.005).value is None


# Stored samples


@pytest.mark.parametrize("spread", [0.02, 0.06, 0.2])
def test_a_further_process_of_the_old_model_does_not_count_as_a_regression(spread: float) -> None:
    """At the boundary, with what is allowed: at most the level."""
    rng = np.random.default_rng(9)
    recorded = rng.normal(0.0, spread, (4000, FEWEST_PROCESSES))
    today = rng.normal(math.log(1.03), spread, 4000)

    answers = [
        judge_stored(np.exp(old).tolist(), math.exp(new), 0.03, 0.025).answer
        for old, new in zip(1.0 + recorded, 1.0 + today, strict=True)
    ]

    assert answers.count(RatioAnswer.WORSE) <= scipy.stats.binom.ppf(0.999, 4000, 0.025)
    # A spread so small that it could be chance is taken for a larger one.
    assert answers.count(RatioAnswer.WORSE) >= 50 or spread == 0.02


def test_stored_processes_show_only_what_their_spread_allows() -> None:
    recorded = [100e6, 103e6, 98e6, 101e6, 99e6]

    assert judge_stored(recorded, 200e6, 0.03, 0.01).answer is RatioAnswer.WORSE
    assert judge_stored(recorded, 106e6, 0.03, 0.01).answer is RatioAnswer.OPEN
    assert judge_stored(recorded, 50e6, 0.03, 0.01).answer is RatioAnswer.BETTER
    few = judge_stored(recorded[:4], 200e6, 0.03, 0.01)
    assert (few.answer, few.low, few.rounds_needed) == (RatioAnswer.OPEN, None, FEWEST_PROCESSES)


def test_rounds_that_are_too_few_for_an_alarm_claim_to_see_nothing() -> None:
    """A pass is looked for sooner than an alarm, so the spread of the rounds is known."""
    strict = DuetRule(tolerance=0.03, level=share_level(20))
    duet = judge_duet(duet_with([0.3, 0.301, 0.3, 0.302]), strict, is_last=True)

    assert (duet.answer, duet.low, duet.detectable) == (RatioAnswer.OPEN, None, None)
    assert duet.rounds_needed is not None


def test_rounds_that_vary_wildly_see_nothing_worth_telling() -> None:
    duet = judge_duet(duet_with([-2.0, 2.5, 0.2, 3.1]), RULE, is_last=True)
    stored = judge_stored([1e6, 9e8, 3e6, 1e9, 2e6], 1e7, 0.03, 0.01)

    assert (duet.answer, duet.detectable) == (RatioAnswer.OPEN, math.inf)
    assert (stored.answer, stored.detectable) == (RatioAnswer.OPEN, math.inf)


def test_stored_processes_that_agree_by_chance_do_not_pretend_to_know() -> None:
    decision = judge_stored([100e6] * 5, 104e6, 0.03, 0.01)

    assert decision.answer is RatioAnswer.OPEN
    assert known(decision.detectable) > 0.1
