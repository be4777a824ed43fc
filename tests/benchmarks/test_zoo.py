"""The results of the benchmark of many models from its runs."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from loads import BUSY, QUIET
from results import Result
from zoo import (
    AGAIN,
    ALONE,
    NAMES,
    ONE_SLOWER,
    RECORDING,
    RETRAINED,
    Done,
    Zoo,
    alone,
    expectations,
    tables,
)

from tests.support.benchmark_results import result_of

ALL = len(NAMES) * 5
CHECKED = Done(QUIET, RETRAINED, ALL, 59.0, {"passed, plan": ALL})
FOUND = Done(
    QUIET,
    ONE_SLOWER,
    ALL,
    60.0,
    {"passed, plan": ALL - 1, "regressed, parts": 1},
    slower="regressed",
    ratio=1.03,
)


def result(*rows: Done) -> Result:
    return result_of("zoo", {"runs": [asdict(row) for row in rows]})


@pytest.mark.parametrize(
    ("row", "is_met"),
    [
        (CHECKED, True),
        (replace(CHECKED, seconds=61.0), False),
        (replace(CHECKED, load=BUSY, seconds=119.0), True),
        (replace(CHECKED, step=AGAIN, seconds=6.0), False),
        (replace(CHECKED, step=ALONE, models=1, seconds=0.5, model="lstm"), True),
        (replace(CHECKED, step=ALONE, models=1, seconds=0.7, model="lstm"), False),
        (replace(CHECKED, step=RECORDING, load=RECORDING, cases=[2.0, 4.0]), True),
        (replace(CHECKED, step=RECORDING, load=RECORDING, cases=[2.0, 4.2]), False),
    ],
)
def test_each_run_has_its_limit(row: Done, *, is_met: bool) -> None:
    (expected,) = expectations(result(row))
    assert expected.is_met is is_met


@pytest.mark.parametrize(
    ("row", "is_met"),
    [
        (FOUND, True),
        (replace(FOUND, slower="inconclusive"), False),
        (replace(FOUND, ways={"passed, plan": ALL - 2, "passed, duet": 1}), False),
    ],
)
def test_the_slower_model_is_found_and_all_others_are_settled(row: Done, *, is_met: bool) -> None:
    found = [each for each in expectations(result(row)) if each.what.startswith("the slower")]
    assert [each.is_met for each in found] == [is_met]


def test_fewer_models_have_no_limit() -> None:
    assert not expectations(result(replace(CHECKED, models=20)))


def test_the_table_has_a_line_for_each_run() -> None:
    table = tables(result(CHECKED, FOUND, replace(CHECKED, step=ALONE, seconds=0.5)))["zoo"]
    assert "| quiet | retrained | 100 | 59.0 | 100 passed, plan |" in table
    assert "99 passed, plan, 1 regressed, parts" in table
    assert "| quiet | one alone | 1 | 0.50 (0.50 to 0.50) |" in table
    assert alone([replace(CHECKED, step=ALONE, seconds=0.5)]) == {QUIET: [0.5]}


def test_each_architecture_has_a_file_for_each_seed() -> None:
    files = Zoo(Path(), 2).files
    assert len(files) == len(set(files)) == 2 * len(NAMES) == 40
