"""What the program of a folder reads: which numbers it draws, and how it runs the models.

A `RunPlan` says this to `weightless_program`, which needs numpy and ONNX Runtime only; `write_run`
puts both into a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct

from pytest_modelperf.files.output import cannot_write
from pytest_modelperf.graph import weightless_program

if TYPE_CHECKING:
    import numpy.typing as npt

# The names of the files of a folder.
MODEL_FILE, WEIGHTS_FILE = "model.onnx", "weights.bin"
PROGRAM_FILE, PLAN_FILE = "run.py", "run.json"
# The depth of a weight or an input in the JSON of a plan.
_OPENED_DEPTH = 4


class DrawnNumbers(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The note by which `weightless_program` draws the numbers of a weight or of an input.

    Weights of one `stream` are equal. Numbers are chosen among `codes`, or laid out in `rows`, or
    drawn by their mean and deviation; `even` asks for all numbers alike in place of a bell curve.
    `zeros` and `subnormals` are shares of the numbers outside of dead slices. `dead` has the length
    of a slice in memory, the number of slices, how many of them are dead, and the share of zeros in
    these; `subnormal` is the number that stands for all subnormal ones.
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
        """The bytes of all numbers in a file."""
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
    """Everything that the program of a folder reads: the models that run in turn, and how.

    `options` are attributes of `SessionOptions`, and `config` entries of its configuration.
    """

    cores: int
    providers: tuple[str, ...]
    options: Mapping[str, int | str | bool]
    config: Mapping[str, str]
    models: tuple[RunModel, ...]


def write_run(plan: RunPlan, folder: Path) -> None:
    """Write the program that draws the weights and runs the models, and what it reads."""
    program = Path(weightless_program.__file__).read_bytes()
    write_bytes(folder / PROGRAM_FILE, program)
    lines = msgspec.json.format(msgspec.json.encode(plan), indent=1)
    write_bytes(folder / PLAN_FILE, _one_note_a_line(lines) + b"\n")


def draw_weights(model: RunModel, folder: Path) -> None:
    """Draw the weights of a model beside it, as the program does."""
    try:
        weightless_program.draw_weights(folder, msgspec.to_builtins(model))
    except OSError as error:
        raise cannot_write(str(folder / model.weights_file), error) from error


def draw_inputs(model: RunModel) -> dict[str, npt.NDArray[Any]]:
    """The inputs of a model, as the program draws them."""
    return {
        each.name: weightless_program.draw_input(msgspec.to_builtins(each)) for each in model.inputs
    }


def _one_note_a_line(lines: bytes) -> bytes:
    """JSON with the lists and notes of numbers each on one line, for people to read."""
    found: list[str] = []
    # A name may hold a character that str.splitlines takes for the end of a line.
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
