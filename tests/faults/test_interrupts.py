"""Interrupts at moments when Python itself would print a traceback, or lose them."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from pytest_modelperf.files.interrupts import interrupt_delayed, lost_interrupts_raised
from pytest_modelperf.profiler.worker.working_folder import WorkingFolder
from tests.support.command import environment, run
from tests.support.project import write_dense

COMMAND = """\
import atexit, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
{before}
sys.argv = ["modelperf", "--version"]
from pytest_modelperf.__main__ import run
run()
"""
# Interrupts the import of click, which the command begins with.
AT_IMPORT = """\
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "click":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""
# They run from the last to the first.
AT_EXIT = """\
atexit.register(print, "at the end")
atexit.register(signal.raise_signal, signal.SIGINT)
"""


def command(before: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND.format(before=before)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )


def test_next_to_nothing_is_imported_before_interrupts_are_handled() -> None:
    script = (
        "import os, sys; before = set(sys.modules); import pytest_modelperf.__main__\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    known = {"__future__", "atexit", "gc", "pytest_modelperf", "pytest_modelperf.__main__"}
    assert set(done.stdout.split()) == known


def test_an_interrupt_as_the_command_is_imported_is_one_line() -> None:
    done = command(AT_IMPORT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_an_interrupt_as_the_command_ends_is_one_line() -> None:
    done = command(AT_EXIT)
    version, end = done.stdout.splitlines()
    assert version.startswith("modelperf, version")
    assert (done.returncode, end, done.stderr) == (130, "at the end", "interrupted\n")


def test_a_second_interrupt_as_the_command_ends_is_the_same_line() -> None:
    done = command(AT_EXIT + "atexit.register(signal.raise_signal, signal.SIGINT)\n")
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def fail_interrupted() -> NoReturn:
    signal.raise_signal(signal.SIGINT)
    raise OSError


@pytest.mark.usefixtures("heard_interrupts")
def test_an_interrupt_is_not_lost_if_the_step_that_it_waits_for_fails() -> None:
    with pytest.raises(KeyboardInterrupt), interrupt_delayed():
        fail_interrupted()


@pytest.mark.usefixtures("heard_interrupts")
def test_an_interrupt_as_a_folder_is_removed_comes_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, remove = WorkingFolder("worker", tmp_path), shutil.rmtree

    def remove_interrupted(path: Path, *, ignore_errors: bool) -> None:
        signal.raise_signal(signal.SIGINT)
        remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", remove_interrupted)
    with pytest.raises(KeyboardInterrupt):
        folder.remove()
    assert list(tmp_path.iterdir()) == []


class Dying:
    """A signal comes as it is freed, where no code would catch what its handler raises."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


def be_interrupted_unheard(*_: object, **__: object) -> NoReturn:
    Dying(signal.SIGINT)
    threading.Event().wait(60.0)
    raise AssertionError("the interrupt was lost")


@pytest.mark.usefixtures("heard_interrupts")
@pytest.mark.parametrize("callback_s", [0.0, 0.01])
def test_an_interrupt_in_a_callback_is_raised_after_it(callback_s: float) -> None:
    """Without a delay it comes in the callback again."""
    for _ in range(20):
        with pytest.raises(KeyboardInterrupt), lost_interrupts_raised(callback_s):
            be_interrupted_unheard()


@pytest.mark.usefixtures("heard_interrupts")
def test_a_command_ends_by_an_interrupt_in_a_callback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dense(tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    assert run("sweep", "m.onnx", core=be_interrupted_unheard) == (130, "", "interrupted\n")


@pytest.mark.usefixtures("heard_interrupts")
def test_a_command_ends_by_sigterm_in_a_callback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_ended_unheard(*_: object, **__: object) -> NoReturn:
        Dying(signal.SIGTERM)
        threading.Event().wait(60.0)
        raise AssertionError("the interrupt was lost")

    write_dense(tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    assert run("sweep", "m.onnx", core=be_ended_unheard) == (143, "", "")


RUN = """\
import signal, threading
class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def test_unheard():
    Dying()
    assert threading.Event().wait(60)
"""


@pytest.mark.usefixtures("heard_interrupts")
def test_a_run_of_tests_ends_by_an_interrupt_in_a_callback(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RUN)
    result = pytester.runpytest_inprocess("--modelperf", no_reraise_ctrlc=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_another_error_in_a_callback_is_reported_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[sys.UnraisableHookArgs] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)

    class Failing:
        def __del__(self) -> None:
            raise ValueError

    with lost_interrupts_raised():
        Failing()
    assert [each.exc_type for each in reported] == [ValueError]
