"""Reads a recorded trace back into the events that it was written from.

The file has one event per line; those of a thread are sorted by start, each before the ones inside
it. The parent of a span is not written: it is the span around it on its thread.
"""

from __future__ import annotations

import heapq
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeGuard

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.tracing.records import (
    SESSION,
    TRACE_HEAD,
    Argument,
    Category,
    Counter,
    Event,
    Span,
    ThreadName,
)

# The line between the events and the notes on them.
_END = b"],"
# A key that only a trace of a measurement in rounds has.
_OF_ROUNDS = "rounds"
_LINES_OF_HEAD = TRACE_HEAD.count("\n") + 1
# The longest event, and the longest notes.
_MAX_LINE = 1 << 24
_NS_PER_US = 1000.0
_NS_PER_MS = 1e6
# Above this, nanoseconds exceed 64 bits.
_MAX_US = (1 << 61) / _NS_PER_US
_MAX_NUMBER = 1 << 62

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=_MAX_NUMBER)]
_Time: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=_MAX_US)]


class _Written(msgspec.Struct, gc=False):
    """An event of the file."""

    name: str
    ph: str
    pid: _Number
    tid: _Number | None = None
    cat: str = ""
    ts: _Time = 0.0
    dur: _Time = 0.0
    args: dict[str, Any] = msgspec.field(default_factory=dict)


_decode = msgspec.json.Decoder(_Written).decode
_CATEGORIES = {category.value: category for category in Category}


class RecordedTrace:
    """A trace as events; once all are read, `notes` say what it lacks."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.notes: tuple[str, ...] = ()
        self._about = self._read_about()
        if self._about is not None and _OF_ROUNDS in self._about:
            raise UsageError(
                f"{printable(str(self.path))} is a trace of rounds, in which many inferences may "
                "be one span. Give what has all of them: modelperf profile MODEL --json F"
            )

    def __iter__(self) -> Iterator[Event]:
        reading = _Reading()
        broken = first = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(iter(partial(file.readline, _MAX_LINE), b""), 1):
                text = line.rstrip()
                if number <= _LINES_OF_HEAD or not text:
                    continue
                if text == _END:
                    break
                written = _event(text.removesuffix(b","))
                events = None if written is None else reading.add(written)
                if events is None:
                    broken, first = broken + 1, first or number
                else:
                    yield from events
        self.notes = tuple(_notes(self._about, broken, first))

    def _read_about(self) -> Mapping[str, object] | None:
        """The notes for the reader after the events; None if the end of the file is missing."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, io.SEEK_END)
                file.seek(max(0, size - _MAX_LINE))
                _, end, about = file.read(_MAX_LINE).rpartition(b"\n" + _END + b"\n")
            found = json.loads(b"{" + about)["otherData"] if end else None
        except OSError as error:
            shown = printable(str(self.path))
            raise UsageError(f"cannot read {shown}: {error.strerror or error}.") from error
        except (RecursionError, ValueError, KeyError):
            return None
        return found if isinstance(found, dict) else None


def _event(line: bytes) -> _Written | None:
    try:
        return _decode(line)
    except (RecursionError, ValueError):
        return None


def _notes(about: Mapping[str, object] | None, broken: int, first: int) -> Iterator[str]:
    if about is None:
        yield "the end of the file is missing."
    else:
        notes = about.get("notes")
        if isinstance(notes, list):
            yield from (note for note in notes if isinstance(note, str))
    if broken:
        yield f"{broken:,} of its events cannot be read, the first at line {first:,}."


class _Reading:
    """The state of reading, by process."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._processes: dict[int, _Process] = {}

    def add(self, event: _Written) -> tuple[Event, ...] | None:
        """The event; None for one that no recording has."""
        if event.ph == "X":
            category = _CATEGORIES.get(event.cat)
            if category is None or event.tid is None:
                return None
            process = self._processes.setdefault(event.pid, _Process())
            span = process.add(event, category, event.tid, next(self._ids))
            return None if span is None else (span,)
        if event.ph == "C":
            values = {key: value for key, value in event.args.items() if _is_finite(value)}
            counter = Counter(
                name=event.name, at_ns=_ns(event.ts), values=values, process=event.pid
            )
            return (counter,)
        name = event.args.get("name")
        if event.name in ("process_name", "thread_name") and isinstance(name, str):
            thread = event.tid if event.name == "thread_name" else None
            return (ThreadName(name=name, process=event.pid, thread=thread),)
        return ()


class _Row(Struct):
    """A thread: its open spans, the starts of its first and last span, and its latest end."""

    open: list[Span] = field(default_factory=list)
    first_ns: int = _MAX_NUMBER
    begun_ns: int = 0
    last_ns: int = 0


class _Process:
    """The open spans on each thread, and the open inferences of each session by their end."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = defaultdict(_Row)
        self._running: dict[str, list[tuple[int, int, Span]]] = defaultdict(list)

    def add(self, event: _Written, category: Category, thread: int, number: int) -> Span | None:
        """The span; None if it is out of order, or overlaps another without lying inside it."""
        arguments = event.args
        index = arguments.pop("operator_index", None)
        self_ms = arguments.pop("self_ms", None)
        span = Span(
            name=event.name,
            category=category,
            start_ns=_ns(event.ts),
            duration_ns=_ns(event.dur),
            process=event.pid,
            thread=thread,
            id=number,
            self_ns=round(self_ms * _NS_PER_MS) if _is_finite(self_ms) else None,
            operator_index=index if _is_number(index) else None,
            arguments={key: value for key, value in arguments.items() if _is_argument(value)},
        )
        if not self._close(span):
            return None
        around = self._around(span)
        if around is not None:
            span = replace(span, parent=around.id)
        if span.self_ns is not None and not 0 <= span.self_ns <= span.duration_ns:
            span = replace(span, self_ns=None)
        self._rows[thread].open.append(span)
        if category is Category.INFERENCE:
            running = self._running[str(span.arguments.get(SESSION))]
            heapq.heappush(running, (span.end_ns, number, span))
        return span

    def _close(self, span: Span) -> bool:
        """Close the spans that ended on its thread; whether it lies inside all that are open."""
        row = self._rows[span.thread]
        if span.start_ns < row.begun_ns:
            # In a trace made from a profile, the session comes last and is around all others: the
            # reader of a profile knows its end last.
            is_around = span.start_ns < row.first_ns and row.last_ns <= span.end_ns
            if not is_around or span.category is not Category.SESSION:
                return False
            row.open.clear()
            # A second session around it would have to begin earlier still.
            row.first_ns = span.start_ns
            row.begun_ns = row.last_ns = span.end_ns
            return True
        while row.open and not _holds(row.open[-1], span):
            if row.open[-1].end_ns > span.start_ns:
                return False
            row.open.pop()
        row.first_ns = min(row.first_ns, span.start_ns)
        row.begun_ns = span.start_ns
        row.last_ns = max(row.last_ns, span.end_ns)
        return True

    def _around(self, span: Span) -> Span | None:
        """The span around it on its thread.

        For an operator alone, the only inference of its session that runs.
        """
        own = self._rows[span.thread].open
        if own:
            return own[-1]
        if span.category is not Category.OPERATOR:
            return None
        running = self._running[str(span.arguments.get(SESSION))]
        while running and running[0][0] < span.end_ns:
            heapq.heappop(running)
        if len(running) != 1 or not _holds(running[0][2], span):
            return None
        return running[0][2]


def _holds(outer: Span, span: Span) -> bool:
    return outer.start_ns <= span.start_ns and span.end_ns <= outer.end_ns


def _ns(us: float) -> int:
    return round(us * _NS_PER_US)


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and type(value) is not bool and abs(value) < _MAX_NUMBER


def _is_number(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _MAX_NUMBER


def _is_argument(value: object) -> TypeGuard[Argument]:
    """Whether the value can be an argument: a text, a number, or a list of texts."""
    if isinstance(value, list):
        return all(isinstance(text, str) for text in value)
    return isinstance(value, bool | str) or _is_finite(value)
