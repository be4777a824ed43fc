"""The share of inferences that miss a deadline, and what the slowest of some shows of others."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_modelperf.stats.budgets import (
    judge_misses,
    judge_slowest,
    samples_without_a_miss,
    seen_share,
)
from pytest_modelperf.stats.decisions import BudgetAnswer
from tests.support.known import known

LEVEL, PASS_LEVEL = 0.001, 0.005
Rounds = list[tuple[int, ...]]


def rounds_with(late: int, *, rounds: int = 10, samples: int = 100) -> Rounds:
    """Rounds of 10 ns, with this many inferences of 90 ns in each."""
    return [(*[90] * late, *[10] * (samples - late)) for _ in range(rounds)]


def answer(rounds: Rounds, allowed: float) -> BudgetAnswer:
    return judge_misses(rounds, 50.0, allowed, LEVEL, PASS_LEVEL).answer


def test_a_slowest_inference_may_equal_its_limit() -> None:
    rounds = rounds_with(1)
    assert judge_slowest(rounds, 90.0, LEVEL).answer is BudgetAnswer.WITHIN
    assert judge_slowest(rounds, 89.9, LEVEL).answer is BudgetAnswer.OVER
    assert judge_slowest(rounds, 89.9, LEVEL).value == 90


@pytest.mark.parametrize("samples", [1, 10, 1000, 100_000])
def test_a_share_that_would_have_been_seen_is_missed_with_one_per_cent(samples: int) -> None:
    assert (1.0 - seen_share(samples)) ** samples == pytest.approx(0.01)


@pytest.mark.parametrize("allowed", [0.1, 0.01, 0.001])
def test_the_samples_without_a_miss_are_just_enough(allowed: float) -> None:
    needed = samples_without_a_miss(allowed, PASS_LEVEL)
    shown = rounds_with(0, rounds=6, samples=needed)
    assert answer([each[: needed // 6 + 1] for each in shown], allowed) is BudgetAnswer.WITHIN
    assert answer([each[: needed // 6 - 1] for each in shown], allowed) is BudgetAnswer.OPEN


def test_too_few_samples_are_open_and_say_how_many_decide() -> None:
    found = judge_misses(rounds_with(0), 50.0, 0.001, LEVEL, PASS_LEVEL)
    assert found.answer is BudgetAnswer.OPEN
    assert found.value == 0.0
    assert found.samples_needed == samples_without_a_miss(0.001, PASS_LEVEL)


def test_a_share_far_above_the_allowed_one_is_over_and_one_near_it_is_open() -> None:
    rounds = rounds_with(10)
    assert answer(rounds, 0.03) is BudgetAnswer.OVER
    assert answer(rounds, 0.3) is BudgetAnswer.WITHIN
    assert answer(rounds, 0.1) is BudgetAnswer.OPEN
    assert judge_misses(rounds, 50.0, 0.1, LEVEL, PASS_LEVEL).samples_needed is None


def test_all_late_is_over_and_its_upper_bound_is_one() -> None:
    found = judge_misses(rounds_with(100), 50.0, 0.5, LEVEL, PASS_LEVEL)
    assert found.answer is BudgetAnswer.OVER
    assert found.high == 1.0


def test_late_inferences_of_one_round_count_as_fewer_than_those_spread_over_all() -> None:
    spread = rounds_with(5)
    together = [*rounds_with(50, rounds=1), *rounds_with(0, rounds=9)]
    narrow, wide = (
        judge_misses(each, 50.0, 0.01, LEVEL, PASS_LEVEL) for each in (spread, together)
    )
    assert narrow.value == wide.value
    assert known(wide.low) < known(narrow.low)
    assert known(wide.high) > known(narrow.high)


def test_bounds_of_few_sessions_are_further_away() -> None:
    """One session of 45 ns is not within a deadline of 50 ns: another may take 25 % longer."""
    assert answer([(45,) * 10_000], 0.01) is not BudgetAnswer.WITHIN
    assert answer([(30,) * 10_000], 0.01) is BudgetAnswer.WITHIN
    assert answer([(45,) * 2_000] * 5, 0.01) is BudgetAnswer.WITHIN


def test_a_single_inference_decides_nothing() -> None:
    assert answer([(10,)], 0.01) is BudgetAnswer.OPEN


def test_a_share_at_its_limit_is_seldom_called_over_or_within() -> None:
    random = np.random.default_rng(1)
    answers = [
        answer(
            [tuple(np.where(random.random(200) < 0.02, 90, 10).tolist()) for _ in range(8)], 0.02
        )
        for _ in range(400)
    ]
    assert answers.count(BudgetAnswer.OVER) <= 4
    assert answers.count(BudgetAnswer.WITHIN) <= 10
