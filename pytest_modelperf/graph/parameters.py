"""Which stored constants are parameters, how many each holds, and which number is their zero.

A parameter is a number that training found. Settings of operators are none: integers used as
shapes, axes or indices, and operands that are attributes in older opsets (the scales of a Resize,
the bounds of a Clip), because a newer opset must not change the count. Packed weights count by
their content: a byte of MatMulNBits holds two.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pytest_modelperf.graph.structure import BITS, Node, ZeroPoint

# Operands that are settings, by operator.
_SETTINGS: Mapping[str, frozenset[int]] = {
    "Clip": frozenset({1, 2}),
    "Dropout": frozenset({1, 2}),
    "NonMaxSuppression": frozenset({2, 3, 4}),
    "OneHot": frozenset({1, 2}),
    "Pad": frozenset({1, 2, 3}),
    "Range": frozenset({0, 1, 2}),
    "Resize": frozenset({1, 2, 3}),
    "Upsample": frozenset({1}),
}

_NEVER = frozenset({"bool", "string", "int64", "uint64", "uint32"})

# Operands that are quantized biases, or weights to be dequantized, if they are 32-bit integers.
_INTEGER_WEIGHTS: Mapping[str, frozenset[int]] = {
    "DequantizeLinear": frozenset({0}),
    "QLinearConv": frozenset({8}),
    "QGemm": frozenset({6}),
}

# Operands whose bytes pack several weights, by operator.
_PACKED: Mapping[str, frozenset[int]] = {
    "MatMulNBits": frozenset({1, 3}),
    "MatMulNBitsMlp": frozenset({3, 6}),
    "MatMulNBitsQkv": frozenset({3, 6, 9}),
    "MatMulBnb4": frozenset({1}),
    "MatMulFpQ4": frozenset({1}),
    "GatherBlockQuantized": frozenset({0, 3}),
    "QMoE": frozenset({2, 5, 8, 11, 12, 13}),
}
# The layer of an expert that each of QMoE's operands belongs to, which may have its own bits.
_EXPERT_LAYERS: Mapping[int, int] = {2: 1, 5: 2, 8: 3, 11: 1, 12: 2, 13: 3}

# Quantized operands, with the operand that is their zero point and its axis.
_ZERO_POINTS: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "DequantizeLinear": {0: (2, 1)},
    "ConvInteger": {1: (3, 0)},
    "QLinearConv": {3: (5, 0)},
    "MatMulInteger": {0: (2, 0), 1: (3, 1)},
    "QLinearMatMul": {0: (2, 0), 3: (5, 1)},
    "MatMulIntegerToFloat": {1: (5, 1)},
    "DynamicQuantizeMatMul": {1: (3, 1)},
    "QGemm": {3: (5, 1)},
    "QAttention": {1: (7, 1)},
    "QLinearAdd": {0: (2, 1), 3: (5, 1)},
    "QLinearMul": {0: (2, 1), 3: (5, 1)},
}


def find_zero_point(node: Node, index: int) -> ZeroPoint | None:
    """The zero point of the stored constant that `node` takes at `index`."""
    place = _ZERO_POINTS.get(node.op_type, {}).get(index)
    tensor = None if place is None else node.optional_input(place[0])
    if place is None or tensor is None or len(tensor.weights) != 1:
        return None
    axis = node.attr_int("axis", place[1])
    return ZeroPoint(tensor.weights[0], axis, node.attr_int("block_size", 0) or None)


def count_params(
    op_type: str,
    index: int,
    dtype: str,
    shape: tuple[int, ...],
    attributes: Mapping[str, object],
) -> int:
    """How many parameters a stored constant holds for an operator that takes it at `index`."""
    if dtype in _NEVER or index in _SETTINGS.get(op_type, ()):
        return 0
    if dtype == "int32" and index not in _INTEGER_WEIGHTS.get(op_type, ()):
        return 0
    size = prod(shape)
    if dtype == "uint8" and index in _PACKED.get(op_type, ()):
        return _unpacked(index, size, attributes)
    return size


def _unpacked(index: int, size: int, attributes: Mapping[str, object]) -> int:
    of_experts = attributes.get("expert_weight_bits", 4)
    of_layer = attributes.get(f"fc{_EXPERT_LAYERS.get(index)}_expert_weight_bits", of_experts)
    bits = attributes.get("bits", of_layer)
    rows, columns = attributes.get("K"), attributes.get("N")
    if index == 1 and size and isinstance(rows, int) and isinstance(columns, int):
        # K is padded to whole blocks in the file; the padding is no parameter.
        return rows * columns
    return size * BITS["uint8"] // bits if isinstance(bits, int) and 0 < bits < 8 else size
