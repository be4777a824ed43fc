"""The cost of arithmetic, comparisons, logic and activations: a weight for each output element.

Counting rule: the weight of the operator times the elements of its *output*, to which operands
are broadcast. A comparison, a selection, a rounding, a change of sign or a bit operation is one
CMP, as in onnx_tool; a composed function is the sum of the formula beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.structure import Node, Tensor
from pytest_modelperf.profiler.counting.activation import ACTIVATION_OPS
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    COS,
    DIV,
    EXP,
    LOG,
    MOV,
    MUL,
    POW,
    SIN,
    SQRT,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.per_element import elementwise, per_output_element

MOD = DIV + CMP + MUL + ADD  # a - b * floor(a / b)
ATAN = SQRT + 4 * MUL + DIV  # onnx_tool's weight, of an approximation with one square root
ASIN = MUL + ADD + SQRT + DIV + ATAN  # atan(x / sqrt(1 - x^2))
SINH = EXP + DIV + ADD + MUL  # (e - 1 / e) / 2 with e = exp(x); cosh adds
ASINH = MUL + ADD + SQRT + ADD + LOG  # log(x + sqrt(x^2 + 1)); acosh subtracts 1
ATANH = 2 * ADD + DIV + LOG + MUL  # log((1 + x) / (1 - x)) / 2


def count_pow(node: Node) -> Cost:
    """x^y; where y is one constant number, what a compiler makes of that power."""
    return elementwise(node.output().size * _power_ops(node.optional_input(1)))


def count_clip(node: Node) -> Cost:
    """A comparison for each bound that is given: inputs since opset 11, attributes before."""
    bounds = sum(
        node.optional_input(index) is not None or name in node.attributes
        for index, name in ((1, "min"), (2, "max"))
    )
    return elementwise(node.output().size * bounds * CMP)


def count_mean(node: Node) -> Cost:
    """The sum of all inputs, divided by their number."""
    return elementwise(node.output().size * ((len(node.inputs) - 1) * ADD + DIV))


def count_gelu(node: Node) -> Cost:
    """Each element takes the operations of the exact form, by erf, or of the one by tanh."""
    form = "FastGelu" if node.attr_str("approximate", "none") == "tanh" else "Gelu"
    return elementwise(node.output().size * ACTIVATION_OPS[form])


def count_swish(node: Node) -> Cost:
    """The product x * sigmoid(alpha * x), where an alpha of 1 multiplies nothing."""
    return elementwise(node.output().size * swish_ops(node))


def count_fast_gelu(node: Node) -> Cost:
    """FastGelu(x + bias), the bias optional."""
    biased = ADD if node.optional_input(1) is not None else 0
    return elementwise(node.output().size * (biased + ACTIVATION_OPS["FastGelu"]))


def count_mul_integer(node: Node) -> Cost:
    """(a - its zero point) * (b - its zero point), the zero points optional."""
    shifts = sum(node.optional_input(index) is not None for index in (1, 3))
    return elementwise(node.output().size * (shifts * ADD + MUL))


def swish_ops(node: Node) -> int:
    """Operations an element of a Swish with the node's `alpha`."""
    plain = node.attr_float("alpha", 1.0) == 1.0
    return ACTIVATION_OPS["Silu" if plain else "Swish"]


def _per_further_input(ops: int) -> Counter:
    """`ops` for each output element and each input after the first."""

    def count(node: Node) -> Cost:
        return elementwise(node.output().size * (len(node.inputs) - 1) * ops)

    return count


def _power_ops(exponent: Tensor | None) -> int:
    if exponent is None or exponent.value is None or exponent.value.size != 1:
        return POW
    return _CHEAP_POWERS.get(float(exponent.value.item()), POW)


_CHEAP_POWERS: Mapping[float, int] = {
    -2.0: MUL + DIV,
    -1.0: DIV,
    -0.5: SQRT + DIV,
    0.5: SQRT,
    1.0: MOV,
    2.0: MUL,
    3.0: 2 * MUL,
    4.0: 2 * MUL,  # the square of the square
}

_OPS: Mapping[str, int] = {
    # Arithmetic
    "Abs": CMP,
    "Add": ADD,
    "Ceil": CMP,
    "Div": DIV,
    "Exp": EXP,
    "Floor": CMP,
    "Log": LOG,
    "Mod": MOD,
    "Mul": MUL,
    "Neg": CMP,
    "Reciprocal": DIV,
    "Round": CMP,
    "Sign": CMP,
    "Sqrt": SQRT,
    "Sub": ADD,
    "com.microsoft::ComplexMul": 2 * MUL + ADD,  # four products and two sums make two elements
    "com.microsoft::ComplexMulConj": 2 * MUL + ADD,
    # Trigonometry
    "Acos": ADD + ASIN,  # pi / 2 - asin(x)
    "Acosh": ASINH,
    "Asin": ASIN,
    "Asinh": ASINH,
    "Atan": ATAN,
    "Atanh": ATANH,
    "Cos": COS,
    "Cosh": SINH,
    "Sin": SIN,
    "Sinh": SINH,
    "Tan": SIN + COS + DIV,
    # Comparison, logic, bits, types
    "And": CMP,
    "BitShift": CMP,
    "BitwiseAnd": CMP,
    "BitwiseNot": CMP,
    "BitwiseOr": CMP,
    "BitwiseXor": CMP,
    "Cast": MOV,
    "CastLike": MOV,
    "Equal": CMP,
    "Greater": CMP,
    "GreaterOrEqual": CMP,
    "IsInf": CMP,
    "IsNaN": CMP,
    "Less": CMP,
    "LessOrEqual": CMP,
    "Not": CMP,
    "Or": CMP,
    "Where": CMP,
    "Xor": CMP,
    # Activations
    **{
        op: ACTIVATION_OPS[op]
        for op in (
            "Celu", "Elu", "Erf", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu",
            "Relu", "Selu", "Shrink", "Sigmoid", "Softplus", "Softsign", "Tanh",
            "ThresholdedRelu",
        )
    },
    "com.microsoft::BiasGelu": ADD + ACTIVATION_OPS["Gelu"],
    "com.microsoft::Gelu": ACTIVATION_OPS["Gelu"],
    "com.microsoft::QuickGelu": ACTIVATION_OPS["QuickGelu"],
    "com.microsoft::ScaledSiLU": MUL + ACTIVATION_OPS["Silu"],  # silu(a * x)
    # Of early ONNX, still known to ONNX Runtime
    "Affine": ACTIVATION_OPS["Affine"],
    "ImageScaler": MUL + ADD,
    "ParametricSoftplus": 2 * MUL + ACTIVATION_OPS["Softplus"],  # a * softplus(b * x)
    "Scale": MUL,
    "ScaledTanh": ACTIVATION_OPS["ScaledTanh"],
}  # fmt: skip

COUNTERS: Mapping[str, Counter] = {
    **{op: per_output_element(ops) for op, ops in _OPS.items()},
    "Clip": count_clip,
    "Gelu": count_gelu,
    "Max": _per_further_input(CMP),
    "Mean": count_mean,
    "Min": _per_further_input(CMP),
    "Pow": count_pow,
    "Sum": _per_further_input(ADD),
    "Swish": count_swish,
    "com.microsoft::FastGelu": count_fast_gelu,
    "com.microsoft::MulInteger": count_mul_integer,
}
