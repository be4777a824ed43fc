"""State which axes of operands and results belong together, for each kind of operator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import accumulate

import numpy as np

from pytest_modelperf.graph.structure import Node, Tensor
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.whatif.narrowing.dimensions import Links, Rule, integers, normal_axes


def broadcast(links: Links, operand: Tensor, result: Tensor, last: int = 0) -> None:
    """Align each axis of an operand with an axis of the result, counted from the end.

    An axis of size 1 is stretched, so nothing of it can be removed. The `last` axes are ignored.
    """
    for back in range(last + 1, operand.rank + 1):
        if operand.dims[-back] == result.dims[-back]:
            links.same(operand, -back, result, -back)


def link_elementwise(node: Node, links: Links) -> None:
    for result in node.outputs:
        for operand in node.inputs:
            if operand is not None and result is not None:
                broadcast(links, operand, result)


def link_first(node: Node, links: Links) -> None:
    """Link the first input. It holds the elements, and the others are settings."""
    for result in node.outputs:
        if result is not None and node.input(0).dims == result.dims:
            broadcast(links, node.input(0), result)


def link_quantized(node: Node, links: Links) -> None:
    """Link a scale and a zero point for the whole tensor, or for each place of one axis."""
    data, result = node.input(0), node.output()
    broadcast(links, data, result)
    axis = node.attr_int("axis", 1)
    for index in (1, 2):
        setting = node.optional_input(index)
        if setting is None or setting.rank == 0 or setting.size == 1:
            continue
        if setting.rank == 1 and axis < data.rank and setting.size == data.dims[axis]:
            links.same(setting, 0, data, axis)
        else:
            for position in range(data.rank):
                links.dimensions.pin(
                    links.say(data, position),
                    f"{node.op_type} {printable(node.id)!r} has a scale for each block",
                )


_ELEMENTWISE = (
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift",
    "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual",
    "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual",
    "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow",
    "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
    "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
    "com.microsoft::BiasGelu", "com.microsoft::FastGelu", "com.microsoft::Gelu",
    "com.microsoft::QuickGelu",
)  # fmt: skip


def link_conv(node: Node, links: Links) -> None:
    """Link [N, C, ...] by [O, C / groups, ...]. The kernel's rows make channels."""
    data, kernel, result = node.input(0), node.input(1), node.output()
    groups = node.attr_int("group", 1)
    links.same(data, 0, result, 0)
    if node.qualified_op != "Conv" and node.optional_input(3) is not None:
        links.same(node.input(3), 0, result, 0)
        links.same(node.input(3), 1, result, 1)
    links.same(kernel, 0, result, 1)
    links.same(node.optional_input(2), 0, result, 1)
    links.makes(kernel, 0)
    if groups == 1:
        links.same(data, 1, kernel, 1)
    elif groups == data.dims[1]:
        # Each input channel goes with its own output channels. The group count follows them.
        one, other = links.say(data, 1), links.say(result, 1)
        outputs = np.arange(result.dims[1])
        links.match(one, outputs // (result.dims[1] // data.dims[1]), other, outputs)
        links.say(kernel, 1)
    else:
        links.blocks(result, 1, groups)
        if kernel.weights == (kernel.name,) and links.weight_users == 1:
            channels = links.blocks(data, 1, groups)
            links.say(data, 1)
            links.columns(kernel, channels)
        else:
            links.because("has groups, and shares its weight or computes it")


def link_conv_transpose(node: Node, links: Links) -> None:
    """Link [N, C, ...] by [C, O / groups, ...]. The kernel's columns make channels."""
    data, kernel, result = node.input(0), node.input(1), node.output()
    groups = node.attr_int("group", 1)
    links.same(data, 0, result, 0)
    if groups == 1:
        links.same(data, 1, kernel, 0)
        links.same(kernel, 1, result, 1)
        links.same(node.optional_input(2), 0, result, 1)
        links.makes(kernel, 1)
    elif groups == data.dims[1] == result.dims[1]:
        links.same(data, 1, kernel, 0)
        links.same(data, 1, result, 1)
        links.same(node.optional_input(2), 0, result, 1)
        links.say(kernel, 1)
    else:
        links.because("is transposed and has groups")


def link_gemm(node: Node, links: Links) -> None:
    left, right, result = node.input(0), node.input(1), node.output()
    rows, inner = (1, 0) if node.attr_int("transA", 0) else (0, 1)
    depth, columns = (1, 0) if node.attr_int("transB", 0) else (0, 1)
    links.same(left, rows, result, 0)
    links.same(left, inner, right, depth)
    links.same(right, columns, result, 1)
    _make(links, right, columns)
    _make(links, left, rows)
    bias = node.optional_input(2)
    if bias is not None:
        broadcast(links, bias, result)


def link_matmul(node: Node, links: Links) -> None:
    left, right, result = node.input(0), node.input(1), node.output()
    if left.rank < 2 or right.rank < 2:
        _link_vector(links, left, right, result)
        return
    links.same(left, -1, right, -2)
    links.same(left, -2, result, -2)
    links.same(right, -1, result, -1)
    for operand in (left, right):
        broadcast(links, operand, result, last=2)
    _make(links, right, right.rank - 1)
    _make(links, left, left.rank - 2)


def _link_vector(links: Links, left: Tensor, right: Tensor, result: Tensor) -> None:
    links.same(left, -1, right, 0 if right.rank == 1 else -2)
    if left.rank == right.rank == 1:
        return
    matrix = right if left.rank == 1 else left
    summed = matrix.rank - (2 if matrix is right else 1)
    kept = [axis for axis in range(matrix.rank) if axis != summed]
    for position, axis in enumerate(kept):
        links.same(matrix, axis, result, position)
    _make(links, matrix, kept[-1])


def _make(links: Links, operand: Tensor, axis: int) -> None:
    if operand.is_constant:
        links.makes(operand, axis)


def link_einsum(node: Node, links: Links) -> None:
    """Link the axes with the same letter in all operands."""
    equation = node.attr_str("equation", "").replace(" ", "")
    terms, _, target = equation.partition("->")
    if "." in equation or "->" not in equation:
        return
    found: dict[str, tuple[Tensor, int]] = {}
    operands = [*zip(terms.split(","), node.inputs, strict=True), (target, node.output())]
    if any(tensor is None or len(letters) != tensor.rank for letters, tensor in operands):
        return
    for letters, tensor in operands:
        for axis, letter in enumerate(letters):
            if tensor is not None:
                first = found.setdefault(letter, (tensor, axis))
                links.same(*first, tensor, axis)
                if tensor.is_constant and letter in target:
                    links.makes(tensor, axis)


def link_gather(node: Node, links: Links) -> None:
    """Link all axes except that of the lookup, which keeps all of its rows."""
    data, indices, result = node.input(0), node.input(1), node.output()
    axis = node.attr_int("axis", 0) % data.rank
    for position in range(data.rank):
        if position != axis:
            target = position if position < axis else position + indices.rank - 1
            links.same(data, position, result, target)
            _make(links, data, position)
    for position in range(indices.rank):
        links.same(indices, position, result, axis + position)
    links.because("looks up in it")


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
    """Map each axis that a Slice cuts to its indexes, or return None if they depend on a run."""
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
    """Link an axis that is taken in one piece: it may shrink. Any other cut axis stays."""
    data, result = node.input(0), node.output()
    ranges = slice_ranges(node)
    if ranges is None:
        links.because("cuts it at places known only at run time")
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
        links.because("pads it by a size known only at run time")
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
    """Link the axes of an operator that keeps each axis or changes its whole size."""
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
    """Let the input shrink. Values from its shape use the old one (`narrow._adjust_shape`)."""
    for tensor in (node.input(0), node.output()):
        for axis in range(tensor.rank):
            links.say(tensor, axis)


def link_fill(node: Node, links: Links) -> None:
    """Link a weight that a node makes. It becomes smaller if its shape is a constant."""
    if node.input(0).value is None:
        links.because("fills a shape known only at run time")
        return
    result = node.output()
    for axis in range(result.rank):
        links.say(result, axis)


def link_batch_norm(node: Node, links: Links) -> None:
    """Link a scale, a shift and statistics for each channel."""
    data, result = node.input(0), node.output()
    for axis in range(data.rank):
        links.same(data, axis, result, axis)
    channels = min(1, data.rank - 1)
    for setting in (*node.inputs[1:], *node.outputs[1:]):
        links.same(setting, 0, data, channels)


def link_instance_norm(node: Node, links: Links) -> None:
    data = node.input(0)
    link_pool(node, links)
    for setting in node.inputs[1:]:
        links.same(setting, 0, data, 1)
    links.because("averages over it")


def link_along(node: Node, links: Links, *, default: int, why: str, to_end: bool = False) -> None:
    """Link all axes that an operator passes through.

    It works along one axis or, with `to_end`, along all axes from that one on.
    """
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
    """Link a Softmax. Before opset 13 it sums over all axes from the given one on."""
    if node.opset < 13:
        link_along(node, links, default=1, why="sums over it", to_end=True)
    else:
        link_along(node, links, default=-1, why="sums over it")


def link_group_norm(node: Node, links: Links) -> None:
    links.same(node.input(0), 0, node.output(), 0)
    links.because("averages over groups of it")


def link_reduction(node: Node, links: Links) -> None:
    """Link the axes that pass through: those that are not reduced."""
    data, result = node.input(0), node.output()
    is_arg = node.op_type.startswith("Arg")
    axes = (node.attr_int("axis", 0),) if is_arg else integers(node, 1, "axes")
    if axes is None:
        if node.optional_input(1) is not None or node.attr_int("noop_with_empty_axes", 0):
            links.because("reduces axes known only at run time")
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


_POOLINGS = (
    "AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool",
)  # fmt: skip
_REDUCTIONS = (
    "ArgMax", "ArgMin", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, link_elementwise),
    **dict.fromkeys(("CastLike", "Dropout"), link_first),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), link_quantized),
    **dict.fromkeys(("Conv", "com.microsoft::FusedConv"), link_conv),
    "ConvTranspose": link_conv_transpose,
    "Einsum": link_einsum,
    "Gather": link_gather,
    "Gemm": link_gemm,
    "MatMul": link_matmul,
    **dict.fromkeys(_POOLINGS, link_pool),
    **dict.fromkeys(("Expand", "Resize", "Tile", "Upsample"), link_stretched),
    **dict.fromkeys(("Shape", "Size"), link_shape),
    "Concat": link_concat,
    "ConstantOfShape": link_fill,
    "Pad": link_pad,
    "Slice": link_slice,
    "Split": link_split,
    "Transpose": link_transpose,
    **dict.fromkeys(_REDUCTIONS, link_reduction),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), link_softmax),
    "BatchNormalization": link_batch_norm,
    "GroupNormalization": link_group_norm,
    "InstanceNormalization": link_instance_norm,
    "LRN": partial(link_along, default=1, why="normalizes each channel by its neighbours"),
    **dict.fromkeys(
        ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"),
        partial(link_along, default=-1, why="averages over it", to_end=True),
    ),
    "LpNormalization": partial(link_along, default=-1, why="divides by its norm"),
    "TopK": partial(link_along, default=-1, why="compares all of it"),
}
