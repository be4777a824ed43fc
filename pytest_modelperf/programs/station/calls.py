"""Measure the time of a call in sessions, in labels, and in waiting for a processor."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_modelperf.baselines.program import CallWork, InferenceWork, SessionWork
from pytest_modelperf.labels import add_recorder
from pytest_modelperf.profiler.engines.session_facts import (
    input_texts,
    model_identity,
    session_model,
    session_options,
)
from pytest_modelperf.programs.messages import ModelPlace, Spent, Turn

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.session_facts import InputShapes

_SCHEDSTAT = "/proc/thread-self/schedstat"
# Windows has neither this function nor the file above.
_read_at: Any = getattr(os, "pread", None)


class CallSpan(NamedTuple):
    """The time span of a session or a label."""

    name: str
    start_ns: int
    end_ns: int


class ProcessorWait:
    """The time that its thread has waited for a processor, if that is known."""

    def __init__(self) -> None:
        self._file: int | None = None
        with suppress(OSError, ValueError, IndexError, TypeError):
            self._file = os.open(_SCHEDSTAT, os.O_RDONLY)
            self()

    @property
    def is_known(self) -> bool:
        return self._file is not None

    def __call__(self) -> int:
        """Return the waiting time in nanoseconds, or 0 if it is unknown.

        The file has three numbers: the time on a processor, the time waiting for one, and the
        number of time slices.
        """
        if self._file is None:
            return 0
        return int(_read_at(self._file, 64, 0).split()[1])

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class CallRecord:
    """The sessions and labels of one call, while it runs."""

    def __init__(self, waited: ProcessorWait, *, is_watched: bool = False) -> None:
        self.thread = get_ident()
        self.is_watched = is_watched
        self.waited = waited
        self.spans: list[CallSpan] = []
        self.labels: list[_Label] = []
        # Times of the calling thread inside sessions.
        self.session_cpu_ns = 0
        self.session_waited_ns = 0
        # Only filled if the call is watched: the inputs of each inference, and the sessions made.
        self.inferences: list[tuple[SessionGroup, tuple[str, ...]]] = []
        self.made: list[SessionGroup] = []
        # Whether all inferences were made one after the other by the calling thread.
        self.is_in_order = True
        self.first_ns: list[int] = []
        self.first_item_inferences = 0
        self.items = 0
        self.each_ns: list[int] = []
        self._begun = self._ended = (0, 0, 0)

    def begin(self) -> None:
        self._begun = (self.waited(), time.thread_time_ns(), time.perf_counter_ns())

    def end(self) -> None:
        end_ns = time.perf_counter_ns()
        self._ended = (self.waited(), time.thread_time_ns(), end_ns)

    @property
    def wall_ns(self) -> int:
        return self._ended[2] - self._begun[2]

    def turn(self) -> Turn:
        waited_ns, cpu_ns, wall_ns = (
            end - begin for begin, end in zip(self._begun, self._ended, strict=True)
        )
        start_ns, end_ns = self._begun[2], self._ended[2]
        inside = Covered(
            (max(span.start_ns, start_ns), min(span.end_ns, end_ns)) for span in list(self.spans)
        )
        # The call goes on in other threads while the calling thread waits, even for a processor.
        is_known = self.waited.is_known and self.is_in_order
        return Turn(
            wall_ns=wall_ns,
            rest_ns=wall_ns - inside.total_ns,
            cpu_ns=max(cpu_ns - self.session_cpu_ns, 0),
            waited_ns=max(waited_ns, 0) if is_known else None,
            rest_waited_ns=max(waited_ns - self.session_waited_ns, 0) if is_known else None,
            sessions=_spent((span.name, span.end_ns - span.start_ns) for span in self.spans),
            labels=_spent((each.name, each.own_ns(inside)) for each in self.labels),
            first_ns=round(sum(self.first_ns) / len(self.first_ns)) if self.first_ns else None,
            items=self.items if self.first_ns or self.items else None,
            each_ns=tuple(self.each_ns) if len(self.each_ns) > 1 else (),
        )

    def label(self, name: str) -> _Label:
        return _Label(name, self.labels)


class Covered:
    """The time that spans cover together, with each moment counted once."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        # The total time covered before each start.
        self._before: list[int] = []
        self.total_ns = 0
        for start, end in sorted(spans):
            if end <= start:
                continue
            if self._ends and start <= self._ends[-1]:
                self.total_ns += max(end - self._ends[-1], 0)
                self._ends[-1] = max(end, self._ends[-1])
            else:
                self._starts.append(start)
                self._ends.append(end)
                self._before.append(self.total_ns)
                self.total_ns += end - start

    def between(self, start: int, end: int) -> int:
        return self._until(end) - self._until(start)

    def _until(self, moment: int) -> int:
        at = bisect_right(self._starts, moment) - 1
        if at < 0:
            return 0
        return self._before[at] + min(moment, self._ends[at]) - self._starts[at]


_OPEN: ContextVar[_Label | None] = ContextVar("modelperf_label", default=None)


class _Label:
    __slots__ = ("_kept", "_outer", "_token", "end_ns", "inner", "name", "start_ns")

    def __init__(self, name: str, kept: list[_Label]) -> None:
        self.name = str(name)
        self.start_ns = self.end_ns = 0
        self._kept = kept
        self.inner: list[_Label] = []

    def __enter__(self) -> None:
        self._outer = _OPEN.get()
        self._token = _OPEN.set(self)
        self.start_ns = time.perf_counter_ns()

    def __exit__(self, *error: object) -> None:
        self.end_ns = time.perf_counter_ns()
        # A generator may be closed in another context than the one in which it began.
        with suppress(ValueError):
            _OPEN.reset(self._token)
        self._kept.append(self)
        if self._outer is not None:
            self._outer.inner.append(self)

    def own_ns(self, sessions: Covered) -> int:
        """Return the time of the label without the labels and sessions inside it."""
        return max(self.outside(sessions) - sum(e.outside(sessions) for e in self.inner), 0)

    def outside(self, sessions: Covered) -> int:
        return self.end_ns - self.start_ns - sessions.between(self.start_ns, self.end_ns)


def _spent(found: Iterable[tuple[str, int]]) -> dict[str, Spent]:
    calls: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for name, ns in found:
        calls[name] += 1
        times[name] += ns
    return {name: Spent(calls=calls[name], ns=times[name]) for name in calls}


# -- watches the sessions of ONNX Runtime that a program makes and runs


IN_MEMORY = "model in memory"
# The attribute of a session that holds its group.
_GROUP = "_modelperf_group"


class SessionGroup:
    """The sessions of one model with the same options."""

    def __init__(self, name: str, source: str | bytes | None, options: Mapping[str, str]) -> None:
        self.name = name
        self.source = source
        self.options = options
        # The inputs of a watched call that are single numbers, because a model may branch on them.
        self.numbers: dict[str, float] = {}

    @functools.cached_property
    def digest(self) -> str | None:
        """The digest of a model in memory. The parent computes that of a file."""
        source = self.source
        return hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else None


class Sessions:
    """All sessions of this process, and the call that is being recorded, if any."""

    def __init__(self, scratch: Path) -> None:
        self.record: CallRecord | None = None
        self._groups: dict[tuple[object, ...], SessionGroup] = {}
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

    def work_of(self, record: CallRecord) -> CallWork:
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
            ),
            first_item_inferences=(
                record.first_item_inferences if record.first_ns and record.is_in_order else None
            ),
        )

    def models(self) -> dict[str, ModelPlace]:
        return {group.name: self._place(group) for group in tuple(self._groups.values())}

    def _place(self, group: SessionGroup) -> ModelPlace:
        if isinstance(group.source, bytes):
            copy = self._scratch / f"{group.digest}.onnx"
            if not copy.exists():
                copy.write_bytes(group.source)
            return ModelPlace(
                path=str(copy), sha256=group.digest, is_temporary=True, numbers=group.numbers
            )
        return ModelPlace(path=group.source, numbers=group.numbers)

    def _creating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(session: Any, path_or_bytes: Any, *arguments: Any, **named: Any) -> None:  # noqa: ANN401, N807  # it replaces that method
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
                group.numbers.update(_single_numbers((*arguments, *named.values())))
            is_own = get_ident() == record.thread
            record.is_in_order &= is_own
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
        def run_async(  # noqa: PLR0913, PLR0917  # the signature of the runtime
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
                group.numbers.update(_single_numbers((input_feed,)))
            record.is_in_order = False
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
        options = session_options(session)
        given = source if source is not None else getattr(session, "_model_path", None)
        model = session_model(given)
        key = model_identity(model), tuple(options.items())
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


def _single_numbers(arguments: Iterable[object]) -> dict[str, float]:
    # The runtime has already loaded numpy.
    import numpy as np

    found: dict[str, float] = {}
    for feed in arguments:
        for name, value in feed.items() if isinstance(feed, dict) else ():
            # An OrtValue returns its array by a method.
            array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
            if array.size == 1 and array.dtype.kind in "biuf":
                found[str(name)] = float(array.item())
    return found
