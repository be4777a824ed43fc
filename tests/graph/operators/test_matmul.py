"""Matrix products: numpy's shapes, transposed operands, and what compressed weights hold."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.graph.operators.cost import (
    ADD,
    CMP,
    DIV,
    EXP,
    MOV,
    MUL,
    SQRT,
    Contraction,
    Cost,
)
from pytest_modelperf.graph.operators.matmul import broadcast
from pytest_modelperf.graph.structure import Attribute, Shape, Tensor, UnknownShapeError
from tests.graph.operators.nodes import cost, node, unknown
from tests.graph.operators.operator_call import call as run_call

SCALAR: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("a", "b", "macs"),
    [
        ((4, 5), (5, 6), 4 * 5 * 6),
        ((2, 3, 4, 5), (5, 6), 2 * 3 * 4 * 5 * 6),
        ((2, 1, 4, 5), (3, 5, 6), 2 * 3 * 4 * 5 * 6),
        ((5,), (5, 6), 5 * 6),
        ((7, 4, 5), (5,), 7 * 4 * 5),
        ((5,), (7, 5, 6), 7 * 5 * 6),
        ((3, 4), (4,), 3 * 4),
        ((5,), (5,), 5),
        ((0, 4, 5), (1, 5, 6), 0),
    ],
)
def test_matmul_follows_numpy(a: tuple[int, ...], b: tuple[int, ...], macs: int) -> None:
    call = cost(node("MatMul", [a, b], [unknown()]))
    assert call == Cost((Contraction(macs, (0, 1)),))


def test_gemm_transposes_first() -> None:
    for trans_a, trans_b in product((0, 1), repeat=2):
        a, b = ((5, 4) if trans_a else (4, 5)), ((6, 5) if trans_b else (5, 6))
        gemm = node("Gemm", [a, b], [(4, 6)], transA=trans_a, transB=trans_b)
        assert cost(gemm) == Cost((Contraction(4 * 5 * 6, (0, 1)),))


def test_gemm_scales_and_adds_only_what_its_factors_ask_for() -> None:
    def ops(*inputs: Shape, **attributes: Attribute) -> int:
        gemm = node("Gemm", [(4, 5), (5, 6), *inputs], [(4, 6)])
        gemm = replace(gemm, attributes=attributes)
        assert cost(gemm).macs == 4 * 5 * 6
        return cost(gemm).elementwise_ops

    assert ops() == ops(beta=2.0) == ops((6,), beta=0.0) == 0
    assert ops((6,)) == ops((4, 1)) == 4 * 6 * ADD
    assert ops((6,), alpha=0.5, beta=2.0) == 4 * 6 * (MUL + ADD + MUL)


def test_confirmed_wrong_8_quantized_product_broadcasts_its_batch() -> None:
    shapes = [(3, 1, 4, 5), SCALAR, SCALAR, (2, 5, 4), SCALAR, SCALAR, SCALAR, SCALAR]
    quantized = cost(node("QLinearMatMul", shapes, [(3, 2, 4, 4)]))
    assert quantized.contractions == (Contraction(3 * 2 * 4 * 5 * 4, (0, 3)),)
    assert quantized.macs == 480
    shifts = (3 * 4 * 5 + 2 * 5 * 4) * ADD
    assert quantized.elementwise_ops == shifts + 3 * 2 * 4 * 4 * (MUL + ADD + 2 * CMP)


def test_integer_product_shifts_operands_that_have_zero_points() -> None:
    assert cost(node("MatMulInteger", [(4, 5), (5, 6), SCALAR], [(4, 6)])) == Cost(
        (Contraction(4 * 5 * 6, (0, 1)),), 4 * 5 * ADD
    )


def test_integer_product_to_float_is_scaled_once() -> None:
    shapes = [(4, 5), (5, 6), SCALAR, SCALAR, SCALAR, None, (6,)]
    call = cost(node("com.microsoft::MatMulIntegerToFloat", shapes, [(4, 6)]))
    assert call == Cost((Contraction(120, (0, 1)),), 4 * 5 * ADD + 24 * MUL + 24 * ADD)


def test_dynamic_quantization_is_of_the_left_operand() -> None:
    call = cost(node("com.microsoft::DynamicQuantizeMatMul", [(4, 5), (5, 6), SCALAR], [(4, 6)]))
    assert call.macs == 4 * 5 * 6
    assert call.elementwise_ops == 4 * 5 * (2 * CMP + DIV + ADD + 2 * CMP) + 24 * MUL


@pytest.mark.parametrize("scale", [None, SCALAR])
def test_quantized_gemm_multiplies_inputs_0_and_3(scale: Shape | None) -> None:
    shapes = [(4, 5), SCALAR, SCALAR, (6, 5), SCALAR, SCALAR, (6,), scale, scale]
    call = cost(node("com.microsoft::QGemm", shapes, [(4, 6)], transB=1))
    assert call.contractions == (Contraction(4 * 5 * 6, (0, 3)),)
    rescale = MUL if scale is None else MUL + ADD + 2 * CMP
    assert call.elementwise_ops == (4 * 5 + 5 * 6) * ADD + 24 * ADD + 24 * rescale


def test_ordered_product_multiplies_inputs_0_and_2() -> None:
    shapes = [(2, 4, 5), SCALAR, (5, 6), SCALAR, SCALAR, (6,)]
    call = cost(node("com.microsoft::QOrderedMatMul", shapes, [(2, 4, 6)]))
    assert call.contractions == (Contraction(2 * 4 * 5 * 6, (0, 2)),)


def test_confirmed_wrong_14_compressed_weight_counts_as_the_dense_one() -> None:
    packed = [(2, 7, 128), (96, 4, 16), (96, 4), None, None, (96,)]
    call = cost(node("com.microsoft::MatMulNBits", packed, [(2, 7, 96)], K=128, N=96, bits=4))
    assert call.contractions == (Contraction(2 * 7 * 128 * 96, (0, 1)),)
    assert call.elementwise_ops == 128 * 96 * (ADD + MUL) + 2 * 7 * 96 * ADD


def test_other_compressed_weights() -> None:
    bnb = node("com.microsoft::MatMulBnb4", [(7, 128), (6144,), (96,)], [(7, 96)], K=128, N=96)
    assert cost(bnb).macs == 7 * 128 * 96
    back = node(
        "com.microsoft::MatMulBnb4", [(7, 96), (6144,), (96,)], [(7, 128)], K=128, N=96, transB=0
    )
    assert cost(back).macs == 7 * 96 * 128
    shape = Tensor("shape", "int64", (2,), is_constant=True, value=np.array([128, 96]))
    fpq4 = node("com.microsoft::MatMulFpQ4", [(7, 128), (6912,), shape], [unknown()])
    assert cost(fpq4).macs == 7 * 128 * 96
    unread = node("com.microsoft::MatMulFpQ4", [(7, 128), (6912,), (2,)], [(7, 96)])
    assert cost(unread).macs == 7 * 128 * 96
    fp4 = "com.microsoft::MatMulBlockQuantizedFp4Weight"
    assert cost(node(fp4, [(7, 128), (96, 64)], [unknown()])).macs == 7 * 128 * 96
    fp8 = "com.microsoft::MatMulBlockQuantizedFp8Weight"
    plain = cost(node(fp8, [(7, 128), (96, 128), (96, 1)], [unknown()]))
    scaled = cost(node(fp8, [(7, 128), (96, 128), (96, 1), SCALAR], [unknown()]))
    assert plain.macs == scaled.macs == 7 * 128 * 96
    assert scaled.elementwise_ops - plain.elementwise_ops == 7 * 128 * (DIV + 2 * CMP + MUL)


def test_fused_projections_each_count() -> None:
    mlp = node(
        "com.microsoft::MatMulNBitsMlp",
        [(2, 1, 64), None, None, (8, 2, 16), (8, 2), None, (8, 2, 16), (8, 2)], [(2, 1, 8)], K=64,
        N=8, activation="silu",
    )  # fmt: skip
    assert cost(mlp).contractions == (
        Contraction(2 * 64 * 8, (0, 3)),
        Contraction(2 * 64 * 8, (0, 6)),
    )
    silu = ADD + EXP + ADD + DIV + MUL
    assert cost(mlp).elementwise_ops == 2 * 64 * 8 * (ADD + MUL) + 2 * 8 * (silu + MUL)
    blob, scales = (8, 2, 16), (8, 2)
    qkv = node(
        "com.microsoft::MatMulNBitsQkv",
        [(2, 1, 64), None, (64,), blob, scales, None, blob, scales, None, blob, scales],
        [(2, 1, 16), (2, 1, 8), (2, 1, 8)], K=64, Nq=16, Nkv=8,
    )  # fmt: skip
    assert [c.macs for c in cost(qkv).contractions] == [2 * 64 * 16, 2 * 64 * 8, 2 * 64 * 8]
    assert [c.operands for c in cost(qkv).contractions] == [(0, 3), (0, 6), (0, 9)]


def test_gemms_of_float8_ignore_c_unless_beta_is_given() -> None:
    shapes = [(4, 5), (6, 5), (6,)]
    plain = node("com.microsoft::GemmFloat8", shapes, [(4, 6)], transB=1)
    assert cost(plain) == Cost((Contraction(4 * 5 * 6, (0, 1)),))
    added = node("com.microsoft::GemmFloat8", shapes, [(4, 6)], transB=1, beta=1.0)
    assert cost(added).elementwise_ops == 4 * 6 * ADD


def test_fused_activations_are_elementwise() -> None:
    relu = node("com.microsoft::FusedGemm", [(4, 5), (5, 6)], [(4, 6)], activation="Relu")
    assert cost(relu) == Cost((Contraction(120, (0, 1)),), 24 * CMP)
    fused = node(
        "com.microsoft::FusedMatMulActivation", [(4, 5), (5, 6)], [(4, 6)], activation="LeakyRelu"
    )
    assert cost(fused) == Cost((Contraction(120, (0, 1)),), 24 * (CMP + MUL))
    strange = node("com.microsoft::FusedGemm", [(4, 5), (5, 6)], [(4, 6)], activation="Unheard")
    assert cost(strange) == Cost((Contraction(120, (0, 1)),), 24 * CMP)
    gelu = cost(node("com.microsoft::GemmFastGelu", [(2, 4, 5), (5, 6), (6,)], [unknown()]))
    assert gelu.macs == 2 * 120
    assert gelu.elementwise_ops > 48 * (ADD + 38)


@pytest.mark.parametrize(
    ("a", "b", "attributes"),
    [
        ((2, 3, 5), (5, 7), {}),
        ((2, 5, 3), (2, 7, 5), {"transA": 1, "transB": 1}),
        ((3, 2, 5), (2, 5, 7), {"transBatchA": 1}),
        ((5, 2, 3), (2, 5, 7), {"transBatchA": 1, "transA": 1}),
        ((3, 2, 4, 5), (2, 4, 5, 7), {"transBatchA": 1}),
        ((2, 4, 5), (7, 2, 5), {"transBatchB": 1, "transB": 1}),
        ((5,), (5, 7), {"transA": 1}),
    ],
)
def test_fused_product_has_the_rows_and_columns_of_a_real_run(
    a: tuple[int, ...], b: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    """Every inner dimension is 5."""
    shapes = " ".join(f"f32{list(shape)}".replace(" ", "") for shape in (a, b))
    (y,) = run_call("FusedMatMul", shapes, alpha=0.5, **attributes).returned()
    assert y.shape is not None
    size = prod(dim or 0 for dim in y.shape)
    fused = cost(node("com.microsoft::FusedMatMul", [a, b], [unknown()], alpha=0.5, **attributes))
    assert fused == Cost((Contraction(size * 5, (0, 1)),), size * MUL)


def test_sparse_left_operand_counts_as_dense() -> None:
    call = node("com.microsoft::SparseToDenseMatMul", [(5, 4), (5, 6)], [(4, 6)], transA=1)
    assert cost(call).macs == 4 * 5 * 6


def test_a_token_passes_through_k_experts() -> None:
    shapes = [(2, 3, 16), (6, 8), (8, 32, 16), (8, 32), (8, 16, 32), (8, 16)]
    call = cost(node("com.microsoft::MoE", shapes, [(2, 3, 16)], k=2, activation_type="relu"))
    assert call.contractions == (
        Contraction(6 * 2 * 16 * 32, (0, 2)),
        Contraction(6 * 2 * 32 * 16, (None, 4)),
    )
    softmax = CMP + ADD + EXP + ADD + DIV
    router = 6 * (8 * (softmax + 2 * CMP) + 2 * (ADD + DIV))
    biases, mixing = 12 * (32 + 16) * ADD, 12 * 16 * (MUL + ADD)
    assert call.elementwise_ops == router + biases + mixing + 12 * 32 * CMP


def test_gated_experts_count_both_halves_in_any_layout() -> None:
    apart = [(6, 16), (6, 8), (8, 32, 16), None, (8, 16, 32), None, (8, 32, 16)]
    together = [(6, 16), (6, 8), (8, 64, 16), None, (8, 16, 32)]
    costs = [
        cost(node("com.microsoft::MoE", shapes, [(6, 16)], k=2, activation_type="swiglu"))
        for shapes in (apart, together)
    ]
    assert costs[0].macs == costs[1].macs == 6 * 2 * 3 * 16 * 32
    assert costs[0].elementwise_ops == costs[1].elementwise_ops


@pytest.mark.parametrize("activation", ["relu", "swiglu", "geglu"])
def test_experts_of_older_exporters_count_the_same_the_other_way_round(activation: str) -> None:
    first = 32 if activation == "relu" else 64
    now = [(6, 16), (6, 8), (8, first, 16), None, (8, 16, 32)]
    before = [(6, 16), (6, 8), (8, 16, first), None, (8, 32, 16)]
    found = [
        cost(node("com.microsoft::MoE", shapes, [(6, 16)], k=2, activation_type=activation))
        for shapes in (now, before)
    ]
    assert found[0] == found[1]
    assert found[0].macs == 6 * 2 * 16 * (first + 32)


def test_a_projection_that_is_left_out_costs_its_bias() -> None:
    shapes = [(4, 64), (0, 2, 16), (0,), None, None, (8,)]
    left_out = node("com.microsoft::MatMulNBits", shapes, [(4, 8)], K=64, N=8, bits=4)
    assert cost(left_out) == Cost((), 4 * 8 * ADD)


def test_quantized_experts_count_as_dense_ones_and_decode_those_in_use() -> None:
    def moe(tokens: int) -> Cost:
        shapes = [(tokens, 16), (tokens, 8), (8, 32, 16), None, (8, 16, 32)]
        return cost(node("com.microsoft::MoE", shapes, [(tokens, 16)], k=2))

    def qmoe(tokens: int) -> Cost:
        packed = [(tokens, 16), (tokens, 8), (8, 32, 8), (8, 32), None, (8, 16, 16), (8, 16)]
        return cost(node("com.microsoft::QMoE", packed, [(tokens, 16)], k=2))

    for tokens, in_use in ((1, 2), (6, 8)):
        assert qmoe(tokens).macs == moe(tokens).macs == tokens * 2 * 2 * 16 * 32
        decoded = qmoe(tokens).elementwise_ops - moe(tokens).elementwise_ops
        assert decoded == in_use * 2 * 16 * 32 * (ADD + MUL)


def test_distances_are_one_product_of_rows_with_rows() -> None:
    call = node("com.microsoft::CDist", [(4, 5), (6, 5)], [(4, 6)], metric="sqeuclidean")
    assert cost(call).contractions == (Contraction(4 * 6 * 5, (0, 1)),)
    norms, pairs = (4 + 6) * 5 * (MUL + ADD), 4 * 6 * (MUL + 2 * ADD + CMP)
    assert cost(call).elementwise_ops == norms + pairs
    rooted = node("com.microsoft::CDist", [(4, 5), (6, 5)], [(4, 6)], metric="euclidean")
    assert cost(rooted).elementwise_ops == norms + pairs + 4 * 6 * SQRT


def einsum(equation: str, *shapes: tuple[int, ...]) -> Cost:
    return cost(node("Einsum", shapes, [unknown()], equation=equation))


def test_confirmed_wrong_7_einsum_with_an_ellipsis() -> None:
    assert einsum("...ij,...jk->...ik", (7, 2, 3, 4), (2, 4, 5)).macs == 7 * 2 * 3 * 4 * 5
    assert einsum("...ij,jk", (7, 2, 3, 4), (4, 5)).macs == 7 * 2 * 3 * 4 * 5
    assert einsum("...i,...i->...", (1, 4), (3, 4)).macs == 3 * 4


def test_confirmed_wrong_7_einsum_of_one_operand_has_no_macs() -> None:
    assert einsum("ij->ji", (3, 4)) == Cost((), 12 * MOV)
    assert einsum("ij->i", (3, 4)) == Cost((), 12 * ADD)
    assert einsum("ii->i", (4, 4)) == Cost((), 4 * MOV)
    assert einsum("ii", (4, 4)) == Cost((), 4 * ADD)


def test_confirmed_wrong_7_einsum_of_three_operands_goes_pairwise_from_the_left() -> None:
    assert einsum("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)).contractions == (
        Contraction(2 * 3 * 4, (0, 1)),
        Contraction(2 * 4 * 5, (None, 2)),
    )


def test_einsum_without_an_arrow_keeps_what_appears_once() -> None:
    assert einsum("ij,jk", (2, 3), (3, 4)) == einsum("ij,jk->ik", (2, 3), (3, 4))
    assert einsum("i , j", (2,), (3,)) == Cost((), 6 * MUL)


def test_einsum_that_sums_nothing_is_elementwise() -> None:
    assert einsum("bi,bi->bi", (2, 3), (2, 3)) == Cost((), 6 * MUL)
    assert einsum("i,j,ij->", (2,), (3,), (2, 3)) == Cost((Contraction(6, (None, 2)),), 6 * MUL)


def test_einsum_with_a_diagonal_and_case_counts_distinct_indexes() -> None:
    assert einsum("iij,jJ->iJ", (2, 2, 3), (3, 4)).macs == 2 * 3 * 4


sizes = st.integers(1, 6)


@given(sizes, sizes, sizes)
def test_einsum_of_a_matrix_product_is_matmul(rows: int, inner: int, columns: int) -> None:
    shapes = [(rows, inner), (inner, columns)]
    assert einsum("ij,jk->ik", *shapes) == cost(node("MatMul", shapes, [unknown()]))


@given(
    st.text("ijkl", min_size=1, max_size=4),
    st.text("ijkl", min_size=1, max_size=4),
    st.sets(st.sampled_from("ijkl")),
)
def test_einsum_of_two_operands_multiplies_once_in_each_turn_of_its_loops(
    left: str, right: str, wanted: set[str]
) -> None:
    extent = {"i": 2, "j": 3, "k": 1, "l": 4}
    labels = sorted({*left, *right})
    kept = sorted(wanted & {*labels})
    turns = sum(1 for _ in product(*(range(extent[label]) for label in labels)))
    shapes = [tuple(extent[label] for label in term) for term in (left, right)]
    call = einsum(f"{left},{right}->{''.join(kept)}", *shapes)
    if kept == labels:
        assert call == Cost((), turns * MUL)
    else:
        assert call == Cost((Contraction(turns, (0, 1)),))


@given(sizes, sizes, sizes, sizes, sizes)
def test_macs_are_additive_over_the_batch(
    one: int, other: int, rows: int, inner: int, columns: int
) -> None:
    def macs(batch: int) -> int:
        return cost(node("MatMul", [(batch, rows, inner), (inner, columns)], [unknown()])).macs

    assert macs(one + other) == macs(one) + macs(other)


shapes = st.lists(st.sampled_from([1, 3]), max_size=4).map(tuple)


@given(shapes, shapes)
def test_broadcasting_is_numpys(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert broadcast(a, b) == np.broadcast_shapes(a, b)
    assert prod(broadcast(a, b)) == np.broadcast(np.empty(a), np.empty(b)).size


def test_an_unknown_operand_is_named() -> None:
    with pytest.raises(UnknownShapeError, match="lost"):
        cost(node("MatMul", [(3, 4), unknown("lost")], [(3, 5)]))


def qlora(down: int, up: int) -> Cost:
    """A base of 64 x 8 with an adapter of rank 7, either half of which may be empty."""
    shapes = [(2, 3, 64), (8, 2, 16), (8, 2), (down, 2, 32), (7, 2), (up, 1, 32), (8, 1)]
    return cost(node("com.microsoft::MatMulNBitsQLoRA", shapes, [(2, 3, 8)], K=64, N=8))


def test_an_adapter_adds_two_thin_products() -> None:
    shapes = [(2, 3, 64), (8, 2, 16), (8, 2)]
    base = cost(node("com.microsoft::MatMulNBits", shapes, [(2, 3, 8)], K=64, N=8, bits=4))
    adapted = qlora(7, 8)
    assert adapted.contractions == (
        *base.contractions,
        Contraction(6 * 64 * 7, (0, 3)),
        Contraction(6 * 7 * 8, (None, 5)),
    )
    added = adapted.elementwise_ops - base.elementwise_ops
    assert added == (64 * 7 + 7 * 8) * (ADD + MUL) + 48 * ADD
    assert qlora(7, 0) == qlora(0, 0) == base
    assert qlora(0, 8).macs == base.macs + 6 * 7 * 8


def test_a_packed_weight_is_decoded_unless_it_holds_floats() -> None:
    def packed(*scale: tuple[int, ...], **attributes: Attribute) -> Cost:
        call = node("com.microsoft::MatMulPacked", [(2, 3, 64), (8, 36), *scale], [unknown()])
        return cost(replace(call, attributes={"K": 64, "N": 8, **attributes}))

    plain = packed(packed_type=2)
    assert plain == Cost((Contraction(6 * 64 * 8, (0, 1)),), 64 * 8 * (ADD + MUL))
    assert packed(packed_type=30) == Cost(plain.contractions)
    assert packed(SCALAR, packed_type=40).elementwise_ops - plain.elementwise_ops == 48 * MUL
    for name in ("relu2", "relu_squared"):
        activated = packed(packed_type=2, activation_type=name)
        assert activated.elementwise_ops - plain.elementwise_ops == 48 * (CMP + MUL)


def packed_experts(*inputs: tuple[int, ...] | None, **attributes: Attribute) -> Cost:
    types = {"gate_type": 16, "up_type": 16, "down_type": 16}
    call = node("com.microsoft::MoEPacked", inputs, [(6, 256)])
    return cost(replace(call, attributes={"k": 2, **types, **attributes}))


def test_packed_experts_have_the_macs_of_dense_ones() -> None:
    scores, up, down = (6, 8), (8, 32, 66), (8, 256, 9)
    gated = packed_experts((6, 256), scores, up, up, down)
    single = packed_experts((6, 256), scores, up, None, down, activation_type="relu2")
    passes = 6 * 2
    for call, layers, gate in ((gated, 3, ADD + EXP + ADD + DIV + 2 * MUL), (single, 2, CMP + MUL)):
        assert call.macs == layers * passes * 256 * 32
        router = 6 * (8 * (CMP + ADD + EXP + ADD + DIV + 2 * CMP) + 2 * (ADD + DIV))
        mixed = passes * 256 * (MUL + ADD)
        decoded = layers * 8 * 256 * 32 * (ADD + MUL)
        assert call.elementwise_ops == router + mixed + passes * 32 * gate + decoded


def test_packed_experts_may_be_mixed_by_values_that_are_given() -> None:
    inputs = [(6, 256), (6, 8), (8, 32, 66), None, (8, 256, 9)]
    softmax = packed_experts(*inputs)
    given = packed_experts(*inputs, (6, 8), routed_scaling_factor=2.5)
    difference = 12 * MUL - 48 * (CMP + ADD + EXP + ADD + DIV)
    assert given.elementwise_ops - softmax.elementwise_ops == difference
    raw = packed_experts(*inputs, normalize_routing_weights=0)
    assert softmax.elementwise_ops - raw.elementwise_ops == 12 * (ADD + DIV)
