"""Starts a worker where a gateway spec says, sends it requests, and ends it whatever happens.

A spec has execnet's form: `popen`, `popen//python=/other/venv/bin/python`, or
`ssh=host//python=python3`. That Python only needs numpy and the engine.
"""

from __future__ import annotations

import gc
import os
import re
import shlex
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import execnet
from msgspec import Struct

from pytest_modelperf.errors import (
    EngineError,
    MeasureError,
    MissingModuleError,
    ModelPerfError,
    Remedy,
    TooFewCoresError,
    UsageError,
)
from pytest_modelperf.profiler.engines.source import (
    CALLABLE_ENGINE,
    EngineModule,
    compile_source,
    find_source,
)
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.worker.endings import GRACE_S, failure, read_tail, wait_for_end
from pytest_modelperf.profiler.worker.execnet_private import (
    Processes,
    close_connection,
    cut_off,
    forget_group,
    group_of,
)
from pytest_modelperf.profiler.worker.working_folder import WorkingFolder
from pytest_modelperf.systems.trees import TREES, Tree
from pytest_modelperf.text.escaping import is_utf8, printable

if TYPE_CHECKING:
    from typing_extensions import Self

# The modules that are sent to a worker, each after the modules that it imports.
SENT_MODULES = (
    f"{__package__}.starter",
    "pytest_modelperf.systems.kernel32",
    "pytest_modelperf.systems.posix_process",
    "pytest_modelperf.systems.windows_process",
    "pytest_modelperf.systems.process",
    f"{__package__}.clocks",
    f"{__package__}.timing",
    f"{__package__}.meter",
    f"{__package__}.process",
    f"{__package__}.feeds",
    f"{__package__}.weights",
    f"{__package__}.agent",
)
LOCAL = "popen"
# The ways to a worker, what needs no value, and what else a spec may say.
_WAYS = (LOCAL, "ssh")
_FLAGS = frozenset({LOCAL, "dont_write_bytecode"})
_SPEC_KEYS = frozenset({
    *_WAYS, *_FLAGS, "chdir", "execmodel", "id", "nice", "python", "ssh_config",
})  # fmt: skip
_SPEC_EXAMPLES = "popen//python=/path/to/python or ssh=host"

# How long a worker may stay silent in one step: a model of many gigabytes loads in less.
DEFAULT_LIMIT_S = 300.0
# Python and an engine start within this time even on a busy machine.
LEAST_START_LIMIT_S = 60.0
# The errors of execnet for a wrong spec, and if nothing answers.
_START_ERRORS = (
    AssertionError, AttributeError, EOFError, OSError, ValueError, execnet.HostNotFound,
)  # fmt: skip
# Commands that carry more than a pipe holds.
_LARGE = frozenset({"inputs", "put"})
_PIECE_BYTES = 4 << 20


class Worker(Protocol):
    """The process that measures a model: another one, or this one."""

    @property
    def is_own_process(self) -> bool:
        """Whether the process does nothing but measure."""
        ...

    @property
    def processors(self) -> tuple[int, ...] | None:
        """The processors that it is pinned to; None if it is not pinned."""
        ...

    @property
    def unpinned_because(self) -> str | None:
        """Why it is not pinned; None where it is."""
        ...

    @property
    def python(self) -> str | None:
        """The version of its interpreter."""
        ...

    @property
    def machine(self) -> MachineFacts | None:
        """The facts of its machine; None if that is this machine."""
        ...

    @property
    def folder(self) -> Path:
        """A folder of this machine for files to be sent; it goes when the worker ends."""
        ...

    def use_engine(self, engine: EngineModule, options: Mapping[str, str]) -> Mapping[str, Any]:
        """Load an engine; returns its description."""
        ...

    def send_file(self, path: Path, name: str) -> str:
        """The path of a file as the worker sees it."""
        ...

    def ask(
        self, command: str, step: str, limit_s: float | None = None, **arguments: object
    ) -> Any:  # noqa: ANN401  # plain values, narrowed by who asks
        """The answer to a command; MeasureError if there is none. Messages name the `step`."""
        ...


class WorkerRequest(Struct, frozen=True, kw_only=True):
    """The settings that a worker is started with.

    Without `cores` it is not pinned. The `paths` come after the packages of its interpreter, or
    with `is_whole_path` they are all that it imports from.
    """

    spec: str = LOCAL
    cores: int = 1
    limit_s: float = DEFAULT_LIMIT_S
    least_start_limit_s: float = LEAST_START_LIMIT_S
    cgroup_files: Sequence[str] = ()
    paths: Sequence[str] = ()
    is_whole_path: bool = False


class ProcessWorker:
    """A worker in a process of its own, as a context: no process is left behind."""

    is_own_process = True

    def __init__(self, request: WorkerRequest) -> None:
        self._request = request
        self.is_local = is_local(request.spec)
        # A worker gets no Ctrl-C of the terminal, of which it would print a traceback. The program
        # of another way, such as ssh, may ask the user there for a password.
        self._processes = Processes(TREES.popen_options() if self.is_local else {})
        self._group = group_of(self._processes)
        self._channel: Any = None
        self._pid: int | None = None
        self._tree: Tree | None = None
        self._is_over = False
        self._why_over = ""
        self._shows_trace = False
        self._folder = WorkingFolder("worker")
        self.processors: tuple[int, ...] | None = None
        self.unpinned_because: str | None = None
        self.executable = ""
        self.machine: MachineFacts | None = None
        self.python: str | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    @property
    def folder(self) -> Path:
        return self._folder.path

    def ask(
        self, command: str, step: str, limit_s: float | None = None, **arguments: object
    ) -> Any:  # noqa: ANN401  # plain values, narrowed by who asks
        if self._is_over:
            why = self._why_over or "it had ended before."
            raise MeasureError(f"the worker was no longer there {step}: {why}")
        limit_s = self._request.limit_s if limit_s is None else limit_s
        try:
            with self._watched(command, limit_s):
                self._send({"command": command, **arguments})
            answer = None
            while answer is None:
                # None is a heartbeat: the worker is still busy.
                answer = self._channel.receive(limit_s)
        except execnet.DumpError:
            texts = (printable(text) for text in _texts(arguments) if not is_utf8(text))
            raise MeasureError(
                f"a worker takes no text with bytes that are no UTF-8, such as {next(texts)}: "
                "give the file or the folder another name."
            ) from None
        except self._channel.TimeoutError:
            self._give_up()
            raise self._over(self._describe_silence(step, limit_s)) from None
        except (EOFError, OSError, self._channel.RemoteError) as error:
            if self._is_over:
                raise self._over(self._describe_silence(step, limit_s)) from None
            self._is_over = True
            if command == "begin":
                raise self._describe_start(error) from None
            raise self._over(MeasureError(self._describe_end(step, error))) from None
        if "error" in answer:
            raise failure(answer["error"], step, self.executable, shows_trace=self._shows_trace)
        return answer["ok"]

    def _over(self, error: MeasureError) -> MeasureError:
        """The error that ended the worker; whoever asks for more is told the same."""
        self._why_over = error.message
        return error

    def use_engine(self, engine: EngineModule, options: Mapping[str, str]) -> Mapping[str, Any]:
        self._shows_trace = engine.name == CALLABLE_ENGINE
        source = find_source(engine.module)
        try:
            described: Mapping[str, Any] = self.ask(
                "engine",
                f"as the engine {engine.name} was loaded",
                self._start_limit_s,
                source=source.text,
                file=source.file,
                code=self._compiled(source.text, source.file),
                options=dict(options),
            )
        except MissingModuleError as error:
            hint = f" Install it there: {engine.install}." if engine.install else ""
            raise EngineError(f"the engine {engine.name!r} cannot run: {error}{hint}") from None
        return described

    def send_file(self, path: Path, name: str) -> str:
        """The path of a file as the worker sees it; to another machine, the file is sent."""
        if self.is_local:
            # A link is not resolved: the model's external data lies beside the link.
            return str(path.absolute())
        target = ""
        with path.open("rb") as file:
            is_first = True
            while (piece := file.read(_PIECE_BYTES)) or is_first:
                target = self.ask(
                    "put", f"sending {printable(name)}", name=name, data=piece, start=is_first
                )
                is_first = False
        return str(target)

    def send_model(self, path: Path, beside: Mapping[str, Path], folder: str = "model") -> str:
        """`send_file` for a model and the files of its external data, by their relative paths.

        On another machine they lie in a folder of that name.
        """
        for place, file in sorted(beside.items()):
            self.send_file(file, f"{folder}/{place}")
        return self.send_file(path, f"{folder}/{path.name}")

    def end(self) -> None:
        """End the worker and all that it started, and remove its files."""
        if not self.is_local and self._channel is not None and not self._is_over:
            with suppress(Exception):
                self._channel.send({"command": "end"})
                self._channel.receive(GRACE_S)
        self._is_over = True
        if self._tree is not None:
            self._tree.kill()
        gateways = list(self._group)
        try:
            with suppress(Exception):
                self._group.terminate(timeout=GRACE_S)
                forget_group(self._group)
            for gateway in gateways:
                close_connection(gateway)
        finally:
            # Also if another interrupt comes.
            self._folder.remove()

    def _send(self, request: Mapping[str, object]) -> None:
        try:
            self._channel.send(request)
        except OSError:
            # The other side closed the channel. Where it said why, this raises it.
            with suppress(self._channel.TimeoutError):
                self._channel.receive(GRACE_S)
            raise

    def _watched(self, command: str, limit_s: float) -> AbstractContextManager[None]:
        """Give up a worker that does not read a large request: writing to a full pipe blocks."""
        return _watchdog(limit_s, self._give_up) if command in _LARGE else nullcontext()

    def _give_up(self) -> None:
        """Send no more requests; kill a local worker, and cut the connection to another."""
        self._is_over = True
        if self._tree is not None:
            self._tree.kill()
        elif not self.is_local:
            for gateway in self._group:
                cut_off(gateway)

    def _describe_silence(self, step: str, limit_s: float) -> MeasureError:
        ended = "the worker was ended" if self.is_local else "the worker was given up"
        return MeasureError(
            f"no answer for {limit_s:.3g} s {step}: {ended}.",
            Remedy("If the model takes that long, allow more with {timeout}."),
        )

    # -- start

    @property
    def _start_limit_s(self) -> float:
        return max(self._request.limit_s, self._request.least_start_limit_s)

    def _start(self) -> None:
        self._channel = self._open_channel()
        begun = self.ask(
            "begin",
            "as it started",
            self._start_limit_s,
            cores=self._request.cores,
            is_child=self.is_local,
            cgroup_files=list(self._request.cgroup_files) if self.is_local else [],
            folder=str(self.folder) if self.is_local else None,
            log=str(self._log) if self.is_local else None,
            paths=list(self._request.paths) if self.is_local else [],
            is_whole_path=self._request.is_whole_path,
            inherited=_inherited_path(self._request.spec),
        )
        if self.is_local:
            self._pid = int(begun["pid"])
            self._tree = TREES.tree_of(self._pid)
        self.processors = None if begun["processors"] is None else tuple(begun["processors"])
        self.unpinned_because = begun["unpinned_because"]
        self.executable = str(begun["executable"])
        self.python = str(begun["python"])
        if not self.is_local:
            self.machine = MachineFacts(**begun["platform"])
        allowed = begun["processors_allowed"]
        if allowed is not None and allowed < self._request.cores:
            raise TooFewCoresError.of(self._request.cores, allowed, f"the worker may use {allowed}")

    def _open_channel(self) -> Any:  # noqa: ANN401  # execnet's own
        # Names in brackets mark lines of our code in a traceback.
        sources = [(name, find_source(name).text, f"<{name}>") for name in SENT_MODULES]
        parts = [(name, text, file, self._compiled(text, file)) for name, text, file in sources]
        is_late = threading.Event()

        def give_up() -> None:
            """End an interpreter that hangs as it starts."""
            is_late.set()
            self._processes.kill()

        with warnings.catch_warnings(), _watchdog(self._start_limit_s, give_up):
            # If a process does not start, execnet leaves its pipes to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                with _safe_path():
                    gateway = self._group.makegateway(self._request.spec)
                channel = gateway.remote_exec(parts[0][1])
                channel.send(parts)
            except _START_ERRORS as error:
                silence = f"it said nothing for {self._start_limit_s:.3g} s"
                problem = self._describe_start(TimeoutError(silence) if is_late.is_set() else error)
                # It may be a program that goes on.
                self._processes.end()
            except BaseException:
                # Interrupted, perhaps before the process has said who it is.
                self._processes.end()
                raise
            else:
                return channel
            gc.collect()
        raise problem

    def _compiled(self, text: str, file: str) -> bytes | None:
        """The code that the worker need not compile itself; None if its Python may be another."""
        return compile_source(text, file) if is_this_python(self._request.spec) else None

    def _describe_start(self, error: Exception) -> ModelPerfError:
        shown = printable(self._request.spec)
        if isinstance(error, execnet.RemoteError):
            return MeasureError(
                f"no worker could be started through {shown!r}: {_last_line(str(error))}."
            )
        # The words for an end are those of a pipe, or execnet's own, which have no number.
        is_unnumbered = type(error) is OSError and error.errno is None
        has_ended = is_unnumbered or isinstance(error, EOFError | BrokenPipeError)
        reason = (not has_ended and printable(str(error))) or "it ended at once"
        if isinstance(error, (ValueError, AttributeError)):
            return UsageError(
                f"the gateway {shown!r} cannot be read: {reason}. Give {LOCAL}, {_SPEC_EXAMPLES}."
            )
        if self.is_local:
            return MeasureError(
                f"no worker could be started through {shown!r}: {reason}. Is it a Python "
                "interpreter that runs, of version 3.9 or newer?"
            )
        return MeasureError(f"the gateway {shown!r} cannot be reached: {reason}.")

    @property
    def _log(self) -> Path:
        return self.folder / "output.txt"

    # -- what went wrong

    def _describe_end(self, step: str, error: Exception) -> str:
        """How the worker ended, and its last output."""
        if isinstance(error, execnet.RemoteError):
            # Its process is still there: something raised what the worker does not answer with.
            return f"the worker ended {step}: {_last_line(str(error))}."
        if not self.is_local:
            reason = printable(str(error).strip()) or "no reason given"
            return (
                f"the connection to the worker was lost {step}: {reason}. "
                "The log on that machine may say why."
            )
        ending = None if self._pid is None else wait_for_end(self._pid)
        parts = [f"the worker {'ended' if ending is None else ending.text} {step}."]
        if ending is not None and ending.is_kill:
            parts.append("The system kills a process so when memory runs out.")
        tail = read_tail(self._log)
        if tail:
            parts.append(f"The last it wrote:\n{tail}")
        return " ".join(parts)


@contextmanager
def _watchdog(limit_s: float, give_up: Callable[[], None]) -> Iterator[None]:
    """Calls `give_up` if the context takes longer."""
    timer = threading.Timer(limit_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def is_local(spec: str) -> bool:
    """Whether a gateway is a process on this machine that we start ourselves."""
    return spec.split("//", maxsplit=1)[0] == LOCAL


def interpreter_spec(path: str, option: str) -> str:
    """The spec of a Python interpreter on this machine; UsageError if there is none."""
    if shutil.which(path) is None:
        raise UsageError(
            f"{option} names {printable(path)}, which is no program that can be run. Give the path "
            "of a Python interpreter, such as old-venv/bin/python."
        )
    return python_spec(path)


def python_spec(path: str) -> str:
    """The spec of a Python interpreter, wherever it is."""
    # Two slashes are one to the system, and end the path to execnet, which splits it like a shell.
    return f"{LOCAL}//python={shlex.quote(re.sub('//+', '/', path))}"


def check_spec(spec: str, where: str) -> None:
    """UsageError for a text that is no gateway, or names a Python that is not on this machine."""
    check_form(spec, where)
    python = next(
        (part.partition("=")[2] for part in spec.split("//") if part.startswith("python=")), None
    )
    if python is not None and is_local(spec):
        interpreter_spec(_first_word(python), where)


def check_form(spec: str, where: str) -> None:
    """UsageError for a text that is not a gateway; its Python may be that of another machine."""
    parts = [part.partition("=") for part in spec.split("//")]
    keys = [key for key, _, _ in parts]
    shown, known = printable(spec), {key for key in keys if not key.startswith("env:")}
    problem = ""
    if unknown := sorted(known - _SPEC_KEYS):
        problem = f"a gateway has no {printable(unknown[0])!r}"
    elif len(set(keys)) < len(keys):
        problem = "it has one key twice"
    elif sum(way in known for way in _WAYS) != 1:
        problem = f"it takes one of {', '.join(_WAYS)}"
    elif empty := [key for key, eq, value in parts if not value and (eq or key not in _FLAGS)]:
        problem = f"{printable(empty[0])} needs a value, as in {printable(empty[0])}=VALUE"
    if problem:
        raise UsageError(
            f"{where}: the gateway {shown!r} cannot be read: {problem}. Give {_SPEC_EXAMPLES}."
        )


def _first_word(command: str) -> str:
    """The program of a command line, which may have options of it too."""
    try:
        # As execnet does: the separator of Windows would escape what follows it.
        return shlex.split(command.replace(os.sep, "/"))[0]
    except (IndexError, ValueError):
        return command


def is_this_python(spec: str) -> bool:
    """Whether a gateway uses this very interpreter."""
    return is_local(spec) and not any(part.startswith("python=") for part in spec.split("//"))


def _inherited_path(spec: str) -> list[str]:
    """The PYTHONPATH that another interpreter of this machine takes over from this one.

    It holds modules for this one, which must not replace what is installed there.
    """
    if not is_local(spec) or is_this_python(spec):
        return []
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [str(Path(entry).absolute()) for entry in entries if entry]


def _last_line(traceback: str) -> str:
    """The line of a traceback that has the error."""
    lines = traceback.strip().splitlines()
    return printable(lines[-1].rstrip(".")) if lines else "no reason given"


@contextmanager
def _safe_path() -> Iterator[None]:
    """Pythons that are started in this context import nothing from the working folder.

    A folder that came with a model may hold a `numpy.py`. Pythons before 3.11 ignore the variable.
    """
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _texts(value: object) -> Iterator[str]:
    """All texts in a request."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
