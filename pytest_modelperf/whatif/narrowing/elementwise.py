"""Operators that treat each element alone: every axis follows the operands, broadcast or not."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.structure import Node, Tensor
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.whatif.narrowing.links import Links, Rule


def broadcast(links: Links, operand: Tensor, result: Tensor, last: int = 0) -> None:
    """Each axis of an operand is aligned with an axis of the result, counted from the end.

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
    """The first input holds the elements; the others are settings."""
    for result in node.outputs:
        if result is not None and node.input(0).dims == result.dims:
            broadcast(links, node.input(0), result)


def link_quantized(node: Node, links: Links) -> None:
    """A scale and a zero point for the whole tensor, or for each place of one axis."""
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

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, link_elementwise),
    "CastLike": link_first,
    "Dropout": link_first,
    "DequantizeLinear": link_quantized,
    "QuantizeLinear": link_quantized,
}
