"""Layers with weights: output channels are free, input channels follow the layer before.

Removing a channel from a sum of products removes one term of it, on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.structure import Node, Tensor
from pytest_modelperf.whatif.narrowing.elementwise import broadcast
from pytest_modelperf.whatif.narrowing.links import Links, Rule


def link_conv(node: Node, links: Links) -> None:
    """[N, C, ...] by [O, C / groups, ...]: the kernel's rows make channels."""
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
        _link_depthwise(links, data, result)
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
    """[N, C, ...] by [C, O / groups, ...]: the kernel's columns make channels."""
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


def _link_depthwise(links: Links, data: Tensor, result: Tensor) -> None:
    """Each input channel has its own output channels; the group count follows them."""
    import numpy as np

    one, other = links.say(data, 1), links.say(result, 1)
    outputs = np.arange(result.dims[1])
    links.match(one, outputs // (result.dims[1] // data.dims[1]), other, outputs)


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
    """A product with a vector, whose only axis is summed."""
    links.same(left, -1, right, 0 if right.rank == 1 else -2)
    if left.rank == right.rank == 1:
        return
    matrix = right if left.rank == 1 else left
    kept = [
        axis for axis in range(matrix.rank) if axis != matrix.rank - (2 if matrix is right else 1)
    ]
    for position, axis in enumerate(kept):
        links.same(matrix, axis, result, position)
    _make(links, matrix, kept[-1])


def _make(links: Links, operand: Tensor, axis: int) -> None:
    if operand.is_constant:
        links.makes(operand, axis)


def link_einsum(node: Node, links: Links) -> None:
    """Every letter stands for one axis, in all operands."""
    equation = node.attr_str("equation", "").replace(" ", "")
    terms, _, target = equation.partition("->")
    if "." in equation or "->" not in equation:
        return
    found: dict[str, tuple[Tensor, int]] = {}
    operands = [*zip(terms.split(","), node.inputs, strict=True), (target, node.output())]
    for letters, tensor in operands:
        if tensor is None or len(letters) != tensor.rank:
            return
    for letters, tensor in operands:
        for axis, letter in enumerate(letters):
            if tensor is not None:
                first = found.setdefault(letter, (tensor, axis))
                links.same(*first, tensor, axis)
                if tensor.is_constant and letter in target:
                    links.makes(tensor, axis)


def link_gather(node: Node, links: Links) -> None:
    """The axis of the lookup keeps all of its rows; the other axes follow the table."""
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


RULES: Mapping[str, Rule] = {
    "Conv": link_conv,
    "ConvTranspose": link_conv_transpose,
    "Einsum": link_einsum,
    "Gather": link_gather,
    "Gemm": link_gemm,
    "MatMul": link_matmul,
    "com.microsoft::FusedConv": link_conv,
}
