"""Output shapes of ONNX Runtime's attention operators and of the caches that they return.

Dimensions have the names of ONNX Runtime's operator documentation: a cache is (batch, heads,
sequence, head size); `past` is the cache that comes in, `present` the one that goes out.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pytest_modelperf.graph.shape_arithmetic import Dim, dim, product, quotient, total
from pytest_modelperf.graph.shape_rule import (
    OutputType,
    ShapeRule,
    dtype_of,
    has_input,
    int_of,
    ints_of,
    like,
    one,
    shape_of,
    stated_size,
)
from pytest_modelperf.graph.structure import Node, Shape

# The products of queries and keys have a type of their own, which the model declares.
_OF_THE_MODEL = None


def _rank(shape: Shape | None) -> int:
    return 0 if shape is None else len(shape)


def _past_length(node: Node, index: int, axis: int) -> Dim:
    return dim(shape_of(node, index), axis) if has_input(node, index) else 0


def _projected_widths(node: Node) -> tuple[Dim, Dim]:
    """The widths of Q (or K) and of V that merged projection weights make."""
    sizes = node.attr_ints("qkv_hidden_sizes")
    if len(sizes) == 3:
        return sizes[0], sizes[2]
    third = quotient(dim(shape_of(node, 1), 1), 3)
    return third, third


def _attention(past: int, dtype: int = 0) -> ShapeRule:
    """Attention that projects its input itself and keeps keys and values in one tensor."""

    def rule(node: Node) -> tuple[OutputType, ...]:
        batch, length = dim(shape_of(node, 0), 0), dim(shape_of(node, 0), 1)
        width, value_width = _projected_widths(node)
        heads = stated_size(node, "num_heads")
        if node.attr_int("past_present_share_buffer", 0):
            present = shape_of(node, past)
        else:
            cached = total(_past_length(node, past, axis=3), length)
            present = (2, batch, heads, cached, quotient(width, heads))
        return (
            OutputType(dtype_of(node, dtype), (batch, length, value_width)),
            OutputType(dtype_of(node, dtype), present),
        )

    return rule


class _KeysAndValues(Struct, frozen=True):
    """The sizes that the query, key and value inputs give together, in any of their layouts."""

    length: Dim
    head_size: Dim
    value_head_size: Dim
    value_width: Dim


def _keys_and_values(
    query: Shape | None, key: Shape | None, value: Shape | None, heads: Dim
) -> _KeysAndValues:
    """The sizes from (batch, length, width), (batch, length, heads, 2 or 3, size) or a cache."""
    if _rank(query) == 5:
        length, size = dim(query, 1), dim(query, 4)
    elif _rank(key) == 5:
        length, size = dim(key, 1), dim(key, 4)
    elif _rank(key) == 4:
        length, size = dim(key, 2), dim(key, 3)
    elif _rank(key) == 3:
        length, size = dim(key, 1), quotient(dim(key, 2), heads)
    else:
        length, size = None, None
    if _rank(value) == 3:
        width = dim(value, 2)
        return _KeysAndValues(length, size, quotient(width, heads), width)
    value_size = dim(value, 3) if _rank(value) == 4 else None
    if 5 in (_rank(query), _rank(key)):
        value_size = size
    return _KeysAndValues(length, size, value_size, product(heads, value_size))


def _multi_head_attention(node: Node) -> tuple[OutputType, ...]:
    query, dtype = shape_of(node, 0), dtype_of(node, 0)
    batch, length = dim(query, 0), dim(query, 1)
    heads = stated_size(node, "num_heads")
    keys = _keys_and_values(query, shape_of(node, 1), shape_of(node, 2), heads)
    shares_buffer = has_input(node, 8)
    cached = total(_past_length(node, 6, axis=2), keys.length)
    if shares_buffer:
        seen = total(int_of(node, 8), keys.length)
        presents = (shape_of(node, 6), shape_of(node, 7))
    else:
        seen = cached
        presents = (
            (batch, heads, cached, keys.head_size),
            (batch, heads, cached, keys.value_head_size),
        )
    return (
        OutputType(dtype, (batch, length, keys.value_width)),
        *(OutputType(dtype, present) for present in presents),
        OutputType(_OF_THE_MODEL, (batch, heads, length, seen)),
    )


def _decoder_masked_multi_head_attention(node: Node) -> tuple[OutputType, ...]:
    """MultiHeadAttention of one new token; without a key, the query holds Q, K and V."""
    query, dtype = shape_of(node, 0), dtype_of(node, 0)
    heads = stated_size(node, "num_heads")
    packed = not has_input(node, 1)
    third = quotient(dim(query, 2), 3)
    keys = _keys_and_values(query, shape_of(node, 1), shape_of(node, 2), heads)
    width = third if packed else keys.value_width
    batch, length = dim(query, 0), dim(query, 1)
    cached = total(_past_length(node, 5, axis=2), length)
    if node.attr_int("past_present_share_buffer", 0):
        seen = total(int_of(node, 7), length)
        presents = (shape_of(node, 5), shape_of(node, 6))
    else:
        seen = cached
        size = quotient(third, heads) if packed else keys.head_size
        value_size = size if packed else keys.value_head_size
        presents = ((batch, heads, cached, size), (batch, heads, cached, value_size))
    if _rank(shape_of(node, 1)) == 4:
        seen = keys.length
    return (
        OutputType(dtype, (batch, length, width)),
        *(OutputType(dtype, present) for present in presents),
        OutputType(_OF_THE_MODEL, (batch, heads, length, seen)),
    )


def _grouped_head_size(node: Node) -> Dim:
    """The size of a head; without a key, the query holds Q, K and V."""
    width, heads = dim(shape_of(node, 0), -1), stated_size(node, "num_heads")
    if has_input(node, 1):
        return quotient(width, heads)
    return quotient(width, total(heads, product(2, stated_size(node, "kv_num_heads"))))


def _grouped_output(node: Node, value_size: Dim = None) -> OutputType:
    """(…, heads x head size), with the query's leading dimensions."""
    query = shape_of(node, 0)
    width = product(stated_size(node, "num_heads"), value_size or _grouped_head_size(node))
    return OutputType(dtype_of(node, 0), None if not query else (*query[:-1], width))


def _grown_cache(
    node: Node, past: int, total_length: int, head_size: Dim, *, is_padded: bool = False
) -> OutputType:
    """A cache that grows to the total length, unless it is large enough already.

    The total is an input: without its value, only a first call (which has no past) is certain,
    and not even that if the total is a mere bound because the query is padded.
    """
    query, cache = shape_of(node, 0), shape_of(node, past)
    dtype = dtype_of(node, past) if has_input(node, past) else dtype_of(node, 0)
    if has_input(node, past) and node.attr_int("sliding_window_cache", 0):
        return OutputType(dtype, cache)
    before, after = _past_length(node, past, axis=2), int_of(node, total_length)
    if before is not None and after is not None:
        length: Dim = max(before, after)
    else:
        length = dim(query, 1) if before == 0 and not is_padded else None
    size = dim(cache, 3) if has_input(node, past) else head_size
    return OutputType(dtype, (dim(query, 0), stated_size(node, "kv_num_heads"), length, size))


def _group_query_attention(node: Node) -> tuple[OutputType, ...]:
    query, size = shape_of(node, 0), _grouped_head_size(node)
    after, is_padded = int_of(node, 6), has_input(node, 16)
    scores = (dim(query, 0), stated_size(node, "num_heads"), dim(query, 1), after)
    return (
        _grouped_output(node),
        _grown_cache(node, 3, 6, size, is_padded=is_padded),
        _grown_cache(node, 4, 6, size, is_padded=is_padded),
        OutputType(dtype_of(node, 0), scores),
    )


def _dynamic_sparse_attention(node: Node) -> tuple[OutputType, ...]:
    """A cache is updated in place, as in ONNX Runtime's own inference."""
    output = _grouped_output(node)
    if node.attr_int("output_bf16", 0):
        output = OutputType("bfloat16", output.shape)
    status = OutputType("int32", (1,))
    if has_input(node, 3):
        return (output, *like(3, 4)(node), status)
    new = _grown_cache(node, 3, 10, _grouped_head_size(node))
    return output, new, new, status


def _with_fixed_caches(node: Node) -> tuple[OutputType, ...]:
    """Attention whose caches, inputs 3 and 4, keep their size."""
    return (_grouped_output(node, stated_size(node, "v_head_size")), *like(3, 4)(node))


def _packed_attention(node: Node) -> tuple[OutputType]:
    _, value_width = _projected_widths(node)
    return one(dtype_of(node, 0), (dim(shape_of(node, 0), 0), value_width))


def _packed_multi_head_attention(node: Node) -> tuple[OutputType]:
    """The input is (tokens, width) or, with Q, K and V in one, (tokens, heads, 3, size)."""
    query, value = shape_of(node, 0), shape_of(node, 2)
    packed_width = product(dim(query, 1), dim(query, 3)) if _rank(query) == 4 else None
    width = dim(value, 1) if has_input(node, 2) else packed_width
    return one(dtype_of(node, 0), (dim(query, 0), width))


def _q_ordered_attention(node: Node) -> tuple[OutputType]:
    source = shape_of(node, 0)
    return one(dtype_of(node, 0), (dim(source, 0), dim(source, 1), dim(shape_of(node, 7), 1)))


def _decoder_attention(node: Node) -> tuple[OutputType, ...]:
    """Inputs are sequence-major; four boolean inputs say which of them are caches."""
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
    cache = OutputType(dtype_of(node, 0), (dim(query, 1), heads, length, size))
    return OutputType(dtype_of(node, 0), query), cache, cache


def _indexer_capacity(node: Node) -> Dim:
    """The number of candidates for each query, which depends on the mode of the indexer."""
    if node.attr_str("policy_mode", "") == "csa":
        return stated_size(node, "index_topk")
    ratio = stated_size(node, "compress_ratio")
    return total(stated_size(node, "token_budget"), ratio, -1)


def _sparse_attention_indexer(node: Node) -> tuple[OutputType, ...]:
    query, past, dtype = shape_of(node, 0), shape_of(node, 7), dtype_of(node, 7)
    batch, length = dim(query, 0), dim(query, 1)
    if has_input(node, 12):
        keys = past
    elif node.attr_str("policy_mode", "") == "csa":
        keys = (batch, None, dim(past, 2))
    else:
        keys = (batch, total(dim(past, 1), length), dim(past, 2))
    buffered = (2, batch, None, dim(shape_of(node, 13), 3))
    return (
        OutputType("int32", (batch, length, _indexer_capacity(node))),
        OutputType(dtype, keys),
        OutputType(dtype, buffered),
    )


def _packed_sparse_attention_indexer(node: Node) -> tuple[OutputType, ...]:
    tokens, state = dim(shape_of(node, 0), 0), shape_of(node, 12)
    update = (dim(state, 0), node.attr_int("state_update_capacity", 0), dim(state, 2))
    selected = stated_size(node, "max_output_entries") or _indexer_capacity(node)
    return (
        OutputType("int32", (tokens, selected)),
        OutputType("int32", (tokens,)),
        *like(12, 13, 14, 15)(node),
        OutputType(dtype_of(node, 0), update),
        OutputType("int32", (tokens,)),
        OutputType("int32", (dim(state, 0),)),
    )


def _merged_selection(node: Node) -> tuple[OutputType, ...]:
    """Indexes up to a stated number for each query, how many they are, and a status."""
    queries, dtype = dim(shape_of(node, 2), 0), dtype_of(node, 0)
    merged = OutputType(dtype, (queries, stated_size(node, "max_output_entries")))
    each = OutputType(dtype, (queries,))
    return merged, each, each


def _rms_norm_rotary(node: Node) -> tuple[OutputType, ...]:
    """A slice of each head, flattened with the others; then the slices before their rotation."""
    batch, length, heads, size = (dim(shape_of(node, 0), axis) for axis in range(4))
    width = stated_size(node, "input_width") or size
    rows = (1, product(batch, length)) if node.attr_int("flatten_batch", 0) else (batch, length)
    dtype = "float16" if node.attr_int("output_fp16", 0) else "bfloat16"
    return (
        OutputType(dtype, (*rows, product(heads, width))),
        OutputType("float32", (batch, length, heads, width)),
    )


def _relative_position_bias(node: Node) -> tuple[OutputType]:
    heads = dim(shape_of(node, 0), 1)
    return one(dtype_of(node, 0), (1, heads, int_of(node, 1), int_of(node, 2)))


def _gated_relative_position_bias(node: Node) -> tuple[OutputType]:
    """The input is (batch, length, width), or packed tokens with their offsets."""
    lengths = shape_of(node, 6) if has_input(node, 6) else shape_of(node, 0)
    batch, length = dim(lengths, 0), dim(lengths, 1)
    return one(dtype_of(node, 0), (batch, stated_size(node, "num_heads"), length, length))


def _remove_padding(node: Node) -> tuple[OutputType, ...]:
    padded = shape_of(node, 0)
    batch, length = dim(padded, 0), dim(padded, 1)
    return (
        OutputType(dtype_of(node, 0), (None, dim(padded, 2))),
        OutputType("int32", (batch, length)),
        OutputType("int32", (total(batch, 1),)),
        OutputType("int32", (1,)),
    )


def _restore_padding(node: Node) -> tuple[OutputType]:
    offsets = shape_of(node, 1)
    return one(dtype_of(node, 0), (dim(offsets, 0), dim(offsets, 1), dim(shape_of(node, 0), 1)))


ATTENTION_RULES: Mapping[str, ShapeRule] = {
    "Attention": _attention(past=4),
    "QAttention": _attention(past=8, dtype=3),
    "DecoderMaskedSelfAttention": _attention(past=4),
    "MultiHeadAttention": _multi_head_attention,
    "DecoderMaskedMultiHeadAttention": _decoder_masked_multi_head_attention,
    "GroupQueryAttention": _group_query_attention,
    "DynamicSparseAttention": _dynamic_sparse_attention,
    "SparseAttention": _with_fixed_caches,
    "PagedAttention": _with_fixed_caches,
    "SparsePagedAttention": _with_fixed_caches,
    "PackedAttention": _packed_attention,
    "PackedMultiHeadAttention": _packed_multi_head_attention,
    "LongformerAttention": like(0),
    "QOrderedLongformerAttention": like(0),
    "QOrderedAttention": _q_ordered_attention,
    "DecoderAttention": _decoder_attention,
    "SparseAttentionIndexer": _sparse_attention_indexer,
    "PackedSparseAttentionIndexer": _packed_sparse_attention_indexer,
    "PackedSparseAttentionIndexerMerge": _merged_selection,
    "RMSNormRotary": _rms_norm_rotary,
    "RotaryEmbedding": like(0),
    "MRotaryEmbedding": like(0),
    "GemmaRotaryEmbedding": like(1, 3),
    "RelativePositionBias": _relative_position_bias,
    "GatedRelativePositionBias": _gated_relative_position_bias,
    "RemovePadding": _remove_padding,
    "RestorePadding": _restore_padding,
}
