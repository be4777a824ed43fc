"""The cost of selecting the keys that a sparse attention meets.

An indexer makes one key of each block of tokens, scores it against small queries of several heads,
and keeps the blocks with the largest sums of positive scores.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import SOFTMAX
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    DIV,
    MOV,
    MUL,
    Contraction,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.epilogue import ROTARY, rms_norm_ops
from pytest_modelperf.profiler.counting.reduction import ceil_log2


class _Blocks(Struct, frozen=True):
    """How many keys of blocks one sequence has, and how many of them this call makes."""

    made: int
    scored: int
    kept: int
    entries: int
    cost_of_making: Cost


def count_sparse_attention_indexer(node: Node) -> Cost:
    """Blocks are pooled, normed and rotated, as queries are, and scored; the best are kept.

    A score takes its scale, a comparison with 0 and its part in the sum over heads, which is a
    contraction if heads have weights. A cache of a fixed size counts at its capacity, and every
    query meets every block, as in attention.
    """
    query, size = node.input(0), node.input(2).dims[0]
    batch, tokens, width = query.dims
    heads = width // size - (1 if node.optional_input(1) is None else 0)
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
    """All keys, past ones included, are pooled in every call: a block is the mean of its tokens."""
    ratio, budget = node.attr_int("compress_ratio", 1), node.attr_int("token_budget", 0)
    past, size = node.input(7).dims[1], node.input(2).dims[0]
    blocks = (past if node.optional_input(12) is not None else past + tokens) // ratio
    pooled = Cost((), blocks * size * (ratio * ADD + DIV))
    return _Blocks(blocks, blocks, budget // ratio, budget + ratio - 1, pooled)


def _compressed_blocks(node: Node, tokens: int) -> _Blocks:
    """New windows are pooled by a softmax over the slots of two windows, for each channel.

    Of what waits in the buffer, a first whole window is only the predecessor of the next one.
    """
    ratio, kept = node.attr_int("compress_ratio", 1), node.attr_int("index_topk", 0)
    size, waiting = node.input(2).dims[0], node.input(13).dims[2]
    made = (tokens + waiting - (ratio if waiting >= ratio else 0)) // ratio
    past = node.input(7).dims[1]
    scored = past if node.optional_input(12) is not None else past + made
    slots = made * 2 * ratio * size
    pooled = Cost((Contraction(slots, (None, None)),), slots * (ADD + SOFTMAX))
    return _Blocks(made, scored, kept, kept, pooled)


COUNTERS: Mapping[str, Counter] = {
    "com.microsoft::SparseAttentionIndexer": count_sparse_attention_indexer,
}

UNTELLABLE: Mapping[str, str] = {
    "com.microsoft::PackedSparseAttentionIndexer": (
        "its cost depends on how many keys of each request wait to be pooled"
    ),
    "com.microsoft::PackedSparseAttentionIndexerMerge": (
        "its cost depends on how many indexes are selected for each query"
    ),
}
