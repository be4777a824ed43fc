"""The programs that the benchmark of many models starts run with this version of the package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from expected import Expectation
from measuring import Start
from scale import SESSIONS, Command, expectations, run_commands, run_sessions, start, tables
from scale_models import SHAPES


def test_a_process_reports_its_time_and_memory(tmp_path: Path) -> None:
    run = start(("json.tool", "--help"), tmp_path, {})
    assert run.document["own_seconds"] > 0
    assert run.document["own_peak_bytes"] > 10**6
    assert "usage" in run.output


@pytest.mark.slow
def test_each_kind_of_run_comes_to_its_end(tmp_path: Path) -> None:
    rows = list(run_sessions(tmp_path, models=2))
    verdicts = [set(row["verdicts"]) for row in rows]
    assert verdicts == [{session.verdict} - {None} for session in SESSIONS]
    assert all(row["steps"]["collect"] > 0 for row in rows if "-n 2" not in row["session"])
    assert [row["blocks"] > 0 for row in rows] == [
        session.name in {"recording", "duets", "duets, all worse"} for session in SESSIONS
    ]
    assert "write baselines" in rows[2]["steps"]
    assert "write HTML" in rows[-1]["steps"]


def test_a_run_with_twice_the_blocks_may_take_twice_the_time() -> None:
    found = _expectation([(8.0, 1000), (24.0, 3000)])
    assert found.what == "twice as many blocks, duets: check"
    assert (found.found, found.is_met) == ("2.00 times", True)
    assert not _expectation([(8.0, 1000), (24.0, 2000)]).is_met


def test_blocks_do_not_count_if_nothing_is_measured() -> None:
    found = _expectation([(8.0, 0), (24.0, 0)])
    assert (found.what, found.found) == ("twice as much, duets: check", "3.00 times")


def _expectation(sizes: Sequence[tuple[float, int]]) -> Expectation:
    """The expectation on the growth of a check, by its seconds and blocks in each of two runs."""
    rows = [
        {
            "session": "duets",
            "models": models,
            "children_seconds": 0.0,
            "own_peak_bytes": 0,
            "steps": {"check": seconds},
            "blocks": blocks,
        }
        for models, (seconds, blocks) in zip((100, 200), sizes, strict=True)
    ]
    result = Start.now("scale").finish({"sessions": rows})
    assert "| duets | all |" in tables(result)["scale-sessions"]
    return next(each for each in expectations(result) if each.what.startswith("twice"))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_graph_is_written_and_read(
    tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command("profile --static", ("pytest_modelperf", "profile", "model.onnx", "--static"))
    monkeypatch.setattr("scale.COMMANDS", (command,))
    (row,) = run_commands(tmp_path, shape, nodes=100)
    assert row["lines"] > 10
    assert row["own_seconds"] > 0
