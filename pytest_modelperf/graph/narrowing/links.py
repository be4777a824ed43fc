"""What a rule can say of one node: which places of its operands and results belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct, field

from pytest_modelperf.graph.narrowing.dimensions import Dim, Dimensions
from pytest_modelperf.graph.structure import Node, Tensor
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.graph.narrowing.dimensions import Places


class ChannelAxis(Struct, frozen=True):
    """An axis of a weight whose places each make one channel, and the layer that it is of."""

    layer: str
    weight: Dim


class EqualBlocks(Struct, frozen=True):
    """An axis in equal blocks that have to stay equal: the channels of a grouped convolution."""

    dim: Dim
    count: int


class BlockColumns(Struct, frozen=True):
    """A weight whose columns are, for each block of its rows, the channels of another block."""

    channels: EqualBlocks


class Findings(Struct):
    """What the rules said of a whole graph."""

    dimensions: Dimensions
    made: list[ChannelAxis] = field(default_factory=list)
    blocks: list[EqualBlocks] = field(default_factory=list)
    block_columns: dict[str, BlockColumns] = field(default_factory=dict)


class Links:
    """The links of one node. An axis of which its rule says nothing has to stay as it is."""

    def __init__(self, node: Node, findings: Findings, users: int = 1) -> None:
        self.node = node
        self.findings = findings
        # How many nodes take the weight at input 1.
        self.weight_users = users
        self.why = "needs all of it"
        self._said: set[Dim] = set()

    @property
    def dimensions(self) -> Dimensions:
        return self.findings.dimensions

    def same(self, one: Tensor | None, axis: int, other: Tensor | None, other_axis: int) -> None:
        """Two axes, place by place. An operand that is left out has none."""
        if one is None or other is None:
            return
        first, second = _dim(one, axis), _dim(other, other_axis)
        if self.dimensions.size(first) == self.dimensions.size(second):
            self._said |= {first, second}
            self.dimensions.join(first, second)

    def match(self, one: Dim, ones: Places, other: Dim, others: Places) -> None:
        """Places of an axis, told by their index, and those of another."""
        first, second = self.dimensions.places(one), self.dimensions.places(other)
        self._said |= {one, other}
        self.dimensions.join_places(one, first[ones], other, second[others])

    def makes(self, weight: Tensor, axis: int) -> None:
        """Each place along this axis of a weight makes a channel."""
        self.findings.made.append(ChannelAxis(self.node.id, _dim(weight, axis)))

    def blocks(self, tensor: Tensor, axis: int, count: int) -> EqualBlocks:
        """An axis that consists of this many blocks, each of which has to lose as much."""
        blocks = EqualBlocks(_dim(tensor, axis), count)
        self.findings.blocks.append(blocks)
        return blocks

    def columns(self, weight: Tensor, channels: EqualBlocks) -> None:
        """The second axis of a weight follows the blocks of the channels that it meets."""
        self.say(weight, 1)
        self.findings.block_columns[weight.name] = BlockColumns(channels)

    def say(self, tensor: Tensor, axis: int) -> Dim:
        """Of this axis all is said."""
        dim = _dim(tensor, axis)
        self._said.add(dim)
        return dim

    def because(self, why: str) -> None:
        """In words, what the node does with the axes of which nothing is said."""
        self.why = why

    def pin_rest(self) -> None:
        """Pin every axis of which nothing was said."""
        reason = f"{printable(self.node.qualified_op)} {printable(self.node.id)!r} {self.why}"
        for tensor in (*self.node.inputs, *self.node.outputs):
            for axis in range(len(self.dimensions.shapes.get(tensor.name, ())) if tensor else 0):
                if tensor and (dim := Dim(tensor.name, axis)) not in self._said:
                    self.dimensions.pin(dim, reason)


Rule: TypeAlias = Callable[[Node, Links], None]


def _dim(tensor: Tensor, axis: int) -> Dim:
    return Dim(tensor.name, axis % tensor.rank)


def integers(node: Node, index: int, attribute: str = "") -> tuple[int, ...] | None:
    """Constant integers that are an input, or an attribute in older opsets; None where unknown."""
    if attribute and attribute in node.attributes:
        return node.attr_ints(attribute)
    tensor = node.optional_input(index)
    if tensor is None or tensor.value is None:
        return None
    return tuple(int(value) for value in np.asarray(tensor.value).reshape(-1))


def normal_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(axis % rank for axis in axes)
