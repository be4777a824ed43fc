"""Where the zeros of a pruned weight lie: in whole rows or columns, in blocks, or N of every M.

A pattern is told from a sample of the weight, and drawn anew in other places. It is cut in the
weight as a matrix: its first axis by all others, leading axes of length 1 left out. The share of
the zeros that a pattern explains, and of nonzeros elsewhere, must be high, as in
`MIN_COVERAGE` and `MIN_FILL`: zeros in random places do not reach both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    import numpy.typing as npt

    Mask: TypeAlias = npt.NDArray[np.bool_]

# Fewer zeros than this share are no pruning.
DENSE_BELOW = 0.05
MIN_COVERAGE = 0.95
MIN_FILL = 0.75
# Of fewer blocks than these, some are wholly zero by chance.
MIN_BLOCKS = 4

# The sides of blocks that are looked for, the largest areas first.
_SIDES = (32, 16, 8, 4, 2, 1)
_BLOCKS = sorted(
    ((h, w) for h in _SIDES for w in _SIDES if h * w > 1), key=lambda block: -block[0] * block[1]
)
# At most N nonzeros in each group of M, from the sparsest to the loosest.
_GROUPINGS = ((1, 4), (2, 8), (1, 2), (2, 4), (4, 8))
# How much sparser than 1 - N/M a weight may be and still be called N:M.
_MAX_EXCESS = 0.1

# Rows that are drawn together: a multiple of every side, every M, and of the numbers in a byte.
BAND_ROWS = 64
# Longer rows are taken to have no pattern, so that a band of them fits into memory.
MAX_BAND = 1 << 23


class Blocks(Struct, frozen=True):
    """Aligned blocks of `height` x `width`, of which `count` are wholly zero.

    A height or a width of 0 stands for the whole length of a column or a row.
    """

    height: int
    width: int
    count: int


class Grouping(Struct, frozen=True):
    """At most `n` nonzeros in each aligned group of `m` along `axis` of the weight."""

    n: int
    m: int
    axis: int


ZeroPattern: TypeAlias = Blocks | Grouping


class Matrix(Struct, frozen=True):
    """A weight as rows: without leading ones, its first axis by all others."""

    dims: tuple[int, ...]

    @classmethod
    def of(cls, dims: Sequence[int]) -> Matrix:
        trimmed = list(dims)
        while len(trimmed) > 2 and trimmed[0] == 1:
            del trimmed[0]
        return cls((1,) * (2 - len(trimmed)) + tuple(trimmed))

    @property
    def rows(self) -> int:
        return self.dims[0]

    @property
    def columns(self) -> int:
        return prod(self.dims[1:])

    @property
    def can_have_pattern(self) -> bool:
        return self.rows > 0 and 1 < self.columns <= MAX_BAND // min(self.rows, BAND_ROWS)

    @property
    def band_rows(self) -> int:
        """How many rows are looked at, or drawn, together."""
        return max(1, MAX_BAND // 8 // self.columns // BAND_ROWS) * BAND_ROWS


def find_pattern(sample: Mask, matrix: Matrix, zeros: int) -> ZeroPattern | None:
    """The pattern in the first rows of a weight that has `zeros` zeros in all; None without one."""
    if not matrix.can_have_pattern:
        return None
    rows = sample.size // matrix.columns
    view = sample[: rows * matrix.columns].reshape(rows, matrix.columns)
    here = int(np.count_nonzero(view))
    if here < DENSE_BELOW * view.size or here in (0, view.size):
        return None
    for height, width in ((1, 0), (0, 1), *_BLOCKS):
        tall, wide = height or rows, width or matrix.columns
        total = (matrix.rows // (height or matrix.rows)) * (matrix.columns // wide)
        if rows < tall or matrix.columns < wide or total < MIN_BLOCKS:
            continue
        found = _count_blocks(view, tall, wide)
        covered = found * tall * wide
        if covered >= MIN_COVERAGE * here and view.size - here >= MIN_FILL * (view.size - covered):
            area = (height or matrix.rows) * wide
            return Blocks(height, width, min(round(zeros * covered / here / area), zeros // area))
    for grouping in _groupings(matrix):
        ratio = here / view.size
        least = grouping.m - grouping.n
        if not 0 <= ratio - least / grouping.m <= _MAX_EXCESS:
            continue
        groups = _groups(view.reshape(rows, *matrix.dims[1:]), grouping)
        enough = zeros >= prod(matrix.dims) // grouping.m * least
        if groups is not None and enough and int(groups.sum(axis=-1).min()) >= least:
            return grouping
    return None


def fits(pattern: ZeroPattern, matrix: Matrix, zeros: int) -> bool:
    """Whether a weight of this shape, with so many zeros, can have the pattern at all."""
    if not matrix.can_have_pattern:
        return False
    if isinstance(pattern, Grouping):
        least = pattern.m - pattern.n
        return (
            (pattern.n, pattern.m) in _GROUPINGS
            and 0 <= pattern.axis < len(matrix.dims)
            and matrix.dims[pattern.axis] % pattern.m == 0
            and zeros >= prod(matrix.dims) // pattern.m * least
        )
    if (pattern.height, pattern.width) not in ((1, 0), (0, 1), *_BLOCKS):
        return False
    height, width = pattern.height or matrix.rows, pattern.width or matrix.columns
    total = (matrix.rows // height) * (matrix.columns // width)
    return 0 <= pattern.count <= total and pattern.count * height * width <= zeros


def draw_masks(
    pattern: ZeroPattern, matrix: Matrix, random: np.random.RandomState
) -> Iterator[Mask]:
    """The places of the zeros of the pattern, one band of rows after the other, each flat."""
    columns = random.permutation(matrix.columns) if pattern == _column_blocks(pattern) else None
    for start in range(0, matrix.rows, matrix.band_rows):
        rows = min(matrix.band_rows, matrix.rows - start)
        if isinstance(pattern, Grouping):
            yield _draw_groups(pattern, (rows, *matrix.dims[1:]), random)
        elif columns is not None:
            mask = np.zeros((rows, matrix.columns), np.bool_)
            mask[:, columns[: pattern.count]] = True
            yield mask.reshape(-1)
        else:
            yield _draw_blocks(pattern, matrix, start, rows, random)


def covered_by(pattern: ZeroPattern, matrix: Matrix) -> int:
    """How many elements the drawn masks make zero in all."""
    if isinstance(pattern, Grouping):
        return prod(matrix.dims) // pattern.m * (pattern.m - pattern.n)
    return pattern.count * (pattern.height or matrix.rows) * (pattern.width or matrix.columns)


def _column_blocks(pattern: ZeroPattern) -> ZeroPattern | None:
    return pattern if isinstance(pattern, Blocks) and pattern.height == 0 else None


def _count_blocks(view: Mask, height: int, width: int) -> int:
    rows, columns = view.shape[0] // height, view.shape[1] // width
    blocks = view[: rows * height, : columns * width]
    return int(np.count_nonzero(blocks.reshape(rows, height, columns, width).all(axis=(1, 3))))


def _groupings(matrix: Matrix) -> Iterator[Grouping]:
    """The groupings along the last axis, the second and the first, where they divide it."""
    last = len(matrix.dims) - 1
    for n, m in _GROUPINGS:
        for axis in dict.fromkeys((last, 1, 0)):
            if matrix.dims[axis] % m == 0:
                yield Grouping(n, m, axis)


def _groups(band: Mask, grouping: Grouping) -> Mask | None:
    """The groups of a band, one to a row of the last axis."""
    length = band.shape[grouping.axis] // grouping.m * grouping.m
    moved = np.moveaxis(band, grouping.axis, -1)[..., :length]
    return moved.reshape(-1, grouping.m) if length else None


def _draw_groups(grouping: Grouping, shape: tuple[int, ...], random: np.random.RandomState) -> Mask:
    moved = np.moveaxis(np.zeros(shape, np.bool_), grouping.axis, -1)
    zeros = random.random_sample((moved.size // grouping.m, grouping.m))
    least = grouping.m - grouping.n
    mask = zeros <= np.sort(zeros, axis=1)[:, least - 1 : least]
    return np.ascontiguousarray(np.moveaxis(mask.reshape(moved.shape), -1, grouping.axis)).reshape(
        -1
    )


def _draw_blocks(
    blocks: Blocks, matrix: Matrix, start: int, rows: int, random: np.random.RandomState
) -> Mask:
    height, width = blocks.height, blocks.width or matrix.columns
    across = matrix.columns // width
    total = matrix.rows // height * across
    first, last = start // height * across, (start + rows) // height * across
    count = share_of(blocks.count, last, total) - share_of(blocks.count, first, total)
    chosen = np.zeros(last - first, np.bool_)
    chosen[random.permutation(last - first)[:count]] = True
    mask = np.zeros((rows, matrix.columns), np.bool_)
    grid = np.repeat(chosen.reshape(-1, across), height, axis=0)
    mask[: grid.shape[0], : across * width] = np.repeat(grid, width, axis=1)
    return mask.reshape(-1)


def share_of(count: int, part: int, whole: int) -> int:
    """How many of `count` things lie in the first `part` of `whole` places, spread evenly."""
    return count * part // whole if whole else 0
