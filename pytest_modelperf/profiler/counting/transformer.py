"""The cost of transformers between matrix products: rotary positions, gates, routers, streams.

A rotation, a gate or a bias is elementwise. The operators of hyper-connections also sum products
over the streams, which is a contraction (https://arxiv.org/abs/2409.19606). A router that is an
operator of its own chooses the experts of each token, and may project its scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import ACTIVATION_OPS, SIGMOID, SOFTPLUS
from pytest_modelperf.profiler.counting.cost import (
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
    Counter,
)
from pytest_modelperf.profiler.counting.elementwise import swish_ops
from pytest_modelperf.profiler.counting.epilogue import ROTARY, rms_norm_ops, scale_ops
from pytest_modelperf.profiler.counting.per_element import elementwise, per_output_element


def count_rotary(node: Node) -> Cost:
    """A rotation of the first `rotary_embedding_dim` elements of each head; the rest is moved.

    The cosines and sines come from a cache. A 3-D input has all heads in its last dimension.
    """
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
    """Sine and cosine of the angles, then x * cos + rotated x * sin for queries and keys."""
    rotated = node.input(1).size + node.input(3).size
    return elementwise(node.input(0).size * (SIN + COS) + rotated * ROTARY)


def count_swiglu(node: Node) -> Cost:
    """swish(a) * b."""
    return elementwise(node.output().size * (swish_ops(node) + MUL))


def clamped_swiglu_ops(node: Node) -> int:
    """Operations of a pair: g * sigmoid(alpha * g) * (l + beta), both clamped by a `limit` above 0.

    An alpha of 1 multiplies nothing, and a beta of 0 adds nothing.
    """
    plain = node.attr_float("activation_alpha", 1.0) == 1.0
    clamped = 3 * CMP if node.attr_float("limit", 0.0) > 0 else 0
    shifted = ADD if node.attr_float("activation_beta", 0.0) != 0 else 0
    return clamped + ACTIVATION_OPS["Silu" if plain else "Swish"] + shifted + MUL


def count_clamped_swiglu(node: Node) -> Cost:
    """A pair for each element of the result; one input may hold both halves."""
    x = node.input(0).size
    pairs = x // 2 if node.optional_input(1) is None else x
    return elementwise(pairs * clamped_swiglu_ops(node))


def count_gated_add(node: Node) -> Cost:
    """The sum x + y * gate, where the gate of a row may be the sigmoid of a product."""
    added = node.input(0).size * (MUL + ADD)
    if node.optional_input(3) is None:
        return elementwise(added)
    gate = node.input(2)
    return Cost((Contraction(gate.size, (2, 3)),), added + prod(gate.dims[:-1]) * SIGMOID)


def count_rms_norm_rotary(node: Node) -> Cost:
    """An RMS normalization of a slice of each head, and a rotation of the slice's beginning.

    The rest of the slice is moved, as is all of it for the output without a rotation.
    """
    heads, stride = prod(node.input(0).dims[:-1]), node.input(0).dims[-1]
    width = node.attr_int("input_width", 0) or stride
    rotated = node.attr_int("rotary_embedding_dim", 0)
    unrotated = len(node.outputs) > 1 and node.outputs[1] is not None
    moved = width - rotated + (width if unrotated else 0)
    return elementwise(rms_norm_ops(heads, width) + heads * (rotated * ROTARY + moved * MOV))


def count_bias_split_gelu(node: Node) -> Cost:
    """Left half * gelu(right half) of x + bias."""
    x = node.input(0).size
    return elementwise(x * ADD + x // 2 * (ACTIVATION_OPS["Gelu"] + MUL))


def count_linear_attention_gate(node: Node) -> Cost:
    """The decay scale * softplus(a + bias), and sigmoid(b) where there is a b."""
    b = node.optional_input(3)
    return elementwise(
        node.input(0).size * (ADD + SOFTPLUS + MUL) + (b.size * SIGMOID if b is not None else 0)
    )


def count_engram_gate(node: Node) -> Cost:
    """sigmoid(sign(d) * sqrt(max(|d|, e))) * value, where d is the dot product of RMS norms.

    The gated value is normalized as well where that output is asked for.
    """
    key = node.input(0)
    width = key.dims[-1]
    rows = key.size // width if width else 0
    norms = 3 if len(node.outputs) > 1 and node.outputs[1] is not None else 2
    per_row = MUL + 2 * CMP + SQRT + CMP + MUL + SIGMOID
    return Cost(
        (Contraction(key.size, (0, 1)),),
        norms * rms_norm_ops(rows, width) + rows * per_row + key.size * MUL,
    )


def count_hyper_connection_pre_mix(node: Node) -> Cost:
    """The sum of all streams, each weighted, times `reduction_scale`."""
    scaled = node.output().size * MUL if node.attr_float("reduction_scale", 1.0) != 1.0 else 0
    return Cost((Contraction(node.input(0).size, (0, 1)),), scaled)


def count_hyper_connection_low_rank_mix(node: Node) -> Cost:
    """A norm of each stream, gates from two products, the gated sum, and gates for the next block.

    The block before may have to be added first; streams that nothing is added to are moved where
    they are returned.
    """
    streams, rank = node.input(0), node.input(2).dims[-1]
    size, width = streams.size, streams.dims[-1]
    branches, rows = node.attr_int("num_branches", 1), prod(streams.dims[:-1])
    hidden = width // branches
    ops = rms_norm_ops(rows * branches, hidden)
    if node.optional_input(5) is not None:
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


def count_hyper_connection_post_mix(node: Node) -> Cost:
    """Every stream a weighted sum of all streams, and a weighted output of the block added."""
    size = node.input(0).size
    added = size * (MUL + ADD)
    mix = node.optional_input(3)
    if mix is None:
        return elementwise(added)
    return Cost((Contraction(size * mix.dims[-1], (0, 3)),), added)


def count_moe_group_router(node: Node) -> Cost:
    """Each sigmoid(x) + bias and, unless all scores are returned, the experts with the largest.

    A choice of k takes k comparisons for each candidate. Groups of experts are chosen first, by
    the sum of the largest scores in each; one group is no choice. The chosen scores become
    logarithms, the others a constant. A projection may make the scores from the tokens.
    """
    x, experts = node.input(0), node.input(1).size
    tokens = prod(x.dims[:-1])
    projected = node.optional_input(2) is not None
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
    """One product, whose first columns are the router's scores and whose others are gated pairs."""
    x, columns = node.input(0), node.input(1).dims[-1]
    pairs = prod(x.dims[:-1]) * (columns - node.attr_int("router_size", 0)) // 2
    return Cost((Contraction(x.size * columns, (0, 1)),), pairs * clamped_swiglu_ops(node))


COUNTERS: Mapping[str, Counter] = {
    "RotaryEmbedding": count_rotary,
    "SwiGLU": count_swiglu,
    "com.microsoft::BiasAdd": per_output_element(2 * ADD),  # x + bias + skip
    "com.microsoft::BiasSplitGelu": count_bias_split_gelu,
    "com.microsoft::EngramGate": count_engram_gate,
    "com.microsoft::GatedAdd": count_gated_add,
    "com.microsoft::GemmaRotaryEmbedding": count_gemma_rotary,
    "com.microsoft::HyperConnectionLowRankMix": count_hyper_connection_low_rank_mix,
    "com.microsoft::HyperConnectionPostMix": count_hyper_connection_post_mix,
    "com.microsoft::HyperConnectionPreMix": count_hyper_connection_pre_mix,
    "com.microsoft::LinearAttentionGate": count_linear_attention_gate,
    "com.microsoft::MRotaryEmbedding": count_rotary,
    "com.microsoft::MoEGroupRouter": count_moe_group_router,
    "com.microsoft::RMSNormRotary": count_rms_norm_rotary,
    "com.microsoft::RotaryEmbedding": count_rotary,
    "com.microsoft::RouterGateUpProj": count_router_gate_up,
    "com.microsoft::SwiGLU": count_clamped_swiglu,
}
