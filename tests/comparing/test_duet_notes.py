"""The notes below the figures of a duet."""

from __future__ import annotations

import pytest

from pytest_modelperf.comparing.duet_notes import describe_factor


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (0.3, "70 % less time on this machine than"),
        (0.994, "1 % less time on this machine than"),
        (0.996, "as long on this machine as"),
        (1.004, "as long on this machine as"),
        (1.05, "5 % longer on this machine than"),
        (1.994, "99 % longer on this machine than"),
        (2.0, "2.0 times as long on this machine as"),
        (12.34, "12.3 times as long on this machine as"),
    ],
)
def test_a_factor_is_a_percentage_until_it_is_twice(factor: float, words: str) -> None:
    assert describe_factor(factor) == words
