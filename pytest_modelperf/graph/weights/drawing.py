"""Draw weights from their notes in pieces, with the same result for the same seed.

Numbers come from the pools of `program`, which draws those of a shared model in the same way.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from pytest_modelperf.graph.weights.notes import GroupedZeros, Indices, Note, RunLengths, Statistics
from pytest_modelperf.graph.weights.numbers import Codes, NumberType
from pytest_modelperf.graph.weights.program import PIECE, Dead, Distribution, Rare

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
