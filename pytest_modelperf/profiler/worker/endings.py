"""Describes to the user what went wrong in a worker."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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

# How long a worker has to end by itself, and the system to say how it ended.
GRACE_S = 5.0
_LOG_TAIL_BYTES = 4096
_LOG_TAIL_LINES = 12
# The prefix of ONNX Runtime's messages.
_ENGINE_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
# Lines of a crash report about the worker's own code, which help nobody.
_OWN_FRAME = re.compile(r'  File "(<|.*execnet)|Extension modules:|Current thread |\s*$')

# The messages of errors that come from the machine and not from the model, by kind.
_PLACE_PROBLEMS = {
    "processors": (
        "processors were taken away {step}: {message}. Measure again when nothing changes which "
        "processors may be used."
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


@dataclass(frozen=True, slots=True)
class ProcessEnding:
    """How a process ended: by a signal, or with an exit status."""

    signal: int | None = None
    status: int | None = None

    @property
    def is_kill(self) -> bool:
        """Whether it was killed by the signal that no process can handle."""
        return self.signal is not None and signal_name(self.signal).startswith("SIGKILL")

    @property
    def text(self) -> str:
        if self.signal is not None:
            return f"was killed by {signal_name(self.signal)}"
        return f"ended with status {self.status}"


def failure(
    told: Mapping[str, Any], step: str, executable: str = "", *, shows_trace: bool = False
) -> ModelPerfError:
    """The error to raise for an exception in a worker, with its traceback if that helps."""
    error = _failure(told, step, executable)
    if shows_trace and told["trace"] and not isinstance(error, EngineOptionError):
        error.details = tuple(printable_lines(told["trace"]).splitlines())
    return error


def _failure(told: Mapping[str, Any], step: str, executable: str) -> ModelPerfError:
    kind, message = told["kind"], printable_lines(str(told["message"]))
    if kind == "missing":
        where = executable or "its Python"
        return MissingModuleError(f"{where} has no module {printable(str(told['name']))!r}.")
    if kind == "option":
        return EngineOptionError(message)
    if kind in _PLACE_PROBLEMS:
        problem = _PLACE_PROBLEMS[kind].format(step=step, type=told["type"], message=message)
        return MeasureError(problem)
    plain, remedy = _ENGINE_PREFIX.sub("", message), None
    if plain == message:
        plain = f"{told['type']}: {message}"
    elif "is not a registered function/op" in plain:
        plain = f"{plain.rstrip('.')}."
        remedy = Remedy(
            "Give the library that has it with {engine_option}.", engine_option="custom_ops=PATH"
        )
    # Reports put `failed` before it.
    return MeasureError(f"{step}: {plain}", remedy)


@contextmanager
def writing_for_worker(step: str) -> Iterator[None]:
    """Raises MeasureError where a file for a worker cannot be written: that ends only its case."""
    try:
        yield
    except OutputError as error:
        raise _no_room(step, error.message.rstrip(".")) from error
    except OSError as error:
        raise _no_room(step, printable(str(error))) from error


def _no_room(step: str, message: str) -> MeasureError:
    return MeasureError(_PLACE_PROBLEMS["disk"].format(step=step, message=message))


def wait_for_end(pid: int) -> ProcessEnding | None:
    """How a child process ended, without reaping it; None if that cannot be found out."""
    if sys.platform == "win32" or not hasattr(os, "waitid"):
        return None
    else:  # noqa: RET505  # types are checked for Windows as well
        end = time.monotonic() + GRACE_S
        while True:
            try:
                found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except OSError:
                return None
            if found is not None:
                if found.si_code == os.CLD_EXITED:
                    return ProcessEnding(status=found.si_status)
                return ProcessEnding(signal=found.si_status)
            if time.monotonic() > end:
                return None
            time.sleep(0.01)


def signal_name(number: int) -> str:
    """`SIGSEGV (segmentation fault)`."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    meaning = signal.strsignal(number)
    return f"{name} ({meaning.split(':')[0].lower()})" if meaning else name


def read_tail(path: Path) -> str:
    """The last lines of a log, made safe to show."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line for line in text.strip().splitlines() if not _OWN_FRAME.match(line)]
    return printable_lines("\n".join(lines[-_LOG_TAIL_LINES:]))
