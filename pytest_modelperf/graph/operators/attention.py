"""Attention over heads: scores Q K^T, then their softmax times V, and fused projections.

Counting rules:

- Every query is scored against every key: causal, padding and window masks are not subtracted, just
  as padding is counted elsewhere. A pattern of sparse blocks is not a mask: only its blocks count.
- The key tokens are the past tokens and the new ones. If past and present share a buffer, or
  sequences are stored in pages, the capacity counts, because lengths that are values are not read.
- Heads of keys and values that serve several query heads count once for each query head.
- Each score takes a MUL for the scale, its softmax, and an ADD or CMP for each mask or bias.

Dimensions have the names of ONNX Runtime's operator documentation. A cache is (batch, heads,
sequence, head size), `past` is the cache that comes in, and `present` the one that goes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from pytest_modelperf.graph.operators.cost import ADD, CMP, DIV, MUL, TANH, Contraction, Cost
from pytest_modelperf.graph.operators.operator import (
    ONE,
    REQUANTIZE,
    ROTARY,
    SOFTMAX,
    ZERO,
    Demand,
    DemandRule,
    Operator,
    all_of,
    bias_ops,
    rows_in,
    zero_point_ops,
)
from pytest_modelperf.graph.shape_rules import (
    Dim,
    Outputs,
    OutputType,
    dim,
    dtype_of,
    has_input,
    int_of,
    ints_of,
    like,
    outputs,
    product,
    quotient,
    shape_of,
    stated_size,
    total,
)
from pytest_modelperf.graph.structure import Node, Shape, Tensor, UnknownShapeError

# The inputs that are query, key and value; None if a projection inside the node makes them.
Operands = tuple[int | None, int | None, int | None]
APART: Operands = (0, 1, 2)
PACKED: Operands = (0, 0, 0)
INTERNAL: Operands = (None, None, None)


def attend(scores: int, size: int, value_size: int, operands: Operands, ops: int) -> Cost:
    """Count softmax(Q K^T) V. Each score takes `ops` operations besides its scale and softmax."""
    query, key, value = operands
    return Cost(
        (Contraction(scores * size, (query, key)), Contraction(scores * value_size, (None, value))),
        scores * (MUL + ops + SOFTMAX),
    )


def count_attention(node: Node) -> Cost:
    """Count Attention of [batch, heads, tokens, size] or [batch, tokens, width]."""
    query, key, value = (node.input(i) for i in range(3))
    heads, kv_heads = node.attr_int("q_num_heads", 1), node.attr_int("kv_num_heads", 1)
    size, heads = (
        (size_of(query, 3), size_of(query, 1))
        if query.rank == 4
        else (size_of(query, 2) // heads, heads)
    )
    value_size = size_of(value, 3) if value.rank == 4 else size_of(value, 2) // kv_heads
    keys = cache_length(node.optional_input(4), 2) + size_of(key, -2)
    scores = size_of(query, 0) * heads * size_of(query, -2) * keys
    return attend(scores, size, value_size, APART, score_ops(node, (3, 6), "is_causal"))


def count_flex_attention(node: Node) -> Cost:
    """Count attention whose scores pass through bodies, which are counted on their own."""
    batch, heads, queries, size = sizes_of(node.input(0), 4)
    scores = batch * heads * queries * size_of(node.input(1), 2)
    return attend(scores, size, size_of(node.input(2), 3), APART, 0)


def count_self_attention(
    node: Node, *, masks: tuple[int, ...], past: int, shares: int | None, quantized: bool = False
) -> Cost:
    """Count com.microsoft's Attention, in which one product makes all queries, keys and values."""
    # If `quantized`, input and weight have 8 bits, and the projection is rescaled to floats.
    batch, tokens = sizes_of(node.input(0), 2)
    heads, size, value_size = _projected_heads(node)
    before = _projection(node, 1, 2)
    if quantized:
        rescaled = rows_in(node.input(0)) * size_of(node.input(1), 1) * MUL
        before = before.plus(zero_point_ops(node, 0, 6) + zero_point_ops(node, 1, 7) + rescaled)
    if node.attr_int("do_rotary", 0):
        rotated = node.attr_int("rotary_embedding_dim", 0) or size
        before = before.plus(batch * 2 * tokens * heads * rotated * ROTARY)
    scores = batch * heads * tokens * _all_keys(node, past, 3, tokens, shares)
    ops = score_ops(node, masks, "unidirectional")
    return before + attend(scores, size, value_size, INTERNAL, ops)


def count_packed_attention(node: Node) -> Cost:
    """Count self attention of tokens without padding, projected by one product."""
    # Projections count the tokens that exist. Scores follow the shape of `token_offset`, [batch,
    # tokens], as if each sequence were as long as the longest.
    batch, tokens = sizes_of(node.input(3), 2)
    heads, size, value_size = _projected_heads(node)
    scores, ops = batch * heads * tokens * tokens, score_ops(node, (5,))
    return _projection(node, 1, 2) + attend(scores, size, value_size, INTERNAL, ops)


def count_qordered_attention(node: Node) -> Cost:
    """Count attention in 8-bit matrix layouts."""
    # Query, key and value have a weight and a bias each. Projections, scores, probabilities and
    # results are rescaled, without zero points.
    heads, rescale = node.attr_int("num_heads", 1), REQUANTIZE - ADD
    batch, tokens, width = sizes_of(node.input(0), 3)
    columns = [size_of(node.input(weight), 1) for weight in (5, 6, 7)]
    products = zip((5, 6, 7), columns, strict=True)
    before = Cost(
        tuple(Contraction(batch * tokens * width * n, (0, weight)) for weight, n in products),
        batch * tokens * (sum(columns) * (ADD + rescale) + columns[2] * rescale),
    )
    scores, ops = batch * heads * tokens * tokens, score_ops(node, (17, 19), "unidirectional")
    sizes = columns[0] // heads, columns[2] // heads
    return before + attend(scores, *sizes, INTERNAL, ops + 2 * rescale)


def count_longformer_attention(
    node: Node, *, weight: int = 1, bias: int = 2, global_weight: int = 4, rescale: int = 0
) -> Cost:
    """Count attention to `window` tokens on both sides: at most 2 x window + 1 keys per query."""
    # Both projections are of all tokens. The scores of global tokens are not counted, because only
    # values show which tokens are global. https://arxiv.org/abs/2004.05150, section 3.1.
    heads = node.attr_int("num_heads", 1)
    batch, tokens, hidden = sizes_of(node.input(0), 3)
    projected = _projection(node, weight, bias) + _projection(node, global_weight, bias)
    keys, size = min(2 * node.attr_int("window", 0) + 1, tokens), hidden // heads
    attention = attend(batch * heads * tokens * keys, size, size, INTERNAL, ADD)
    return projected.plus(batch * tokens * 2 * 3 * hidden * rescale) + attention


def count_decoder_attention(node: Node) -> Cost:
    """Count attention over tokens x batch, with projections and a cache that flags switch on."""
    # Self attention projects key and value from the query, and appends them to the cache. Cross
    # attention (`static_kv`) projects them from the key, or takes those of the cache as they are.
    # If the values of the flags are not known, it is self attention, and a given cache is used.
    queries, batch, hidden = sizes_of(node.input(0), 3)
    heads, columns = node.attr_int("num_heads", 1), size_of(node.input(3), 1)
    used = _flag(node, 9, default=True) and _flag(node, 10, default=True)
    cache, cross = node.optional_input(6) if used else None, _flag(node, 8, default=False)
    given_keys = size_of(node.input(1), 0) if cache is None else 0
    new_keys = given_keys if cross else queries
    contractions = [Contraction(queries * batch * hidden * size_of(node.input(2), 1), (0, 2))]
    if new_keys:
        contractions.append(Contraction(new_keys * batch * hidden * columns, (int(cross), 3)))
    before = Cost(tuple(contractions), batch * (queries * hidden + new_keys * columns) * ADD)
    scores, size = batch * heads * queries * (cache_length(cache, 2) + new_keys), hidden // heads
    return before + attend(scores, size, size, INTERNAL, score_ops(node, (5,)))


def count_heads(node: Node, *, bias: int, masks: tuple[int, int], past: int, shares: int) -> Cost:
    """Count attention of projected heads: query, key and value apart or packed in one tensor."""
    # Each is [batch, tokens, width]. Query, key and value in one are [batch, tokens, heads, 3,
    # size] or [batch, tokens, 3 widths], key and value in one [batch, tokens, heads, 2, size].
    # Those from the cache of a cross attention are [batch, heads, tokens, size].
    query, key, heads = node.input(0), node.optional_input(1), node.attr_int("num_heads", 1)
    batch, queries = sizes_of(query, 2)
    is_cached = key is not None and key.rank == 4
    if key is None:
        operands, new_keys = PACKED, queries
        size = value_size = (
            size_of(query, 4) if query.rank == 5 else size_of(query, 2) // heads // 3
        )
    else:
        size, new_keys = size_of(query, 2) // heads, size_of(key, 2 if is_cached else 1)
        if key.rank == 5:
            operands, value_size = (0, 1, 1), size_of(key, 4)
        else:
            operands, value = APART, node.input(2)
            value_size = size_of(value, 3) if value.rank == 4 else size_of(value, 2) // heads
    projected = queries * size + (0 if is_cached else new_keys * (size + value_size))
    scores = batch * heads * queries * _all_keys(node, past, 2, new_keys, shares)
    attention = attend(scores, size, value_size, operands, score_ops(node, masks, "unidirectional"))
    return attention.plus(bias_ops(node, bias, batch * heads * projected))


def count_packed_heads(node: Node) -> Cost:
    """Count attention of heads of tokens without padding, with the scores of PackedAttention."""
    query, heads = node.input(0), node.attr_int("num_heads", 1)
    batch, tokens = sizes_of(node.input(4), 2)
    packed = not has_input(node, 1)
    size = size_of(query, 3) if packed else size_of(query, 1) // heads
    value_size = size if packed else size_of(node.input(2), 1) // heads
    biases = bias_ops(node, 3, size_of(query, 0) * heads * (2 * size + value_size))
    scores, operands = batch * heads * tokens * tokens, PACKED if packed else APART
    return attend(scores, size, value_size, operands, score_ops(node, (6,))).plus(biases)


def _projection(node: Node, weight: int, bias: int) -> Cost:
    x, columns = node.input(0), size_of(node.input(weight), 1)
    biases = bias_ops(node, bias, rows_in(x) * columns)
    return Cost((Contraction(x.size * columns, (0, weight)),), biases)


def _projected_heads(node: Node) -> tuple[int, int, int]:
    heads, sizes = node.attr_int("num_heads", 1), node.attr_ints("qkv_hidden_sizes")
    query, _, value = sizes if len(sizes) == 3 else (size_of(node.input(1), 1) // 3,) * 3
    return heads, query // heads, value // heads


def _all_keys(node: Node, past: int, axis: int, new: int, shares: int | None) -> int:
    """Return the number of past and new tokens, or the capacity of a shared buffer."""
    held = cache_length(node.optional_input(past), axis)
    is_shared = has_input(node, shares) or node.attr_int("past_present_share_buffer", 0) != 0
    return max(held, new) if is_shared else held + new


def score_ops(node: Node, masks: tuple[int, ...], causal: str = "") -> int:
    """Return the operations of a score between product and softmax, besides its scale."""
    # cap * tanh(score / cap) is DIV, TANH, MUL.
    ops = sum(ADD for index in masks if has_input(node, index))
    ops += CMP if node.attr_int(causal, 0) else 0
    return ops + (DIV + TANH + MUL if node.attr_float("softcap", 0.0) else 0)


def _flag(node: Node, index: int, *, default: bool) -> bool:
    tensor = node.optional_input(index)
    return default if tensor is None or tensor.value is None else bool(tensor.value.any())


def size_of(tensor: Tensor, axis: int) -> int:
    """Return one dimension. Raise UnknownShapeError if just this one is unknown."""
    size = None if tensor.shape is None else tensor.shape[axis]
    if size is None:
        raise UnknownShapeError(tensor.name)
    return size


def sizes_of(tensor: Tensor, count: int) -> tuple[int, ...]:
    return tuple(size_of(tensor, axis) for axis in range(count))


def cache_length(cache: Tensor | None, axis: int) -> int:
    return 0 if cache is None else size_of(cache, axis)


_self = partial(count_self_attention, masks=(3, 5), past=4, shares=6)


def _rank(shape: Shape | None) -> int:
    return 0 if shape is None else len(shape)


def past_length(node: Node, index: int, axis: int) -> Dim:
    return dim(shape_of(node, index), axis) if has_input(node, index) else 0


def _projected_widths(node: Node) -> tuple[Dim, Dim]:
    """Return the widths of Q (or K) and of V that merged projection weights make."""
    sizes = node.attr_ints("qkv_hidden_sizes")
    if len(sizes) == 3:
        return sizes[0], sizes[2]
    third = quotient(dim(shape_of(node, 1), 1), 3)
    return third, third


def shape_self_attention(node: Node, past: int = 4, dtype: int = 0) -> Outputs:
    """Return the outputs of attention that projects its input and keeps keys and values in one."""
    batch, length = dim(shape_of(node, 0), 0), dim(shape_of(node, 0), 1)
    width, value_width = _projected_widths(node)
    heads, present = stated_size(node, "num_heads"), shape_of(node, past)
    if not node.attr_int("past_present_share_buffer", 0):
        cached = total(past_length(node, past, axis=3), length)
        present = (2, batch, heads, cached, quotient(width, heads))
    return outputs(dtype_of(node, dtype), (batch, length, value_width), present)


class _KeysAndValues(Struct, frozen=True):
    length: Dim
    head_size: Dim
    value_head_size: Dim
    value_width: Dim


def _keys_and_values(node: Node, heads: Dim) -> _KeysAndValues:
    """Read sizes from (batch, length, width), (batch, length, heads, 2 or 3, size) or a cache."""
    query, key, value = (shape_of(node, index) for index in range(3))
    packed = query if _rank(query) == 5 else key
    if _rank(packed) == 5:
        size = dim(packed, 4)
        return _KeysAndValues(dim(packed, 1), size, size, product(heads, size))
    if not has_input(node, 1):
        width = quotient(dim(query, 2), 3)
        size = quotient(width, heads)
        return _KeysAndValues(dim(query, 1), size, size, width)
    length, size = dim(key, 1), quotient(dim(key, 2), heads)
    if _rank(key) == 4:
        length, size = dim(key, 2), dim(key, 3)
    width = dim(value, 2)
    if _rank(value) == 4:
        return _KeysAndValues(length, size, dim(value, 3), product(heads, dim(value, 3)))
    return _KeysAndValues(length, size, quotient(width, heads), width)


def shape_heads(node: Node, past: int, lengths: int, shares: int | None = None) -> Outputs:
    """Return the outputs of attention of projected heads, whose cache is two tensors."""
    # An attribute or the input at `shares` makes past and present one buffer. The value at
    # `lengths` is then the number of past keys in it.
    query, heads = shape_of(node, 0), stated_size(node, "num_heads")
    batch, length = dim(query, 0), dim(query, 1)
    sizes = _keys_and_values(node, heads)
    seen = total(past_length(node, past, axis=2), sizes.length)
    key: Shape | None = (batch, heads, seen, sizes.head_size)
    value: Shape | None = (batch, heads, seen, sizes.value_head_size)
    if has_input(node, shares) or node.attr_int("past_present_share_buffer", 0):
        seen = total(int_of(node, lengths), sizes.length)
        key, value = shape_of(node, past), shape_of(node, past + 1)
    results = outputs(dtype_of(node, 0), (batch, length, sizes.value_width), key, value)
    # The products of queries and keys have a type of their own, which the model declares.
    return (*results, OutputType(None, (batch, heads, length, seen)))


def shape_packed_attention(node: Node) -> Outputs:
    _, value_width = _projected_widths(node)
    return outputs(dtype_of(node, 0), (dim(shape_of(node, 0), 0), value_width))


def shape_packed_heads(node: Node) -> Outputs:
    """Return the output for (tokens, width), or (tokens, heads, 3, size) with Q, K and V in one."""
    query, value = shape_of(node, 0), shape_of(node, 2)
    packed_width = product(dim(query, 1), dim(query, 3)) if _rank(query) == 4 else None
    width = dim(value, 1) if has_input(node, 2) else packed_width
    return outputs(dtype_of(node, 0), (dim(query, 0), width))


def shape_qordered_attention(node: Node) -> Outputs:
    source = shape_of(node, 0)
    return outputs(dtype_of(node, 0), (dim(source, 0), dim(source, 1), dim(shape_of(node, 7), 1)))


def shape_decoder_attention(node: Node) -> Outputs:
    """Return the outputs and the caches of an attention with sequence-major inputs."""
    # Its boolean inputs determine which keys the caches hold.
    query = shape_of(node, 0)
    is_static, uses_past, has_state = (ints_of(node, index) for index in (8, 9, 10))
    length: Dim = None
    if is_static and uses_past and has_state:
        held = dim(shape_of(node, 6), 2) if uses_past[0] and has_state[0] else 0
        if not is_static[0]:
            length = total(held, dim(query, 0))
        elif uses_past[0] and has_state[0]:
            length = held
        else:
            length = dim(shape_of(node, 1), 0)
    heads = stated_size(node, "num_heads")
    size = quotient(dim(query, 2), heads)
    cache = (dim(query, 1), heads, length, size)
    return outputs(dtype_of(node, 0), query, cache, cache)


def _attention_mask(sequence: int) -> DemandRule:
    """Ask for ones, or for the whole length if the mask has the length of each sequence."""

    def rule(node: Node, index: int) -> Demand:
        mask, length = shape_of(node, index), dim(shape_of(node, sequence), 1)
        return ONE if mask is None or len(mask) > 1 else Demand(value=length or 1)

    return rule


def _fitting_past(past: int, axis: int) -> DemandRule:
    """Ask for the number of past keys that fit into their buffer with the new ones."""

    def rule(node: Node, _: int) -> Demand:
        buffer, new = dim(shape_of(node, past), axis), dim(shape_of(node, 0), 1)
        return Demand(low=0, value=max(0, (buffer or 0) - (new or 1)))

    return rule


OPERATORS: Mapping[str, Operator] = {
    "Attention": Operator(count_attention, demands={3: ONE, 6: all_of(1, -2)}),
    "ai.onnx.preview::FlexAttention": Operator(count_flex_attention),
    "com.microsoft::Attention": Operator(
        _self, shape_self_attention, demands={3: _attention_mask(0), 6: _fitting_past(4, 3)},
    ),
    "com.microsoft::DecoderAttention": Operator(count_decoder_attention, shape_decoder_attention),
    "com.microsoft::DecoderMaskedMultiHeadAttention": Operator(
        partial(count_heads, bias=10, masks=(3, 4), past=5, shares=7),
        partial(shape_heads, past=5, lengths=7),
        demands={3: ONE, 7: _fitting_past(5, 2), 8: ONE, 9: ZERO},
    ),
    "com.microsoft::DecoderMaskedSelfAttention": Operator(
        _self, shape_self_attention, demands={3: ONE, 6: _fitting_past(4, 3), 7: ONE, 8: ZERO},
    ),
    "com.microsoft::LongformerAttention": Operator(count_longformer_attention, like(0)),
    "com.microsoft::MultiHeadAttention": Operator(
        partial(count_heads, bias=3, masks=(4, 5), past=6, shares=8),
        partial(shape_heads, past=6, lengths=8, shares=8),
        demands={4: _attention_mask(1), 8: _fitting_past(6, 2)},
    ),
    "com.microsoft::PackedAttention": Operator(count_packed_attention, shape_packed_attention),
    "com.microsoft::PackedMultiHeadAttention": Operator(count_packed_heads, shape_packed_heads),
    "com.microsoft::QAttention": Operator(
        partial(count_self_attention, masks=(5,), past=8, shares=None, quantized=True),
        partial(shape_self_attention, past=8, dtype=3), demands={5: _attention_mask(0)},
    ),
    "com.microsoft::QOrderedAttention": Operator(
        count_qordered_attention, shape_qordered_attention,
    ),
    "com.microsoft::QOrderedLongformerAttention": Operator(
        partial(
            count_longformer_attention, weight=2, bias=4, global_weight=8, rescale=REQUANTIZE - ADD
        ),
        like(0),
    ),
}  # fmt: skip
