"""The state that a model hands on from one inference to the next, found in its inputs and outputs."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from pytest_modelperf.graph.binding import DeclaredInput

# Outputs are declared by the same facts as inputs.
DeclaredOutput: TypeAlias = DeclaredInput


class Count(enum.Enum):
    """What an input that holds a number of tokens counts."""

    BEFORE = "the tokens before this inference"
    TOTAL = "the tokens before and of this inference"
    LAST = "the position of the last token"
    NEW = "the tokens of this inference"


class StatePair(Struct, frozen=True):
    """An input and the output that becomes this input at the next inference.

    `grows` is the axis along which the output is longer than the input by the new tokens. None:
    both have the same shape, as in a static cache or a recurrent state.
    """

    past: str
    present: str
    grows: int | None = None


class InputAxis(Struct, frozen=True):
    """An axis of an input."""

    name: str
    axis: int


class LengthInput(Struct, frozen=True):
    """An input that holds a number of tokens."""

    name: str
    counts: Count


class State(Struct, frozen=True):
    """How a model hands on its state.

    `tokens` are the inputs with an entry for each new token; `chunk` is their number where the
    model fixes it. `masks` have an entry for each token that can be seen, along the axis. `branch`
    is the input that chooses the branch with a past. `fixed` are the other inputs, which stay the
    same: among them caches that no output replaces.
    """

    pairs: tuple[StatePair, ...]
    tokens: tuple[InputAxis, ...]
    chunk: int | None = None
    masks: tuple[InputAxis, ...] = ()
    positions: tuple[str, ...] = ()
    lengths: tuple[LengthInput, ...] = ()
    branch: str | None = None
    fixed: tuple[str, ...] = ()

    @property
    def has_prefill(self) -> bool:
        """Whether one inference takes any number of tokens."""
        return self.chunk is None

    @property
    def has_steps(self) -> bool:
        """Whether an inference goes on from the one before it."""
        return bool(self.pairs)


def find_state(
    inputs: Sequence[DeclaredInput],
    outputs: Sequence[DeclaredOutput],
    named: Mapping[str, str] | None = None,
    model: str = "the model",
) -> State:
    """The state of a model; `named` are pairs of past and present that the user names.

    UsageError lists the inputs and outputs if it is not understood.
    """
    raise NotImplementedError
