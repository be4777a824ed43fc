"""Kernels of two plans that are the same work are partners; the others have changed."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.graph.plans.plan import EnginePlan, Matching, find_other_work, match_plans
from tests.graph.plans.plan_models import make_plan


def chain(operators: str, *, size: int = 4) -> EnginePlan:
    """Operators one after the other, each on the output of the one before."""
    lines = []
    for number, op in enumerate(operators.split()):
        source = "x" if number == 0 else f"t{number - 1}"
        lines.append(f"t{number} = {op} ({source})")
    last = f"t{len(lines) - 1}"
    body = "\n".join(lines).replace(f"{last} =", "y =")
    return make_plan(f"g (float[1,{size}] x) => (float[1,{size}] y) {{ {body} }}")


def changed(before: EnginePlan, after: EnginePlan) -> tuple[list[str], list[str]]:
    return named(match_plans(before, after), before, after)


def named(found: Matching, before: EnginePlan, after: EnginePlan) -> tuple[list[str], list[str]]:
    return (
        [before.kernels[index].op_type for index in found.before],
        [after.kernels[index].op_type for index in found.after],
    )


def test_the_same_plan_has_no_changes() -> None:
    assert changed(chain("Relu Neg Exp"), chain("Relu Neg Exp")) == ([], [])


def test_a_kernel_that_was_replaced_is_found_between_its_neighbours() -> None:
    found = changed(chain("Relu Neg Exp Abs"), chain("Relu Neg Sin Cos Abs"))
    assert found == (["Exp"], ["Sin", "Cos"])


def test_a_repeated_block_is_not_missed() -> None:
    """As sets of digests all kernels would have a like."""
    before, after = changed(chain("Relu Neg " * 4), chain("Relu Neg " * 5))
    assert (before, sorted(after)) == ([], ["Neg", "Relu"])


def types_of(plan: EnginePlan) -> Mapping[str, str]:
    """Each tensor of these plans has one type and shape."""
    tensors = [name for kernel in plan.kernels for name in (*kernel.inputs, *kernel.outputs)]
    return dict.fromkeys(tensors, "float32 (1, 4)")


def test_what_lies_between_two_changes_is_the_same_where_types_are_known() -> None:
    before, after = chain("Exp Relu Neg Abs Exp"), chain("Sin Relu Neg Abs Sin")
    assert changed(before, after)[0] == ["Exp", "Relu", "Neg", "Abs", "Exp"]
    found = match_plans(before, after, types_of(before), types_of(after))
    assert named(found, before, after) == (["Exp", "Exp"], ["Sin", "Sin"])


def test_kernels_on_tensors_of_other_types_are_no_partners() -> None:
    before, after = chain("Exp Relu Exp"), chain("Sin Relu Sin")
    other = dict.fromkeys(types_of(after), "float64 (1, 4)")
    found = match_plans(before, after, types_of(before), other)
    assert len(found.before) == len(found.after) == 3


def test_kernels_behind_a_size_that_changed_are_no_partners() -> None:
    """They are alike from the outputs, and work on more."""
    before, after = chain("Exp Relu Neg"), chain("Sin Relu Neg")
    assert changed(before, after)[0] == ["Exp"]
    behind = {"t0": "float32 (1, 8)", "t1": "float32 (1, 8)", "y": "float32 (1, 8)"}
    found = match_plans(before, after, types_of(before), {**types_of(after), **behind})
    assert named(found, before, after) == (["Exp", "Relu", "Neg"], ["Sin", "Relu", "Neg"])


def test_equal_plans_may_work_on_other_sizes() -> None:
    before, after = chain("Exp Relu Neg"), chain("Exp Relu Neg")
    alike = types_of(before)
    assert find_other_work(before, after, alike, alike) is None
    assert find_other_work(before, after, alike, {**alike, "y": "float32 (1, 8)"}) == "Neg"
    assert find_other_work(before, after, {}, {}) is None


QKV = """g (float[1,4] x) => (float[1,4] y) {
    q = MatMul (x, wq)
    k = MatMul (x, wk)
    CHANGED
    s = Mul (q, k)
    y = Mul (s, v)
}"""


def test_query_and_key_are_not_taken_for_one_another() -> None:
    """Their weights count by shape alone, and so their products differ in nothing but a name."""
    weights = {name: np.ones((4, 4), np.float32) for name in ("wq", "wk", "wv")}
    before = make_plan(QKV.replace("CHANGED", "v = MatMul (x, wv)"), weights)
    after = make_plan(QKV.replace("CHANGED", "v0 = MatMul (x, wv)\nv = Neg (v0)"), weights)
    found = match_plans(before, after)
    assert [after.kernels[index].name for index in found.after] in (["v"], ["v0", "v"])
    names = {before.kernels[a].name: after.kernels[b].name for a, b in found.partners.items()}
    assert (names["q"], names["k"]) == ("q", "k")


_OPERATORS = st.lists(st.sampled_from(["Relu", "Neg", "Exp"]), min_size=1, max_size=8).map(" ".join)


@given(_OPERATORS, _OPERATORS, st.integers(0, 2**32))
def test_partners_are_one_to_one_and_nothing_is_lost(one: str, other: str, seed: int) -> None:
    before, after = chain(one), chain(other)
    types = (types_of(before), types_of(after)) if random.Random(seed).random() < 0.5 else ()
    found = match_plans(before, after, *types)
    assert sorted({*found.partners, *found.before}) == list(range(len(before.kernels)))
    assert sorted({*found.partners.values(), *found.after}) == list(range(len(after.kernels)))
    assert len(set(found.partners.values())) == len(found.partners)
    kinds = [(before.kinds[a], after.kinds[b]) for a, b in found.partners.items()]
    assert all(mine == its for mine, its in kinds)
