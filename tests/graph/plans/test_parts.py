"""Changes are cut out of two plans with their neighbours, and run by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from inline_snapshot import snapshot
from onnx.reference import ReferenceEvaluator

from pytest_modelperf.graph.plans.parts import (
    Part,
    PartSide,
    Unit,
    cold_share,
    describe_change,
    find_parts,
    find_units,
    kernels_of,
    make_side,
    write_numbered,
    write_part,
    write_watched,
)
from pytest_modelperf.graph.plans.plan import EnginePlan, match_plans
from tests.graph.plans.plan_models import make_plan, plan_of
from tests.graph.plans.test_plan import chain, types_of
from tests.support.graph_models import parse

Floats: TypeAlias = npt.NDArray[np.float32]


def parts_of(before: EnginePlan, after: EnginePlan) -> tuple[Part, ...]:
    return find_parts(before, after, match_plans(before, after))


def names(plan: EnginePlan, side: PartSide) -> list[str]:
    return [plan.kernels[index].op_type for index in side.kernels]


def test_a_part_has_what_changed_and_its_neighbours_on_both_sides() -> None:
    before, after = chain("Relu Neg Exp Abs Tanh"), chain("Relu Neg Sin Cos Abs Tanh")
    (part,) = parts_of(before, after)
    assert names(before, part.before) == ["Neg", "Exp", "Abs"]
    assert names(after, part.after) == ["Neg", "Sin", "Cos", "Abs"]
    assert (part.before.inputs, part.before.outputs) == (("t0",), ("t3",))
    assert part.text == "1 Exp became 2 kernels (Sin, Cos)"


def test_added_kernels_have_the_same_neighbours_before() -> None:
    before, after = chain("Relu Neg Abs Tanh"), chain("Relu Neg Sin Abs Tanh")
    (part,) = parts_of(before, after)
    assert names(before, part.before) == ["Neg", "Abs"]
    assert names(after, part.after) == ["Neg", "Sin", "Abs"]
    assert part.text == "1 Sin added"


def test_weights_and_large_tensors_have_left_the_caches() -> None:
    graph = "g (float[8] x) => (float[8] y) {{ a = Neg (x) y = {} (a, w) }}"
    weights = {"w": np.ones(1 << 16, np.float32)}
    plans = make_plan(graph.format("Mul"), weights), make_plan(graph.format("Add"), weights)
    (part,) = parts_of(*plans)

    def share(kibibytes: int) -> float:
        sizes = {"a": kibibytes << 10, "y": kibibytes << 10}
        return cold_share(plans, part, (sizes, sizes))

    weight = 256
    assert share(1) == pytest.approx(weight / (weight + 2), abs=0.001)
    assert share(512) == pytest.approx((weight + 512) / (weight + 1024))
    assert share(2048) == 1.0


def test_a_tensor_of_unknown_size_is_taken_to_have_left_the_caches() -> None:
    before, after = chain("Relu Neg Abs"), chain("Relu Exp Abs")
    (part,) = parts_of(before, after)
    sizes = {"t0": 4}, {"t0": 4}
    assert cold_share((before, after), part, sizes) == 1.0


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("Conv", "Conv", "1 Conv changed"),
        ("", "ReorderInput ReorderOutput ReorderOutput",
         "another layout: 3 kernels (2 ReorderOutput, ReorderInput) added"),
        ("Conv", "Conv ReorderOutput", "another layout around 1 Conv: 1 ReorderOutput added"),
        ("Conv ReorderInput", "Conv", "another layout around 1 Conv: 1 ReorderInput removed"),
        ("Conv", "Conv ReorderOutput Max", "1 Conv became 3 kernels (Conv, ReorderOutput, Max)"),
    ],
)  # fmt: skip
def test_a_part_is_described_by_what_became_of_its_kernels(old: str, new: str, text: str) -> None:
    assert describe_change(Counter(old.split()), Counter(new.split())) == text


def test_separate_changes_are_separate_parts() -> None:
    graph = """g (float[4] x, float[4] z) => (float[4] y, float[4] w) {
        a = Neg (x)  b = OP (a)  y = Abs (b)
        c = Neg (z)  d = OP (c)  w = Tanh (d)
    }"""
    before, after = (make_plan(graph.replace("OP", op)) for op in ("Exp", "Sin"))
    found = parts_of(before, after)
    assert [part.text for part in found] == ["1 Exp became 1 Sin"] * 2
    assert {name for part in found for name in part.before.inputs} == {"x", "z"}


def test_a_large_neighbour_stays_out_of_a_part() -> None:
    before, after = chain("Relu Neg Exp Abs Tanh"), chain("Relu Neg Sin Abs Tanh")
    times = {0: 100, 1: 800, 2: 50, 3: 50, 4: 100}
    (part,) = find_parts(before, after, match_plans(before, after), (times, times))
    assert names(before, part.before) == ["Exp", "Abs"]
    assert names(after, part.after) == ["Sin", "Abs"]
    assert (part.before.inputs, part.before.outputs) == (("t1",), ("t3",))


def test_a_neighbour_that_became_large_stays_out_on_both_sides() -> None:
    before, after = chain("Relu Neg Exp Abs Tanh"), chain("Relu Neg Sin Abs Tanh")
    usual = dict.fromkeys(range(5), 10)
    found = find_parts(before, after, match_plans(before, after), (usual, {**usual, 3: 900}))
    assert [names(before, part.before) for part in found] == [["Exp"]]
    assert [names(after, part.after) for part in found] == [["Sin"]]


def test_changes_without_the_kernels_between_them_are_separate_parts() -> None:
    """New kernels are in the places of removed ones."""
    before, after = chain("Relu Exp Neg Exp Abs"), chain("Relu Sin Neg Sin Abs")
    heavy = {0: 500, 1: 1, 2: 500, 3: 1, 4: 500}
    matching = match_plans(before, after, types_of(before), types_of(after))
    found = find_parts(before, after, matching, (heavy, heavy))
    assert [part.text for part in found] == ["1 Exp became 1 Sin"] * 2
    assert sorted(part.before.changed for part in found) == [(1,), (3,)]
    assert [part.before.changed for part in found] == [part.after.changed for part in found]


def test_all_neighbours_stay_if_the_parts_are_small() -> None:
    before, after = chain("Relu Neg Exp Abs Tanh"), chain("Relu Neg Sin Abs Tanh")
    times = {0: 1000, 1: 10, 2: 10, 3: 10, 4: 1000}
    (part,) = find_parts(before, after, match_plans(before, after), (times, times))
    assert names(before, part.before) == ["Neg", "Exp", "Abs"]


def test_a_side_that_has_nothing_left_runs_nothing(tmp_path: Path) -> None:
    before, after = chain("Relu Abs"), chain("Relu Sin Abs")
    heavy = {0: 500, 1: 500}
    matching = match_plans(before, after)
    (part,) = find_parts(before, after, matching, (heavy, {0: 500, 1: 1, 2: 500}))
    assert (part.before.kernels, part.before.inputs) == ((), ())
    assert names(after, part.after) == ["Sin"]
    write_part(before, part.before, {}, tmp_path / "part.onnx")
    assert run(tmp_path / "part.onnx", {}, ["still nothing"]) == [np.zeros(1, np.float32)]


def test_the_words_of_a_part_name_its_most_frequent_operators() -> None:
    before, after = chain("Relu Exp Abs"), chain("Relu Sin Cos Sin Tan Sinh Cosh Neg Abs")
    (part,) = parts_of(before, after)
    assert part.text == snapshot("1 Exp became 7 kernels (2 Sin, Cos, Tan, Sinh, ...)")


GRAPH = """g (float[1,4] x) => (float[1,4] y) {
    h = MatMul (x, w)
    p = OP (h)
    s = MatMul (p, w)
    y = Add (s, x)
}"""


def run(path: Path, feeds: Mapping[str, Floats], outputs: Sequence[str]) -> list[Floats]:
    found: Any = ReferenceEvaluator(onnx.load(path)).run(list(outputs), dict(feeds))
    return list(found)


def test_a_part_computes_what_it_computes_in_its_plan(tmp_path: Path) -> None:
    weights = {"w": np.arange(16, dtype=np.float32).reshape(4, 4) / 16}
    before, after = (make_plan(GRAPH.replace("OP", op), weights) for op in ("Exp", "Tanh"))
    (part,) = parts_of(before, after)
    feed = {"x": np.array([[1, -2, 3, -4]], np.float32)}
    for plan, side in ((before, part.before), (after, part.after)):
        write_watched(plan, [*side.inputs, *side.outputs], tmp_path / "watched.onnx")
        wanted = [name for name in (*side.inputs, *side.outputs) if name != "x"]
        known = {
            **feed,
            **dict(zip(wanted, run(tmp_path / "watched.onnx", feed, wanted), strict=True)),
        }
        write_part(
            plan, side, dict.fromkeys(side.inputs, ("float32", (1, 4))), tmp_path / "part.onnx"
        )
        inside = run(
            tmp_path / "part.onnx", {name: known[name] for name in side.inputs}, side.outputs
        )
        for name, value in zip(side.outputs, inside, strict=True):
            np.testing.assert_allclose(value, known[name], rtol=1e-6)


def test_a_body_that_reads_from_outside_makes_that_an_input_of_its_part() -> None:
    graph = """g (bool c, float[4] x) => (float[4] y) {
        z = Neg (x)
        a = Abs (x)
        y = If (c) <
            then_branch = p () => (float[4] q) { q = OP (z) },
            else_branch = r () => (float[4] s) { s = Neg (a) }
        >
    }"""
    before, after = (make_plan(graph.replace("OP", op)) for op in ("Exp", "Sin"))
    (part,) = parts_of(before, after)
    assert names(before, part.before) == ["Neg", "Abs", "If"]
    assert set(part.before.inputs) == {"c", "x"}


def test_a_part_keeps_the_sparse_weights_that_it_reads(tmp_path: Path) -> None:
    plans = []
    for op in ("Exp", "Tanh"):
        model = parse(GRAPH.replace("OP", op).replace("(p, w)", "(p, v)"))
        for name in ("w", "v"):
            values = onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [1], [2.0])
            places = onnx.helper.make_tensor("", onnx.TensorProto.INT64, [1], [5])
            sparse = onnx.helper.make_sparse_tensor(values, places, [4, 4])
            model.graph.sparse_initializer.append(sparse)
        plans.append(plan_of(model))
    before, after = plans
    (part,) = parts_of(before, after)
    assert part.before.inputs == part.after.inputs == ("x",)

    side = make_side(before, [1, 2], [1])
    write_part(before, side, {"h": ("float32", (1, 4))}, tmp_path / "part.onnx")
    kept = onnx.load(tmp_path / "part.onnx").graph
    assert [sparse.values.name for sparse in kept.sparse_initializer] == ["v"]
    assert [value.name for value in kept.input] == ["h"]


def test_kernels_are_named_by_their_numbers(tmp_path: Path) -> None:
    write_numbered(chain("Relu Neg Exp"), tmp_path / "numbered.onnx")
    assert [n.name for n in onnx.load(tmp_path / "numbered.onnx").graph.node] == ["0", "1", "2"]


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


def changed_units(before: str, after: str) -> list[tuple[list[str], list[str]]]:
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


def chain_with(step: str) -> str:
    return CHAIN.replace("b = CHANGED", step)


def test_each_kernel_is_in_one_unit() -> None:
    (old, new), units = units_of(chain_with("b = Abs (a)"), chain_with("d = Exp (a)\n b = Neg (d)"))
    assert kernels_of(units, 0) == tuple(range(len(old.kernels)))
    assert kernels_of(units, 1) == tuple(range(len(new.kernels)))


def test_plans_that_are_the_same_have_pairs_of_partners_alone() -> None:
    _, units = units_of(chain_with("b = Abs (a)"), chain_with("b = Abs (a)"))
    assert units == tuple(Unit((k,), (k,), is_changed=False) for k in range(4))


def test_one_kernel_that_became_several_is_one_unit() -> None:
    found = changed_units(
        chain_with("b = Abs (a)"), chain_with("d = Exp (a)\n e = Neg (d)\n b = Add (e, d)")
    )
    assert found == [(["Abs"], ["Exp", "Neg", "Add"])]


def test_a_kernel_between_new_ones_is_a_unit_of_its_own() -> None:
    found = changed_units(
        chain_with("d = Gemm (a, w)\n b = Abs (d)"),
        chain_with("e = Exp (a)\n d = Gemm <alpha = 2.0> (e, w)\n f = Neg (d)\n b = Abs (f)"),
    )
    assert ([], ["Exp"]) in found
    assert (["Gemm"], ["Gemm"]) in found
    assert ([], ["Neg"]) in found


def test_each_kernel_that_came_is_a_unit() -> None:
    found = changed_units(
        chain_with("b = Abs (a)"), chain_with("d = Exp (a)\n e = Neg (d)\n b = Abs (e)")
    )
    assert found == [([], ["Exp"]), ([], ["Neg"])]
