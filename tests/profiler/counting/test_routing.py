"""Routers that choose experts, alone or beside a shared expert."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.graph.structure import Node, Shape
from pytest_modelperf.profiler.counting import matmul, transformer
from pytest_modelperf.profiler.counting.activation import SIGMOID
from pytest_modelperf.profiler.counting.cost import ADD, CMP, LOG, MOV, Contraction, Cost
from pytest_modelperf.profiler.counting.transformer import COUNTERS
from tests.profiler.counting.nodes import node


def cost(call: Node) -> Cost:
    return COUNTERS[call.qualified_op](call)


def router(inputs: list[Shape], outputs: list[Shape | None], **attributes: int) -> Cost:
    call = node("com.microsoft::MoEGroupRouter", inputs, outputs)
    return cost(replace(call, attributes=attributes))


def test_experts_are_chosen_by_their_biased_scores() -> None:
    flat = router([(2, 3, 8), (8,)], [(6, 8)], top_k=2)
    chosen = 48 * 2 * CMP + 48 * MOV + 12 * (CMP + LOG)
    assert flat == Cost(elementwise_ops=48 * (SIGMOID + ADD) + chosen)


def test_groups_are_chosen_before_experts() -> None:
    flat = router([(6, 8), (8,)], [(6, 8)], top_k=2)
    grouped = router([(6, 8), (8,)], [(6, 8)], top_k=2, n_group=4, topk_group=3, group_topk=9)
    # All of the two experts of a group are summed, as a group has no more.
    more = 48 * 2 * CMP + 24 * (2 * ADD + 3 * CMP)
    assert grouped.elementwise_ops - flat.elementwise_ops == more


def test_all_scores_are_a_projection_that_chooses_nothing() -> None:
    scores: list[Shape | None] = [None, (6, 8), (6, 8)]
    given = router([(6, 8), (8,)], scores, top_k=2)
    assert given == Cost(elementwise_ops=48 * (SIGMOID + ADD))
    projected = router([(6, 256), (8,), (8, 256)], scores, top_k=2)
    assert projected == Cost((Contraction(6 * 8 * 256, (0, 2)),), given.elementwise_ops)


def test_a_shared_expert_costs_a_product_and_its_gate() -> None:
    inputs: list[Shape] = [(2, 3, 4), (4, 5 + 2 * 6)]
    attributes = {"activation_alpha": 1.5, "activation_beta": 1.0, "limit": 7.0}
    call = node("com.microsoft::RouterGateUpProj", inputs, [(2, 3, 5), (2, 3, 6)])
    fused = cost(replace(call, attributes={"router_size": 5, **attributes}))
    product = matmul.COUNTERS["MatMul"](node("MatMul", inputs, [(2, 3, 17)]))
    gate = node("com.microsoft::SwiGLU", [(2, 3, 12)], [(2, 3, 6)])
    activated = transformer.COUNTERS[gate.qualified_op](replace(gate, attributes=attributes))
    assert fused == Cost(product.contractions, activated.elementwise_ops)
