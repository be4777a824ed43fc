"""Gated delta networks over packed tokens, and a state-space mixer."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pytest_modelperf.graph.structure import Node, Shape
from pytest_modelperf.profiler.counting import attention
from pytest_modelperf.profiler.counting.activation import SIGMOID, SOFTPLUS
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    DIV,
    EXP,
    MUL,
    SQRT,
    Contraction,
    Cost,
)
from pytest_modelperf.profiler.counting.linear_attention import COUNTERS
from tests.profiler.counting.nodes import node, unknown

# Six tokens, two heads of queries and keys, six of values; heads have 4 and 5 elements.
STATE = (3, 6, 5, 4)
APART: list[Shape | None] = [(6, 2, 4), (6, 2, 4), (6, 6, 5), (4,), (6, 6), (6, 6), STATE]
TOGETHER: list[Shape | None] = [(6, 2 * 8 + 30), None, None, (4,), (6, 6), (6, 6), STATE]


def cost(call: Node) -> Cost:
    return COUNTERS[call.qualified_op](call)


def delta(inputs: list[Shape | None], **attributes: str | int) -> Cost:
    call = node("com.microsoft::GatedDeltaNet", inputs, [unknown()])
    return cost(replace(call, attributes=attributes))


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_packed_tokens_cost_as_much_as_those_of_a_batch(rule: str) -> None:
    batch = (2, 3, 6 * 4)
    shapes = [batch, batch, (2, 3, 6 * 5), (2, 6, 4, 5), (2, 3, 6), (2, 3, 6)]
    call = node(
        "LinearAttention", shapes, [unknown()], q_num_heads=6, kv_num_heads=6, update_rule=rule
    )
    packed: list[Shape | None] = [(6, 6, 4), (6, 6, 4), (6, 6, 5), *APART[3:]]
    assert delta(packed, update_rule=rule) == attention.COUNTERS["LinearAttention"](call)


def test_query_key_and_value_may_come_in_one() -> None:
    apart, together = delta(APART, qk_l2_norm=1), delta(TOGETHER, qk_l2_norm=1)
    assert apart.macs == together.macs == 3 * (6 * 6 * 5 * 4)
    assert apart.elementwise_ops == together.elementwise_ops
    assert {c.operands for c in together.contractions} == {(None, 0), (0, 0), (0, None)}


def test_what_is_fused_in_is_elementwise() -> None:
    plain = delta(APART)

    def more(**attributes: str | int) -> int:
        call = delta([*APART, (6,), (6,)], **attributes)
        assert call.contractions == plain.contractions
        return call.elementwise_ops - plain.elementwise_ops

    assert more() == 0
    assert more(qk_l2_norm=1) == 2 * 6 * 2 * (4 * (2 * MUL + ADD) + SQRT + DIV)
    assert more(beta_activation="sigmoid") == 36 * SIGMOID
    assert more(gate_activation="softplus") == 36 * (ADD + SOFTPLUS + MUL) + 6 * (EXP + ADD)
    assert more(gate_activation="kda") == 36 * (ADD + MUL + SIGMOID + MUL) + 6 * EXP


def test_a_mixer_convolves_updates_and_reads() -> None:
    # Three tokens, four heads of 64 in two groups, states of 128; 768 = 4 x 64 + 2 x 2 x 128.
    inputs: list[Shape] = [
        (3, 1028), (7, 768, 3), (7, 4, 128, 64), (768, 4), (768,), (4,), (4,), (4,), (256,), (1,),
    ]  # fmt: skip
    call = cost(node("com.microsoft::Mamba2Verify", inputs, [(3, 256)], heads=4, n_groups=2))
    states = 3 * 4 * 64 * 128
    assert call.contractions == (
        Contraction(3 * 768 * 4, (0, 3)),
        Contraction(states, (None, None)),
        Contraction(states, (None, None)),
    )
    silu = SIGMOID + MUL
    per_head = ADD + SOFTPLUS + CMP + MUL + EXP
    norm = 768 * (3 * MUL + ADD) + 6 * (2 * DIV + ADD + SQRT)
    assert call.elementwise_ops == (
        3 * 768 * (ADD + silu)
        + 12 * per_head
        + states * MUL
        + 768 * (MUL + MUL + ADD + silu + MUL)
        + norm
    )
