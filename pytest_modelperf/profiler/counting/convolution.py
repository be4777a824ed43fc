"""MACs of convolutions: each output element sums its kernel's window over its group's channels.

Counting rule: a window is counted whole where it overlaps the padding, so that
`MACs = output elements x input channels of a group x kernel elements`. The kernel tensor is
[output channels, input channels / group, kernel...] in every domain, channels-last ones too,
so all but its first dimension multiply to the MACs of one output element. A transposed
convolution scatters instead: each *input* element meets the kernel once, whatever the stride.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import activation_ops
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    MOV,
    MUL,
    Contraction,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.epilogue import REQUANTIZE, bias_ops, zero_point_ops


def count_conv(node: Node, *, bias: int = 2, residual: int | None = None) -> Cost:
    """A plain convolution, with the activation and the addition that may be fused into it."""
    elements = node.output().size
    return Cost(
        (Contraction(elements * _window(node, 1), (0, 1)),),
        bias_ops(node, bias, elements)
        + bias_ops(node, residual, elements)
        + elements * activation_ops(node.attr_str("activation", "")),
    )


def count_conv_transpose(node: Node, *, bias: int = 2) -> Cost:
    """A transposed convolution: the kernel is [input channels, output channels / group, ...]."""
    return Cost(
        (Contraction(node.input(0).size * _window(node, 1), (0, 1)),),
        bias_ops(node, bias, node.output().size) if node.optional_input(bias) else 0,
    )


def count_conv_integer(node: Node) -> Cost:
    """A convolution of integers with optional zero points and a 32-bit result."""
    return Cost(
        (Contraction(node.output().size * _window(node, 1), (0, 1)),),
        zero_point_ops(node, 0, 2) + zero_point_ops(node, 1, 3),
    )


def count_qlinear_conv(node: Node, *, transposed: bool = False) -> Cost:
    """A convolution between quantized tensors, its result rescaled to the output's scale."""
    elements = node.output().size
    meetings = node.input(0).size if transposed else elements
    return Cost(
        (Contraction(meetings * _window(node, 3), (0, 3)),),
        zero_point_ops(node, 0, 2)
        + zero_point_ops(node, 3, 5)
        + bias_ops(node, 8, elements)
        + elements * REQUANTIZE,
    )


def count_deform_conv(node: Node) -> Cost:
    """A convolution whose window's elements are each read between 2^n pixels.

    Each of the `n` coordinates of a sampled position takes the addition of its offset, a floor
    and two fractions; the 2^n corner weights are products of n fractions each. Every channel
    then blends its 2^n corners, and is masked where a mask is given. (Dai et al.,
    https://arxiv.org/abs/1703.06211, equations 3 and 4.)
    """
    output, kernel, offset = node.output(), node.input(1), node.input(2)
    n = kernel.rank - 2
    corners = 2**n
    samples = node.input(0).dims[1] * prod(kernel.dims[2:]) * output.size // output.dims[1]
    per_sample = corners * MUL + (corners - 1) * ADD
    if node.optional_input(4) is not None:
        per_sample += MUL
    positions = offset.size // n
    per_position = n * (ADD + MOV + 2 * ADD) + corners * (n - 1) * MUL
    return Cost(
        (Contraction(output.size * _window(node, 1), (0, 1)),),
        samples * per_sample + positions * per_position + bias_ops(node, 3, output.size),
    )


def count_causal_conv_with_state(node: Node, *, bias: int = 2) -> Cost:
    """A depthwise convolution over past and present positions: its result is as large as its input.

    The kernel is [channels, 1, k, ...] whichever layout the activations have. Only a slice of the
    channels may be read, where they are last.
    """
    x = node.input(0)
    elements = x.size
    taken = node.attr_int("input_channels", 0)
    if taken and x.dims[-1]:
        elements = elements // x.dims[-1] * taken
    return Cost(
        (Contraction(elements * _window(node, 1), (0, 1)),),
        bias_ops(node, bias, elements)
        + elements * activation_ops(node.attr_str("activation", "none")),
    )


def count_varlen_causal_conv_with_state(node: Node) -> Cost:
    """The same over packed tokens; a token may add to its kernel and scale what precedes it."""
    cost = count_causal_conv_with_state(node, bias=3)
    if node.optional_input(6) is None:
        return cost
    return cost.plus(node.input(0).size * (_window(node, 1) * ADD + MUL))


def count_word_conv_embedding(node: Node) -> Cost:
    """A convolution over the characters of each word, then tanh and the maximum over positions.

    Inputs: [..., characters] of words, kernel [filters, 1, window, embedding], bias, and the
    table of character vectors. Words are counted at full length, as padding is elsewhere.
    """
    *words, characters = node.input(0).dims
    filters, _, window, embedding = node.input(1).dims
    results = prod(words) * max(characters - window + 1, 0) * filters
    lookups = prod(words) * characters * embedding
    return Cost(
        (Contraction(results * window * embedding, (3, 1)),),
        lookups * MOV + results * (ADD + activation_ops("Tanh") + CMP),
    )


def _window(node: Node, kernel: int) -> int:
    return prod(node.input(kernel).dims[1:])


_count_fused_conv = partial(count_conv, residual=3)

COUNTERS: Mapping[str, Counter] = {
    "CausalConvWithState": count_causal_conv_with_state,
    "Conv": count_conv,
    "ConvInteger": count_conv_integer,
    "ConvTranspose": count_conv_transpose,
    "DeformConv": count_deform_conv,
    "QLinearConv": count_qlinear_conv,
    "com.microsoft::CausalConvWithState": count_causal_conv_with_state,
    "com.microsoft::ConvTransposeWithDynamicPads": partial(count_conv_transpose, bias=3),
    "com.microsoft::FusedConv": _count_fused_conv,
    "com.microsoft::NhwcConv": count_conv,
    "com.microsoft::NhwcFusedConv": _count_fused_conv,
    "com.microsoft::QLinearConv": count_qlinear_conv,
    "com.microsoft::VarlenCausalConvWithState": count_varlen_causal_conv_with_state,
    "com.microsoft::WordConvEmbedding": count_word_conv_embedding,
    "com.microsoft.nchwc::Conv": _count_fused_conv,
    "com.ms.internal.nhwc::Conv": count_conv,
    "com.ms.internal.nhwc::ConvTranspose": count_conv_transpose,
    "com.ms.internal.nhwc::QLinearConv": count_qlinear_conv,
    "com.ms.internal.nhwc::QLinearConvTranspose": partial(count_qlinear_conv, transposed=True),
}
