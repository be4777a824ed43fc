"""Reductions, running sums, sorts and searches."""

from __future__ import annotations

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.cost import ADD, CMP, DIV, EXP, LOG, MOV, MUL, SQRT
from pytest_modelperf.profiler.counting.reduction import COUNTERS, ceil_log2
from tests.profiler.counting.nodes import node, unknown


def ops(call: Node) -> int:
    cost = COUNTERS[call.qualified_op](call)
    assert cost.contractions == ()
    return cost.elementwise_ops


def reduced(op: str) -> int:
    """A reduction of 60 elements to 12."""
    return ops(node(op, [(3, 4, 5)], [(3, 4)]))


@pytest.mark.parametrize(
    ("op", "each", "result"),
    [
        ("ArgMax", CMP, 0),
        ("ReduceL1", CMP + ADD, 0),
        ("ReduceL2", MUL + ADD, SQRT),
        ("ReduceLogSum", ADD, LOG),
        ("ReduceMax", CMP, 0),
        ("ReduceMean", ADD, DIV),
        ("ReduceProd", MUL, 0),
        ("ReduceSum", ADD, 0),
        ("ReduceSumSquare", MUL + ADD, 0),
    ],
)
def test_each_input_element_is_gathered_and_each_result_finished(
    op: str, each: int, result: int
) -> None:
    assert reduced(op) == 60 * each + 12 * result


def test_confirmed_wrong_14_reduce_log_sum_exp_subtracts_its_maximum() -> None:
    assert reduced("ReduceLogSumExp") == 60 * (CMP + ADD + EXP + ADD) + 12 * (LOG + ADD)


def test_confirmed_wrong_14_arg_min_costs_as_arg_max() -> None:
    assert reduced("ArgMin") == reduced("ArgMax") == 60 * CMP


def test_a_sum_needs_no_output_shape() -> None:
    assert ops(node("ReduceSum", [(3, 4)], [unknown()])) == 12 * ADD
    assert ops(node("NonZero", [(3, 4)], [unknown()])) == 12 * CMP


def test_running_sums_make_each_element_from_the_last() -> None:
    assert ops(node("CumSum", [(3, 4), ()], [(3, 4)])) == 12 * ADD
    assert ops(node("CumProd", [(3, 4), ()], [(3, 4)])) == 12 * MUL


def test_a_selection_sifts_a_heap_of_k() -> None:
    outputs = [(2, 8), (2, 8)]
    assert ops(node("TopK", [(2, 100), (1,)], outputs)) == 200 * 3 * CMP + 32 * MOV
    first = [(1, 100), (1, 100)]
    assert ops(node("TopK", [(2, 100), (1,)], first, axis=0)) == 200 * CMP + 200 * MOV


def test_distinct_elements_are_sorted_first() -> None:
    assert ops(node("Unique", [(4, 4)], [unknown()])) == 16 * (4 + 1) * CMP
    assert ops(node("Unique", [(4, 4)], [unknown()], axis=0)) == 16 * (2 + 1) * CMP
    assert ops(node("com.microsoft::Unique", [(16,)], [unknown()] * 3)) == 16 * (4 + 1) * CMP


def test_finiteness_looks_at_every_input() -> None:
    assert ops(node("com.microsoft::IsAllFinite", [(3, 4), (5,), ()], [()])) == 18 * CMP


@given(st.integers(1, 10_000))
def test_ceil_log2_is_the_logarithm_rounded_up(n: int) -> None:
    assert ceil_log2(n) == ceil(log2(n))
    assert ceil_log2(0) == 0
