"""Arithmetic, comparisons, logic, activations, and their quantized forms.

Counting rule: the weight of the operator times the elements of its *output*, to which operands
are broadcast. A comparison, a selection, a rounding, a change of sign or a bit operation is one
CMP, as in onnx_tool; a composed function is the sum of the formula next to it.

Counting rule of the QLinear family: operands become floats, (q - zero point) * scale; the
function is evaluated; the result is rescaled by a factor that is computed once, shifted and
clipped. Look-up tables, which engines may use instead, are not counted. A missing zero point is
free in QuantizeLinear and DequantizeLinear, which every quantized model has.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.operators.cost import (
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
from pytest_modelperf.graph.operators.normalization import shape_reduce
from pytest_modelperf.graph.operators.operator import (
    ACTIVATION_OPS,
    DEQUANTIZE_WEIGHT,
    DYNAMIC_QUANTIZE,
    QUANTIZE,
    REQUANTIZE,
    SIGMOID,
    SOFTMAX,
    UNPACKED_FORMATS,
    Demand,
    Operator,
    along,
    elementwise,
    per_input,
    per_output,
)
from pytest_modelperf.graph.shape_rules import (
    Outputs,
    OutputType,
    ShapeRule,
    broadcast,
    concat,
    dim,
    dtype_of,
    gather,
    has_input,
    ints_of,
    like,
    outputs,
    product,
    quotient,
    shape_of,
    stated_size,
    with_last,
)
from pytest_modelperf.graph.structure import Node

MOD = DIV + CMP + MUL + ADD  # a - b * floor(a / b)
ATAN = SQRT + 4 * MUL + DIV  # onnx_tool's weight, of an approximation with one square root
ASIN = MUL + ADD + SQRT + DIV + ATAN  # atan(x / sqrt(1 - x^2))
SINH = EXP + DIV + ADD + MUL  # (e - 1 / e) / 2 with e = exp(x); cosh adds
ASINH = MUL + ADD + SQRT + ADD + LOG  # log(x + sqrt(x^2 + 1)); acosh subtracts 1
ATANH = 2 * ADD + DIV + LOG + MUL  # log((1 + x) / (1 - x)) / 2


def count_pow(node: Node) -> Cost:
    """Count x^y. For some constant y, a compiler replaces the power by cheaper operations."""
    size, exponent = node.output().size, node.optional_input(1)
    if exponent is None or exponent.value is None or exponent.value.size != 1:
        return elementwise(size * POW)
    return elementwise(size * _CHEAP_POWERS.get(float(exponent.value.item()), POW))


def count_clip(node: Node) -> Cost:
    """Count a comparison for each given bound: inputs since opset 11, attributes before."""
    bounds = sum(
        has_input(node, index) or name in node.attributes
        for index, name in ((1, "min"), (2, "max"))
    )
    return elementwise(node.output().size * bounds * CMP)


def count_mean(node: Node) -> Cost:
    return elementwise(node.output().size * ((len(node.inputs) - 1) * ADD + DIV))


def count_gelu(node: Node) -> Cost:
    """Count the exact form by erf, or the approximation by tanh."""
    form = "FastGelu" if node.attr_str("approximate", "none") == "tanh" else "Gelu"
    return elementwise(node.output().size * ACTIVATION_OPS[form])


def count_swish(node: Node) -> Cost:
    """Count x * sigmoid(alpha * x), with a factor alpha that is free if it is 1."""
    return elementwise(node.output().size * swish_ops(node))


def count_fast_gelu(node: Node) -> Cost:
    biased = ADD if has_input(node, 1) else 0
    return elementwise(node.output().size * (biased + ACTIVATION_OPS["FastGelu"]))


def count_mul_integer(node: Node) -> Cost:
    """Count (a - its zero point) * (b - its zero point) with optional zero points."""
    shifts = sum(has_input(node, index) for index in (1, 3))
    return elementwise(node.output().size * (shifts * ADD + MUL))


def swish_ops(node: Node) -> int:
    plain = node.attr_float("alpha", 1.0) == 1.0
    return ACTIVATION_OPS["Silu" if plain else "Swish"]


def _per_further_input(ops: int) -> Counter:
    def count(node: Node) -> Cost:
        return elementwise(node.output().size * (len(node.inputs) - 1) * ops)

    return count


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


def broadcast_of(*indexes: int, dtype: str | None = None) -> ShapeRule:
    """Return a rule for one output: these inputs broadcast, of a fixed type or the last one's."""

    def rule(node: Node) -> Outputs:
        shape = broadcast(*(shape_of(node, index) for index in indexes))
        return outputs(dtype or dtype_of(node, indexes[-1]), shape)

    return rule


def _divisor(node: Node, _: int) -> Demand | None:
    """Ask for a divisor other than 0, as a division of integers by 0 ends the process."""
    return None if node.input(1).is_float else Demand(low=1)


def _text_of_number(node: Node, _: int) -> Demand | None:
    return Demand(low=0, high=9) if node.input(0).dtype == "string" else None


DEQUANTIZE = ADD + MUL  # (q - zero point) * scale
SYMMETRIC_QUANTIZE = DIV + 2 * CMP  # clip(x / scale)


def count_quantize(node: Node) -> Cost:
    shifted = has_input(node, 2)
    return elementwise(node.input(0).size * (QUANTIZE if shifted else SYMMETRIC_QUANTIZE))


def count_dequantize(node: Node) -> Cost:
    shifted = has_input(node, 2)
    return elementwise(node.input(0).size * (DEQUANTIZE if shifted else MUL))


def count_gather_packed(node: Node) -> Cost:
    """Count moved rows of a packed table, decoded unless the table holds floats."""
    decode = 0 if node.attr_int("packed_type", 0) in UNPACKED_FORMATS else DEQUANTIZE_WEIGHT
    return elementwise(node.input(1).size * node.attr_int("K", 0) * (MOV + decode))


def named_dtype(node: Node, attribute: str, default: int) -> str | None:
    # `model_file` imports onnx, which takes long and which counters do not need.
    from pytest_modelperf.graph.model_file import dtype_name

    return dtype_name(node.attr_int(attribute, default))


def shape_quantize(node: Node) -> Outputs:
    dtype = dtype_of(node, 2) if has_input(node, 2) else "uint8"
    return outputs(dtype, shape_of(node, 0))


def shape_qlinear_concat(node: Node) -> Outputs:
    # After the output's scale and zero point, inputs come in threes: value, scale, zero point.
    shapes = [shape_of(node, index) for index in range(2, len(node.inputs), 3)]
    return outputs(dtype_of(node, 1), concat(shapes, node.attr_int("axis", 0)))


def shape_quantize_bfp(node: Node) -> Outputs:
    """Return bytes, whose number depends on the format, and the encoded shape and strides."""
    shape = shape_of(node, 0)
    rank = OutputType("int64", (None if shape is None else len(shape),))
    return OutputType("uint8", (None,)), rank, rank


def shape_dequantize_bfp(node: Node) -> Outputs:
    shape, rank = ints_of(node, 1), dim(shape_of(node, 1), 0)
    dtype = named_dtype(node, "dtype", 1)
    return outputs(dtype, shape if shape is not None or rank is None else (None,) * rank)


def shape_gather_blocks(node: Node) -> Outputs:
    """Return gathered blocks, in which a byte holds several values of the last dimension."""
    data, bits = shape_of(node, 0), node.attr_int("bits", 4)
    if dtype_of(node, 0) is None:
        data = with_last(data, None)
    elif dtype_of(node, 0) == "uint8" and data:
        data = with_last(data, product(data[-1], quotient(8, bits)))
    shape = gather(data, shape_of(node, 1), node.attr_int("gather_axis", 0))
    return outputs(dtype_of(node, 2), shape)


def shape_gather_packed(node: Node) -> Outputs:
    """Return rows of a packed table, each of K numbers."""
    indices = shape_of(node, 1)
    shape = None if indices is None else (*indices, stated_size(node, "K"))
    return outputs(named_dtype(node, "output_dtype", 16), shape)


OPERATORS: Mapping[str, Operator] = {
    **{
        op: Operator(per_output(ACTIVATION_OPS[op]))
        for op in (
            "Celu", "Elu", "Erf", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu",
            "Relu", "Selu", "Shrink", "Sigmoid", "Softplus", "Softsign", "Tanh",
            "ThresholdedRelu",
        )
    },
    **dict.fromkeys(
        (
            "Abs", "And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Ceil", "Equal",
            "Floor", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Neg",
            "Not", "Or", "Round", "Sign", "Where", "Xor",
        ),
        Operator(per_output(CMP)),
    ),
    "Acos": Operator(per_output(ADD + ASIN)),
    "Acosh": Operator(per_output(ASINH)),
    "Add": Operator(per_output(ADD)),
    "Affine": Operator(per_output(ACTIVATION_OPS["Affine"]), like(0)),
    "Asin": Operator(per_output(ASIN)),
    "Asinh": Operator(per_output(ASINH)),
    "Atan": Operator(per_output(ATAN)),
    "Atanh": Operator(per_output(ATANH)),
    "BitShift": Operator(per_output(CMP), demands={1: Demand(low=0, high=7)}),
    "Cast": Operator(per_output(MOV), demands={0: _text_of_number}),
    "CastLike": Operator(per_output(MOV)),
    "Clip": Operator(count_clip),
    "Cos": Operator(per_output(COS)),
    "Cosh": Operator(per_output(SINH)),
    "Div": Operator(per_output(DIV), demands={1: _divisor}),
    "Exp": Operator(per_output(EXP)),
    "Gelu": Operator(count_gelu),
    "ImageScaler": Operator(per_output(MUL + ADD), like(0)),
    "Log": Operator(per_output(LOG)),
    "Max": Operator(_per_further_input(CMP)),
    "Mean": Operator(count_mean),
    "Min": Operator(_per_further_input(CMP)),
    "Mod": Operator(per_output(MOD), demands={1: _divisor}),
    "Mul": Operator(per_output(MUL)),
    # The formula is a * softplus(b * x).
    "ParametricSoftplus": Operator(per_output(2 * MUL + ACTIVATION_OPS["Softplus"]), like(0)),
    "Pow": Operator(count_pow),
    "Reciprocal": Operator(per_output(DIV)),
    "Scale": Operator(per_output(MUL), like(0)),
    "ScaledTanh": Operator(per_output(ACTIVATION_OPS["ScaledTanh"]), like(0)),
    "Sin": Operator(per_output(SIN)),
    "Sinh": Operator(per_output(SINH)),
    "Sqrt": Operator(per_output(SQRT)),
    "Sub": Operator(per_output(ADD)),
    "Sum": Operator(_per_further_input(ADD)),
    "Swish": Operator(count_swish),
    "Tan": Operator(per_output(SIN + COS + DIV)),
    "com.microsoft::BiasGelu": Operator(per_output(ADD + ACTIVATION_OPS["Gelu"]), like(0)),
    # Four products and two sums make two elements.
    "com.microsoft::ComplexMul": Operator(per_output(2 * MUL + ADD), broadcast_of(0, 1)),
    "com.microsoft::ComplexMulConj": Operator(per_output(2 * MUL + ADD), broadcast_of(0, 1)),
    "com.microsoft::FastGelu": Operator(count_fast_gelu, like(0)),
    "com.microsoft::Gelu": Operator(per_output(ACTIVATION_OPS["Gelu"]), like(0)),
    "com.microsoft::MulInteger": Operator(count_mul_integer, broadcast_of(0, 2, dtype="int32")),
    "com.microsoft::QuickGelu": Operator(per_output(ACTIVATION_OPS["QuickGelu"]), like(0)),
    # The formula is silu(a * x).
    "com.microsoft::ScaledSiLU": Operator(per_output(MUL + ACTIVATION_OPS["Silu"]), like(0)),
    "DequantizeLinear": Operator(count_dequantize),
    "DynamicQuantizeLinear": Operator(per_input(DYNAMIC_QUANTIZE)),
    "QuantizeLinear": Operator(count_quantize),
    "com.microsoft::DequantizeBFP": Operator(per_output(MUL), shape_dequantize_bfp),
    "com.microsoft::DequantizeLinear": Operator(
        count_dequantize, lambda node: outputs(dtype_of(node, 1), shape_of(node, 0)),
    ),
    "com.microsoft::DequantizeWithOrder": Operator(
        per_input(MUL), lambda node: outputs(named_dtype(node, "to", 0), shape_of(node, 0)),
    ),
    "com.microsoft::GatherBlockQuantized": Operator(
        per_output(MOV + DEQUANTIZE_WEIGHT), shape_gather_blocks, demands={1: along("gather_axis")},
    ),
    "com.microsoft::GatherPacked": Operator(count_gather_packed, shape_gather_packed),
    "com.microsoft::QLinearAdd": Operator(
        per_output(2 * DEQUANTIZE + ADD + REQUANTIZE), broadcast_of(0, 3),
    ),
    "com.microsoft::QLinearConcat": Operator(
        per_output(DEQUANTIZE + REQUANTIZE), shape_qlinear_concat,
    ),
    "com.microsoft::QLinearLeakyRelu": Operator(
        per_output(DEQUANTIZE + ACTIVATION_OPS["LeakyRelu"] + REQUANTIZE), like(0),
    ),
    # The product of the scales is part of the last factor, so the operands are only shifted.
    "com.microsoft::QLinearMul": Operator(
        per_output(2 * ADD + MUL + REQUANTIZE), broadcast_of(0, 3),
    ),
    "com.microsoft::QLinearReduceMean": Operator(
        per_input(DEQUANTIZE + ADD, per_output=DIV + REQUANTIZE), shape_reduce,
    ),
    "com.microsoft::QLinearSigmoid": Operator(
        per_output(DEQUANTIZE + SIGMOID + REQUANTIZE), like(0),
    ),
    "com.microsoft::QLinearSoftmax": Operator(
        per_output(DEQUANTIZE + SOFTMAX + REQUANTIZE), like(0),
    ),
    "com.microsoft::QLinearWhere": Operator(
        per_output(CMP + DEQUANTIZE + REQUANTIZE), broadcast_of(0, 1, 4),
    ),
    "com.microsoft::QOrderedGelu": Operator(
        per_output(MUL + ACTIVATION_OPS["Gelu"] + SYMMETRIC_QUANTIZE), like(0),
    ),
    # The largest exponent of a block is found, and everything in it is scaled and clipped.
    "com.microsoft::QuantizeBFP": Operator(per_input(CMP + MUL + 2 * CMP), shape_quantize_bfp),
    "com.microsoft::QuantizeLinear": Operator(count_quantize, shape_quantize),
    "com.microsoft::QuantizeWithOrder": Operator(
        per_input(SYMMETRIC_QUANTIZE), like(0, dtype="int8"),
    ),
}  # fmt: skip
