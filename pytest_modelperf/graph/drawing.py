"""Draw weights from the notes of a twin, piece by piece, the same weights for the same seed.

Numbers come from two pools, made once: drawing each of a billion numbers would take longer than all
measuring. A pool has a prime length, and each piece starts at a random place in it, so no two rows
of a matrix are the same. The pools are made by numpy's legacy generator, whose stream is the same
in every version.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from pytest_modelperf.graph.number_codes import NumberType
from pytest_modelperf.graph.run_lengths import RunLengths, run_length_pieces
from pytest_modelperf.graph.weight_notes import (
    DeadSlices,
    GroupedZeros,
    Indices,
    Note,
    Statistics,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from pytest_modelperf.graph.number_codes import Codes, Numbers

    Pool: TypeAlias = npt.NDArray[np.float32]
    Mask: TypeAlias = npt.NDArray[np.bool_]
    # Some of the elements of a piece, or the number of them if all are meant.
    Places: TypeAlias = npt.NDArray[np.intp] | int
    # Which elements of a piece are dead, from where it starts and how many it has.
    IsDead: TypeAlias = Callable[[int, int], Mask]

# Numbers in a piece: even, because a byte holds two 4-bit numbers.
PIECE = 1 << 18
# A prime, large enough that sums of a pool's numbers behave like sums of independent numbers.
_POOL = 1_048_573
# Normal numbers reach this many deviations to both sides of their mean.
NORMAL_RANGE = 2.0


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
        """The codes of the weight `name`, in pieces that can be packed one by one."""
        if isinstance(note, RunLengths):
            return run_length_pieces(note, number.code_dtype, PIECE)
        random = _random(self.seed, name)
        if isinstance(note, Indices):
            return _draw_indices(note, dims, dense_shape, random)
        return self._draw_numbers(note, number, number.shape(dims), random)

    def _draw_numbers(
        self,
        note: Statistics,
        number: NumberType,
        shape: tuple[int, ...],
        random: np.random.RandomState,
    ) -> Iterator[Codes]:
        total = math.prod(shape)
        groups, slices = note.grouped_zeros, note.dead
        inner = 1 if groups is None else groups.inner_size(shape)
        is_dead = None if slices is None else self._dead_slices(slices, shape)
        draw = self._distribution(note, number)
        dead, counted = _counted(note, shape)
        step = _piece_size(groups, inner)
        for start in range(0, total, step):
            size = min(step, total - start)
            codes = number.encode(_away_from_zero(draw(size, random), number))
            places: Places = size
            if groups is not None:
                is_zero = _draw_groups(groups, inner, size, random)
                codes[is_zero] = 0
                places = np.flatnonzero(~is_zero)
            elif is_dead is not None:
                here = is_dead(start, size)
                gone, places = np.flatnonzero(here), np.flatnonzero(~here)
                dead.put(codes, gone, gone.size, number, random)
                size = places.size
            counted.put(codes, places, size, number, random)
            yield codes

    def _dead_slices(self, dead: DeadSlices, shape: tuple[int, ...]) -> IsDead:
        """A function that says which elements of a piece are in dead slices.

        They are the same channels in all weights that have as many, so that a convolution, its
        normalization and the next convolution are dead in the same ones.
        """
        length = shape[dead.axis]
        inner = math.prod(shape[dead.axis + 1 :])
        # `weightless_program` draws the same ones.
        order = np.random.RandomState([self.seed & 0xFFFFFFFF, length]).permutation(length)
        is_dead = np.zeros(length, np.bool_)
        is_dead[order[: dead.slices]] = True

        def of_piece(start: int, size: int) -> Mask:
            return is_dead[np.arange(start, start + size) // inner % length]

        return of_piece

    def _distribution(
        self, note: Statistics, number: NumberType
    ) -> Callable[[int, np.random.RandomState], Numbers]:
        """A function that draws so many numbers of this mean, deviation and range."""
        is_wide = number.bits == 64 or not number.is_float
        precision = np.dtype(np.float64 if is_wide else np.float32).type
        # Five digits may round a number out of its type.
        low, high = max(note.lowest, number.lowest), min(note.highest, number.highest)
        mean, width = note.mean, note.deviation
        room = max(0.0, min(mean - low, high - mean))
        pool = normal_pool(self.seed)
        if room < NORMAL_RANGE * width:
            pool, width = uniform_pool(self.seed), min(math.sqrt(3) * width, room)

        def draw(size: int, random: np.random.RandomState) -> Numbers:
            drawn = _take(pool, random.randint(pool.size), size).astype(precision)
            with np.errstate(over="ignore"):
                numbers = drawn * precision(width) + precision(mean)
            return np.clip(numbers, precision(low), precision(high), out=numbers)

        return draw


def _random(seed: int, name: str) -> np.random.RandomState:
    return np.random.RandomState([seed & 0xFFFFFFFF, zlib.crc32(name.encode())])


# Cached for all models: making a pool takes longer than drawing a small model.
@lru_cache(maxsize=1)
def normal_pool(seed: int) -> Pool:
    """Numbers of mean 0 and deviation 1."""
    pool = _random(seed, "normal").standard_normal(_POOL)
    return _read_only((pool - pool.mean()) / pool.std())


@lru_cache(maxsize=1)
def uniform_pool(seed: int) -> Pool:
    """Numbers between -1 and 1, of mean 0."""
    return _read_only(2 * _random(seed, "uniform").random_sample(_POOL) - 1)


def _read_only(numbers: Numbers) -> Pool:
    pool = np.asarray(numbers, np.float32)
    pool.flags.writeable = False
    return pool


def _take(pool: Pool, start: int, size: int) -> Pool:
    """So many numbers of a pool from `start` on, and again from its beginning."""
    whole = pool if start + size <= pool.size else np.resize(pool, start + size)
    return whole[start : start + size]


def _away_from_zero(numbers: Numbers, number: NumberType) -> Numbers:
    """The numbers, with zeros and subnormal ones moved to the nearest others: they are counted."""
    step = number.smallest_normal
    moved = numbers if number.is_float else np.rint(numbers)
    is_small = np.abs(moved) < step
    if is_small.any():
        moved[is_small] = np.where(numbers[is_small] < 0, -step, step)
    return moved


class _Counted(Struct):
    """So many zeros and subnormal numbers, spread evenly over `total` elements.

    `passed` is the number of these elements that the pieces so far had.
    """

    zeros: int
    subnormals: int
    largest_subnormal: float
    total: int
    passed: int = 0

    def put(
        self,
        codes: Codes,
        places: Places,
        count: int,
        number: NumberType,
        random: np.random.RandomState,
    ) -> None:
        """Put the share of a piece, which has `count` of the elements, at random places in it.

        The shares add up exactly.
        """
        both = self.zeros + self.subnormals
        if not both:
            return
        before, self.passed = self.passed, self.passed + count
        first, last = (both * passed // self.total for passed in (before, self.passed))
        if first == last:
            return
        put = random.permutation(places)[: last - first]
        zeros = self.zeros * last // both - self.zeros * first // both
        codes[put[:zeros]] = 0
        codes[put[zeros:]] = _draw_subnormals(
            number, self.largest_subnormal, last - first - zeros, random
        )


def _counted(note: Statistics, shape: tuple[int, ...]) -> tuple[_Counted, _Counted]:
    """The numbers to put into dead slices, and those to put elsewhere.

    The zeros of groups are in neither: they have their own places.
    """
    total, groups, dead = math.prod(shape), note.grouped_zeros, note.dead
    zeros, subnormals, largest = note.zeros, note.subnormals, note.largest_subnormal
    if groups is not None:
        zeros -= total // groups.m * groups.zeros_per_group
    if dead is None:
        return _Counted(0, 0, largest, 0), _Counted(zeros, subnormals, largest, total)
    elements = dead.elements(shape)
    in_slices = elements - dead.zeros
    return (
        _Counted(dead.zeros, in_slices, largest, elements),
        _Counted(zeros - dead.zeros, subnormals - in_slices, largest, total - elements),
    )


def _draw_subnormals(
    number: NumberType, largest: float, count: int, random: np.random.RandomState
) -> Codes:
    """Subnormal numbers up to the largest; 0 stands for all of them.

    Their codes are those of the smallest integers, with a sign.
    """
    share = largest / number.smallest_normal or 1.0
    steps = min(round(share * number.subnormal_steps), number.subnormal_steps - 1)
    magnitudes = random.randint(1, max(steps, 1) + 1, count, np.int64)
    signs = random.randint(0, 2, count, np.int64).astype(np.uint64) << (number.bits - 1)
    return np.asarray(magnitudes.astype(np.uint64) | signs, np.uint64)


def _piece_size(groups: GroupedZeros | None, inner: int) -> int:
    """The elements in a piece: whole groups, and an even number of them for packed numbers."""
    if groups is None:
        return PIECE
    block = groups.m * inner
    return max(2, PIECE // block // 2 * 2) * block


def _draw_groups(
    groups: GroupedZeros, inner: int, size: int, random: np.random.RandomState
) -> Mask:
    """Which elements of a piece are the zeros of its groups."""
    ranks = random.random_sample((size // (groups.m * inner), groups.m, inner))
    limits = np.sort(ranks, axis=1)[:, groups.zeros_per_group - 1, None]
    return (ranks <= limits).reshape(-1)


def _draw_indices(
    note: Indices,
    dims: tuple[int, ...],
    dense_shape: tuple[int, ...],
    random: np.random.RandomState,
) -> Iterator[Codes]:
    """Sorted positions: each in its own of equal parts of the whole, so that none comes twice."""
    count, room = dims[0], note.last - note.first + 1
    for start in range(0, count, PIECE):
        order = range(start, min(start + PIECE, count) + 1)
        edges = np.array([note.first + i * room // count for i in order], np.int64)
        widths = np.diff(edges)
        places = edges[:-1] + (random.random_sample(widths.size) * widths).astype(np.int64)
        if len(dims) > 1:
            places = np.stack(np.unravel_index(places, dense_shape), axis=1).reshape(-1)
        yield places.astype(np.int64).view(np.uint64)
