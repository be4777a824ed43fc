"""Units of two plans: each kernel is in one, and changes are divided as finely as can be."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pytest_modelperf.graph.plans.matching import match_plans
from pytest_modelperf.graph.plans.parts import Unit, find_units, kernels_of
from pytest_modelperf.graph.plans.plan import EnginePlan
from tests.graph.plans.plan_models import make_plan

CHAIN = """g (float[1,8] x) => (float[1,8] y) {
    a = MatMul (x, w)
    b = CHANGED
    c = MatMul (b, w)
    y = Relu (c)
}"""
WEIGHTS: Mapping[str, np.ndarray] = {"w": np.ones((8, 8), np.float32)}


def units_of(before: str, after: str) -> tuple[tuple[EnginePlan, EnginePlan], tuple[Unit, ...]]:
    old, new = (make_plan(graph, WEIGHTS) for graph in (before, after))
    return (old, new), find_units(old, new, match_plans(old, new), ({}, {}))


def changed(before: str, after: str) -> list[tuple[list[str], list[str]]]:
    """The operators of the units that changed."""
    plans, units = units_of(before, after)
    return [
        (
            [plans[0].kernels[k].op_type for k in unit.before],
            [plans[1].kernels[k].op_type for k in unit.after],
        )
        for unit in units
        if unit.is_changed
    ]


def chain(step: str) -> str:
    return CHAIN.replace("b = CHANGED", step)


def test_each_kernel_is_in_one_unit() -> None:
    (old, new), units = units_of(chain("b = Abs (a)"), chain("d = Exp (a)\n b = Neg (d)"))
    assert kernels_of(units, 0) == tuple(range(len(old.kernels)))
    assert kernels_of(units, 1) == tuple(range(len(new.kernels)))


def test_plans_that_are_the_same_have_pairs_of_partners_alone() -> None:
    _, units = units_of(chain("b = Abs (a)"), chain("b = Abs (a)"))
    assert units == tuple(Unit((k,), (k,), is_changed=False) for k in range(4))


def test_one_kernel_that_became_several_is_one_unit() -> None:
    found = changed(chain("b = Abs (a)"), chain("d = Exp (a)\n e = Neg (d)\n b = Add (e, d)"))
    assert found == [(["Abs"], ["Exp", "Neg", "Add"])]


def test_a_kernel_between_new_ones_is_a_unit_of_its_own() -> None:
    found = changed(
        chain("d = Gemm (a, w)\n b = Abs (d)"),
        chain("e = Exp (a)\n d = Gemm <alpha = 2.0> (e, w)\n f = Neg (d)\n b = Abs (f)"),
    )
    assert ([], ["Exp"]) in found
    assert (["Gemm"], ["Gemm"]) in found
    assert ([], ["Neg"]) in found


def test_each_kernel_that_came_is_a_unit() -> None:
    found = changed(chain("b = Abs (a)"), chain("d = Exp (a)\n e = Neg (d)\n b = Abs (e)"))
    assert found == [([], ["Exp"]), ([], ["Neg"])]
