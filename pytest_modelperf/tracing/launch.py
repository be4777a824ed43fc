"""Run a program, watch each Python that it starts, and read what its ONNX Runtime sessions ran."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.output import STDOUT, check_output, has_folder
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shell_path, shell_word, shorten_list
from pytest_modelperf.tracing import startup
from pytest_modelperf.tracing.autostart import LAUNCHER, OWNER, VARIABLE
from pytest_modelperf.tracing.session_log import LOG_VARIABLE, LoggedInputs, LoggedSession

# The exit code that a shell gives a program ended by a signal is this plus the signal's number.
SIGNAL_BASE = 128
# Windows has two of them.
_FORWARDED = tuple(
    each for each in signal.Signals if each.name in {"SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP"}
)
# The terminal sends these to every process in its foreground, and so to the program as well.
_FROM_TERMINAL = frozenset(each for each in _FORWARDED if each.name in {"SIGINT", "SIGQUIT"})


class StartedPython(Struct, frozen=True):
    """A Python that loaded the startup module.

    `problem` is the reason why it is not watched, or empty.
    """

    executable: str
    problem: str


class Launch(Struct, frozen=True):
    """A program that was run: how it ended, and the Pythons in it.

    `returned` is its exit code, or the negative number of the signal that ended it.
    """

    returned: int
    pythons: tuple[StartedPython, ...]

    @property
    def exit_code(self) -> int:
        return self.returned if self.returned >= 0 else SIGNAL_BASE - self.returned

    @property
    def has_ended_well(self) -> bool:
        """Whether it succeeded, or the user ended it with Ctrl-C, as is usual for a server."""
        return self.exit_code in {0, SIGNAL_BASE + signal.SIGINT}


class TracedLaunch(Launch, frozen=True):
    """A program that was run with tracing, and the traces written during the run."""

    traces: tuple[Path, ...]


def run_watched(command: Sequence[str], variables: Mapping[str, str], example: str) -> Launch:
    """Run a command to its end, and watch its Pythons.

    The variables set what each Python watches. `example` is our own command, such as `modelperf
    trace`, for the error if the program cannot start.
    """
    with working_folder("launch") as folder:
        shutil.copyfile(startup.__file__, folder / "sitecustomize.py")
        returned = _run(command, _environment(folder, variables), example)
        return Launch(returned, _started_pythons(folder))


def run_traced(command: Sequence[str], file: str) -> TracedLaunch:
    """Run a command to its end, and trace it.

    `file` gets the trace of the command's own process. Traces of other processes are written next
    to it.
    """
    if file == STDOUT:
        raise UsageError(
            "a trace takes a file: standard output is the program's own. Give another with -o, or "
            "./- for a file of that name."
        )
    check_output(file)
    # Made absolute now: a child process may have another working folder.
    target = Path(file).absolute()
    before = _trace_files(target)
    variables = {VARIABLE: str(target), LAUNCHER: str(os.getpid())}
    launch = run_watched(command, variables, "modelperf trace")
    written = [path for path, state in _trace_files(target).items() if before.get(path) != state]
    if len(written) == 1 and written[0] != target:
        # The command is a script or a launcher, with one traced program inside.
        written = [written[0].replace(target)]
    traces = tuple(sorted(written, key=lambda path: path != target))
    return TracedLaunch(launch.returned, launch.pythons, traces)


def _environment(folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's variables, changed so that each Python of the program is watched."""
    made = {**os.environ, **variables}
    made.pop(OWNER, None)
    made["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), made.get("PYTHONPATH"))))
    return made


def _run(command: Sequence[str], environment: Mapping[str, str], example: str) -> int:
    with _forwarded_signals() as forwarder:
        try:
            # Files that a shell opened for the program, such as /dev/fd/63, stay open.
            process = subprocess.Popen(command, env=environment, close_fds=False)  # noqa: S603  # what the user typed
        except OSError as error:
            raise _cannot_start(command[0], error, example) from error
        forwarder.begin(process)
        return process.wait()


def _cannot_start(name: str, error: OSError, example: str) -> UsageError:
    reason = error.strerror or str(error)
    advice = f"Give a program, as in `{example} -- python program.py`"
    if name.endswith(".py"):
        advice = f"Start it with Python: `{example} -- python {shell_word(name)}`"
    return UsageError(f"cannot start {printable(name)}: {reason}. {advice}")


class _Forwarder:
    """A handler that sends signals on to the program, including those from before its start."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        for number in self._early:
            process.send_signal(number)

    def handle(self, number: int, _: FrameType | None) -> None:
        if self._process is None:
            self._early.append(number)
        elif number not in _FROM_TERMINAL or not _is_in_foreground():
            self._process.send_signal(number)


@contextmanager
def _forwarded_signals() -> Iterator[_Forwarder]:
    """Forward signals to the program, so that it decides what they mean, not this process."""
    forwarder = _Forwarder()
    if threading.current_thread() is not threading.main_thread():
        # Python accepts signal handlers from the main thread only.
        yield forwarder
        return
    before = {
        number: signal.signal(number, forwarder.handle)
        for number in _FORWARDED
        # The program inherits signals that are ignored, as under nohup.
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield forwarder
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_in_foreground() -> bool:
    """Whether a terminal's signals reach both this process and the program directly."""
    own_group = getattr(os, "getpgrp", None)
    if own_group is None or not hasattr(os, "tcgetpgrp"):
        # A Windows console sends them to all of its processes.
        return True
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return bool(os.tcgetpgrp(terminal) == own_group())
    except OSError:
        return False
    finally:
        os.close(terminal)


def _trace_files(target: Path) -> dict[Path, tuple[int, int]]:
    if not has_folder(target):
        return {}
    name = re.compile(rf"{re.escape(target.stem)}(-\d+)?{re.escape(target.suffix)}")
    found = {}
    for path in target.parent.iterdir():
        # Another process may remove it meanwhile.
        with suppress(FileNotFoundError):
            if name.fullmatch(path.name):
                state = path.stat()
                found[path] = state.st_ino, state.st_mtime_ns
    return found


def _started_pythons(folder: Path) -> tuple[StartedPython, ...]:
    notes = folder / startup.NOTES_NAME
    lines = notes.read_text("utf-8").splitlines() if notes.exists() else []
    pairs = dict.fromkeys(tuple(line.partition("\t")[::2]) for line in lines)
    return tuple(StartedPython(executable, problem) for executable, problem in pairs)


# -- the text of a command when the program that it watched has ended


_MOST_NAMES = 3


def describe_traces(traces: Sequence[Path], file: str) -> str:
    """Name the files that were written, and the command that sums up the first."""
    names = [file if path == Path(file).absolute() else path.name for path in traces]
    shown = shorten_list(names, _MOST_NAMES)
    first = file if names[0] == file else str(Path(file).with_name(names[0]))
    return f"wrote {shown}; to sum it up: modelperf trace {shell_path(first)}"


def explain_no_sessions(launch: Launch) -> str:
    """Explain why no session of a program was seen, and what to type."""
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
    """Explain why no trace was written, and what to type."""
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
        signals = f", or by signal {number}, which a shell reports as exit code {launch.returned}"
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


class InferenceSizes(Struct, frozen=True):
    """Inferences with the same inputs: the shape of each, and the values of single numbers.

    `shapes` is None if they are unknown, as for device tensors that were bound earlier.
    """

    shapes: Mapping[str, tuple[int, ...]] | None
    values: Mapping[str, float]
    count: int


class SessionRuns(Struct, frozen=True):
    """The sessions of a program that have the same model and options.

    `model` is the path of its file, or None for a model in memory. For a model in memory, `sha256`
    is the digest of its bytes, and `size` their number.
    """

    model: Path | None
    sha256: str | None
    size: int
    options: Mapping[str, str]
    inferences: tuple[InferenceSizes, ...]

    @property
    def count(self) -> int:
        """The number of inferences that ran."""
        return sum(each.count for each in self.inferences)


class ProgramSessions(Struct, frozen=True):
    """A program that was run to its end, and its sessions."""

    launch: Launch
    sessions: tuple[SessionRuns, ...]


def run_program(command: Sequence[str], example: str) -> ProgramSessions:
    """Run a command to its end, and return the sessions of all Pythons that it started.

    `example` is our own command that runs the program, for the error if the program cannot start.
    """
    with working_folder("sessions") as folder:
        launch = run_watched(command, {LOG_VARIABLE: str(folder)}, example)
        logs = (path.read_text("utf-8") for path in sorted(folder.glob("*.log")))
        return ProgramSessions(launch, read_logs(logs))


def read_logs(logs: Iterable[str]) -> tuple[SessionRuns, ...]:
    """Return the sessions of several processes, merged if they have the same model and options."""
    counts: dict[LoggedSession, Counter[LoggedInputs]] = {}
    for log in logs:
        for session, inputs in _inferences(log):
            known = counts.setdefault(session, Counter())
            if inputs is not None:
                # A session's number is valid only in its own process.
                known[inputs._replace(session=0)] += 1
    return tuple(
        SessionRuns(
            model=None if session.model is None else Path(session.model),
            sha256=session.sha256,
            size=session.size,
            options=dict(session.options),
            inferences=tuple(
                InferenceSizes(
                    None if inputs.sizes is None else dict(inputs.sizes), dict(inputs.values), count
                )
                for inputs, count in found.most_common()
            ),
        )
        for session, found in counts.items()
    )


def _inferences(log: str) -> Iterator[tuple[LoggedSession, LoggedInputs | None]]:
    """Yield each session without inputs when it is made, and with inputs for each inference."""
    sessions: list[LoggedSession] = []
    inputs: list[LoggedInputs] = []
    # A process that was killed may have left its last line unfinished.
    for line in log.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        read = json.loads(line)
        if isinstance(read, int):
            own = inputs[read]
            yield sessions[own.session], own
        elif read[0] == "session":
            model, sha256, size, options = read[2:]
            made = LoggedSession(model, sha256, size, tuple((k, v) for k, v in options))
            sessions.append(made)
            yield made, None
        else:
            session, sizes, values = read[2:]
            shapes = None if sizes is None else tuple((n, tuple(shape)) for n, shape in sizes)
            inputs.append(LoggedInputs(session, shapes, tuple((n, v) for n, v in values)))
