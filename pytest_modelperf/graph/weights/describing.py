"""Describe weights: make the note on the numbers of a tensor, which are read in pieces.

Numbers are rounded to five digits, so that notes do not depend on the order in which a machine
sums. Counts and the range of integers are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.graph.weights.notes import (
    GROUPINGS,
    MAX_BLOCKS,
    MAX_COLUMNS,
    MAX_EXCESS,
    MAX_ROWS,
    MAX_RUNS,
    DeadSlices,
    GroupedZeros,
    Note,
    RowBlock,
    RunLengths,
    Statistics,
    ValueRun,
    rows_and_columns,
    trimmed,
)
from pytest_modelperf.graph.weights.numbers import Codes, Numbers, NumberType

if TYPE_CHECKING:
    import numpy.typing as npt

# Only the first elements of a weight are searched for groups of zeros.
SAMPLE_ELEMENTS = 1 << 20
# A tensor with more distinct values is described by its statistics.
_MAX_VALUES = 4
# Larger numbers, which only float64 has, count as this one, so that squares have a finite sum.
_LARGEST = 1e150

Pieces: TypeAlias = Callable[[], "Iterator[Codes]"]


def describe(number: NumberType, dims: tuple[int, ...], pieces: Pieces) -> Note:
    """Return the note on a weight whose codes `pieces` yields, from the start at each call."""
    exact = _find_run_lengths(number, dims, pieces)
    if exact is not None:
        return exact
    moments = _Moments(number)
    sample: list[Numbers] = []
    sampled = 0
    for codes in pieces():
        moments.add(codes)
        if sampled < SAMPLE_ELEMENTS:
            sample.append(number.decode(codes) == 0)
            sampled += codes.size
    shape = number.shape(dims)
    found = moments.statistics(_find_groups(np.concatenate(sample), shape, moments.zeros))
    # Numbers of 8 bits are often subnormal, but are converted to wider ones before they cost time.
    if not found.subnormals or number.bits <= 8 or found.grouped_zeros is not None:
        return found
    return replace(found, dead=_find_dead_slices(number, shape, pieces))


def measure(number: NumberType, pieces: Iterable[Codes]) -> Statistics:
    """Return the distribution of these numbers, with their counts of zeros and subnormal ones."""
    moments = _Moments(number)
    for codes in pieces:
        moments.add(codes)
    return moments.statistics(None)


def _find_run_lengths(
    number: NumberType, dims: tuple[int, ...], pieces: Pieces
) -> RunLengths | None:
    values: set[int] = set()
    # The start of a weight nearly always has many values, which saves sorting the rest.
    for part in (part for codes in pieces() for part in (codes[:256], codes)):
        values.update(map(int, np.unique(part)))
        if len(values) > _MAX_VALUES:
            return None
    rows, columns = rows_and_columns(number, dims)
    if len(values) == 1:
        return RunLengths((RowBlock(rows, (ValueRun(values.pop(), columns, 0),)),))
    return find_run_lengths(pieces(), rows, columns)


def find_run_lengths(pieces: Iterable[Codes], rows: int, columns: int) -> RunLengths | None:
    """Return the elements as blocks of rows, or None if they would need too many."""
    if rows > MAX_ROWS or columns > MAX_COLUMNS:
        return None
    blocks: list[RowBlock] = []
    for row in _rows(pieces, columns):
        edges = np.flatnonzero(row[1:] != row[:-1]) + 1
        if edges.size >= MAX_RUNS:
            return None
        ends = pairwise([0, *map(int, edges), row.size])
        runs = tuple(ValueRun(int(row[start]), stop - start, 0) for start, stop in ends)
        longer = _with_row(blocks[-1], runs) if blocks else None
        if longer is not None:
            blocks[-1] = longer
        elif len(blocks) < MAX_BLOCKS:
            blocks.append(RowBlock(1, runs))
        else:
            return None
    return RunLengths(tuple(blocks)) if blocks else None


def _rows(pieces: Iterable[Codes], columns: int) -> Iterator[Codes]:
    rest: Codes | None = None
    for piece in pieces:
        codes = piece if rest is None or not rest.size else np.concatenate([rest, piece])
        whole = codes.size // columns
        yield from codes[: whole * columns].reshape(whole, columns)
        rest = codes[whole * columns :]


def _with_row(block: RowBlock, runs: tuple[ValueRun, ...]) -> RowBlock | None:
    if [run.code for run in runs] != [run.code for run in block.runs]:
        return None
    row = block.rows
    if row == 1:
        pairs = zip(block.runs, runs, strict=True)
        return RowBlock(2, tuple(ValueRun(a.code, a.length, b.length - a.length) for a, b in pairs))
    if any(a.length_at(row) != b.length for a, b in zip(block.runs, runs, strict=True)):
        return None
    return RowBlock(row + 1, block.runs)


def _find_groups(
    is_zero: npt.NDArray[np.bool_], shape: tuple[int, ...], zeros: int
) -> GroupedZeros | None:
    last = len(trimmed(shape)) - 1
    for n, m in GROUPINGS:
        if not 0 <= is_zero.mean() - (m - n) / m <= MAX_EXCESS:
            continue
        for axis in dict.fromkeys((last, 1, 0)):
            found = GroupedZeros(n, m, axis)
            if not found.fits(shape, zeros):
                continue
            inner = found.inner_size(shape)
            whole = is_zero.size // (m * inner) * m * inner
            groups = is_zero[:whole].reshape(-1, m, inner)
            if groups.size and groups.sum(axis=1).min() >= m - n:
                return found
    return None


def _find_dead_slices(
    number: NumberType, shape: tuple[int, ...], pieces: Pieces
) -> DeadSlices | None:
    # Without the sign bit, larger absolute values have larger codes.
    unsigned = number.code_dtype.type((1 << (number.bits - 1)) - 1)
    sizes = (codes & unsigned for codes in pieces())
    # One byte for each number: 0 for a zero, 1 for a subnormal number, 2 for a larger one.
    found = [(each > 0).astype(np.uint8) + (each >= number.subnormal_steps) for each in sizes]
    kinds = np.concatenate(found).reshape(shape)
    best, most = None, 0
    for axis in range(kinds.ndim):
        others = tuple(other for other in range(kinds.ndim) if other != axis)
        is_dead = kinds.max(axis=others) < 2
        dead = kinds.compress(is_dead, axis)
        subnormals = int(np.count_nonzero(dead))
        if subnormals > most:
            best, most = DeadSlices(axis, int(is_dead.sum()), dead.size - subnormals), subnormals
    return best


class _Moments(Struct):
    """Counts, range, mean and sum of squared deviations, updated piece by piece.

    Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm (1979).
    """

    number: NumberType
    zeros: int = 0
    subnormals: int = 0
    largest_subnormal: float = 0.0
    size: int = 0
    mean: float = 0.0
    squares: float = 0.0
    lowest: Any = math.inf
    highest: Any = -math.inf

    def add(self, codes: Codes) -> None:
        numbers = self._without_counted(self.number.decode(codes))
        if not numbers.size:
            return
        self.lowest = min(self.lowest, numbers.min())
        self.highest = max(self.highest, numbers.max())
        values = np.clip(numbers.astype(np.float64), -_LARGEST, _LARGEST)
        mean = float(values.mean())
        values -= mean
        # The sum of np.dot would depend on the number of threads of the machine.
        squares = float(np.square(values, out=values).sum())
        size = self.size + values.size
        shift = mean - self.mean
        self.mean += shift * (values.size / size)
        self.squares += squares + shift * shift * (self.size * values.size / size)
        self.size = size

    def _without_counted(self, numbers: Numbers) -> Numbers:
        """Return the finite numbers without zeros and subnormal ones, and count these."""
        if self.number.is_float:
            numbers = numbers[np.isfinite(numbers)]
        limit = self.number.smallest_normal
        is_small = (numbers < limit) & (numbers > -limit)
        small = int(np.count_nonzero(is_small))
        if not small:
            return numbers
        zeros = numbers.size - int(np.count_nonzero(numbers))
        self.zeros += zeros
        if small > zeros:
            self.subnormals += small - zeros
            largest = float(np.abs(numbers[is_small]).max())
            self.largest_subnormal = max(self.largest_subnormal, largest)
        return numbers[~is_small]

    def statistics(self, grouped_zeros: GroupedZeros | None) -> Statistics:
        largest = min(_round(self.largest_subnormal), self.number.smallest_normal)
        counts = self.zeros, self.subnormals, largest, grouped_zeros
        if not self.size:
            return Statistics(0.0, 0.0, 0, 0, *counts)
        deviation = _round(math.sqrt(self.squares / self.size))
        # The digits of a mean this close to zero are random.
        mean = 0.0 if abs(self.mean) < 1e-5 * deviation else _round(self.mean)
        return Statistics(
            mean,
            deviation,
            self._rounded_end(self.lowest),
            self._rounded_end(self.highest),
            *counts,
        )

    def _rounded_end(self, end: Numbers) -> int | float:
        if not self.number.is_float:
            return int(end)
        return _round(min(max(float(end), -_LARGEST), _LARGEST))


def _round(value: float) -> float:
    return float(f"{value:.5g}")
