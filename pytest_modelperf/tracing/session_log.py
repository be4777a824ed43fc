"""Logs what the sessions of ONNX Runtime run, in each process that imports this module.

`session_runs` starts a program with `MODELPERF_SESSION_LOG=FOLDER` and has each Python import it.
A process appends a line for each session and each inference to a file of its own. A line is written
at once, so a process that is killed, or that exits without Python's own exit, leaves a whole log.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_modelperf.tracing.first_import import when_imported

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.session_facts import InputShapes

LOG_VARIABLE = "MODELPERF_SESSION_LOG"
_RUNTIME = "onnxruntime"
# The attribute of a session that holds its facts.
_FACTS = "_modelperf_logged"
# The kinds of numbers in NumPy: booleans, integers and floats.
_NUMBERS = "biuf"

Values = tuple[tuple[str, float], ...]
Sizes = tuple[tuple[str, tuple[int, ...]], ...]


class LoggedSession(NamedTuple):
    """The model of a session and its options. A model in memory is identified by its digest."""

    model: str | None
    sha256: str | None
    size: int
    options: tuple[tuple[str, str], ...]


class LoggedInputs(NamedTuple):
    """The sizes of the inputs of an inference, and the values of inputs with a single number."""

    session: int
    sizes: Sizes | None
    values: Values


def start() -> None:
    """Log the sessions of this process if a folder for logs is given."""
    folder = os.environ.get(LOG_VARIABLE)
    if folder:
        when_imported(_RUNTIME, lambda: _Log(Path(folder)).begin())


class _Log:
    """The log of this process, and of each process forked from it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: dict[tuple[object, ...], str] = {}
        self._clear()

    def _clear(self) -> None:
        # A thread of the parent process may have held the lock.
        self._lock = threading.Lock()
        self._file = self._folder / f"{os.getpid()}.log"
        self._sessions: dict[LoggedSession, int] = {}
        self._inputs: dict[LoggedInputs, int] = {}

    def begin(self) -> None:
        from pytest_modelperf.profiler.engines.onnxruntime_methods import RUNS, WrappedMethods
        from pytest_modelperf.profiler.engines.onnxruntime_sessions import (
            SeenBindings,
            shapes_finder,
        )

        if not os.environ.get(LOG_VARIABLE):
            # A worker that measures has removed it.
            return
        methods, bindings = WrappedMethods(), SeenBindings()
        bindings.begin()
        methods.wrap("__init__", self._creating)
        for name, place in {**RUNS, "run_async": RUNS["run"]}.items():
            find = shapes_finder("run" if name == "run_async" else name, bindings)
            methods.wrap(name, partial(self._running, find, place))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._clear)

    # -- wrappers

    def _creating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(session: Any, path_or_bytes: Any, *arguments: Any, **named: Any) -> None:  # noqa: ANN401, N807  # it replaces that method
            original(session, path_or_bytes, *arguments, **named)
            facts = self._facts(session, path_or_bytes)
            with self._lock:
                self._number(facts)

        return __init__

    def _running(
        self,
        find_shapes: Callable[[tuple[Any, ...], Mapping[str, Any]], InputShapes | None],
        place: tuple[int, str],
        original: Callable[..., Any],
    ) -> Callable[..., Any]:
        at, word = place

        def run(session: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # no types
            # The runtime checks the inputs, so only those that it accepted are logged.
            result = original(session, *arguments, **named)
            feed = arguments[at] if len(arguments) > at else named.get(word)
            self._note(session, find_shapes(arguments, named), _single_numbers(feed))
            return result

        return run

    # -- what is written

    def _note(self, session: Any, shapes: InputShapes | None, values: Values) -> None:  # noqa: ANN401
        sizes = None if shapes is None else tuple((n, tuple(shape)) for n, shape, _ in shapes)
        facts = getattr(session, _FACTS, None) or self._facts(session, None)
        with self._lock:
            inputs = LoggedInputs(self._number(facts), sizes, values)
            number = self._inputs.get(inputs)
            if number is None:
                number = self._inputs[inputs] = len(self._inputs)
                self._write(json.dumps(["inputs", number, *inputs]))
            self._write(str(number))

    def _number(self, facts: LoggedSession) -> int:
        number = self._sessions.get(facts)
        if number is None:
            number = self._sessions[facts] = len(self._sessions)
            self._write(json.dumps(["session", number, *facts]))
        return number

    def _write(self, line: str) -> None:
        # Opened each time: a program that becomes a daemon closes all of its files.
        with self._file.open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    def _facts(self, session: Any, source: Any) -> LoggedSession:  # noqa: ANN401
        from pytest_modelperf.profiler.engines.session_facts import (
            model_identity,
            session_model,
            session_options,
        )

        given = source if source is not None else getattr(session, "_model_path", None)
        model, digest, size = session_model(given), None, 0
        if isinstance(model, bytes):
            size = len(model)
            identity = model_identity(model)
            digest = self._digests.get(identity) or hashlib.sha256(model).hexdigest()
            self._digests[identity] = digest
        options = tuple(session_options(session).items())
        path = model if isinstance(model, str) else None
        facts = LoggedSession(path, digest, size, options)
        setattr(session, _FACTS, facts)
        return facts


def _single_numbers(feed: Any) -> Values:  # noqa: ANN401  # anything that the runtime takes
    if not isinstance(feed, Mapping):
        return ()
    return tuple(
        (name, value.item())
        for name, value in feed.items()
        if getattr(value, "size", 0) == 1
        and getattr(getattr(value, "dtype", None), "kind", "") in _NUMBERS
    )


start()
