"""Indexers that select the keys of a sparse attention."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.graph.operators.cost import (
    ADD,
    CMP,
    DIV,
    EXP,
    MOV,
    MUL,
    SQRT,
    Contraction,
    Cost,
)
from pytest_modelperf.graph.structure import Attribute, Shape
from tests.graph.operators.nodes import cost, node, unknown

SOFTMAX = CMP + ADD + EXP + ADD + DIV
ROTARY = 2 * MUL + ADD
# A norm of eight numbers, of which four are then rotated.
VECTOR = 8 * (3 * MUL + ADD) + 2 * DIV + ADD + SQRT + 4 * ROTARY


def indexer(*inputs: Shape | None, **attributes: Attribute) -> Cost:
    op = "com.microsoft::SparseAttentionIndexer"
    call = node(op, inputs, [unknown()])
    return cost(replace(call, attributes={"compress_ratio": 4, **attributes}))


def test_the_mean_of_every_block_meets_every_query() -> None:
    def count(*inputs: Shape | None) -> Cost:
        return indexer(*inputs, policy_mode="qsa", token_budget=8)

    # Two sequences of three tokens with two heads of eight; 14 past tokens make 17, or four blocks.
    tables: list[Shape | None] = [(8,), (8,), (99, 4), (99, 4)]
    past: list[Shape | None] = [None, (2, 14, 8)]
    call = count((2, 3, 16), (2, 3, 8), *tables, *past)
    sums, scores = 2 * 3 * 4, 2 * 3 * 4 * 2
    assert call.contractions == (Contraction(scores * 8, (0, None)),)
    assert call.elementwise_ops == (
        2 * 4 * 8 * (4 * ADD + DIV)
        + 2 * (3 * 2 + 4) * VECTOR
        + scores * (MUL + CMP + ADD)
        + sums * CMP  # the better two of four
        + 2 * 3 * (8 + 4 - 1) * MOV
    )
    assert count((2, 3, 24), None, *tables, *past) == call
    # A cache of a fixed size has room for three blocks, whatever is in it.
    fixed = count((2, 3, 16), (2, 3, 8), *tables, *past, *[None] * 4, (1,))
    assert fixed.macs == 2 * 3 * 3 * 2 * 8


def test_new_windows_alone_are_compressed() -> None:
    def count(waiting: int, *capacity: Shape) -> Cost:
        return indexer(
            *[(2, 3, 16), (2, 3, 16), (8,), (8,), (99, 2), (99, 2), None, (2, 5, 8)],
            *[(2, 3, 16), (4, 16), (2, 3, 2), (2, 3), *(capacity or [None])],
            (2, 2, waiting, 16),
            policy_mode="csa",
            index_topk=5,
        )

    # One waiting token and three new ones close a window, after which there are six keys.
    call = count(1)
    sums, scores, slots = 2 * 3 * 6, 2 * 3 * 6 * 2, 2 * 2 * 4 * 8
    assert call.contractions == (
        Contraction(slots, (None, None)),
        Contraction(scores * 8, (0, None)),
        Contraction(scores, (None, 10)),
    )
    assert call.elementwise_ops == (
        slots * (ADD + SOFTMAX)
        + 2 * (3 * 2 + 1) * VECTOR
        + scores * (MUL + CMP)
        + 2 * 3 * 2 * MUL
        + sums * 3 * CMP
        + 2 * 3 * 5 * MOV
    )
    # A whole window that waits is the predecessor of the next: three new tokens close none.
    assert count(4).contractions[0].macs == 0
    assert count(5).contractions == call.contractions
    # A cache of a fixed size has room for five.
    assert count(1, (1,)).contractions[1].macs == 2 * 3 * 5 * 2 * 8
