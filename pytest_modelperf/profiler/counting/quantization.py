"""The cost of quantizing, of dequantizing, and of computing on quantized tensors.

Counting rule of the QLinear family: operands become floats, (q - zero point) * scale; the
function is evaluated; the result is rescaled by a factor that is made once, shifted and clipped.
Look-up tables, which engines may use instead, are not assumed. A zero point left out costs nothing
in the two operators that every quantized model has.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import ACTIVATION_OPS, SIGMOID, SOFTMAX
from pytest_modelperf.profiler.counting.cost import ADD, CMP, DIV, MOV, MUL, Cost, Counter
from pytest_modelperf.profiler.counting.epilogue import (
    DEQUANTIZE_WEIGHT,
    DYNAMIC_QUANTIZE,
    QUANTIZE,
    REQUANTIZE,
    UNPACKED_FORMATS,
)
from pytest_modelperf.profiler.counting.per_element import (
    elementwise,
    per_input_element,
    per_output_element,
)

DEQUANTIZE = ADD + MUL  # (q - zero point) * scale
SYMMETRIC_QUANTIZE = DIV + 2 * CMP  # clip(x / scale)


def count_quantize(node: Node) -> Cost:
    """clip(x / scale + zero point)."""
    shifted = node.optional_input(2) is not None
    return elementwise(node.input(0).size * (QUANTIZE if shifted else SYMMETRIC_QUANTIZE))


def count_dequantize(node: Node) -> Cost:
    """(q - zero point) * scale."""
    shifted = node.optional_input(2) is not None
    return elementwise(node.input(0).size * (DEQUANTIZE if shifted else MUL))


def count_gather_packed(node: Node) -> Cost:
    """Rows of a packed table, decoded unless the table holds floats."""
    decode = 0 if node.attr_int("packed_type", 0) in UNPACKED_FORMATS else DEQUANTIZE_WEIGHT
    return elementwise(node.input(1).size * node.attr_int("K", 0) * (MOV + decode))


COUNTERS: Mapping[str, Counter] = {
    "DequantizeLinear": count_dequantize,
    "DynamicQuantizeLinear": per_input_element(DYNAMIC_QUANTIZE),
    "QuantizeLinear": count_quantize,
    "com.microsoft::DequantizeBFP": per_output_element(MUL),
    "com.microsoft::DequantizeLinear": count_dequantize,
    "com.microsoft::DequantizeWithOrder": per_input_element(MUL),
    "com.microsoft::GatherBlockQuantized": per_output_element(MOV + DEQUANTIZE_WEIGHT),
    "com.microsoft::GatherPacked": count_gather_packed,
    "com.microsoft::QLinearAdd": per_output_element(2 * DEQUANTIZE + ADD + REQUANTIZE),
    "com.microsoft::QLinearConcat": per_output_element(DEQUANTIZE + REQUANTIZE),
    "com.microsoft::QLinearLeakyRelu": per_output_element(
        DEQUANTIZE + ACTIVATION_OPS["LeakyRelu"] + REQUANTIZE
    ),
    # The product of the scales is part of the last factor: the operands are only shifted.
    "com.microsoft::QLinearMul": per_output_element(2 * ADD + MUL + REQUANTIZE),
    "com.microsoft::QLinearReduceMean": per_input_element(
        DEQUANTIZE + ADD, per_output=DIV + REQUANTIZE
    ),
    "com.microsoft::QLinearSigmoid": per_output_element(DEQUANTIZE + SIGMOID + REQUANTIZE),
    "com.microsoft::QLinearSoftmax": per_output_element(DEQUANTIZE + SOFTMAX + REQUANTIZE),
    "com.microsoft::QLinearWhere": per_output_element(CMP + DEQUANTIZE + REQUANTIZE),
    "com.microsoft::QOrderedGelu": per_output_element(
        MUL + ACTIVATION_OPS["Gelu"] + SYMMETRIC_QUANTIZE
    ),
    # The largest exponent of a block is found, and everything in it is scaled and clipped.
    "com.microsoft::QuantizeBFP": per_input_element(CMP + MUL + 2 * CMP),
    "com.microsoft::QuantizeLinear": count_quantize,
    "com.microsoft::QuantizeWithOrder": per_input_element(SYMMETRIC_QUANTIZE),
}
