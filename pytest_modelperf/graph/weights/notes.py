"""The notes that replace the weights of a model, and their form as text.

There are three kinds of notes. `Statistics` describe a distribution. `RunLengths` store a constant
or a mask exactly. `Indices` describe the sorted positions of the values of a sparse weight.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from pytest_modelperf.graph.weights.numbers import NumberType

# A note of the longest run lengths has about 40 KB, and all others are much shorter.
MAX_NOTE_CHARACTERS = 1 << 17

# At most n nonzeros in each group of m, from the sparsest to the loosest.
GROUPINGS = ((1, 4), (2, 8), (1, 2), (2, 4), (4, 8))
# How much sparser than 1 - n/m a weight may be and still count as n of m. Rounding normally
# distributed weights to int4, 3 sigma to 7 steps, puts 17 % of them on the zero point. For the
# half that a 2:4 weight keeps, that is 0.09 of all.
MAX_EXCESS = 0.1
# The most elements of consecutive groups that overlap in memory, which are drawn together.
_MAX_BLOCK = 1 << 23

Count: TypeAlias = Annotated[int, Meta(ge=0)]

# A tensor that exceeds one of these limits is described by its statistics.
MAX_BLOCKS = 64
MAX_RUNS = 32
MAX_ROWS = 1 << 16
MAX_COLUMNS = 1 << 20


class ValueRun(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A value, its number of elements in the first row, and the increase from row to row."""

    code: Count
    length: int
    step: int

    def length_at(self, row: int) -> int:
        return self.length + row * self.step


class RowBlock(Struct, frozen=True):
    """Consecutive rows with the same runs."""

    rows: int
    runs: tuple[ValueRun, ...]


class RunLengths(Struct, frozen=True):
    """All elements of a tensor, as blocks of rows of its last axis."""

    blocks: tuple[RowBlock, ...]

    def fits(self, rows: int, columns: int) -> bool:
        if len(self.blocks) == 1 and len(self.blocks[0].runs) == 1:
            (block,) = self.blocks
            return (block.rows, block.runs[0].length, block.runs[0].step) == (rows, columns, 0)
        if rows > MAX_ROWS or columns > MAX_COLUMNS or len(self.blocks) > MAX_BLOCKS:
            return False
        return sum(block.rows for block in self.blocks) == rows and all(
            _is_full(block, columns) for block in self.blocks
        )


def _is_full(block: RowBlock, columns: int) -> bool:
    """Whether every row fills all columns, which two rows show because lengths are linear."""
    return (
        block.rows > 0
        and 0 < len(block.runs) <= MAX_RUNS
        and all(
            sum(run.length_at(row) for run in block.runs) == columns
            and all(run.length_at(row) >= 0 for run in block.runs)
            for row in (0, block.rows - 1)
        )
    )


class GroupedZeros(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """At most `n` nonzeros in each aligned group of `m` along `axis`.

    Kernels skip the zeros. `axis` is counted from the first axis that is longer than 1, or from the
    last but one if all before that have length 1.
    """

    n: Count
    m: Count
    axis: Count

    @property
    def zeros_per_group(self) -> int:
        return self.m - self.n

    def inner_size(self, shape: tuple[int, ...]) -> int:
        """Return the distance in memory between the elements of a group."""
        return math.prod(trimmed(shape)[self.axis + 1 :])

    def fits(self, shape: tuple[int, ...], zeros: int) -> bool:
        """Whether a weight of this shape, with this number of zeros, can have these groups."""
        dims = trimmed(shape)
        return (
            (self.n, self.m) in GROUPINGS
            and self.axis < len(dims)
            and dims[self.axis] % self.m == 0
            and self.m * self.inner_size(shape) <= _MAX_BLOCK
            and zeros >= math.prod(dims) // self.m * self.zeros_per_group
        )


class DeadSlices(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Slices along `axis` that have only subnormal numbers and, in all of them, `zeros` zeros.

    Training leaves such channels: if only weight decay changes them, they shrink until rounding
    stops them.
    """

    axis: Count
    slices: Count
    zeros: Count

    def elements(self, shape: tuple[int, ...]) -> int:
        return self.slices * (math.prod(shape) // shape[self.axis])

    def fits(self, shape: tuple[int, ...], zeros: int, subnormals: int) -> bool:
        """Whether a weight of this shape, with this many zeros and subnormals, can have them."""
        return (
            self.axis < len(shape)
            and 0 < self.slices <= shape[self.axis]
            and self.zeros <= zeros
            and 0 <= self.elements(shape) - self.zeros <= subnormals
        )


class Statistics(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={
        "deviation": "std",
        "lowest": "min",
        "highest": "max",
        "largest_subnormal": "subnormal_max",
        "grouped_zeros": "n_of_m",
    },
):
    """The distribution of a weight's numbers, and the counts of those that affect time.

    The distribution leaves out zeros, subnormal numbers, infinities and NaN. It is all zero for a
    weight without other numbers. `largest_subnormal` is a magnitude. A weight has groups of zeros
    or dead slices, not both.
    """

    mean: float
    deviation: float
    lowest: int | float
    highest: int | float
    zeros: Count = 0
    subnormals: Count = 0
    largest_subnormal: float = 0.0
    grouped_zeros: GroupedZeros | None = None
    dead: DeadSlices | None = None

    def times(self, factor: float) -> Statistics:
        return replace(
            self,
            mean=self.mean * factor,
            deviation=self.deviation * factor,
            lowest=self.lowest * factor,
            highest=self.highest * factor,
        )


class Indices(Struct, frozen=True, forbid_unknown_fields=True):
    """Sorted positions, given by the first and the last one in the weight's row-major order."""

    first: Count
    last: Count


Note: TypeAlias = Statistics | RunLengths | Indices


def factor_between(note: Note, other: Note) -> float:
    """Return the factor from one weight to another according to their notes, or 1 if equal."""
    if note == other or not (isinstance(note, Statistics) and isinstance(other, Statistics)):
        return 1.0
    return note.highest / other.highest if other.highest else 1.0


def is_multiple(note: Note, other: Note) -> bool:
    """Whether one weight can be a multiple of another, or equal to it, according to the notes."""
    if not (isinstance(note, Statistics) and isinstance(other, Statistics)):
        return note == other
    multiple = other.times(factor_between(note, other))
    # Each of the numbers is rounded to five digits.
    return all(
        math.isclose(getattr(note, name), getattr(multiple, name), rel_tol=1e-3)
        for name in ("mean", "deviation", "lowest", "highest")
    )


def rows_and_columns(number: NumberType, dims: tuple[int, ...]) -> tuple[int, int]:
    return math.prod(dims[:-1]), (dims[-1] if dims else 1) * number.components


def trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    dims = list(shape)
    while len(dims) > 2 and dims[0] == 1:
        del dims[0]
    return (1,) * (2 - len(dims)) + tuple(dims)


# -- as text

_Lists: TypeAlias = tuple[Annotated[tuple[Any, ...], Meta(min_length=1)], ...]


def format_note(note: Note) -> str:
    """Format the note as JSON, without fields that are 0 or absent."""
    if isinstance(note, RunLengths):
        rows = [[block.rows, *block.runs] for block in note.blocks]
        return msgspec.json.encode({"rows": rows}).decode()
    return msgspec.json.encode(note).decode()


def parse_note(text: str, number: NumberType, dims: tuple[int, ...]) -> Note:
    """Read a note from the text of `format_note`.

    `dims` are those of the weight, and all of them must be sizes. Raises ValueError with the reason
    if the note is wrong or impossible.
    """
    if len(text) > MAX_NOTE_CHARACTERS:
        raise ValueError(f"its note has {len(text):,} characters")
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
    except RecursionError:
        raise ValueError("its note nests too deep") from None
    if "rows" in fields:
        return _parse_run_lengths(fields, number, dims)
    if "first" in fields:
        return _parse_indices(fields, dims)
    return _parse_statistics(fields, number, dims)


def _parse_statistics(
    fields: dict[str, Any], number: NumberType, dims: tuple[int, ...]
) -> Statistics:
    found = msgspec.convert(fields, Statistics)
    shape = number.shape(dims)
    size = math.prod(shape)
    if found.zeros + found.subnormals > size:
        raise ValueError(
            f"it counts {found.zeros:,} zeros and {found.subnormals:,} subnormal numbers in "
            f"{size:,} elements"
        )
    if found.subnormals and number.subnormal_steps == 1:
        raise ValueError("its type has no subnormal numbers")
    if not 0.0 <= found.largest_subnormal <= number.smallest_normal:
        raise ValueError(f"its largest subnormal number is {found.largest_subnormal}")
    _check_distribution(found, number)
    if found.grouped_zeros is not None and not found.grouped_zeros.fits(shape, found.zeros):
        raise ValueError("the groups of its zeros do not fit its shape")
    if found.dead is not None and found.grouped_zeros is not None:
        raise ValueError("it has groups of zeros and dead slices")
    if found.dead is not None and not found.dead.fits(shape, found.zeros, found.subnormals):
        raise ValueError("its dead slices do not fit its shape and its subnormal numbers")
    return found


def _check_distribution(found: Statistics, number: NumberType) -> None:
    room = 1.0001 if number.is_float else 1
    # float8e8m0 has only positive numbers.
    least = number.lowest / room if number.lowest > 0 else number.lowest * room
    if not least <= found.lowest <= found.highest <= number.highest * room:
        raise ValueError(f"its range {found.lowest} to {found.highest} is not one of {number.name}")
    # Each of the numbers is rounded.
    slack = 1e-4 * max(abs(found.lowest), abs(found.highest))
    if not found.lowest - slack <= found.mean <= found.highest + slack:
        raise ValueError(f"its mean {found.mean} is not between {found.lowest} and {found.highest}")
    if found.deviation < 0:
        raise ValueError(f"its deviation is {found.deviation}")
    # Numbers deviate by at most half the range.
    if found.deviation > (found.highest / 2 - found.lowest / 2) + slack:
        raise ValueError(f"its deviation {found.deviation} is more than its range allows")


def _parse_run_lengths(
    fields: dict[str, Any], number: NumberType, dims: tuple[int, ...]
) -> RunLengths:
    if len(fields) > 1:
        raise ValueError("its rows are not a list alone")
    blocks = tuple(
        msgspec.convert({"rows": rows, "runs": runs}, RowBlock)
        for rows, *runs in msgspec.convert(fields["rows"], _Lists)
    )
    if not RunLengths(blocks).fits(*rows_and_columns(number, dims)):
        raise ValueError("its rows do not fill its shape")
    if any(run.code >= 1 << number.bits for block in blocks for run in block.runs):
        raise ValueError("its rows hold numbers that its type does not have")
    return RunLengths(blocks)


def _parse_indices(fields: dict[str, Any], dims: tuple[int, ...]) -> Indices:
    indices = msgspec.convert(fields, Indices)
    if not dims or indices.last - indices.first + 1 < dims[0]:
        raise ValueError(
            f"its {dims[0] if dims else 0:,} indices do not fit between "
            f"{indices.first:,} and {indices.last:,}"
        )
    return indices
