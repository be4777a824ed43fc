"""Attention with fewer heads for keys and values, and the choice of the keys that it reads.

The counting rules are those of `attention`. An indexer makes one key from each block of tokens,
scores it against small queries of several heads, and keeps the blocks with the largest sums of
positive scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from pytest_modelperf.graph.operators.attention import (
    PACKED,
    attend,
    cache_length,
    past_length,
    score_ops,
    size_of,
    sizes_of,
)
from pytest_modelperf.graph.operators.cost import ADD, CMP, DIV, EXP, MOV, MUL, Contraction, Cost
from pytest_modelperf.graph.operators.operator import (
    ROTARY,
    SOFTMAX,
    Demand,
    DemandRule,
    Operator,
    all_of,
    ceil_log2,
    rms_norm_ops,
    rows_of,
)
from pytest_modelperf.graph.shape_rules import (
    Dim,
    Outputs,
    OutputType,
    dim,
    dtype_of,
    has_input,
    int_of,
    like,
    outputs,
    product,
    quotient,
    shape_of,
    stated_size,
    total,
)
from pytest_modelperf.graph.structure import Node


def count_grouped(  # noqa: PLR0913  # places of inputs, which differ between operators
    node: Node,
    keys_of: Callable[[Node, int], tuple[int, int]],
    *,
    cosines: int,
    paged: bool = False,
    norms: tuple[int, ...] = (),
    caches: tuple[int, ...] = (),
    selects: bool = False,
    write_ops: int = 0,
    sinks: int | None = None,
    masks: tuple[int, ...] = (),
    causal: str = "causal",
) -> Cost:
    """Count attention with fewer heads for keys and values, which may be packed with the query."""
    # `keys_of` returns the number of new keys, and of keys that each query is scored against.
    # `paged` tokens have no batch. New queries and keys may be normed and rotated. Scales at
    # `caches` mean that a cache is quantized: writing it takes `write_ops` per element, and it is
    # read once, or once for each query if it `selects` keys. A sink takes part in each softmax.
    query, key = node.input(0), node.optional_input(1)
    heads, kv_heads = node.attr_int("num_heads", 1), node.attr_int("kv_num_heads", 1)
    batch, queries, width = (1, *sizes_of(query, 2)) if paged else sizes_of(query, 3)
    size = width // (heads + 2 * kv_heads if key is None else heads)
    new_keys, keys = keys_of(node, queries)

    rows = batch * queries * heads, batch * new_keys * kv_heads
    ops = sum(rows) * _rotary_ops(node, cosines, size)
    for norm, normed in zip(norms, rows, strict=False):
        ops += rms_norm_ops(normed, size) if has_input(node, norm) else 0
    reads = batch * (queries if selects else 1) * kv_heads * keys * size * MUL
    for scale, attribute in zip(caches, ("k_quant_type", "v_quant_type"), strict=False):
        if has_input(node, scale) and (write_ops or node.attr_str(attribute, "NONE") != "NONE"):
            ops += rows[1] * size * write_ops + reads
    if has_input(node, sinks) or node.attr_int("smooth_softmax", 0):
        ops += rows[0] * (EXP + ADD)
    # A latent cache holds the value inside the key.
    operands = PACKED if key is None else (0, 1, 2 if has_input(node, 2) else 1)
    per_score = score_ops(node, masks) + (CMP if node.attr_int(causal, 1) else 0)
    value_size = node.attr_int("v_head_size", 0) or size
    return attend(rows[0] * keys, size, value_size, operands, per_score).plus(ops)


def _cached(node: Node, queries: int) -> tuple[int, int]:
    """Return the number of new and of all key tokens, from `present_key` if it is known."""
    # A cache as large as a window does not shorten a longer prompt.
    key, present = node.optional_input(1), _known_dim(node, 1, 2)
    new = queries if key is None else size_of(key, 1)
    held = new + cache_length(node.optional_input(3), 2) if present is None else present
    return new, max(new, held)


def _in_pages(node: Node, queries: int) -> tuple[int, int]:
    """Return all keys that the pages of a token hold, as only values show a sequence's length."""
    # The second dimension of `block_table` is the number of its pages, which all have one size.
    return queries, size_of(node.input(7), 1) * size_of(node.input(3), 1)


def _in_pattern(node: Node, queries: int) -> tuple[int, int]:
    """Return the keys of a row's average number of blocks in the pattern, at most all keys."""
    rows, blocks = size_of(node.input(5), 1) - 1, size_of(node.input(6), 1)
    met = blocks * node.attr_int("sparse_block_size", 1) // max(rows, 1)
    return queries, min(met, size_of(node.input(3), 2))


def _selected(node: Node, queries: int) -> tuple[int, int]:
    """Return as keys all that can be selected and, in one mode, a window of the main cache."""
    past, cached = node.optional_input(3), _known_dim(node, 1, 2)
    if cached is None:
        cached = queries if past is None else size_of(past, 2)
    return queries, size_of(node.input(7), 1) + _window(node, cached)


def _selected_in_pages(node: Node, queries: int) -> tuple[int, int]:
    return queries, size_of(node.input(9), 1) + _window(node, _in_pages(node, queries)[1])


def _window(node: Node, cached: int) -> int:
    """Return how many keys of the main cache a query uses besides the selected ones."""
    if node.attr_str("attention_mode", "selected_only") != "local_plus_selected":
        return 0
    # A negative size means the whole cache.
    window = node.attr_int("local_window_size", -1)
    return cached if window < 0 else min(window, cached)


def _rotary_ops(node: Node, cosines: int, size: int) -> int:
    """Count the rotation of one head: two dimensions for each cached angle, or all if unknown."""
    if not node.attr_int("do_rotary", 0):
        return 0
    cache = node.optional_input(cosines)
    angles = None if cache is None or not cache.shape else cache.shape[-1]
    return (size if angles is None else min(size, 2 * angles)) * ROTARY


def _known_dim(node: Node, output: int, axis: int) -> int | None:
    tensor = node.outputs[output] if output < len(node.outputs) else None
    return None if tensor is None or tensor.shape is None else tensor.shape[axis]


class _Blocks(Struct, frozen=True):
    made: int
    scored: int
    kept: int
    entries: int
    cost_of_making: Cost


def count_indexer(node: Node) -> Cost:
    """Count an indexer, which pools, norms, rotates and scores blocks, and keeps the best."""
    # Queries are normed and rotated too. A score takes its scale, a comparison with 0 and its part
    # in the sum over heads, which is a contraction if heads have weights. A cache of a fixed size
    # counts at its capacity, and every query is scored against every block, as in attention.
    query, size = node.input(0), node.input(2).dims[0]
    batch, tokens, width = query.dims
    heads = width // size - (0 if has_input(node, 1) else 1)
    weighted = node.attr_str("policy_mode", "") == "csa"
    blocks = _compressed_blocks(node, tokens) if weighted else _mean_blocks(node, tokens)
    turned = node.input(4).dims[-1] * (2 if weighted else 1)

    vectors = batch * (tokens * heads + blocks.made)
    sums = batch * tokens * blocks.scored
    scores = sums * heads
    contractions = [
        *(Contraction(batch * c.macs, c.operands) for c in blocks.cost_of_making.contractions),
        Contraction(scores * size, (0, None)),
    ]
    if weighted:
        contractions.append(Contraction(scores, (None, 10)))
    return Cost(
        tuple(contractions),
        batch * blocks.cost_of_making.elementwise_ops
        + rms_norm_ops(vectors, size)
        + vectors * min(turned, size) * ROTARY
        + scores * (MUL + CMP + (0 if weighted else ADD))
        + (batch * tokens * heads * MUL if weighted else 0)
        + sums * max(1, ceil_log2(blocks.kept)) * CMP
        + batch * tokens * blocks.entries * MOV,
    )


def _mean_blocks(node: Node, tokens: int) -> _Blocks:
    """Count blocks that are means of tokens. Every call pools all keys, past ones included."""
    ratio, budget = node.attr_int("compress_ratio", 1), node.attr_int("token_budget", 0)
    past, size = node.input(7).dims[1], node.input(2).dims[0]
    blocks = (past if has_input(node, 12) else past + tokens) // ratio
    pooled = Cost((), blocks * size * (ratio * ADD + DIV))
    return _Blocks(blocks, blocks, budget // ratio, budget + ratio - 1, pooled)


def _compressed_blocks(node: Node, tokens: int) -> _Blocks:
    """Count new windows, pooled by a softmax over the slots of two windows for each channel."""
    ratio, kept = node.attr_int("compress_ratio", 1), node.attr_int("index_topk", 0)
    size, waiting = node.input(2).dims[0], node.input(13).dims[2]
    # If the buffer holds a whole window, its first one only serves as predecessor of the next one.
    made = (tokens + waiting - (ratio if waiting >= ratio else 0)) // ratio
    past = node.input(7).dims[1]
    scored = past if has_input(node, 12) else past + made
    slots = made * 2 * ratio * size
    pooled = Cost((Contraction(slots, (None, None)),), slots * (ADD + SOFTMAX))
    return _Blocks(made, scored, kept, kept, pooled)


def _grouped_head_size(node: Node) -> Dim:
    """Return the size of a head. Without a key, the query holds Q, K and V."""
    width, heads = dim(shape_of(node, 0), -1), stated_size(node, "num_heads")
    if has_input(node, 1):
        return quotient(width, heads)
    return quotient(width, total(heads, product(2, stated_size(node, "kv_num_heads"))))


def _grouped_output(node: Node, value_size: Dim = None) -> OutputType:
    query = shape_of(node, 0)
    width = product(stated_size(node, "num_heads"), value_size or _grouped_head_size(node))
    return OutputType(dtype_of(node, 0), None if not query else (*query[:-1], width))


def _grown_cache(
    node: Node, past: int, total_length: int, head_size: Dim, *, is_padded: bool = False
) -> OutputType:
    """Return a cache that grows to the total length, unless it is large enough already."""
    # The total is an input. Without its value, the length is known only in a first call, which has
    # no past, and only if the query is not padded: then the total is just an upper bound.
    query, cache = shape_of(node, 0), shape_of(node, past)
    dtype = dtype_of(node, past) if has_input(node, past) else dtype_of(node, 0)
    if has_input(node, past) and node.attr_int("sliding_window_cache", 0):
        return OutputType(dtype, cache)
    before, after = past_length(node, past, axis=2), int_of(node, total_length)
    if before is not None and after is not None:
        length: Dim = max(before, after)
    else:
        length = dim(query, 1) if before == 0 and not is_padded else None
    size = dim(cache, 3) if has_input(node, past) else head_size
    return OutputType(dtype, (dim(query, 0), stated_size(node, "kv_num_heads"), length, size))


def shape_group_query(node: Node) -> Outputs:
    query, size = shape_of(node, 0), _grouped_head_size(node)
    after, is_padded = int_of(node, 6), has_input(node, 16)
    scores = (dim(query, 0), stated_size(node, "num_heads"), dim(query, 1), after)
    key, value = (_grown_cache(node, past, 6, size, is_padded=is_padded) for past in (3, 4))
    return _grouped_output(node), key, value, OutputType(dtype_of(node, 0), scores)


def shape_dynamic_sparse(node: Node) -> Outputs:
    """Return the output and the caches, which are updated in place as ONNX Runtime infers them."""
    output = _grouped_output(node)
    if node.attr_int("output_bf16", 0):
        output = OutputType("bfloat16", output.shape)
    status = OutputType("int32", (1,))
    if has_input(node, 3):
        return (output, *like(3, 4)(node), status)
    new = _grown_cache(node, 3, 10, _grouped_head_size(node))
    return output, new, new, status


def shape_with_fixed_caches(node: Node) -> Outputs:
    """Return the outputs of attention whose caches, inputs 3 and 4, keep their size."""
    return (_grouped_output(node, stated_size(node, "v_head_size")), *like(3, 4)(node))


def _indexer_capacity(node: Node) -> Dim:
    if node.attr_str("policy_mode", "") == "csa":
        return stated_size(node, "index_topk")
    ratio = stated_size(node, "compress_ratio")
    return total(stated_size(node, "token_budget"), ratio, -1)


def shape_indexer(node: Node) -> Outputs:
    query, past, dtype = shape_of(node, 0), shape_of(node, 7), dtype_of(node, 7)
    batch, length = dim(query, 0), dim(query, 1)
    if has_input(node, 12):
        keys = past
    elif node.attr_str("policy_mode", "") == "csa":
        keys = (batch, None, dim(past, 2))
    else:
        keys = (batch, total(dim(past, 1), length), dim(past, 2))
    buffered = (2, batch, None, dim(shape_of(node, 13), 3))
    selected = OutputType("int32", (batch, length, _indexer_capacity(node)))
    return (selected, *outputs(dtype, keys, buffered))


def shape_packed_indexer(node: Node) -> Outputs:
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


def shape_merged_selection(node: Node) -> Outputs:
    """Return a stated number of indexes for each query, how many are valid, and a status."""
    queries = dim(shape_of(node, 2), 0)
    merged = (queries, stated_size(node, "max_output_entries"))
    return outputs(dtype_of(node, 0), merged, (queries,), (queries,))


def _total_length(*, minus: int) -> DemandRule:
    """Ask for all past and new keys, in attention that takes (query, key, value, past key)."""

    def rule(node: Node, _: int) -> Demand:
        past, new = dim(shape_of(node, 3), 2) or 0, dim(shape_of(node, 0), 1) or 1
        return Demand(low=0, value=past + new - minus)

    return rule


OPERATORS: Mapping[str, Operator] = {
    "com.microsoft::DynamicSparseAttention": Operator(
        partial(
            count_grouped, keys_of=_selected, cosines=11, norms=(14, 15), caches=(18, 19),
            selects=True, write_ops=DIV + 2 * CMP, sinks=16,
        ),
        shape_dynamic_sparse,
    ),
    "com.microsoft::GroupQueryAttention": Operator(
        partial(
            count_grouped, keys_of=_cached, cosines=7, norms=(14, 14), caches=(12, 13), sinks=11,
            masks=(10,),
        ),
        shape_group_query,
        demands={
            5: _total_length(minus=1), 6: _total_length(minus=0), 9: rows_of(7), 16: all_of(0, 1),
        },
    ),
    "com.microsoft::PackedSparseAttentionIndexer": Operator(
        shapes=shape_packed_indexer,
        uncounted="its cost depends on how many keys of each request wait to be pooled",
    ),
    "com.microsoft::PackedSparseAttentionIndexerMerge": Operator(
        shapes=shape_merged_selection,
        uncounted="its cost depends on how many indexes are selected for each query",
    ),
    "com.microsoft::PagedAttention": Operator(
        partial(
            count_grouped, keys_of=_in_pages, cosines=8, paged=True, norms=(12, 12), sinks=11,
            causal="is_causal",
        ),
        shape_with_fixed_caches,
    ),
    "com.microsoft::SparseAttention": Operator(
        partial(count_grouped, keys_of=_in_pattern, cosines=9), shape_with_fixed_caches,
    ),
    "com.microsoft::SparseAttentionIndexer": Operator(count_indexer, shape_indexer),
    "com.microsoft::SparsePagedAttention": Operator(
        partial(
            count_grouped, keys_of=_selected_in_pages, cosines=14, paged=True, norms=(17, 18),
            caches=(19, 20), selects=True, sinks=16, causal="is_causal",
        ),
        shape_with_fixed_caches,
    ),
}  # fmt: skip
