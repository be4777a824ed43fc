"""Quantized tensors: the way to few bits and back, and functions between them."""

from __future__ import annotations

import pytest

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import ACTIVATION_OPS
from pytest_modelperf.profiler.counting.cost import ADD, CMP, DIV, MOV, MUL
from pytest_modelperf.profiler.counting.quantization import COUNTERS
from tests.profiler.counting.nodes import node, unknown

DEQUANTIZE = ADD + MUL
REQUANTIZE = MUL + ADD + 2 * CMP
X, S = (2, 3, 4), ()


def ops(call: Node) -> int:
    cost = COUNTERS[call.qualified_op](call)
    assert cost.contractions == ()
    return cost.elementwise_ops


@pytest.mark.parametrize("domain", ["", "com.microsoft::"])
def test_a_zero_point_costs_an_addition_where_there_is_one(domain: str) -> None:
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
