"""Describe weights as notes, and draw weights from notes, in pieces.

Numbers are rounded to five digits, so that notes do not depend on the order in which a machine
sums. Counts and the range of integers are exact.

Numbers come from the pools of `program`, which draws those of a shared model in the same way.
"""

from __future__ import annotations

import math
import zlib
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
    Indices,
    Note,
    RowBlock,
    RunLengths,
    Statistics,
    ValueRun,
    rows_and_columns,
    trimmed,
)
from pytest_modelperf.graph.weights.numbers import Codes, Numbers, NumberType
from pytest_modelperf.graph.weights.program import PIECE, Dead, Distribution, Rare

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


# A uniform distribution is drawn if the range ends within this many deviations of the mean.
_NORMAL_RANGE = 2.0


class Drawer(Struct, frozen=True):
    """Draws the weights of one model."""

    seed: int

    def draw_codes(
        self,
        note: Note,
        number: NumberType,
        dims: tuple[int, ...],
        name: str,
        dense_shape: tuple[int, ...] = (),
    ) -> Iterator[Codes]:
        """Yield the codes of the weight `name`, in pieces that can be packed one by one."""
        if isinstance(note, RunLengths):
            return run_length_pieces(note, number.code_dtype)
        random = np.random.RandomState([self.seed & 0xFFFFFFFF, zlib.crc32(name.encode())])
        if isinstance(note, Indices):
            return _draw_indices(note, dims, dense_shape, random)
        shape = number.shape(dims)
        of = distribution_of(note, number, shape, self.seed)
        if note.grouped_zeros is not None:
            return _draw_groups(of, note.grouped_zeros, number, shape, random)
        return map(number.encode, of.pieces(math.prod(shape), random))


def draw_all(note: Note, number: NumberType, count: int, name: str) -> Codes:
    return np.concatenate(list(Drawer(0).draw_codes(note, number, (count,), name)))


def distribution_of(
    note: Statistics, number: NumberType, shape: tuple[int, ...], seed: int = 0
) -> Distribution:
    """Return a note's distribution of numbers, as the program of a shared model draws them."""
    # Rounding to five digits may move a number out of the range of its type.
    low, high = max(note.lowest, number.lowest), min(note.highest, number.highest)
    total, largest = math.prod(shape), note.largest_subnormal
    zeros, subnormals, dead = note.zeros, note.subnormals, None
    if note.grouped_zeros is not None:
        gone = total // note.grouped_zeros.m * note.grouped_zeros.zeros_per_group
        zeros, total = zeros - gone, total - gone
    elif note.dead is not None:
        axis, gone = note.dead.axis, note.dead.elements(shape)
        within = Rare(note.dead.zeros, gone - note.dead.zeros, largest, gone)
        dead = Dead(math.prod(shape[axis + 1 :]), shape[axis], note.dead.slices, within)
        zeros, subnormals, total = (
            zeros - within.zeros,
            subnormals - within.subnormals,
            total - gone,
        )
    return Distribution(
        note.mean,
        note.deviation,
        low,
        high,
        is_even=min(note.mean - low, high - note.mean) < _NORMAL_RANGE * note.deviation,
        is_float=number.is_float,
        least=number.smallest_normal,
        step=number.smallest_normal / number.subnormal_steps,
        precision=np.float64 if number.bits == 64 or not number.is_float else np.float32,
        rare=Rare(zeros, subnormals, largest, max(total, 1)),
        dead=dead,
        seed=seed,
    )


def _draw_groups(
    of: Distribution,
    groups: GroupedZeros,
    number: NumberType,
    shape: tuple[int, ...],
    random: np.random.RandomState,
) -> Iterator[Codes]:
    total, inner = math.prod(shape), groups.inner_size(shape)
    block = groups.m * inner
    # An even number of groups, for packed numbers.
    step = max(2, PIECE // block // 2 * 2) * block
    for start in range(0, total, step):
        numbers = of.draw(min(step, total - start), random)
        ranks = random.random_sample((numbers.size // block, groups.m, inner))
        limits = np.sort(ranks, axis=1)[:, groups.zeros_per_group - 1, None]
        is_zero = (ranks <= limits).reshape(-1)
        numbers[is_zero] = 0
        of.put(of.rare, numbers, np.flatnonzero(~is_zero), random)
        yield number.encode(numbers)


def run_length_pieces(
    found: RunLengths, dtype: np.dtype[np.unsignedinteger], size: int = PIECE
) -> Iterator[Codes]:
    """Yield the elements in pieces of one size, and the rest as the last piece."""
    gathered: list[Codes] = []
    count = 0
    for part in _runs(found, dtype, size):
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


def _runs(found: RunLengths, dtype: np.dtype[np.unsignedinteger], size: int) -> Iterator[Codes]:
    for block in found.blocks:
        if len(block.runs) == 1:
            left = block.rows * block.runs[0].length
            for start in range(0, left, size):
                yield np.full(min(size, left - start), block.runs[0].code, dtype)
            continue
        codes = np.array([run.code for run in block.runs], dtype)
        for row in range(block.rows):
            yield np.repeat(codes, [run.length_at(row) for run in block.runs])


def _draw_indices(
    note: Indices,
    dims: tuple[int, ...],
    dense_shape: tuple[int, ...],
    random: np.random.RandomState,
) -> Iterator[Codes]:
    """Yield sorted positions, one from each of equal parts of the whole, so that all differ."""
    count, room = dims[0], note.last - note.first + 1
    for start in range(0, count, PIECE):
        order = range(start, min(start + PIECE, count) + 1)
        edges = np.array([note.first + i * room // count for i in order], np.int64)
        widths = np.diff(edges)
        places = edges[:-1] + (random.random_sample(widths.size) * widths).astype(np.int64)
        if len(dims) > 1:
            places = np.stack(np.unravel_index(places, dense_shape), axis=1).reshape(-1)
        yield places.astype(np.int64).view(np.uint64)
