"""Rewrite the nodes of a narrowed graph: sizes in them are changed to the new shapes.

Sizes are in the targets of Reshape and Expand, the parts of Split, the bounds of Slice, and the
group count of a depthwise convolution. Each gets its own constant, because other nodes may use the
old one. Values that a model computes from a shape stay the same: the old shape becomes a constant,
so that the scale of an attention head, for example, does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from pytest_modelperf.graph.repeated import remove_named
from pytest_modelperf.graph.structure import Node, Tensor
from pytest_modelperf.whatif.narrowing.links import integers, normal_axes
from pytest_modelperf.whatif.narrowing.movements import slice_ranges
from pytest_modelperf.whatif.narrowing.plan import RemovalPlan
from pytest_modelperf.whatif.narrowing.relating import ModelNode

if TYPE_CHECKING:
    from pytest_modelperf.whatif.narrowing.dimensions import Places


class Rewriter:
    """Rewrites one graph in place; `added` are the nodes of its new constants."""

    def __init__(self, plan: RemovalPlan) -> None:
        self.plan = plan
        self.added: list[NodeProto] = []
        self._taken = set(plan.related.dimensions.shapes)

    def rewrite(self, node: ModelNode) -> None:
        adjust = _ADJUSTMENTS.get(node.node.qualified_op)
        # A node with a tensor of unknown shape keeps all of its shapes.
        if adjust is not None and any(map(self.changes, (*node.node.inputs, *node.node.outputs))):
            adjust(node.proto, node.node, self)

    def give(
        self, proto: NodeProto, index: int, values: Sequence[int], what: str, dtype: str = "int64"
    ) -> None:
        """Give a node its own constant integers as the input at `index`."""
        name = wish = f"{proto.output[0]}/{what}"
        count = 1
        while name in self._taken:
            count += 1
            name = f"{wish}#{count}"
        self._taken.add(name)
        self.added.append(_constant_node(name, np.asarray(values, dtype)))
        while len(proto.input) <= index:
            proto.input.append("")
        proto.input[index] = name

    def changes(self, tensor: Tensor | None) -> bool:
        return tensor is not None and self.plan.changes(tensor.name)

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        return self.plan.shape(tensor.name)


_Adjust: TypeAlias = Callable[[NodeProto, Node, Rewriter], None]


def _constant_node(name: str, values: Places) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(values))


def _adjust_reshape(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    if not rewriter.changes(node.output()):
        return
    target = rewriter.shape(node.output())
    old = integers(node, 1, "shape")
    if old is not None:
        # 0 and -1 keep their meaning.
        target = tuple(
            size if entry > 0 else entry for entry, size in zip(old, target, strict=True)
        )
    if "shape" in node.attributes:
        set_attribute(proto, "shape", target)
    else:
        rewriter.give(proto, 1, target, "target")


def _adjust_expand(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    if rewriter.changes(node.output()):
        rewriter.give(proto, 1, rewriter.shape(node.output()), "target")


def _adjust_squeeze(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    """Name the axes, because a channel that is left alone is not one of them."""
    if "axes" in node.attributes or node.optional_input(1) is not None:
        return
    axes = [axis for axis, size in enumerate(node.input(0).dims) if size == 1]
    if not axes:
        # No axes mean all of size 1.
        proto.op_type = "Identity"
        del proto.input[1:]
    elif node.opset < 13:
        set_attribute(proto, "axes", axes)
    else:
        rewriter.give(proto, 1, axes, "axes")


def _adjust_resize(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    sizes = node.optional_input(3)
    if sizes is None or sizes.dims == (0,) or not rewriter.changes(node.output()):
        return
    shape = rewriter.shape(node.output())
    axes = normal_axes(node.attr_ints("axes"), len(shape)) or range(len(shape))
    rewriter.give(proto, 3, [shape[axis] for axis in axes], "sizes")


def _adjust_split(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    if not rewriter.changes(node.input(0)):
        return
    axis = node.attr_int("axis", 0)
    parts = [rewriter.shape(tensor)[axis] for tensor in node.outputs if tensor is not None]
    if node.opset < 13:
        set_attribute(proto, "split", parts)
    else:
        remove_named(proto.attribute, {"num_outputs"})
        rewriter.give(proto, 1, parts, "split")


def _adjust_slice(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    ranges = slice_ranges(node)
    if ranges is None or not rewriter.changes(node.input(0)):
        return
    bounds = {}
    for axis, taken in ranges.items():
        kept = rewriter.plan.kept(node.input(0).name, axis)
        if len(kept) < node.input(0).dims[axis]:
            inside = np.searchsorted(kept, [taken.start, taken.stop])
            bounds[axis] = (int(inside[0]), int(inside[1]))
    if not bounds:
        return
    for position, what in enumerate(("starts", "ends")):
        old = integers(node, position + 1, what) or ()
        new = [
            bounds[axis][position] if axis in bounds else value
            for axis, value in zip(ranges, old, strict=True)
        ]
        if what in node.attributes:
            set_attribute(proto, what, new)
        else:
            # All bounds of a Slice have one type, and its axes keep theirs.
            dtype = node.input(position + 1).dtype or "int64"
            rewriter.give(proto, position + 1, new, what, dtype)


def _adjust_groups(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    """A depthwise convolution has a group for each channel."""
    channels = node.input(0).dims[1]
    if node.attr_int("group", 1) == channels > 1:
        set_attribute(proto, "group", rewriter.shape(node.input(0))[1])


def _adjust_fill(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    if rewriter.changes(node.output()):
        rewriter.give(proto, 0, rewriter.shape(node.output()), "shape")


def _adjust_shape(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    """Replace the node by its old result."""
    if rewriter.changes(node.input(0)):
        value = _old_value(proto, node)
        proto.CopyFrom(_constant_node(proto.output[0], value))


def _old_value(proto: NodeProto, node: Node) -> Places:
    """The result of a Shape or Size in the unchanged model."""
    dims = node.input(0).dims
    if proto.op_type == "Size":
        return np.asarray(node.input(0).size, np.int64)
    return np.asarray(dims[node.attr_int("start", 0) : node.attr_int("end", len(dims))], np.int64)


def set_attribute(proto: NodeProto, name: str, value: int | Sequence[int]) -> None:
    remove_named(proto.attribute, {name})
    proto.attribute.append(helper.make_attribute(name, value))


_ADJUSTMENTS: Mapping[str, _Adjust] = {
    "ConstantOfShape": _adjust_fill,
    "Conv": _adjust_groups,
    "ConvTranspose": _adjust_groups,
    "Expand": _adjust_expand,
    "Reshape": _adjust_reshape,
    "Resize": _adjust_resize,
    "Shape": _adjust_shape,
    "Size": _adjust_shape,
    "Slice": _adjust_slice,
    "Split": _adjust_split,
    "Squeeze": _adjust_squeeze,
    "com.microsoft::FusedConv": _adjust_groups,
}
