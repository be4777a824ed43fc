"""The inputs of an inference of a model with state: sizes and exact values, by length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from pytest_modelperf.graph.binding import DeclaredInput, InputSpec
from pytest_modelperf.graph.state import State


class StateInputs(Struct, frozen=True):
    """What one inference takes: sizes of dimensions, and inputs whose values are exact.

    `dims` has the dimensions that follow from the number of tokens, by the names that a binding
    takes. `values` are masks, positions, lengths and the branch. Tokens and the past are made from
    the seed as other inputs are.
    """

    dims: Mapping[str, int]
    values: tuple[InputSpec, ...]


def state_inputs(
    state: State,
    inputs: Sequence[DeclaredInput],
    *,
    batch_size: int,
    before: int,
    new: int,
    capacity: int,
    dims: Mapping[str, int] | None = None,
    model: str = "the model",
) -> StateInputs:
    """The inputs of an inference of `new` tokens that goes on from `before` tokens.

    The prefill is `before=0, new=prompt`, step k is `before=prompt + k, new=1`. `capacity` is the
    length of a static cache whose size the model leaves open. `dims` are sizes of the user.
    """
    raise NotImplementedError
