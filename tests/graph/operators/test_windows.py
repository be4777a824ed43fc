"""Convolutions and poolings, in each layout of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_modelperf.graph.operators.cost import (
    ADD,
    CMP,
    DIV,
    EXP,
    MOV,
    MUL,
    POW,
    SQRT,
    TANH,
    Contraction,
    Cost,
)
from pytest_modelperf.graph.structure import Node, Shape, Tensor, UnknownShapeError
from tests.graph.operators.nodes import cost, node, ops, reference, unknown

MACS: dict[str, tuple[Node, int]] = {
    "the first layer of resnet by hand":
        (node("Conv", [(1, 3, 224, 224), (64, 3, 7, 7)], [(1, 64, 112, 112)]),
         64 * 112 * 112 * 3 * 7 * 7),
    "a depthwise convolution meets one input channel":
        (node("Conv", [(1, 32, 8, 8), (32, 1, 3, 3)], [(1, 32, 8, 8)], group=32),
         32 * 8 * 8 * 3 * 3),
    "a 3d kernel counts all three of its dimensions":
        (node("Conv", [(2, 3, 8, 8, 8), (4, 3, 3, 3, 3)], [(2, 4, 6, 6, 6)]),
         2 * 4 * 6**3 * 3 * 3**3),
    "a transposed convolution counts the input volume":
        (node("ConvTranspose", [(1, 64, 16, 16), (64, 32, 4, 4)], [(1, 32, 32, 32)],
              strides=(2, 2)),
         64 * 16 * 16 * 32 * 4 * 4),
    "a transposed convolution without bias needs no output shape":
        (node("ConvTranspose", [(1, 2, 3), (2, 4, 5)], [unknown()]), 2 * 3 * 4 * 5),
    "a channels-last convolution":
        (node("com.microsoft::NhwcConv", [(1, 8, 8, 3), (4, 3, 3, 3)], [(1, 6, 6, 4)]),
         4 * 6 * 6 * 3 * 3 * 3),
    "an internal channels-last convolution":
        (node("com.ms.internal.nhwc::Conv", [(1, 8, 8, 3), (4, 3, 3, 3)], [(1, 6, 6, 4)]),
         4 * 6 * 6 * 3 * 3 * 3),
    "a slice of the channels is convolved alone":
        (node("com.microsoft::CausalConvWithState", [(2, 5, 9), (4, 1, 3)], [unknown()],
              channels_last=1, input_channels=4),
         2 * 5 * 4 * 3),
}  # fmt: skip


@pytest.mark.parametrize(("call", "macs"), MACS.values(), ids=MACS)
def test_macs_by_hand(call: Node, macs: int) -> None:
    assert cost(call) == Cost((Contraction(macs, (0, 1)),))


def test_bias_is_elementwise_and_no_mac() -> None:
    plain = node("Conv", [(1, 3, 8, 8), (4, 3, 3, 3)], [(1, 4, 6, 6)])
    biased = node("Conv", [(1, 3, 8, 8), (4, 3, 3, 3), (4,)], [(1, 4, 6, 6)])
    assert cost(biased).macs == cost(plain).macs
    assert cost(plain).elementwise_ops == 0
    assert cost(biased).elementwise_ops == 4 * 6 * 6 * ADD


def test_transposed_convolution_with_groups_and_dynamic_pads() -> None:
    grouped = node("ConvTranspose", [(1, 8, 5, 5), (8, 3, 2, 2), (6,)], [(1, 6, 6, 6)], group=2)
    assert cost(grouped) == Cost((Contraction(8 * 5 * 5 * 3 * 2 * 2, (0, 1)),), 6 * 6 * 6 * ADD)
    dynamic = node(
        "com.microsoft::ConvTransposeWithDynamicPads",
        [(1, 8, 5, 5), (8, 3, 2, 2), (4,), (3,)],
        [(1, 3, 6, 6)],
    )
    assert cost(dynamic) == Cost((Contraction(8 * 5 * 5 * 3 * 2 * 2, (0, 1)),), 3 * 6 * 6 * ADD)


def test_confirmed_wrong_14_fused_convolution_counts_its_activation_and_residual() -> None:
    shapes = [(1, 3, 8, 8), (4, 3, 3, 3), (4,), (1, 4, 6, 6)]
    relu = node("com.microsoft::FusedConv", shapes, [(1, 4, 6, 6)], activation="Relu")
    assert cost(relu).macs == 4 * 6 * 6 * 3 * 3 * 3
    assert cost(relu).elementwise_ops == 4 * 6 * 6 * (ADD + ADD + CMP)


def test_integer_convolution_shifts_only_operands_with_zero_points_that_are_not_constant() -> None:
    shapes = [(1, 3, 8, 8), (4, 3, 3, 3)]
    assert cost(node("ConvInteger", shapes, [(1, 4, 6, 6)])) == Cost(
        (Contraction(4 * 36 * 27, (0, 1)),)
    )
    shifted = node("ConvInteger", [*shapes, (), (4,)], [(1, 4, 6, 6)])
    assert cost(shifted).elementwise_ops == (3 * 8 * 8 + 4 * 27) * ADD
    constant = Tensor("w", "int8", (4, 3, 3, 3), is_constant=True)
    stored = node("ConvInteger", [(1, 3, 8, 8), constant, (), (4,)], [(1, 4, 6, 6)])
    assert cost(stored).elementwise_ops == 3 * 8 * 8 * ADD


@pytest.mark.parametrize("domain", ["", "com.microsoft::", "com.ms.internal.nhwc::"])
def test_quantized_convolution_multiplies_inputs_0_and_3(domain: str) -> None:
    scalar = ()
    weight = Tensor("w", "int8", (4, 3, 3, 3), is_constant=True)
    shapes: list[Shape | Tensor] = [
        (1, 3, 8, 8), scalar, scalar, weight, (4,), (4,), scalar, scalar, (4,),
    ]  # fmt: skip
    quantized = cost(node(f"{domain}QLinearConv", shapes, [(1, 4, 6, 6)]))
    assert quantized.contractions == (Contraction(4 * 36 * 27, (0, 3)),)
    shift, bias, rescale = 3 * 8 * 8 * ADD, 4 * 36 * ADD, 4 * 36 * (MUL + ADD + 2 * CMP)
    assert quantized.elementwise_ops == shift + bias + rescale


def test_confirmed_wrong_14_deformable_convolution_adds_its_bilinear_samples() -> None:
    shapes = [(1, 8, 10, 10), (4, 4, 3, 3), (1, 2 * 9 * 2, 8, 8)]
    plain = cost(node("DeformConv", shapes, [(1, 4, 8, 8)], group=2, offset_group=2))
    assert plain.contractions == (Contraction(4 * 8 * 8 * 4 * 9, (0, 1)),)
    samples, positions = 8 * 9 * 64, 2 * 9 * 64
    blends = samples * (4 * MUL + 3 * ADD)
    assert plain.elementwise_ops == blends + positions * (2 * 4 + 4 * MUL)
    masked = cost(node("DeformConv", [*shapes, None, (1, 18, 8, 8)], [(1, 4, 8, 8)], group=2))
    assert masked.elementwise_ops - plain.elementwise_ops == samples * MUL


def test_causal_convolution_counts_new_positions_only() -> None:
    shapes = [(2, 16, 5), (16, 1, 4), (16,), (2, 16, 3)]
    call = cost(node("CausalConvWithState", shapes, [unknown()], activation="silu"))
    assert call.contractions == (Contraction(2 * 16 * 5 * 4, (0, 1)),)
    assert call.elementwise_ops == 2 * 16 * 5 * (ADD + (ADD + EXP + ADD + 4) + MUL)
    silent = cost(node("CausalConvWithState", shapes, [unknown()]))
    assert silent.elementwise_ops == 2 * 16 * 5 * ADD


def test_word_embedding_convolves_each_word() -> None:
    call = node(
        "com.microsoft::WordConvEmbedding",
        [(2, 5, 12), (32, 1, 3, 16), (32,), (100, 16)],
        [(2, 5, 32)],
    )
    results = 2 * 5 * (12 - 3 + 1) * 32
    assert cost(call).contractions == (Contraction(results * 3 * 16, (3, 1)),)
    lookups = 2 * 5 * 12 * 16
    assert cost(call).elementwise_ops == lookups * MOV + results * (ADD + TANH + CMP)


def test_an_unknown_output_shape_is_named_and_not_guessed() -> None:
    with pytest.raises(UnknownShapeError, match="lost"):
        cost(node("Conv", [(1, 3, 8, 8), (4, 3, 3, 3)], [unknown("lost")]))


sizes = st.integers(1, 5)


@given(sizes, sizes, st.tuples(sizes, sizes), st.tuples(sizes, sizes))
def test_macs_are_additive_over_the_batch(
    one: int, other: int, depths: tuple[int, int], extents: tuple[int, int]
) -> None:
    (channels, filters), (side, kernel) = depths, extents

    def macs(batch: int) -> int:
        output = (batch, filters, side, side)
        x = (batch, channels, side + kernel - 1, side + kernel - 1)
        return cost(node("Conv", [x, (filters, channels, kernel, kernel)], [output])).macs

    assert macs(one + other) == macs(one) + macs(other)


@given(sizes, sizes, sizes, sizes)
def test_a_convolution_in_groups_costs_its_ungrouped_twin_by_the_group(
    group: int, channels: int, filters: int, side: int
) -> None:
    def macs(groups: int) -> int:
        kernel = (filters * group, channels * group // groups, 3, 3)
        x, y = (1, channels * group, side + 2, side + 2), (1, filters * group, side, side)
        return cost(node("Conv", [x, kernel], [y], group=groups)).macs

    assert macs(group) * group == macs(1)


@pytest.mark.parametrize(
    ("op", "x", "w", "attributes", "macs"),
    [
        ("Conv", (1, 4, 9), (6, 2, 3), {"group": 2, "strides": (2,)}, 6 * 4 * 2 * 3),
        ("Conv", (1, 3, 7, 7), (4, 3, 3, 3), {"auto_pad": "SAME_UPPER"}, 4 * 7 * 7 * 3 * 9),
        ("Conv", (2, 1, 7, 7), (1, 1, 3, 3), {"dilations": (2, 2)}, 2 * 3 * 3 * 9),
        ("ConvTranspose", (1, 2, 3, 3), (2, 1, 3, 3), {"strides": (2, 2)}, 2 * 9 * 9),
    ],
)
def test_macs_follow_from_the_shape_that_a_real_run_returns(
    op: str, x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], macs: int
) -> None:
    y = reference(op, [np.ones(x, np.float32), np.ones(w, np.float32)], **attributes)
    assert cost(node(op, [x, w], [y.shape])).macs == macs


def test_a_token_may_change_its_kernel() -> None:
    shapes = [(6, 4), (4, 1, 2), (3,), None, (2, 4, 1)]
    op = "com.microsoft::VarlenCausalConvWithState"
    plain = cost(node(op, shapes, [unknown()]))
    changed = cost(node(op, [*shapes, None, (6, 3, 2), (6, 1)], [unknown()], group_size=2))
    assert changed.contractions == plain.contractions
    assert changed.elementwise_ops - plain.elementwise_ops == 24 * (2 * ADD + MUL)


POOLS: dict[str, tuple[Node, int]] = {
    "pooling has a third dimension":
        (node("MaxPool", [(1, 4, 10, 10, 10)], [(1, 4, 5, 5, 5)], kernel_shape=(2, 3, 4)),
         4 * 5**3 * 2 * 3 * 4 * CMP),
    "an average divides once a window":
        (node("AveragePool", [(1, 64, 8, 8)], [(1, 64, 2, 2)], kernel_shape=(7, 7)),
         256 * (49 * ADD + DIV)),
    "a global max pool looks at each element once":
        (node("GlobalMaxPool", [(2, 3, 7, 7)], [(2, 3, 1, 1)]), 294 * CMP),
    "a global average pool has onnx-tool's weight":
        (node("GlobalAveragePool", [(1, 2048, 7, 7)], [(1, 2048, 1, 1)]),
         2048 * 49 * ADD + 2048 * DIV),
    "unpooling clears and places":
        (node("MaxUnpool", [(1, 2, 3, 3)] * 2, [(1, 2, 6, 6)], kernel_shape=(2, 2)),
         (72 + 18) * MOV),
}  # fmt: skip


@pytest.mark.parametrize(("call", "count"), POOLS.values(), ids=POOLS)
def test_pools_by_hand(call: Node, count: int) -> None:
    assert ops(call) == count


def test_a_window_as_large_as_the_picture_is_global_pooling() -> None:
    x, out = (2, 3, 7, 7), (2, 3, 1, 1)
    for op in ("MaxPool", "AveragePool", "LpPool"):
        window = ops(node(op, [x], [out], kernel_shape=(7, 7)))
        assert window == ops(node("Global" + op, [x], [out]))


@pytest.mark.parametrize(
    ("attributes", "each", "result"),
    [({}, MUL + ADD, SQRT), ({"p": 1}, CMP + ADD, 0), ({"p": 3}, CMP + POW + ADD, POW)],
)
def test_lp_pool_takes_a_norm_of_each_window(
    attributes: dict[str, Any], each: int, result: int
) -> None:
    call = node("LpPool", [(1, 2, 6, 6)], [(1, 2, 3, 3)], kernel_shape=(2, 2), **attributes)
    assert ops(call) == 18 * (4 * each + result)
    whole = node("GlobalLpPool", [(1, 2, 6, 6)], [(1, 2, 1, 1)], **attributes)
    assert ops(whole) == 72 * each + 2 * result


def test_a_layout_does_not_matter() -> None:
    first = node("MaxPool", [(1, 8, 6, 6)], [(1, 8, 3, 3)], kernel_shape=(2, 2))
    for op in ("com.microsoft::NhwcMaxPool", "com.ms.internal.nhwc::MaxPool"):
        last = node(op, [(1, 6, 6, 8)], [(1, 3, 3, 8)], kernel_shape=(2, 2))
        assert ops(last) == ops(first)
    masked = node(
        "com.microsoft::MaxpoolWithMask",
        [(1, 8, 6, 6), (1, 8, 6, 6)],
        [(1, 8, 3, 3)],
        kernel_shape=(2, 2),
    )
    assert ops(masked) == 2 * ops(first)


def test_quantized_averages_are_rescaled_once_a_result() -> None:
    rescaled = MUL + ADD + 2 * CMP
    x = [(1, 8, 6, 6), (), (), (), ()]
    window = node("com.microsoft::QLinearAveragePool", x, [(1, 8, 3, 3)], kernel_shape=(2, 2))
    assert ops(window) == 72 * (4 * ADD + rescaled)
    whole = node("com.microsoft::QLinearGlobalAveragePool", x, [(1, 8, 1, 1)])
    assert ops(whole) == 288 * ADD + 8 * rescaled


def test_a_fused_activation_counts() -> None:
    op, x, out = "com.ms.internal.nhwc::MaxPool", (1, 6, 6, 8), (1, 3, 3, 8)
    plain = node(op, [x], [out], kernel_shape=(2, 2))
    fused = node(op, [x], [out], kernel_shape=(2, 2), activation="Sigmoid")
    assert ops(fused) == ops(plain) + 72 * (ADD + EXP + ADD + DIV)


def test_a_pool_without_a_kernel_is_refused_and_not_taken_for_a_small_one() -> None:
    with pytest.raises(ValueError, match="kernel_shape"):
        ops(node("MaxPool", [(1, 8, 6, 6)], [(1, 8, 3, 3)]))


@given(
    kernel=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    stride=st.integers(1, 2),
    batch=st.integers(1, 3),
)
@settings(max_examples=25)
def test_the_windows_are_those_of_a_real_run(kernel: list[int], stride: int, batch: int) -> None:
    """Each window holds as a sum the number of ones that it looks at: the total is the count."""
    x = np.ones((batch, 2, *([6] * len(kernel))), np.float32)
    strides = [stride] * len(kernel)
    y = reference("LpPool", [x], opset=18, kernel_shape=kernel, strides=strides, p=1)
    call = node("MaxPool", [x.shape], [y.shape], kernel_shape=tuple(kernel))
    assert ops(call) == int(y.sum()) * CMP
