"""The plan that the program of a folder reads: the numbers to draw, and how to run the models.

A `RunPlan` is for `program`, which needs only numpy and ONNX Runtime; `write_run` puts both into a
folder. Its notes are made from those on weights and reveal less: the statistics of floats have two
digits. Scales that are a multiple of others are drawn as that multiple.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import ModelError
from pytest_modelperf.files.output import cannot_write
from pytest_modelperf.graph.weights import program
from pytest_modelperf.graph.weights.drawing import (
    describe,
    distribution_of,
    draw_all,
    measure,
    run_length_pieces,
)
from pytest_modelperf.graph.weights.notes import Indices, Note, RunLengths, Statistics
from pytest_modelperf.graph.weights.numbers import NUMPY_DTYPES, NumberType, codes_of, number_type
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    import numpy.typing as npt

# The names of the files of a folder.
MODEL_FILE, WEIGHTS_FILE = "model.onnx", "weights.bin"
PROGRAM_FILE, PLAN_FILE = "run.py", "run.json"
# The depth of a weight or an input in the JSON of a plan.
_OPENED_DEPTH = 4

# How many codes of a type that numpy lacks are drawn for the program to choose from.
_CODES = 256
# Types that the program draws from their statistics.
_DRAWN = NUMPY_DTYPES - {"bool"}
# Floats represent integers exactly up to this one.
_EXACT = 2**53
# Masks add a float of this magnitude or more to hide an element from a softmax.
_FILLER = 1e4
# At most this many integers of an input are kept, and floats of a model that sizes are computed
# from, such as the scales of the axes of an image.
FEW_NUMBERS = 16


class DrawnNumbers(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The note by which `program` draws the numbers of a weight or of an input.

    Weights of one `stream` are equal. Numbers are chosen from `codes`, laid out in `rows`, or
    drawn by their mean and deviation; `even` asks for a uniform instead of a normal distribution.
    `zeros` and `subnormals` are shares of the numbers outside of dead slices. `dead` has the length
    of a slice in memory, the number of slices, how many of them are dead, and the share of zeros in
    these. `subnormal` is the mean magnitude of the subnormal numbers.
    """

    type: str
    stream: int
    count: int
    offset: int | None = None
    codes: tuple[int, ...] | None = None
    rows: tuple[Any, ...] | None = None
    mean: float | None = None
    std: float | None = None
    low: int | float | None = None
    high: int | float | None = None
    zeros: float | None = None
    subnormals: float | None = None
    subnormal: float | None = None
    dead: tuple[int, int, int, float] | None = None
    even: bool | None = None

    @property
    def nbytes(self) -> int:
        return self.count * np.dtype(self.type).itemsize


class DrawnInput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An input of a run: the note on its numbers, or its texts."""

    name: str
    shape: tuple[int, ...]
    numbers: DrawnNumbers | None = None
    texts: tuple[str, ...] | None = None


class RunModel(Struct, frozen=True, kw_only=True):
    """One model of a folder, with the notes on its weights and on its inputs."""

    file: str
    weights_file: str
    weights: tuple[DrawnNumbers, ...]
    inputs: tuple[DrawnInput, ...]


class RunPlan(Struct, frozen=True, kw_only=True):
    """The models to run in turn, attributes of `SessionOptions`, and entries of its `config`."""

    cores: int
    providers: tuple[str, ...]
    options: Mapping[str, int | str | bool]
    config: Mapping[str, str]
    models: tuple[RunModel, ...]


def describe_input(  # noqa: PLR0913, PLR0917  # an array and its names
    name: str,
    dtype: str,
    array: npt.NDArray[Any],
    stream: int,
    texts: Mapping[str, str],
    model: str,
) -> DrawnInput:
    """Return the note from which an input of a run is drawn again.

    A few integers and single numbers stay unchanged. Texts are replaced, as in `Weightless`.
    Raises ModelError for a type that numpy lacks.
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
    """Make the note for the program from one without values."""
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
    # The program draws zeros in groups like all other zeros.
    of = distribution_of(replace(note, grouped_zeros=None), number, shape)
    is_exact = number.is_float or max(abs(of.low), abs(of.high)) <= _EXACT
    if number.name not in _DRAWN or not is_exact:
        return replace(plain, codes=_chosen(note, number, count))
    drawn = replace(
        plain,
        mean=of.mean,
        std=of.deviation,
        low=of.low,
        high=of.high,
        zeros=of.rare.zeros / of.rare.total,
        subnormals=of.rare.subnormals / of.rare.total,
        even=of.is_even,
    )
    if note.subnormals:
        drawn = replace(drawn, subnormal=(note.largest_subnormal or number.smallest_normal) / 2)
    if of.dead is not None:
        share = of.dead.rare.zeros / of.dead.rare.total
        drawn = replace(drawn, dead=(of.dead.inner, of.dead.length, of.dead.slices, share))
    return drawn


def without_values(note: Note, number: NumberType) -> Note:
    """Return the note without anything that reveals single floats. Statistics keep two digits."""
    if isinstance(note, RunLengths) and number.is_float:
        codes = {run.code for block in note.blocks for run in block.runs}
        values = set(map(float, number.decode(np.array(list(codes), number.code_dtype))))
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


def _statistics_of(note: RunLengths, number: NumberType) -> Statistics:
    found = measure(number, run_length_pieces(note, number.code_dtype))
    return _rounded(found, number) if number.is_float else found


def _chosen(note: Statistics, number: NumberType, count: int) -> tuple[int, ...]:
    share = _CODES / max(count, 1)
    few = replace(
        note,
        zeros=min(_CODES, round(note.zeros * share)),
        subnormals=min(_CODES - round(note.zeros * share), round(note.subnormals * share)),
        grouped_zeros=None,
        dead=None,
    )
    return _packed(number, draw_all(few, number, _CODES, "codes"))


def _packed(number: NumberType, codes: Sequence[int] | npt.NDArray[Any]) -> tuple[int, ...]:
    array = np.asarray(codes, number.code_dtype)
    if number.bits < 8:
        array = np.frombuffer(number.pack(array), np.uint8)
    return tuple(map(int, array))


# -- the folder


def write_run(plan: RunPlan, folder: Path) -> None:
    """Write the program that draws the weights and runs the models, with the plan that it reads."""
    write_bytes(folder / PROGRAM_FILE, Path(program.__file__).read_bytes())
    lines = msgspec.json.format(msgspec.json.encode(plan), indent=1)
    write_bytes(folder / PLAN_FILE, _one_note_a_line(lines) + b"\n")


def draw_weights(model: RunModel, folder: Path) -> None:
    """Draw the weights of a model next to it, as the program does."""
    try:
        program.draw_weights(folder, msgspec.to_builtins(model))
    except OSError as error:
        raise cannot_write(str(folder / model.weights_file), error) from error


def draw_inputs(model: RunModel) -> dict[str, npt.NDArray[Any]]:
    """Return the inputs of a model, as the program draws them."""
    return {each.name: program.draw_input(msgspec.to_builtins(each)) for each in model.inputs}


def _one_note_a_line(lines: bytes) -> bytes:
    """Return JSON with each list or note of numbers on one line, for people to read."""
    found: list[str] = []
    # str.splitlines would also split at characters that a name may have.
    for line in lines.decode().split("\n"):
        depth = len(line) - len(line.lstrip())
        if depth > _OPENED_DEPTH:
            found[-1] += line.strip() if line.strip()[0] in "]}" else f" {line.strip()}"
        elif found and depth == _OPENED_DEPTH and line.strip()[0] in "]}":
            found[-1] += line.strip()
        else:
            found.append(line)
    return "\n".join(found).encode()


def write_bytes(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise cannot_write(str(path), error) from error
