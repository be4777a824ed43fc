"""The text of a command when the program that it watched has ended."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_modelperf.text.quoting import shell_path, shell_word
from pytest_modelperf.text.words import shorten_list
from pytest_modelperf.tracing.launch import SIGNAL_BASE, Launch, StartedPython, TracedLaunch

_MOST_NAMES = 3


def describe_traces(traces: Sequence[Path], file: str) -> str:
    """Which files were written, and the command that sums up the first."""
    names = [file if path == Path(file).absolute() else path.name for path in traces]
    shown = shorten_list(names, _MOST_NAMES)
    first = file if names[0] == file else str(Path(file).with_name(names[0]))
    return f"wrote {shown}; to sum it up: modelperf trace {shell_path(first)}"


def explain_no_sessions(launch: Launch) -> str:
    """Why no session of a program was seen, and what to type."""
    if launch.pythons and all(python.problem for python in launch.pythons):
        return f"no session was seen: {_lacks_package(launch.pythons[0])}"
    if not launch.pythons:
        return (
            "no session was seen: the program started no Python, or one with -I, -E or -S, which "
            "have it ignore PYTHONPATH. Leave these options out."
        )
    return (
        "no session was seen: the program made no onnxruntime.InferenceSession. Give a program "
        "that runs the models, such as a benchmark or a test."
    )


def explain_no_trace(launch: TracedLaunch) -> str:
    """Why no trace was written, and what to type."""
    if launch.pythons and all(python.problem for python in launch.pythons):
        return f"no trace was written: {_lacks_package(launch.pythons[0])}"
    if launch.returned < 0:
        number = -launch.returned
        return f"no trace was written: signal {number} ended the program before it could write."
    if not launch.pythons:
        return (
            "no trace was written: the program started no Python, or one with -I, -E or -S, which "
            "have it ignore PYTHONPATH. Leave these options out. With -I and -E the hook works: "
            "type `modelperf trace --hook install` in that environment once, then this again."
        )
    number = launch.returned - SIGNAL_BASE
    signals = ""
    if number in signal.valid_signals():
        signals = f", or by signal {number}, which a shell tells by the exit code {launch.returned}"
    return (
        "no trace was written: the program did not import onnxruntime, or it ended without "
        f"Python's own exit, as with os._exit{signals}."
    )


def _lacks_package(python: StartedPython) -> str:
    executable = shell_word(python.executable)
    return (
        f"{python.executable} cannot load pytest-modelperf "
        f"({python.problem}). Install it there: {executable} -m pip install "
        f"pytest-modelperf, or start the program with {sys.executable}."
    )
