"""Shape rules: functions from a node's known inputs to the types of its outputs.

Rules never fail, because the readers here return None for an input that is absent or unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from pytest_modelperf.graph.structure import Node, Shape


class OutputType(Struct, frozen=True):
    """The known type and shape of one output. None means unknown."""

    dtype: str | None
    shape: Shape | None


ShapeRule: TypeAlias = Callable[[Node], "tuple[OutputType | None, ...]"]
Outputs: TypeAlias = tuple[OutputType, ...]


def has_input(node: Node, index: int | None) -> bool:
    """Whether a node has an input at `index`, which is None if its operator takes none."""
    return index is not None and node.optional_input(index) is not None


def shape_of(node: Node, index: int) -> Shape | None:
    tensor = node.optional_input(index)
    return None if tensor is None else tensor.shape


def dtype_of(node: Node, index: int) -> str | None:
    tensor = node.optional_input(index)
    return None if tensor is None else tensor.dtype


def numbers_of(node: Node, index: int) -> tuple[float, ...] | None:
    """Return the flattened value of a numeric input, if it is a known constant."""
    return _values_of(node, index, kinds="iufb")


def ints_of(node: Node, index: int) -> tuple[int, ...] | None:
    """Return the flattened value of an integer or boolean input, if it is a known constant."""
    values = _values_of(node, index, kinds="iub")
    return None if values is None else tuple(map(int, values))


def int_of(node: Node, index: int) -> int | None:
    """Return the value of a one-element integer input, if it is a known constant."""
    values = ints_of(node, index)
    return values[0] if values is not None and len(values) == 1 else None


def stated_size(node: Node, name: str) -> int | None:
    """Return a size that is an attribute. Zero means that it is not set."""
    return node.attr_int(name, 0) or None


def like(*indexes: int, dtype: str | None = None) -> Callable[[Node], Outputs]:
    """Return a rule for outputs with the shapes of these inputs, and their types or `dtype`."""

    def rule(node: Node) -> Outputs:
        return tuple(OutputType(dtype or dtype_of(node, i), shape_of(node, i)) for i in indexes)

    return rule


def outputs(dtype: str | None, *shapes: Shape | None) -> Outputs:
    return tuple(OutputType(dtype, shape) for shape in shapes)


def _values_of(node: Node, index: int, kinds: str) -> tuple[float, ...] | None:
    tensor = node.optional_input(index)
    if tensor is None or tensor.value is None or tensor.value.dtype.kind not in kinds:
        return None
    return tuple(tensor.value.reshape(-1).tolist())
