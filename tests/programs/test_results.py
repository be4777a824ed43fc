"""Results of two versions: equal or not, and the first place at which they differ."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_modelperf.programs.station.callee import first_difference


class _Page:
    def __init__(self, text: str) -> None:
        self.text = text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": [1, (2.0, "x")]}, {"a": [1, (2.0, "x")]}),
        (float("nan"), float("nan")),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan])),
        (np.array(["a", "b"]), np.array(["a", "b"])),
        (_Page("x"), _Page("x")),
        (None, None),
    ],
)
def test_equal_results(before: object, after: object) -> None:
    assert first_difference(before, after, is_close=False) is None


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        ({"a": [1, 2]}, {"a": [1, 3]}, "the result['a'][1] was 2 and is 3 now"),
        ([1], [1, 2], "the result had 1 items and has 2 now"),
        ({"a": 1}, {"b": 1}, "the result has other keys: ['a'] before, ['b'] now"),
        (_Page("x"), _Page("y"), "the result['text'] was 'x' and is 'y' now"),
        (1.0, float("nan"), "the result was 1.0 and is nan now"),
        (
            np.zeros((2, 3), np.float32),
            np.zeros((2, 4), np.float32),
            "the result was [2, 3] float32 and is [2, 4] float32 now",
        ),
    ],
)
def test_the_first_difference_is_named(before: object, after: object, difference: str) -> None:
    for is_close in (False, True):
        assert first_difference(before, after, is_close=is_close) == difference


def test_close_numbers_are_equal_only_if_that_is_asked_for() -> None:
    for before, after in ((1.0, 1.0 + 1e-9), (np.array([1.0]), np.array([1.0 + 1e-9]))):
        assert first_difference(before, after, is_close=True) is None
        assert first_difference(before, after, is_close=False) is not None
