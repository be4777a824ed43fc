"""Recorded events on disk: written in any order, read sorted, with few of them in memory."""

from __future__ import annotations

import heapq
import marshal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from msgspec import Struct

from pytest_modelperf.tracing.records import Category, Counter, Span

# How many records are sorted and written together, and how many are read together.
RUN_RECORDS = 8192
PIECE_RECORDS = 256

# Start, negative end (so that the longer of two comes first) and a unique number sort the records;
# the facts follow. All values are of types that `marshal` writes, the fastest format.
Record: TypeAlias = tuple[Any, ...]


class _Piece(Struct, frozen=True):
    offset: int
    length: int


class _Run(Struct, frozen=True):
    """A sorted run of records: its first record, and the pieces of the file that hold it."""

    first: Record
    pieces: tuple[_Piece, ...]


class Spool:
    """Records in a file. Any thread may add records; reading begins after the last one.

    `lost` is the number of records that could not be written, and `problem` the reason: if the disk
    is full, the recorded program goes on.
    """

    def __init__(
        self, path: Path, run_records: int = RUN_RECORDS, piece_records: int = PIECE_RECORDS
    ) -> None:
        self._run_records = run_records
        self._piece_records = piece_records
        # Unbuffered: a forked process would write the content of a buffer again.
        self._file: BinaryIO = path.open("w+b", buffering=0)
        self._pending: list[Record] = []
        self._runs: list[_Run] = []
        self._end = 0
        self.lost = 0
        self.problem: OSError | None = None
        self._lock = threading.Lock()

    def add(self, record: Record) -> None:
        self._pending.append(record)
        # If another thread is writing, it writes these records too.
        if len(self._pending) >= self._run_records and self._lock.acquire(blocking=False):
            try:
                self._write_run()
            finally:
                self._lock.release()

    def read(self) -> Iterator[Record]:
        """Return all records, sorted."""
        self.flush()
        return _merged(self, sorted(self._runs, key=lambda run: _key(run.first)))

    def flush(self) -> None:
        with self._lock:
            while self._pending:
                self._write_run()

    def read_run(self, run: _Run) -> Iterator[Record]:
        for piece in run.pieces:
            with self._lock:
                self._file.seek(piece.offset)
                data = _read_all(self._file, piece.length)
            yield from marshal.loads(data)  # noqa: S302  # this process wrote it

    def close(self) -> None:
        # The program may have closed all files that it found open.
        with suppress(OSError):
            self._file.close()

    def _write_run(self) -> None:
        count = len(self._pending)
        # The numbers are unique, so nothing after them is compared.
        records = sorted(self._pending[:count])
        try:
            self._runs.append(_Run(records[0], tuple(self._write_pieces(records))))
        except OSError as problem:
            self.lost += count
            self.problem = problem
        # Deleted last, so that an interruption loses nothing.
        del self._pending[:count]

    def _write_pieces(self, records: list[Record]) -> Iterator[_Piece]:
        for first in range(0, len(records), self._piece_records):
            data = marshal.dumps(records[first : first + self._piece_records])
            self._file.seek(self._end)
            _write_all(self._file, data)
            yield _Piece(self._end, len(data))
            self._end += len(data)


def _merged(spool: Spool, runs: list[_Run]) -> Iterator[Record]:
    """Yield the records of all runs, merged. A run is opened when its first record is due."""
    opened: list[tuple[Record, Record, Iterator[Record]]] = []

    def put(records: Iterator[Record]) -> None:
        record = next(records, None)
        if record is not None:
            heapq.heappush(opened, (_key(record), record, records))

    waiting = iter(runs)
    coming = next(waiting, None)
    while opened or coming is not None:
        while coming is not None and (not opened or _key(coming.first) <= opened[0][0]):
            put(spool.read_run(coming))
            coming = next(waiting, None)
        _, record, records = heapq.heappop(opened)
        yield record
        put(records)


def _key(record: Record) -> Record:
    return record[:3]


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Write all data. An unbuffered file may take less at once, as on a nearly full disk."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _read_all(file: BinaryIO, length: int) -> bytes:
    pieces = []
    while length:
        piece = file.read(length)
        if not piece:
            raise EOFError
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


# -- converts events to the records of a spool, and back


# Positions in a record, after the three that sort it.
KIND, THREAD, PARENT, NAME, ARGUMENTS, SELF, INDEX, POOL, SESSION, SHAPES = range(3, 13)

INFERENCE = Category.INFERENCE.value
# An inference during a pause: not shown, but its session's profile contains it.
HIDDEN = "hidden"
_COUNTER = "counter"


def write_span(span: Span) -> Record:
    return (
        span.start_ns,
        -span.end_ns,
        span.id,
        span.category.value,
        span.thread,
        span.parent,
        span.name,
        span.arguments,
        span.self_ns,
        span.operator_index,
        span.pool,
    )


def write_counter(counter: Counter, id_: int) -> Record:
    return counter.at_ns, -counter.at_ns, id_, _COUNTER, 0, None, counter.name, counter.values


def read_event(record: Record, process: int) -> Span | Counter | None:
    """Return the event, or None for a hidden inference."""
    start_ns, minus_end_ns, id_, kind, thread, parent, name, arguments, *rest = record
    if kind == HIDDEN:
        return None
    if kind == _COUNTER:
        return Counter(name=name, at_ns=start_ns, values=arguments, process=process)
    return Span(
        name=name,
        category=_CATEGORIES[kind],
        start_ns=start_ns,
        duration_ns=-minus_end_ns - start_ns,
        process=process,
        thread=thread,
        id=id_,
        parent=parent,
        self_ns=rest[0],
        operator_index=rest[1],
        arguments=arguments,
        pool=rest[2],
    )


_CATEGORIES = {category.value: category for category in Category}
