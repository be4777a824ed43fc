"""The programs that the benchmark of many models starts run with this version of the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from scale import SESSIONS, Command, run_commands, run_sessions, start
from scale_models import SHAPES


def test_a_process_tells_what_it_took(tmp_path: Path) -> None:
    run = start(("json.tool", "--help"), tmp_path, {})
    assert run.own_seconds > 0
    assert run.own_peak_bytes > 10**6
    assert "usage" in run.output


@pytest.mark.slow
def test_each_kind_of_run_comes_to_its_end(tmp_path: Path) -> None:
    rows = list(run_sessions(tmp_path, models=2))
    verdicts = [set(row["verdicts"]) for row in rows]
    assert verdicts == [{session.verdict} - {None} for session in SESSIONS]
    assert all(row["steps"]["collect"] > 0 for row in rows if "-n 2" not in row["session"])
    assert "write baselines" in rows[2]["steps"]
    assert "write HTML" in rows[-1]["steps"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_graph_is_written_and_read(
    tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command("profile --static", ("pytest_modelperf", "profile", "model.onnx", "--static"))
    monkeypatch.setattr("scale.COMMANDS", (command,))
    (row,) = run_commands(tmp_path, shape, nodes=100)
    assert row["lines"] > 10
    assert row["file_bytes"][".output"] > 0
