"""Rows of elements: normalized, or reduced."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.graph.operators.cost import ADD, CMP, DIV, EXP, LOG, MOV, MUL, POW, SQRT
from pytest_modelperf.graph.operators.operator import ceil_log2
from pytest_modelperf.graph.structure import Attribute, Shape, Tensor
from tests.graph.operators.nodes import node, ops, unknown

ROW = 2 * DIV + ADD + SQRT + DIV  # two means, 1 / sqrt(variance + epsilon)
STANDARDIZED = 3 * ADD + 2 * MUL


def normalized(
    op: str, x: Shape, *others: Shape | Tensor | None, opset: int = 21, **attributes: Attribute
) -> int:
    """The output's shape is left unknown, as these operators have that of their input."""
    call = node(op, [x, *others], [unknown()], opset=opset)
    return ops(replace(call, attributes=attributes))


def test_layer_normalization_has_onnx_tools_weight_an_element() -> None:
    elements, rows = 2 * 5 * 768, 2 * 5
    call = normalized("LayerNormalization", (2, 5, 768), (768,), (768,))
    assert call == elements * (3 * MUL + 4 * ADD) + rows * ROW


def test_layer_normalization_without_a_bias_adds_none() -> None:
    x = (2, 3, 4)
    with_bias = normalized("LayerNormalization", x, (4,), (4,))
    assert with_bias - normalized("LayerNormalization", x, (4,)) == 24 * ADD


def test_a_row_is_everything_from_the_axis_on() -> None:
    def rows(axis: int) -> int:
        fixed = 24 * (STANDARDIZED + MUL)
        return (normalized("LayerNormalization", (2, 3, 4), (4,), axis=axis) - fixed) // ROW

    assert [rows(axis) for axis in (0, 1, 2, -1, -2, -3)] == [1, 2, 6, 6, 2, 1]


def test_confirmed_wrong_14_group_normalization() -> None:
    call = normalized("GroupNormalization", (2, 6, 4, 4), (6,), (6,), num_groups=3)
    assert call == 192 * (STANDARDIZED + MUL + ADD) + 2 * 3 * ROW


def test_confirmed_wrong_14_rms_normalization() -> None:
    each, row = MUL + ADD + MUL + MUL, DIV + ADD + SQRT + DIV
    assert normalized("RMSNormalization", (2, 3, 4), (4,)) == 24 * each + 6 * row
    assert normalized("SimplifiedLayerNormalization", (2, 3, 4), (4,)) == 24 * each + 6 * row
    assert normalized("RMSNormalization", (2, 3, 4), (3, 4), axis=1) == 24 * each + 2 * row


def test_one_group_per_channel_is_an_instance_normalization() -> None:
    x = (2, 6, 4, 4)
    grouped = normalized("GroupNormalization", x, (6,), (6,), num_groups=6)
    assert grouped == normalized("InstanceNormalization", x, (6,), (6,))
    last = (2, 4, 4, 6)
    assert normalized("com.ms.internal.nhwc::InstanceNormalization", last, (6,), (6,)) == grouped


def test_batch_normalization_makes_its_factors_once_a_channel() -> None:
    statistics = [(6,)] * 4
    call = normalized("BatchNormalization", (2, 6, 4, 4), *statistics)
    assert call == 192 * (ADD + MUL + ADD) + 6 * (ADD + SQRT + DIV + MUL)


def test_batch_normalization_in_training_takes_statistics_of_the_batch() -> None:
    x = (2, 6, 4, 4)
    training = normalized("BatchNormalization", x, *[(6,)] * 4, training_mode=1)
    assert training == 192 * (STANDARDIZED + MUL + ADD) + 6 * (ROW + 4 * MUL + 2 * ADD)
    outputs = [x, (6,), (6,), (6,), (6,)]
    assert ops(node("BatchNormalization", [x, *[(6,)] * 4], outputs, opset=9)) == training


def test_softmax_subtracts_its_maximum() -> None:
    assert normalized("Softmax", (2, 5)) == 10 * (CMP + ADD + EXP + ADD + DIV)
    biased = normalized("com.microsoft::BiasSoftmax", (2, 5), (2, 5))
    assert biased == normalized("Softmax", (2, 5)) + 10 * ADD
    assert normalized("Hardmax", (2, 5)) == 10 * (CMP + MOV)


@pytest.mark.parametrize(
    ("opset", "attributes", "rows"),
    [(13, {}, 6), (13, {"axis": 0}, 12), (11, {}, 2), (11, {"axis": 2}, 6), (11, {"axis": -1}, 6)],
)
def test_log_softmax_takes_one_logarithm_a_row(
    opset: int, attributes: dict[str, Any], rows: int
) -> None:
    call = normalized("LogSoftmax", (2, 3, 4), opset=opset, **attributes)
    assert call == 24 * (CMP + ADD + EXP + ADD + ADD) + rows * LOG


def test_local_response_sums_squares_of_its_neighbours() -> None:
    call = normalized("LRN", (1, 8, 3, 3), size=5)
    assert call == 72 * (MUL + 5 * ADD + MUL + ADD + POW + DIV)
    assert normalized("com.ms.internal.nhwc::LRN", (1, 3, 3, 8), size=5) == call


def test_lp_normalization() -> None:
    assert normalized("LpNormalization", (2, 3, 4)) == 24 * (MUL + ADD + DIV) + 6 * SQRT
    assert normalized("LpNormalization", (2, 3, 4), p=1) == 24 * (CMP + ADD + DIV)
    assert normalized("LpNormalization", (2, 3, 4), axis=0) == 24 * (MUL + ADD + DIV) + 12 * SQRT


def test_mean_variance_has_a_row_a_channel_by_default() -> None:
    assert normalized("MeanVarianceNormalization", (2, 6, 4, 4)) == 192 * STANDARDIZED + 6 * ROW
    all_axes = normalized("MeanVarianceNormalization", (2, 6), axes=(-2, -1))
    assert all_axes == 12 * STANDARDIZED + ROW


def test_a_skip_adds_before_it_normalizes() -> None:
    x = (2, 3, 4)
    skip = "com.microsoft::SkipLayerNormalization"
    layer = normalized("LayerNormalization", x, (4,), (4,))
    assert normalized(skip, x, x, (4,), (4,)) == layer + 24 * ADD
    assert normalized(skip, x, x, (4,), (4,), (4,)) == layer + 48 * ADD
    assert normalized(skip, x, (3, 4), (4,), (4,)) == layer + 24 * ADD
    unbiased = normalized("LayerNormalization", x, (4,))
    assert normalized(skip, x, x, (4,), None) == unbiased + 24 * ADD

    skip, rms = "com.microsoft::SkipSimplifiedLayerNormalization", "RMSNormalization"
    assert normalized(skip, x, x, (4,)) == normalized(rms, x, (4,)) + 24 * ADD
    assert normalized(skip, x, x, (4,), (4,)) == normalized(rms, x, (4,)) + 48 * ADD


def test_group_norm_of_diffusion_models() -> None:
    x, c = (2, 4, 4, 6), (6,)
    standard = normalized("GroupNormalization", (2, 6, 4, 4), c, c, num_groups=3)
    contrib = normalized("com.microsoft::GroupNorm", x, c, c, groups=3)
    assert contrib == standard
    silu = normalized("com.microsoft::GroupNorm", x, c, c, groups=3, activation=1)
    assert silu == standard + 192 * (ADD + EXP + ADD + DIV + MUL)
    skip = normalized("com.microsoft::SkipGroupNorm", x, c, c, x, c, groups=3)
    assert skip == standard + 2 * 192 * ADD


def test_embeddings_are_looked_up_added_and_normalized() -> None:
    ids, table, c = (2, 5), (100, 8), (8,)
    layer = normalized("LayerNormalization", (2, 5, 8), c, c)
    embed = "com.microsoft::EmbedLayerNormalization"
    assert normalized(embed, ids, ids, table, table, table, c, c) == layer + 80 * (
        3 * MOV + 2 * ADD
    )
    assert normalized(embed, ids, None, table, table, None, c, c) == layer + 80 * (2 * MOV + ADD)
    masked = normalized(embed, ids, None, table, table, None, c, c, ids)
    assert masked == layer + 80 * (2 * MOV + ADD) + 10 * CMP
    quantized = "com.microsoft::QEmbedLayerNormalization"
    decoded = normalized(quantized, ids, None, table, table, None, c, c)
    assert decoded == layer + 80 * (2 * (MOV + ADD + MUL) + ADD)


def test_rms_norms_of_branches_and_gates() -> None:
    each, row = 3 * MUL + ADD, DIV + ADD + SQRT + DIV
    branch = "com.microsoft::BranchwiseRMSNorm"
    assert normalized(branch, (2, 3, 8), (8,)) == 48 * each + 6 * row
    assert normalized(branch, (2, 24), (8,), num_branches=3) == 48 * each + 6 * row
    assert normalized(branch, (2, 3, 8)) == 48 * (each - MUL) + 6 * row
    gated = normalized("com.microsoft::GatedRMSNorm", (2, 24), (8,), (2, 24))
    assert gated == 48 * (each + ADD + EXP + ADD + DIV + MUL + MUL) + 6 * row


def test_a_quantized_layer_norm_costs_its_float_twin_and_the_way_there_and_back() -> None:
    layer = normalized("LayerNormalization", (2, 3, 4), (4,), (4,))
    quantized = normalized(
        "com.microsoft::QOrderedLayerNormalization", (2, 3, 4), (), (4,), (4,), ()
    )
    assert quantized == layer + 24 * (MUL + DIV + 2 * CMP)


BY_SAMPLE: Mapping[str, Mapping[str, int]] = {
    "GroupNormalization": {"num_groups": 2}, "InstanceNormalization": {}, "LayerNormalization": {},
    "RMSNormalization": {}, "Softmax": {}, "LogSoftmax": {}, "LRN": {"size": 3},
    "LpNormalization": {},
}  # fmt: skip


@given(op=st.sampled_from(sorted(BY_SAMPLE)), one=st.integers(0, 5), other=st.integers(0, 5))
def test_operations_are_additive_over_the_batch(op: str, one: int, other: int) -> None:
    def count(batch: int) -> int:
        return normalized(op, (batch, 4, 3), (4,), (4,), **BY_SAMPLE[op])

    assert count(one + other) == count(one) + count(other)


def reduced(op: str) -> int:
    """A reduction of 60 elements to 12."""
    return ops(node(op, [(3, 4, 5)], [(3, 4)]))


@pytest.mark.parametrize(
    ("op", "each", "result"),
    [
        ("ArgMax", CMP, 0),
        ("ReduceL1", CMP + ADD, 0),
        ("ReduceL2", MUL + ADD, SQRT),
        ("ReduceLogSum", ADD, LOG),
        ("ReduceMax", CMP, 0),
        ("ReduceMean", ADD, DIV),
        ("ReduceProd", MUL, 0),
        ("ReduceSum", ADD, 0),
        ("ReduceSumSquare", MUL + ADD, 0),
    ],
)
def test_each_input_element_is_gathered_and_each_result_finished(
    op: str, each: int, result: int
) -> None:
    assert reduced(op) == 60 * each + 12 * result


def test_confirmed_wrong_14_reduce_log_sum_exp_subtracts_its_maximum() -> None:
    assert reduced("ReduceLogSumExp") == 60 * (CMP + ADD + EXP + ADD) + 12 * (LOG + ADD)


def test_confirmed_wrong_14_arg_min_costs_as_arg_max() -> None:
    assert reduced("ArgMin") == reduced("ArgMax") == 60 * CMP


def test_a_sum_needs_no_output_shape() -> None:
    assert ops(node("ReduceSum", [(3, 4)], [unknown()])) == 12 * ADD
    assert ops(node("NonZero", [(3, 4)], [unknown()])) == 12 * CMP


def test_running_sums_make_each_element_from_the_last() -> None:
    assert ops(node("CumSum", [(3, 4), ()], [(3, 4)])) == 12 * ADD
    assert ops(node("CumProd", [(3, 4), ()], [(3, 4)])) == 12 * MUL


def test_a_selection_sifts_a_heap_of_k() -> None:
    outputs = [(2, 8), (2, 8)]
    assert ops(node("TopK", [(2, 100), (1,)], outputs)) == 200 * 3 * CMP + 32 * MOV
    first = [(1, 100), (1, 100)]
    assert ops(node("TopK", [(2, 100), (1,)], first, axis=0)) == 200 * CMP + 200 * MOV


def test_distinct_elements_are_sorted_first() -> None:
    assert ops(node("Unique", [(4, 4)], [unknown()])) == 16 * (4 + 1) * CMP
    assert ops(node("Unique", [(4, 4)], [unknown()], axis=0)) == 16 * (2 + 1) * CMP
    assert ops(node("com.microsoft::Unique", [(16,)], [unknown()] * 3)) == 16 * (4 + 1) * CMP


def test_finiteness_looks_at_every_input() -> None:
    assert ops(node("com.microsoft::IsAllFinite", [(3, 4), (5,), ()], [()])) == 18 * CMP


@given(st.integers(1, 10_000))
def test_ceil_log2_is_the_logarithm_rounded_up(n: int) -> None:
    assert ceil_log2(n) == ceil(log2(n))
    assert ceil_log2(0) == 0
