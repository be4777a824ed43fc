"""A short run of a model that contradicts what was recorded of it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.stats.slowdowns import (
    MachineDrift,
    ShortLook,
    Weighed,
    low_time,
    typical_slowdown,
    weigh,
)

ratios = st.floats(0.3, 3.0)
drifts = st.lists(ratios, max_size=30)
shares = st.floats(0.0, 1.0)


@given(drifts, shares)
def test_a_model_as_fast_as_recorded_is_always_explained(
    others: Sequence[float], taken: float
) -> None:
    assert MachineDrift.of(others).explains(ShortLook(1.0, taken))


@given(ratios, drifts, shares)
def test_an_explained_model_stays_explained_if_faster_or_on_a_busier_machine(
    slowdown: float, others: Sequence[float], taken: float
) -> None:
    if MachineDrift.of(others).explains(ShortLook(slowdown, taken)):
        assert MachineDrift.of(others).explains(ShortLook(slowdown * 0.9, taken))
        assert MachineDrift.of(others).explains(ShortLook(slowdown, min(1.0, taken + 0.1)))


@given(st.lists(ratios, min_size=1, max_size=30), shares, st.randoms())
def test_the_order_of_the_others_does_not_matter(
    others: list[float], taken: float, lot: random.Random
) -> None:
    shuffled = lot.sample(others, len(others))
    assert MachineDrift.of(shuffled).most(taken) == MachineDrift.of(others).most(taken)


@given(st.lists(ratios, min_size=1, max_size=30), st.floats(1.0, 1.5))
def test_more_is_explained_if_the_others_are_slower(others: list[float], by: float) -> None:
    slower = [by * each for each in others]
    assert MachineDrift.of(slower).most() >= MachineDrift.of(others).most() - 1e-12


@given(st.integers(0, 30), st.integers(1, 10))
def test_others_that_run_as_recorded_narrow_what_is_explained(count: int, more: int) -> None:
    assert MachineDrift.of([1.0] * (count + more)).most() < MachineDrift.of([1.0] * count).most()


@given(st.lists(st.floats(0.3, 1.1), max_size=30), shares)
def test_twice_the_time_is_never_explained_by_others_that_ran_as_recorded(
    others: list[float], taken: float
) -> None:
    assert not MachineDrift.of(others).explains(ShortLook(2.0, taken))


@given(st.lists(st.floats(0.9, 1.05), max_size=30))
def test_on_a_quiet_machine_30_percent_are_not_explained(others: list[float]) -> None:
    assert not MachineDrift.of(others).explains(ShortLook(1.3))


@given(st.lists(st.floats(1.4, 1.6), min_size=8, max_size=30), st.floats(1.0, 1.5))
def test_a_machine_on_which_everything_takes_half_as_long_again_raises_no_suspicion(
    others: list[float], slowdown: float
) -> None:
    assert MachineDrift.of(others).explains(ShortLook(slowdown))


def test_one_slow_model_among_others_does_not_make_a_drift() -> None:
    assert not MachineDrift.of([1.0, 1.02, 0.98, 2.1]).explains(ShortLook(2.0))


def test_a_slowdown_of_some_models_does_not_explain_that_of_another() -> None:
    others = [1.0, 1.2, 1.0, 1.18, 1.2, 1.02, 1.15, 1.2]
    assert not MachineDrift.of(others).explains(ShortLook(1.25))


def test_a_single_other_model_explains_less_than_its_own_slowdown() -> None:
    assert 1.2 < MachineDrift.of([1.2]).most() < 1.2 * MachineDrift.of([]).most()


# -- looks


def counted(slowdowns: Sequence[float], taken: list[float]) -> Iterator[ShortLook]:
    for slowdown in slowdowns:
        taken.append(slowdown)
        yield ShortLook(slowdown)


@pytest.mark.parametrize(
    ("slowdowns", "expected", "looks"),
    [
        ([1.0, 9.0], Weighed(1.0, is_explained=True), 1),
        ([1.6, 1.05], Weighed(1.05, is_explained=True), 2),
        ([1.6, 1.5], Weighed(1.5, is_explained=False), 2),
    ],
)
def test_another_look_is_taken_only_while_none_is_explained(
    slowdowns: Sequence[float], expected: Weighed, looks: int
) -> None:
    taken: list[float] = []
    assert weigh(counted(slowdowns, taken), MachineDrift()) == expected
    assert len(taken) == looks


def test_in_a_suite_on_a_noisy_machine_hardly_any_model_is_suspected() -> None:
    """Processes of one model differ by 6 %, days by 10 %; each case has two looks."""
    lot = random.Random(1)
    suspected = runs = 0
    for _ in range(200):
        drift, others = lot.gauss(0.0, 0.1), list[float]()
        for _ in range(20):
            looks = (ShortLook(math.exp(drift + lot.gauss(0.0, 0.06))) for _ in range(2))
            weighed = weigh(looks, MachineDrift.of(others))
            others.append(weighed.slowdown)
            suspected += not weighed.is_explained
            runs += 1
    assert suspected / runs < 0.02


# -- the time of a process


@given(
    st.lists(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), min_size=1, max_size=6),
    st.integers(1, 10**6),
)
def test_a_time_is_one_of_a_round_and_moves_with_all_times(
    rounds: list[list[int]], factor: int
) -> None:
    found = low_time(rounds)
    assert min(map(min, rounds)) <= found <= min(map(max, rounds))
    longer = [[factor * ns for ns in times] for times in rounds]
    assert low_time(longer) == pytest.approx(factor * found)


def test_interruptions_do_not_make_a_process_slow() -> None:
    calm = [100 + number % 7 for number in range(100)]
    held_up = [ns if number % 3 == 0 else 50 * ns for number, ns in enumerate(calm)]
    assert low_time([held_up, calm]) == pytest.approx(low_time([calm]), rel=0.05)
    assert low_time([held_up]) == pytest.approx(low_time([calm]), rel=0.05)


def test_without_others_nothing_has_drifted() -> None:
    assert typical_slowdown([]) == 1.0
    assert typical_slowdown([1.2, 1.1, 3.0]) == 1.2
