"""The forms of a gateway, and how its Python is started."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.worker import gateway
from pytest_modelperf.profiler.worker.client import ProcessWorker, WorkerRequest
from pytest_modelperf.profiler.worker.gateway import (
    check_spec,
    command_of,
    interpreter_spec,
    is_local,
)
from tests.support.known import known


@pytest.mark.parametrize(
    "spec",
    [
        "popen",
        "popen//dont_write_bytecode",
        f"popen//python={sys.executable} -X dev//chdir=/tmp//env:A=b",
        "ssh=pi@board//python=python3",
        "ssh=-p 5000 board//ssh_config=/etc/config",
        "command=docker exec -i box python3//env:A=b",
    ],
)
def test_a_gateway_of_any_form_is_taken(spec: str) -> None:
    check_spec(spec, "the option")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("", "unknown key ''"),
        ("board", "unknown key 'board'"),
        ("python=python3", "it takes one of popen, ssh"),
        ("popen//ssh=board", "it takes one of"),
        ("ssh=board//pyhton=python3", "unknown key 'pyhton'"),
        ("ssh=a//ssh=b", "it has one key twice"),
        ("ssh", "ssh needs a value, as in ssh=VALUE"),
        (
            "socket=board:8888",
            "unknown key 'socket'. Give popen//python=/path/to/python, ssh=host or command=",
        ),
        ("vagrant_ssh=box", "unknown key 'vagrant_ssh'"),
        ("popen//via=master", "unknown key 'via'"),
        ("popen//nice=much", "invalid literal for int() with base 10: 'much'"),
        ("popen//python='a", "No closing quotation"),
        ("command=ssh board//python=python3", "a command already names its Python"),
        ("popen//python=/no/such/python", "which is not a program that can be run"),
    ],
)
def test_a_spec_that_is_not_a_gateway_is_refused_before_anything_starts(
    spec: str, problem: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        check_spec(spec, "the option")


def test_only_a_child_of_our_own_is_local() -> None:
    assert is_local("popen")
    assert is_local("popen//python=/other/python")
    assert not is_local("ssh=host")
    assert not is_local("command=docker exec -i box python3")


def test_the_path_of_an_interpreter_has_any_slashes_and_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "my environment"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    spec = interpreter_spec(f"{folder}//python", "the option")
    check_spec(spec, "the option")
    assert command_of(spec)[0] == str(folder / "python")


def test_a_start_that_is_interrupted_leaves_no_pipe_open(
    monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    def interrupt(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gateway, "find_source", interrupt)
    with pytest.raises(KeyboardInterrupt), ProcessWorker(WorkerRequest()):
        pass
    (process,) = started
    assert known(process.stdin).closed
    assert known(process.stdout).closed
