"""The cost of routers that choose experts for each token in an operator of their own."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import SIGMOID
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    LOG,
    MOV,
    Contraction,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.transformer import clamped_swiglu_ops


def count_moe_group_router(node: Node) -> Cost:
    """Each sigmoid(x) + bias and, unless all scores are returned, the experts with the largest.

    A choice of k takes k comparisons for each candidate. Groups of experts are chosen first, by
    the sum of the largest scores in each; one group is no choice. The chosen scores become
    logarithms, the others a constant. A projection may make the scores from the tokens.
    """
    x, experts = node.input(0), node.input(1).size
    tokens = prod(x.dims[:-1])
    projected = node.optional_input(2) is not None
    scores = tokens * experts
    contractions = (Contraction(x.size * experts, (0, 2)),) if projected else ()
    ops = scores * (SIGMOID + ADD)
    if not node.outputs or node.outputs[0] is None:
        return Cost(contractions, ops)
    groups, chosen = node.attr_int("n_group", 1), node.attr_int("top_k", 1)
    if groups > 1:
        summed = min(node.attr_int("group_topk", 2), experts // groups)
        kept = node.attr_int("topk_group", 1)
        ops += scores * summed * CMP + tokens * groups * (summed * ADD + kept * CMP)
    return Cost(contractions, ops + scores * (chosen * CMP + MOV) + tokens * chosen * (CMP + LOG))


def count_router_gate_up(node: Node) -> Cost:
    """One product, whose first columns are the router's scores and whose others are gated pairs."""
    x, columns = node.input(0), node.input(1).dims[-1]
    pairs = prod(x.dims[:-1]) * (columns - node.attr_int("router_size", 0)) // 2
    return Cost((Contraction(x.size * columns, (0, 1)),), pairs * clamped_swiglu_ops(node))


COUNTERS: Mapping[str, Counter] = {
    "com.microsoft::MoEGroupRouter": count_moe_group_router,
    "com.microsoft::RouterGateUpProj": count_router_gate_up,
}
