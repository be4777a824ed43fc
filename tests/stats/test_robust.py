"""Figures that a few disturbed times hardly move: undisturbed times and slopes."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given

from pytest_modelperf.stats.robust import CalmTime, SteppedTimes, calm_time, slope_of
from tests.support.known import known

_TIMES = st.lists(st.floats(1.0, 1e9), min_size=1, max_size=60)


def test_runs_that_were_held_up_do_not_count() -> None:
    calm = [100.0, 101.0, 102.0, 103.0]
    assert calm_time([*calm, *[150.0 + n for n in range(12)]], 0) == pytest.approx(101.5)


def test_without_disturbances_it_is_the_median() -> None:
    runs = np.random.default_rng(1).normal(100.0, 2.0, 101).tolist()
    assert calm_time(runs, 0) == pytest.approx(float(np.median(runs)))


def test_neighbouring_ticks_of_a_coarse_clock_are_not_distinguished() -> None:
    assert calm_time([1000.0] * 5 + [2000.0] * 5, 1000) == pytest.approx(1500.0, abs=1.0)


@given(_TIMES, st.floats(1e-3, 1e3))
def test_the_calm_time_is_among_the_shorter_runs_and_scales_with_them(
    runs: list[float], factor: float
) -> None:
    found = calm_time(runs, 0)
    assert min(runs) <= found <= max(float(np.median(runs)), 1.25 * min(runs))
    assert calm_time([factor * run for run in runs], 0) == pytest.approx(factor * found)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_the_interval_of_a_mean_is_that_of_student(values: list[float]) -> None:
    count = len(values)
    error = float(np.std(values, ddof=1)) / count**0.5
    wanted = error * scipy.stats.t.ppf(0.995, count - 1)
    doubts = CalmTime(0.0, tuple(values)).doubts(0.99)
    assert np.linalg.norm(doubts) == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("sessions", [(20, 20, 20), (20, 20, 20, 20, 20), (1, 1, 1)])
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.04])
def test_an_interval_holds_the_time_as_often_as_it_says(
    sessions: tuple[int, ...], spread: float
) -> None:
    """However much sessions differ: 99 % of the intervals, less what 400 of them vary by chance."""
    random = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        logs = [random.normal(random.normal(0.0, spread), 0.01, runs) for runs in sessions]
        time = CalmTime.of(
            np.exp(np.concatenate(logs)).tolist(), sessions, lambda r: calm_time(r, 0)
        )
        hits += bool(abs(time.ns - 1.0) <= np.linalg.norm(time.doubts(0.99)))
    assert hits >= 0.97 * 400


@pytest.mark.parametrize("sessions", [(), (40,), (20, 20), (20, 10, 5)])
def test_too_few_sessions_or_other_runs_give_no_error_of_a_time(
    sessions: tuple[int, ...],
) -> None:
    assert CalmTime.of([1.0, 2.0] * 20, sessions, max).doubts(0.99) == ()


def test_the_doubt_of_a_sum_is_that_of_its_parts_session_by_session() -> None:
    """Time that one kernel loses to another in a session does not make their sum uncertain."""
    runs, sessions = [1.0, 2.0, 3.0, 4.0, 5.0], (1,) * 5
    one, other = (CalmTime.of(each, sessions, np.mean) for each in (runs, runs[::-1]))
    assert np.linalg.norm(one.doubts(0.99)) > 1.0
    assert np.linalg.norm(CalmTime.sum([one, other]).doubts(0.99)) == pytest.approx(0.0, abs=1e-9)


def test_the_least_time_is_the_least_in_each_session_too() -> None:
    """A session in which one of two ways was disturbed says nothing against the least of both."""
    one, other = CalmTime(1.0, (1.0, 1.1, 9.0)), CalmTime(1.2, (1.2, 1.3, 1.1))
    assert CalmTime.least([one, other]) == CalmTime(1.0, (1.0, 1.1, 1.1))
    assert CalmTime.least([one, CalmTime(0.5)]).doubts(0.99) == ()
    assert CalmTime.least([]) == CalmTime(0.0)


def rounds_of(  # noqa: PLR0913  # each is one thing that rounds vary by
    slope: float, steps: int, *, count: int, block: int, seed: int, noise: float = 0.0
) -> list[SteppedTimes]:
    """Rounds that begin at different steps, each with a level of its own and disturbed times."""
    random = np.random.default_rng(seed)
    rounds = []
    for _ in range(count):
        first = int(random.integers(steps))
        at = (first + np.arange(block)) % steps
        level = 1e6 * (1.0 + noise * random.normal())
        times = level + slope * at + 1e6 * noise * random.exponential(size=block)
        rounds.append(SteppedTimes(first, [round(ns) for ns in times]))
    return rounds


@given(
    slope=st.floats(0.0, 5000.0),
    steps=st.integers(2, 16),
    block=st.integers(2, 40),
    seed=st.integers(0, 100),
)
def test_without_noise_the_slope_is_that_of_the_steps(
    slope: float, steps: int, block: int, seed: int
) -> None:
    found = slope_of(rounds_of(slope, steps, count=8, block=block, seed=seed), steps, 0.95)
    # All rounds can be at one step.
    if found is not None:
        assert found.ns_per_step == pytest.approx(slope, abs=1.0)


@pytest.mark.slow
def test_the_interval_has_the_true_slope_about_as_often_as_it_says() -> None:
    hits = 0
    for seed in range(400):
        found = slope_of(rounds_of(2000.0, 64, count=12, block=12, seed=seed, noise=0.01), 64, 0.9)
        assert found is not None
        hits += found.low <= 2000.0 <= found.high
    assert 0.85 <= hits / 400 <= 0.95


def test_a_few_disturbed_inferences_do_not_make_a_slope() -> None:
    rounds = rounds_of(0.0, 64, count=8, block=256, seed=1)
    late = [
        SteppedTimes(
            each.first_step,
            [
                ns * 20 if (each.first_step + at) % 64 == 60 and at > 200 else ns
                for at, ns in enumerate(each.times_ns)
            ],
        )
        for each in rounds
    ]
    found = known(slope_of(late, 64, 0.95))
    assert abs(found.ns_per_step) < 1.0


def test_after_the_last_step_comes_the_first() -> None:
    times = [1000, 3000, 2000, 1000, 3000, 2000]
    # Steps 0, 2, 1 in that order would have no such slope.
    rounds = [SteppedTimes(2, [3000, 1000, 2000]), SteppedTimes(1, [2000, 3000, 1000])] * 2
    found = known(slope_of(rounds, 3, 0.95))
    assert found.ns_per_step == pytest.approx(1000.0)
    other = known(slope_of([SteppedTimes(0, times)] * 3, 3, 0.95))
    assert other.ns_per_step == pytest.approx(500.0)


@pytest.mark.parametrize(
    ("rounds", "steps"),
    [
        ([SteppedTimes(0, [1, 2, 3])] * 2, 3),
        ([SteppedTimes(0, [1, 2, 3])] * 5, 1),
        ([SteppedTimes(4, [7])] * 5, 9),
    ],
    ids=["few rounds", "one step", "one length"],
)
def test_an_undetermined_slope_is_none(rounds: list[SteppedTimes], steps: int) -> None:
    assert slope_of(rounds, steps, 0.95) is None
