"""What a twin keeps of a weight: a few statistics, measured piece by piece, and their text.

There are three kinds of notes. `Statistics` describe numbers. `Stairs` tell a constant or a mask
exactly. `Indices` stand for the sorted places of a sparse weight's values.

Numbers are rounded to five digits, the mean to a like share of the deviation, so that the order
in which a machine sums does not show. Counts and the range of integers are exact.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.graph.number_codes import NumberType
from pytest_modelperf.graph.stairs import (
    MAX_VALUES,
    Flight,
    Run,
    Stairs,
    constant,
    find_stairs,
)
from pytest_modelperf.graph.zero_pattern import (
    Blocks,
    Grouping,
    Matrix,
    ZeroPattern,
    find_pattern,
    fits,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from pytest_modelperf.graph.number_codes import Codes, Numbers

# Pruned and quantized weights may hold one number, their zero, this often: it is told apart.
COMMON_SHARE = 0.25
# The elements in which a pattern of zeros is looked for: the first of the weight.
SAMPLE_ELEMENTS = 1 << 20
_DIGITS = 5

Pieces: TypeAlias = Callable[[], "Iterator[Codes]"]


class Spread(Struct, frozen=True):
    """Mean, standard deviation and range of the numbers that are not counted apart."""

    mean: float
    deviation: float
    lowest: float
    highest: float


class Statistics(Struct, frozen=True):
    """A weight's numbers: those counted apart, and the spread of all others.

    `zeros` are the elements that equal `zero`, which is the zero point of many quantized weights.
    `spread` is None where nothing is left.
    """

    spread: Spread | None
    zeros: int = 0
    zero: int = 0
    pattern: ZeroPattern | None = None
    subnormals: int = 0
    nan: int = 0
    inf: int = 0
    negative_inf: int = 0

    @property
    def apart(self) -> int:
        """How many elements the spread does not describe."""
        return self.zeros + self.subnormals + self.nan + self.inf + self.negative_inf


class Indices(Struct, frozen=True):
    """Sorted places, the first and the last of them as in the row-major order of the weight."""

    first: int
    last: int


Note: TypeAlias = Statistics | Stairs | Indices


def describe(
    number: NumberType, dims: tuple[int, ...], pieces: Pieces, *, can_sum_up: bool = True
) -> Note | None:
    """The note on a weight whose codes `pieces` yields, from the start at each call.

    Without `can_sum_up` it is None for a weight that cannot be told exactly.
    """
    columns = (dims[-1] if dims else 1) * number.components
    rows = math.prod(dims[:-1])
    tally = _Histogram(number) if number.bits <= 8 else _Moments(number)
    few = _FewCodes()
    sample: list[Numbers] = []
    sampled = 0
    for codes in pieces():
        few.add(codes)
        if not can_sum_up and few.are_many:
            return None
        tally.add(codes)
        if sampled < SAMPLE_ELEMENTS:
            sample.append(codes)
            sampled += codes.size
    if not few.are_many:
        values = few.codes
        stairs = (
            constant(values[0], rows, columns)
            if len(values) == 1
            else find_stairs(pieces(), rows, columns)
        )
        if stairs is not None:
            return stairs
    if not can_sum_up:
        return None
    statistics = tally.finish()
    if not statistics.zeros:
        return statistics
    numbers = number.decode(np.concatenate(sample))
    shape = dims if number.components == 1 else (*dims, number.components)
    pattern = find_pattern(numbers == statistics.zero, Matrix.of(shape), statistics.zeros)
    return replace(statistics, pattern=pattern)


class _FewCodes:
    """The different codes of a tensor, as long as they are few."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.are_many = False

    def add(self, codes: Codes) -> None:
        # A look at the start spares sorting the rest of nearly every weight.
        for part in (codes[:256], codes):
            if self.are_many:
                return
            self.codes = sorted({*self.codes, *map(int, np.unique(part))})
            self.are_many = len(self.codes) > MAX_VALUES


class _Histogram(Struct):
    """How often each code of a type of 8 bits or less occurs."""

    number: NumberType
    counts: Any = field(default_factory=lambda: np.zeros(256, np.int64))

    def add(self, codes: Codes) -> None:
        self.counts += np.bincount(codes, minlength=256)

    def finish(self) -> Statistics:
        size = 1 << self.number.bits
        counts = self.counts[:size]
        numbers = self.number.decode(np.arange(size).astype(np.uint8)).astype(np.float64)
        zero = 0
        if not self.number.is_float and counts.max() >= COMMON_SHARE * counts.sum():
            zero = int(numbers[counts.argmax()])
        is_zero = numbers == zero
        is_subnormal = (np.abs(numbers) < self.number.smallest_normal) & ~is_zero
        left = np.isfinite(numbers) & ~is_zero & ~is_subnormal & (counts > 0)
        spread = None
        if left.any():
            weights, kept = counts[left], numbers[left]
            mean = float((kept * weights).sum() / weights.sum())
            variance = float(((kept - mean) ** 2 * weights).sum() / weights.sum())
            spread = _rounded(self.number, mean, math.sqrt(variance), kept.min(), kept.max())

        def count(of: npt.NDArray[np.bool_]) -> int:
            return int(counts[of].sum())

        return Statistics(
            spread,
            count(is_zero),
            zero,
            None,
            count(is_subnormal),
            count(np.isnan(numbers)),
            count(numbers == np.inf),
            count(numbers == -np.inf),
        )


class _Moments(Struct):
    """Counts, range, mean and sum of squared deviations, merged from piece to piece.

    Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm (1979).
    """

    number: NumberType
    zeros: int = 0
    subnormals: int = 0
    nan: int = 0
    inf: int = 0
    negative_inf: int = 0
    size: int = 0
    mean: float = 0.0
    squares: float = 0.0
    lowest: Any = None
    highest: Any = None

    def add(self, codes: Codes) -> None:
        left = self._left(self.number.decode(codes))
        if not left.size:
            return
        lowest, highest = left.min(), left.max()
        self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)
        self.highest = highest if self.highest is None else max(self.highest, highest)
        values = left.astype(np.float64)
        # The sum of the largest numbers would be infinite.
        down = 64 if max(abs(float(lowest)), abs(float(highest))) > 1e280 else 0
        mean = math.ldexp(float(np.ldexp(values, -down).mean()), down)
        mean = min(max(mean, float(lowest)), float(highest))
        with np.errstate(over="ignore"):
            values -= mean
            # Not np.dot: its sum depends on how many threads the machine has.
            squares = float(np.square(values, out=values).sum())
        size = self.size + values.size
        shift = mean - self.mean
        self.mean += shift * (values.size / size)
        self.squares += squares
        if self.size:
            self.squares += shift * shift * (self.size * values.size / size)
        self.size = size

    def _left(self, numbers: Numbers) -> Numbers:
        """The numbers that are not counted apart; nearly always all of them."""
        if not self.number.is_float:
            zeros = numbers.size - int(np.count_nonzero(numbers))
            self.zeros += zeros
            return numbers[numbers != 0] if zeros else numbers
        sizes = np.abs(numbers)
        # NaN fails both comparisons.
        is_left = (sizes >= self.number.smallest_normal) & (sizes < np.inf)
        if is_left.all():
            return numbers
        zeros = int(np.count_nonzero(numbers == 0))
        self.zeros += zeros
        self.subnormals += int(np.count_nonzero(sizes < self.number.smallest_normal)) - zeros
        self.nan += int(np.count_nonzero(np.isnan(numbers)))
        self.inf += int(np.count_nonzero(numbers == np.inf))
        self.negative_inf += int(np.count_nonzero(numbers == -np.inf))
        return numbers[is_left]

    def finish(self) -> Statistics:
        spread = None
        if self.size:
            deviation = math.sqrt(self.squares / self.size)
            if not math.isfinite(deviation):
                # Numbers too large to be squared: as much as their range allows.
                # Bhatia, Davis: A Better Bound on the Variance (2000).
                above = float(self.highest) / 2 - self.mean / 2
                below = self.mean / 2 - float(self.lowest) / 2
                deviation = 2 * math.sqrt(above) * math.sqrt(below)
            spread = _rounded(self.number, self.mean, deviation, self.lowest, self.highest)
        return Statistics(
            spread, self.zeros, 0, None, self.subnormals, self.nan, self.inf, self.negative_inf
        )


def _rounded(
    number: NumberType, mean: float, deviation: float, lowest: float, highest: float
) -> Spread:
    deviation = min(_round(deviation), 1.7976e308)
    if deviation:
        # Of a mean near zero only what is left of larger numbers, digits are chance.
        step = math.floor(math.log10(deviation)) - _DIGITS + 1
        mean = round(mean, -step) if -300 < step < 300 else mean
    if number.is_float:
        return Spread(_round(mean), deviation, _round(float(lowest)), _round(float(highest)))
    return Spread(_round(mean), deviation, int(lowest), int(highest))


def _round(value: float) -> float:
    """Five digits, and no more than a float64 holds."""
    rounded = float(f"{value:.{_DIGITS}g}")
    return rounded + 0.0 if math.isfinite(rounded) else math.copysign(1.7976e308, value)


# -- as text

_COUNTS: Mapping[str, str] = {
    "zeros": "zeros",
    "zero": "zero",
    "subnormals": "subnormals",
    "nan": "nan",
    "inf": "inf",
    "-inf": "negative_inf",
}
_SPREAD: Mapping[str, str] = {
    "mean": "mean",
    "std": "deviation",
    "min": "lowest",
    "max": "highest",
}
# A note of the largest stairs has some 40 KB; no other comes near.
MAX_NOTE_CHARACTERS = 1 << 17


def format_note(note: Note) -> str:
    """The note as JSON, without what is 0 or absent."""
    return json.dumps(_as_json(note), separators=(",", ":"), allow_nan=False)


def _as_json(note: Note) -> dict[str, Any]:
    if isinstance(note, Indices):
        return {"first": note.first, "last": note.last}
    if isinstance(note, Stairs):
        return {
            "rows": [
                [flight.rows, *([run.code, run.length, run.step] for run in flight.runs)]
                for flight in note.flights
            ]
        }
    found: dict[str, Any] = {}
    if note.spread is not None:
        found.update((key, getattr(note.spread, name)) for key, name in _SPREAD.items())
    found.update((key, value) for key, name in _COUNTS.items() if (value := getattr(note, name)))
    if isinstance(note.pattern, Blocks):
        found["blocks"] = [note.pattern.height, note.pattern.width, note.pattern.count]
    elif isinstance(note.pattern, Grouping):
        found["n_of_m"] = [note.pattern.n, note.pattern.m, note.pattern.axis]
    return found


def parse_note(text: str, number: NumberType, dims: tuple[int, ...]) -> Note:
    """The inverse of `format_note`; ValueError says what is wrong with the note or impossible.

    `dims` are those of the weight, and all of them are known to be sizes.
    """
    if len(text) > MAX_NOTE_CHARACTERS:
        raise ValueError(f"its note has {len(text):,} characters")
    try:
        found = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refused, parse_int=_small_int
        )
    except RecursionError:
        raise ValueError("its note nests too deep") from None
    if not isinstance(found, dict):
        raise ValueError("its note is no object")  # noqa: TRY004  # it is the text that is wrong
    if "rows" in found:
        return _parse_stairs(found, number, dims)
    if "first" in found:
        return _parse_indices(found, dims)
    return _parse_statistics(found, number, dims)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its note has a key twice")
    return found


def _refused(name: str) -> None:
    raise ValueError(f"its note holds {name}")


def _small_int(text: str) -> int:
    if len(text) > 20:
        raise ValueError("its note holds a number of more than 64 bits")
    return int(text)


def _parse_statistics(
    found: dict[str, Any], number: NumberType, dims: tuple[int, ...]
) -> Statistics:
    unknown = found.keys() - {*_COUNTS, *_SPREAD, "blocks", "n_of_m"}
    if unknown:
        raise ValueError(f"its note has the unknown key {min(unknown)!r}")
    size = math.prod(dims) * number.components
    counts: dict[str, Any] = {
        name: _integer(found, key) for key, name in _COUNTS.items() if key in found
    }
    for key, name in _COUNTS.items():
        if name != "zero" and not 0 <= counts.get(name, 0) <= size:
            raise ValueError(f"its {key} are {counts[name]:,} of {size:,} elements")
        if counts.get(name, 0) and key in ("nan", "inf", "-inf") and number.special(key) is None:
            raise ValueError(f"its type has no {key}")
    if counts.get("subnormals") and number.subnormal_steps == 1:
        raise ValueError("its type has no subnormal numbers")
    if not number.lowest <= counts.get("zero", 0) <= number.highest and counts.get("zeros"):
        raise ValueError(f"its type cannot be {counts.get('zero', 0)}")
    spread = _parse_spread(found, number)
    statistics = Statistics(spread, **counts)
    if statistics.apart > size or (statistics.apart < size and spread is None):
        raise ValueError(
            f"it counts {statistics.apart:,} of {size:,} elements apart"
            + ("" if spread else " and has no statistics of the others")
        )
    pattern = _parse_pattern(found)
    shape = dims if number.components == 1 else (*dims, number.components)
    if pattern is not None and not fits(pattern, Matrix.of(shape), statistics.zeros):
        raise ValueError("the pattern of its zeros does not fit its shape")
    return Statistics(spread, **counts, pattern=pattern)


def _parse_spread(found: dict[str, Any], number: NumberType) -> Spread | None:
    given = [key for key in _SPREAD if key in found]
    if not given:
        return None
    if len(given) < len(_SPREAD):
        raise ValueError(f"its note has no {next(k for k in _SPREAD if k not in found)!r}")
    spread = Spread(**{name: _number(found, key) for key, name in _SPREAD.items()})
    if spread.deviation < 0:
        raise ValueError(f"its deviation is {spread.deviation}")
    slack = 1e-4 * max(abs(spread.lowest), abs(spread.highest), spread.deviation)
    if not spread.lowest - slack <= spread.mean <= spread.highest + slack:
        raise ValueError(
            f"its mean {spread.mean} is not between {spread.lowest} and {spread.highest}"
        )
    # Half the range is the most that numbers can deviate.
    if spread.deviation > (spread.highest / 2 - spread.lowest / 2) + slack:
        raise ValueError(f"its deviation {spread.deviation} is more than its range allows")
    room = 1.0001 if number.is_float else 1
    if spread.lowest < number.lowest * room or spread.highest > number.highest * room:
        raise ValueError(
            f"its range {spread.lowest} to {spread.highest} is not one of {number.name}"
        )
    return spread


def _parse_pattern(found: dict[str, Any]) -> ZeroPattern | None:
    blocks, groups = found.get("blocks"), found.get("n_of_m")
    for value in (blocks, groups):
        if value is not None and not (
            isinstance(value, list) and len(value) == 3 and all(_is_count(v) for v in value)
        ):
            raise ValueError("the pattern of its zeros is not three counts")
    if blocks is not None and groups is not None:
        raise ValueError("its zeros have two patterns")
    if blocks is not None:
        return Blocks(*blocks)
    return None if groups is None else Grouping(*groups)


def _parse_stairs(found: dict[str, Any], number: NumberType, dims: tuple[int, ...]) -> Stairs:
    flights = found["rows"]
    if len(found) > 1 or not isinstance(flights, list):
        raise ValueError("its rows are not a list alone")
    parsed = tuple(_parse_flight(flight) for flight in flights)
    stairs = Stairs(parsed)
    columns = (dims[-1] if dims else 1) * number.components
    if not stairs.fits(math.prod(dims[:-1]), columns):
        raise ValueError("its rows do not fill its shape")
    if any(not 0 <= run.code < 1 << number.bits for flight in parsed for run in flight.runs):
        raise ValueError("its rows hold numbers that its type does not have")
    return stairs


def _parse_flight(flight: object) -> Flight:
    if not isinstance(flight, list) or len(flight) < 2 or not _is_count(flight[0]):
        raise ValueError("its rows are of an unknown form")
    runs = []
    for run in flight[1:]:
        if not (isinstance(run, list) and len(run) == 3 and all(type(v) is int for v in run)):
            raise ValueError("its rows are of an unknown form")
        runs.append(Run(*run))
    return Flight(flight[0], tuple(runs))


def _parse_indices(found: dict[str, Any], dims: tuple[int, ...]) -> Indices:
    if found.keys() != {"first", "last"} or not all(_is_count(v) for v in found.values()):
        raise ValueError("its indices are of an unknown form")
    indices = Indices(found["first"], found["last"])
    if not dims or indices.last - indices.first + 1 < dims[0]:
        raise ValueError(
            f"its {dims[0] if dims else 0:,} indices do not fit between "
            f"{indices.first:,} and {indices.last:,}"
        )
    return indices


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _integer(found: dict[str, Any], key: str) -> int:
    value = found[key]
    if type(value) is not int:
        raise ValueError(f"its {key!r} is {value!r:.40}, no whole number")
    return value


def _number(found: dict[str, Any], key: str) -> float:
    value = found[key]
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"its {key!r} is {value!r:.40}, no finite number")
    return value  # type: ignore[no-any-return]  # it is one of the two
