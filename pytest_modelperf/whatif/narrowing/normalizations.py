"""Operators with statistics: the axes of the statistics have to stay."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.whatif.narrowing.links import Links, Rule, integers, normal_axes


def link_batch_norm(node: Node, links: Links) -> None:
    """A scale, a shift and statistics for each channel."""
    data, result = node.input(0), node.output()
    for axis in range(data.rank):
        links.same(data, axis, result, axis)
    channels = min(1, data.rank - 1)
    for setting in (*node.inputs[1:], *node.outputs[1:]):
        links.same(setting, 0, data, channels)


def link_instance_norm(node: Node, links: Links) -> None:
    data, result = node.input(0), node.output()
    links.same(data, 0, result, 0)
    links.same(data, 1, result, 1)
    for setting in node.inputs[1:]:
        links.same(setting, 0, data, 1)
    links.because("averages over it")


def link_along(node: Node, links: Links, *, default: int, why: str, to_end: bool = False) -> None:
    """An operator along one axis, or along all axes from it to the end; the others pass through."""
    data = node.input(0)
    axis = node.attr_int("axis", default) % data.rank
    for position in range(axis if to_end else data.rank):
        if position == axis:
            continue
        for result in node.outputs:
            if result is not None and result.rank == data.rank:
                links.same(data, position, result, position)
    links.because(why)


def link_softmax(node: Node, links: Links) -> None:
    """Before opset 13, Softmax treats the input as a matrix whose columns start at the axis."""
    if node.opset < 13:
        link_along(node, links, default=1, why="sums over it", to_end=True)
    else:
        link_along(node, links, default=-1, why="sums over it")


def link_group_norm(node: Node, links: Links) -> None:
    links.same(node.input(0), 0, node.output(), 0)
    links.because("averages over groups of it")


def link_reduction(node: Node, links: Links) -> None:
    """Axes that are not reduced pass through."""
    data, result = node.input(0), node.output()
    is_arg = node.op_type.startswith("Arg")
    axes = (node.attr_int("axis", 0),) if is_arg else integers(node, 1, "axes")
    if axes is None:
        if node.optional_input(1) is not None or node.attr_int("noop_with_empty_axes", 0):
            links.because("reduces axes that only a run tells")
            return
        axes = ()
    reduced = normal_axes(axes, data.rank) or tuple(range(data.rank))
    keeps = node.attr_int("keepdims", 1)
    position = 0
    for axis in range(data.rank):
        if axis not in reduced:
            links.same(data, axis, result, position)
        position += bool(keeps or axis not in reduced)
    links.because("reduces it")


_REDUCTIONS = (
    "ArgMax", "ArgMin", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_REDUCTIONS, link_reduction),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), link_softmax),
    "BatchNormalization": link_batch_norm,
    "GroupNormalization": link_group_norm,
    "InstanceNormalization": link_instance_norm,
    "LRN": partial(link_along, default=1, why="normalizes each channel by its neighbours"),
    "LayerNormalization": partial(link_along, default=-1, why="averages over it", to_end=True),
    "LpNormalization": partial(link_along, default=-1, why="divides by its norm"),
    "RMSNormalization": partial(link_along, default=-1, why="averages over it", to_end=True),
    "SimplifiedLayerNormalization": partial(
        link_along, default=-1, why="averages over it", to_end=True
    ),
    "TopK": partial(link_along, default=-1, why="compares all of it"),
}
