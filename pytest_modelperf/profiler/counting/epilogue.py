"""The elementwise operations of operators on the operands and results of their contractions.

They are the bias, zero points and scales of quantized forms, and fused norms and rotations.
"""

from __future__ import annotations

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.cost import ADD, CMP, DIV, MUL, SQRT

QUANTIZE = DIV + ADD + 2 * CMP  # clip(x / scale + zero point)
DYNAMIC_QUANTIZE = 2 * CMP + QUANTIZE  # minimum and maximum first
REQUANTIZE = MUL + ADD + 2 * CMP  # clip(accumulator * scale + zero point)
DEQUANTIZE_WEIGHT = ADD + MUL  # (q - zero point) * scale, or a small float decoded and scaled
UNPACKED_FORMATS = frozenset({0, 1, 30})  # packed formats that hold floats as they are
ROTARY = 2 * MUL + ADD  # x * cos + rotated x * sin


def has_input(node: Node, index: int | None) -> bool:
    """Whether the node has an input at `index`; None: its operator takes no such input."""
    return index is not None and node.optional_input(index) is not None


def bias_ops(node: Node, bias: int | None, elements: int) -> int:
    """One ADD an element of the result, where the node has an input at `bias`."""
    return ADD * elements if has_input(node, bias) else 0


def scale_ops(node: Node, factor: str) -> int:
    """One MUL for an element, unless the factor that an attribute gives is 1."""
    return 0 if node.attr_float(factor, 1.0) == 1 else MUL


def zero_point_ops(node: Node, operand: int, zero_point: int | None) -> int:
    """One ADD an element of an operand that has a zero point.

    A constant operand is shifted once at load, as everything that depends on constants alone.
    """
    tensor = node.input(operand)
    if tensor.is_constant or not has_input(node, zero_point):
        return 0
    return ADD * tensor.size


def rms_norm_ops(rows: int, width: int) -> int:
    """`rows` times x / sqrt(mean(x^2) + epsilon) * scale over `width` elements."""
    return rows * (width * (MUL + ADD + MUL + MUL) + DIV + ADD + SQRT + DIV)
