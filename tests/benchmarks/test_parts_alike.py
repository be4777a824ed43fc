"""Parts that did not change: how many are drawn, and which of them count as an alarm."""

from __future__ import annotations

from itertools import chain, repeat
from typing import Any

import pytest
from parts_alike import expectations, tables, take
from results import Moment, Result

ROW: dict[str, Any] = {
    "model": "lstm",
    "kernel": "Conv",
    "is_busy": False,
    "is_too_large": False,
    "answer": "not worse",
    "ratio": 1.0,
    "low": 0.999,
    "high": 1.001,
    "seconds": 3.0,
}
TOO_LARGE = {"model": "lstm", "kernel": "LSTM", "is_busy": False, "is_too_large": True}


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


def test_a_model_is_given_up_after_twenty_draws_in_a_row_that_are_too_large() -> None:
    assert take(repeat(TOO_LARGE), 2) == [TOO_LARGE] * 20
    draws = [*[TOO_LARGE] * 19, ROW, *[TOO_LARGE] * 19, ROW]
    assert take(chain(draws, repeat(TOO_LARGE)), 2) == draws
    assert take(chain(draws, repeat(TOO_LARGE)), 3) == [*draws, *[TOO_LARGE] * 20]


def test_a_model_whose_parts_are_all_too_large_has_a_line_and_shows_nothing() -> None:
    found = result(*[TOO_LARGE] * 20)
    assert tables(found)["parts alike"].splitlines()[-1] == (
        "| lstm | as it is | 0 | 20 | - | - | - | - |"
    )
    assert [each.is_met for each in expectations(found)] == [None]


def test_a_part_that_is_too_large_is_neither_an_alarm_nor_a_part_that_ran() -> None:
    (expected,) = expectations(result(ROW, TOO_LARGE))
    assert (expected.found, expected.is_met) == ("0 of 1", True)
