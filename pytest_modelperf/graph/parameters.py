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
INTEGER_WEIGHTS: Mapping[str, frozenset[int]] = {
    "DequantizeLinear": frozenset({0}),
    "QLinearConv": frozenset({8}),
    "QGemm": frozenset({6}),
}

# Operands whose bytes pack several weights, by operator.
_PACKED: Mapping[str, frozenset[int]] = {
    "MatMulNBits": frozenset({1, 3}),
    "MatMulNBitsQLoRA": frozenset({1, 3, 5}),
    "MatMulNBitsMlp": frozenset({3, 6}),
    "MatMulNBitsQkv": frozenset({3, 6, 9}),
    "MatMulBnb4": frozenset({1}),
    "MatMulFpQ4": frozenset({1}),
    "GatherBlockQuantized": frozenset({0, 3}),
    "QMoE": frozenset({2, 5, 8, 11, 12, 13}),
}
# The layer of an expert that each of QMoE's operands belongs to, which may have its own bits.
_EXPERT_LAYERS: Mapping[int, int] = {2: 1, 5: 2, 8: 3, 11: 1, 12: 2, 13: 3}

# Operands in a format that an attribute gives by its number.
_FORMATS: Mapping[str, Mapping[int, str]] = {
    "GatherPacked": {0: "packed_type"},
    "MatMulPacked": {1: "packed_type"},
    "MoEPacked": {2: "gate_type", 3: "up_type", 4: "down_type"},
}
# The bytes that 256 weights take in each format, which is what the kernel of GatherPacked asks for.
_BYTES_OF_256: Mapping[object, int] = {
    0: 1024, 1: 512, 2: 144, 6: 176, 8: 272, 13: 176, 14: 210, 16: 66, 17: 74, 18: 98, 20: 144,
    22: 82, 23: 136, 30: 512, 42: 72,
}  # fmt: skip

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
    if dtype == "int32" and index not in INTEGER_WEIGHTS.get(op_type, ()):
        return 0
    size = prod(shape)
    if dtype == "uint8" and index in _PACKED.get(op_type, ()):
        is_adapter = op_type == "MatMulNBitsQLoRA" and index != 1
        bits = attributes.get("lora_bits", 8) if is_adapter else attributes.get("bits")
        return _unpacked(index, size, attributes, bits)
    if dtype == "uint8" and index in _FORMATS.get(op_type, ()):
        return size * 256 // _BYTES_OF_256.get(attributes.get(_FORMATS[op_type][index]), 256)
    return size


def _unpacked(index: int, size: int, attributes: Mapping[str, object], bits: object) -> int:
    if bits is None:
        of_experts = attributes.get("expert_weight_bits", 4)
        bits = attributes.get(f"fc{_EXPERT_LAYERS.get(index)}_expert_weight_bits", of_experts)
    rows, columns = attributes.get("K"), attributes.get("N")
    if index == 1 and size and isinstance(rows, int) and isinstance(columns, int):
        # K is padded to whole blocks in the file; the padding is no parameter.
        return rows * columns
    return size * BITS["uint8"] // bits if isinstance(bits, int) and 0 < bits < 8 else size
