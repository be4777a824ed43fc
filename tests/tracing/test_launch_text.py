"""Messages of `modelperf trace -- COMMAND` about the files that were written, or their absence."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_modelperf.tracing.launch import StartedPython, TracedLaunch, explain_no_trace
from tests.support.command import run

PYTHONS = (StartedPython("/usr/bin/python3", ""),)


def test_a_signal_is_named_if_it_ended_the_program() -> None:
    killed = TracedLaunch(-9, PYTHONS, ())
    assert killed.exit_code == 137
    assert explain_no_trace(killed).startswith("no trace was written: signal 9 ended the program")


@pytest.mark.parametrize("pythons", [(), PYTHONS])
def test_an_exit_code_of_the_program_is_not_shown_as_a_signal(
    pythons: tuple[StartedPython, ...],
) -> None:
    """A shell gives such codes for signals, and a program may give any code."""
    text = explain_no_trace(TracedLaunch(137, pythons, ()))
    assert "signal 9 ended the program" not in text
    reason = "the program did not import onnxruntime" if pythons else "the program started no Pyth"
    assert text.startswith(f"no trace was written: {reason}")
    assert ("by signal 9, which a shell reports as exit code 137" in text) is bool(pythons)


def test_totals_that_no_trace_is_there_for_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = "echo > trace-1.json; echo > trace-2.json; exit 7"
    done = run("trace", "--json", "totals.json", "--", "sh", "-c", script)
    assert done.exit_code == 7
    assert not (tmp_path / "totals.json").exists()
    assert "no totals were made: they need trace.json, which no process" in done.err
