"""The links of one node: which places of its operands and results belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from pytest_modelperf.graph.shape_rule import ints_of
from pytest_modelperf.graph.structure import Node, Tensor
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.whatif.narrowing.dimensions import Dim, Dimensions

if TYPE_CHECKING:
    from pytest_modelperf.whatif.narrowing.dimensions import Places


class ChannelAxis(Struct, frozen=True):
    """An axis of a weight, each place of which makes one channel, and the layer of the weight."""

    layer: str
    weight: Dim


class EqualBlocks(Struct, frozen=True):
    """An axis in equal blocks that have to stay equal: the channels of a grouped convolution."""

    dim: Dim
    count: int


class Findings(Struct):
    """The statements of the rules about a whole graph.

    `block_columns` has the channels of each weight whose columns are others for each block of rows.
    """

    dimensions: Dimensions
    made: list[ChannelAxis] = field(default_factory=list)
    blocks: list[EqualBlocks] = field(default_factory=list)
    block_columns: dict[str, EqualBlocks] = field(default_factory=dict)


class Links:
    """The links of one node. An axis without a link has to stay as it is."""

    def __init__(self, node: Node, findings: Findings, users: int = 1) -> None:
        self.node = node
        self.findings = findings
        # How many nodes use the weight at input 1.
        self.weight_users = users
        self.why = "needs all of it"
        self._said: set[Dim] = set()

    @property
    def dimensions(self) -> Dimensions:
        return self.findings.dimensions

    def same(self, one: Tensor | None, axis: int, other: Tensor | None, other_axis: int) -> None:
        """Link two axes place by place. Does nothing if an operand is absent."""
        if one is None or other is None:
            return
        first, second = _dim(one, axis), _dim(other, other_axis)
        if self.dimensions.size(first) == self.dimensions.size(second):
            self._said |= {first, second}
            self.dimensions.join(first, second)

    def match(self, one: Dim, ones: Places, other: Dim, others: Places) -> None:
        """Link places of an axis, given by their indexes, with places of another."""
        first, second = self.dimensions.places(one), self.dimensions.places(other)
        self._said |= {one, other}
        self.dimensions.join_places(one, first[ones], other, second[others])

    def makes(self, weight: Tensor, axis: int) -> None:
        """State that each place along this axis of a weight makes a channel."""
        self.findings.made.append(ChannelAxis(self.node.id, _dim(weight, axis)))

    def blocks(self, tensor: Tensor, axis: int, count: int) -> EqualBlocks:
        """State that an axis consists of this many blocks, which have to stay equal."""
        blocks = EqualBlocks(_dim(tensor, axis), count)
        self.findings.blocks.append(blocks)
        return blocks

    def columns(self, weight: Tensor, channels: EqualBlocks) -> None:
        """State that the second axis of a weight follows the blocks of its input channels."""
        self.say(weight, 1)
        self.findings.block_columns[weight.name] = channels

    def say(self, tensor: Tensor, axis: int) -> Dim:
        """Mark an axis as linked."""
        dim = _dim(tensor, axis)
        self._said.add(dim)
        return dim

    def because(self, why: str) -> None:
        """Set the reason, in words, why the axes without a link have to stay."""
        self.why = why

    def pin_rest(self) -> None:
        """Pin every axis without a link."""
        reason = f"{printable(self.node.qualified_op)} {printable(self.node.id)!r} {self.why}"
        for tensor in (*self.node.inputs, *self.node.outputs):
            for dim in self.dimensions.axes(tensor.name) if tensor else ():
                if dim not in self._said:
                    self.dimensions.pin(dim, reason)


Rule: TypeAlias = Callable[[Node, Links], None]


def _dim(tensor: Tensor, axis: int) -> Dim:
    return Dim(tensor.name, axis % tensor.rank)


def integers(node: Node, index: int, attribute: str = "") -> tuple[int, ...] | None:
    """Constant integers from an input, or from an attribute in older opsets; None if unknown."""
    if attribute and attribute in node.attributes:
        return node.attr_ints(attribute)
    return ints_of(node, index)


def normal_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(axis % rank for axis in axes)
