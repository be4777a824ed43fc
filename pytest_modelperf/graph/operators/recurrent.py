"""Layers with a state that each step updates and reads: recurrent ones, and linear attention.

Counting rule of recurrent layers: with `steps` the time steps of all sequences, `MACs = steps x
elements of W` for the input and `steps x elements of R` for the state; W and R hold every gate of
every direction. `sequence_lens` is ignored: short sequences are counted at full length, as padding
is elsewhere. Both layouts of the input begin with time and batch, in one order or the other.

Counting rule of linear attention and state spaces: the recurrence that defines the operator is
counted, not the chunks of a kernel. Each token updates a state [key size, value size] of each head
by an outer product, a sum over time, and reads it by another product. Copies of the states that the
operator keeps for later calls are free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

from pytest_modelperf.graph.operators.attention import APART, PACKED, Operands, size_of, sizes_of
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
from pytest_modelperf.graph.operators.operator import (
    ACTIVATION_OPS,
    DYNAMIC_QUANTIZE,
    SIGMOID,
    SOFTMAX,
    SOFTPLUS,
    Operator,
    activation_ops,
    all_of,
    bias_ops,
    elementwise,
    rms_norm_ops,
    rows_in,
)
from pytest_modelperf.graph.shape_rules import (
    Dim,
    Outputs,
    OutputType,
    dim,
    dtype_of,
    has_input,
    like,
    outputs,
    product,
    quotient,
    shape_of,
    stated_size,
    total,
)
from pytest_modelperf.graph.structure import Node, Shape


def count_rnn(node: Node) -> Cost:
    """Count H' = f(x W + H R + Wb + Rb)."""
    return _layer(node, gates=1, defaults=("Tanh",), per_unit=0)


def count_gru(node: Node) -> Cost:
    """Count three gates, with one product for the reset gate, before or after R."""
    # H' = (1 - z) * h + z * H is ADD, MUL, MUL, ADD. The activation of z and r is f, that of h is
    # g.
    return _layer(
        node, gates=3, defaults=("Sigmoid", "Tanh"), uses=(2, 1), per_unit=MUL + 2 * ADD + 2 * MUL
    )


def count_lstm(node: Node) -> Cost:
    """Count four gates."""
    # The gates i, o and f have the first activation, c the second, and the value of the cell the
    # third. C' = f * C + i * c and H' = o * h(C') are MUL, MUL, ADD, MUL. Each of three peepholes
    # is MUL, ADD. Coupled gates (`input_forget`) replace an activation by f = 1 - i, but keep their
    # weights and MACs.
    per_unit = 3 * MUL + ADD
    if has_input(node, 7):
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
    """Count an LSTM with 8-bit weights: each step quantizes input and state, and rescales."""
    lstm = count_lstm(node)
    directions, units = _directions(node), _units(node)
    steps = _steps(node)
    quantized = directions * (node.input(0).size + steps * units) * DYNAMIC_QUANTIZE
    rescaled = 2 * steps * directions * 4 * units * MUL
    return lstm.plus(quantized + rescaled)


def count_attn_lstm(node: Node) -> Cost:
    """Count an LSTM that looks at a memory [batch, slots, depth] in each step."""
    # This is Bahdanau's attention. The keys, memory x MW, are computed once. Each step of each
    # direction multiplies the query (QW), scores every slot by V * tanh(key + query), blends the
    # slots, and mixes blend and state (AW). https://arxiv.org/abs/1409.0473, appendix A.1.2.
    lstm = count_lstm(node)
    if not has_input(node, 11):
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
    if has_input(node, 13):
        contractions.append(Contraction(steps * node.input(13).size, (None, 13)))
    return lstm + Cost(tuple(contractions), looks * (width * (ADD + TANH) + SOFTMAX))


def _layer(
    node: Node, *, gates: int, defaults: Sequence[str], uses: Sequence[int] = (1,), per_unit: int
) -> Cost:
    steps, directions = _steps(node), _directions(node)
    units = steps * _units(node)
    per_gate = ADD * 2 if has_input(node, 3) else 0  # W's bias, then R's
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
    first, second, *_ = node.input(0).dims
    return first * second


def _directions(node: Node) -> int:
    return node.input(1).dims[0]


def _units(node: Node) -> int:
    """Return the units of one direction. R is [directions, gates * units, units], or transposed."""
    return min(node.input(2).dims[1:])


def shape_lstm(node: Node, hidden_axis: int) -> Outputs:
    """Return Y, Y_h and Y_c. Without a hidden_size, it follows from the recurrent weights."""
    length, batch = dim(shape_of(node, 0), 0), dim(shape_of(node, 0), 1)
    hidden = node.attr_int("hidden_size", 0) or dim(shape_of(node, 2), hidden_axis)
    directions = 2 if node.attr_str("direction", "forward") == "bidirectional" else 1
    last = (directions, batch, hidden)
    return outputs(dtype_of(node, 0), (length, *last), last, last)


def count_linear_attention(node: Node) -> Cost:
    """Count linear attention with a state [key size, value size] for each key and value head."""
    # The state is read once for each query head, or for each state head if these are more.
    heads, kv_heads = node.attr_int("q_num_heads", 1), node.attr_int("kv_num_heads", 1)
    batch, tokens, width = sizes_of(node.input(0), 3)
    value_size = size_of(node.input(2), 2) // kv_heads
    updated, read = (batch * tokens * n * value_size for n in (kv_heads, max(heads, kv_heads)))
    return _recurrence(node, width // heads, updated, read, APART)


def count_gated_delta_net(node: Node) -> Cost:
    """Count S = exp(g) S + k (beta (v - exp(g) S' k))' and scale * S' q, for each value head."""
    query, key = node.input(0), node.optional_input(1)
    if key is None:
        _, heads, value_size, size = node.input(6).dims
        values = rows_in(query) * heads * value_size
        normed = query.size - values
    else:
        heads, value_size = node.input(2).dims[-2:]
        size = query.dims[-1]
        values = prod(query.dims[:-2]) * heads * value_size
        normed = query.size + key.size
    cost = _recurrence(node, size, values, values, PACKED if key is None else APART)
    if not node.attr_int("qk_l2_norm", 0):
        return cost
    return cost.plus(normed * (MUL + ADD + MUL) + normed // max(size, 1) * (SQRT + DIV))


def _recurrence(node: Node, size: int, updated: int, read: int, operands: Operands) -> Cost:
    """Count the states of all tokens, with the numbers of columns that are `updated` and `read`."""
    # An update adds the outer product of key and value, a sum over time. The delta rules first read
    # the state at the key, to subtract its value there. Gated rules multiply the state by
    # exp(decay).
    query, key, value = operands
    rule, ops = node.attr_str("update_rule", "gated_delta"), read * MUL
    contractions: tuple[Contraction, ...] = (
        Contraction(updated * size, (key, value)),
        Contraction(read * size, (query, None)),
    )
    if "delta" in rule:
        contractions = (Contraction(updated * size, (None, key)), *contractions)
        ops += updated * (ADD + MUL)
        if node.attr_str("beta_activation", "none") == "sigmoid":
            ops += node.input(5).size * SIGMOID
    if "gated" in rule:
        ops += _decay_ops(node) + updated * size * MUL
    return Cost(contractions, ops)


def count_mamba2_verify(node: Node) -> Cost:
    """Count a causal convolution, the recurrence of a state space, and a gated grouped RMS norm."""
    # The recurrence is S = exp(A dt) S + (dt x) B and y = D x + C S, where dt is softplus(s + bias)
    # with a lower bound. All of these read parts of one projection.
    tokens, heads = node.input(0).dims[0], node.attr_int("heads", 1)
    width = heads * node.attr_int("head_dim", 64)
    groups, channels = node.attr_int("n_groups", 1), node.input(4).size
    states = tokens * width * node.attr_int("d_state", 128)
    taps = node.input(3).dims[-1]
    convolved = tokens * channels * (ADD + ACTIVATION_OPS["Silu"])
    steps = tokens * heads * (ADD + SOFTPLUS + CMP + MUL + EXP)
    updated = tokens * width * MUL + states * MUL
    read = tokens * width * (MUL + ADD)
    gated = tokens * width * (ACTIVATION_OPS["Silu"] + MUL)
    return Cost(
        (
            Contraction(tokens * channels * taps, (0, 3)),
            Contraction(states, (None, None)),
            Contraction(states, (None, None)),
        ),
        convolved
        + steps
        + updated
        + read
        + gated
        + rms_norm_ops(tokens * groups, width // max(groups, 1)),
    )


def _decay_ops(node: Node) -> int:
    """Count exp(g) of each decay, and g itself if the node computes it."""
    # From a bias and a logarithm `a` for each head, g is -exp(a) softplus(x + bias), or a bound
    # times sigmoid(exp(a) (x + bias)).
    decays = node.input(4).size
    ops = decays * EXP
    activation = node.attr_str("gate_activation", "none")
    if activation in {"softplus", "qwen"}:
        ops += decays * (SOFTPLUS + MUL) + node.input(7).size * (EXP + ADD)
    elif activation in {"sigmoid", "kda"}:
        ops += decays * (MUL + SIGMOID + MUL) + node.input(7).size * EXP
    else:
        return ops
    return ops + bias_ops(node, 8, decays)


_FROM_METADATA = "its cost depends on the values of its metadata"


def count_linear_attention_gate(node: Node) -> Cost:
    """Count the decay scale * softplus(a + bias), and sigmoid(b) if there is a b."""
    b = node.optional_input(3)
    return elementwise(
        node.input(0).size * (ADD + SOFTPLUS + MUL) + (b.size * SIGMOID if b is not None else 0)
    )


def shape_linear_attention(node: Node) -> Outputs:
    query, dtype = shape_of(node, 0), dtype_of(node, 0)
    query_heads, heads = stated_size(node, "q_num_heads"), stated_size(node, "kv_num_heads")
    batch = dim(query, 0)
    size = quotient(dim(query, 2), query_heads)
    value_size = quotient(dim(shape_of(node, 2), 2), heads)
    most = None if query_heads is None or heads is None else max(query_heads, heads)
    slots = stated_size(node, "state_window")
    state = (*(() if slots is None else (slots,)), batch, heads, size, value_size)
    state_dtype = dtype_of(node, 3) if has_input(node, 3) else dtype
    return (
        OutputType(dtype, (batch, dim(query, 1), product(most, value_size))),
        OutputType(state_dtype, state),
    )


def _decay_width(node: Node, heads: Dim, size: Dim, tokens: Shape | None) -> Dim:
    """Return the decays of a token: one for each head, or for each element of its keys."""
    decay = shape_of(node, 4)
    if not has_input(node, 4):
        return heads
    if decay is None or tokens is None:
        return None
    return heads if len(decay) == len(tokens) + 1 else product(heads, size)


def shape_gated_delta_net(node: Node) -> Outputs:
    # Inputs are (…, heads, head size), or Q, K and V in one, whose sizes are those of the state.
    # The state is (batch, value heads, value head size, key head size), always in float32.
    query, key, value, state = (shape_of(node, index) for index in (0, 1, 2, 6))
    if has_input(node, 6):
        batch, heads, value_size, size = (dim(state, axis) for axis in range(4))
    else:
        batch = total(dim(shape_of(node, 3), 0), -1)
        heads, value_size, size = dim(value, -2), dim(value, -1), dim(query, -1)
    if has_input(node, 1):
        key_heads = dim(key, -2)
        leading = None if query is None else query[:-2]
    else:
        both = total(dim(query, -1), product(-1, heads, value_size))
        key_heads = quotient(both, product(2, size))
        leading = None if query is None else query[:-1]
    decays = _decay_width(node, heads, size, leading)
    captured = total(decays, product(key_heads, size), product(heads, value_size))
    update = (batch, product(node.attr_int("state_update_capacity", 0), captured))
    return (
        OutputType(dtype_of(node, 0), None if leading is None else (*leading, heads, value_size)),
        OutputType("float32", (batch, heads, value_size, size)),
        OutputType("float32", update),
    )


def shape_mamba2_verify(node: Node) -> Outputs:
    """Return the outputs of a state-space mixer, and its two intermediate results."""
    tokens, dtype = dim(shape_of(node, 0), 0), dtype_of(node, 0)
    width = product(stated_size(node, "heads"), node.attr_int("head_dim", 64))
    mixed = (tokens, width)
    return (
        OutputType(dtype, mixed),
        *like(1, 2)(node),
        OutputType(dtype, (tokens, dim(shape_of(node, 4), 0))),
        OutputType("float32", mixed),
    )


OPERATORS: Mapping[str, Operator] = {
    "GRU": Operator(count_gru, demands={4: all_of(0, 0)}),
    "LSTM": Operator(count_lstm, demands={4: all_of(0, 0)}),
    "RNN": Operator(count_rnn, demands={4: all_of(0, 0)}),
    "com.microsoft::AttnLSTM": Operator(
        count_attn_lstm, partial(shape_lstm, hidden_axis=2),
        demands={4: all_of(0, 0), 12: all_of(11, 1)},
    ),
    "com.microsoft::DynamicQuantizeLSTM": Operator(
        count_dynamic_quantize_lstm, partial(shape_lstm, hidden_axis=1), demands={4: all_of(0, 0)},
    ),
    "LinearAttention": Operator(count_linear_attention),
    "com.microsoft::ConvStateReplay": Operator(shapes=like(2), uncounted=_FROM_METADATA),
    "com.microsoft::GatedDeltaNet": Operator(count_gated_delta_net, shape_gated_delta_net),
    "com.microsoft::GatedDeltaNetStateReplay": Operator(shapes=like(2), uncounted=_FROM_METADATA),
    "com.microsoft::LinearAttention": Operator(count_linear_attention, shape_linear_attention),
    "com.microsoft::LinearAttentionGate": Operator(count_linear_attention_gate, like(0, 3)),
    "com.microsoft::Mamba2Verify": Operator(count_mamba2_verify, shape_mamba2_verify),
}  # fmt: skip
