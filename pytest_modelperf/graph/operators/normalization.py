"""Rows of elements: normalized, or reduced to sums, extremes and the like.

Counting rule: the elements of a row share their statistics. Mean and variance take two passes,
x - mean is kept, and its factor 1 / sqrt(variance + epsilon) is computed once per row: ADD; ADD,
MUL, ADD; MUL per element. With scale and bias, this is onnx_tool's weight of a LayerNormalization.
A softmax subtracts its maximum first.

A reduction takes one operation for each gathered element, the first included, and then the
operations on each result. A selection of the k largest keeps them in a heap, and
distinct elements are found by sorting: n log2 k and n log2 n comparisons, logarithms rounded up
(Knuth, The Art of Computer Programming, volume 3, section 5.2.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from pytest_modelperf.graph.operators.cost import ADD, CMP, DIV, EXP, LOG, MOV, MUL, POW, SQRT, Cost
from pytest_modelperf.graph.operators.operator import (
    ACTIVATION_OPS,
    DEQUANTIZE_WEIGHT,
    LENGTH,
    NO_LENGTH,
    ONE,
    SOFTMAX,
    ZERO,
    Operator,
    activation_ops,
    bias_ops,
    ceil_log2,
    elements,
    elementwise,
    norm_ops,
    per_input,
    per_output,
    rms_norm_ops,
    rows_of,
)
from pytest_modelperf.graph.shape_rules import (
    Outputs,
    OutputType,
    dim,
    dtype_of,
    has_input,
    like,
    outputs,
    reduce,
    shape_of,
    with_last,
)
from pytest_modelperf.graph.structure import Node, Shape

INVERSE_DEVIATION = ADD + SQRT + DIV  # 1 / sqrt(variance + epsilon)


def count_batch_norm(node: Node) -> Cost:
    """Count (x - mean) * factor + bias, where factor is scale / sqrt(variance + epsilon)."""
    # The factor is computed once per channel. In training the statistics come from the batch, and
    # update the running ones.
    size, channels = node.input(0).size, node.input(1).size
    activated = size * activation_ops(node.attr_str("activation", ""))
    running = [t for t in node.outputs[1:] if t is not None]
    if node.attr_int("training_mode", 0) or running:
        following = 2 * channels * (2 * MUL + ADD)
        return elementwise(_standardize(channels, size) + size * _AFFINE + following + activated)
    factors = channels * (INVERSE_DEVIATION + MUL)
    return elementwise(size * (ADD + MUL + ADD) + factors + activated)


def count_instance_norm(node: Node) -> Cost:
    """Count a normalization whose rows are channels of one sample."""
    size = node.input(0).size
    rows = node.input(0).dims[0] * node.input(1).size
    activated = size * activation_ops(node.attr_str("activation", ""))
    return elementwise(_standardize(rows, size) + size * _AFFINE + activated)


def count_group_norm(
    node: Node, *, groups: str = "num_groups", skip_bias: int | None = None
) -> Cost:
    # With a `skip_bias`, its input is x + skip + bias. An `activation` of 1, which com.microsoft's
    # operators have, is Silu.
    size = node.input(0).size
    rows = node.input(0).dims[0] * node.attr_int(groups, 1)
    activated = size * ACTIVATION_OPS["Silu"] if node.attr_int("activation", 0) == 1 else 0
    added = _skipped(node, skip_bias)
    return elementwise(added + _standardize(rows, size) + size * _AFFINE + activated)


def count_layer_norm(
    node: Node, *, bias: int = 2, skip_bias: int | None = None, per_element: int = 0
) -> Cost:
    """Count a normalization whose rows are all dimensions from `axis` on, with optional bias."""
    size = node.input(0).size
    normed = _layer_norm(_rows_before(node), size, bias=has_input(node, bias))
    return elementwise(_skipped(node, skip_bias) + size * per_element + normed)


def count_rms_norm(node: Node, *, skip_bias: int | None = None) -> Cost:
    """Count x / sqrt(mean(x^2) + epsilon) * scale over all dimensions from `axis` on."""
    rows = _rows_before(node)
    normed = rms_norm_ops(rows, node.input(0).size // rows if rows else 0)
    return elementwise(_skipped(node, skip_bias) + normed)


def _skipped(node: Node, bias: int | None) -> int:
    """Count the sum x + skip + bias if the node has a skip, which has a place for a bias."""
    size = node.input(0).size
    return 0 if bias is None else size * ADD + bias_ops(node, bias, size)


def count_embed_layer_norm(node: Node, *, decode: int = 0) -> Cost:
    """Count a layer normalization of the sum of word, position and segment embeddings."""
    # Each is looked up, and decoded if it is quantized. If there is a mask, the operator counts its
    # elements.
    rows, width = node.input(0).size, node.input(2).dims[-1]
    size = rows * width
    tables = 3 if has_input(node, 4) else 2
    mask = node.optional_input(7)
    return elementwise(
        size * (tables * (MOV + decode) + (tables - 1) * ADD)
        + _layer_norm(rows, size, bias=True)
        + (mask.size * CMP if mask is not None else 0)
    )


def count_gated_rms_norm(node: Node) -> Cost:
    """Count an RMS normalization of rows as long as the scale, times the activated gate."""
    size, width = node.input(0).size, node.input(1).size
    gate = activation_ops(node.attr_str("activation", "silu")) + MUL
    return elementwise(rms_norm_ops(size // width if width else 0, width) + size * gate)


def count_branchwise_rms_norm(node: Node) -> Cost:
    size = node.input(0).size
    width = node.input(0).dims[-1] // max(1, node.attr_int("num_branches", 0))
    unscaled = 0 if has_input(node, 1) else size * MUL
    return elementwise(rms_norm_ops(size // width if width else 0, width) - unscaled)


def count_mean_variance(node: Node) -> Cost:
    """Count (x - mean) / deviation over `axes`, by default with a row for each channel."""
    dims = node.input(0).dims
    axes = {axis % len(dims) for axis in node.attr_ints("axes", (0, 2, 3))}
    rows = prod(dim for axis, dim in enumerate(dims) if axis not in axes)
    return elementwise(_standardize(rows, node.input(0).size))


def count_lp_norm(node: Node) -> Cost:
    """Count the division of each element by the norm of its row along an axis."""
    size = node.input(0).size
    rows = rows_along(node, node.attr_int("axis", -1))
    return elementwise(norm_ops(node.attr_int("p", 2), size, rows) + size * DIV)


def count_lrn(node: Node) -> Cost:
    """Count x / (bias + a * sum of `size` neighbours' squares)^beta, each square once."""
    per_element = MUL + node.attr_int("size", 1) * ADD + MUL + ADD + POW + DIV
    return elementwise(node.input(0).size * per_element)


def count_log_softmax(node: Node) -> Cost:
    """Count x - max - log(sum(exp(x - max))), with one logarithm per row."""
    # Until opset 12 a row was everything from the axis on, which was 1 by default.
    if node.opset and node.opset < 13:
        rows = prod(node.input(0).dims[: node.attr_int("axis", 1)])
    else:
        rows = rows_along(node, node.attr_int("axis", -1))
    return elementwise(node.input(0).size * ACTIVATION_OPS["LogSoftmax"] + rows * LOG)


_AFFINE = MUL + ADD  # * scale + bias


def _standardize(rows: int, size: int) -> int:
    return size * (ADD + ADD + MUL + ADD + MUL) + rows * (2 * DIV + INVERSE_DEVIATION)


def _layer_norm(rows: int, size: int, *, bias: bool) -> int:
    return _standardize(rows, size) + size * (_AFFINE if bias else MUL)


def _rows_before(node: Node) -> int:
    dims = node.input(0).dims
    return prod(dims[: node.attr_int("axis", -1) % len(dims)])


def rows_along(node: Node, axis: int) -> int:
    """Return the number of vectors of the first input along one axis."""
    dims = node.input(0).dims
    axis %= len(dims)
    return prod(dims[:axis]) * prod(dims[axis + 1 :])


def shape_skip_layer_norm(node: Node) -> Outputs:
    result = OutputType(dtype_of(node, 0), shape_of(node, 0))
    statistic = OutputType("float32", with_last(shape_of(node, 0), 1))
    return result, statistic, statistic, result


def shape_layer_norm(node: Node, statistics: int) -> Outputs:
    """Return the outputs, of the scale's type. The normalized dimensions begin at `axis`."""
    shape, axis = shape_of(node, 0), node.attr_int("axis", -1)
    means: Shape | None = None
    if shape is not None and -len(shape) <= axis < len(shape):
        begin = axis % len(shape)
        means = shape[:begin] + (1,) * (len(shape) - begin)
    return OutputType(dtype_of(node, 1), shape), *outputs("float32", *[means] * statistics)


def shape_embed_layer_norm(node: Node, dtype: int = 2) -> Outputs:
    batch, length = dim(shape_of(node, 0), 0), dim(shape_of(node, 0), 1)
    embedded = OutputType(dtype_of(node, dtype), (batch, length, dim(shape_of(node, 2), 1)))
    return embedded, OutputType("int32", (batch,)), embedded


def count_top_k(node: Node) -> Cost:
    """Count the comparisons of every element with a heap of k, and moves of values and indices."""
    k = node.output().dims[node.attr_int("axis", -1)]
    return elementwise(
        node.input(0).size * max(1, ceil_log2(k)) * CMP + elements(node.outputs) * MOV
    )


def count_unique(node: Node) -> Cost:
    """Count a sort along `axis`, and comparisons of neighbours. Copies are known only in a run."""
    x = node.input(0)
    slices = x.dims[node.attr_int("axis", 0)] if "axis" in node.attributes else x.size
    return elementwise(x.size * (ceil_log2(slices) + 1) * CMP)


def count_all_finite(node: Node) -> Cost:
    return elementwise(elements(node.inputs) * CMP)


def _count_l1(node: Node) -> Cost:
    return elementwise(norm_ops(1, node.input(0).size, 0))


def _count_l2(node: Node) -> Cost:
    return elementwise(norm_ops(2, node.input(0).size, node.output().size))


def shape_reduce(node: Node) -> Outputs:
    keeps_dims = node.attr_int("keepdims", 1) != 0
    shape = reduce(shape_of(node, 0), node.attr_ints("axes"), keeps_dims=keeps_dims)
    return outputs(dtype_of(node, 0), shape)


def shape_reduce_to_32_bits(node: Node) -> Outputs:
    dtype = {"int8": "int32", "uint8": "uint32"}.get(dtype_of(node, 0) or "")
    return outputs(dtype, shape_reduce(node)[0].shape)


def shape_unique(node: Node) -> Outputs:
    size = dim(shape_of(node, 0), 0)
    return OutputType(dtype_of(node, 0), (None,)), *outputs("int64", (size,), (None,))


OPERATORS: Mapping[str, Operator] = {
    "BatchNormalization": Operator(count_batch_norm),
    "GroupNormalization": Operator(count_group_norm),
    "Hardmax": Operator(per_input(CMP + MOV)),
    "InstanceNormalization": Operator(count_instance_norm),
    "LRN": Operator(count_lrn),
    "LayerNormalization": Operator(count_layer_norm, partial(shape_layer_norm, statistics=2)),
    "LogSoftmax": Operator(count_log_softmax),
    "LpNormalization": Operator(count_lp_norm),
    "MeanVarianceNormalization": Operator(count_mean_variance),
    "RMSNormalization": Operator(count_rms_norm),
    # ONNX Runtime's fusions put this one into the standard domain.
    "SimplifiedLayerNormalization": Operator(
        count_rms_norm, partial(shape_layer_norm, statistics=1),
    ),
    "Softmax": Operator(per_input(SOFTMAX)),
    "com.microsoft::BiasSoftmax": Operator(per_input(ADD + SOFTMAX), like(0)),
    "com.microsoft::BranchwiseRMSNorm": Operator(count_branchwise_rms_norm, like(0)),
    "com.microsoft::EmbedLayerNormalization": Operator(
        count_embed_layer_norm, shape_embed_layer_norm,
        demands={0: rows_of(2), 1: rows_of(4), 7: ONE, 8: rows_of(3)},
    ),
    "com.microsoft::GatedRMSNorm": Operator(count_gated_rms_norm, like(0)),
    "com.microsoft::GroupNorm": Operator(partial(count_group_norm, groups="groups"), like(0)),
    "com.microsoft::QEmbedLayerNormalization": Operator(
        partial(count_embed_layer_norm, decode=DEQUANTIZE_WEIGHT),
        partial(shape_embed_layer_norm, dtype=8),
        demands={0: rows_of(2), 1: rows_of(4), 7: ONE},
    ),
    # 8-bit tensors are scaled before, then rescaled and clipped.
    "com.microsoft::QOrderedLayerNormalization": Operator(
        partial(count_layer_norm, bias=3, per_element=MUL + DIV + 2 * CMP), like(0),
    ),
    "com.microsoft::SkipGroupNorm": Operator(
        partial(count_group_norm, groups="groups", skip_bias=4), like(0, 0),
    ),
    "com.microsoft::SkipLayerNormalization": Operator(
        partial(count_layer_norm, bias=3, skip_bias=4), shape_skip_layer_norm,
    ),
    "com.microsoft::SkipSimplifiedLayerNormalization": Operator(
        partial(count_rms_norm, skip_bias=3), shape_skip_layer_norm,
    ),
    "com.ms.internal.nhwc::BatchNormalization": Operator(count_batch_norm, like(0, 3, 4)),
    "com.ms.internal.nhwc::InstanceNormalization": Operator(count_instance_norm, like(0)),
    "com.ms.internal.nhwc::LRN": Operator(count_lrn, like(0)),
    **dict.fromkeys(("ArgMax", "ArgMin", "NonZero"), Operator(per_input(CMP))),
    "CumProd": Operator(per_output(MUL), demands={1: ZERO}),
    "CumSum": Operator(per_output(ADD), demands={1: ZERO}),
    "ReduceL1": Operator(_count_l1, demands={1: NO_LENGTH}),
    "ReduceL2": Operator(_count_l2, demands={1: NO_LENGTH}),
    "ReduceLogSum": Operator(per_input(ADD, per_output=LOG), demands={1: NO_LENGTH}),
    # log(sum(exp(x - max))) + max: without subtracting the maximum, exp overflows.
    "ReduceLogSumExp": Operator(
        per_input(CMP + ADD + EXP + ADD, per_output=LOG + ADD), demands={1: NO_LENGTH},
    ),
    "ReduceMax": Operator(per_input(CMP), demands={1: NO_LENGTH}),
    "ReduceMean": Operator(per_input(ADD, per_output=DIV), demands={1: NO_LENGTH}),
    "ReduceMin": Operator(per_input(CMP), demands={1: NO_LENGTH}),
    "ReduceProd": Operator(per_input(MUL), demands={1: NO_LENGTH}),
    "ReduceSum": Operator(per_input(ADD), demands={1: NO_LENGTH}),
    "ReduceSumSquare": Operator(per_input(MUL + ADD), demands={1: NO_LENGTH}),
    "TopK": Operator(count_top_k, demands={1: LENGTH}),
    "Unique": Operator(count_unique),
    "com.microsoft::IsAllFinite": Operator(count_all_finite, lambda _: outputs("bool", ())),
    "com.microsoft::ReduceSumInteger": Operator(per_input(ADD), shape_reduce_to_32_bits),
    "com.microsoft::Unique": Operator(count_unique, shape_unique),
}  # fmt: skip
