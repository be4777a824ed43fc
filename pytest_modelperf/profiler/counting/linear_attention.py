"""The cost of linear attention over packed tokens, and of a state-space mixer, token by token.

Counting rule: the recurrence that defines the operator is counted, not the chunks of a kernel. Each
token updates a state [key size, value size] of each head by an outer product, a sum over time, and
reads it by another product. Copies of the states that the operator keeps for later calls are free.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import ACTIVATION_OPS, SIGMOID, SOFTPLUS
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    DIV,
    EXP,
    MUL,
    SQRT,
    Contraction,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.epilogue import bias_ops, rms_norm_ops


def count_gated_delta_net(node: Node) -> Cost:
    """S = exp(g) S + k (beta (v - exp(g) S' k))' and scale * S' q, for each value head.

    Rules without `gated` leave out the decay, those without `delta` what is read at the key. Query,
    key and value may come in one: the state then tells the sizes.
    """
    query, key = node.input(0), node.optional_input(1)
    if key is None:
        _, heads, value_size, size = node.input(6).dims
        tokens = prod(query.dims[:-1])
        normed = query.size - tokens * heads * value_size
    else:
        heads, value_size = node.input(2).dims[-2:]
        tokens, size = prod(query.dims[:-2]), query.dims[-1]
        normed = query.size + key.size
    rule = node.attr_str("update_rule", "gated_delta")
    macs = tokens * heads * value_size * size
    contractions = [
        Contraction(macs, (0, 0) if key is None else (1, 2)),
        Contraction(macs, (0, None)),
    ]
    ops = tokens * heads * value_size * MUL
    if "delta" in rule:
        contractions.insert(0, Contraction(macs, (None, 0 if key is None else 1)))
        ops += tokens * heads * value_size * (ADD + MUL)
        if node.attr_str("beta_activation", "none") == "sigmoid":
            ops += node.input(5).size * SIGMOID
    if "gated" in rule:
        ops += _decay_ops(node) + macs * MUL
    if node.attr_int("qk_l2_norm", 0):
        ops += normed * (MUL + ADD + MUL) + normed // max(size, 1) * (SQRT + DIV)
    return Cost(tuple(contractions), ops)


def count_mamba2_verify(node: Node) -> Cost:
    """A causal convolution, the recurrence of a state space, and a gated grouped RMS norm.

    The recurrence is S = exp(A dt) S + (dt x) B and y = D x + C S, where dt is softplus(s + bias)
    with a lower bound. All of it reads parts of one projection.
    """
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
    """exp(g) of each decay, where g may be made here from a bias and a logarithm for each head.

    It is -exp(a) softplus(x + bias), or a bound times sigmoid(exp(a) (x + bias)).
    """
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


COUNTERS: Mapping[str, Counter] = {
    "com.microsoft::GatedDeltaNet": count_gated_delta_net,
    "com.microsoft::Mamba2Verify": count_mamba2_verify,
}

_FROM_METADATA = "its cost depends on the values of its metadata"
UNTELLABLE: Mapping[str, str] = {
    "com.microsoft::ConvStateReplay": _FROM_METADATA,
    "com.microsoft::GatedDeltaNetStateReplay": _FROM_METADATA,
}
