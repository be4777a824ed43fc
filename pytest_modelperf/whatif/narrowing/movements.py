"""Operators that move elements unchanged: along an axis, or from one axis to another."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from pytest_modelperf.graph.structure import Node, Tensor
from pytest_modelperf.whatif.narrowing.links import Links, Rule, integers, normal_axes


def link_transpose(node: Node, links: Links) -> None:
    data, result = node.input(0), node.output()
    order = node.attr_ints("perm") or tuple(reversed(range(data.rank)))
    for position, axis in enumerate(order):
        links.same(data, axis, result, position)


def link_concat(node: Node, links: Links) -> None:
    result = node.output()
    axis = node.attr_int("axis", 1) % result.rank
    _link_parts(links, result, [tensor for tensor in node.inputs if tensor is not None], axis)


def link_split(node: Node, links: Links) -> None:
    data = node.input(0)
    axis = node.attr_int("axis", 0) % data.rank
    if None in node.outputs:
        links.because("leaves a part of it out")
        return
    _link_parts(links, data, [tensor for tensor in node.outputs if tensor is not None], axis)


def _link_parts(links: Links, whole: Tensor, parts: list[Tensor], axis: int) -> None:
    starts = accumulate((part.dims[axis] for part in parts), initial=0)
    for part, start in zip(parts, starts, strict=False):
        for position in range(whole.rank):
            if position != axis:
                links.same(part, position, whole, position)
        places = np.arange(part.dims[axis])
        links.match(links.say(part, axis), places, links.say(whole, axis), places + start)


def slice_ranges(node: Node) -> dict[int, range] | None:
    """For each axis that a Slice cuts, the indexes that it takes; None if only a run tells."""
    data = node.input(0)
    starts, ends = integers(node, 1, "starts"), integers(node, 2, "ends")
    if starts is None or ends is None:
        return None
    axes, steps = integers(node, 3, "axes"), integers(node, 4)
    if (axes is None and node.optional_input(3)) or (steps is None and node.optional_input(4)):
        return None
    axes = normal_axes(axes if axes is not None else range(len(starts)), data.rank)
    steps = steps or (1,) * len(starts)
    return {
        axis: range(*slice(start, end, step).indices(data.dims[axis]))
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
    }


def link_slice(node: Node, links: Links) -> None:
    """An axis that is taken in one piece may shrink; every other cut keeps its axis."""
    data, result = node.input(0), node.output()
    ranges = slice_ranges(node)
    if ranges is None:
        links.because("cuts it where only a run tells")
        return
    links.because("takes single places of it")
    for axis in range(data.rank):
        taken = ranges.get(axis, range(data.dims[axis]))
        if taken.step == 1 and len(taken) == result.dims[axis]:
            one, other = links.say(data, axis), links.say(result, axis)
            links.match(one, np.asarray(taken, np.int64), other, np.arange(len(taken)))


def link_pad(node: Node, links: Links) -> None:
    data, result = node.input(0), node.output()
    pads, axes = integers(node, 1, "pads"), integers(node, 3)
    if pads is None or (axes is None and node.optional_input(3) is not None):
        links.because("pads it by what only a run tells")
        return
    named = normal_axes(axes if axes is not None else range(data.rank), data.rank)
    padded = {
        axis for position, axis in enumerate(named) if pads[position] or pads[position + len(named)]
    }
    for axis in range(data.rank):
        if axis not in padded:
            links.same(data, axis, result, axis)
    links.because("pads it")


def link_stretched(node: Node, links: Links) -> None:
    """An operator that keeps an axis, or changes its size as a whole."""
    data, result = node.input(0), node.output()
    for back in range(1, data.rank + 1):
        if back <= result.rank:
            links.same(data, -back, result, -back)
    links.because("stretches it")


def link_pool(node: Node, links: Links) -> None:
    for result in node.outputs:
        links.same(node.input(0), 0, result, 0)
        links.same(node.input(0), 1, result, 1)


def link_shape(node: Node, links: Links) -> None:
    """Values computed from a shape are still computed from the old one (see `rewriting`)."""
    for tensor in (node.input(0), node.output()):
        for axis in range(tensor.rank):
            links.say(tensor, axis)


def link_fill(node: Node, links: Links) -> None:
    """A weight that a node makes: it becomes smaller if its shape is a constant."""
    if node.input(0).value is None:
        links.because("fills a shape that only a run tells")
        return
    result = node.output()
    for axis in range(result.rank):
        links.say(result, axis)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            "AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool",
            "MaxPool",
        ),
        link_pool,
    ),
    **dict.fromkeys(("Expand", "Resize", "Tile", "Upsample"), link_stretched),
    **dict.fromkeys(("Shape", "Size"), link_shape),
    "Concat": link_concat,
    "ConstantOfShape": link_fill,
    "Pad": link_pad,
    "Slice": link_slice,
    "Split": link_split,
    "Transpose": link_transpose,
}  # fmt: skip
