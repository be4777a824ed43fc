"""The cost of transformers between matrix products: rotary positions, gates, residual streams.

A rotation, a gate or a bias is elementwise. The two operators of hyper-connections also sum
products over the streams, which is a contraction (https://arxiv.org/abs/2409.19606).
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import ACTIVATION_OPS, SIGMOID, SOFTPLUS
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    COS,
    MOV,
    MUL,
    SIN,
    SQRT,
    Contraction,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.elementwise import swish_ops
from pytest_modelperf.profiler.counting.epilogue import ROTARY, rms_norm_ops
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
    scaled = MUL if node.attr_float("scale", 1.0) != 1.0 else 0
    return elementwise(rotated * (ROTARY + scaled) + (x.size - rotated) * MOV)


def count_gemma_rotary(node: Node) -> Cost:
    """Sine and cosine of the angles, then x * cos + rotated x * sin for queries and keys."""
    rotated = node.input(1).size + node.input(3).size
    return elementwise(node.input(0).size * (SIN + COS) + rotated * ROTARY)


def count_swiglu(node: Node) -> Cost:
    """swish(a) * b."""
    return elementwise(node.output().size * (swish_ops(node) + MUL))


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


def count_hyper_connection_post_mix(node: Node) -> Cost:
    """Every stream a weighted sum of all streams, and a weighted output of the block added."""
    size = node.input(0).size
    added = size * (MUL + ADD)
    mix = node.optional_input(3)
    if mix is None:
        return elementwise(added)
    return Cost((Contraction(size * mix.dims[-1], (0, 3)),), added)


COUNTERS: Mapping[str, Counter] = {
    "RotaryEmbedding": count_rotary,
    "SwiGLU": count_swiglu,
    "com.microsoft::BiasAdd": per_output_element(2 * ADD),  # x + bias + skip
    "com.microsoft::BiasSplitGelu": count_bias_split_gelu,
    "com.microsoft::EngramGate": count_engram_gate,
    "com.microsoft::GatedAdd": per_output_element(MUL + ADD),  # x + y * gate
    "com.microsoft::GemmaRotaryEmbedding": count_gemma_rotary,
    "com.microsoft::HyperConnectionPostMix": count_hyper_connection_post_mix,
    "com.microsoft::HyperConnectionPreMix": count_hyper_connection_pre_mix,
    "com.microsoft::LinearAttentionGate": count_linear_attention_gate,
    "com.microsoft::MRotaryEmbedding": count_rotary,
    "com.microsoft::RotaryEmbedding": count_rotary,
}
