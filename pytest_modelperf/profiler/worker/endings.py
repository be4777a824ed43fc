"""Describe to the user what went wrong in a worker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pytest_modelperf.errors import (
    EngineOptionError,
    MeasureError,
    MissingModuleError,
    ModelPerfError,
    OutputError,
    Remedy,
)
from pytest_modelperf.text.escaping import printable, printable_lines

# How long a worker may take to end by itself, and the system to report how it ended.
GRACE_S = 5.0
_LOG_TAIL_BYTES = 4096
_LOG_TAIL_LINES = 12
# The prefix of ONNX Runtime's messages.
_ENGINE_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
# Lines of a crash report about the worker's own code, which do not help the user.
_OWN_FRAME = re.compile(r'  File "<|Extension modules:|Current thread |\s*$')

# The messages of errors that come from the machine, not from the model, by kind.
_PLACE_PROBLEMS = {
    "processors": (
        "processors were taken away {step}: {message}. Measure again when the usable "
        "processors no longer change."
    ),
    "clocks": (
        "the clocks of the worker disagree: {message}. No time can be measured by them. Run "
        "without what replaces the clocks, such as faketime or a library in LD_PRELOAD, or on "
        "another machine."
    ),
    "memory": "memory ran out {step}: {type}: {message}",
    "disk": (
        "the disk is full or cannot be written {step}: {message}. Free some space, or set TMPDIR "
        "to another folder."
    ),
}


def failure(
    reported: Mapping[str, Any], step: str, executable: str = "", *, shows_trace: bool = False
) -> ModelPerfError:
    """Return the error to raise for an exception in a worker, with its traceback if that helps."""
    error = _failure(reported, step, executable)
    if shows_trace and reported["trace"] and not isinstance(error, EngineOptionError):
        error.details = tuple(printable_lines(reported["trace"]).splitlines())
    return error


def _failure(reported: Mapping[str, Any], step: str, executable: str) -> ModelPerfError:
    kind, message = reported["kind"], printable_lines(str(reported["message"]))
    if kind == "missing":
        place = executable or "its Python"
        return MissingModuleError(f"{place} has no module {printable(str(reported['name']))!r}.")
    if kind == "option":
        return EngineOptionError(message)
    if kind in _PLACE_PROBLEMS:
        problem = _PLACE_PROBLEMS[kind].format(step=step, type=reported["type"], message=message)
        return MeasureError(problem)
    plain, remedy = _ENGINE_PREFIX.sub("", message), None
    if plain == message:
        plain = f"{reported['type']}: {message}"
    elif "is not a registered function/op" in plain:
        plain = f"{plain.rstrip('.')}."
        remedy = Remedy(
            "Give the library that has it with {engine_option}.", engine_option="custom_ops=PATH"
        )
    # Reports put `failed` in front of this message.
    return MeasureError(f"{step}: {plain}", remedy)


@contextmanager
def writing_for_worker(step: str) -> Iterator[None]:
    """Raise MeasureError if a file for a worker cannot be written, which ends only its case."""
    try:
        yield
    except OutputError as error:
        raise _no_room(step, error.message.rstrip(".")) from error
    except OSError as error:
        raise _no_room(step, printable(str(error))) from error


def _no_room(step: str, message: str) -> MeasureError:
    return MeasureError(_PLACE_PROBLEMS["disk"].format(step=step, message=message))


def describe_end(process: subprocess.Popen[bytes], step: str, log: Path) -> str:
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    status, why = process.returncode, ""
    if status is None or sys.platform == "win32":
        ending = "ended"
    elif status < 0:
        ending = f"was killed by {signal_name(-status)}"
        # No process can handle this signal.
        if -status == signal.SIGKILL:
            why = " This mostly means that memory ran out."
    else:
        ending = f"ended with status {status}"
    tail = read_tail(log)
    return f"the worker {ending} {step}.{why}" + (f" Its last output:\n{tail}" if tail else "")


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGSEGV (segmentation fault)`."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    meaning = signal.strsignal(number)
    return f"{name} ({meaning.split(':')[0].lower()})" if meaning else name


def read_tail(path: Path) -> str:
    """Return the last lines of a log, made safe to show."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line for line in text.strip().splitlines() if not _OWN_FRAME.match(line)]
    return printable_lines("\n".join(lines[-_LOG_TAIL_LINES:]))
