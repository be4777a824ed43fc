"""Which axis of a Reshape can lose places, if one axis becomes several or several become one.

If channels [N, C, H, W] are flattened to [N, C x H x W], each channel is H x W features. If heads
[B, S, H x D] are split to [B, S, H, D], either whole heads can be removed or the same part of each,
but not both. Only one factor of an axis, its carrier, may lose places; the others stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from pytest_modelperf.graph.structure import Node, Tensor
from pytest_modelperf.whatif.narrowing.dimensions import Dim
from pytest_modelperf.whatif.narrowing.links import Links, Rule

if TYPE_CHECKING:
    from pytest_modelperf.whatif.narrowing.dimensions import Places


class _Axis(Struct, frozen=True):
    """An axis of one side, as the factors `first` to `last` of a segment."""

    dim: Dim
    first: int
    last: int

    def holds(self, factor: int) -> bool:
        return self.first <= factor < self.last


class _Segment(Struct, frozen=True):
    """Axes with the same elements before and after, and the common factors of both sides."""

    factors: tuple[int, ...]
    axes: tuple[_Axis, ...]

    def holders(self, factor: int) -> list[_Axis]:
        return [axis for axis in self.axes if axis.holds(factor)]

    def coordinates(self, axis: _Axis, factor: int) -> Places:
        """The position of each place of an axis along a factor."""
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
    """The factor that may lose places: one that does not have to stay.

    Of several it is the outermost: heads rather than parts of heads. But if the outermost factor is
    the number of groups of a grouped convolution (a channel shuffle), it stays.
    """
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
    """The shortest runs of axes with the same elements on both sides, without axes of size 1.

    A run without common factors, such as 4 x 6 to 6 x 4, is left out.
    """
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
    """For each axis larger than 1, the product of all sizes up to it."""
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
