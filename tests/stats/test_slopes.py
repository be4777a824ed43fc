"""How much longer each step takes: the slope, and how often its interval has the true one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.stats.robust import SteppedTimes, slope_of


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
    # All rounds can lie at one step.
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
    found = slope_of(late, 64, 0.95)
    assert found is not None
    assert abs(found.ns_per_step) < 1.0


def test_after_the_last_step_comes_the_first() -> None:
    times = [1000, 3000, 2000, 1000, 3000, 2000]
    # Steps 0, 2, 1 in that order would have no such slope.
    rounds = [SteppedTimes(2, [3000, 1000, 2000]), SteppedTimes(1, [2000, 3000, 1000])] * 2
    found = slope_of(rounds, 3, 0.95)
    assert found is not None
    assert found.ns_per_step == pytest.approx(1000.0)
    other = slope_of([SteppedTimes(0, times)] * 3, 3, 0.95)
    assert other is not None
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
def test_a_slope_that_nothing_tells_is_none(rounds: list[SteppedTimes], steps: int) -> None:
    assert slope_of(rounds, steps, 0.95) is None
