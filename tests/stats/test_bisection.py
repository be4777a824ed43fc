"""A bisect divides its error level among comparisons, and its range near the middle."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.stats.decisions import SearchLevels, middle_change, series_share


@given(st.integers(2, 10_000), st.floats(1e-6, 0.05), st.integers(1, 3_000))
def test_any_number_of_comparisons_keeps_the_level(versions: int, level: float, count: int) -> None:
    levels = SearchLevels(versions, level)
    spent = sum(levels.of(number) for number in range(1, count + 1))
    assert spent <= level * (1 + 1e-9)


@pytest.mark.parametrize(
    ("versions", "planned"), [(2, 2), (3, 3), (4, 4), (5, 4), (9, 5), (12, 6), (1025, 12)]
)
def test_the_planned_number_of_comparisons_is_that_of_halving(versions: int, planned: int) -> None:
    assert SearchLevels(versions, 0.01).planned == planned


def test_planned_comparisons_have_equal_levels_and_later_ones_ever_less() -> None:
    levels = SearchLevels(12, 0.01)
    shares = [levels.of(number) for number in range(1, 20)]
    assert len(set(shares[: levels.planned])) == 1
    assert all(one > other for one, other in itertools.pairwise(shares[levels.planned - 1 :]))


def test_the_shares_of_the_series_add_up_to_the_whole() -> None:
    shares = [series_share(number) for number in range(1, 10_000)]
    assert 0.999 < sum(shares) < 1.0


@given(st.floats(1.0, 100.0))
def test_the_middle_is_as_far_from_both_ends(ratio: float) -> None:
    middle = 1 + middle_change(ratio)
    assert math.isclose(middle, ratio / middle)
