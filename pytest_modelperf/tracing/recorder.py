"""Records what runs while a trace is active. Each thread records its own spans as they end."""

from __future__ import annotations

import collections
import itertools
import mmap
import os
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.profiler.worker.working_folder import leave_inherited
from pytest_modelperf.text.units import format_shape
from pytest_modelperf.tracing.records import ERROR, Argument, Category, Counter, Span
from pytest_modelperf.tracing.spool import HIDDEN, INFERENCE, Spool, write_counter, write_span

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.session_facts import InputShapes, WatchedSession

INFERENCE_NAME = "inference"
# A label that overlaps others, such as that of an asyncio task, has a row of its own. Its number is
# this plus the id of the label: no thread has a number this large, and Perfetto has 32 bits for
# one.
ROW_OF_ITS_OWN = 1 << 31
# The program waits for this when a session reaches its limit of operators.
PROFILE_WRITTEN = "its profile is written"
MODEL_IN_MEMORY = "model in memory"
PROCESS_MEMORY = "memory of the process"
# Memory is read at most this often: a read takes 1 us.
_MEMORY_EVERY_NS = 1_000_000
# The most sets of shapes, and the most kinds of inferences in the cache.
MAX_SHAPES = 4096

# The key of a kind of inference, whose facts are stored once.
_Kind = tuple[object, ...]


class _Thread(threading.local):
    """The labels that are open on this thread, and its number.

    A thread that Python did not start gets a new object at each call into Python. The labels of all
    asyncio tasks are in one list, in the order in which they were opened.
    """

    def __init__(self, names: dict[int, str]) -> None:
        self.number = threading.get_native_id()
        self.labels: list[_Label] = []
        name = threading.current_thread().name
        # Python did not start this thread.
        is_foreign = name.startswith("Dummy-")
        names.setdefault(self.number, f"pool thread {self.number}" if is_foreign else name)


class _Label:
    __slots__ = ("id", "is_open", "name", "outer", "overlaps", "start_ns", "thread")

    def __init__(
        self, id_: int, name: str, start_ns: int, thread: int, outer: _Label | None
    ) -> None:
        self.id = id_
        self.name = name
        self.start_ns = start_ns
        self.thread = thread
        self.outer = outer
        self.is_open = True
        self.overlaps = False

    def is_inside(self, other: _Label) -> bool:
        label: _Label | None = self
        while label is not None and label is not other:
            label = label.outer
        return label is not None


def _set_apart(labels: Sequence[_Label], label: _Label | None) -> None:
    """Mark the open labels that do not contain this one as overlapping: other tasks opened them."""
    for other in tuple(labels):
        if label is None or not label.is_inside(other):
            other.overlaps = True


class _Inferences(Struct, frozen=True):
    """The facts of one kind of inferences. `session` and `shapes` are indexes in the recorder."""

    arguments: dict[str, Argument]
    session: int
    shapes: int | None


class Recorder:
    """The spans and counters of this process, in a folder.

    Its clock starts at 0 when the recorder is created.
    """

    def __init__(
        self,
        folder: Path,
        categories: frozenset[Category],
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.process = os.getpid()
        self.begun_ns = clock()
        self.folder = folder
        self.spool = Spool(folder / "recorded")
        self.names: dict[int, str] = {}
        self.sessions: list[WatchedSession] = []
        self.shapes: list[Mapping[str, tuple[int, ...]]] = []
        self._categories = categories
        self._clock = clock
        self._memory = ResidentMemory()
        self._resident_bytes: int | None = None
        self._look_again_ns = 0
        self._ids = itertools.count(1)
        self._thread = _Thread(self.names)
        # By thread: when its last inference or callback ended.
        self._free_from_ns: dict[int, int] = {}
        # By context, because tasks of asyncio take turns on a thread.
        self._label: ContextVar[_Label | None] = ContextVar("label", default=None)
        # By id, the outer labels first.
        self._open: dict[int, _Label] = {}
        self._kinds: dict[_Kind, _Inferences] = {}
        self._numbers: dict[int, int] = {}
        self._names_of_sessions: list[str] = []
        self._counts: collections.Counter[str] = collections.Counter()
        self._is_open = True
        # The starts and ends of pauses.
        self._paused_ns: list[int] = []
        self._resumed_ns: list[int] = []
        self._lock = threading.Lock()

    def new_id(self) -> int:
        return next(self._ids)

    # -- pauses

    def pause(self) -> None:
        with self._lock:
            if len(self._paused_ns) == len(self._resumed_ns):
                self._paused_ns.append(self._clock())

    def resume(self) -> None:
        with self._lock:
            if len(self._paused_ns) > len(self._resumed_ns):
                self._resumed_ns.append(self._clock())

    def is_recorded(self, start_ns: int) -> bool:
        """Whether an event that began at this time is recorded: not if it began in a pause."""
        place = bisect_right(self._paused_ns, start_ns) - 1
        if place < 0:
            return True
        return place < len(self._resumed_ns) and start_ns >= self._resumed_ns[place]

    # -- labels

    @contextmanager
    def label(self, name: str) -> Iterator[None]:
        start_ns = self._clock()
        if not self._is_here() or not self.is_recorded(start_ns):
            yield
            return
        # The label belongs to the thread that opens it, even if another thread closes it.
        thread, labels = self._thread.number, self._thread.labels
        outer = self._label_on(thread)
        opened = _Label(self.new_id(), name, start_ns, thread, outer)
        labels.append(opened)
        self._open[opened.id] = opened
        self._label.set(opened)
        error = None
        try:
            yield
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            opened.is_open = False
            if self._label.get() is opened:
                self._label.set(outer)
            labels.remove(opened)
            for other in tuple(labels):
                if other.id > opened.id:
                    # It began inside this label and ends after it.
                    other.overlaps = True
                    opened.overlaps |= not other.is_inside(opened)
            if opened.overlaps:
                # It moves to a row of its own. Other labels of the old row would seem to hold its
                # inferences.
                _set_apart(labels, opened)
            opened.overlaps |= self._thread.number != thread
            self._end_label(opened, {} if error is None else {ERROR: error})

    def _end_label(self, label: _Label, arguments: Mapping[str, Argument]) -> None:
        """Record a label, unless the end of the recording already did."""
        if self._open.pop(label.id, None) is None:
            return
        row = label.thread
        if label.overlaps:
            row = ROW_OF_ITS_OWN + label.id
            self.names[row] = f"{self.names[label.thread]}: {label.name}"
        self._add_span(
            Span(
                name=label.name,
                category=Category.LABEL,
                start_ns=label.start_ns,
                duration_ns=self._clock() - label.start_ns,
                thread=row,
                id=label.id,
                parent=None if label.outer is None else label.outer.id,
                arguments=arguments,
            )
        )

    def _label_on(self, thread: int) -> _Label | None:
        label = self._label.get()
        while label is not None and not (label.is_open and label.thread == thread):
            label = label.outer
        return label

    def _parent_on(self, thread: int) -> int | None:
        """Return the id of the innermost label that is open on this thread."""
        label, labels = self._label_on(thread), self._thread.labels
        if labels and labels[-1] is not label:
            _set_apart(labels, label)
        return None if label is None else label.id

    # -- sessions and inferences

    def new_folder(self) -> Path | None:
        if Category.OPERATOR not in self._categories:
            return None
        return Path(tempfile.mkdtemp(prefix="session-", dir=self.folder))

    def on_session(self, session: WatchedSession, start_ns: int, end_ns: int) -> None:
        name = self.session_name(session)
        self._add_own_span(session, Category.SESSION, name, start_ns, end_ns)

    def on_profile_written(self, session: WatchedSession, start_ns: int, end_ns: int) -> None:
        self._add_own_span(session, Category.RECORDING, PROFILE_WRITTEN, start_ns, end_ns)

    def _add_own_span(
        self, session: WatchedSession, category: Category, name: str, start_ns: int, end_ns: int
    ) -> None:
        """Record what a session did besides its inferences, on the current thread."""
        if self._is_here() and self.is_recorded(start_ns):
            thread = self._thread.number
            self._add_span(
                Span(
                    name=name,
                    category=category,
                    start_ns=start_ns,
                    duration_ns=end_ns - start_ns,
                    thread=thread,
                    id=self.new_id(),
                    parent=self._parent_on(thread),
                    arguments={"session": self.session_name(session)},
                )
            )

    def on_inference(  # noqa: PLR0913, PLR0917  # the arguments of a watcher
        self,
        session: WatchedSession,
        method: str,
        start_ns: int,
        end_ns: int,
        shapes: InputShapes | None,
        error: str | None,
        has_waited: bool = False,  # noqa: FBT001, FBT002  # the same
    ) -> None:
        if not self._is_open:
            return
        thread = self._thread.number
        if has_waited:
            # The inference waited in a queue: it began when the pool's thread was free.
            start_ns = max(start_ns, self._free_from_ns.get(thread, 0))
        # Set by every inference: a callback may run another session on the pool's thread.
        self._free_from_ns[thread] = end_ns
        key: _Kind = (session, method, shapes, error)
        kind = self._kinds.get(key) or self._new_kind(key, session, method, shapes, error)
        is_hidden = bool(self._paused_ns) and not self.is_recorded(start_ns)
        # The same record as from `write_span`, at a fraction of the cost.
        self.spool.add(
            (
                start_ns - self.begun_ns,
                self.begun_ns - end_ns,
                next(self._ids),
                HIDDEN if is_hidden else INFERENCE,
                thread,
                self._parent_on(thread),
                INFERENCE_NAME,
                kind.arguments,
                None,
                None,
                None,
                kind.session,
                kind.shapes,
            )
        )
        if is_hidden or end_ns < self._look_again_ns:
            return
        self._look_again_ns = end_ns + _MEMORY_EVERY_NS
        resident_bytes = self._memory.read_bytes()
        if resident_bytes is not None and resident_bytes != self._resident_bytes:
            self._resident_bytes = resident_bytes
            at_ns = end_ns - self.begun_ns
            values = {"resident_bytes": resident_bytes}
            counter = Counter(name=PROCESS_MEMORY, at_ns=at_ns, values=values)
            self.spool.add(write_counter(counter, next(self._ids)))

    def on_callback_end(self) -> None:
        if self._is_open:
            self._free_from_ns[self._thread.number] = self._clock()

    def session_name(self, session: WatchedSession) -> str:
        """Return the name of its file, with a number if several sessions have the same file."""
        return self._names_of_sessions[self._number_of(session)]

    def end(self) -> None:
        """Record the labels that are still open, such as those of threads that go on, then stop."""
        # The inner ones end first.
        for label in reversed(tuple(self._open.values())):
            self._end_label(label, {})
        self.close()

    def close(self) -> None:
        """Record nothing more."""
        self._is_open = False
        self._memory.close()

    def leave(self) -> None:
        """Keep the events of a forked process out of the parent's recording."""
        # A thread of the parent may have held the old lock.
        self._lock = threading.Lock()
        self.close()
        leave_inherited(self.folder)

    def _number_of(self, session: WatchedSession) -> int:
        with self._lock:
            number = self._numbers.get(id(session))
            if number is None:
                number = self._numbers[id(session)] = len(self.sessions)
                self.sessions.append(session)
                plain = session.file_name or MODEL_IN_MEMORY
                self._counts[plain] += 1
                count = self._counts[plain]
                self._names_of_sessions.append(plain if count == 1 else f"{plain} #{count}")
            return number

    def _new_kind(
        self,
        key: _Kind,
        session: WatchedSession,
        method: str,
        shapes: InputShapes | None,
        error: str | None,
    ) -> _Inferences:
        name = self.session_name(session)
        arguments: dict[str, Argument] = {"session": name, "method": method}
        if shapes:
            arguments["input_shape"] = format_shape(shapes[0][1])
            arguments["inputs"] = [
                f"{input_name} {dtype} {format_shape(shape)}" for input_name, shape, dtype in shapes
            ]
        if error is not None:
            arguments[ERROR] = error
        number = None
        with self._lock:
            if shapes is not None and len(self.shapes) < MAX_SHAPES:
                number = len(self.shapes)
                self.shapes.append({each[0]: each[1] for each in shapes})
            if len(self._kinds) >= MAX_SHAPES:
                self._kinds.clear()
            kind = _Inferences(arguments, self._numbers[id(session)], number)
            self._kinds[key] = kind
        return kind

    def _add_span(self, span: Span) -> None:
        if self._is_open:
            self.spool.add(write_span(replace(span, start_ns=span.start_ns - self.begun_ns)))

    def _is_here(self) -> bool:
        """Whether this is the recorded process, and not one forked from it."""
        return self._is_open and os.getpid() == self.process


# -- the resident memory of this process, which is read often


_STATM = Path("/proc/self/statm")


class ResidentMemory:
    """The resident memory of this process.

    The file stays open, so that a read takes a microsecond. On platforms without it, reads return
    None.
    """

    def __init__(self) -> None:
        try:
            self._file = os.open(_STATM, os.O_RDONLY)
        except OSError:
            self._file = -1
        self._page_bytes = mmap.PAGESIZE

    def read_bytes(self) -> int | None:
        if self._file < 0 or not hasattr(os, "pread"):
            return None
        try:
            _, resident, _ = os.pread(self._file, 128, 0).split(b" ", 2)
            return int(resident) * self._page_bytes
        except (OSError, ValueError):
            # A program that becomes a daemon closes all files, and another file may then get this
            # number.
            return None

    def close(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
        self._file = -1
