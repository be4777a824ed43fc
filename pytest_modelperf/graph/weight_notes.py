"""The note that a twin keeps of a weight: how it is measured, written as text, and read again.

There are three kinds of notes. `Statistics` describe a distribution. `RunLengths` store a constant
or a mask exactly. `Indices` stand for the sorted positions of a sparse weight's values.

Numbers are rounded to five digits, so that the order in which a machine sums does not show. Counts
and the range of integers are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace

from pytest_modelperf.graph.number_codes import NumberType
from pytest_modelperf.graph.run_lengths import (
    Count,
    RowBlock,
    RunLengths,
    constant,
    find_run_lengths,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from pytest_modelperf.graph.number_codes import Codes, Numbers

# Only the first elements of a weight are searched for groups of zeros.
SAMPLE_ELEMENTS = 1 << 20
# A tensor of more different values is described by its statistics.
_MAX_VALUES = 4
# A note of the longest run lengths has some 40 KB; no other comes near.
MAX_NOTE_CHARACTERS = 1 << 17
# Larger numbers, which only float64 has, count as this one: their squares have a finite sum.
_LARGEST = 1e150

# At most n nonzeros in each group of m, from the sparsest to the loosest.
_GROUPINGS = ((1, 4), (2, 8), (1, 2), (2, 4), (4, 8))
# How much sparser than 1 - n/m a weight may be and still be called n of m.
_MAX_EXCESS = 0.1
# The most elements that consecutive groups may share: they are drawn together.
_MAX_BLOCK = 1 << 23

Pieces: TypeAlias = Callable[[], "Iterator[Codes]"]


class GroupedZeros(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """At most `n` nonzeros in each aligned group of `m` along `axis`: kernels skip the others.

    `axis` is counted from the first axis that is longer than 1, or from the last but one if all
    before it have length 1.
    """

    n: Count
    m: Count
    axis: Count

    @property
    def zeros_per_group(self) -> int:
        return self.m - self.n

    def inner_size(self, shape: tuple[int, ...]) -> int:
        """How far apart in memory the elements of a group are."""
        return math.prod(_trimmed(shape)[self.axis + 1 :])

    def fits(self, shape: tuple[int, ...], zeros: int) -> bool:
        """Whether a weight of this shape, with so many zeros, can have these groups."""
        dims = _trimmed(shape)
        return (
            (self.n, self.m) in _GROUPINGS
            and self.axis < len(dims)
            and dims[self.axis] % self.m == 0
            and self.m * self.inner_size(shape) <= _MAX_BLOCK
            and zeros >= math.prod(dims) // self.m * self.zeros_per_group
        )


class DeadSlices(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """So many slices along `axis` hold nothing but subnormal numbers and `zeros` zeros.

    Training leaves such channels: where nothing but the decay of weights moves them, they shrink
    until rounding stops them.
    """

    axis: Count
    slices: Count
    zeros: Count

    def elements(self, shape: tuple[int, ...]) -> int:
        """How many elements of a weight of this shape the slices have."""
        return self.slices * (math.prod(shape) // shape[self.axis])

    def fits(self, shape: tuple[int, ...], zeros: int, subnormals: int) -> bool:
        """Whether a weight of this shape, with as many zeros and subnormals, can have them."""
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
    """The distribution of a weight's numbers, and how many it holds of those that cost time.

    The distribution leaves out zeros, subnormal numbers, infinities and NaN. It is all zero for a
    weight that has nothing else. `largest_subnormal` is a magnitude. A weight has groups of zeros
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
        """The statistics of the weight times a positive factor."""
        return replace(
            self,
            mean=self.mean * factor,
            deviation=self.deviation * factor,
            lowest=self.lowest * factor,
            highest=self.highest * factor,
        )


class Indices(Struct, frozen=True, forbid_unknown_fields=True):
    """Sorted positions, the first and the last of them in the row-major order of the weight."""

    first: Count
    last: Count


Note: TypeAlias = Statistics | RunLengths | Indices


def describe(number: NumberType, dims: tuple[int, ...], pieces: Pieces) -> Note:
    """The note on a weight whose codes `pieces` yields, from the start at each call."""
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
    # A number of 8 bits is often subnormal, and is made a wider one before it costs time.
    if not found.subnormals or number.bits <= 8 or found.grouped_zeros is not None:
        return found
    return replace(found, dead=_find_dead_slices(number, shape, pieces))


def factor_between(note: Note, other: Note) -> float:
    """By what one weight is a multiple of another, as their notes say; 1 where both are equal."""
    if note == other or not (isinstance(note, Statistics) and isinstance(other, Statistics)):
        return 1.0
    return note.highest / other.highest if other.highest else 1.0


def is_multiple(note: Note, other: Note) -> bool:
    """Whether one weight can be a multiple of another, or equal to it, as their notes say."""
    if not (isinstance(note, Statistics) and isinstance(other, Statistics)):
        return note == other
    multiple = other.times(factor_between(note, other))
    # Each of the numbers is rounded to five digits.
    return all(
        math.isclose(getattr(note, name), getattr(multiple, name), rel_tol=1e-3)
        for name in ("mean", "deviation", "lowest", "highest")
    )


def _find_run_lengths(
    number: NumberType, dims: tuple[int, ...], pieces: Pieces
) -> RunLengths | None:
    values: set[int] = set()
    # The start of a weight nearly always has many values, which saves sorting the rest.
    for part in (part for codes in pieces() for part in (codes[:256], codes)):
        values.update(map(int, np.unique(part)))
        if len(values) > _MAX_VALUES:
            return None
    rows, columns = _rows_and_columns(number, dims)
    if len(values) == 1:
        return constant(values.pop(), rows, columns)
    return find_run_lengths(pieces(), rows, columns)


def _rows_and_columns(number: NumberType, dims: tuple[int, ...]) -> tuple[int, int]:
    return math.prod(dims[:-1]), (dims[-1] if dims else 1) * number.components


def _find_groups(
    is_zero: npt.NDArray[np.bool_], shape: tuple[int, ...], zeros: int
) -> GroupedZeros | None:
    """The groups in the first elements of a weight that has `zeros` zeros in all."""
    last = len(_trimmed(shape)) - 1
    for n, m in _GROUPINGS:
        if not 0 <= is_zero.mean() - (m - n) / m <= _MAX_EXCESS:
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
    """The dead slices along the axis that has the most subnormal numbers in them."""
    living = [_Living.of(shape, axis) for axis in range(len(shape))]
    start = 0
    for codes in pieces():
        is_alive = ~_is_small(codes, number)
        for each in living:
            each.see(is_alive, start)
        start += codes.size
    candidates = [each for each in living if not each.seen.all()]
    zeros = [0] * len(candidates)
    start = 0
    for codes in pieces() if candidates else ():
        places = start + np.flatnonzero(_magnitudes(codes, number) == 0)
        for index, each in enumerate(candidates):
            zeros[index] += int(np.count_nonzero(~each.seen[each.slices_of(places)]))
        start += codes.size
    found = [
        DeadSlices(each.axis, int(np.count_nonzero(~each.seen)), count)
        for each, count in zip(candidates, zeros, strict=True)
    ]
    best = max(found, key=lambda each: each.elements(shape) - each.zeros, default=None)
    return best if best is not None and best.elements(shape) > best.zeros else None


class _Living(Struct, frozen=True, eq=False):
    """The slices along an axis in which a living number was seen."""

    axis: int
    inner: int
    seen: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, shape: tuple[int, ...], axis: int) -> _Living:
        return cls(axis, math.prod(shape[axis + 1 :]), np.zeros(shape[axis], np.bool_))

    def see(self, is_alive: npt.NDArray[np.bool_], start: int) -> None:
        """Look at the numbers of a piece; most weights have been seen whole after the first one."""
        if self.seen.all():
            return
        first, last = start // self.inner, (start + is_alive.size - 1) // self.inner
        runs = np.arange(first, last + 1)
        found = np.logical_or.reduceat(is_alive, np.maximum(runs * self.inner - start, 0))
        self.seen[runs[found] % self.seen.size] = True

    def slices_of(self, places: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """The slices that the elements at these places are in."""
        return places // self.inner % self.seen.size


def _magnitudes(codes: Codes, number: NumberType) -> Codes:
    """The codes without their sign: a larger absolute value has a larger code."""
    return codes & codes.dtype.type((1 << (number.bits - 1)) - 1)


def _is_small(codes: Codes, number: NumberType) -> npt.NDArray[np.bool_]:
    """Which numbers are subnormal or zero."""
    is_small: npt.NDArray[np.bool_] = _magnitudes(codes, number) < number.subnormal_steps
    return is_small


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    dims = list(shape)
    while len(dims) > 2 and dims[0] == 1:
        del dims[0]
    return (1,) * (2 - len(dims)) + tuple(dims)


class _Moments(Struct):
    """Counts, range, mean and sum of squared deviations, merged from piece to piece.

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
        # Not np.dot: its sum depends on how many threads the machine has.
        squares = float(np.square(values, out=values).sum())
        size = self.size + values.size
        shift = mean - self.mean
        self.mean += shift * (values.size / size)
        self.squares += squares + shift * shift * (self.size * values.size / size)
        self.size = size

    def _without_counted(self, numbers: Numbers) -> Numbers:
        """The finite numbers without zeros and subnormal ones, which are counted."""
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
        # The digits of a mean that is this near to zero are chance.
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
    """The value with five digits."""
    return float(f"{value:.5g}")


# -- as text

_Lists: TypeAlias = tuple[Annotated[tuple[Any, ...], Meta(min_length=1)], ...]


def format_note(note: Note) -> str:
    """The note as JSON, without what is 0 or absent."""
    if isinstance(note, RunLengths):
        rows = [[block.rows, *block.runs] for block in note.blocks]
        return msgspec.json.encode({"rows": rows}).decode()
    return msgspec.json.encode(note).decode()


def parse_note(text: str, number: NumberType, dims: tuple[int, ...]) -> Note:
    """The inverse of `format_note`; ValueError says what is wrong with the note or impossible.

    `dims` are those of the weight, and all of them are known to be sizes.
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
    _check_dead_slices(found, shape)
    return found


def _check_dead_slices(found: Statistics, shape: tuple[int, ...]) -> None:
    if found.dead is None:
        return
    if found.grouped_zeros is not None:
        raise ValueError("it has groups of zeros and dead slices")
    if not found.dead.fits(shape, found.zeros, found.subnormals):
        raise ValueError("its dead slices do not fit its shape and its subnormal numbers")


def _check_distribution(found: Statistics, number: NumberType) -> None:
    room = 1.0001 if number.is_float else 1
    # A float8e8m0 has positive numbers only.
    least = number.lowest / room if number.lowest > 0 else number.lowest * room
    if not least <= found.lowest <= found.highest <= number.highest * room:
        raise ValueError(f"its range {found.lowest} to {found.highest} is not one of {number.name}")
    # Each of the numbers is rounded.
    slack = 1e-4 * max(abs(found.lowest), abs(found.highest))
    if not found.lowest - slack <= found.mean <= found.highest + slack:
        raise ValueError(f"its mean {found.mean} is not between {found.lowest} and {found.highest}")
    if found.deviation < 0:
        raise ValueError(f"its deviation is {found.deviation}")
    # Half the range is the most that numbers can deviate.
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
    found = RunLengths(blocks)
    if not found.fits(*_rows_and_columns(number, dims)):
        raise ValueError("its rows do not fill its shape")
    if any(run.code >= 1 << number.bits for block in blocks for run in block.runs):
        raise ValueError("its rows hold numbers that its type does not have")
    return found


def _parse_indices(fields: dict[str, Any], dims: tuple[int, ...]) -> Indices:
    indices = msgspec.convert(fields, Indices)
    if not dims or indices.last - indices.first + 1 < dims[0]:
        raise ValueError(
            f"its {dims[0] if dims else 0:,} indices do not fit between "
            f"{indices.first:,} and {indices.last:,}"
        )
    return indices
