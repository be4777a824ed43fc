"""MACs of recurrent layers: every step multiplies its input and the hidden state by all gates.

Counting rule: with `steps` the time steps of all sequences, `MACs = steps x elements of W` for
the input and `steps x elements of R` for the state; W and R hold every gate of every direction.
`sequence_lens` is ignored: short sequences are counted whole, as padding is elsewhere. Both
layouts of the input put time and batch first, in one order or the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import SOFTMAX, activation_ops
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    MUL,
    TANH,
    Contraction,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.epilogue import DYNAMIC_QUANTIZE


def count_rnn(node: Node) -> Cost:
    """H' = f(x W + H R + Wb + Rb)."""
    return _layer(node, gates=1, defaults=("Tanh",), per_unit=0)


def count_gru(node: Node) -> Cost:
    """Three gates, of which the reset gate is multiplied once: before or after R, as asked for.

    H' = (1 - z) * h + z * H, which is ADD, MUL, MUL, ADD; z and r take the activation f, h takes g.
    """
    return _layer(
        node, gates=3, defaults=("Sigmoid", "Tanh"), uses=(2, 1), per_unit=MUL + 2 * ADD + 2 * MUL
    )


def count_lstm(node: Node) -> Cost:
    """Four gates: i, o and f take the first activation, c the second, the cell's value the third.

    C' = f * C + i * c and H' = o * h(C') are MUL, MUL, ADD, MUL; each of three peepholes is MUL,
    ADD. Coupled gates (`input_forget`) replace an activation by f = 1 - i; their MACs stay, as the
    weights do.
    """
    per_unit = 3 * MUL + ADD
    if node.optional_input(7) is not None:
        per_unit += 3 * (MUL + ADD)
    coupled = node.attr_int("input_forget", 0) != 0
    return _layer(
        node,
        gates=4,
        defaults=("Sigmoid", "Tanh", "Tanh"),
        uses=(2 if coupled else 3, 1, 1),
        per_unit=per_unit + (ADD if coupled else 0),
    )


def count_dynamic_quantize_lstm(node: Node) -> Cost:
    """An LSTM with 8-bit weights: input and state are quantized in each step, products rescaled."""
    lstm = count_lstm(node)
    directions, units = _directions(node), _units(node)
    steps = _steps(node)
    quantized = directions * (node.input(0).size + steps * units) * DYNAMIC_QUANTIZE
    rescaled = 2 * steps * directions * 4 * units * MUL
    return lstm.plus(quantized + rescaled)


def count_attn_lstm(node: Node) -> Cost:
    """An LSTM that looks at a memory [batch, slots, depth] in each step (Bahdanau's attention).

    The keys, memory x MW, are made once. Each step of each direction multiplies the query (QW),
    scores every slot by V * tanh(key + query), blends the slots, and mixes blend and state (AW).
    https://arxiv.org/abs/1409.0473, appendix A.1.2.
    """
    lstm = count_lstm(node)
    if node.optional_input(11) is None:
        return lstm
    steps, directions = _steps(node), _directions(node)
    batch, slots, depth = node.input(11).dims
    query, key = node.input(8), node.input(9)
    width = query.dims[-1]
    looks = steps * directions * slots
    contractions = [
        Contraction(batch * slots * key.size, (11, 9)),
        Contraction(steps * query.size, (None, 8)),
        Contraction(looks * width, (None, 10)),
        Contraction(looks * depth, (None, 11)),
    ]
    if node.optional_input(13) is not None:
        contractions.append(Contraction(steps * node.input(13).size, (None, 13)))
    return lstm + Cost(tuple(contractions), looks * (width * (ADD + TANH) + SOFTMAX))


def _layer(
    node: Node, *, gates: int, defaults: Sequence[str], uses: Sequence[int] = (1,), per_unit: int
) -> Cost:
    """The products of a layer, its biases, and what each unit of each step does beside them."""
    steps, directions = _steps(node), _directions(node)
    units = steps * _units(node)
    per_gate = ADD * 2 if node.optional_input(3) is not None else 0  # W's bias, then R's
    if node.attributes.get("clip"):
        per_gate += 2 * CMP
    ops = sum(
        units * (gates * per_gate + per_unit + activations)
        for activations in _activations(node, directions, defaults, uses)
    )
    return Cost(
        (
            Contraction(steps * node.input(1).size, (0, 1)),
            Contraction(steps * node.input(2).size, (None, 2)),
        ),
        ops,
    )


def _activations(
    node: Node, directions: int, defaults: Sequence[str], uses: Sequence[int]
) -> tuple[int, ...]:
    """Operations a unit takes for its activations, one number a direction."""
    named = tuple(str(name) for name in node.attr_ints("activations"))
    names = named if len(named) >= len(defaults) else tuple(defaults)
    per_direction = [names[i : i + len(defaults)] for i in range(0, len(names), len(defaults))]
    return tuple(
        sum(
            count * activation_ops(name)
            for count, name in zip(uses, per_direction[d % len(per_direction)], strict=False)
        )
        for d in range(directions)
    )


def _steps(node: Node) -> int:
    """Time steps of all sequences of the batch."""
    first, second, *_ = node.input(0).dims
    return first * second


def _directions(node: Node) -> int:
    return node.input(1).dims[0]


def _units(node: Node) -> int:
    """Hidden units of one direction: R is [directions, gates * units, units], or its transpose."""
    return min(node.input(2).dims[1:])


COUNTERS: Mapping[str, Counter] = {
    "GRU": count_gru,
    "LSTM": count_lstm,
    "RNN": count_rnn,
    "com.microsoft::AttnLSTM": count_attn_lstm,
    "com.microsoft::DynamicQuantizeLSTM": count_dynamic_quantize_lstm,
}
