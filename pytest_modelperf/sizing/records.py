"""Sizes that were found for a model, with the reason for each."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pytest_modelperf.graph.binding import BatchDim


class FoundSize(Struct, frozen=True):
    """A size of one dimension, with its name in `dims`.

    `places` are its axes, as in `x[2]`. The `reason` is a clause without a full stop: which
    operator needs the size, or that it is a usual one. With `is_guess`, the model shows no reason
    for this size rather than for another one, and the work that is measured depends on it.
    """

    name: str
    size: int
    places: tuple[str, ...]
    reason: str
    is_guess: bool = False


class FoundInput(Struct, frozen=True):
    """A value of one input, as text for `inputs`: `sr:int64::16000`."""

    name: str
    text: str
    reason: str


class FoundSizes(Struct, frozen=True):
    """The sizes and values that a model runs with, in addition to those that the user gave.

    `batch` is the batch dimension of its inputs, if they have one. `has_run` means that one
    inference ran with the sizes. Otherwise they fit by shapes alone, and `not_run` says why there
    was no inference. If no sizes were found, `error` says what was tried and what to give.
    """

    model: str
    dims: tuple[FoundSize, ...] = ()
    inputs: tuple[FoundInput, ...] = ()
    batch: BatchDim | None = None
    has_run: bool = False
    not_run: str | None = None
    error: str | None = None
    tried: int = 0

    @property
    def sizes(self) -> Mapping[str, int]:
        """The setting `dims`."""
        return {each.name: each.size for each in self.dims}

    @property
    def guessed(self) -> tuple[str, ...]:
        """The dimensions whose size is a guess."""
        return tuple(each.name for each in self.dims if each.is_guess)

    @property
    def input_texts(self) -> tuple[str, ...]:
        """The setting `inputs`."""
        return tuple(each.text for each in self.inputs)

    @property
    def is_found(self) -> bool:
        return self.error is None
