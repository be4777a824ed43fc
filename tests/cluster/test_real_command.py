"""`modelperf profile --cluster` on a real cluster."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.clusters import ClusterProcesses, joined
from tests.support.command import run
from tests.support.timed_models import write_timed

TIMED = ("--engine", "timed", "--plugin", "tests.support.faulty_plugin", "--max-seconds", "30")


def test_a_profile_says_what_the_machines_measured(
    processes: ClusterProcesses, tmp_path: Path
) -> None:
    path, document = tmp_path / "slow_400us.onnx", tmp_path / "profile.json"
    write_timed(path)
    with joined(processes.file, machines=2):
        place = ("--cluster", str(processes.file), "--machine", "first,elsewhere")
        result = run(
            "profile", str(path), "--batch", "1,8", *TIMED, *place, "--json", str(document)
        )
    assert result.exit_code == 0, result.err
    cases = json.loads(document.read_text())["cases"]
    assert [case["id"] for case in cases] == ["b1-c1", "b8-c1"]
    assert [round(case["latency"]["p50_ms"], 1) for case in cases] == [0.4, 0.4]
    assert "b8-c1" in result.out


def test_a_kind_of_machine_that_is_not_there_is_one_error(
    processes: ClusterProcesses, tmp_path: Path
) -> None:
    path = tmp_path / "slow_400us.onnx"
    write_timed(path)
    with joined(processes.file, machines=2):
        place = ("--cluster", str(processes.file), "--machine", "gpu")
        result = run("profile", str(path), *TIMED, *place)
    assert result.exit_code == 3
    assert "has no machine gpu. It has: " in result.err
