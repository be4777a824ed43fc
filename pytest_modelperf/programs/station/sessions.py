"""Watches the sessions of ONNX Runtime that a program makes and runs.

The methods are wrapped as soon as the program imports the runtime, so that sessions of fixtures are
known. While no call is recorded a wrapper only calls its original.
"""

from __future__ import annotations

import functools
import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_modelperf.baselines.program import CallWork, InferenceWork, SessionWork
from pytest_modelperf.labels import add_recorder
from pytest_modelperf.profiler.engines.session_facts import (
    input_texts,
    model_identity,
    session_model,
    session_options,
)
from pytest_modelperf.programs.messages import ModelPlace
from pytest_modelperf.programs.station.call_record import CallRecord, CallSpan

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.watched import InputShapes

IN_MEMORY = "model in memory"
# The attribute of a session that holds its group.
_GROUP = "_modelperf_group"


class SessionGroup:
    """Sessions of one model with the same options."""

    def __init__(self, name: str, source: str | bytes | None, options: Mapping[str, str]) -> None:
        self.name = name
        self.source = source
        self.options = options

    @functools.cached_property
    def digest(self) -> str | None:
        """The digest of a model in memory; that of a file is left to the parent."""
        source = self.source
        return hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else None


class _Key(Struct, frozen=True):
    source: tuple[object, ...]
    options: tuple[tuple[str, str], ...]


class Sessions:
    """All sessions of this process, and the call that is recorded, if one is."""

    def __init__(self, scratch: Path) -> None:
        self.record: CallRecord | None = None
        self._groups: dict[_Key, SessionGroup] = {}
        self._names: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._scratch = scratch
        add_recorder(self._label)

    def wrap_runtime(self) -> None:
        """Wrap the methods of the runtime, which the program has just imported."""
        from pytest_modelperf.profiler.engines.onnxruntime_methods import RUNS, WrappedMethods
        from pytest_modelperf.profiler.engines.onnxruntime_sessions import (
            SeenBindings,
            shapes_finder,
        )

        methods, bindings = WrappedMethods(), SeenBindings()
        bindings.begin()
        methods.wrap("__init__", self._creating)
        methods.wrap("run_async", self._running_later)
        for name in RUNS:
            find = shapes_finder(name, bindings)
            methods.wrap(name, functools.partial(self._running, find))

    # -- what was recorded

    def work_of(self, record: CallRecord) -> CallWork:
        """The work of a watched call, by session in the order of their names."""
        made = Counter(group.name for group in record.made)
        counts = Counter((group.name, inputs) for group, inputs in record.inferences)
        groups = {group.name: group for group in self._groups.values()}
        names = sorted({*made, *(name for name, _ in counts)})
        return CallWork(
            sessions=tuple(
                SessionWork(
                    model=name,
                    sha256=groups[name].digest,
                    options=groups[name].options,
                    made=made[name],
                    inferences=tuple(
                        InferenceWork(inputs=inputs, count=count)
                        for (owner, inputs), count in sorted(counts.items())
                        if owner == name
                    ),
                )
                for name in names
            )
        )

    def models(self) -> dict[str, ModelPlace]:
        """The places of all models, by the names of their sessions."""
        return {group.name: self._place(group) for group in tuple(self._groups.values())}

    def _place(self, group: SessionGroup) -> ModelPlace:
        if isinstance(group.source, bytes):
            copy = self._scratch / f"{group.digest}.onnx"
            if not copy.exists():
                copy.write_bytes(group.source)
            return ModelPlace(path=str(copy), sha256=group.digest, is_copy=True)
        return ModelPlace(path=group.source)

    # -- wrappers

    def _creating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(session: Any, path_or_bytes: Any, *arguments: Any, **named: Any) -> None:  # noqa: ANN401, N807  # it stands in for that
            original(session, path_or_bytes, *arguments, **named)
            group = self._group(session, path_or_bytes)
            record = self.record
            if record is not None and record.is_watched:
                record.made.append(group)

        return __init__

    def _running(
        self,
        find_shapes: Callable[[tuple[Any, ...], Mapping[str, Any]], InputShapes | None],
        original: Callable[..., Any],
    ) -> Callable[..., Any]:
        clock, cpu_clock = time.perf_counter_ns, time.thread_time_ns

        # All of this is overhead, and a small inference takes only 10 us.
        def run(session: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # no types
            record = self.record
            if record is None:
                return original(session, *arguments, **named)
            group = getattr(session, _GROUP, None) or self._group(session, None)
            if record.is_watched:
                record.inferences.append((group, input_texts(find_shapes(arguments, named))))
            is_own = get_ident() == record.thread
            if is_own:
                waited_ns, cpu_ns = record.waited(), cpu_clock()
            start_ns = clock()
            try:
                return original(session, *arguments, **named)
            finally:
                end_ns = clock()
                if is_own:
                    record.session_cpu_ns += cpu_clock() - cpu_ns
                    record.session_waited_ns += record.waited() - waited_ns
                record.spans.append(CallSpan(group.name, start_ns, end_ns))

        return run

    def _running_later(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run_async(  # noqa: PLR0913, PLR0917  # as the runtime has it
            session: Any,  # noqa: ANN401
            output_names: Any,  # noqa: ANN401
            input_feed: Any,  # noqa: ANN401
            callback: Callable[..., Any],
            user_data: Any,  # noqa: ANN401
            run_options: Any = None,  # noqa: ANN401
        ) -> Any:  # noqa: ANN401
            record = self.record
            if record is None:
                return original(session, output_names, input_feed, callback, user_data, run_options)
            group = getattr(session, _GROUP, None) or self._group(session, None)
            if record.is_watched:
                from pytest_modelperf.profiler.engines.onnxruntime_sessions import feed_shapes

                record.inferences.append((group, input_texts(feed_shapes(input_feed))))
            start_ns = time.perf_counter_ns()

            def ended(results: Any, data: Any, problem: str) -> Any:  # noqa: ANN401
                record.spans.append(CallSpan(group.name, start_ns, time.perf_counter_ns()))
                return callback(results, data, problem)

            return original(session, output_names, input_feed, ended, user_data, run_options)

        return run_async

    def _label(self, name: str) -> AbstractContextManager[None]:
        record = self.record
        return nullcontext() if record is None else record.label(name)

    def _group(self, session: Any, source: Any) -> SessionGroup:  # noqa: ANN401
        """The group of a session, which is noted at the session."""
        options = session_options(session)
        given = source if source is not None else getattr(session, "_model_path", None)
        model = session_model(given)
        key = _Key(model_identity(model), tuple(options.items()))
        with self._lock:
            group = self._groups.get(key)
            if group is None:
                name = Path(model).name if isinstance(model, str) else IN_MEMORY
                self._names[name] += 1
                number = self._names[name]
                shown = name if number == 1 else f"{name} {number}"
                group = self._groups[key] = SessionGroup(shown, model, options)
        setattr(session, _GROUP, group)
        return group
