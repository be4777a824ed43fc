"""Traces the process that imports this module while `MODELPERF_TRACE=trace.json` is set.

`modelperf trace -- COMMAND` makes each Python import it at its start, and so does the installed
hook (`modelperf trace --hook install`). Without either, importing `pytest_modelperf` also imports
it, as pytest does for its plugin.

Recording begins when the process imports onnxruntime, or now if that is already imported. The
trace is written when the process ends. Each process that it starts or forks writes a file of its
own, and begins when it first uses onnxruntime: many processes only inherit or import it.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_modelperf.tracing.first_import import when_imported

if TYPE_CHECKING:
    from pytest_modelperf.tracing.program_trace import Trace

VARIABLE = "MODELPERF_TRACE"
# The number of the process that writes the named file; its descendants write files next to it.
OWNER = "MODELPERF_TRACE_PROCESS"
# The number of the process that ran `modelperf trace -- COMMAND`: only its child can be the owner.
LAUNCHER = "MODELPERF_TRACE_LAUNCHER"
_NO_OWNER = "0"
_RUNTIME = "onnxruntime"
_STDOUT = "-"
# multiprocessing runs finalizers from the highest priority to the lowest: this one runs last.
_LAST = -1_000_000


def start() -> None:
    """Wait for the import of onnxruntime if the user asked for a trace."""
    file = os.environ.get(VARIABLE)
    if file == _STDOUT:
        # Child processes would repeat the message.
        del os.environ[VARIABLE]
        _say("it takes a file: standard output is the program's own.")
    elif file:
        os.environ.setdefault(OWNER, _choose_owner())
        # Made absolute now, because the program may change its working folder.
        try:
            path = Path(file).absolute()
        except FileNotFoundError:
            _say(f"cannot write {file}: the working folder was removed.")
            return
        when_imported(_RUNTIME, partial(_begin, path))


def _choose_owner() -> str:
    """Return the number of this process. With a launcher, only its child can be the owner."""
    launcher = os.environ.get(LAUNCHER)
    return str(os.getpid()) if launcher in {None, str(os.getppid())} else _NO_OWNER


def _begin(file: Path) -> None:
    # The variable may be gone by now: a worker that measures removes it.
    if os.environ.get(VARIABLE):
        _Tracing(file).begin()


class _Tracing:
    """The recording of this process, and of each process forked from it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._has_failed = False

    def begin(self) -> None:
        """Record the owner from now on, any other process from its first use of onnxruntime."""
        if os.environ.get(OWNER) == str(os.getpid()):
            self._record()
        else:
            self._await_use()
        # Registered last, so it runs after the fork handlers of the modules in use.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_in_fork)

    def _begin_in_fork(self) -> None:
        """Begin again in a forked process, while the parent keeps what it recorded."""
        # After a failure, forked processes do not repeat the message.
        if os.environ.get(VARIABLE) and not self._has_failed:
            self._await_use()

    def _await_use(self) -> None:
        from pytest_modelperf.profiler.engines.onnxruntime_methods import FirstUse

        FirstUse(self._record).begin()

    def _record(self) -> None:
        from pytest_modelperf.errors import ModelPerfError
        from pytest_modelperf.tracing.program_trace import trace

        recorded = trace(_file_of_process(self._file))
        try:
            recorded.__enter__()
        except (ModelPerfError, OSError) as error:
            # The program goes on without a trace.
            self._has_failed = True
            _say(str(error))
            return
        _end_with_process(recorded)


def _file_of_process(file: Path) -> Path:
    process = str(os.getpid())
    if os.environ.get(OWNER) == process:
        return file
    return file.with_name(f"{file.stem}-{process}{file.suffix}")


def _end_with_process(recorded: Trace) -> None:
    # SciPy 1.18 imports it when the trace is written, and a process that ends can no longer do so.
    import concurrent.futures.thread  # noqa: F401

    atexit.register(_end, recorded)
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:
        _end_with_child(recorded)
        # multiprocessing clears its finalizers when it sets up a forked process.
        multiprocessing.register_after_fork(recorded, _end_with_child)


def _end_with_child(recorded: Trace) -> None:
    """End the recording when a multiprocessing child ends: a forked child skips atexit."""
    import multiprocessing
    import multiprocessing.util

    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _end, args=(recorded,), exitpriority=_LAST)


def _end(recorded: Trace) -> None:
    if not recorded.is_recording:
        return
    from pytest_modelperf.files.interrupts import interrupt_held

    was_interrupted = _is_ended_by_interrupt()
    try:
        with interrupt_held() as held:
            for problem in _write(recorded):
                _say(problem)
    except KeyboardInterrupt:
        _say("interrupted again, so this process writes no trace.")
        _end_by_interrupt()
    if held.has_come:
        _end_by_interrupt()
    if was_interrupted:
        _keep_exit_status()


def _is_ended_by_interrupt() -> bool:
    """Whether this process ends because of an uncaught interrupt that Python has printed."""
    # After an interrupt, an interactive session goes on.
    return getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1")


def _keep_exit_status() -> None:
    """Let this process end by SIGINT as it would have without a trace.

    CPython chooses the exit status by whether the last code that it ran from a string was
    interrupted. Modules that were imported for the trace ran such code.
    """
    with suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")  # noqa: S102  # our own text


def _write(recorded: Trace) -> tuple[str, ...]:
    import warnings

    from pytest_modelperf.errors import ModelPerfError

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            recorded.__exit__(None, None, None)
    except ModelPerfError as error:
        return (str(error),)
    finally:
        # A forked process may exit without finalizers, which would leave its files behind.
        recorded.discard()
    return tuple(str(warning.message) for warning in caught)


def _end_by_interrupt() -> None:
    """End this process as the interrupt would have: an exception at exit is only printed."""
    import signal

    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)


def _say(text: str) -> None:
    # Python has no stderr object if the stream is closed; print would then use standard output.
    if sys.stderr is not None:
        print(f"{VARIABLE}: {text}", file=sys.stderr)  # noqa: T201  # the only place for a message


start()
