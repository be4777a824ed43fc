"""Bugs found by fuzzing stay fixed: every input that is kept is given to its reader again.

In a child, for the end of its process may be what an input did.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeAlias

import onnx
import pytest
from google.protobuf.message import DecodeError

import pytest_modelperf
from fuzz.json_mutation import mutate_json, mutate_ort_profile, mutate_trace
from fuzz.message_mutation import mutate_message, mutate_model, mutate_twin
from fuzz.replay import committed_inputs, given_input, main, replay
from fuzz.run import Result, show_crash
from fuzz.targets import TARGETS
from tests.support.checkout import ROOT

Mutate: TypeAlias = "Callable[[bytes, Random], bytes | None]"

# Enough for a hundred times the work: a child that takes longer hangs.
_SECONDS = 300


@pytest.fixture(scope="module")
def printed() -> str:
    """Return the output of a child about all inputs of all targets."""
    # The package may be installed elsewhere than these tests are.
    root, package = ROOT, Path(pytest_modelperf.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-m", "fuzz.replay"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, package)))},
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    ).stdout


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_that_is_kept_breaks_its_reader(target: str, printed: str) -> None:
    inputs = committed_inputs(target)
    line = rf"^{target}: (\d+) inputs read, (\d+) taken, 0 broke a law$"
    read = re.search(line, printed, re.MULTILINE)
    # If the child died, the input that caused it is named last.
    assert read is not None, printed[-4000:]
    assert int(read[1]) == len(inputs) > 0
    # A reader that refuses all of them would break by none.
    assert int(read[2]) > 0


def test_an_input_that_breaks_a_law_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def check(data: bytes) -> bool:
        if data == b"bad":
            raise ZeroDivisionError
        return data == b"good"

    for name in ("bad", "good", "refused"):
        (tmp_path / name).write_bytes(name.encode())

    assert replay("t", check, sorted(tmp_path.iterdir())) == 1

    output = capfd.readouterr().out
    assert f"t: {tmp_path / 'bad'}\nTraceback" in output
    assert output.endswith("t: 3 inputs read, 1 taken, 1 broke a law\n")


def test_an_input_that_breaks_a_law_can_be_given_as_the_text_that_is_shown_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "crash-0"
    broken.write_bytes(b"\x00bad" * 100)
    output = "... === Uncaught Python exception: ===\nZeroDivisionError\n==1== ERROR"

    show_crash(Result("wire", 1, 1, 1, broken, output), broken, tmp_path)

    error, alone, elsewhere = capsys.readouterr().out.splitlines()
    assert error == "ZeroDivisionError"
    assert alone == "run it alone: python -m fuzz.replay wire crash-0"
    command, _, given = elsewhere.rpartition(" ")
    assert command == "in another folder: python -m fuzz.replay wire"
    assert given_input(given).read_bytes() == broken.read_bytes()
    assert given_input(str(broken)) == broken
    assert main(("wire", given[:-9])) == 2
    assert "is neither a file nor the whole text of an input" in capsys.readouterr().err


def test_a_mutated_model_is_another_one_and_mostly_still_a_message() -> None:
    random = Random(0)
    inputs = [path.read_bytes() for path in committed_inputs("twin")]
    for mutate in (mutate_message, mutate_model, mutate_twin):
        mutated = _mutated(mutate, inputs, random)
        assert sum(map(_is_model, mutated)) > 0.5 * len(mutated)


def test_a_mutated_document_is_another_one_and_mostly_still_json() -> None:
    random = Random(0)
    for target, mutate in (
        ("baseline", mutate_json),
        ("ort-profile", mutate_ort_profile),
        ("recorded-trace", mutate_trace),
    ):
        inputs = [path.read_bytes() for path in committed_inputs(target)]
        mutated = _mutated(mutate, list(filter(_is_json, inputs)), random)
        assert sum(map(_is_json, mutated)) > 0.5 * len(mutated)


def _mutated(mutate: Mutate, inputs: Sequence[bytes], random: Random) -> list[bytes]:
    """Twenty mutations of each input, all of them different from it."""
    found = [(data, mutate(data, random)) for data in inputs for _ in range(20)]
    mutated = [changed for data, changed in found if changed is not None and changed != data]
    assert len(mutated) > 0.5 * len(found)
    return mutated


def _is_model(data: bytes) -> bool:
    try:
        onnx.ModelProto.FromString(data)
    except DecodeError:
        return False
    return True


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
