"""`trace` for your own code: `with trace(file="trace.json") as t:`.

Sessions of ONNX Runtime are recorded as they are; those of other engines are recorded if they run
through this module.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.output import STDOUT, check_output, written_text
from pytest_modelperf.labels import add_recorder, remove_recorder
from pytest_modelperf.profiler.engines.session_facts import WatchedSession
from pytest_modelperf.profiler.engines.source import BUILT_IN, CALLABLE_ENGINE
from pytest_modelperf.profiler.worker.working_folder import WorkingFolder
from pytest_modelperf.report.notebook import Viewed
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.tracing.recorder import Recorder
from pytest_modelperf.tracing.recording import Recording
from pytest_modelperf.tracing.records import Category, Event
from pytest_modelperf.tracing.spool import Spool

if TYPE_CHECKING:
    import pandas as pd

    from pytest_modelperf.profiler.engines.onnxruntime_sessions import SessionWatch
    from pytest_modelperf.report.notebook import Views
    from pytest_modelperf.tracing.frames import Frames


class _Model(Struct, frozen=True):
    path: Any
    folder: str | None = None


class EngineSession:
    """A model on one of our engines. Threads that share it take turns."""

    def __init__(self, session: Any, watched: WatchedSession, recorder: Recorder) -> None:  # noqa: ANN401  # the modules of engines have no types
        self._session = session
        self._watched = watched
        self._recorder = recorder
        self._lock = threading.Lock()

    def run(self, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return a list of the named outputs, all if None, or a function's result unchanged."""
        arrays = {name: np.asarray(value) for name, value in feeds.items()}
        with self._lock:
            dtypes = {name: array.dtype.name for name, array in arrays.items()}
            infer = self._session.prepare(arrays, dtypes)
            found = self._timed(infer, arrays)
            if not isinstance(found, Mapping):
                return found
            # Copied, because the next inference overwrites the memory of the engine.
            values = list(found.values()) if outputs is None else [found[name] for name in outputs]
            return [np.array(value) for value in values]

    def _timed(self, infer: Callable[[], Any], arrays: Mapping[str, Any]) -> Any:  # noqa: ANN401
        shapes = tuple((name, array.shape, array.dtype) for name, array in arrays.items())
        error = None
        start_ns = time.perf_counter_ns()
        try:
            return infer()
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            end_ns = time.perf_counter_ns()
            self._recorder.on_inference(self._watched, "run", start_ns, end_ns, shapes, error)


def open_session(
    recorder: Recorder,
    model: Any,  # noqa: ANN401  # what the engine takes
    engine: str,
    *,
    threads: int = 1,
    options: Mapping[str, str] | None = None,
) -> EngineSession:
    known = BUILT_IN.get(engine)
    if known is None:
        raise UsageError(f"there is no engine {engine!r}: it can be {', '.join(BUILT_IN)}.")
    try:
        module = importlib.import_module(known.module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the engine {engine} is not installed ({error}): {known.install}"
        ) from error
    source = model if callable(model) or engine == CALLABLE_ENGINE else str(Path(model))
    name = getattr(model, "__qualname__", None) or Path(str(model)).name
    watched = WatchedSession(
        file_name=name, why=f"the engine {engine} reports no times of single operators"
    )
    start_ns = time.perf_counter_ns()
    try:
        session = module.load(_Model(source), threads, dict(options or {}))
    except module.OptionError as error:
        raise UsageError(f"{engine}: {error}") from error
    recorder.on_session(watched, start_ns, time.perf_counter_ns())
    return EngineSession(session, watched, recorder)


Format = Literal["chrome", "frame"]
FORMATS = ("chrome", "frame")
CATEGORIES = ("inference", "operator")
# Until a profile is written, ONNX Runtime keeps about a kilobyte of memory for each operator that
# ran, and at most a million of them.
OPERATOR_LIMIT = 10_000

_BY = ("session", "name")
_TOP = 20


class TraceWarning(UserWarning):
    """Something is missing from a trace."""


def trace(
    file: str | os.PathLike[str] | None = None,
    categories: Sequence[str] = CATEGORIES,
    format: Format = "chrome",  # noqa: A002  # as others call it
    operator_limit: int | None = OPERATOR_LIMIT,
) -> Trace:
    """Record every ONNX Runtime session that runs inside the `with` statement.

    With a `file` the recording is written there as a Chrome trace. `format="frame"` writes no
    file. In both cases the object of the `with` statement returns data frames. Operators are
    recorded for the first `operator_limit` inferences of each session (None: for all).

        with trace(file="trace.json") as t:
            session.run(None, feeds)
    """
    if format not in FORMATS:
        raise UsageError(f"format is {format!r}: it can be 'chrome' or 'frame'.")
    if format == "frame" and file is not None:
        raise UsageError(
            "format='frame' writes no file: leave file out, and save what t.frame() returns, as "
            "with t.frame().to_csv(file)."
        )
    if file == STDOUT:
        raise UsageError(
            "a trace takes a file: standard output is the program's own. Give another, or ./- for "
            "a file of that name."
        )
    given: object = categories
    is_listed = isinstance(given, Iterable) and not isinstance(given, str)
    names = tuple(categories) if is_listed else ()
    if not is_listed or any(name not in CATEGORIES for name in names):
        raise UsageError(
            f"categories are {categories!r}: they can be 'inference' and 'operator', as in "
            "categories=('inference',)."
        )
    target: object = file
    if target is not None and not isinstance(target, str | os.PathLike):
        raise UsageError(f"file is {file!r}: it takes a path, such as 'trace.json'.")
    limit: object = operator_limit
    is_count = isinstance(limit, Integral) and not isinstance(limit, bool)
    if operator_limit is not None and not (is_count and operator_limit >= 1):
        raise UsageError(
            f"operator_limit is {operator_limit!r}: it can be 1 or more, or None for no limit. "
            "categories=('inference',) leaves operators out."
        )
    wanted = frozenset(Category(name) for name in names)
    return Trace(None if file is None else Path(file).absolute(), wanted, operator_limit)


class Trace(Viewed):
    """The trace of a program, recorded inside its `with` statement and read after it."""

    # A process has one ONNX Runtime, and so one active trace.
    _active: Trace | None = None
    _switch = threading.Lock()

    def __init__(
        self, file: Path | None, categories: frozenset[Category], operator_limit: int | None
    ) -> None:
        self._file = file
        self._operator_limit = operator_limit
        self._categories = categories
        self._recorder: Recorder | None = None
        self._recording: Recording | None = None
        self._watch: SessionWatch | None = None
        self._frames: Frames | None = None
        self._remove: Callable[[], object] | None = None

    # -- recording

    def __enter__(self) -> Trace:  # noqa: PYI034  # Python 3.10 has no Self
        """Begin to record. If the file cannot be written, raise an error now, not at the end."""
        # Imported here: the runtime is loaded only if something is recorded.
        from pytest_modelperf.profiler.engines.onnxruntime_sessions import SessionWatch

        with Trace._switch:
            if self._recorder is not None:
                raise UsageError("this trace was recorded already: call trace() for another.")
            other = Trace._active
            if other is not None and other.is_recording:
                raise UsageError(
                    "another trace is being recorded, as a whole program is with "
                    "MODELPERF_TRACE, and there can be one at a time: end that one first. Labels "
                    "nest: with t.record('name')."
                )
            if self._file is not None:
                check_output(self._file)
            folder = WorkingFolder("trace")
            self._recorder = Recorder(folder.path, self._categories)
            self._remove = weakref.finalize(self._recorder, _remove, self._recorder.spool, folder)
            self._watch = SessionWatch(self._recorder, self._operator_limit)
            self._watch.begin()
            Trace._active = self
            add_recorder(self.record)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop recording, and write the file. An error of the body passes through."""
        try:
            notes = self._end()
        except Exception as problem:
            if error is None:
                raise
            # The error of the body is raised, not this one.
            notes = [f"the trace could not be completed: {problem}"]
        if notes:
            with contextlib.nullcontext() if error is None else contextlib.suppress(TraceWarning):
                warnings.warn(printable(" ".join(notes)), TraceWarning, stacklevel=2)

    @property
    def is_recording(self) -> bool:
        """Whether the recording has begun and not ended, in this process."""
        recorder = self._recorder
        return (
            recorder is not None
            and self._recording is None
            and self._watch is not None
            and recorder.process == os.getpid()
        )

    def discard(self) -> None:
        """Delete the recorded events, which cannot be read any more. The trace file stays."""
        if self._remove is not None:
            self._remove()

    def record(self, name: str) -> AbstractContextManager[None]:
        """Label what this thread, or this task of asyncio, runs inside the `with` statement.

        Labels nest.
        """
        # A plain str: an instance of a subclass, such as Django's SafeString, could not be written.
        return self._begun().label("".join(str(name)))

    def pause(self) -> None:
        """Record nothing that begins before `resume` is called."""
        self._begun().pause()

    def resume(self) -> None:
        self._begun().resume()

    def session(
        self,
        model: Any,  # noqa: ANN401  # a path, bytes, a ModelProto, or what another engine takes
        *arguments: Any,  # noqa: ANN401
        engine: str = "onnxruntime",
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401  # the runtime has no types
        """Create a session that is recorded, with the arguments of `InferenceSession`.

        The session of another engine takes `threads` and `options`, and only has
        `run(outputs, feeds)`.
        """
        recorder = self._begun()
        if engine != "onnxruntime":
            return open_session(recorder, model, engine, *arguments, **named)
        from pytest_modelperf.profiler.engines.onnxruntime_sessions import create_session

        return create_session(model, *arguments, **named)

    def _begun(self) -> Recorder:
        if self._recorder is None:
            raise UsageError("the trace has not begun: begin it with `with trace(...) as t:`.")
        return self._recorder

    def _end(self) -> list[str]:
        """Complete the recording, write the file, and return what is missing from it."""
        recorder, watch = self._begun(), self._watch
        if watch is None:
            return []
        remove_recorder(self.record)
        watch.end()
        with Trace._switch:
            if Trace._active is self:
                Trace._active = None
        if recorder.process != os.getpid():
            # A forked process is not recorded, and the file belongs to the parent.
            self._watch = None
            return []
        try:
            self._recording = Recording(recorder)
        finally:
            self._watch = None
        if self._file is not None:
            with written_text(self._file) as stream:
                self._recording.write_chrome(stream)
        return [note.text for note in self._recording.found if note.is_loss]

    def leave(self) -> None:
        """Record nothing more in this forked process, whose parent is recorded."""
        self._begun().leave()

    @classmethod
    def leave_forked(cls) -> None:
        """In a forked process, record nothing and do not wait for threads of the parent."""
        cls._switch = threading.Lock()
        active, cls._active = cls._active, None
        if active is not None:
            remove_recorder(active.record)
            active.leave()

    # -- what was recorded

    @property
    def notes(self) -> tuple[str, ...]:
        """The parts that the recording lacks, each with its reason."""
        return tuple(note.text for note in self._ended().found)

    def events(self) -> Iterator[Event]:
        """Yield all events sorted by start, each span before the spans inside it."""
        return self._ended().events()

    def frames(self) -> Frames:
        """Return the data frames, the same object each time."""
        if self._frames is None:
            from pytest_modelperf.tracing.frames import Frames

            self._frames = Frames(self.events(), self.notes)
        return self._frames

    def _ended(self) -> Recording:
        if self._recording is None:
            raise UsageError(
                "the trace has not ended: what was recorded is read after its with statement."
            )
        return self._recording

    def frame(self, of: str = "spans") -> pd.DataFrame:
        """Return a row for each span, sorted by start, or another table, such as `"layers"`."""
        return self.frames().frame(of)

    def _views(self) -> Views:
        from pytest_modelperf.tracing.report import trace_views

        recording = self._ended()
        name = "" if self._file is None else self._file.name
        return trace_views(name, recording.events, lambda: self.notes)

    def where(self, column: str, value: object) -> Frames:
        """Return only the spans with this value in a column of `frame()`."""
        return self.frames().where(column, value)

    def inferences(self) -> pd.DataFrame:
        return self.frames().inferences()

    def executions(self) -> pd.DataFrame:
        return self.frames().executions()

    def operators(self, by: str = "name", sort: str = "total") -> pd.DataFrame:
        return self.frames().operators(by, sort)

    def operator_calls(self) -> pd.DataFrame:
        return self.frames().operator_calls()

    def layers(self, sort: str | None = None) -> pd.DataFrame:
        return self.frames().layers(sort)

    def summary(
        self, by: str | Sequence[str] = _BY, cat: str | Category = Category.INFERENCE
    ) -> pd.DataFrame:
        return self.frames().summary(by, cat)

    def print_inferences(self, top: int | None = _TOP) -> None:
        self.frames().print_inferences(top)

    def print_executions(self, top: int | None = _TOP) -> None:
        self.frames().print_executions(top)

    def print_operators(
        self, by: str = "op_type", sort: str = "total", top: int | None = _TOP
    ) -> None:
        self.frames().print_operators(by, sort, top)

    def print_operator_calls(self, top: int | None = _TOP) -> None:
        self.frames().print_operator_calls(top)

    def print_layers(self, sort: str | None = None, top: int | None = _TOP) -> None:
        self.frames().print_layers(sort, top)

    def print_summary(
        self, by: str | Sequence[str] = _BY, cat: str | Category = Category.INFERENCE
    ) -> None:
        self.frames().print_summary(by, cat)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Trace.leave_forked)


def _remove(spool: Spool, folder: WorkingFolder) -> None:
    spool.close()
    folder.remove()
