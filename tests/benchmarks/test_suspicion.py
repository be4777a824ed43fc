"""The results of the benchmark of settled models from its runs."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from kept import keep_row
from loads import BUSY, QUIET
from results import Result
from suspicion import PLANTED, Bench, Checked, expectations, plant, read_case, shorten, tables

from tests.support.benchmark_results import result_of

SETTLED = Checked(QUIET, 0, "lstm", 1, 1.0, "plan", is_suspected=False, verdict="passed", seconds=1)
SUSPECTED = replace(SETTLED, how="duet", is_suspected=True)
CHANGED = replace(SETTLED, how="duet")
CASE: dict[str, Any] = {
    "model": {"name": "lstm.onnx"},
    "cores": 2,
    "how": "duet",
    "notes": ["the plan is the recorded one, but the model took 2.1 times as long as recorded"],
    "verdict": "passed",
    "seconds": 1.5,
}


def result(*cases: Checked) -> Result:
    return result_of("suspicion", {"cases": [asdict(case) for case in cases]})


def test_a_case_is_read_with_what_was_planted_in_its_model() -> None:
    found = read_case(CASE, QUIET, 3, {"lstm": 2.0})
    assert (found.model, found.cores, found.planted, found.run) == ("lstm", 2, 2.0, 3)
    assert found.is_suspected
    assert not read_case(CASE | {"notes": ["same plan: "]}, QUIET, 3, {}).is_suspected


def test_a_fifth_of_the_models_is_planted_with_each_factor_in_turn() -> None:
    models = [str(number) for number in range(20)]
    planted = plant(models, random.Random(1))
    assert sorted(planted.values()) == [1.3, 1.3, 2.0, 2.0]
    assert planted.keys() <= set(models)
    assert plant(models[:2], random.Random(1)).keys() <= set(models[:2])


def test_recorded_times_become_shorter_and_nothing_else_changes(tmp_path: Path) -> None:
    document = {"key": 1, "cases": {"b1-c1": {"processes": [{"times_ns": [[100, 51], [26]]}]}}}
    (tmp_path / "machine.json").write_text(json.dumps(document))
    (tmp_path / "model.json").write_text("as it is")
    shorten(tmp_path, 2.0)
    expected = json.loads(json.dumps(document).replace("[[100, 51], [26]]", "[[50, 26], [13]]"))
    assert json.loads((tmp_path / "machine.json").read_text()) == expected
    assert (tmp_path / "model.json").read_text() == "as it is"


def test_a_run_that_is_stored_is_not_made_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ("lstm",), (1,))
    keep_row(tmp_path, "cases", asdict(SETTLED))
    bench.run(QUIET, 0)
    assert len(bench.read()) == 1


def test_each_load_and_core_count_has_a_line_with_settled_models_alone() -> None:
    found = tables(
        result(
            SETTLED,
            SUSPECTED,
            CHANGED,
            replace(SUSPECTED, planted=2.0),
            replace(SETTLED, planted=1.3),
            replace(SUSPECTED, load=BUSY, verdict="regressed"),
        )
    )
    assert found["suspicion"].splitlines()[2:] == [
        "| quiet | 1 | 4 of 5 | 1 of 2 | 0 | 0 of 1 | 1 of 1 |",
        "| both busy | 1 | 1 of 1 | 1 of 1 | 1 | - | - |",
    ]


@pytest.mark.parametrize(
    ("settled", "suspected", "outcome"),
    [(400, 0, "met"), (99, 1, "not shown"), (97, 3, "missed")],
)
def test_a_rate_is_met_only_if_it_is_shown(settled: int, suspected: int, outcome: str) -> None:
    (first,) = expectations(result(*[SETTLED] * settled, *[SUSPECTED] * suspected, CHANGED))
    assert first.outcome == outcome
    assert first.found.startswith(f"{suspected} of {settled + suspected} ")


def test_planted_slowdowns_have_to_be_measured_on_a_quiet_machine() -> None:
    missed, found = (replace(each, planted=2.0) for each in (SETTLED, SUSPECTED))
    outcomes = [e.outcome for e in expectations(result(*[SETTLED] * 400, found))]
    assert outcomes == ["met", "met"]
    outcomes = [e.outcome for e in expectations(result(*[SETTLED] * 400, found, missed))]
    assert outcomes == ["met", "missed"]
    outcomes = [
        e.outcome for e in expectations(result(*[SETTLED] * 400, replace(missed, load=BUSY)))
    ]
    assert outcomes == ["met"]
    assert PLANTED == (1.3, 2.0)
