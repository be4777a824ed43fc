"""Rotary positions, gates and residual streams."""

from __future__ import annotations

import pytest

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import ACTIVATION_OPS, SIGMOID, SOFTPLUS
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    COS,
    DIV,
    MOV,
    MUL,
    SIN,
    SQRT,
    Contraction,
    Cost,
)
from pytest_modelperf.profiler.counting.transformer import COUNTERS
from tests.profiler.counting.nodes import node


def cost(call: Node) -> Cost:
    return COUNTERS[call.qualified_op](call)


def ops(call: Node) -> int:
    found = cost(call)
    assert found.contractions == ()
    return found.elementwise_ops


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
