"""Weights drawn from what a twin kept of them, piece by piece, the same ones for the same seed.

Numbers come out of two pools, made once: to draw each of a billion numbers anew would take longer
than all measuring. A pool has a prime length, and each piece starts at a place of its own in it,
so no two rows of a matrix are the same. The pools are made by numpy's legacy generator, whose
stream is the same in every version.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pytest_modelperf.graph.number_codes import NumberType
from pytest_modelperf.graph.stairs import Stairs, stairs_pieces
from pytest_modelperf.graph.weight_notes import Indices, Note, Spread, Statistics
from pytest_modelperf.graph.zero_pattern import Matrix, covered_by, draw_masks, share_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from pytest_modelperf.graph.number_codes import Codes, Numbers
    from pytest_modelperf.graph.zero_pattern import Mask

    Pool: TypeAlias = npt.NDArray[np.float32]

# Numbers to a piece: even, for there are two 4-bit numbers in a byte.
PIECE = 1 << 18
# A prime, and large enough that a sum over a pool's numbers is one over independent ones.
_POOL = 1_048_573
# The numbers that a spread is tried on.
_TRIAL = 1 << 14
_ROUNDS = 40
# From here on float32 would lose numbers to its own range.
_MAX_FLOAT32 = 1e30


class Drawer:
    """Draws the weights of one model."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    @property
    def normal(self) -> Pool:
        """Numbers of mean 0 and deviation 1."""
        return _normal_pool(self.seed)

    @property
    def uniform(self) -> Pool:
        """Numbers between -sqrt(3) and sqrt(3): of mean 0 and deviation 1 too."""
        return _uniform_pool(self.seed)

    def draw(
        self,
        note: Note,
        number: NumberType,
        dims: tuple[int, ...],
        name: str,
        dense_shape: tuple[int, ...] = (),
    ) -> Iterator[bytes]:
        """The packed elements of the weight `name`, in pieces."""
        for codes in self.draw_codes(note, number, dims, name, dense_shape):
            yield number.pack(codes)

    def draw_codes(
        self,
        note: Note,
        number: NumberType,
        dims: tuple[int, ...],
        name: str,
        dense_shape: tuple[int, ...] = (),
    ) -> Iterator[Codes]:
        if isinstance(note, Stairs):
            dtype = np.dtype(f"u{max(number.bits, 8) // 8}")
            return stairs_pieces(note, dtype, PIECE)
        random = self._random(name)
        if isinstance(note, Indices):
            return _draw_indices(note, dims, dense_shape, random)
        return self._draw_numbers(note, number, dims, random)

    def _random(self, name: str) -> np.random.RandomState:
        return _random(self.seed, name)

    def _draw_numbers(
        self,
        note: Statistics,
        number: NumberType,
        dims: tuple[int, ...],
        random: np.random.RandomState,
    ) -> Iterator[Codes]:
        total = math.prod(dims) * number.components
        shape = self._shape(note.spread, number) if note.spread else None
        counts = _Counts(note, total, number, dims)
        start = 0
        for mask in _masks(note, number, dims, random):
            size = total - start if isinstance(mask, int) else mask.size
            if isinstance(mask, int):
                size = min(mask, size)
            if shape is None:
                codes = number.encode(np.zeros(size))
            else:
                codes = number.encode(_away(shape(size, random), note, number))
            places = None if isinstance(mask, int) else mask
            yield counts.put(codes, places, random)
            start += size

    def _shape(
        self, spread: Spread, number: NumberType
    ) -> Callable[[int, np.random.RandomState], Numbers]:
        """What draws so many numbers of this mean, deviation and range."""
        low = max(spread.lowest, number.lowest)
        high = min(spread.highest, number.highest)
        is_wide = max(abs(low), abs(high)) > _MAX_FLOAT32 or number.bits == 64
        precision = np.dtype(np.float64 if is_wide or not number.is_float else np.float32)
        pool = self.uniform if _is_uniform(spread) else self.normal
        transform = _fitted(spread, pool[:_TRIAL].astype(np.float64))

        def draw(size: int, random: np.random.RandomState) -> Numbers:
            drawn = _taken(pool, random.randint(_POOL), size).astype(precision)
            with np.errstate(over="ignore"):
                numbers = transform(drawn)
            return np.clip(numbers, precision.type(low), precision.type(high), out=numbers)

        return draw


def _random(seed: int, name: str) -> np.random.RandomState:
    return np.random.RandomState([seed & 0xFFFFFFFF, zlib.crc32(name.encode())])


# Kept from model to model: a pool takes longer to make than all weights of a small model.
@lru_cache(maxsize=1)
def _normal_pool(seed: int) -> Pool:
    pool = _random(seed, "normal").standard_normal(_POOL)
    return _never_changed(np.asarray((pool - pool.mean()) / pool.std(), np.float32))


@lru_cache(maxsize=1)
def _uniform_pool(seed: int) -> Pool:
    pool = _random(seed, "uniform").random_sample(_POOL)
    return _never_changed(((2 * pool - 1) * math.sqrt(3)).astype(np.float32))


def _never_changed(pool: Pool) -> Pool:
    pool.flags.writeable = False
    return pool


class _Counts:
    """Puts the elements that are counted apart at places of their own, exactly so many in all."""

    def __init__(
        self, note: Statistics, total: int, number: NumberType, dims: tuple[int, ...]
    ) -> None:
        self.number = number
        matrix = _matrix(number, dims)
        covered = covered_by(note.pattern, matrix) if note.pattern else 0
        self.zero = int(
            number.encode(np.array([note.zero], np.int64 if _is_int(number) else float))[0]
        )
        specials = ("nan", note.nan), ("inf", note.inf), ("-inf", note.negative_inf)
        self.kinds: list[tuple[int | None, int]] = [(self.zero, note.zeros - covered)]
        self.kinds += [(number.special(name) or 0, count) for name, count in specials]
        self.kinds.append((None, note.subnormals))
        self.room = total - covered
        self.seen = 0

    def put(self, codes: Codes, mask: Mask | None, random: np.random.RandomState) -> Codes:
        size = codes.size
        if mask is not None:
            codes[mask] = self.zero
            size -= int(np.count_nonzero(mask))
        seen = self.seen + size
        here = [
            share_of(count, seen, self.room) - share_of(count, self.seen, self.room)
            for _, count in self.kinds
        ]
        self.seen = seen
        if not any(here):
            return codes
        free = random.permutation(size)[: sum(here)] if mask is None else None
        if free is None:
            free = random.permutation(np.flatnonzero(~mask))[: sum(here)]  # type: ignore[operator]  # it is a mask
        for (code, _), count in zip(self.kinds, here, strict=True):
            places, free = free[:count], free[count:]
            codes[places] = self._subnormals(count, random) if code is None else code
        return codes

    def _subnormals(self, count: int, random: np.random.RandomState) -> Codes:
        """Subnormal numbers: their codes are those of the smallest integers, with a sign."""
        magnitudes = random.randint(1, self.number.subnormal_steps, count, np.int64)
        signs = random.randint(0, 2, count, np.int64).astype(np.uint64) << (self.number.bits - 1)
        return np.asarray(magnitudes.astype(np.uint64) | signs, np.uint64)


def _is_int(number: NumberType) -> bool:
    return not number.is_float


def _matrix(number: NumberType, dims: tuple[int, ...]) -> Matrix:
    return Matrix.of(dims if number.components == 1 else (*dims, number.components))


def _masks(
    note: Statistics, number: NumberType, dims: tuple[int, ...], random: np.random.RandomState
) -> Iterator[Mask | int]:
    """Piece by piece the places of zeros in a pattern, or how many numbers are in it at most."""
    if note.pattern is not None:
        yield from draw_masks(note.pattern, _matrix(number, dims), random)
        return
    total = math.prod(dims) * number.components
    for start in range(0, total, PIECE):
        yield min(PIECE, total - start)


def _is_uniform(spread: Spread) -> bool:
    """Whether the numbers fill their range evenly, as those of a new layer and indices do."""
    width = spread.highest - spread.lowest
    middle = spread.lowest + width / 2
    return (
        abs(spread.deviation * math.sqrt(12) - width) <= 0.05 * width
        and abs(spread.mean - middle) <= 0.05 * width
    )


def _fitted(spread: Spread, trial: Numbers) -> Callable[[Numbers], Numbers]:
    """What makes numbers of this mean and deviation, once cut to the range, from those of 0 and 1.

    What lies on one side of zero and deviates much is taken for skewed, as variances are: it is
    made log-normal, for a cut normal one would put a large part of it on the lowest.
    """
    mean, deviation = spread.mean, spread.deviation
    # In units of the deviation, for the squares of the largest numbers are none.
    scale = deviation or 1.0
    low, high = spread.lowest / scale, spread.highest / scale
    wanted = mean / scale
    is_skewed = (
        (spread.lowest > 0 or spread.highest < 0) and abs(wanted) < 3 and not _is_uniform(spread)
    )
    make = _log_normal if is_skewed else _linear
    if not deviation:
        return _linear(mean, 0.0)
    middle, width = wanted, 1.0
    best, best_error = (middle, width), math.inf
    for _ in range(_ROUNDS):
        cut = np.clip(make(middle, width)(trial), low, high)
        got_mean, got_width = float(cut.mean()), float(cut.std())
        error = abs(got_mean - wanted) + abs(got_width - 1)
        if error < best_error:
            best, best_error = (middle, width), error
        if error < 1e-3 or not got_width:
            break
        if is_skewed:
            middle *= wanted / got_mean
        else:
            middle += wanted - got_mean
        width = min(width / got_width, 100.0)
    transform = make(*best)
    return lambda numbers: transform(numbers) * scale


def _linear(mean: float, deviation: float) -> Callable[[Numbers], Numbers]:
    return lambda numbers: numbers * deviation + mean


def _log_normal(mean: float, deviation: float) -> Callable[[Numbers], Numbers]:
    # https://en.wikipedia.org/wiki/Log-normal_distribution: its parameters from its moments.
    variance = math.log1p((deviation / mean) ** 2)
    middle, width, sign = (
        math.log(abs(mean)) - variance / 2,
        math.sqrt(variance),
        math.copysign(1, mean),
    )
    return lambda numbers: sign * np.exp(numbers * width + middle)


def _taken(pool: Pool, start: int, size: int) -> Pool:
    """So many numbers of a pool from `start` on, and again from its beginning."""
    if start + size <= pool.size:
        return pool[start : start + size]
    parts = [pool[start:]]
    left = size - parts[0].size
    while left:
        parts.append(pool[:left])
        left -= parts[-1].size
    return np.concatenate(parts)


def _away(numbers: Numbers, note: Statistics, number: NumberType) -> Numbers:
    """The numbers, those that would be counted apart moved to the nearest that is not."""
    if number.is_float:
        tiny = number.smallest_normal
        small = np.abs(numbers) < tiny
        if small.any():
            numbers[small] = np.where(numbers[small] < 0, -tiny, tiny)
        return numbers
    spread = note.spread
    whole = np.rint(numbers)
    if spread is None or not (is_zero := whole == note.zero).any():
        return whole
    can_rise, can_fall = note.zero + 1 <= spread.highest, note.zero - 1 >= spread.lowest
    if can_rise and can_fall:
        return np.where(is_zero, whole + np.where(numbers < note.zero, -1, 1), whole)
    return np.where(is_zero, whole + (1 if can_rise else -1), whole)


def _draw_indices(
    note: Indices,
    dims: tuple[int, ...],
    dense_shape: tuple[int, ...],
    random: np.random.RandomState,
) -> Iterator[Codes]:
    """Sorted places: each in its own of equal parts of the whole, so that none comes twice."""
    count, room = dims[0], note.last - note.first + 1
    for start in range(0, count, PIECE):
        order = range(start, min(start + PIECE, count) + 1)
        edges = np.array([note.first + i * room // count for i in order], np.int64)
        widths = np.diff(edges)
        places = edges[:-1] + (random.random_sample(widths.size) * widths).astype(np.int64)
        if len(dims) > 1:
            places = np.stack(np.unravel_index(places, dense_shape), axis=1).reshape(-1)
        yield places.astype(np.int64).view(np.uint64)
