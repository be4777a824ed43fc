"""The notes by which a program that has only numpy draws the numbers of weights and inputs.

They are made from the notes on weights and tell less: the statistics of floats have two digits.
Scales that are a multiple of others are drawn as that multiple.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.drawing import NORMAL_RANGE, Drawer
from pytest_modelperf.graph.number_codes import NUMPY_DTYPES, NumberType, codes_of, number_type
from pytest_modelperf.graph.run_lengths import RunLengths
from pytest_modelperf.graph.run_plan import DrawnInput, DrawnNumbers
from pytest_modelperf.graph.weight_notes import DeadSlices, Indices, Note, Statistics, describe
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    import numpy.typing as npt

# So many codes are drawn of a type that numpy lacks, for the program to choose from.
_CODES = 256
# Types that the program draws from their statistics.
_DRAWN = NUMPY_DTYPES - {"bool"}
# Floats hold integers exactly up to here.
_EXACT = 2**53
# A float of this size or more hides an element from a softmax.
_FILLER = 1e4
# So many integers of an input are kept, and so many floats of a model that sizes are computed from:
# the scales of the axes of an image.
FEW_NUMBERS = 16


def describe_input(  # noqa: PLR0913, PLR0917  # an array, and the names of what it is
    name: str,
    dtype: str,
    array: npt.NDArray[Any],
    stream: int,
    texts: Mapping[str, str],
    model: str,
) -> DrawnInput:
    """The note by which an input of a run is drawn again; ModelError for a type that numpy lacks.

    A few integers and single numbers stay as they are. Texts are replaced, as in `Weightless`.
    """
    shape = tuple(map(int, array.shape))
    if dtype == "string":
        words = tuple(texts.get(text, "x" * len(text)) for text in map(str, array.reshape(-1)))
        return DrawnInput(name=name, shape=shape, texts=words)
    number = number_type(dtype)
    if number is None or dtype not in NUMPY_DTYPES:
        raise ModelError(
            f"the input {printable(name)!r} of {model} is {printable(dtype)}, which numpy lacks, "
            "and the program of a shared model has only numpy. Share a model with other inputs."
        )
    codes = codes_of(array, number)
    numbers = DrawnNumbers(type=dtype, stream=stream, count=array.size)
    is_short = array.dtype.kind in "iub" and array.size <= FEW_NUMBERS
    if not array.size:
        numbers = replace(numbers, codes=(0,))
    elif is_short or array.size == 1:
        numbers = replace(numbers, rows=((1, *((int(code), 1, 0) for code in codes)),))
    else:
        note = without_values(describe(number, shape, lambda: iter([codes])), number)
        numbers = note_for_program(note, number, shape, stream)
    return DrawnInput(name=name, shape=shape, numbers=numbers)


def note_for_program(
    note: Note, number: NumberType, shape: tuple[int, ...], stream: int
) -> DrawnNumbers:
    """The note for the program, made of one without values."""
    count = math.prod(shape)
    packed = count if number.bits >= 8 else -(-count * number.bits // 8)
    kind = number.name if number.name in NUMPY_DTYPES else number.code_dtype.name
    plain = DrawnNumbers(type=kind, stream=stream, count=packed)
    if isinstance(note, Indices):
        raise TypeError("indices of sparse weights are drawn inside of the model")
    if isinstance(note, RunLengths):
        if len(note.blocks) == 1 and len(note.blocks[0].runs) == 1:
            return replace(plain, codes=_packed(number, [note.blocks[0].runs[0].code] * 8)[:1])
        if number.bits >= 8:
            rows = tuple(
                (block.rows, *((run.code, run.length, run.step) for run in block.runs))
                for block in note.blocks
            )
            return replace(plain, rows=rows)
        note = _statistics_of(note, number)
    low, high = note.lowest, note.highest
    if number.name not in _DRAWN or (max(abs(low), abs(high)) > _EXACT and not number.is_float):
        return replace(plain, codes=_chosen(note, number, count))
    room = min(note.mean - low, high - note.mean)
    is_even = room < NORMAL_RANGE * note.deviation
    drawn = replace(
        plain,
        mean=note.mean,
        std=note.deviation,
        low=low,
        high=high,
        zeros=note.zeros / count,
        subnormals=note.subnormals / count,
        even=is_even,
    )
    if note.subnormals:
        drawn = replace(drawn, subnormal=(note.largest_subnormal or number.smallest_normal) / 2)
    return drawn if note.dead is None else _with_dead_slices(drawn, note, note.dead, shape)


def _with_dead_slices(
    drawn: DrawnNumbers, note: Statistics, dead: DeadSlices, shape: tuple[int, ...]
) -> DrawnNumbers:
    inner = math.prod(shape[dead.axis + 1 :])
    inside = dead.elements(shape)
    outside = max(math.prod(shape) - inside, 1)
    return replace(
        drawn,
        zeros=(note.zeros - dead.zeros) / outside,
        subnormals=(note.subnormals - inside + dead.zeros) / outside,
        dead=(inner, shape[dead.axis], dead.slices, dead.zeros / inside),
    )


def without_values(note: Note, number: NumberType) -> Note:
    """The note without what would tell single values of floats: two digits of their statistics."""
    if isinstance(note, RunLengths) and number.is_float:
        values = _values(note, number)
        is_mask = all(x in {-1, 0, 1} or not abs(x) < _FILLER for x in values)
        return note if is_mask or len(values) == 1 else _statistics_of(note, number)
    if isinstance(note, Statistics) and number.is_float:
        return _rounded(note, number)
    return note


def _rounded(note: Statistics, number: NumberType) -> Statistics:
    low, high = (
        min(max(float(f"{end:.2g}"), number.lowest), number.highest)
        for end in (note.lowest, note.highest)
    )
    mean, deviation = float(f"{note.mean:.2g}"), float(f"{note.deviation:.2g}")
    return replace(
        note,
        mean=min(max(mean, low), high),
        deviation=deviation,
        lowest=low,
        highest=high,
        largest_subnormal=min(float(f"{note.largest_subnormal:.2g}"), number.smallest_normal),
    )


def _values(note: RunLengths, number: NumberType) -> Mapping[float, int]:
    """The values of run lengths, and how often each of them comes."""
    found: dict[float, int] = defaultdict(int)
    for block in note.blocks:
        for run in block.runs:
            value = float(number.decode(np.array([run.code], number.code_dtype))[0])
            found[value] += sum(run.length_at(row) for row in (0, block.rows - 1)) * block.rows // 2
    return found


def _statistics_of(note: RunLengths, number: NumberType) -> Statistics:
    values = _values(note, number)
    normal = {
        x: n for x, n in values.items() if np.isfinite(x) and abs(x) >= number.smallest_normal
    }
    zeros = values.get(0.0, 0)
    subnormals = sum(n for x, n in values.items() if 0 < abs(x) < number.smallest_normal)
    if not normal:
        return Statistics(0.0, 0.0, 0, 0, zeros, subnormals)
    sizes = np.array(list(normal.values()), float) if any(normal.values()) else None
    numbers = np.array(list(normal))
    mean = float(np.average(numbers, weights=sizes))
    deviation = float(np.sqrt(np.average((numbers - mean) ** 2, weights=sizes)))
    found = Statistics(mean, deviation, min(normal), max(normal), zeros, subnormals)
    return _rounded(found, number) if number.is_float else found


def _chosen(note: Statistics, number: NumberType, count: int) -> tuple[int, ...]:
    """Codes of a type that numpy lacks, drawn here."""
    share = _CODES / max(count, 1)
    few = replace(
        note,
        zeros=min(_CODES, round(note.zeros * share)),
        subnormals=min(_CODES - round(note.zeros * share), round(note.subnormals * share)),
        grouped_zeros=None,
        dead=None,
    )
    alone = NumberType(number.name)
    drawn = np.concatenate(list(Drawer(0).draw_codes(few, alone, (_CODES,), "codes")))
    return _packed(number, drawn)


def _packed(number: NumberType, codes: Sequence[int] | npt.NDArray[Any]) -> tuple[int, ...]:
    """Codes as they lie in a file: several in a byte if they have fewer bits."""
    array = np.asarray(codes, number.code_dtype)
    if number.bits < 8:
        array = np.frombuffer(number.pack(array), np.uint8)
    return tuple(map(int, array))
