"""Recurrent layers, gated delta networks over packed tokens, and a state-space mixer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.graph.operators.cost import (
    ADD,
    CMP,
    DIV,
    EXP,
    MUL,
    SQRT,
    TANH,
    Contraction,
    Cost,
)
from pytest_modelperf.graph.operators.operator import SOFTPLUS
from pytest_modelperf.graph.structure import Attribute, Node, Shape, UnknownShapeError
from tests.graph.operators.nodes import cost, node, unknown

SIGMOID = ADD + EXP + ADD + DIV
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def layer(op: str, *extra: Shape | None, directions: int = 1, **attributes: Attribute) -> Node:
    """Seven steps of a batch of two, inputs of five, units of three."""
    gates = GATES[op] * 3
    shapes = [(7, 2, 5), (directions, gates, 5), (directions, gates, 3), *extra]
    return replace(node(op, shapes, [unknown()]), attributes={"hidden_size": 3, **attributes})


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("directions", [1, 2])
def test_macs_of_input_and_state(op: str, directions: int) -> None:
    direction = "bidirectional" if directions == 2 else "reverse"
    call = cost(layer(op, directions=directions, direction=direction))
    rows = 7 * 2 * directions * GATES[op] * 3
    assert call.contractions == (Contraction(rows * 5, (0, 1)), Contraction(rows * 3, (None, 2)))


def test_confirmed_wrong_6_lstm_without_bias() -> None:
    bare, biased = cost(layer("LSTM")), cost(layer("LSTM", (1, 24)))
    assert bare.macs == biased.macs == 7 * 2 * 12 * (5 + 3)
    assert biased.elementwise_ops - bare.elementwise_ops == 7 * 2 * 24 * ADD


def test_confirmed_wrong_6_bidirectional_gru_costs_both_directions() -> None:
    one, two = cost(layer("GRU")), cost(layer("GRU", directions=2, direction="bidirectional"))
    assert two.macs == 2 * one.macs == 2 * 7 * 2 * 9 * (5 + 3)
    assert two.elementwise_ops == 2 * one.elementwise_ops


def test_confirmed_wrong_6_rnn_is_counted() -> None:
    assert cost(layer("RNN")).macs == 7 * 2 * 3 * (5 + 3)
    assert cost(layer("RNN")).elementwise_ops == 7 * 2 * 3 * TANH


def test_elementwise_operations_by_the_equations() -> None:
    units = 7 * 2 * 3
    lstm = 3 * SIGMOID + 2 * TANH + 3 * MUL + ADD
    assert cost(layer("LSTM")).elementwise_ops == units * lstm
    gru = 2 * SIGMOID + TANH + 3 * MUL + 2 * ADD
    assert cost(layer("GRU")).elementwise_ops == units * gru
    assert cost(layer("GRU", linear_before_reset=1)) == cost(layer("GRU"))


def test_peepholes_coupling_and_clipping_are_elementwise() -> None:
    units = 7 * 2 * 3
    plain = cost(layer("LSTM"))
    peepholes = cost(layer("LSTM", None, None, None, None, (1, 9)))
    coupled = cost(layer("LSTM", input_forget=1))
    clipped = cost(layer("LSTM", clip=1.0))
    assert plain.macs == peepholes.macs == coupled.macs == clipped.macs
    assert peepholes.elementwise_ops - plain.elementwise_ops == units * 3 * (MUL + ADD)
    assert plain.elementwise_ops - coupled.elementwise_ops == units * (SIGMOID - ADD)
    assert clipped.elementwise_ops - plain.elementwise_ops == units * 4 * 2 * CMP


def test_each_direction_has_its_own_activations() -> None:
    both = cost(layer("RNN", directions=2, activations=("Relu", "Affine")))
    assert both.elementwise_ops == 7 * 2 * 3 * (CMP + MUL + ADD)
    one_name = cost(layer("RNN", directions=2, activations=("Relu",)))
    assert one_name.elementwise_ops == 7 * 2 * 3 * 2 * CMP


@pytest.mark.parametrize("op", GATES)
def test_batch_first_layout_costs_the_same(op: str) -> None:
    gates = GATES[op] * 3
    shapes = [(2, 7, 5), (1, gates, 5), (1, gates, 3)]
    assert cost(node(op, shapes, [unknown()], hidden_size=3, layout=1)) == cost(layer(op))


def test_sequence_lengths_change_nothing() -> None:
    assert cost(layer("LSTM", None, (2,))) == cost(layer("LSTM"))


def test_quantized_lstm_has_the_macs_of_its_float_twin() -> None:
    shapes = [(7, 2, 5), (1, 5, 12), (1, 3, 12)]
    call = cost(node("com.microsoft::DynamicQuantizeLSTM", shapes, [unknown()], hidden_size=3))
    floats = cost(layer("LSTM"))
    assert call.contractions == floats.contractions
    quantize = 2 * CMP + DIV + ADD + 2 * CMP
    extra = (7 * 2 * 5 + 7 * 2 * 3) * quantize + 2 * 7 * 2 * 12 * MUL
    assert call.elementwise_ops - floats.elementwise_ops == extra


def test_attention_of_an_lstm_makes_its_keys_once_and_looks_in_each_step() -> None:
    # The input of five carries the attention of two: W takes both.
    lstm = [(7, 2, 5), (1, 12, 7), (1, 12, 3), None, None, None, None, None]
    attention = [(1, 3, 6), (1, 4, 6), (1, 6), (2, 11, 4), (2,), (1, 7, 2)]
    call = cost(node("com.microsoft::AttnLSTM", [*lstm, *attention], [unknown()], hidden_size=3))
    steps, looks = 7 * 2, 7 * 2 * 11
    assert call.contractions == (
        Contraction(steps * 12 * 7, (0, 1)),
        Contraction(steps * 12 * 3, (None, 2)),
        Contraction(2 * 11 * 4 * 6, (11, 9)),
        Contraction(steps * 3 * 6, (None, 8)),
        Contraction(looks * 6, (None, 10)),
        Contraction(looks * 4, (None, 11)),
        Contraction(steps * 7 * 2, (None, 13)),
    )
    bare = cost(node("com.microsoft::AttnLSTM", lstm, [unknown()], hidden_size=3))
    softmax = CMP + ADD + EXP + ADD + DIV
    assert call.elementwise_ops - bare.elementwise_ops == looks * (6 * (ADD + TANH) + softmax)


def test_attention_of_an_lstm_in_both_directions_costs_twice_as_much() -> None:
    def attentive(directions: int, direction: str) -> Cost:
        lstm = [(7, 2, 5), (directions, 12, 7), (directions, 12, 3), *[None] * 5]
        attention = [(3, 6), (4, 6), (6,), (7, 2)]
        query, key, score, mixed = ((directions, *shape) for shape in attention)
        inputs = [*lstm, query, key, score, (2, 11, 4), (2,), mixed]
        op = "com.microsoft::AttnLSTM"
        return cost(node(op, inputs, [unknown()], hidden_size=3, direction=direction))

    one, both = attentive(1, "forward"), attentive(2, "bidirectional")
    assert both.elementwise_ops == 2 * one.elementwise_ops
    assert [(2 * each.macs, each.operands) for each in one.contractions] == [
        (each.macs, each.operands) for each in both.contractions
    ]


def test_an_unknown_length_is_named() -> None:
    with pytest.raises(UnknownShapeError, match="in0"):
        cost(node("LSTM", [(None, 2, 5), (1, 12, 5), (1, 12, 3)], [unknown()]))


sizes = st.integers(1, 6)


@given(st.sampled_from([*GATES]), sizes, sizes, st.tuples(sizes, sizes, sizes))
def test_cost_is_additive_over_the_batch(
    op: str, one: int, other: int, extents: tuple[int, int, int]
) -> None:
    steps, width, units = extents

    def count(batch: int) -> Cost:
        gates = GATES[op] * units
        shapes = [(steps, batch, width), (1, gates, width), (1, gates, units), (1, 2 * gates)]
        return cost(node(op, shapes, [unknown()], hidden_size=units))

    both, first, second = count(one + other), count(one), count(other)
    assert both.macs == first.macs + second.macs
    assert both.elementwise_ops == first.elementwise_ops + second.elementwise_ops


# Six tokens, two heads of queries and keys, six of values; heads have 4 and 5 elements.
STATE = (3, 6, 5, 4)
APART: list[Shape | None] = [(6, 2, 4), (6, 2, 4), (6, 6, 5), (4,), (6, 6), (6, 6), STATE]
TOGETHER: list[Shape | None] = [(6, 2 * 8 + 30), None, None, (4,), (6, 6), (6, 6), STATE]


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
    assert delta(packed, update_rule=rule) == cost(call)


def test_query_key_and_value_may_come_in_one() -> None:
    apart, together = delta(APART, qk_l2_norm=1), delta(TOGETHER, qk_l2_norm=1)
    assert apart.macs == together.macs == 3 * (6 * 6 * 5 * 4)
    assert apart.elementwise_ops == together.elementwise_ops
    assert {c.operands for c in together.contractions} == {(None, 0), (0, 0), (0, None)}


def test_fused_activations_count_as_elementwise() -> None:
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
