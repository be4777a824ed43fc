"""Sessions of engines other than ONNX Runtime, recorded if they run through this module."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.engines.session_facts import WatchedSession
from pytest_modelperf.profiler.engines.source import BUILT_IN, CALLABLE_ENGINE
from pytest_modelperf.tracing.recorder import Recorder


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
