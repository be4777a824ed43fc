"""Output shapes of linear attention and of what replays it, with a state instead of a cache."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.shape_arithmetic import Dim, dim, product, quotient, total
from pytest_modelperf.graph.shape_rule import (
    OutputType,
    ShapeRule,
    dtype_of,
    has_input,
    like,
    shape_of,
    stated_size,
)
from pytest_modelperf.graph.structure import Node, Shape


def _linear_attention(node: Node) -> tuple[OutputType, ...]:
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
    """How many decays a token has: one for each head, or one for each element of its keys."""
    decay = shape_of(node, 4)
    if not has_input(node, 4):
        return heads
    if decay is None or tokens is None:
        return None
    return heads if len(decay) == len(tokens) + 1 else product(heads, size)


def _gated_delta_net(node: Node) -> tuple[OutputType, ...]:
    """Inputs are (…, heads, head size), or Q, K and V in one: then the state tells their sizes.

    The state is (batch, value heads, value head size, key head size), always in float32.
    """
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


def _mamba2_verify(node: Node) -> tuple[OutputType, ...]:
    """A state-space mixer of one sequence; the last two outputs are its intermediate results."""
    tokens, dtype = dim(shape_of(node, 0), 0), dtype_of(node, 0)
    width = product(stated_size(node, "heads"), node.attr_int("head_dim", 64))
    mixed = (tokens, width)
    return (
        OutputType(dtype, mixed),
        *like(1, 2)(node),
        OutputType(dtype, (tokens, dim(shape_of(node, 4), 0))),
        OutputType("float32", mixed),
    )


LINEAR_ATTENTION_RULES: Mapping[str, ShapeRule] = {
    "LinearAttention": _linear_attention,
    "LinearAttentionGate": like(0, 3),
    "GatedDeltaNet": _gated_delta_net,
    "GatedDeltaNetStateReplay": like(2),
    "ConvStateReplay": like(2),
    "Mamba2Verify": _mamba2_verify,
}
