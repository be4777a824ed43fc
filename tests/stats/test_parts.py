"""A model is judged by the parts that changed, unless the whole contradicts them."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_modelperf.stats.decisions import RatioAnswer
from pytest_modelperf.stats.duet import DuetRule, find_bounds, median_differences
from pytest_modelperf.stats.parts import (
    PartRound,
    judge_parts,
    judge_whole_and_parts,
    paired_shift,
    part_figures,
    part_share,
    time_whole,
)
from pytest_modelperf.stats.records import PartTurns, Turns
from tests.support.known import known

WHOLE = 10_000_000
PART = 500_000
RULE = DuetRule(tolerance=0.03, level=0.005)
TURNS = 9


def turns(centre: float, random: np.random.Generator, spread: float = 0.01) -> Turns:
    times = centre * np.exp(spread * random.standard_normal(TURNS))
    return Turns(times_ns=tuple(int(time) for time in times))


def rounds(  # noqa: PLR0913  # what each of four figures is, and how they vary
    count: int,
    *,
    shift: float,
    alone: float | None = None,
    whole: float | None = None,
    cold_share: float = 1.0,
    spread: float = 0.01,
    seed: int = 0,
) -> list[PartRound]:
    """Rounds whose part takes `shift` of the model longer in place, `alone` by itself."""
    random = np.random.default_rng(seed)
    alone = shift if alone is None else alone
    whole = shift if whole is None else whole
    found = []
    for _ in range(count):
        pair = turns(WHOLE, random), turns(WHOLE * (1 + whole), random)
        before = PartTurns(in_place=turns(PART, random, spread), alone=turns(PART, random, spread))
        after = PartTurns(
            in_place=turns(PART + shift * WHOLE, random, spread),
            alone=turns(PART + alone * WHOLE, random, spread),
            cold_share=cold_share,
        )
        found.append(PartRound(pair, (before,), (after,)))
    return found


@pytest.mark.parametrize(
    ("shift", "answer"),
    [
        (0.0, RatioAnswer.NOT_WORSE),
        (0.025, RatioAnswer.NOT_WORSE),
        (0.035, RatioAnswer.WORSE),
        (-0.05, RatioAnswer.BETTER),
    ],
)
def test_a_small_change_of_a_part_is_distinguished_from_the_allowed_one(
    shift: float, answer: RatioAnswer
) -> None:
    found = judge_parts(rounds(9, shift=shift), RULE, is_last=True)
    assert found.answer is answer
    assert found.ratio == pytest.approx(1 + shift, abs=0.002)
    assert known(found.low) <= 1 + shift <= known(found.high)


def test_a_fifth_of_a_percent_is_seen() -> None:
    found = judge_parts(
        rounds(9, shift=0.005), DuetRule(tolerance=0.002, level=0.005), is_last=True
    )
    assert found.answer is RatioAnswer.WORSE


def test_a_difference_in_place_only_leaves_the_case_open() -> None:
    found = judge_parts(rounds(9, shift=0.04, alone=0.02), RULE, is_last=True)
    assert found.answer is RatioAnswer.OPEN
    assert known(found.low) < 1.02
    assert known(found.high) > 1.04


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_figure_is_in_place_as_far_as_memory_is_in_no_cache(share: float) -> None:
    made = rounds(9, shift=0.04, alone=0.02, cold_share=share)
    expected = 0.02 + share * 0.02
    found = judge_parts(made, DuetRule(tolerance=0.01, level=0.005), is_last=True)
    (figure,) = part_figures(made, 0.005)
    assert found.answer is RatioAnswer.WORSE
    assert found.ratio == pytest.approx(1 + expected, abs=0.002)
    assert known(found.low) < 1.02
    assert known(found.high) > 1.04
    assert figure.shift_ns == pytest.approx(expected * WHOLE, rel=0.1)
    assert figure.low_ns < 0.02 * WHOLE
    assert figure.high_ns > 0.04 * WHOLE


def test_a_whole_that_contradicts_its_parts_decides() -> None:
    found = judge_whole_and_parts(rounds(9, shift=0.0, whole=0.1), RULE, is_last=True)
    assert not found.is_by_parts
    assert found.contradiction == pytest.approx(1.1, abs=0.02)
    assert found.decision.answer is RatioAnswer.WORSE


def test_a_whole_within_one_percent_of_its_parts_contradicts_nothing() -> None:
    found = judge_whole_and_parts(rounds(9, shift=0.0, whole=0.008), RULE, is_last=True)
    assert found.is_by_parts
    assert found.decision.answer is RatioAnswer.NOT_WORSE


@pytest.mark.parametrize(("count", "contradicts"), [(4, False), (6, True)])
def test_a_contradiction_is_shown_at_a_tenth_of_the_level(
    count: int,
    contradicts: bool,  # noqa: FBT001  # a parameter of a test
) -> None:
    made = rounds(count, shift=0.0, whole=0.08)
    found = find_bounds(median_differences([each.whole for each in made], 0.03), RULE.level)
    assert found.low > 0.02
    assert (judge_whole_and_parts(made, RULE).contradiction is not None) is contradicts


def test_the_whole_decides_what_its_parts_leave_open() -> None:
    found = judge_whole_and_parts(rounds(9, shift=0.06, alone=0.0, whole=0.06), RULE, is_last=True)
    assert not found.is_by_parts
    assert found.contradiction is None
    assert found.decision.answer is RatioAnswer.WORSE


def test_both_ways_together_keep_the_level() -> None:
    """The parts and the whole have half of it each, so that one of them may err."""
    found = judge_whole_and_parts(rounds(9, shift=0.0), RULE, is_last=True)
    assert found.decision.confidence == pytest.approx(1 - RULE.pass_level)


@pytest.mark.slow
def test_false_alarms_of_a_change_just_at_the_tolerance_keep_the_level() -> None:
    rule = DuetRule(tolerance=0.03, level=0.05)
    alarms = sum(
        judge_whole_and_parts(
            rounds(9, shift=0.03, spread=0.1, seed=seed), rule, is_last=True
        ).decision.answer
        is RatioAnswer.WORSE
        for seed in range(300)
    )
    # 25 or more of 300 would come by chance in one of a hundred.
    assert alarms < 25


def test_pairs_that_another_process_disturbed_do_not_count() -> None:
    before = Turns(times_ns=(100, 100, 100, 100, 100, 100, 100), switches=(0, 0, 1, 0, 0, 0, 0))
    after = Turns(times_ns=(110, 110, 900, 112, 110, 112, 112), switches=(0, 0, 0, 0, 0, 0, 0))
    assert paired_shift(before, after) == 11


def test_a_few_pairs_have_no_median_because_threads_that_wake_late_may_slow_most_of_them() -> None:
    before = Turns(times_ns=(100, 101, 102), switches=(0, 0, 0))
    after = Turns(times_ns=(3700, 130, 2900), switches=(0, 0, 0))
    assert paired_shift(before, after) == 30


def test_each_side_of_a_few_pairs_has_its_undisturbed_runs() -> None:
    before = Turns(times_ns=(90, 100, 101, 500), switches=(1, 0, 0, 0))
    after = Turns(times_ns=(700, 125, 130, 130), switches=(0, 1, 0, 0))
    assert paired_shift(before, after) == 30


def test_if_no_run_is_undisturbed_each_side_has_a_quantile_of_its_own() -> None:
    before = Turns(times_ns=(100, 400, 400, 500), switches=(1, 1, 1, 1))
    after = Turns(times_ns=(700, 130, 600, 600), switches=(1, 1, 1, 1))
    assert paired_shift(before, after) == 30


def test_waiting_for_a_processor_does_not_count_as_time_of_a_part() -> None:
    before = Turns(times_ns=(100,) * 3, running_ns=(100,) * 3)
    after = Turns(times_ns=(150,) * 3, running_ns=(104,) * 3)
    assert paired_shift(before, after) == 4


def test_each_part_has_figures_of_its_own() -> None:
    made = [
        PartRound(each.whole, each.before * 2, (each.before[0], each.after[0]))
        for each in rounds(9, shift=0.04)
    ]
    same, slower = part_figures(made, 0.005)
    assert same.shift_ns == 0
    assert slower.shift_ns == pytest.approx(0.04 * WHOLE, rel=0.1)
    assert slower.low_ns < 0.04 * WHOLE < slower.high_ns
    assert slower.after_ns - slower.before_ns == pytest.approx(0.04 * WHOLE, rel=0.1)


def test_the_share_of_the_parts_is_that_of_the_side_where_it_is_larger() -> None:
    assert part_share(rounds(3, shift=0.0)) == pytest.approx(0.05, rel=0.05)
    assert part_share(rounds(3, shift=0.3, whole=0.3)) == pytest.approx(0.35 / 1.3, rel=0.05)


def disturbed(whole: float, spread: float, random: np.random.Generator) -> Turns:
    """Turns of two threads that each wait for half of the time, and never run undisturbed."""
    found = turns(4 * whole, random, spread)
    return Turns(
        times_ns=found.times_ns,
        running_ns=tuple(time // 10 for time in found.times_ns),
        unstalled_ns=tuple(time // 2 for time in found.times_ns),
    )


def busy_rounds(count: int, *, shift: float) -> list[PartRound]:
    """Rounds of two busy processors: the parts ran undisturbed, and the whole models never."""
    random = np.random.default_rng(1)
    return [
        PartRound(
            (disturbed(WHOLE, 0.1, random), disturbed(WHOLE * (1 + shift), 0.1, random)),
            each.before,
            each.after,
        )
        for each in rounds(count, shift=shift)
    ]


def test_the_time_of_the_whole_is_between_waits_at_once_and_one_after_the_other() -> None:
    found = time_whole(busy_rounds(9, shift=0.0))
    assert found.low_ns == pytest.approx(WHOLE, rel=0.05)
    assert found.high_ns == pytest.approx(2 * WHOLE, rel=0.05)
    assert found.likely_ns == pytest.approx(1.41 * WHOLE, rel=0.05)


@pytest.mark.parametrize(
    ("shift", "answer"),
    [
        (0.01, RatioAnswer.NOT_WORSE),
        # Half of it, as a share of the longest time that the whole may take, would be allowed.
        (0.03, RatioAnswer.OPEN),
        (0.05, RatioAnswer.OPEN),
        (0.07, RatioAnswer.WORSE),
    ],
)
def test_on_busy_processors_an_answer_holds_for_both_bounds_of_the_whole(
    shift: float, answer: RatioAnswer
) -> None:
    found = judge_parts(busy_rounds(12, shift=shift), RULE, is_last=True)
    assert found.answer is answer
    assert known(found.low) <= 1 + shift <= known(found.high)


def test_undisturbed_turns_among_many_give_the_time_of_the_whole() -> None:
    times = (WHOLE, *(2 * WHOLE,) * 8)
    waited = Turns(times_ns=times, running_ns=(WHOLE,) * 9, unstalled_ns=(2 * WHOLE,) * 9)
    usual = rounds(5, shift=0.0)
    busy = [PartRound((waited, each.whole[1]), each.before, each.after) for each in usual]
    found = time_whole(busy)
    assert found.low_ns == found.high_ns == pytest.approx(WHOLE, rel=0.05)


def test_the_whole_is_timed_without_disturbances() -> None:
    usual = rounds(5, shift=0.0)
    disturbed = Turns(times_ns=(WHOLE, WHOLE, WHOLE, 3 * WHOLE, 3 * WHOLE))
    busy = [PartRound((disturbed, each.whole[1]), each.before, each.after) for each in usual]
    assert time_whole(busy).likely_ns == pytest.approx(WHOLE)
