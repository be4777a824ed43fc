"""Attention: scores and blends of every head, whichever way queries, keys and values are packed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx.reference
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
    TANH,
    Contraction,
    Cost,
)
from pytest_modelperf.graph.structure import Attribute, Shape, Tensor, UnknownShapeError
from tests.graph.operators.nodes import cost, node, reference, unknown

SCALAR: tuple[int, ...] = ()
SOFTMAX = CMP + ADD + EXP + ADD + DIV
ROTARY = 2 * MUL + ADD


def ms(
    op: str, inputs: Sequence[Shape | Tensor | None], *outputs: Shape, **attributes: Attribute
) -> Cost:
    return cost(replace(node(f"com.microsoft::{op}", inputs, outputs), attributes=attributes))


def test_confirmed_wrong_14_attention_in_four_dimensions() -> None:
    shapes = [(2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6)]
    call = cost(node("Attention", shapes, [(2, 4, 5, 6)], opset=23))
    assert call.contractions == (
        Contraction(2 * 4 * 5 * 7 * 8, (0, 1)),
        Contraction(2 * 4 * 5 * 7 * 6, (None, 2)),
    )
    assert call.elementwise_ops == 2 * 4 * 5 * 7 * (MUL + SOFTMAX)


def test_attention_in_three_dimensions_splits_heads_by_its_attributes() -> None:
    shapes = [(2, 5, 4 * 8), (2, 7, 2 * 8), (2, 7, 2 * 6)]
    flat = cost(node("Attention", shapes, [unknown()], q_num_heads=4, kv_num_heads=2))
    deep = cost(
        node("Attention", [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)], [unknown()], opset=24)
    )
    assert flat == deep
    assert flat.macs == 2 * 4 * 5 * 7 * (8 + 6)


def test_attention_meets_past_keys_as_well() -> None:
    shapes = [(1, 4, 1, 8), (1, 4, 1, 8), (1, 4, 1, 8), None, (1, 4, 9, 8), (1, 4, 9, 8)]
    assert cost(node("Attention", shapes, [unknown()])).macs == 4 * 1 * (9 + 1) * (8 + 8)


def test_masks_and_caps_are_elementwise_and_subtract_nothing() -> None:
    shapes = [(1, 4, 5, 8)] * 3
    plain = cost(node("Attention", shapes, [unknown()]))
    causal = cost(node("Attention", shapes, [unknown()], is_causal=1))
    masked = cost(node("Attention", [*shapes, (5, 5)], [unknown()]))
    capped = cost(node("Attention", shapes, [unknown()], softcap=30.0))
    assert plain.macs == causal.macs == masked.macs == capped.macs
    scores = 4 * 5 * 5
    assert causal.elementwise_ops - plain.elementwise_ops == scores * CMP
    assert masked.elementwise_ops - plain.elementwise_ops == scores * ADD
    assert capped.elementwise_ops - plain.elementwise_ops == scores * (DIV + TANH + MUL)


@pytest.mark.skipif(
    onnx.defs.onnx_opset_version() < 23, reason="this onnx is older than the operator"
)
@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_the_number_of_scores_is_that_of_a_real_run(past: int, kv_heads: int) -> None:
    keys = (2, kv_heads, 6, 8)
    inputs: list[tuple[int, ...] | None] = [(2, 4, 5, 8), keys, keys]
    if past:
        inputs += [None, (2, kv_heads, past, 8), (2, kv_heads, past, 8)]
    feeds = [None if shape is None else np.ones(shape, np.float32) for shape in inputs]
    scores = reference("Attention", feeds, outputs=4, opset=23)
    assert cost(node("Attention", inputs, [unknown()])).macs == scores.size * (8 + 8)


def test_flex_attention_serves_query_heads_from_shared_keys() -> None:
    shapes = [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)]
    call = cost(node("ai.onnx.preview::FlexAttention", shapes, [unknown()]))
    assert call.macs == 2 * 4 * 5 * 7 * (8 + 6)


@pytest.mark.parametrize("domain", ["", "com.microsoft::"])
def test_linear_attention_updates_and_reads_a_state_per_token(domain: str) -> None:
    def count(rule: str, *inputs: Shape | None) -> Cost:
        shapes = [(2, 5, 4 * 8), (2, 5, 2 * 8), (2, 5, 2 * 6), *inputs]
        return cost(
            node(
                f"{domain}LinearAttention",
                shapes,
                [unknown()],
                q_num_heads=4,
                kv_num_heads=2,
                update_rule=rule,
            )
        )

    update, read = 2 * 5 * 2 * 8 * 6, 2 * 5 * 4 * 8 * 6
    linear = count("linear")
    assert linear.contractions == (Contraction(update, (1, 2)), Contraction(read, (0, None)))
    assert linear.elementwise_ops == 2 * 5 * 4 * 6 * MUL
    gated = count("gated", None, (2, 5, 2))
    assert gated.macs == linear.macs
    assert gated.elementwise_ops - linear.elementwise_ops == 2 * 5 * 2 * EXP + update * MUL
    delta = count("delta", None, None, (2, 5, 2))
    assert delta.contractions == (Contraction(update, (None, 1)), *linear.contractions)
    assert delta.elementwise_ops - linear.elementwise_ops == 2 * 5 * 12 * (ADD + MUL)
    both = count("gated_delta", None, (2, 5, 2), (2, 5, 2))
    assert both.macs == delta.macs


def test_fused_projection_then_scores_then_blend() -> None:
    call = ms("Attention", [(2, 5, 12), (12, 48), (48,)], (2, 5, 16), num_heads=4)
    assert call.contractions == (
        Contraction(2 * 5 * 12 * 48, (0, 1)),
        Contraction(2 * 4 * 5 * 5 * 4, (None, None)),
        Contraction(2 * 4 * 5 * 5 * 4, (None, None)),
    )
    assert call.elementwise_ops == 2 * 5 * 48 * ADD + 2 * 4 * 5 * 5 * (MUL + SOFTMAX)


def test_fused_attention_with_a_wider_value_and_a_past() -> None:
    shapes = [(2, 5, 12), (12, 40), (40,), (2, 8), (2, 2, 4, 3, 2)]
    call = ms("Attention", shapes, (2, 5, 24), num_heads=4, qkv_hidden_sizes=(8, 8, 24))
    assert [c.macs for c in call.contractions] == [
        2 * 5 * 12 * 40,
        2 * 4 * 5 * (3 + 5) * 2,
        2 * 4 * 5 * (3 + 5) * 6,
    ]


def test_a_shared_buffer_counts_at_its_capacity() -> None:
    decoding = [(2, 1, 12), (12, 48), (48,), None, (2, 2, 4, 20, 4), None, SCALAR]
    for op in ("Attention", "DecoderMaskedSelfAttention"):
        call = ms(op, decoding, (2, 1, 16), num_heads=4, past_present_share_buffer=1)
        assert call.macs == 2 * 12 * 48 + 2 * (2 * 4 * 20 * 4)


def test_rotation_is_of_new_queries_and_keys() -> None:
    shapes = [(2, 5, 12), (12, 48)]
    still = ms("Attention", shapes, (2, 5, 16), num_heads=4)
    rotated = ms("Attention", shapes, (2, 5, 16), num_heads=4, do_rotary=1)
    assert rotated.macs == still.macs
    assert rotated.elementwise_ops - still.elementwise_ops == 2 * 5 * 2 * 16 * ROTARY
    partly = ms("Attention", shapes, (2, 5, 16), num_heads=4, do_rotary=1, rotary_embedding_dim=2)
    assert partly.elementwise_ops - still.elementwise_ops == 2 * 5 * 2 * 8 * ROTARY


def test_quantized_attention_has_the_macs_of_its_float_twin() -> None:
    floats = ms("Attention", [(2, 5, 12), (12, 48), (48,)], (2, 5, 16), num_heads=4)
    shapes: list[Shape | Tensor | None] = [(2, 5, 12), (12, 48), (48,), SCALAR, SCALAR]
    quantized = ms("QAttention", shapes, (2, 5, 16), num_heads=4)
    assert quantized.contractions == floats.contractions
    assert quantized.elementwise_ops - floats.elementwise_ops == 2 * 5 * 48 * MUL
    past = [*shapes, None, None, None, (2, 2, 4, 3, 4)]
    assert ms("QAttention", past, (2, 5, 16), num_heads=4).macs - floats.macs == (
        2 * (2 * 4 * 5 * 3 * 4)
    )
    ordered: list[Shape | Tensor | None] = [(2, 5, 12), *[SCALAR] * 4, *[(12, 16)] * 3]
    ordered += [*[(16,)] * 3, *[(16,)] * 3, SCALAR, SCALAR, SCALAR]
    call = ms("QOrderedAttention", ordered, (2, 5, 16), num_heads=4)
    assert call.macs == floats.macs
    assert [c.operands for c in call.contractions[:3]] == [(0, 5), (0, 6), (0, 7)]


def test_multi_head_attention_is_the_same_however_it_is_packed() -> None:
    shapes: list[list[Shape | Tensor | None]] = [
        [(2, 5, 32), (2, 5, 32), (2, 5, 32)],
        [(2, 5, 32), (2, 5, 4, 2, 8)],
        [(2, 5, 4, 3, 8)],
        [(2, 5, 32), (2, 4, 5, 8), (2, 4, 5, 8)],
    ]
    apart, kv, qkv, cached = (ms("MultiHeadAttention", s, (2, 5, 32), num_heads=4) for s in shapes)
    assert apart.macs == kv.macs == qkv.macs == cached.macs == 2 * (2 * 4 * 5 * 5 * 8)
    assert [c.operands for c in apart.contractions] == [(0, 1), (None, 2)]
    assert [c.operands for c in kv.contractions] == [(0, 1), (None, 1)]
    assert [c.operands for c in qkv.contractions] == [(0, 0), (None, 0)]


def test_multi_head_attention_across_sequences_with_bias_mask_and_past() -> None:
    shapes = [(2, 5, 32), (2, 7, 32), (2, 7, 24), (88,), (2, 10), None, (2, 4, 3, 8), (2, 4, 3, 6)]
    call = ms("MultiHeadAttention", shapes, (2, 5, 24), num_heads=4)
    scores = 2 * 4 * 5 * (3 + 7)
    assert [c.macs for c in call.contractions] == [scores * 8, scores * 6]
    biases = 2 * (5 * 32 + 7 * 32 + 7 * 24) * ADD
    assert call.elementwise_ops == biases + scores * (MUL + ADD + SOFTMAX)


def test_decoder_masked_attention_of_one_token() -> None:
    past = (2, 4, 9, 8)
    apart = [(2, 1, 32), (2, 1, 32), (2, 1, 32), None, None, past, past]
    packed = [(2, 1, 96), None, None, None, None, past, past]
    op = "DecoderMaskedMultiHeadAttention"
    for shapes in (apart, packed):
        assert ms(op, shapes, (2, 1, 32), num_heads=4).macs == 2 * (2 * 4 * 10 * 8)
    shared = ms(op, apart, (2, 1, 32), num_heads=4, past_present_share_buffer=1)
    assert shared.macs == 2 * (2 * 4 * 9 * 8)
    cross = [(2, 1, 32), (2, 4, 7, 8), (2, 4, 7, 8)]
    assert ms(op, cross, (2, 1, 32), num_heads=4).macs == 2 * (2 * 4 * 7 * 8)


def flag(value: bool) -> Tensor:  # noqa: FBT001  # a value, not a switch
    return Tensor("flag", "bool", (1,), is_constant=True, value=np.array([value]))


@pytest.mark.parametrize(
    ("cross", "use_past", "keys", "projected"),
    [(False, False, 5, 5), (False, True, 3 + 5, 5), (True, False, 7, 7), (True, True, 3, 0)],
)
def test_decoder_attention_follows_its_flags(
    cross: bool,  # noqa: FBT001  # a parameter of the table above
    use_past: bool,  # noqa: FBT001  # likewise
    keys: int,
    projected: int,
) -> None:
    cache = (2, 4, 3, 8)
    shapes = [(5, 2, 32), (7, 2, 32), (32, 32), (32, 64), (96,), None, cache, cache]
    flags = [flag(cross), flag(use_past), flag(value=True), flag(value=False)]
    call = ms("DecoderAttention", [*shapes, *flags], (5, 2, 32), num_heads=4)
    projections = 2 * 5 * 32 * 32 + 2 * projected * 32 * 64
    assert call.macs == projections + 2 * (2 * 4 * 5 * keys * 8)


def gqa(inputs: Sequence[Shape | Tensor | None], *outputs: Shape, **attributes: Attribute) -> Cost:
    heads = {"num_heads": 8, "kv_num_heads": 2}
    return ms("GroupQueryAttention", inputs, *outputs, **heads, **attributes)


def test_grouped_queries_meet_the_keys_that_are_present() -> None:
    past = (2, 2, 9, 4)
    apart = [(2, 3, 32), (2, 3, 8), (2, 3, 8), past, past, (2,), SCALAR]
    packed = [(2, 3, 48), None, None, past, past, (2,), SCALAR]
    present = (2, 2, 12, 4)
    macs = 2 * (2 * 8 * 3 * 12 * 4)
    assert gqa(apart, (2, 3, 32), present, present).macs == macs
    assert gqa(packed, (2, 3, 32), present, present).macs == macs
    assert gqa(apart, (2, 3, 32)).macs == macs
    assert [c.operands for c in gqa(packed, (2, 3, 32)).contractions] == [(0, 0), (None, 0)]


def test_grouped_queries_share_buffers_and_start_without_a_past() -> None:
    past = (2, 2, 20, 4)
    shared = [(2, 1, 32), (2, 1, 8), (2, 1, 8), past, past, (2,), SCALAR]
    assert gqa(shared, (2, 1, 32), past, past).macs == 2 * (2 * 8 * 1 * 20 * 4)
    prompt = [(2, 30, 32), (2, 30, 8), (2, 30, 8), None, None, (2,), SCALAR]
    assert gqa(prompt, (2, 30, 32)).macs == 2 * (2 * 8 * 30 * 30 * 4)
    window = [*prompt[:3], past, past, (2,), SCALAR]
    assert gqa(window, (2, 30, 32), past, past).macs == 2 * (2 * 8 * 30 * 30 * 4)


def test_grouped_queries_rotate_and_quantize_elementwise() -> None:
    shapes = [(2, 3, 32), (2, 3, 8), (2, 3, 8), None, None, (2,), SCALAR]
    plain = gqa(shapes, (2, 3, 32))
    rotated = gqa(shapes, (2, 3, 32), do_rotary=1)
    assert rotated.macs == plain.macs
    assert rotated.elementwise_ops - plain.elementwise_ops == 2 * 3 * (8 + 2) * 4 * ROTARY
    # A cache of one angle a position turns two of the four dimensions of a head.
    partly = gqa([*shapes, (20, 1), (20, 1)], (2, 3, 32), do_rotary=1)
    assert partly.elementwise_ops - plain.elementwise_ops == 2 * 3 * (8 + 2) * 2 * ROTARY
    unmasked = gqa(shapes, (2, 3, 32), causal=0)
    assert plain.elementwise_ops - unmasked.elementwise_ops == 2 * 8 * 3 * 3 * CMP


def test_paged_tokens_meet_all_that_the_pages_of_a_sequence_hold() -> None:
    pages, lengths, table = (50, 16, 2, 4), (3,), (3, 6)
    shapes = [(7, 32), (7, 8), (7, 8), pages, pages, (4,), lengths, table]
    attributes = {"num_heads": 8, "kv_num_heads": 2}
    apart = ms("PagedAttention", shapes, (7, 32), **attributes)
    assert apart.macs == 2 * (8 * 7 * (6 * 16) * 4)
    packed = ms("PagedAttention", [(7, 48), None, None, *shapes[3:]], (7, 32), **attributes)
    assert packed.macs == apart.macs


def test_packed_tokens_are_projected_once_and_scored_as_long_as_the_longest() -> None:
    inputs = [(9, 12), (12, 48), (48,), (3, 5), (4,)]
    call = ms("PackedAttention", inputs, (9, 16), num_heads=4)
    assert call.macs == 9 * 12 * 48 + 2 * (3 * 4 * 5 * 5 * 4)
    apart = [(9, 16), (9, 16), (9, 24), None, (3, 5), (4,)]
    heads = ms("PackedMultiHeadAttention", apart, (9, 24), num_heads=4)
    assert heads.macs == 3 * 4 * 5 * 5 * (4 + 6)
    packed = [(9, 4, 3, 4), None, None, (48,), (3, 5), (4,)]
    together = ms("PackedMultiHeadAttention", packed, (9, 16), num_heads=4)
    assert together.macs == 2 * (3 * 4 * 5 * 5 * 4)


def test_sparse_attention_meets_the_blocks_of_its_pattern() -> None:
    cache = (1, 2, 64, 4)
    shapes = [(1, 64, 32), (1, 64, 8), (1, 64, 8), cache, cache, (1, 5), (1, 8), SCALAR, (1,)]
    call = ms(
        "SparseAttention", shapes, (1, 64, 32), num_heads=8, kv_num_heads=2, sparse_block_size=16
    )
    assert call.macs == 2 * (8 * 64 * (8 * 16 // 4) * 4)
    assert call.elementwise_ops == 8 * 64 * 32 * (MUL + CMP + SOFTMAX)
    full = [*shapes[:6], (1, 400), *shapes[7:]]
    dense = ms(
        "SparseAttention", full, (1, 64, 32), num_heads=8, kv_num_heads=2, sparse_block_size=16
    )
    assert dense.macs == 2 * (8 * 64 * 64 * 4)


def test_longformer_meets_its_window_and_projects_twice() -> None:
    shapes = [(2, 64, 32), (32, 96), (96,), (2, 64), (32, 96), (96,), (2, 64)]
    call = ms("LongformerAttention", shapes, (2, 64, 32), num_heads=4, window=8)
    assert call.macs == 2 * (2 * 64 * 32 * 96) + 2 * (2 * 4 * 64 * 17 * 8)
    wide = ms("LongformerAttention", shapes, (2, 64, 32), num_heads=4, window=64)
    assert wide.macs == 2 * (2 * 64 * 32 * 96) + 2 * (2 * 4 * 64 * 64 * 8)


def test_position_biases() -> None:
    shapes = [(2, 5, 32), (32,), (1, 4, 5, 5), (8, 6), (6,), (1, 4, 1, 1)]
    gated = ms("GatedRelativePositionBias", shapes, (2, 4, 5, 5), num_heads=4)
    assert gated.contractions == (Contraction(2 * 5 * 4 * 8 * 6, (0, 3)),)
    gates = 8 * ADD + 6 * 2 * ADD + 2 * (ADD + EXP + ADD + DIV) + 2 * (MUL + ADD)
    assert gated.elementwise_ops == 2 * 5 * 4 * gates + 2 * 4 * 5 * 5 * MUL
    packed = [(7, 32), *shapes[1:], (2, 5)]
    some = ms("GatedRelativePositionBias", packed, (2, 4, 5, 5), num_heads=4)
    assert some.contractions == (Contraction(7 * 4 * 8 * 6, (0, 3)),)
    table = ms("RelativePositionBias", [(32, 4), (1,), (1,)], (1, 4, 5, 5))
    assert table.macs == 0
    assert table.elementwise_ops > 4 * 5 * 5


def test_only_dimensions_that_matter_must_be_known() -> None:
    past = Tensor("past", "float32", (None, None, 9, None))
    shapes = [(1, 4, 1, 8), (1, 4, 1, 8), (1, 4, 1, 8), None, past, past]
    assert cost(node("Attention", shapes, [unknown()])).macs == 4 * 10 * 16
    lost = Tensor("lost", "float32", (1, 4, None, 8))
    with pytest.raises(UnknownShapeError, match="lost"):
        cost(node("Attention", [*shapes[:4], lost, lost], [unknown()]))


sizes = st.integers(1, 6)


@given(sizes, sizes, sizes, sizes, sizes)
def test_macs_and_operations_are_additive_over_the_batch(
    one: int, other: int, heads: int, queries: int, keys: int
) -> None:
    def count(batch: int) -> Cost:
        shapes = [(batch, heads, queries, 4), (batch, heads, keys, 4), (batch, heads, keys, 3)]
        return cost(node("Attention", shapes, [unknown()]))

    both, first, second = count(one + other), count(one), count(other)
    assert both.macs == first.macs + second.macs
    assert both.elementwise_ops == first.elementwise_ops + second.elementwise_ops


@given(sizes, sizes, sizes)
def test_decoding_in_steps_costs_the_causal_half_of_a_prompt(
    batch: int, tokens: int, heads: int
) -> None:
    def macs(queries: int, past: int) -> int:
        now, before = (batch, heads, queries, 4), (batch, heads, past, 4)
        return cost(node("Attention", [now, now, now, None, before, before], [unknown()])).macs

    steps = sum(macs(1, past) for past in range(tokens))
    assert 2 * tokens * steps == (tokens + 1) * macs(tokens, 0)


def selected(*inputs: Shape | None, **attributes: Attribute) -> Cost:
    """Two requests of one token, each with five selected keys in a cache of nine."""
    cache = (2, 2, 9, 4)
    shapes = [(2, 1, 32), (2, 1, 8), (2, 1, 8), cache, cache, None, None, (2, 5), (2,), (2,), (1,)]
    return ms(
        "DynamicSparseAttention",
        [*shapes, *inputs],
        (2, 1, 32),
        num_heads=8,
        kv_num_heads=2,
        **attributes,
    )


def test_a_query_meets_the_keys_that_are_selected_for_it() -> None:
    scores = 2 * 8 * 5
    plain = selected()
    assert plain.macs == 2 * (scores * 4)
    assert plain.elementwise_ops == scores * (MUL + CMP + SOFTMAX)
    for window, met in ((3, 3), (100, 9)):
        both = selected(attention_mode="local_plus_selected", local_window_size=window)
        assert both.macs == 2 * (2 * 8 * (5 + met) * 4)


def test_selected_attention_may_norm_rotate_and_quantize() -> None:
    plain = selected().elementwise_ops
    angles = ((20, 1), (20, 1), None)
    rotated = selected(*angles, do_rotary=1).elementwise_ops
    assert rotated - plain == 2 * (8 + 2) * 2 * ROTARY
    normed = selected(None, None, None, (4,), (4,)).elementwise_ops
    assert normed - plain == 2 * (8 + 2) * (4 * (3 * MUL + ADD) + 2 * DIV + ADD + SQRT)
    sunk = selected(smooth_softmax=1).elementwise_ops
    assert sunk == selected(*[None] * 5, (8,)).elementwise_ops == plain + 2 * 8 * (EXP + ADD)
    quantized = selected(*[None] * 7, (8,), (8,)).elementwise_ops
    assert quantized - plain == 2 * 2 * 2 * 4 * (DIV + 2 * CMP) + 2 * 2 * 2 * 5 * 4 * MUL


def test_selected_keys_in_pages_count_in_addition_to_a_window_of_the_cache() -> None:
    pages = (50, 16, 2, 4)
    cache: list[Shape | None] = [pages, pages, (4,), (3,), (3, 6), None, (7, 5), (7,)]
    heads = {"num_heads": 8, "kv_num_heads": 2}

    def count(*inputs: Shape | None, **attributes: Attribute) -> Cost:
        apart: list[Shape | None] = [(7, 32), (7, 8), (7, 8)]
        shapes = [*apart, *cache, *inputs]
        return ms("SparsePagedAttention", shapes, (7, 32), **heads, **attributes)

    plain = count()
    assert plain.macs == 2 * (8 * 7 * 5 * 4)
    assert plain.elementwise_ops == 8 * 7 * 5 * (MUL + CMP + SOFTMAX)
    packed = ms("SparsePagedAttention", [(7, 48), None, None, *cache], (7, 32), **heads)
    assert packed.macs == plain.macs
    for window, met in ((3, 3), (-1, 6 * 16)):
        both = count(attention_mode="local_plus_selected", local_window_size=window)
        assert both.macs == 2 * (8 * 7 * (5 + met) * 4)
    tail: list[Shape | None] = [None] * 5
    sunk = count(*tail, (8,)).elementwise_ops
    assert sunk - plain.elementwise_ops == 7 * 8 * (EXP + ADD)
    normed = count(*tail, None, (4,), (4,)).elementwise_ops
    norm = 4 * (3 * MUL + ADD) + 2 * DIV + ADD + SQRT
    assert normed - plain.elementwise_ops == 7 * (8 + 2) * norm
    scaled = count(*tail, None, None, None, (1,), (1,), k_quant_type="PER_TENSOR")
    assert scaled.elementwise_ops - plain.elementwise_ops == 7 * 2 * 5 * 4 * MUL


# A norm of eight numbers, of which four are then rotated.
VECTOR = 8 * (3 * MUL + ADD) + 2 * DIV + ADD + SQRT + 4 * ROTARY


def indexer(*inputs: Shape | None, **attributes: Attribute) -> Cost:
    op = "com.microsoft::SparseAttentionIndexer"
    call = node(op, inputs, [unknown()])
    return cost(replace(call, attributes={"compress_ratio": 4, **attributes}))


def test_the_mean_of_every_block_meets_every_query() -> None:
    def count(*inputs: Shape | None) -> Cost:
        return indexer(*inputs, policy_mode="qsa", token_budget=8)

    # Two sequences of three tokens with two heads of eight; 14 past tokens make 17, or four blocks.
    tables: list[Shape | None] = [(8,), (8,), (99, 4), (99, 4)]
    past: list[Shape | None] = [None, (2, 14, 8)]
    call = count((2, 3, 16), (2, 3, 8), *tables, *past)
    sums, scores = 2 * 3 * 4, 2 * 3 * 4 * 2
    assert call.contractions == (Contraction(scores * 8, (0, None)),)
    assert call.elementwise_ops == (
        2 * 4 * 8 * (4 * ADD + DIV)
        + 2 * (3 * 2 + 4) * VECTOR
        + scores * (MUL + CMP + ADD)
        + sums * CMP  # the better two of four
        + 2 * 3 * (8 + 4 - 1) * MOV
    )
    assert count((2, 3, 24), None, *tables, *past) == call
    # A cache of a fixed size has room for three blocks, whatever is in it.
    fixed = count((2, 3, 16), (2, 3, 8), *tables, *past, *[None] * 4, (1,))
    assert fixed.macs == 2 * 3 * 3 * 2 * 8


def test_new_windows_alone_are_compressed() -> None:
    def count(waiting: int, *capacity: Shape) -> Cost:
        return indexer(
            *[(2, 3, 16), (2, 3, 16), (8,), (8,), (99, 2), (99, 2), None, (2, 5, 8)],
            *[(2, 3, 16), (4, 16), (2, 3, 2), (2, 3), *(capacity or [None])],
            (2, 2, waiting, 16),
            policy_mode="csa",
            index_topk=5,
        )

    # One waiting token and three new ones close a window, after which there are six keys.
    call = count(1)
    sums, scores, slots = 2 * 3 * 6, 2 * 3 * 6 * 2, 2 * 2 * 4 * 8
    assert call.contractions == (
        Contraction(slots, (None, None)),
        Contraction(scores * 8, (0, None)),
        Contraction(scores, (None, 10)),
    )
    assert call.elementwise_ops == (
        slots * (ADD + SOFTMAX)
        + 2 * (3 * 2 + 1) * VECTOR
        + scores * (MUL + CMP)
        + 2 * 3 * 2 * MUL
        + sums * 3 * CMP
        + 2 * 3 * 5 * MOV
    )
    # A whole window that waits is the predecessor of the next: three new tokens close none.
    assert count(4).contractions[0].macs == 0
    assert count(5).contractions == call.contractions
    # A cache of a fixed size has room for five.
    assert count(1, (1,)).contractions[1].macs == 2 * 3 * 5 * 2 * 8
