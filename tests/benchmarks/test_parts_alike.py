"""The report of parts that did not change: which of them count as an alarm."""

from __future__ import annotations

from typing import Any

import pytest
from parts_alike import expectations
from results import Moment, Result

ROW: dict[str, Any] = {
    "model": "lstm",
    "kernel": "Conv",
    "is_busy": False,
    "answer": "not worse",
    "ratio": 1.0,
    "low": 0.999,
    "high": 1.001,
    "seconds": 3.0,
}


def result(*rows: dict[str, Any]) -> Result:
    now = Moment(0.0, 3.0)
    return Result(
        benchmark="parts_alike",
        command="python benchmarks/parts_alike.py",
        date="2026-01-31T00:00:00+00:00",
        seconds=9.0,
        is_complete=True,
        before=now,
        after=now,
        machine={},
        versions={},
        rows={"parts": rows},
    )


@pytest.mark.parametrize(
    "differing",
    [
        {"answer": "worse"},
        {"answer": "open", "low": 1.0021, "high": 1.004},
        {"answer": "better", "low": 0.995, "high": 0.9979},
    ],
)
def test_a_part_shown_to_differ_in_either_direction_is_an_alarm(differing: dict[str, Any]) -> None:
    (expected,) = expectations(result(ROW, ROW | differing))
    assert (expected.found, expected.is_met) == ("1 of 2", False)


@pytest.mark.parametrize(
    "differing", [{"low": 1.0019, "high": 1.004}, {"low": 0.995, "high": 0.9981}]
)
def test_an_interval_that_reaches_into_the_tolerance_is_no_alarm(differing: dict[str, Any]) -> None:
    (expected,) = expectations(result(ROW, ROW | differing))
    assert (expected.found, expected.is_met) == ("0 of 2", True)
