"""The plan of an engine, and its matching to another one."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from pytest_modelperf.graph.data_dependence import DataDependence
from pytest_modelperf.graph.plans.plan import (
    EnginePlan,
    Matching,
    WeightFacts,
    find_other_work,
    find_plan_difference,
    match_plans,
)
from tests.graph.plans.plan_models import Weights, make_plan, plan_of
from tests.support.graph_models import parse

PLAN = """g (float[1,4] x) => (float[1,4] y) {
    h = MatMul (x, w)
    y = Relu (h)
}"""
# Three branches that do not wait for each other.
BRANCHES = """g (float[1,4] x) => (float[1,12] y) {
    a = Relu (x)
    b = Neg (x)
    c = Abs (x)
    aa = Exp (a)
    bb = Exp (b)
    y = Concat <axis = 1> (aa, bb, c)
}"""


def plan(graph: str = PLAN, value: float = 1.0, size: int = 4) -> EnginePlan:
    return make_plan(graph, {"w": np.full((4, size), value, np.float32)})


def digest(graph: str, weights: Weights) -> str:
    return make_plan(graph, weights).digest.value


def test_a_plan_is_the_same_whatever_the_weights_are_and_tensors_are_called() -> None:
    renamed = PLAN.replace("h", "reorder_token_7")
    assert plan().digest == plan(value=2.0).digest == plan(renamed).digest
    assert find_plan_difference(plan(), plan(renamed)) is None


def test_the_names_of_tensors_that_are_stored_do_not_count() -> None:
    """The tensor of an attribute, and a number that is not stored as bytes."""
    graph = """g (float[4] x, int64[1] s) => (float[4] y) {
        c = ConstantOfShape <value = float[1] {0.5}> (s)
        y = Clip (x, low, c)
    }"""
    plans = []
    for name, value in (("", 0.25), ("low_of_another", 0.25), ("", 0.75)):
        model = parse(graph.replace("low", name or "low"))
        model.graph.node[0].attribute[0].t.name = name
        model.graph.initializer.append(
            helper.make_tensor(name or "low", onnx.TensorProto.FLOAT, [], [value])
        )
        assert not model.graph.initializer[0].raw_data
        plans.append(plan_of(model))
    plain, named, other = plans
    assert plain.digest == named.digest
    assert find_plan_difference(plain, other) is not None


@given(st.integers(0, 2**32))
def test_the_order_in_which_kernels_are_listed_and_their_names_do_not_count(seed: int) -> None:
    model = parse(BRANCHES)
    shuffled = _in_another_order(model, random.Random(seed))
    assert plan_of(shuffled).digest == plan_of(model).digest
    assert sorted(plan_of(shuffled).backward) == sorted(plan_of(model).backward)


def _in_another_order(model: onnx.ModelProto, choose: random.Random) -> onnx.ModelProto:
    """The same graph, its nodes in another order in which they can run, its tensors renamed."""
    shuffled = onnx.ModelProto()
    shuffled.CopyFrom(model)
    waiting, known = list(model.graph.node), {"x"}
    del shuffled.graph.node[:]
    while waiting:
        ready = [node for node in waiting if set(node.input) <= known]
        node = choose.choice(ready)
        waiting.remove(node)
        known |= set(node.output)
        shuffled.graph.node.append(node)
    for node in shuffled.graph.node:
        node.input[:] = [name if name == "x" else f"{name}_1" for name in node.input]
        node.output[:] = [f"{name}_1" for name in node.output]
    shuffled.graph.output[0].name = "y_1"
    return shuffled


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (PLAN.replace("Relu", "Neg"), "it runs 1 Neg more, 1 Relu less"),
        (PLAN.replace("Relu (h)", "Relu (x)"), "its Relu 'y' works on other tensors"),
        (PLAN.replace("y = Relu (h)", "y = Relu (h)\n z = Neg (y)"), "it runs 1 Neg more"),
        (PLAN.replace("(float[1,4] x)", "(float[2,4] x)"), "its MatMul 'h' works on other"),
        (PLAN.replace("(float[1,4] y)", "(float[1,4] y, float[1,4] h)"), "it returns other"),
    ],
)
def test_the_place_at_which_two_plans_differ_is_named(other: str, difference: str) -> None:
    assert (find_plan_difference(plan(), plan(other)) or "").startswith(difference)


def test_many_other_operators_are_not_all_named() -> None:
    other = PLAN.replace("y = Relu (h)", "a=Abs(h)\nb=Neg(a)\nc=Exp(b)\ny=Log(c)")
    assert find_plan_difference(plan(), plan(other)) == (
        "it runs 1 Abs more, 1 Exp more, 1 Log more and 2 others"
    )


def test_weights_of_another_shape_make_another_plan() -> None:
    wide = PLAN.replace("float[1,4] y", "float[1,8] y")
    found = find_plan_difference(plan(), plan(wide, size=8))
    assert found == "a weight of its MatMul 'h' has other values or sizes"


def test_an_attribute_that_differs_makes_another_plan() -> None:
    first, second = (PLAN.replace("Relu (h)", f"Softmax <axis = {axis}> (h)") for axis in (0, 1))
    assert find_plan_difference(plan(first), plan(second)) is not None


def branching(op: str, outer: str = "x") -> EnginePlan:
    graph = f"""g (bool c, float[4] x) => (float[4] y) {{
        z = Neg (x)
        y = If (c) <
            then_branch = a () => (float[4] p) {{ p = {op} ({outer}) }},
            else_branch = b () => (float[4] q) {{ q = Neg (x) }}
        >
    }}"""
    return make_plan(graph)


def test_the_bodies_of_a_plan_count() -> None:
    assert branching("Relu").digest == branching("Relu").digest
    assert branching("Relu").digest != branching("Abs").digest


def test_the_tensors_that_a_body_reads_from_outside_are_inputs_of_its_kernel() -> None:
    kernel = branching("Relu", "z").kernels[1]
    assert kernel.inputs == ("c", "z", "x")
    assert branching("Relu", "z").digest != branching("Relu").digest


POWER = "g (float[4] x) => (float[4] y) { y = Pow (x, w) }"
TIMES = POWER.replace("Pow", "Mul")
SHAPED = "g (float[4] x) => (float[2,2] y) { y = Reshape (x, w) }"
# Its kernel is a plain Gather, which reads 8 bits as it reads floats.
LOOKED_UP = "g (int64[4] x) => (uint8[4,768] y) { y = Gather (w, x) }"
PRODUCT = "g (float[1,16] x) => (float[1,16] y) { h = MatMul (x, v) y = Mul (h, w) }"
# A sine of large numbers takes longer than one of small numbers.
SINE = "g (float[1,4] x) => (float[1,4] y) { h = Mul (x, w) y = Sin (h) }"


def number(value: float) -> Weights:
    return {"w": np.array(value, np.float32)}


def vector(value: float) -> Weights:
    return {"w": np.array([value], np.float32)}


def factor(value: float) -> Weights:
    return {**vector(value), "v": np.ones((16, 16), np.float32)}


# A graph, two values of its weights, and whether they make one plan.
VALUES: dict[str, tuple[str, Weights, Weights, bool]] = {
    "an exponent": (POWER, number(2.0), number(3.0), False),
    "a factor": (TIMES, number(2.0), number(3.0), True),
    "a term": (POWER.replace("Pow", "Add"), number(2.0), number(3.0), True),
    "zero": (TIMES, number(2.0), number(0.0), False),
    "a subnormal number": (TIMES, number(2.0), number(1e-42), False),
    "infinity": (TIMES, number(2.0), number(float("inf")), False),
    "what is not a number": (TIMES, number(2.0), number(float("nan")), False),
    "integers": (SHAPED, {"w": np.array([2, 2])}, {"w": np.array([4, 1])}, False),
    "a quantized table":
        (LOOKED_UP, {"w": np.ones((2, 768), np.uint8)}, {"w": np.zeros((2, 768), np.uint8)}, True),
    "a factor of a product": (PRODUCT, factor(0.125), factor(8.0), True),
    "a factor of a product, far apart": (PRODUCT, factor(2e-6), factor(9e6), True),
    "a factor of a product and zero": (PRODUCT, factor(0.125), factor(0.0), False),
    "a factor of a product and a tiny one": (PRODUCT, factor(0.125), factor(1e-20), False),
    "a factor of a product and a huge one": (PRODUCT, factor(0.125), factor(1e20), False),
    "a subnormal and a tiny factor": (PRODUCT, factor(1e-40), factor(1e-20), False),
    "two tiny factors": (PRODUCT, factor(2e-20), factor(3e-20), True),
    "a factor of what no training found": (SINE, vector(1.0), vector(1e5), False),
}  # fmt: skip


@pytest.mark.parametrize(("graph", "one", "other", "is_same"), VALUES.values(), ids=VALUES)
def test_a_value_counts_if_it_changes_the_work(
    graph: str, one: Weights, other: Weights, *, is_same: bool
) -> None:
    assert (digest(graph, one) == digest(graph, other)) is is_same


def test_the_numbers_of_a_quantized_operator_do_not_count_but_for_zeros() -> None:
    graph = """g (uint8[4] x) => (float[4] y) { y = DequantizeLinear (x, scale, zero) }"""

    def of(scale: float, zero: int) -> str:
        zero_point = np.array(zero, np.uint8)
        return digest(graph, {"scale": np.array(scale, np.float32), "zero": zero_point})

    assert of(0.1, 3) == of(0.2, 7)
    assert of(0.1, 3) != of(0.1, 0)


TWO = """g (float[1,64] x) => (float[1,64] y) {
    h = MatMul (x, v)
    y = MatMul (h, w)
}"""


def two(first: WeightFacts, second: WeightFacts) -> EnginePlan:
    weights = {name: np.zeros((64, 64), np.float32) for name in "vw"}
    return make_plan(TWO, weights, {"v": first, "w": second})


def test_equal_weights_are_part_of_a_plan() -> None:
    equal = two(WeightFacts(b"a"), WeightFacts(b"a"))
    different = two(WeightFacts(b"a"), WeightFacts(b"b"))
    retrained = two(WeightFacts(b"c"), WeightFacts(b"d"))
    assert different.digest == retrained.digest
    assert find_plan_difference(equal, different) == (
        "other weights equal one another, which an engine packs only once"
    )


def test_a_share_of_subnormal_numbers_is_part_of_a_plan() -> None:
    usual, stray, many = (
        two(WeightFacts(b"a", share), WeightFacts(b"b")) for share in (0.0, 1e-8, 0.2)
    )
    assert usual.digest == stray.digest
    assert find_plan_difference(usual, many) == (
        "a weight of its MatMul 'h' has another share of subnormal numbers"
    )


_IMAGE = "(float[1,1,4,4] x) => (float[1,1,M,N] y)"
# Graphs, and two values of the weight `v` by which they do other work.
SETTINGS: dict[str, tuple[str, list[float], list[float]]] = {
    "factors of a size": (f"g {_IMAGE} {{ y = Resize (x, , v) }}", [1, 1, 2, 2], [1, 1, 4, 4]),
    "one factor of a size": (
        """g (float[1,1,4,4] x) => (float[N] y) {
            zero = Constant <value_float = 0.0> ()
            one = Constant <value_float = 1.0> ()
            size = ReduceSum <keepdims = 0> (x)
            product = Mul (size, v)
            y = Range (zero, product, one)
        }""",
        [2], [200],
    ),
    "regions": (
        """g (float[1,1,4,4] x) => (float[N,1,1,1] y) {
            batch = Constant <value_ints = [0, 0, 0]> ()
            y = RoiAlign (x, v, batch)
        }""",
        [0, 0, 1, 1] * 3, [0, 0, 3, 3] * 3,
    ),
    "a grid": (
        "g (float[1,1,4,4] x) => (float[1,1,2,4] y) { y = GridSample (x, v) }",
        [0.0, 0.5, 1.0, 0.25] * 8, [1.0, 0.5, 0.25, 0.0] * 8,
    ),
    "a mask beyond 64 KiB": (
        "g (float[100000] x) => (float[N] y) { y = Compress (x, v) }", [1.0, *[0.0] * 99_999],
        [1.0] * 100_000,
    ),
    "a size in the branch of an If": (
        """g (bool c, float[1,1,4,4] x) => (float[1,1,M,N] y) {
            y = If (c) <
                then_branch = a () => (float[1,1,M,N] p) { p = Resize (x, , v) },
                else_branch = b () => (float[1,1,M,N] q) { q = Identity (x) }
            >
        }""",
        [1, 1, 2, 2], [1, 1, 4, 4],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_values_that_decide_how_long_a_kernel_takes_count(name: str) -> None:
    graph, first, second = SETTINGS[name]
    kind = np.bool_ if "mask" in name else np.float32
    before, same, after = (
        make_plan(graph, {"v": np.array(values, kind)}) for values in (first, first, second)
    )
    assert before.find_data() is after.find_data() is None
    assert before.digest == same.digest != after.digest


def test_places_that_are_stored_as_a_sparse_tensor_count() -> None:
    digests = []
    for places in ([0, 5], [0, 7]):
        model = parse("g (float[9] x) => (float[9] y) { y = Gather (x, v) }")
        values = helper.make_tensor("v", onnx.TensorProto.INT64, [2], [3, 4])
        indices = helper.make_tensor("", onnx.TensorProto.INT64, [2], places)
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [9]))
        digests.append(plan_of(model).digest)
    assert digests[0] != digests[1]


def test_values_that_decide_together_with_trained_ones_are_data() -> None:
    graph = """g (float[1,16] x) => (float[1,2] y) {
        k = Constant <value_ints = [2]> ()
        h = Mul (x, w)
        y, i = TopK (h, k)
    }"""
    first, second = (
        make_plan(graph, {"w": np.full(16, value, np.float32)}) for value in (1.0, 2.0)
    )
    assert first.find_data() == DataDependence("TopK")
    assert first.digest == second.digest


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
    """As sets of digests all kernels would have an equal."""
    before, after = changed(chain("Relu Neg " * 4), chain("Relu Neg " * 5))
    assert (before, sorted(after)) == ([], ["Neg", "Relu"])


def types_of(plan: EnginePlan) -> Mapping[str, str]:
    """Each tensor of these plans has one type and shape."""
    tensors = [name for kernel in plan.kernels for name in (*kernel.inputs, *kernel.outputs)]
    return dict.fromkeys(tensors, "float32 (1, 4)")


def test_the_kernels_between_two_changes_are_equal_if_types_are_known() -> None:
    before, after = chain("Exp Relu Neg Abs Exp"), chain("Sin Relu Neg Abs Sin")
    assert changed(before, after)[0] == ["Exp", "Relu", "Neg", "Abs", "Exp"]
    found = match_plans(before, after, types_of(before), types_of(after))
    assert named(found, before, after) == (["Exp", "Exp"], ["Sin", "Sin"])


def test_kernels_on_tensors_of_other_types_are_not_partners() -> None:
    before, after = chain("Exp Relu Exp"), chain("Sin Relu Sin")
    other = dict.fromkeys(types_of(after), "float64 (1, 4)")
    found = match_plans(before, after, types_of(before), other)
    assert len(found.before) == len(found.after) == 3


def test_kernels_behind_a_size_that_changed_are_not_partners() -> None:
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


def test_query_and_key_are_not_confused() -> None:
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
