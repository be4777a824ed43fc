"""A tensor of very few values, told exactly: constants and masks.

Engines look into some of these: a triangular mask is what tells causal attention from any other.
Each row of such a tensor is a few runs of one value, and from row to row each run grows or
shrinks by the same step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from pytest_modelperf.graph.number_codes import Codes

MAX_VALUES = 4
# A tensor that would need more is told by its statistics.
MAX_FLIGHTS = 64
MAX_RUNS = 32
MAX_ROWS = 1 << 16
MAX_COLUMNS = 1 << 20


class Run(Struct, frozen=True):
    """A value, how many elements of the first row have it, and how many more each next row."""

    code: int
    length: int
    step: int

    def length_at(self, row: int) -> int:
        return self.length + row * self.step


class Flight(Struct, frozen=True):
    """So many rows of the same runs."""

    rows: int
    runs: tuple[Run, ...]


class Stairs(Struct, frozen=True):
    """All elements of a tensor, as flights of rows of its last axis."""

    flights: tuple[Flight, ...]

    def fits(self, rows: int, columns: int) -> bool:
        """Whether these are the elements of a tensor of so many rows and columns."""
        if len(self.flights) == 1 and len(self.flights[0].runs) == 1:
            (flight,) = self.flights
            return (flight.rows, flight.runs[0].length, flight.runs[0].step) == (rows, columns, 0)
        if rows > MAX_ROWS or columns > MAX_COLUMNS or len(self.flights) > MAX_FLIGHTS:
            return False
        return sum(flight.rows for flight in self.flights) == rows and all(
            _is_full(flight, columns) for flight in self.flights
        )


def _is_full(flight: Flight, columns: int) -> bool:
    """Whether every row has all its columns: lengths are linear, so the first and last tell."""
    return (
        flight.rows > 0
        and 0 < len(flight.runs) <= MAX_RUNS
        and all(
            sum(run.length_at(row) for run in flight.runs) == columns
            and all(run.length_at(row) >= 0 for run in flight.runs)
            for row in (0, flight.rows - 1)
        )
    )


def constant(code: int, rows: int, columns: int) -> Stairs:
    return Stairs((Flight(rows, (Run(code, columns, 0),)),))


def find_stairs(pieces: Iterable[Codes], rows: int, columns: int) -> Stairs | None:
    """The elements as flights of rows; None where they would need too many."""
    if rows > MAX_ROWS or columns > MAX_COLUMNS:
        return None
    flights: list[Flight] = []
    open_flight: Flight | None = None
    previous: Codes | None = None
    for row in _rows(pieces, columns):
        if (
            open_flight is not None
            and open_flight.rows > 1
            and not any(run.step for run in open_flight.runs)
            and np.array_equal(row, previous)  # type: ignore[arg-type]  # there is one before
        ):
            open_flight = Flight(open_flight.rows + 1, open_flight.runs)
            continue
        previous = row
        runs = _runs(row)
        if runs is None:
            return None
        longer = None if open_flight is None else _with_row(open_flight, runs)
        if longer is None and open_flight is not None:
            flights.append(open_flight)
            if len(flights) >= MAX_FLIGHTS:
                return None
        open_flight = longer or Flight(1, runs)
    return Stairs((*flights, open_flight)) if open_flight else None


def stairs_pieces(
    stairs: Stairs, dtype: np.dtype[np.unsignedinteger], size: int
) -> Iterator[Codes]:
    """The elements again, `size` at a time; the last piece is what is left."""
    gathered: list[Codes] = []
    count = 0
    for part in _parts(stairs, dtype, size):
        gathered.append(part)
        count += part.size
        if count < size:
            continue
        whole = np.concatenate(gathered)
        for start in range(0, count - size + 1, size):
            yield whole[start : start + size]
        gathered = [whole[count - count % size :]]
        count %= size
    if count:
        yield np.concatenate(gathered)


def _parts(stairs: Stairs, dtype: np.dtype[np.unsignedinteger], size: int) -> Iterator[Codes]:
    for flight in stairs.flights:
        if len(flight.runs) == 1:
            left = flight.rows * flight.runs[0].length
            for start in range(0, left, size):
                yield np.full(min(size, left - start), flight.runs[0].code, dtype)
            continue
        codes = np.array([run.code for run in flight.runs], dtype)
        for row in range(flight.rows):
            yield np.repeat(codes, [run.length_at(row) for run in flight.runs])


def _rows(pieces: Iterable[Codes], columns: int) -> Iterator[Codes]:
    rest: Codes | None = None
    for piece in pieces:
        codes = piece if rest is None or not rest.size else np.concatenate([rest, piece])
        whole = codes.size // columns
        yield from codes[: whole * columns].reshape(whole, columns)
        rest = codes[whole * columns :]


def _runs(row: Codes) -> tuple[Run, ...] | None:
    edges = np.flatnonzero(row[1:] != row[:-1]) + 1
    if edges.size >= MAX_RUNS:
        return None
    starts = [0, *map(int, edges)]
    return tuple(
        Run(int(row[start]), stop - start, 0)
        for start, stop in zip(starts, [*starts[1:], row.size], strict=True)
    )


def _with_row(flight: Flight, runs: tuple[Run, ...]) -> Flight | None:
    """The flight with one row more; None where that does not continue it."""
    if [run.code for run in runs] != [run.code for run in flight.runs]:
        return None
    row = flight.rows
    if row == 1:
        pairs = zip(flight.runs, runs, strict=True)
        return Flight(2, tuple(Run(a.code, a.length, b.length - a.length) for a, b in pairs))
    if any(a.length_at(row) != b.length for a, b in zip(flight.runs, runs, strict=True)):
        return None
    return Flight(row + 1, flight.runs)
