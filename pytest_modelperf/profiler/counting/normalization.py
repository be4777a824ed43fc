"""The cost of normalizations: statistics of each row, then every element shifted and scaled.

Counting rule: the elements of a row share their statistics. Mean and variance are taken in two
passes, x - mean is kept, and its factor 1 / sqrt(variance + epsilon) is made once a row: ADD; ADD,
MUL, ADD; MUL an element, which with scale and bias is onnx_tool's weight of a LayerNormalization. A
softmax subtracts its maximum first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import ACTIVATION_OPS, SOFTMAX, activation_ops
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    DIV,
    LOG,
    MOV,
    MUL,
    POW,
    SQRT,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.epilogue import (
    DEQUANTIZE_WEIGHT,
    bias_ops,
    has_input,
    rms_norm_ops,
)
from pytest_modelperf.profiler.counting.per_element import elementwise, per_input_element
from pytest_modelperf.profiler.counting.reduction import norm_ops, rows_along

INVERSE_DEVIATION = ADD + SQRT + DIV  # 1 / sqrt(variance + epsilon)


def count_batch_normalization(node: Node) -> Cost:
    """(x - mean) * factor + bias, the factor scale / sqrt(variance + epsilon) made once a channel.

    In training the statistics come from the batch, and the running ones follow them.
    """
    size, channels = node.input(0).size, node.input(1).size
    activated = size * activation_ops(node.attr_str("activation", ""))
    running = [t for t in node.outputs[1:] if t is not None]
    if node.attr_int("training_mode", 0) or running:
        following = 2 * channels * (2 * MUL + ADD)
        return elementwise(_standardize(channels, size) + size * _AFFINE + following + activated)
    factors = channels * (INVERSE_DEVIATION + MUL)
    return elementwise(size * (ADD + MUL + ADD) + factors + activated)


def count_instance_normalization(node: Node) -> Cost:
    """A row is a channel of one sample."""
    size = node.input(0).size
    rows = node.input(0).dims[0] * node.input(1).size
    activated = size * activation_ops(node.attr_str("activation", ""))
    return elementwise(_standardize(rows, size) + size * _AFFINE + activated)


def count_group_normalization(node: Node, *, groups: str = "num_groups") -> Cost:
    """A row is a group of channels of one sample; `activation` 1 is Silu in a contrib form."""
    size = node.input(0).size
    rows = node.input(0).dims[0] * node.attr_int(groups, 1)
    activated = size * ACTIVATION_OPS["Silu"] if node.attr_int("activation", 0) == 1 else 0
    return elementwise(_standardize(rows, size) + size * _AFFINE + activated)


def count_skip_group_norm(node: Node) -> Cost:
    """A group normalization of x + skip + bias."""
    size = node.input(0).size
    added = size * ADD + bias_ops(node, 4, size)
    return elementwise(added + count_group_normalization(node, groups="groups").elementwise_ops)


def count_layer_normalization(node: Node) -> Cost:
    """A row is all dimensions from `axis` on; the bias is optional."""
    size = node.input(0).size
    return elementwise(_layer_norm(_rows_before(node), size, bias=has_input(node, 2)))


def count_rms_normalization(node: Node) -> Cost:
    """Each x / sqrt(mean(x^2) + epsilon) * scale; a row is all dimensions from `axis` on."""
    rows = _rows_before(node)
    return elementwise(rms_norm_ops(rows, node.input(0).size // rows if rows else 0))


def count_skip_layer_normalization(node: Node) -> Cost:
    """A layer normalization of input + skip + bias."""
    size = node.input(0).size
    added = size * ADD + bias_ops(node, 4, size)
    return elementwise(added + _layer_norm(rows_along(node, -1), size, bias=has_input(node, 3)))


def count_skip_rms_normalization(node: Node) -> Cost:
    """An RMS normalization of input + skip + bias."""
    size = node.input(0).size
    added = size * ADD + bias_ops(node, 3, size)
    return elementwise(added + rms_norm_ops(rows_along(node, -1), node.input(0).dims[-1]))


def count_embed_layer_normalization(node: Node, *, decode: int = 0) -> Cost:
    """A layer normalization of the sum of word, position and segment embeddings.

    Each is looked up, and decoded where they are quantized; the mask's length is counted.
    """
    rows, width = node.input(0).size, node.input(2).dims[-1]
    size = rows * width
    tables = 3 if has_input(node, 4) else 2
    mask = node.optional_input(7)
    return elementwise(
        size * (tables * (MOV + decode) + (tables - 1) * ADD)
        + _layer_norm(rows, size, bias=True)
        + (mask.size * CMP if mask is not None else 0)
    )


def count_qordered_layer_normalization(node: Node) -> Cost:
    """A layer normalization between 8-bit tensors: scaled before, rescaled and clipped after."""
    size = node.input(0).size
    bias = has_input(node, 3)
    quantization = MUL + DIV + 2 * CMP
    return elementwise(size * quantization + _layer_norm(_rows_before(node), size, bias=bias))


def count_gated_rms_norm(node: Node) -> Cost:
    """An RMS normalization of rows as long as the scale, times the activated gate."""
    size, width = node.input(0).size, node.input(1).size
    gate = activation_ops(node.attr_str("activation", "silu")) + MUL
    return elementwise(rms_norm_ops(size // width if width else 0, width) + size * gate)


def count_branchwise_rms_norm(node: Node) -> Cost:
    """An RMS normalization of each branch; the scale is optional."""
    size = node.input(0).size
    width = node.input(0).dims[-1] // max(1, node.attr_int("num_branches", 0))
    unscaled = 0 if has_input(node, 1) else size * MUL
    return elementwise(rms_norm_ops(size // width if width else 0, width) - unscaled)


def count_mean_variance_normalization(node: Node) -> Cost:
    """(x - mean) / deviation over `axes`, by default a row for each channel."""
    dims = node.input(0).dims
    axes = {axis % len(dims) for axis in node.attr_ints("axes", (0, 2, 3))}
    rows = prod(dim for axis, dim in enumerate(dims) if axis not in axes)
    return elementwise(_standardize(rows, node.input(0).size))


def count_lp_normalization(node: Node) -> Cost:
    """Each element over the norm of its row along an axis."""
    size = node.input(0).size
    rows = rows_along(node, node.attr_int("axis", -1))
    return elementwise(norm_ops(node.attr_int("p", 2), size, rows) + size * DIV)


def count_lrn(node: Node) -> Cost:
    """Each x / (bias + a * sum of `size` neighbours' squares)^beta, a square made once."""
    per_element = MUL + node.attr_int("size", 1) * ADD + MUL + ADD + POW + DIV
    return elementwise(node.input(0).size * per_element)


def count_log_softmax(node: Node) -> Cost:
    """Each x - max - log(sum(exp(x - max))), with one logarithm a row.

    Until opset 12 a row was everything from the axis on, which was 1 by default.
    """
    if node.opset and node.opset < 13:
        rows = prod(node.input(0).dims[: node.attr_int("axis", 1)])
    else:
        rows = rows_along(node, node.attr_int("axis", -1))
    return elementwise(node.input(0).size * ACTIVATION_OPS["LogSoftmax"] + rows * LOG)


_AFFINE = MUL + ADD  # * scale + bias


def _standardize(rows: int, size: int) -> int:
    """(x - mean) / sqrt(variance + epsilon) of `size` elements that lie in `rows`."""
    return size * (ADD + ADD + MUL + ADD + MUL) + rows * (2 * DIV + INVERSE_DEVIATION)


def _layer_norm(rows: int, size: int, *, bias: bool) -> int:
    return _standardize(rows, size) + size * (_AFFINE if bias else MUL)


def _rows_before(node: Node) -> int:
    """How many rows there are when a row is all dimensions from `axis` on."""
    dims = node.input(0).dims
    return prod(dims[: node.attr_int("axis", -1) % len(dims)])


COUNTERS: Mapping[str, Counter] = {
    "BatchNormalization": count_batch_normalization,
    "GroupNormalization": count_group_normalization,
    "Hardmax": per_input_element(CMP + MOV),
    "InstanceNormalization": count_instance_normalization,
    "LRN": count_lrn,
    "LayerNormalization": count_layer_normalization,
    "LogSoftmax": count_log_softmax,
    "LpNormalization": count_lp_normalization,
    "MeanVarianceNormalization": count_mean_variance_normalization,
    "RMSNormalization": count_rms_normalization,
    # ONNX Runtime's fusions put this one into the standard domain.
    "SimplifiedLayerNormalization": count_rms_normalization,
    "Softmax": per_input_element(SOFTMAX),
    "com.microsoft::BiasSoftmax": per_input_element(ADD + SOFTMAX),
    "com.microsoft::BranchwiseRMSNorm": count_branchwise_rms_norm,
    "com.microsoft::EmbedLayerNormalization": count_embed_layer_normalization,
    "com.microsoft::GatedRMSNorm": count_gated_rms_norm,
    "com.microsoft::GroupNorm": partial(count_group_normalization, groups="groups"),
    "com.microsoft::QEmbedLayerNormalization": partial(
        count_embed_layer_normalization, decode=DEQUANTIZE_WEIGHT
    ),
    "com.microsoft::QOrderedLayerNormalization": count_qordered_layer_normalization,
    "com.microsoft::SkipGroupNorm": count_skip_group_norm,
    "com.microsoft::SkipLayerNormalization": count_skip_layer_normalization,
    "com.microsoft::SkipSimplifiedLayerNormalization": count_skip_rms_normalization,
    "com.ms.internal.nhwc::BatchNormalization": count_batch_normalization,
    "com.ms.internal.nhwc::InstanceNormalization": count_instance_normalization,
    "com.ms.internal.nhwc::LRN": count_lrn,
}
