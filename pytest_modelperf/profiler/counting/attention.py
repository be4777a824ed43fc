"""MACs of attention: scores Q K^T, then their softmax times V, and projections that are fused in.

Counting rules:

- Every query meets every key: causal, padding and window masks are not subtracted, like padding
  elsewhere. A pattern of sparse blocks is no mask, so it is taken into account.
- The key tokens are the past tokens and the new ones. If past and present share a buffer, or
  sequences lie in pages, its capacity counts: lengths that are values, not shapes, are not read.
- Heads of keys and values that serve several query heads count once for each query head.
- Each score takes a MUL for the scale, its softmax, and an ADD or CMP for each mask or bias.
- Linear attention is counted as the recurrence that defines it, not as a chunked kernel runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import TypeAlias

from msgspec import Struct

from pytest_modelperf.graph.structure import Node, Tensor, UnknownShapeError
from pytest_modelperf.profiler.counting.activation import SIGMOID, SOFTMAX
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    DIV,
    EXP,
    LOG,
    MOV,
    MUL,
    TANH,
    Contraction,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.epilogue import (
    REQUANTIZE,
    ROTARY,
    bias_ops,
    has_input,
    rms_norm_ops,
    zero_point_ops,
)

Operand: TypeAlias = "int | None"
INTERNAL = (None, None, None)


class Scores(Struct, frozen=True):
    """The extent of softmax(Q K^T) V: a score for each query and key of each head."""

    batch: int
    heads: int
    queries: int
    keys: int
    head_size: int
    value_head_size: int

    @property
    def count(self) -> int:
        return self.batch * self.heads * self.queries * self.keys


def attend(scores: Scores, operands: tuple[Operand, Operand, Operand], ops_per_score: int) -> Cost:
    """The attention of the inputs at `operands`: query, key and value."""
    query, key, value = operands
    return Cost(
        (
            Contraction(scores.count * scores.head_size, (query, key)),
            Contraction(scores.count * scores.value_head_size, (None, value)),
        ),
        scores.count * (MUL + ops_per_score + SOFTMAX),
    )


def count_attention(node: Node) -> Cost:
    """Attention of ONNX 23 and later: [batch, heads, tokens, size] or [batch, tokens, width]."""
    query, key, value = (node.input(i) for i in range(3))
    heads, kv_heads = node.attr_int("q_num_heads", 1), node.attr_int("kv_num_heads", 1)
    if query.rank == 4:
        heads = _dim(query, 1)
    past = node.optional_input(4)
    scores = Scores(
        batch=_dim(query, 0),
        heads=heads,
        queries=_dim(query, -2),
        keys=(0 if past is None else _dim(past, 2)) + _dim(key, -2),
        head_size=_dim(query, -1) if query.rank == 4 else _dim(query, 2) // heads,
        value_head_size=_dim(value, -1) if value.rank == 4 else _dim(value, 2) // kv_heads,
    )
    return attend(scores, (0, 1, 2), _score_ops(node, (3, 6), causal="is_causal"))


def count_flex_attention(node: Node) -> Cost:
    """Attention whose scores and probabilities pass through bodies, which are counted as such."""
    query, key, value = (node.input(i) for i in range(3))
    scores = Scores(
        batch=_dim(query, 0),
        heads=_dim(query, 1),
        queries=_dim(query, 2),
        keys=_dim(key, 2),
        head_size=_dim(query, 3),
        value_head_size=_dim(value, 3),
    )
    return attend(scores, (0, 1, 2), 0)


def count_linear_attention(node: Node) -> Cost:
    """A state [key size, value size] a head, which each token updates and then reads.

    An update adds the outer product of key and value, a sum over time; the delta rules first
    read the state at the key to subtract what is there. Gated rules multiply the state by
    exp(decay). Reads are as many as query heads, or state heads where those are more.
    """
    query, value = node.input(0), node.input(2)
    heads, kv_heads = node.attr_int("q_num_heads", 1), node.attr_int("kv_num_heads", 1)
    batch, tokens = _dim(query, 0), _dim(query, 1)
    state = _dim(query, 2) // heads * (_dim(value, 2) // kv_heads)
    updates = batch * tokens * kv_heads * state
    reads = batch * tokens * max(heads, kv_heads) * state
    rule = node.attr_str("update_rule", "gated_delta")

    contractions = [Contraction(updates, (1, 2)), Contraction(reads, (0, None))]
    ops = batch * tokens * max(heads, kv_heads) * (_dim(value, 2) // kv_heads) * MUL
    if "delta" in rule:
        contractions.insert(0, Contraction(updates, (None, 1)))
        ops += value.size * (ADD + MUL)
    if "gated" in rule:
        ops += node.input(4).size * EXP + updates * MUL
    return Cost(tuple(contractions), ops)


def count_self_attention(node: Node) -> Cost:
    """Attention of com.microsoft: one product makes query, key and value of all heads."""
    scores = _projected_scores(node, past=4, shared=has_input(node, 6))
    before = _projection(node, weight=1, bias=2).plus(_rotary_ops(node, scores))
    return before + attend(scores, INTERNAL, _score_ops(node, (3, 5), causal="unidirectional"))


def count_quantized_self_attention(node: Node) -> Cost:
    """The same with an 8-bit input and weight; the projection is rescaled to floats."""
    projection = _projection(node, weight=1, bias=2)
    quantized = zero_point_ops(node, 0, 6) + zero_point_ops(node, 1, 7)
    rescaled = _tokens(node.input(0)) * _dim(node.input(1), 1) * MUL
    scores = _projected_scores(node, past=8, shared=False)
    before = projection.plus(quantized + rescaled + _rotary_ops(node, scores))
    return before + attend(scores, INTERNAL, _score_ops(node, (5,), causal="unidirectional"))


def count_qordered_attention(node: Node) -> Cost:
    """Attention in 8-bit matrix layouts: a weight and a bias each for query, key and value.

    Projections, scores, probabilities and results are rescaled, without zero points.
    """
    x, heads = node.input(0), node.attr_int("num_heads", 1)
    batch, tokens, width = (_dim(x, axis) for axis in range(3))
    columns = [_dim(node.input(weight), 1) for weight in (5, 6, 7)]
    scores = Scores(batch, heads, tokens, tokens, columns[0] // heads, columns[2] // heads)
    rescale = REQUANTIZE - ADD
    before = Cost(
        tuple(
            Contraction(batch * tokens * width * n, (0, weight))
            for weight, n in zip((5, 6, 7), columns, strict=True)
        ),
        batch * tokens * sum(columns) * (ADD + rescale) + batch * tokens * columns[2] * rescale,
    )
    masks = _score_ops(node, (17, 19), causal="unidirectional")
    return before + attend(scores, INTERNAL, masks + 2 * rescale)


def count_multi_head_attention(node: Node) -> Cost:
    """Attention of projected queries, keys and values, or of packed ones."""
    return _heads_attention(node, bias=3, masks=(4, 5), past=6, shared=has_input(node, 8))


def count_decoder_masked_multi_head_attention(node: Node) -> Cost:
    """The same for one query token, with another order of inputs."""
    return _heads_attention(node, bias=10, masks=(3, 4), past=5, shared=has_input(node, 7))


def count_decoder_attention(node: Node) -> Cost:
    """Attention over tokens x batch, with projections and a cache that flags switch on.

    Self attention projects key and value from the query, and appends them to the cache; cross
    attention (`static_kv`) projects them from the key, or takes those of the cache as they are.
    If the values of the flags are not known, it is self attention, and a given cache is used.
    """
    query, key = node.input(0), node.input(1)
    queries, batch, hidden = (_dim(query, axis) for axis in range(3))
    heads = node.attr_int("num_heads", 1)
    used = _flag(node, 9, default=True) and _flag(node, 10, default=True)
    cache = node.optional_input(6) if used else None
    past = 0 if cache is None else _dim(cache, 2)
    cross = _flag(node, 8, default=False)
    source = 1 if cross else 0
    given_keys = _dim(key, 0) if cache is None else 0
    new_keys = given_keys if cross else queries
    columns = _dim(node.input(3), 1)
    contractions = [Contraction(queries * batch * hidden * _dim(node.input(2), 1), (0, 2))]
    if new_keys:
        contractions.append(Contraction(new_keys * batch * hidden * columns, (source, 3)))
    biases = batch * (queries * hidden + new_keys * columns) * ADD
    size = hidden // heads
    scores = Scores(batch, heads, queries, past + new_keys, size, size)
    return Cost(tuple(contractions), biases) + attend(scores, INTERNAL, _score_ops(node, (5,)))


def count_group_query_attention(node: Node) -> Cost:
    """Attention with fewer heads for keys and values, whose key tokens are those of `present_key`.

    Where its shape is not known, they are the past's and the new ones. A window-sized cache does
    not shorten a longer prompt. New queries and keys may be normed and rotated.
    """
    query, key = node.input(0), node.optional_input(1)
    heads, kv_heads = node.attr_int("num_heads", 1), node.attr_int("kv_num_heads", 1)
    batch, queries, width = (_dim(query, axis) for axis in range(3))
    size = width // heads if key is not None else width // (heads + 2 * kv_heads)
    new_keys = queries if key is None else _dim(key, 1)
    present = _known_dim(node, 1, 2)
    past = node.optional_input(3)
    if present is None:
        present = new_keys + (0 if past is None else _dim(past, 2))
    scores = Scores(batch, heads, queries, max(present, new_keys), size, size)

    rotated = batch * (queries * heads + new_keys * kv_heads)
    before = rotated * _cached_rotary_ops(node, 7, size)
    if has_input(node, 14):
        before += rms_norm_ops(rotated, size)
    for scale, quantization in ((12, "k_quant_type"), (13, "v_quant_type")):
        if has_input(node, scale) and node.attr_str(quantization, "NONE") != "NONE":
            before += batch * kv_heads * scores.keys * size * MUL
    if has_input(node, 11) or node.attr_int("smooth_softmax", 0):
        before += batch * heads * queries * (EXP + ADD)
    ops = _score_ops(node, (10,)) + (CMP if node.attr_int("causal", 1) else 0)
    return attend(scores, (0, 0, 0) if key is None else (0, 1, 2), ops).plus(before)


def count_paged_attention(node: Node) -> Cost:
    """Attention of tokens without padding over a cache in pages.

    Only values tell how long each sequence is, so each token meets as many keys as the pages of
    one sequence hold (`block_table`'s second dimension x the page's size).
    """
    query, key = node.input(0), node.optional_input(1)
    heads, kv_heads = node.attr_int("num_heads", 1), node.attr_int("kv_num_heads", 1)
    tokens, width = _dim(query, 0), _dim(query, 1)
    size = width // heads if key is not None else width // (heads + 2 * kv_heads)
    keys = _dim(node.input(7), 1) * _dim(node.input(3), 1)
    scores = Scores(1, heads, tokens, keys, size, node.attr_int("v_head_size", 0) or size)

    rotated = tokens * (heads + kv_heads)
    before = rotated * _cached_rotary_ops(node, 8, size)
    if has_input(node, 12):
        before += rms_norm_ops(rotated, size)
    if has_input(node, 11):
        before += tokens * heads * (EXP + ADD)
    ops = _score_ops(node, ()) + (CMP if node.attr_int("is_causal", 1) else 0)
    value = 2 if has_input(node, 2) else 1  # a latent cache holds the value inside the key
    return attend(scores, (0, 0, 0) if key is None else (0, 1, value), ops).plus(before)


def count_packed_attention(node: Node) -> Cost:
    """Self attention of tokens without padding, projected by one product.

    Projections are of the tokens that are there; scores are those of `token_offset`'s shape
    [batch, tokens], each sequence as long as the longest.
    """
    before = _projection(node, weight=1, bias=2)
    batch, tokens = _dim(node.input(3), 0), _dim(node.input(3), 1)
    query, value = _projected_sizes(node)
    heads = node.attr_int("num_heads", 1)
    scores = Scores(batch, heads, tokens, tokens, query // heads, value // heads)
    return before + attend(scores, INTERNAL, _score_ops(node, (5,)))


def count_packed_multi_head_attention(node: Node) -> Cost:
    """Attention of tokens without padding; scores as those of PackedAttention."""
    query, heads = node.input(0), node.attr_int("num_heads", 1)
    batch, tokens = _dim(node.input(4), 0), _dim(node.input(4), 1)
    packed = node.optional_input(1) is None
    size = _dim(query, 3) if packed else _dim(query, 1) // heads
    value_size = size if packed else _dim(node.input(2), 1) // heads
    scores = Scores(batch, heads, tokens, tokens, size, value_size)
    biases = bias_ops(node, 3, _dim(query, 0) * heads * (2 * size + value_size))
    operands = (0, 0, 0) if packed else (0, 1, 2)
    return attend(scores, operands, _score_ops(node, (6,))).plus(biases)


def count_sparse_attention(node: Node) -> Cost:
    """Attention to the blocks of a pattern that is given by rows, [layouts, rows + 1].

    A query meets as many keys as a row of the pattern has blocks on average, at most all cached.
    """
    query, key = node.input(0), node.optional_input(1)
    heads, kv_heads = node.attr_int("num_heads", 1), node.attr_int("kv_num_heads", 1)
    batch, queries, width = (_dim(query, axis) for axis in range(3))
    size = width // heads if key is not None else width // (heads + 2 * kv_heads)
    rows, blocks = _dim(node.input(5), 1) - 1, _dim(node.input(6), 1)
    met = blocks * node.attr_int("sparse_block_size", 1) // max(rows, 1)
    scores = Scores(batch, heads, queries, min(met, _dim(node.input(3), 2)), size, size)
    before = batch * queries * (heads + kv_heads) * _cached_rotary_ops(node, 9, size)
    operands = (0, 0, 0) if key is None else (0, 1, 2)
    return attend(scores, operands, CMP).plus(before)


def count_dynamic_sparse_attention(node: Node) -> Cost:
    """Attention of each query to keys that another operator has selected for it.

    A query meets as many as can be selected and, in one mode, those of a window of the main cache.
    Quantized caches are written by DIV and two CMP an element, and read by a MUL.
    """
    query, key = node.input(0), node.optional_input(1)
    heads, kv_heads = node.attr_int("num_heads", 1), node.attr_int("kv_num_heads", 1)
    batch, queries, width = (_dim(query, axis) for axis in range(3))
    size = width // heads if key is not None else width // (heads + 2 * kv_heads)
    past = node.optional_input(3)
    cached = _known_dim(node, 1, 2)
    if cached is None:
        cached = queries if past is None else _dim(past, 2)
    keys = _dim(node.input(7), 1) + _window_keys(node, cached)
    scores = Scores(batch, heads, queries, keys, size, size)

    rotated = batch * queries * (heads + kv_heads)
    before = rotated * _cached_rotary_ops(node, 11, size)
    for norm, normed in ((14, heads), (15, kv_heads)):
        if has_input(node, norm):
            before += rms_norm_ops(batch * queries * normed, size)
    for scale in (18, 19):
        if has_input(node, scale):
            written, read = batch * queries * kv_heads * size, batch * queries * kv_heads * keys
            before += written * (DIV + 2 * CMP) + read * size * MUL
    if has_input(node, 16) or node.attr_int("smooth_softmax", 0):
        before += batch * heads * queries * (EXP + ADD)
    operands = (0, 0, 0) if key is None else (0, 1, 2)
    return attend(scores, operands, CMP).plus(before)


def count_sparse_paged_attention(node: Node) -> Cost:
    """The same over tokens without padding and a cache in pages, whose capacity counts."""
    query, key = node.input(0), node.optional_input(1)
    heads, kv_heads = node.attr_int("num_heads", 1), node.attr_int("kv_num_heads", 1)
    tokens, width = _dim(query, 0), _dim(query, 1)
    size = width // heads if key is not None else width // (heads + 2 * kv_heads)
    cached = _dim(node.input(7), 1) * _dim(node.input(3), 1)
    keys = _dim(node.input(9), 1) + _window_keys(node, cached)
    scores = Scores(1, heads, tokens, keys, size, size)

    before = tokens * (heads + kv_heads) * _cached_rotary_ops(node, 14, size)
    for norm, normed in ((17, heads), (18, kv_heads)):
        if has_input(node, norm):
            before += rms_norm_ops(tokens * normed, size)
    for scale, quantization in ((19, "k_quant_type"), (20, "v_quant_type")):
        if has_input(node, scale) and node.attr_str(quantization, "NONE") != "NONE":
            before += tokens * kv_heads * keys * size * MUL
    if has_input(node, 16):
        before += tokens * heads * (EXP + ADD)
    operands = (0, 0, 0) if key is None else (0, 1, 2)
    ops = _score_ops(node, ()) + (CMP if node.attr_int("is_causal", 1) else 0)
    return attend(scores, operands, ops).plus(before)


def _window_keys(node: Node, cached: int) -> int:
    """Keys of the main cache that a query meets beside the selected ones; -1 is all of them."""
    if node.attr_str("attention_mode", "selected_only") != "local_plus_selected":
        return 0
    window = node.attr_int("local_window_size", -1)
    return cached if window < 0 else min(window, cached)


def count_longformer_attention(
    node: Node, *, weight: int = 1, bias: int = 2, global_weight: int = 4, rescale: int = 0
) -> Cost:
    """Attention to `window` tokens on both sides: at most 2 x window + 1 keys a query.

    Both projections are of all tokens. Only values tell which tokens are global, so the scores
    of these are not counted. https://arxiv.org/abs/2004.05150, section 3.1.
    """
    x, heads = node.input(0), node.attr_int("num_heads", 1)
    batch, tokens, hidden = (_dim(x, axis) for axis in range(3))
    local = _projection(node, weight=weight, bias=bias)
    globally = _projection(node, weight=global_weight, bias=bias)
    before = (local + globally).plus(batch * tokens * 2 * 3 * hidden * rescale)
    keys = min(2 * node.attr_int("window", 0) + 1, tokens)
    size = hidden // heads
    return before + attend(Scores(batch, heads, tokens, keys, size, size), INTERNAL, ADD)


def count_gated_relative_position_bias(node: Node) -> Cost:
    """A table of positions is scaled by two gates for each query and head, from one small product.

    gate = u * (r * a - 1) + 2, where u and r are sigmoids of sums over half the product.
    """
    query, weight = node.input(0), node.input(3)
    heads = node.attr_int("num_heads", 1)
    rows = _tokens(query) * heads
    size, columns = _dim(weight, 0), _dim(weight, 1)
    per_row = size * ADD + columns * 2 * ADD + 2 * SIGMOID + MUL + ADD + MUL + ADD
    tokens = _dim(node.input(2), -1)
    batch = _dim(node.input(6) if has_input(node, 6) else query, 0)
    return Cost(
        (Contraction(rows * size * columns, (0, 3)),),
        rows * per_row + batch * heads * tokens * tokens * MUL,
    )


def count_relative_position_bias(node: Node) -> Cost:
    """A bucket for each query and key, and its bias for each head: no contraction.

    A bucket is the distance, or beyond half the buckets its scaled logarithm.
    """
    output = node.output()
    pairs = _dim(output, -2) * _dim(output, -1)
    bucket = ADD + 2 * CMP + (DIV + LOG + MUL + ADD) + CMP
    return Cost((), pairs * bucket + output.size * MOV)


def _heads_attention(
    node: Node, *, bias: int, masks: tuple[int, int], past: int, shared: bool
) -> Cost:
    """Attention of query and, each [batch, tokens, width], key and value, or of one packed in one.

    Query, key and value in one: [batch, tokens, heads, 3, size], or [batch, tokens, 3 widths];
    key and value in one: [batch, tokens, heads, 2, size]; from a cross attention's cache:
    [batch, heads, tokens, size].
    """
    query, key = node.input(0), node.optional_input(1)
    heads = node.attr_int("num_heads", 1)
    batch, queries = _dim(query, 0), _dim(query, 1)
    operands: tuple[Operand, Operand, Operand] = (0, 1, 2)
    if key is None:
        operands = (0, 0, 0)
        new_keys = queries
        size = _dim(query, 4) if query.rank == 5 else _dim(query, 2) // heads // 3
        value_size = size
    else:
        size = _dim(query, 2) // heads
        new_keys = _dim(key, 2 if key.rank == 4 else 1)
        if key.rank == 5:
            operands = (0, 1, 1)
            value_size = _dim(key, 4)
        else:
            value = node.input(2)
            value_size = _dim(value, 3) if value.rank == 4 else _dim(value, 2) // heads
    projected = queries * size
    if key is None or key.rank != 4:
        projected += new_keys * (size + value_size)
    shared = shared or node.attr_int("past_present_share_buffer", 0) != 0
    keys = _all_keys(node, past, 2, new_keys, shared=shared)
    scores = Scores(batch, heads, queries, keys, size, value_size)
    attention = attend(scores, operands, _score_ops(node, masks, causal="unidirectional"))
    return attention.plus(bias_ops(node, bias, batch * heads * projected))


def _projection(node: Node, *, weight: int, bias: int) -> Cost:
    """Input 0 times one weight for query, key and value."""
    x, columns = node.input(0), _dim(node.input(weight), 1)
    return Cost(
        (Contraction(x.size * columns, (0, weight)),), bias_ops(node, bias, _tokens(x) * columns)
    )


def _projected_scores(node: Node, *, past: int, shared: bool) -> Scores:
    query, value = _projected_sizes(node)
    heads = node.attr_int("num_heads", 1)
    tokens = _dim(node.input(0), 1)
    shared = shared or node.attr_int("past_present_share_buffer", 0) != 0
    return Scores(
        batch=_dim(node.input(0), 0),
        heads=heads,
        queries=tokens,
        keys=_all_keys(node, past, 3, tokens, shared=shared),
        head_size=query // heads,
        value_head_size=value // heads,
    )


def _projected_sizes(node: Node) -> tuple[int, int]:
    """The width of the query (and key) and that of the value, all heads together."""
    sizes = node.attr_ints("qkv_hidden_sizes")
    third = _dim(node.input(1), 1) // 3
    return (sizes[0], sizes[2]) if len(sizes) == 3 else (third, third)


def _all_keys(node: Node, past: int, axis: int, new: int, *, shared: bool) -> int:
    """The number of past and new tokens; with a `shared` buffer, the number that it holds."""
    cache = node.optional_input(past)
    if cache is None:
        return new
    return max(_dim(cache, axis), new) if shared else _dim(cache, axis) + new


def _rotary_ops(node: Node, scores: Scores) -> int:
    """Rotation of the first dimensions of each new query and key, where the node asks for it."""
    if not node.attr_int("do_rotary", 0):
        return 0
    rotated = node.attr_int("rotary_embedding_dim", 0) or scores.head_size
    return scores.batch * 2 * scores.queries * scores.heads * rotated * ROTARY


def _cached_rotary_ops(node: Node, cosines: int, size: int) -> int:
    """Rotation of one head: as many dimensions as the cache has angles, twice; all if unknown."""
    if not node.attr_int("do_rotary", 0):
        return 0
    cache = node.optional_input(cosines)
    angles = None if cache is None or not cache.shape else cache.shape[-1]
    return (size if angles is None else min(size, 2 * angles)) * ROTARY


def _score_ops(node: Node, masks: tuple[int, ...], causal: str | None = None) -> int:
    """Operations a score takes between product and softmax, beside its scale.

    cap * tanh(score / cap) is DIV, TANH, MUL.
    """
    ops = sum(ADD for index in masks if has_input(node, index))
    if causal is not None and node.attr_int(causal, 0):
        ops += CMP
    if node.attr_float("softcap", 0.0):
        ops += DIV + TANH + MUL
    return ops


def _flag(node: Node, index: int, *, default: bool) -> bool:
    tensor = node.optional_input(index)
    return default if tensor is None or tensor.value is None else bool(tensor.value.any())


def _tokens(x: Tensor) -> int:
    return prod(x.dims[:-1])


def _dim(tensor: Tensor, axis: int) -> int:
    """One dimension, whatever the others are; raises UnknownShapeError where it is unknown."""
    size = None if tensor.shape is None else tensor.shape[axis]
    if size is None:
        raise UnknownShapeError(tensor.name)
    return size


def _known_dim(node: Node, output: int, axis: int) -> int | None:
    tensor = node.outputs[output] if output < len(node.outputs) else None
    return None if tensor is None or tensor.shape is None else tensor.shape[axis]


COUNTERS: Mapping[str, Counter] = {
    "Attention": count_attention,
    "LinearAttention": count_linear_attention,
    "ai.onnx.preview::FlexAttention": count_flex_attention,
    "com.microsoft::Attention": count_self_attention,
    "com.microsoft::DecoderAttention": count_decoder_attention,
    "com.microsoft::DecoderMaskedMultiHeadAttention": count_decoder_masked_multi_head_attention,
    "com.microsoft::DecoderMaskedSelfAttention": count_self_attention,
    "com.microsoft::DynamicSparseAttention": count_dynamic_sparse_attention,
    "com.microsoft::GatedRelativePositionBias": count_gated_relative_position_bias,
    "com.microsoft::GroupQueryAttention": count_group_query_attention,
    "com.microsoft::LinearAttention": count_linear_attention,
    "com.microsoft::LongformerAttention": count_longformer_attention,
    "com.microsoft::MultiHeadAttention": count_multi_head_attention,
    "com.microsoft::PackedAttention": count_packed_attention,
    "com.microsoft::PackedMultiHeadAttention": count_packed_multi_head_attention,
    "com.microsoft::PagedAttention": count_paged_attention,
    "com.microsoft::QAttention": count_quantized_self_attention,
    "com.microsoft::QOrderedAttention": count_qordered_attention,
    "com.microsoft::QOrderedLongformerAttention": partial(
        count_longformer_attention, weight=2, bias=4, global_weight=8, rescale=REQUANTIZE - ADD
    ),
    "com.microsoft::RelativePositionBias": count_relative_position_bias,
    "com.microsoft::SparseAttention": count_sparse_attention,
    "com.microsoft::SparsePagedAttention": count_sparse_paged_attention,
}
