"""Ask a worker in a process of its own, and always end it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import (
    EngineError,
    MeasureError,
    MissingModuleError,
    Remedy,
    TooFewCoresError,
)
from pytest_modelperf.profiler.engines.source import (
    CALLABLE_ENGINE,
    EngineModule,
    compile_module,
    find_source,
)
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.worker.endings import GRACE_S, describe_end, failure
from pytest_modelperf.profiler.worker.gateway import (
    LEAST_START_LIMIT_S,
    LOCAL,
    Interpreter,
    is_local,
    is_this_python,
    read_spec,
    watchdog,
)
from pytest_modelperf.profiler.worker.starter import Channel
from pytest_modelperf.profiler.worker.working_folder import WorkingFolder
from pytest_modelperf.text.escaping import is_utf8, printable

if TYPE_CHECKING:
    from typing_extensions import Self

# The modules that are sent to a worker, each after the modules that it imports.
SENT_MODULES = (
    f"{__package__}.starter",
    "pytest_modelperf.systems.kernel32",
    "pytest_modelperf.systems.process",
    *(f"{__package__}.{name}" for name in ("timing", "process", "sessions", "agent")),
)

# How long a worker may stay silent in one step. A model of many gigabytes loads in less time.
DEFAULT_LIMIT_S = 300.0
# Commands that send more than a pipe holds.
_LARGE = frozenset({"inputs", "put"})
_PIECE_BYTES = 4 << 20


# What a process enters while it only waits for its worker.
Waiting: TypeAlias = Callable[[], AbstractContextManager[object]]
# What a process does before it waits.
Meanwhile: TypeAlias = Callable[[], None]


class Worker(Protocol):
    """The process that measures a model: another one, or this one."""

    # Whether the process only measures.
    is_own_process: bool
    # The processors that it is pinned to, or why it is not pinned.
    processors: tuple[int, ...] | None
    unpinned_because: str | None
    # The version of its interpreter, and the facts of its machine, or None for this machine.
    python: str | None
    machine: MachineFacts | None
    # A folder of this machine for files to be sent; it is removed when the worker ends.
    folder: Path

    def use_engine(self, engine: EngineModule, options: Mapping[str, str]) -> Mapping[str, Any]:
        """Load an engine, and return its description."""

    def send_file(self, path: Path, name: str) -> str:
        """Return the path of a file as the worker sees it."""

    def ask(
        self,
        command: str,
        step: str,
        limit_s: float | None = None,
        meanwhile: Meanwhile | None = None,
        **arguments: object,
    ) -> Any:  # noqa: ANN401  # plain values, narrowed by the caller
        """Return the answer to a command. Raise MeasureError with the `step` if there is none.

        `meanwhile` runs while a worker in another process is busy.
        """


class WorkerRequest(Struct, frozen=True, kw_only=True):
    """The settings that a worker is started with.

    Without `cores` it is not pinned. Workers that run at the same time have different places. The
    `paths` come after the packages of its interpreter; with `is_whole_path` they are all that it
    imports from.
    """

    spec: str = LOCAL
    cores: int = 1
    place: int = 0
    limit_s: float = DEFAULT_LIMIT_S
    least_start_limit_s: float = LEAST_START_LIMIT_S
    cgroup_files: Sequence[str] = ()
    paths: Sequence[str] = ()
    is_whole_path: bool = False

    def differs_by_paths(self, other: WorkerRequest) -> bool:
        """Whether the requests differ, but only in paths that a running worker can still take."""
        differs = self.paths != other.paths and not self.is_whole_path
        return differs and replace(self, paths=other.paths) == other


class ProcessWorker:
    """A worker in a process of its own, as a context that leaves no process behind.

    While this process only waits for the worker, it enters `waiting`. Without an `interpreter`, it
    starts one through the gateway.
    """

    is_own_process = True

    def __init__(
        self,
        request: WorkerRequest,
        waiting: Waiting = nullcontext,
        interpreter: Interpreter | None = None,
    ) -> None:
        self._request = request
        self.waiting = waiting
        self.is_local = is_local(request.spec)
        self._start_limit_s = max(request.limit_s, request.least_start_limit_s)
        self._interpreter = interpreter
        self._is_starting = False
        self._why_over = ""
        self._shows_trace = False
        self._working_folder = WorkingFolder("worker")
        self.folder = self._working_folder.path
        self._log = self.folder / "output.txt"
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

    def ask(
        self,
        command: str,
        step: str,
        limit_s: float | None = None,
        meanwhile: Meanwhile | None = None,
        **arguments: object,
    ) -> Any:  # noqa: ANN401  # plain values, narrowed by the caller
        if self._why_over:
            raise MeasureError(f"the worker had already ended {step}: {self._why_over}")
        wrong = next((text for text in _texts(arguments) if not is_utf8(text)), None)
        if wrong is not None:
            raise MeasureError(
                f"a worker only takes text that is valid UTF-8, not {printable(wrong)}: "
                "give the file or the folder another name."
            )
        limit_s = self._request.limit_s if limit_s is None else limit_s
        self._send({"command": command, **arguments}, limit_s if command in _LARGE else None)
        if meanwhile is not None:
            meanwhile()
        answer = self._receive(step, limit_s)
        if "error" in answer:
            raise failure(answer["error"], step, self.executable, shows_trace=self._shows_trace)
        return answer["ok"]

    def _send(self, value: object, limit_s: float | None) -> None:
        """Send a value to a worker. `_receive` reports if the worker has ended.

        With a limit, a worker that does not read is given up, because writing to a full pipe
        blocks.
        """
        watched = nullcontext() if limit_s is None else watchdog(limit_s, self._give_up)
        with watched, suppress(OSError):
            self._channel.send(value)

    def _receive(self, step: str, limit_s: float) -> Any:  # noqa: ANN401  # the same
        answer = None
        try:
            while answer is None:
                # None is a heartbeat: the worker is still busy.
                with self.waiting():
                    answer = self._channel.receive(limit_s)
        except TimeoutError:
            self._give_up()
        except EOFError:
            pass
        if isinstance(answer, dict):
            return answer
        error = self._describe_end(step, limit_s, answer)
        # Later requests have the same error.
        self._why_over = error.message
        raise error

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
                code=self._compiled(engine.module, source.file, source.file),
                options=dict(options),
            )
        except MissingModuleError as error:
            hint = f" Install it there: {engine.install}." if engine.install else ""
            raise EngineError(f"the engine {engine.name!r} cannot run: {error}{hint}") from None
        return described

    def use_paths(self, paths: Sequence[str]) -> None:
        """Change the `paths` of the request."""
        self._request = replace(self._request, paths=paths)
        if self.is_local:
            self.ask("paths", "as its import path was set", paths=list(paths))

    def send_file(self, path: Path, name: str) -> str:
        """Return a file's path as the worker sees it. One on another machine is sent the file."""
        if self.is_local:
            # A link is not resolved, because the model's external data is next to the link.
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

    def send_model(self, path: Path, external: Mapping[str, Path], folder: str = "model") -> str:
        """Send a model and its external data, into a folder of that name on another machine."""
        for place, file in sorted(external.items()):
            self.send_file(file, f"{folder}/{place}")
        return self.send_file(path, f"{folder}/{path.name}")

    def end(self) -> None:
        """End the worker and all that it started, and remove its files."""
        is_over, self._why_over = bool(self._why_over), self._why_over or "it had ended before."
        try:
            if not self.is_local and self._interpreter is not None and not is_over:
                with suppress(Exception):
                    self._channel.send({"command": "end"})
                    self._channel.receive(GRACE_S)
            if self._interpreter is not None:
                self._interpreter.end()
        finally:
            # Even if another interrupt comes.
            self._working_folder.remove()

    def _give_up(self) -> None:
        if self._interpreter is not None:
            self._interpreter.give_up()

    def _start(self) -> None:
        self._is_starting = True
        self._interpreter = interpreter = self._interpreter or self._start_interpreter()
        self._receive("as it started", self._start_limit_s)
        self._send((self._place(), self._modules()), self._start_limit_s)
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
            place=self._request.place,
        )
        if self.is_local:
            interpreter.watch(int(begun["pid"]))
        self._is_starting = False
        self.processors = None if begun["processors"] is None else tuple(begun["processors"])
        self.unpinned_because = begun["unpinned_because"]
        self.executable = str(begun["executable"])
        self.python = str(begun["python"])
        if not self.is_local:
            self.machine = MachineFacts(**begun["platform"])
        allowed = begun["processors_allowed"]
        if allowed is not None and allowed < self._request.cores:
            raise TooFewCoresError.of(self._request.cores, allowed, f"the worker may use {allowed}")

    def _start_interpreter(self) -> Interpreter:
        try:
            return Interpreter(self._request.spec, self._start_limit_s)
        except OSError as error:
            raise self._describe_start(printable(str(error))) from None

    @property
    def _channel(self) -> Channel:
        if self._interpreter is None:
            raise RuntimeError("the worker was not started")
        return self._interpreter.channel

    def _place(self) -> dict[str, object]:
        given = read_spec(self._request.spec)
        env = {key[4:]: value for key, value in given.items() if key.startswith("env:")}
        return {"chdir": given.get("chdir"), "nice": int(given.get("nice", 0)), "env": env}

    def _modules(self) -> list[tuple[str, str, str, bytes | None]]:
        # Names in brackets mark lines of our code in a traceback.
        sources = [(name, f"<{name}>", find_source(name)) for name in SENT_MODULES]
        return [
            (name, source.text, file, self._compiled(name, source.file, file))
            for name, file, source in sources
        ]

    def _compiled(self, module: str, file: str, shown: str) -> bytes | None:
        """Return the compiled module, or None if the worker's Python may be another one."""
        spec = self._request.spec
        return compile_module(module, file, shown) if is_this_python(spec) else None

    def _describe_start(self, reason: str) -> MeasureError:
        shown = printable(self._request.spec)
        if not self.is_local:
            return MeasureError(f"the gateway {shown!r} cannot be reached: {reason}.")
        return MeasureError(
            f"no worker could be started through {shown!r}: {reason}. Is it a Python interpreter "
            "that runs, of version 3.9 or newer?"
        )

    def _describe_end(self, step: str, limit_s: float, last_word: str | None) -> MeasureError:
        """Return the error for a missing answer. The last value of a worker names the cause."""
        if last_word is not None:
            shown = printable(self._request.spec)
            start = f"no worker could be started through {shown!r}"
            what = start if self._is_starting else f"the worker ended {step}"
            return MeasureError(f"{what}: {printable(str(last_word).rstrip('.'))}.")
        is_given_up = self._interpreter is not None and self._interpreter.is_given_up
        if self._is_starting:
            silence = f"it did not answer for {limit_s:.3g} s"
            return self._describe_start(silence if is_given_up else "it ended at once")
        if is_given_up:
            ended = "the worker was ended" if self.is_local else "the worker was given up"
            return MeasureError(
                f"no answer for {limit_s:.3g} s {step}: {ended}.",
                Remedy("If the model takes that long, allow more with {timeout}."),
            )
        if not self.is_local or self._interpreter is None:
            lost = f"the connection to the worker was lost {step}"
            return MeasureError(f"{lost}. The log on that machine may say why.")
        end = describe_end(self._interpreter.process, step, self._log)
        # Do this now, because another process may get its number later.
        self._interpreter.kill()
        return MeasureError(end)


def _inherited_path(spec: str) -> list[str]:
    """Return the PYTHONPATH that another interpreter of this machine inherits from this one."""
    # Its modules are for this one, and must not replace what is installed there.
    if not is_local(spec) or is_this_python(spec):
        return []
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [str(Path(entry).absolute()) for entry in entries if entry]


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
