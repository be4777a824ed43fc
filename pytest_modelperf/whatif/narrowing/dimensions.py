"""Find the places along the axes of all tensors that can only be removed together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from pytest_modelperf.graph.shape_rules import ints_of
from pytest_modelperf.graph.structure import Node, Tensor
from pytest_modelperf.text.escaping import printable

Places: TypeAlias = npt.NDArray[np.int64]

# The number of the set of all places that have to stay. This place belongs to no tensor.
PINNED = 0


class Dim(NamedTuple):
    """One axis of one tensor."""

    tensor: str
    axis: int


class Dimensions:
    """Sets of places along the axes of tensors of these shapes.

    The lowest place of a set identifies it. This is a union-find over arrays: joining two axes
    takes a few numpy calls, however long they are.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        self._starts: dict[Dim, int] = {}
        count = 1
        for name, shape in shapes.items():
            for axis, size in enumerate(shape):
                self._starts[Dim(name, axis)] = count
                count += size
        self._parents = np.arange(count)
        self._links: dict[Dim, list[Dim]] = {}
        self._reasons: dict[Dim, str] = {}

    def axes(self, tensor: str) -> list[Dim]:
        """Return all axes of a tensor, or none if its shape is unknown."""
        return [Dim(tensor, axis) for axis in range(len(self.shapes.get(tensor, ())))]

    def join(self, one: Dim, other: Dim) -> None:
        """Join two axes of the same size, place by place."""
        self.join_places(one, self.places(one), other, self.places(other))

    def join_places(self, one: Dim, ones: Places, other: Dim, others: Places) -> None:
        """Join places of one axis to the same number of places of another."""
        self._links.setdefault(one, []).append(other)
        self._links.setdefault(other, []).append(one)
        self._union(ones, others)

    def pin(self, dim: Dim, reason: str) -> None:
        self._reasons.setdefault(dim, reason)
        self._union(self.places(dim), np.full(self.size(dim), PINNED))

    def is_pinned(self, dim: Dim) -> bool:
        return not self.sets(dim).any()

    def size(self, dim: Dim) -> int:
        return self.shapes[dim.tensor][dim.axis]

    def places(self, dim: Dim) -> Places:
        """Return the places along an axis, as numbers that no other axis has."""
        start = self._starts[dim]
        return np.arange(start, start + self.size(dim))

    def sets(self, dim: Dim) -> Places:
        return self._roots(self.places(dim))

    @property
    def count(self) -> int:
        """An upper bound of the numbers of sets."""
        return len(self._parents)

    def reasons(self) -> dict[Dim, str]:
        """Return the nearest reason why each axis joined to a pinned one has to stay."""
        # All axes are done at once, because each one alone would need a walk through the graph.
        found = dict(self._reasons)
        waiting = deque(found)
        while waiting:
            here = waiting.popleft()
            for near in self._links.get(here, ()):
                if near not in found:
                    found[near] = found[here]
                    waiting.append(near)
        return found

    def _roots(self, places: Places) -> Places:
        roots = self._parents[places]
        while True:
            above = self._parents[roots]
            if (above == roots).all():
                break
            roots = above
        self._parents[places] = roots
        return roots

    def _union(self, ones: Places, others: Places) -> None:
        while True:
            one, other = self._roots(ones), self._roots(others)
            apart = one != other
            if not apart.any():
                return
            # Always put the higher below the lower, so that no cycle can arise. If several claim
            # the same place, the lowest wins and the next iteration joins the others.
            high, low = np.maximum(one, other)[apart], np.minimum(one, other)[apart]
            np.minimum.at(self._parents, high, low)


# -- the links of one node


class ChannelAxis(Struct, frozen=True):
    """An axis of a weight whose places make one channel each, and the layer of the weight."""

    layer: str
    weight: Dim


class EqualBlocks(Struct, frozen=True):
    """An axis of blocks that have to stay equal in size: the channels of a grouped convolution."""

    dim: Dim
    count: int


class Findings(Struct):
    """What the rules state about a whole graph."""

    dimensions: Dimensions
    made: list[ChannelAxis] = field(default_factory=list)
    blocks: list[EqualBlocks] = field(default_factory=list)
    # The input channels of weights that have different columns for each block of rows.
    block_columns: dict[str, EqualBlocks] = field(default_factory=dict)


class Links:
    """The links of one node. An axis without a link has to stay as it is."""

    def __init__(self, node: Node, findings: Findings, users: int = 1) -> None:
        self.node = node
        self.findings = findings
        # The number of nodes that use the weight at input 1.
        self.weight_users = users
        self.why = "needs all of it"
        self._said: set[Dim] = set()

    @property
    def dimensions(self) -> Dimensions:
        return self.findings.dimensions

    def same(self, one: Tensor | None, axis: int, other: Tensor | None, other_axis: int) -> None:
        """Link two axes place by place, or do nothing if an operand is absent."""
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
        dim = _dim(tensor, axis)
        self._said.add(dim)
        return dim

    def because(self, why: str) -> None:
        """Set the reason, as text, why the axes without a link have to stay."""
        self.why = why

    def pin_rest(self) -> None:
        reason = f"{printable(self.node.qualified_op)} {printable(self.node.id)!r} {self.why}"
        for tensor in (*self.node.inputs, *self.node.outputs):
            for dim in self.dimensions.axes(tensor.name) if tensor else ():
                if dim not in self._said:
                    self.dimensions.pin(dim, reason)


Rule: TypeAlias = Callable[[Node, Links], None]


def _dim(tensor: Tensor, axis: int) -> Dim:
    return Dim(tensor.name, axis % tensor.rank)


def integers(node: Node, index: int, attribute: str = "") -> tuple[int, ...] | None:
    """Return the constant integers of an input, or in older opsets of an attribute, if any."""
    if attribute and attribute in node.attributes:
        return node.attr_ints(attribute)
    return ints_of(node, index)


def normal_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(axis % rank for axis in axes)


# -- the axis of a Reshape that can lose places


class _Axis(Struct, frozen=True):
    dim: Dim
    first: int
    last: int

    def holds(self, factor: int) -> bool:
        return self.first <= factor < self.last


class _Segment(Struct, frozen=True):
    factors: tuple[int, ...]
    axes: tuple[_Axis, ...]

    def holders(self, factor: int) -> list[_Axis]:
        return [axis for axis in self.axes if axis.holds(factor)]

    def coordinates(self, axis: _Axis, factor: int) -> Places:
        inner = prod(self.factors[factor + 1 : axis.last])
        return np.arange(prod(self.factors[axis.first : axis.last])) // inner % self.factors[factor]


def link_reshape(node: Node, links: Links) -> None:
    data, result = node.input(0), node.output()
    if 0 in data.dims:
        return
    for segment in _segments(data, result):
        carrier = _carrier(segment, links)
        if carrier is None:
            links.because("mixes it with other axes")
            continue
        first, *others = segment.holders(carrier)
        _, places = np.unique(segment.coordinates(first, carrier), return_index=True)
        for axis in (first, *others):
            wanted = places[segment.coordinates(axis, carrier)]
            links.match(axis.dim, np.arange(len(wanted)), first.dim, wanted)
    for tensor in (data, result):
        for position, size in enumerate(tensor.dims):
            if size == 1:
                links.say(tensor, position)


def _carrier(segment: _Segment, links: Links) -> int | None:
    """Return the factor of an axis that may lose places, or None."""
    # Of several, take the outermost: heads rather than parts of heads. But an outermost factor that
    # is the number of groups of a grouped convolution (a channel shuffle) stays.
    dimensions = links.dimensions
    free = [
        factor
        for factor in range(len(segment.factors))
        if not any(dimensions.is_pinned(axis.dim) for axis in segment.holders(factor))
    ]
    if len(free) < 2:
        return free[0] if free else None
    whole = max(segment.axes, key=lambda axis: axis.last - axis.first)
    sets = np.unique(dimensions.sets(whole.dim))
    groups = {
        blocks.count
        for blocks in links.findings.blocks
        if np.isin(dimensions.sets(blocks.dim), sets).any()
    }
    return free[1] if segment.factors[free[0]] in groups else free[0]


def _segments(data: Tensor, result: Tensor) -> list[_Segment]:
    """Return the shortest runs of axes with the same elements on both sides."""
    # Axes of size 1, and runs without common factors such as 4 x 6 to 6 x 4, are left out.
    ends = [_ends(tensor) for tensor in (data, result)]
    shared = sorted(set(ends[0]) & set(ends[1]))
    segments = []
    for start, stop in zip([1, *shared], shared, strict=False):
        bounds = [start, *sorted({e for side in ends for e in side if start < e <= stop})]
        if any(high % low for low, high in pairwise(bounds)):
            continue
        factors = tuple(high // low for low, high in pairwise(bounds))
        axes = tuple(
            _Axis(Dim(tensor.name, axis), bounds.index(before), bounds.index(after))
            for tensor, side in zip((data, result), ends, strict=True)
            for (after, axis), before in zip(side.items(), [1, *side], strict=False)
            if start < after <= stop
        )
        segments.append(_Segment(factors, axes))
    return segments


def _ends(tensor: Tensor) -> dict[int, int]:
    ends = {}
    size = 1
    for axis, length in enumerate(tensor.dims):
        size *= length
        if length > 1:
            ends[size] = axis
    return ends


RULES: Mapping[str, Rule] = dict.fromkeys(
    ("Flatten", "Reshape", "Squeeze", "Unsqueeze"), link_reshape
)
