"""The campaign of `tests.faults.kills`, with one kill: it ends, and shows what is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.kills import Campaign, main

pytestmark = pytest.mark.slow


def test_a_killed_run_leaves_a_whole_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(str(tmp_path), kills=1) == 0
    counts = json.loads(capsys.readouterr().out)
    assert (counts["kills"], counts["problems"]) == (1, [])


def test_a_baseline_that_is_neither_version_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_it(self: Campaign, version: int, seconds: float) -> None:  # noqa: ARG001  # a kill's
        (self.store.root / "m/model.json").write_text("{")

    monkeypatch.setattr(Campaign, "kill", break_it)
    assert main(str(tmp_path), kills=1) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem.startswith("kill 0 after ")
    assert "m/model.json" in problem
