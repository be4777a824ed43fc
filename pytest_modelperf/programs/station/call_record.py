"""What one call spends in sessions, in labels, and in waiting for a processor."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_modelperf.programs.records import Spent, Turn

if TYPE_CHECKING:
    from pytest_modelperf.programs.station.sessions import SessionGroup

_SCHEDSTAT = "/proc/thread-self/schedstat"
# Windows has neither this function nor the file.
_read_at: Any = getattr(os, "pread", None)


class CallSpan(NamedTuple):
    """A stay in a session or a label, from its start to its end."""

    name: str
    start_ns: int
    end_ns: int


class ProcessorWait:
    """How long the thread that made it has waited for a processor, if the system knows."""

    def __init__(self) -> None:
        self._file: int | None = None
        with suppress(OSError, ValueError, IndexError, TypeError):
            self._file = os.open(_SCHEDSTAT, os.O_RDONLY)
            self()

    @property
    def is_known(self) -> bool:
        return self._file is not None

    def __call__(self) -> int:
        """The second of three numbers: the time on a processor, waiting for one, and the slices."""
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
        # Of the calling thread, inside of sessions.
        self.session_cpu_ns = 0
        self.session_waited_ns = 0
        # Only if it is watched: the inputs of each inference, and the sessions made.
        self.inferences: list[tuple[SessionGroup, tuple[str, ...]]] = []
        self.made: list[SessionGroup] = []
        self.first_ns: list[int] = []
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
        is_known = self.waited.is_known
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
    """The time that spans cover together, each moment counted once."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        # The time covered before each start.
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
        """The time covered between two moments."""
        return self._until(end) - self._until(start)

    def _until(self, moment: int) -> int:
        at = bisect_right(self._starts, moment) - 1
        if at < 0:
            return 0
        return self._before[at] + min(moment, self._ends[at]) - self._starts[at]


_OPEN: ContextVar[_Label | None] = ContextVar("modelperf_label", default=None)


class _Label:
    """A part of a call that the program has named."""

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end_ns = time.perf_counter_ns()
        # A generator may be closed in another context than the one that it began in.
        with suppress(ValueError):
            _OPEN.reset(self._token)
        self._kept.append(self)
        if self._outer is not None:
            self._outer.inner.append(self)

    def own_ns(self, sessions: Covered) -> int:
        """Its time without the labels and the sessions inside."""
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
