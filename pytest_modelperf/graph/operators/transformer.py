"""Transformers between matrix products: positions, padding, gates, streams, experts.

A rotation, a gate or a bias is elementwise. The operators of hyper-connections also sum products
over the streams, which is a contraction (https://arxiv.org/abs/2409.19606).

In a mixture of experts, a token passes through `k` experts. Compressed weights of the experts in
use are decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pytest_modelperf.graph.operators.attention import size_of, sizes_of
from pytest_modelperf.graph.operators.cost import (
    ADD,
    CMP,
    COS,
    DIV,
    LOG,
    MOV,
    MUL,
    SIN,
    SQRT,
    Contraction,
    Cost,
)
from pytest_modelperf.graph.operators.elementwise import swish_ops
from pytest_modelperf.graph.operators.matmul import decode_packed
from pytest_modelperf.graph.operators.operator import (
    ACTIVATION_OPS,
    DEQUANTIZE_WEIGHT,
    ROTARY,
    SIGMOID,
    SOFTMAX,
    Demand,
    Operator,
    activation_ops,
    below,
    bias_ops,
    elementwise,
    move,
    per_output,
    rms_norm_ops,
    rows_in,
    rows_of,
    scale_ops,
)
from pytest_modelperf.graph.shape_rules import (
    Outputs,
    OutputType,
    dim,
    dtype_of,
    has_input,
    int_of,
    like,
    outputs,
    product,
    quotient,
    shape_of,
    stated_size,
    total,
    with_last,
)
from pytest_modelperf.graph.structure import Node


def count_gated_position_bias(node: Node) -> Cost:
    """Count a table of positions that is scaled by a gate for each query and head."""
    # gate = u * (r * a - 1) + 2, where u and r are sigmoids of sums over half of a small product.
    query, heads = node.input(0), node.attr_int("num_heads", 1)
    size, columns = sizes_of(node.input(3), 2)
    rows, tokens = rows_in(query) * heads, size_of(node.input(2), -1)
    per_row = size * ADD + columns * 2 * ADD + 2 * SIGMOID + MUL + ADD + MUL + ADD
    batch = size_of(node.input(6) if has_input(node, 6) else query, 0)
    return Cost(
        (Contraction(rows * size * columns, (0, 3)),),
        rows * per_row + batch * heads * tokens * tokens * MUL,
    )


def count_position_bias(node: Node) -> Cost:
    """Count a bucket for each query and key, and its bias for each head."""
    # This is not a contraction. A bucket is the distance, or its scaled logarithm beyond half of
    # the buckets.
    output = node.output()
    bucket = ADD + 2 * CMP + (DIV + LOG + MUL + ADD) + CMP
    return Cost((), size_of(output, -2) * size_of(output, -1) * bucket + output.size * MOV)


def count_rotary(node: Node) -> Cost:
    """Count a rotation of the first `rotary_embedding_dim` elements of each head."""
    # The rest is moved. Cosines and sines come from a cache. A 3-D input has all heads in its last
    # dimension.
    x = node.input(0)
    rotated = x.size
    width = node.attr_int("rotary_embedding_dim", 0)
    if width:
        hidden = x.dims[-1]
        head = hidden if x.rank == 4 else hidden // node.attr_int("num_heads", 1)
        rotated = x.size // head * width
    per_rotated = ROTARY + scale_ops(node, "scale")
    return elementwise(rotated * per_rotated + (x.size - rotated) * MOV)


def count_gemma_rotary(node: Node) -> Cost:
    """Count sines and cosines of angles, and x * cos + rotated x * sin for queries and keys."""
    rotated = node.input(1).size + node.input(3).size
    return elementwise(node.input(0).size * (SIN + COS) + rotated * ROTARY)


def count_swiglu(node: Node) -> Cost:
    """Count swish(a) * b."""
    return elementwise(node.output().size * (swish_ops(node) + MUL))


def clamped_swiglu_ops(node: Node) -> int:
    """Return what g * sigmoid(alpha * g) * (l + beta) takes, clamped by a `limit` above 0."""
    plain = node.attr_float("activation_alpha", 1.0) == 1.0
    clamped = 3 * CMP if node.attr_float("limit", 0.0) > 0 else 0
    shifted = ADD if node.attr_float("activation_beta", 0.0) != 0 else 0
    return clamped + ACTIVATION_OPS["Silu" if plain else "Swish"] + shifted + MUL


def count_clamped_swiglu(node: Node) -> Cost:
    """Count a pair for each element of the result, from one input or two."""
    x = node.input(0).size
    pairs = x if has_input(node, 1) else x // 2
    return elementwise(pairs * clamped_swiglu_ops(node))


def count_gated_add(node: Node) -> Cost:
    """Count x + y * gate, where the gate of a row may be the sigmoid of a product."""
    added = node.input(0).size * (MUL + ADD)
    if not has_input(node, 3):
        return elementwise(added)
    gate = node.input(2)
    return Cost((Contraction(gate.size, (2, 3)),), added + rows_in(gate) * SIGMOID)


def count_rms_norm_rotary(node: Node) -> Cost:
    """Count an RMS normalization of a slice of each head, and a rotation of its beginning."""
    # The rest of the slice is moved. An output without the rotation moves all of the slice.
    heads, stride = rows_in(node.input(0)), node.input(0).dims[-1]
    width = node.attr_int("input_width", 0) or stride
    rotated = node.attr_int("rotary_embedding_dim", 0)
    unrotated = len(node.outputs) > 1 and node.outputs[1] is not None
    moved = width - rotated + (width if unrotated else 0)
    return elementwise(rms_norm_ops(heads, width) + heads * (rotated * ROTARY + moved * MOV))


def count_bias_split_gelu(node: Node) -> Cost:
    """Count left half * gelu(right half) of x + bias."""
    x = node.input(0).size
    return elementwise(x * ADD + x // 2 * (ACTIVATION_OPS["Gelu"] + MUL))


def count_engram_gate(node: Node) -> Cost:
    """Count sigmoid(sign(d) * sqrt(max(|d|, e))) * value, with d the dot product of RMS norms."""
    # The gated value is normalized as well if the node has that output.
    key = node.input(0)
    width = key.dims[-1]
    rows = key.size // width if width else 0
    norms = 3 if len(node.outputs) > 1 and node.outputs[1] is not None else 2
    per_row = MUL + 2 * CMP + SQRT + CMP + MUL + SIGMOID
    return Cost(
        (Contraction(key.size, (0, 1)),),
        norms * rms_norm_ops(rows, width) + rows * per_row + key.size * MUL,
    )


def count_pre_mix(node: Node) -> Cost:
    """Count the weighted sum of all streams, times `reduction_scale`."""
    scaled = node.output().size * MUL if node.attr_float("reduction_scale", 1.0) != 1.0 else 0
    return Cost((Contraction(node.input(0).size, (0, 1)),), scaled)


def count_low_rank_mix(node: Node) -> Cost:
    """Count a norm of each stream, two products for gates, the gated sum, and the next gates."""
    # The output of the last block may be added to the streams first. If it is not, streams that are
    # returned are moved.
    streams, rank = node.input(0), node.input(2).dims[-1]
    size, width = streams.size, streams.dims[-1]
    branches, rows = node.attr_int("num_branches", 1), rows_in(streams)
    hidden = width // branches
    ops = rms_norm_ops(rows * branches, hidden)
    if has_input(node, 5):
        ops += size * (MUL + ADD)
    elif len(node.outputs) > 2 and node.outputs[2] is not None:
        ops += size * MOV
    ops += rows * rank * (MUL + ACTIVATION_OPS["Silu"]) + size * SIGMOID
    ops += rows * hidden * scale_ops(node, "reduction_scale")
    divided = DIV if node.attr_float("gate_div", 1.0) != 1.0 else 0
    return Cost(
        (
            Contraction(size * rank, (0, 2)),
            Contraction(size * rank, (None, 3)),
            Contraction(size, (0, None)),
            Contraction(size * branches, (0, 4)),
        ),
        ops + rows * branches * (divided + SIGMOID + scale_ops(node, "gate_mul")),
    )


def count_post_mix(node: Node) -> Cost:
    """Count a weighted sum of all streams for each stream, plus a weighted output of the block."""
    size = node.input(0).size
    added = size * (MUL + ADD)
    mix = node.optional_input(3)
    if mix is None:
        return elementwise(added)
    return Cost((Contraction(size * mix.dims[-1], (0, 3)),), added)


def shape_rms_norm_rotary(node: Node) -> Outputs:
    """Return slices of all heads, flattened, and the slices before their rotation."""
    batch, length, heads, size = (dim(shape_of(node, 0), axis) for axis in range(4))
    width = stated_size(node, "input_width") or size
    rows = (1, product(batch, length)) if node.attr_int("flatten_batch", 0) else (batch, length)
    dtype = "float16" if node.attr_int("output_fp16", 0) else "bfloat16"
    return (
        OutputType(dtype, (*rows, product(heads, width))),
        OutputType("float32", (batch, length, heads, width)),
    )


def shape_position_bias(node: Node) -> Outputs:
    heads = dim(shape_of(node, 0), 1)
    return outputs(dtype_of(node, 0), (1, heads, int_of(node, 1), int_of(node, 2)))


def shape_gated_position_bias(node: Node) -> Outputs:
    """Return the bias for (batch, length, width), or for packed tokens with their offsets."""
    lengths = shape_of(node, 6) if has_input(node, 6) else shape_of(node, 0)
    batch, length = dim(lengths, 0), dim(lengths, 1)
    return outputs(dtype_of(node, 0), (batch, stated_size(node, "num_heads"), length, length))


def shape_remove_padding(node: Node) -> Outputs:
    padded = shape_of(node, 0)
    batch, length = dim(padded, 0), dim(padded, 1)
    packed = OutputType(dtype_of(node, 0), (None, dim(padded, 2)))
    return (packed, *outputs("int32", (batch, length), (total(batch, 1),), (1,)))


def shape_restore_padding(node: Node) -> Outputs:
    offsets = shape_of(node, 1)
    return outputs(dtype_of(node, 0), (dim(offsets, 0), dim(offsets, 1), dim(shape_of(node, 0), 1)))


def shape_bias_split_gelu(node: Node) -> Outputs:
    shape = shape_of(node, 0)
    return outputs(dtype_of(node, 0), with_last(shape, quotient(dim(shape, -1), 2)))


def shape_swiglu(node: Node) -> Outputs:
    """Return the output. Without a second input, the first one's last dimension has both halves."""
    shape = shape_of(node, 0)
    if not has_input(node, 1):
        shape = with_last(shape, quotient(dim(shape, -1), 2))
    return outputs(dtype_of(node, 0), shape)


def shape_pre_mix(node: Node) -> Outputs:
    """Return one of all branches, which are a dimension or parts of the last one."""
    streams, branches = shape_of(node, 0), node.attr_int("num_branches", 0)
    if not branches:
        grouped = None if streams is None or len(streams) < 2 else (*streams[:-2], streams[-1])
        return outputs(dtype_of(node, 0), grouped)
    return outputs(dtype_of(node, 0), with_last(streams, quotient(dim(streams, -1), branches)))


def shape_low_rank_mix(node: Node) -> Outputs:
    """Return one branch, a gate for each branch, and all branches."""
    streams, branches = shape_of(node, 0), stated_size(node, "num_branches")
    dtype = dtype_of(node, 0)
    width = quotient(dim(streams, -1), branches)
    return outputs(dtype, with_last(streams, width), with_last(streams, branches), streams)


def _rotary_start(node: Node, index: int) -> Demand | None:
    """Ask for positions in the table of angles."""
    # If an input is only the first position, the table must have those that follow, too.
    table, positions = dim(shape_of(node, 2), 0), shape_of(node, index)
    length = dim(shape_of(node, 0), -2)
    if table is None or positions is None or len(positions) > 1:
        return below(table)
    return below(max(1, table - (length or 1) + 1))


def count_moe(  # noqa: PLR0913  # one index for each weight of the two layouts
    node: Node, *, fc1: int, fc2: int, fc3: int, bias_distance: int, decode: int = 0
) -> Cost:
    """Count a mixture of experts, in which each token passes through `k` of them."""
    # The inputs after tokens and router's scores are the weights of fc1, fc2 and optionally fc3,
    # each with its bias at a distance. Compressed weights of the experts in use are decoded. The
    # router decides how many are in use, which is counted as all, or `k` per token if that is less.
    x = node.input(0)
    hidden = x.dims[-1]
    tokens, experts = rows_in(x), node.input(fc1).dims[0]
    chosen = node.attr_int("k", 1)
    passes = tokens * chosen
    _, rows, columns = node.input(fc1).dims
    # Some models store the weights of experts transposed; ONNX Runtime accepts both.
    first = rows if decode or columns == hidden else columns
    activation = node.attr_str("activation_type", "relu").lower()
    gated_by_fc3 = has_input(node, fc3)
    # These activations take pairs: fc1 has both halves, unless the second has its own weight.
    inner = first // 2 if activation in {"swiglu", "geglu"} and not gated_by_fc3 else first
    weights = [(fc1, hidden, first), (fc2, inner, hidden)]
    if gated_by_fc3:
        weights.append((fc3, hidden, first))

    router = tokens * (experts * (SOFTMAX + chosen * CMP) + chosen * (ADD + DIV))
    mixing = passes * hidden * (MUL + ADD)
    gate = MUL if gated_by_fc3 and activation != "swiglu" else 0
    activated = passes * inner * (activation_ops(activation) + gate)
    biases = sum(bias_ops(node, i + bias_distance, passes * width) for i, _, width in weights)
    decoded = min(experts, passes) * sum(rows * width for _, rows, width in weights) * decode
    return Cost(
        tuple(
            Contraction(passes * rows * width, (None if index == fc2 else 0, index))
            for index, rows, width in weights
        ),
        router + mixing + activated + biases + decoded,
    )


def count_moe_packed(node: Node) -> Cost:
    """Count a mixture of experts with packed weights, decoded for the experts in use."""
    # The inputs are tokens, scores of the router, and the weights of gate, up (if a pair is gated)
    # and down. The values to mix by are an optional input, or else a softmax of the scores.
    x, hidden = node.input(0), node.input(0).dims[-1]
    experts, inner, _ = node.input(2).dims
    tokens, chosen = rows_in(x), node.attr_int("k", 1)
    passes, gated = tokens * chosen, has_input(node, 3)
    layers = [(2, "gate_type"), *([(3, "up_type")] if gated else []), (4, "down_type")]

    router = tokens * experts * ((0 if has_input(node, 5) else SOFTMAX) + chosen * CMP)
    if node.attr_int("normalize_routing_weights", 1):
        router += passes * (ADD + DIV)
    router += passes * scale_ops(node, "routed_scaling_factor")
    activation = activation_ops("silu") + MUL if gated else activation_ops("relu2")
    decoded = sum(decode_packed(node, kind) for _, kind in layers)
    return Cost(
        tuple(
            Contraction(passes * hidden * inner, (None if index == 4 else 0, index))
            for index, _ in layers
        ),
        router
        + passes * hidden * (MUL + ADD)
        + passes * inner * activation
        + min(experts, passes) * hidden * inner * decoded,
    )


def count_moe_group_router(node: Node) -> Cost:
    """Count sigmoid(x) + bias and, unless all scores are returned, the choice of the largest."""
    # A choice of k takes k comparisons for each candidate. If there are several groups of experts,
    # groups are chosen first, by the sum of the largest scores in each. The chosen scores become
    # logarithms, the others a constant. A projection may make the scores from the tokens.
    x, experts = node.input(0), node.input(1).size
    tokens = rows_in(x)
    projected = has_input(node, 2)
    scores = tokens * experts
    contractions = (Contraction(x.size * experts, (0, 2)),) if projected else ()
    ops = scores * (SIGMOID + ADD)
    if not node.outputs or node.outputs[0] is None:
        return Cost(contractions, ops)
    groups, chosen = node.attr_int("n_group", 1), node.attr_int("top_k", 1)
    if groups > 1:
        summed = min(node.attr_int("group_topk", 2), experts // groups)
        kept = node.attr_int("topk_group", 1)
        ops += scores * summed * CMP + tokens * groups * (summed * ADD + kept * CMP)
    return Cost(contractions, ops + scores * (chosen * CMP + MOV) + tokens * chosen * (CMP + LOG))


def count_router_gate_up(node: Node) -> Cost:
    """Count one product: its first columns are scores of the router, the others gated pairs."""
    x, columns = node.input(0), node.input(1).dims[-1]
    pairs = rows_in(x) * (columns - node.attr_int("router_size", 0)) // 2
    return Cost((Contraction(x.size * columns, (0, 1)),), pairs * clamped_swiglu_ops(node))


def shape_router_gate_up(node: Node) -> Outputs:
    """Return one product, split into a router's logits and an activated pair of equal halves."""
    rows, logits = shape_of(node, 0), stated_size(node, "router_size")
    half = quotient(total(dim(shape_of(node, 1), 1), product(-1, logits)), 2)
    return outputs(dtype_of(node, 0), with_last(rows, logits), with_last(rows, half))


def shape_moe_group_router(node: Node) -> Outputs:
    """Return a score of each expert for each token, with all leading dimensions flattened."""
    logits = shape_of(node, 0)
    rows = None if not logits else product(*logits[:-1])
    shape = (rows, dim(shape_of(node, 1), 0))
    scores = OutputType("float32", shape)
    return OutputType(dtype_of(node, 0), shape), scores, scores


OPERATORS: Mapping[str, Operator] = {
    "RotaryEmbedding": Operator(count_rotary, demands={3: rows_of(1)}),
    "SwiGLU": Operator(count_swiglu),
    # x + bias + skip
    "com.microsoft::BiasAdd": Operator(per_output(2 * ADD), like(0)),
    "com.microsoft::BiasSplitGelu": Operator(count_bias_split_gelu, shape_bias_split_gelu),
    "com.microsoft::EngramGate": Operator(count_engram_gate, like(0, 0)),
    "com.microsoft::GatedAdd": Operator(count_gated_add, like(0)),
    "com.microsoft::GatedRelativePositionBias": Operator(
        count_gated_position_bias, shape_gated_position_bias,
    ),
    "com.microsoft::GemmaRotaryEmbedding": Operator(count_gemma_rotary, like(1, 3)),
    "com.microsoft::HyperConnectionLowRankMix": Operator(count_low_rank_mix, shape_low_rank_mix),
    "com.microsoft::HyperConnectionPostMix": Operator(count_post_mix, like(0)),
    "com.microsoft::HyperConnectionPreMix": Operator(count_pre_mix, shape_pre_mix),
    "com.microsoft::MRotaryEmbedding": Operator(count_rotary, like(0), demands={1: _rotary_start}),
    "com.microsoft::RMSNormRotary": Operator(count_rms_norm_rotary, shape_rms_norm_rotary),
    "com.microsoft::RelativePositionBias": Operator(count_position_bias, shape_position_bias),
    "com.microsoft::RemovePadding": Operator(move, shape_remove_padding),
    "com.microsoft::RestorePadding": Operator(move, shape_restore_padding),
    "com.microsoft::RotaryEmbedding": Operator(count_rotary, like(0), demands={1: _rotary_start}),
    "com.microsoft::SwiGLU": Operator(count_clamped_swiglu, shape_swiglu),
    "com.microsoft::MoE": Operator(
        partial(count_moe, fc1=2, fc2=4, fc3=6, bias_distance=1), like(0),
    ),
    "com.microsoft::MoEGroupRouter": Operator(count_moe_group_router, shape_moe_group_router),
    "com.microsoft::MoEPacked": Operator(count_moe_packed, like(0)),
    "com.microsoft::QMoE": Operator(
        partial(count_moe, fc1=2, fc2=5, fc3=8, bias_distance=2, decode=DEQUANTIZE_WEIGHT), like(0),
    ),
    "com.microsoft::RouterGateUpProj": Operator(count_router_gate_up, shape_router_gate_up),
}  # fmt: skip
