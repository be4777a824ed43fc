"""The sessions of a program, as each of its processes logs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.tracing.launch import (
    Launch,
    SessionRuns,
    explain_no_sessions,
    read_logs,
    run_program,
)

PROGRAM = """\
import os, sys
from pathlib import Path
import numpy as np
import onnxruntime as ort

def run(rows, model="small.onnx", times=1):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    for _ in range(times):
        session.run(None, {"x": np.ones((rows, 8), np.float32)})
    return session
"""
LOG = """\
["session", 0, "/m.onnx", null, 0, [["a", "b"]]]
["inputs", 0, 0, [["x", [1, 2]]], [["n", 3]]]
0
0
"""


def sizes(session: SessionRuns) -> dict[tuple[int, ...], int]:
    return {each.shapes["x"]: each.count for each in session.inferences if each.shapes is not None}


@pytest.fixture
def sessions(model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(model.parent)
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    return model


def seen(program: str) -> tuple[SessionRuns, ...]:
    Path("program.py").write_text(PROGRAM + program)
    ran = run_program([sys.executable, "program.py"], "modelperf init --from")
    assert ran.launch.exit_code == 0
    return ran.sessions


@pytest.mark.slow
def test_every_inference_is_counted_by_its_sizes(sessions: Path) -> None:
    (found,) = seen("run(2, times=3)\nrun(5)\n")
    assert found.model == sessions
    assert found.options["intra_op_num_threads"] == "2"
    assert sizes(found) == {(2, 8): 3, (5, 8): 1}


@pytest.mark.slow
def test_a_model_in_memory_is_known_by_its_digest(sessions: Path) -> None:
    (found,) = seen("run(2, Path('small.onnx').read_bytes())\n")
    assert (found.model, found.size) == (None, len(sessions.read_bytes()))
    assert found.sha256 is not None


@pytest.mark.slow
@pytest.mark.usefixtures("sessions")
def test_a_bound_input_and_one_that_runs_later_are_seen() -> None:
    (found,) = seen(
        "session = run(1)\n"
        "binding = session.io_binding()\n"
        "binding.bind_cpu_input('x', np.ones((3, 8), np.float32))\n"
        "binding.bind_output(session.get_outputs()[0].name)\n"
        "session.run_with_iobinding(binding)\n"
        "import threading\n"
        "done = threading.Event()\n"
        "feed = {'x': np.ones((4, 8), np.float32)}\n"
        "session.run_async(None, feed, lambda *_: done.set(), None)\n"
        "done.wait()\n"
    )
    assert sizes(found) == {(1, 8): 1, (3, 8): 1, (4, 8): 1}


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_child_processes_are_seen_even_if_they_exit_at_once(sessions: Path, start: str) -> None:
    (found,) = seen(
        "def work(rows):\n"
        "    run(rows)\n"
        "    os._exit(0)\n"
        "if __name__ == '__main__':\n"
        "    import multiprocessing\n"
        f"    context = multiprocessing.get_context({start!r})\n"
        "    children = [context.Process(target=work, args=(n,)) for n in (2, 3)]\n"
        "    [child.start() for child in children]\n"
        "    [child.join() for child in children]\n"
    )
    assert found.model == sessions
    assert sizes(found) == {(2, 8): 1, (3, 8): 1}


@pytest.mark.slow
@pytest.mark.usefixtures("sessions")
def test_an_inference_that_the_runtime_refuses_is_not_counted() -> None:
    (found,) = seen("try:\n    run(2).run(None, {'y': 1})\nexcept ValueError:\n    pass\n")
    assert sizes(found) == {(2, 8): 1}


def test_a_program_that_cannot_start_is_named() -> None:
    with pytest.raises(UsageError, match=r"modelperf init --from -- python absent\.py"):
        run_program(["absent.py"], "modelperf init --from")


def test_equal_sessions_of_several_processes_are_one() -> None:
    (found,) = read_logs([LOG, LOG])
    assert found.options == {"a": "b"}
    assert [(each.shapes, each.values, each.count) for each in found.inferences] == [
        ({"x": (1, 2)}, {"n": 3}, 4)
    ]


def test_a_session_of_a_killed_process_and_one_that_ran_nothing_are_known() -> None:
    (found,) = read_logs([LOG + '["inputs", 1, 0, [["x"'])
    assert found.count == 2
    (found,) = read_logs([LOG.splitlines(keepends=True)[0]])
    assert (found.model, found.count) == (Path("/m.onnx"), 0)


def test_a_program_without_sessions_is_explained() -> None:
    assert "started no Python" in explain_no_sessions(Launch(0, ()))
