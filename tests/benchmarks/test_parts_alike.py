"""Parts that did not change: how many are drawn, and which of them count as an alarm."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from loads import BUSY, QUIET
from parts_alike import Place, expectations, tables, take
from results import Moment, Result, Row

PLACE = Place("lstm", 1, QUIET)
ROW: dict[str, Any] = {
    **asdict(PLACE),
    "kernel": "Conv",
    "is_too_large": False,
    "answer": "not worse",
    "ratio": 1.0,
    "low": 0.999,
    "high": 1.001,
    "seconds": 3.0,
}
TOO_LARGE = {**asdict(PLACE), "kernel": "LSTM", "is_too_large": True, "seconds": 2.0}


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
def test_an_interval_that_reaches_into_the_tolerance_raises_no_alarm(
    differing: dict[str, Any],
) -> None:
    (expected,) = expectations(result(ROW, ROW | differing))
    assert (expected.found, expected.is_met) == ("0 of 2", True)


class Draws:
    """Rows by the number of their draw, then parts that are too large without end."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._rows = rows
        self.drawn: list[int] = []

    def __call__(self, place: Place, first: int) -> Generator[Row]:
        for number, row in enumerate(chain(self._rows[first:], repeat(TOO_LARGE)), first):
            self.drawn.append(number)
            yield {**row, **asdict(place)}


@pytest.mark.parametrize(("count", "taken"), [(2, 40), (3, 60)])
def test_a_model_is_given_up_after_twenty_draws_in_a_row_that_are_too_large(
    tmp_path: Path, count: int, taken: int
) -> None:
    draws = Draws([*[TOO_LARGE] * 19, ROW, *[TOO_LARGE] * 19, ROW])
    assert len(take(tmp_path, PLACE, count, draws)) == taken


def test_a_run_goes_on_from_the_rows_of_the_same_model_cores_and_load(tmp_path: Path) -> None:
    rows = [ROW | {"ratio": ratio} for ratio in (1.001, 1.002)]
    first = take(tmp_path, PLACE, 2, Draws([TOO_LARGE, *rows]))
    assert first == [TOO_LARGE, *rows]
    later = Draws([*first, ROW])
    for other in (Place("vit_6", 1, QUIET), Place("lstm", 2, QUIET), Place("lstm", 1, BUSY)):
        assert take(tmp_path, other, 1, Draws([ROW])) == [ROW | asdict(other)]
    assert take(tmp_path, PLACE, 2, later) == first
    assert not later.drawn
    assert take(tmp_path, PLACE, 3, later) == [*first, ROW]
    assert later.drawn == [3]


def test_each_model_core_count_and_load_has_a_line() -> None:
    others: list[dict[str, Any]] = [{"model": "vit_6"}, {"cores": 2}, {"load": BUSY}]
    lines = tables(result(ROW, ROW, *(ROW | other for other in others)))["parts alike"].splitlines()
    assert [line.split(" | ")[:4] for line in lines[2:]] == [
        ["| lstm", "1", "quiet", "2"],
        ["| vit_6", "1", "quiet", "1"],
        ["| lstm", "2", "quiet", "1"],
        ["| lstm", "1", "both busy", "1"],
    ]


def test_a_model_whose_parts_are_all_too_large_has_a_line_and_shows_nothing() -> None:
    found = result(*[TOO_LARGE] * 20)
    assert tables(found)["parts alike"].splitlines()[-1] == (
        "| lstm | 1 | quiet | 0 | 20 | - | - | - | - |"
    )
    assert [each.is_met for each in expectations(found)] == [None]


def test_a_sentence_says_what_all_parts_that_ran_show() -> None:
    other = {**TOO_LARGE, "model": "vit_6"}
    assert tables(result(*[ROW] * 300, other))["parts alike glance"] == (
        "300 unchanged parts of 1 real models, each timed against itself with other weights: 0 "
        "were called slower or faster by more than 0.2 % of the model. The rate is at most 0.99 % "
        "(95 % confidence)."
    )


def test_a_part_that_is_too_large_is_neither_an_alarm_nor_a_part_that_ran() -> None:
    (expected,) = expectations(result(ROW, TOO_LARGE))
    assert (expected.found, expected.is_met) == ("0 of 1", True)


def test_a_part_that_ran_for_too_few_rounds_has_no_interval() -> None:
    found = result(ROW | {"answer": "open", "low": None, "high": None})
    assert tables(found)["parts alike"].splitlines()[-1] == (
        "| lstm | 1 | quiet | 1 | 0 | 0 | 0.0 % | - | 3.0 |"
    )
    assert [each.found for each in expectations(found)] == ["0 of 1"]
