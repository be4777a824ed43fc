"""The inputs that a worker runs a model on, as they are sent over the channel.

Its source is sent to a worker with the agent's, so it needs only the standard library and numpy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# The width of the widest vector registers, and the alignment of the memory of ONNX Runtime.
_ALIGNMENT = 64


class FeedArrays(NamedTuple):
    """The inputs of a model by name, their types, which numpy may lack, and steps, if any."""

    arrays: Mapping[str, Any]
    dtypes: Mapping[str, str]
    steps: StepArrays | None = None


class StepArrays:
    """The steps of a generation; see `StepPlan` of the engines.

    `changing` has, for each input that changes with the steps, one entry per step: the start of its
    values in a flat array, and its shape. `state` has inputs, the outputs that they take over, the
    axis along which they grow, and the number of entries they grow by at each step. They do not
    grow if the axis is None.
    """

    def __init__(
        self,
        arrays: Mapping[str, Any],
        count: int,
        state: Sequence[tuple[str, str, int | None, int]],
        changing: Mapping[str, Sequence[tuple[int, Sequence[int]]]],
    ) -> None:
        self.count = count
        self.state = [(past, present) for past, present, _, _ in state]
        self._state = state
        self._changing = changing
        self._arrays = arrays
        handed_on = {past for past, _ in self.state}
        self.fixed = {n: a for n, a in arrays.items() if n not in changing and n not in handed_on}
        self._own = [name for name in changing if name not in handed_on]

    def inputs_at(self, step: int) -> dict[str, Any]:
        """Return the inputs of a step as views of the flat arrays."""
        return {name: self._view(name, step) for name in self._own}

    def _view(self, name: str, step: int) -> Any:  # noqa: ANN401  # an array
        start, shape = self._changing[name][step]
        size = math.prod(shape)
        return self._arrays[name][start : start + size].reshape(shape)

    def state_at(self, step: int) -> dict[str, Any]:
        """Return the state before a step: the first one, repeated up to its length at that step."""
        import numpy as np

        found = {}
        for past, _, axis, growth in self._state:
            if past in self._changing:
                found[past] = self._view(past, step)
                continue
            array = self._arrays[past]
            if axis is not None and step:
                length = array.shape[axis] + step * growth
                shape = list(array.shape)
                shape[axis] = length
                array = align(
                    np.take(array, np.arange(length) % array.shape[axis], axis)
                    if array.size
                    else np.zeros(shape, array.dtype)
                )
            found[past] = array
        return found


def align(array: Any) -> Any:  # noqa: ANN401  # an array, as everywhere here
    """Return a copy that is aligned as an engine aligns its own tensors; texts are not copied.

    Vector instructions are slower on memory with another alignment. Where numpy places an array
    depends on what was freed before, so it would differ between processes.
    """
    import numpy as np

    if array.dtype.hasobject:
        return array
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % _ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def read_feed(inputs: Mapping[str, Any], steps: Mapping[str, Any] | None) -> FeedArrays:
    """Return the inputs that the other side sent.

    Each has a type, the type that it is stored as, a shape, and its bits or texts. `steps` are the
    arguments of `StepArrays`, for a generation.
    """
    import numpy as np

    arrays: dict[str, Any] = {}
    dtypes: dict[str, str] = {}
    for name, (dtype, stored, shape, data) in inputs.items():
        values = (
            np.array(data, dtype=object) if dtype == "string" else np.frombuffer(data, dtype=stored)
        )
        arrays[name] = align(values.reshape(shape))
        dtypes[name] = dtype
    made = None if steps is None else StepArrays(arrays, **steps)
    return FeedArrays(arrays, dtypes, made)
