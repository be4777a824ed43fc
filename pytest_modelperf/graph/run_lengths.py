"""Run lengths: a tensor of very few values, stored exactly. Constants and masks are such.

Engines look into some of these: a triangular mask distinguishes causal attention from any other.
Each row of such a tensor is a few runs of one value, and from row to row each run grows or
shrinks by the same step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, TypeAlias

import numpy as np
from msgspec import Meta, Struct

if TYPE_CHECKING:
    from pytest_modelperf.graph.number_codes import Codes

Count: TypeAlias = Annotated[int, Meta(ge=0)]

# A tensor that would need more is described by its statistics.
MAX_BLOCKS = 64
MAX_RUNS = 32
MAX_ROWS = 1 << 16
MAX_COLUMNS = 1 << 20


class ValueRun(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A value, its number of elements in the first row, and by how many each row has more."""

    code: Count
    length: int
    step: int

    def length_at(self, row: int) -> int:
        return self.length + row * self.step


class RowBlock(Struct, frozen=True):
    """Consecutive rows of the same runs."""

    rows: int
    runs: tuple[ValueRun, ...]


class RunLengths(Struct, frozen=True):
    """All elements of a tensor, as blocks of rows of its last axis."""

    blocks: tuple[RowBlock, ...]

    def fits(self, rows: int, columns: int) -> bool:
        """Whether these are the elements of a tensor of so many rows and columns."""
        if len(self.blocks) == 1 and len(self.blocks[0].runs) == 1:
            (block,) = self.blocks
            return (block.rows, block.runs[0].length, block.runs[0].step) == (rows, columns, 0)
        if rows > MAX_ROWS or columns > MAX_COLUMNS or len(self.blocks) > MAX_BLOCKS:
            return False
        return sum(block.rows for block in self.blocks) == rows and all(
            _is_full(block, columns) for block in self.blocks
        )


def _is_full(block: RowBlock, columns: int) -> bool:
    """Whether every row has all its columns: lengths are linear, so two rows decide."""
    return (
        block.rows > 0
        and 0 < len(block.runs) <= MAX_RUNS
        and all(
            sum(run.length_at(row) for run in block.runs) == columns
            and all(run.length_at(row) >= 0 for run in block.runs)
            for row in (0, block.rows - 1)
        )
    )


def constant(code: int, rows: int, columns: int) -> RunLengths:
    """The run lengths of a tensor that has one value."""
    return RunLengths((RowBlock(rows, (ValueRun(code, columns, 0),)),))


def find_run_lengths(pieces: Iterable[Codes], rows: int, columns: int) -> RunLengths | None:
    """The elements as blocks of rows; None if they would need too many."""
    if rows > MAX_ROWS or columns > MAX_COLUMNS:
        return None
    blocks: list[RowBlock] = []
    block: RowBlock | None = None
    for row in _rows(pieces, columns):
        runs = _runs(row)
        if runs is None:
            return None
        longer = None if block is None else _with_row(block, runs)
        if longer is None and block is not None:
            blocks.append(block)
            if len(blocks) >= MAX_BLOCKS:
                return None
        block = longer or RowBlock(1, runs)
    return RunLengths((*blocks, block)) if block else None


def run_length_pieces(
    found: RunLengths, dtype: np.dtype[np.unsignedinteger], size: int
) -> Iterator[Codes]:
    """The elements again, `size` at a time; the last piece is what is left."""
    gathered: list[Codes] = []
    count = 0
    for part in _parts(found, dtype, size):
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


def _parts(found: RunLengths, dtype: np.dtype[np.unsignedinteger], size: int) -> Iterator[Codes]:
    for block in found.blocks:
        if len(block.runs) == 1:
            left = block.rows * block.runs[0].length
            for start in range(0, left, size):
                yield np.full(min(size, left - start), block.runs[0].code, dtype)
            continue
        codes = np.array([run.code for run in block.runs], dtype)
        for row in range(block.rows):
            yield np.repeat(codes, [run.length_at(row) for run in block.runs])


def _rows(pieces: Iterable[Codes], columns: int) -> Iterator[Codes]:
    rest: Codes | None = None
    for piece in pieces:
        codes = piece if rest is None or not rest.size else np.concatenate([rest, piece])
        whole = codes.size // columns
        yield from codes[: whole * columns].reshape(whole, columns)
        rest = codes[whole * columns :]


def _runs(row: Codes) -> tuple[ValueRun, ...] | None:
    edges = np.flatnonzero(row[1:] != row[:-1]) + 1
    if edges.size >= MAX_RUNS:
        return None
    starts = [0, *map(int, edges)]
    return tuple(
        ValueRun(int(row[start]), stop - start, 0)
        for start, stop in zip(starts, [*starts[1:], row.size], strict=True)
    )


def _with_row(block: RowBlock, runs: tuple[ValueRun, ...]) -> RowBlock | None:
    """The block with one row more; None if the row does not continue it."""
    if [run.code for run in runs] != [run.code for run in block.runs]:
        return None
    row = block.rows
    if row == 1:
        pairs = zip(block.runs, runs, strict=True)
        return RowBlock(2, tuple(ValueRun(a.code, a.length, b.length - a.length) for a, b in pairs))
    if any(a.length_at(row) != b.length for a, b in zip(block.runs, runs, strict=True)):
        return None
    return RowBlock(row + 1, block.runs)
