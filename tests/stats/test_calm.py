"""What something takes undisturbed, and how sure that is."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given

from pytest_modelperf.stats.calm import CalmTime, calm_time, make_blocks

_TIMES = st.lists(st.floats(1.0, 1e9), min_size=1, max_size=60)


def test_runs_that_were_held_up_do_not_count() -> None:
    calm = [100.0, 101.0, 102.0, 103.0]
    assert calm_time([*calm, *[150.0 + n for n in range(12)]], 0) == pytest.approx(101.5)


def test_without_disturbances_it_is_the_median() -> None:
    runs = np.random.default_rng(1).normal(100.0, 2.0, 101).tolist()
    assert calm_time(runs, 0) == pytest.approx(float(np.median(runs)))


def test_neighbouring_ticks_of_a_coarse_clock_are_not_told_apart() -> None:
    assert calm_time([1000.0] * 5 + [2000.0] * 5, 1000) == pytest.approx(1500.0, abs=1.0)


@given(_TIMES, st.floats(1e-3, 1e3))
def test_it_is_one_of_the_shorter_runs_and_scales_with_them(
    runs: list[float], factor: float
) -> None:
    found = calm_time(runs, 0)
    assert min(runs) <= found <= max(float(np.median(runs)), 1.25 * min(runs))
    assert calm_time([factor * run for run in runs], 0) == pytest.approx(factor * found)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_blocks_hold_each_run_once_and_none_of_two_sessions(sessions: list[int]) -> None:
    blocks = make_blocks(sessions)
    assert [i for b in blocks for i in range(b.start, b.stop)] == list(range(sum(sessions)))
    ends = np.cumsum(sessions).tolist()
    assert not any(block.start < end < block.stop for block in blocks for end in ends)


def test_a_single_session_is_cut_into_blocks() -> None:
    assert len(make_blocks([100])) == 5
    assert len(make_blocks([3])) == 3
    assert len(make_blocks([20] * 5)) == 5


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_the_interval_of_a_mean_is_that_of_student(values: list[float]) -> None:
    count = len(values)
    replicates = tuple((sum(values) - value) / (count - 1) for value in values)
    error = float(np.std(values, ddof=1)) / count**0.5
    wanted = error * scipy.stats.t.ppf(0.995, count - 1)
    doubts = CalmTime(0.0, replicates).doubts(0.99)
    assert np.linalg.norm(doubts) == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def test_a_single_block_does_not_tell_how_sure_a_time_is() -> None:
    assert CalmTime.of([1.0], make_blocks([1]), max).doubts(0.99) == ()


def test_the_doubt_of_a_sum_is_that_of_its_parts_run_by_run() -> None:
    """What one kernel loses to another in a run is no doubt of both together."""
    runs = [1.0, 2.0, 3.0, 4.0, 5.0]
    blocks = make_blocks([5])
    one, other = (CalmTime.of(each, blocks, np.mean) for each in (runs, runs[::-1]))
    assert np.linalg.norm(one.doubts(0.99)) > 1.0
    assert np.linalg.norm(CalmTime.sum([one, other]).doubts(0.99)) == pytest.approx(0.0, abs=1e-9)
