"""Rotary positions, gates and residual streams."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

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
from pytest_modelperf.graph.operators.operator import ACTIVATION_OPS, SIGMOID, SOFTPLUS
from pytest_modelperf.graph.structure import Shape
from tests.graph.operators.nodes import cost, node, ops


@pytest.mark.parametrize("op", ["RotaryEmbedding", "com.microsoft::RotaryEmbedding"])
def test_a_rotation_is_two_products_and_a_sum(op: str) -> None:
    x = (2, 4, 5, 8)
    assert ops(node(op, [x, (9, 4), (9, 4)], [x])) == 320 * (2 * MUL + ADD)


def test_a_partial_rotation_moves_the_rest() -> None:
    four, three = (2, 4, 5, 8), (2, 5, 32)
    expected = 80 * (2 * MUL + ADD) + 240 * MOV
    for x in (four, three):
        call = node("RotaryEmbedding", [x], [x], rotary_embedding_dim=2, num_heads=4)
        assert ops(call) == expected


def test_a_rotation_with_a_scale_multiplies_once_more() -> None:
    x = (2, 4, 5, 8)
    plain = ops(node("com.microsoft::MRotaryEmbedding", [x], [x]))
    scaled = ops(node("com.microsoft::MRotaryEmbedding", [x], [x], scale=0.5))
    assert scaled == plain + 320 * MUL


def test_gemma_makes_its_angles_once_for_all_heads() -> None:
    angles, state = (2, 5, 8), (2, 4, 5, 8)
    call = node("com.microsoft::GemmaRotaryEmbedding", [angles] + [state] * 4, [state, state])
    assert ops(call) == 80 * (SIN + COS) + 640 * (2 * MUL + ADD)


def test_gates_are_elementwise() -> None:
    x = (2, 3)
    assert ops(node("SwiGLU", [x, x], [x])) == 6 * (SIGMOID + MUL + MUL)
    assert ops(node("com.microsoft::GatedAdd", [x, x, (2, 1)], [x])) == 6 * (MUL + ADD)
    assert ops(node("com.microsoft::BiasAdd", [x, (3,), x], [x])) == 6 * 2 * ADD


def test_a_split_gelu_activates_half_of_what_it_biases() -> None:
    call = node("com.microsoft::BiasSplitGelu", [(2, 3, 8), (8,)], [(2, 3, 4)])
    assert ops(call) == 48 * ADD + 24 * (ACTIVATION_OPS["Gelu"] + MUL)


def test_a_decay_gate_has_a_second_half_only_with_b() -> None:
    def count(*b: tuple[int, ...]) -> int:
        inputs = [(2, 3, 4), (4,), (4,), *b]
        return ops(node("com.microsoft::LinearAttentionGate", inputs, [(2, 3, 4)]))

    assert count() == 24 * (ADD + SOFTPLUS + MUL)
    assert count((2, 3, 4)) == count() + 24 * SIGMOID


def test_hyper_connections_sum_over_the_streams() -> None:
    streams, features = (2, 5, 4, 8), (2, 5, 8)
    reduced = cost(node("com.microsoft::HyperConnectionPreMix", [streams, (2, 5, 4)], [features]))
    assert reduced == Cost((Contraction(2 * 5 * 4 * 8, (0, 1)),))
    scaled = cost(
        node(
            "com.microsoft::HyperConnectionPreMix",
            [streams, (2, 5, 4)],
            [features],
            reduction_scale=0.5,
        )
    )
    assert scaled == Cost(reduced.contractions, 2 * 5 * 8 * MUL)
    inputs = [streams, features, (2, 5, 4)]
    plain = cost(node("com.microsoft::HyperConnectionPostMix", inputs, [streams]))
    assert plain == Cost(elementwise_ops=320 * (MUL + ADD))
    mixed = cost(node("com.microsoft::HyperConnectionPostMix", [*inputs, (2, 5, 4, 4)], [streams]))
    assert mixed == Cost((Contraction(2 * 5 * 8 * 4 * 4, (0, 3)),), plain.elementwise_ops)


def test_an_engram_gate_meets_each_key_with_its_query() -> None:
    keys = (2, 5, 4, 8)
    inputs = [keys, keys, (2, 5, 8), (4, 8), (4, 8), (4, 8)]
    gate = cost(node("com.microsoft::EngramGate", inputs, [keys]))
    both = cost(node("com.microsoft::EngramGate", inputs, [keys, keys]))
    assert gate.macs == both.macs == 2 * 5 * 4 * 8
    rms = 320 * (3 * MUL + ADD) + 40 * (DIV + ADD + SQRT + DIV)
    gated = 40 * (2 * MUL + 3 * CMP + SQRT + SIGMOID) + 320 * MUL
    assert gate.elementwise_ops == 2 * rms + gated
    assert both.elementwise_ops == 3 * rms + gated


def test_a_clamped_gate_costs_what_its_attributes_ask_for() -> None:
    x = (2, 3)

    def count(**attributes: float) -> int:
        return ops(replace(node("com.microsoft::SwiGLU", [x, x], [x]), attributes=attributes))

    assert count() == ops(node("SwiGLU", [x, x], [x], alpha=1.0)) == 6 * (SIGMOID + MUL + MUL)
    assert count(activation_alpha=1.5) - count() == 6 * MUL
    assert count(activation_beta=1.0) - count() == 6 * ADD
    assert count(limit=7.0) - count() == 6 * 3 * CMP
    halves = node("com.microsoft::SwiGLU", [(2, 6)], [x])
    assert ops(halves) == count()


def test_a_gate_may_be_projected() -> None:
    x, gate = (2, 3, 4), (2, 3, 16)
    call = cost(node("com.microsoft::GatedAdd", [x, x, gate, (16, 1)], [x]))
    assert call == Cost((Contraction(6 * 16, (2, 3)),), 24 * (MUL + ADD) + 6 * SIGMOID)


def test_a_normed_slice_is_rotated_in_part() -> None:
    x = (2, 3, 4, 8)
    attributes = {"input_start": 1, "input_width": 6, "rotary_embedding_dim": 4}
    call = replace(node("com.microsoft::RMSNormRotary", [x], [(2, 3, 24)]), attributes=attributes)
    norm = 24 * (6 * (3 * MUL + ADD) + 2 * DIV + ADD + SQRT)
    assert ops(call) == norm + 24 * (4 * (2 * MUL + ADD) + 2 * MOV)
    both = replace(call, outputs=(*call.outputs, call.input(0)))
    assert ops(both) - ops(call) == 24 * 6 * MOV


def test_a_low_rank_mix_costs_what_its_parts_do() -> None:
    streams, rank = (5, 4 * 8), 3
    weights = [(32,), (32, rank), (rank, 32), (32, 4)]
    outputs = [(5, 8), (5, 4), streams]
    op = "com.microsoft::HyperConnectionLowRankMix"
    call = cost(node(op, [streams, *weights], outputs[:2], num_branches=4))
    assert call.contractions == (
        Contraction(5 * 32 * rank, (0, 2)),
        Contraction(5 * rank * 32, (None, 3)),
        Contraction(5 * 32, (0, None)),
        Contraction(5 * 32 * 4, (0, 4)),
    )
    norm = 160 * (3 * MUL + ADD) + 20 * (2 * DIV + ADD + SQRT)
    gates = 15 * (MUL + SIGMOID + MUL) + 160 * SIGMOID + 20 * SIGMOID
    assert call.elementwise_ops == norm + gates
    more = {
        "moved": node(op, [streams, *weights], outputs, num_branches=4),
        "added": node(op, [streams, *weights, (5, 8), (5, 4)], outputs, num_branches=4),
        "scaled": node(
            op, [streams, *weights], outputs[:2],
            num_branches=4, reduction_scale=0.5, gate_div=2.0, gate_mul=2.0,
        ),
    }  # fmt: skip
    assert {name: cost(each).elementwise_ops - norm - gates for name, each in more.items()} == {
        "moved": 160 * MOV,
        "added": 160 * (MUL + ADD),
        "scaled": 40 * MUL + 20 * (DIV + MUL),
    }
    assert all(cost(each).contractions == call.contractions for each in more.values())


def router(inputs: list[Shape], outputs: list[Shape | None], **attributes: int) -> Cost:
    call = node("com.microsoft::MoEGroupRouter", inputs, outputs)
    return cost(replace(call, attributes=attributes))


def test_experts_are_chosen_by_their_biased_scores() -> None:
    flat = router([(2, 3, 8), (8,)], [(6, 8)], top_k=2)
    chosen = 48 * 2 * CMP + 48 * MOV + 12 * (CMP + LOG)
    assert flat == Cost(elementwise_ops=48 * (SIGMOID + ADD) + chosen)


def test_groups_are_chosen_before_experts() -> None:
    flat = router([(6, 8), (8,)], [(6, 8)], top_k=2)
    grouped = router([(6, 8), (8,)], [(6, 8)], top_k=2, n_group=4, topk_group=3, group_topk=9)
    # All of the two experts of a group are summed, as a group has no more.
    more = 48 * 2 * CMP + 24 * (2 * ADD + 3 * CMP)
    assert grouped.elementwise_ops - flat.elementwise_ops == more


def test_all_scores_are_a_projection_that_chooses_nothing() -> None:
    scores: list[Shape | None] = [None, (6, 8), (6, 8)]
    given = router([(6, 8), (8,)], scores, top_k=2)
    assert given == Cost(elementwise_ops=48 * (SIGMOID + ADD))
    projected = router([(6, 256), (8,), (8, 256)], scores, top_k=2)
    assert projected == Cost((Contraction(6 * 8 * 256, (0, 2)),), given.elementwise_ops)


def test_a_shared_expert_costs_a_product_and_its_gate() -> None:
    inputs: list[Shape] = [(2, 3, 4), (4, 5 + 2 * 6)]
    attributes = {"activation_alpha": 1.5, "activation_beta": 1.0, "limit": 7.0}
    call = node("com.microsoft::RouterGateUpProj", inputs, [(2, 3, 5), (2, 3, 6)])
    fused = cost(replace(call, attributes={"router_size": 5, **attributes}))
    product = cost(node("MatMul", inputs, [(2, 3, 17)]))
    gate = node("com.microsoft::SwiGLU", [(2, 3, 12)], [(2, 3, 6)])
    activated = cost(replace(gate, attributes=attributes))
    assert fused == Cost(product.contractions, activated.elementwise_ops)
