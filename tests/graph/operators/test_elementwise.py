"""Arithmetic, activations and quantized forms: a weight for each output element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.graph.operators.cost import (
    ADD,
    CMP,
    DIV,
    EXP,
    LOG,
    MOV,
    MUL,
    POW,
    SQRT,
    TANH,
    Cost,
)
from pytest_modelperf.graph.operators.elementwise import OPERATORS
from pytest_modelperf.graph.operators.operator import ACTIVATION_OPS
from pytest_modelperf.graph.structure import Attribute, Tensor, UnknownShapeError
from tests.graph.operators.nodes import cost, node, ops, unknown


def constant(value: object) -> Tensor:
    array = np.asarray(value, dtype=np.float32)
    return Tensor("constant", "float32", array.shape, is_constant=True, value=array)


def unary(op: str, **attributes: Attribute) -> int:
    """Operations of 24 elements."""
    return ops(replace(node(op, [(2, 3, 4)], [(2, 3, 4)]), attributes=attributes))


def test_operands_are_broadcast_to_the_output_for_nothing() -> None:
    assert ops(node("Add", [(8, 1), (1, 5)], [(8, 5)])) == 40 * ADD
    assert ops(node("Div", [(8, 5), ()], [(8, 5)])) == 40 * DIV
    assert ops(node("Where", [(8, 1), (5,), ()], [(8, 5)])) == 40 * CMP


@pytest.mark.parametrize(
    ("op", "each"),
    [
        ("Abs", 1), ("Cast", 1), ("Ceil", 1), ("Cos", 39), ("Equal", 1), ("Exp", 32),
        ("HardSigmoid", 4), ("LeakyRelu", 2), ("Log", 43), ("Neg", 1), ("Not", 1), ("PRelu", 2),
        ("Reciprocal", 4), ("Relu", 1), ("Sin", 39), ("Softplus", 76), ("Sqrt", 24),
        ("Tanh", 38),
    ],
)  # fmt: skip
def test_weights_are_those_of_onnx_tool(op: str, each: int) -> None:
    assert unary(op) == 24 * each


@pytest.mark.parametrize(
    "op",
    [
        "Add", "And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor",
        "CastLike", "Floor", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual",
        "Mul", "Or", "Round", "Scale", "Sign", "Sub", "ThresholdedRelu", "Where", "Xor",
    ],
)  # fmt: skip
def test_one_instruction_is_one_operation(op: str) -> None:
    assert unary(op) == 24


def test_confirmed_wrong_9_erf_is_not_free() -> None:
    polynomial = 5 * MUL + 4 * ADD
    assert unary("Erf") > 24 * (EXP + polynomial)
    assert unary("Gelu") > unary("Erf")


@pytest.mark.parametrize(
    ("exponent", "each"),
    [
        (2, MUL), (3, 2 * MUL), (4, 2 * MUL), (0.5, SQRT), (-1, DIV), (-2, MUL + DIV),
        (-0.5, SQRT + DIV),
        (1, MOV), (2.5, POW), (0.75, POW),
    ],
)  # fmt: skip
def test_confirmed_wrong_9_a_constant_power_costs_what_it_compiles_to(
    exponent: float, each: int
) -> None:
    assert ops(node("Pow", [(2, 3), constant(exponent)], [(2, 3)])) == 6 * each
    assert ops(node("Pow", [(2, 3), constant([exponent])], [(2, 3)])) == 6 * each


def test_a_power_that_is_not_one_constant_number_stays_a_power() -> None:
    assert ops(node("Pow", [(2, 3), ()], [(2, 3)])) == 6 * POW
    assert ops(node("Pow", [(2, 3), constant([2, 2, 2])], [(2, 3)])) == 6 * POW


@pytest.mark.parametrize(
    ("op", "each"),
    [
        ("Celu", 2 * CMP + DIV + EXP + ADD + MUL + ADD),
        ("Mish", (EXP + ADD + LOG) + TANH + MUL),
        ("Selu", CMP + EXP + MUL + ADD + MUL),
    ],
)
def test_confirmed_wrong_14_activations(op: str, each: int) -> None:
    assert unary(op) == 24 * each


def test_confirmed_wrong_14_mean_of_three_adds_twice_and_divides_once() -> None:
    assert ops(node("Mean", [(2, 3), (2, 3), (1, 3)], [(2, 3)])) == 6 * (2 * ADD + DIV)


@pytest.mark.parametrize("op", ["Max", "Min", "Sum"])
def test_n_operands_take_n_minus_1_operations(op: str) -> None:
    for n in (1, 2, 5):
        assert ops(node(op, [(2, 3)] * n, [(2, 3)])) == 6 * (n - 1)


def test_clip_compares_with_the_bounds_that_are_given() -> None:
    x, bound = (2, 3), ()
    assert ops(node("Clip", [x, bound, bound], [x])) == 12 * CMP
    assert ops(node("Clip", [x, None, bound], [x])) == 6 * CMP
    assert ops(node("Clip", [x], [x], opset=6, min=0.0, max=6.0)) == 12 * CMP
    assert ops(node("Clip", [x], [x])) == 0


def test_gelu_by_tanh_costs_as_the_fused_one() -> None:
    fused = ops(node("com.microsoft::FastGelu", [(2, 3, 4)], [(2, 3, 4)]))
    assert unary("Gelu", approximate="tanh") == fused
    assert unary("Gelu", approximate="none") == unary("com.microsoft::Gelu") != fused


def test_a_bias_that_is_fused_in_costs_one_addition() -> None:
    x = (2, 3, 4)
    alone = ops(node("com.microsoft::FastGelu", [x, None], [x]))
    assert ops(node("com.microsoft::FastGelu", [x, (4,)], [x])) == alone + 24 * ADD
    assert unary("com.microsoft::BiasGelu") == unary("com.microsoft::Gelu") + 24 * ADD


def test_swish_multiplies_by_alpha_unless_it_is_1() -> None:
    assert unary("Swish", alpha=2.0) - unary("Swish") == 24 * MUL
    assert unary("Swish") == unary("Sigmoid") + 24 * MUL
    assert unary("com.microsoft::QuickGelu") == unary("Swish", alpha=1.702)


def test_composed_functions_cost_more_than_their_parts() -> None:
    assert unary("Tan") == unary("Sin") + unary("Cos") + 24 * DIV
    assert unary("Mod") == 24 * (DIV + CMP + MUL + ADD)
    assert unary("Asinh") == unary("Acosh") == 24 * (MUL + ADD + SQRT + ADD + LOG)
    assert unary("Acos") > unary("Asin") > unary("Atan")
    assert unary("Sinh") == unary("Cosh") == unary("Exp") + 24 * (DIV + ADD + MUL)
    assert unary("Atanh") == 24 * (2 * ADD + DIV + LOG + MUL)
    assert unary("ParametricSoftplus") == unary("Softplus") + 48 * MUL


def test_a_complex_product_is_four_products_and_two_sums() -> None:
    for op in ("com.microsoft::ComplexMul", "com.microsoft::ComplexMulConj"):
        assert ops(node(op, [(5, 2), (5, 2)], [(5, 2)])) == 5 * (4 * MUL + 2 * ADD)


def test_integers_are_shifted_only_if_they_have_zero_points() -> None:
    x, zero = (2, 3), ()
    assert ops(node("com.microsoft::MulInteger", [x, None, x], [x])) == 6 * MUL
    assert ops(node("com.microsoft::MulInteger", [x, zero, x], [x])) == 6 * (ADD + MUL)
    assert ops(node("com.microsoft::MulInteger", [x, zero, x, zero], [x])) == 6 * (2 * ADD + MUL)


def test_an_unknown_output_is_named_and_not_guessed() -> None:
    with pytest.raises(UnknownShapeError, match="lost"):
        ops(node("Relu", [(2, 3)], [unknown("lost")]))


@given(op=st.sampled_from(sorted(OPERATORS)), one=st.integers(0, 9), other=st.integers(0, 9))
def test_operations_are_additive_over_the_batch(op: str, one: int, other: int) -> None:
    def count(batch: int) -> Cost:
        x = (batch, 3, 4)
        return cost(node(op, [x, x, x], [x]))

    both = count(one + other)
    assert both.elementwise_ops == count(one).elementwise_ops + count(other).elementwise_ops
    assert both.macs == 0


@pytest.mark.parametrize("op", OPERATORS)
def test_no_operator_that_computes_is_free(op: str) -> None:
    x = (2, 3, 4)
    assert ops(node(op, [x, x, x], [x], K=1)) >= 24


DEQUANTIZE = ADD + MUL
REQUANTIZE = MUL + ADD + 2 * CMP
X, S = (2, 3, 4), ()


@pytest.mark.parametrize("domain", ["", "com.microsoft::"])
def test_a_zero_point_costs_an_addition_if_there_is_one(domain: str) -> None:
    quantize, dequantize = domain + "QuantizeLinear", domain + "DequantizeLinear"
    assert ops(node(quantize, [X, S], [X])) == 24 * (DIV + 2 * CMP)
    assert ops(node(quantize, [X, S, S], [X])) == 24 * (DIV + ADD + 2 * CMP)
    assert ops(node(dequantize, [X, S], [X])) == 24 * MUL
    assert ops(node(dequantize, [X, S, S], [X])) == 24 * (ADD + MUL)


def test_confirmed_wrong_14_dynamic_quantization_finds_its_range_first() -> None:
    call = node("DynamicQuantizeLinear", [X], [X, S, S])
    assert ops(call) == 24 * (2 * CMP + DIV + ADD + 2 * CMP)


def test_quantized_operands_are_broadcast() -> None:
    inputs = [(2, 1, 4), S, S, (3, 1), S, S, S, S]
    add = node("com.microsoft::QLinearAdd", inputs, [X])
    assert ops(add) == 24 * (2 * DEQUANTIZE + ADD + REQUANTIZE)
    mul = node("com.microsoft::QLinearMul", inputs, [X])
    assert ops(mul) == 24 * (2 * ADD + MUL + REQUANTIZE)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("QLinearLeakyRelu", "LeakyRelu"),
        ("QLinearSigmoid", "Sigmoid"),
        ("QLinearSoftmax", "Softmax"),
    ],
)
def test_a_quantized_function_costs_its_float_twin_and_the_way_there_and_back(
    op: str, function: str
) -> None:
    call = node("com.microsoft::" + op, [X, S, S, S, S], [X])
    assert ops(call) == 24 * (DEQUANTIZE + ACTIVATION_OPS[function] + REQUANTIZE)


def test_moves_between_scales_are_rescaled() -> None:
    concat = node("com.microsoft::QLinearConcat", [S, S, (3,), S, S, (4,), S, S], [(7,)])
    assert ops(concat) == 7 * (DEQUANTIZE + REQUANTIZE)
    where = node("com.microsoft::QLinearWhere", [X, X, S, S, X, S, S, S, S], [X])
    assert ops(where) == 24 * (CMP + DEQUANTIZE + REQUANTIZE)


def test_a_quantized_mean_gathers_floats() -> None:
    call = node("com.microsoft::QLinearReduceMean", [X, S, S, S, S], [(2, 3, 1)])
    assert ops(call) == 24 * (DEQUANTIZE + ADD) + 6 * (DIV + REQUANTIZE)


def test_block_floating_point_finds_an_exponent_scales_and_clips() -> None:
    bfp = node("com.microsoft::QuantizeBFP", [X], [(99,), (3,), (3,)], bfp_type=0, block_dim=1)
    assert ops(bfp) == 24 * (CMP + MUL + 2 * CMP)
    back = node("com.microsoft::DequantizeBFP", [(99,), (3,), (3,)], [X])
    assert ops(back) == 24 * MUL


def test_a_quantized_embedding_decodes_only_what_it_looks_up() -> None:
    call = node("com.microsoft::GatherBlockQuantized", [(9999, 64), (5,), (9999, 2)], [(5, 64)])
    assert ops(call) == 320 * (MOV + DEQUANTIZE)


def test_a_packed_table_decodes_what_it_looks_up_unless_it_holds_floats() -> None:
    inputs = [(9999, 36), (2, 5)]
    packed = node("com.microsoft::GatherPacked", inputs, [unknown()], packed_type=2, K=64)
    assert ops(packed) == 640 * (MOV + DEQUANTIZE)
    floats = node("com.microsoft::GatherPacked", inputs, [unknown()], packed_type=1, K=64)
    assert ops(floats) == 640 * MOV
