"""Two plans of an engine beside each other."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from pytest_modelperf.graph.kernels import find_plan_difference
from tests.support.graph_models import parse

PLAN = """g (float[1,4] x) => (float[1,4] y) {
    h = MatMul (x, w)
    y = Relu (h)
}"""


def plan(graph: str = PLAN, value: float = 1.0, size: int = 4) -> bytes:
    weights = {"w": np.full((4, size), value, np.float32)}
    return bytes(parse(graph, weights).SerializeToString())


def test_a_plan_is_the_same_whatever_the_weights_are_and_tensors_are_called() -> None:
    renamed = PLAN.replace("h", "reorder_token_7")
    assert find_plan_difference(plan(), plan(value=2.0)) is None
    assert find_plan_difference(plan(), plan(renamed)) is None


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (PLAN.replace("Relu", "Neg"), "step 2 is a Relu here and a Neg there"),
        (PLAN.replace("Relu (h)", "Relu (x)"), "step 2, a Relu, works on other tensors"),
        (
            PLAN.replace("y = Relu (h)", "y = Relu (h)\n z = Neg (y)"),
            "there are 2 steps here and 3",
        ),
        (PLAN.replace("MatMul (x, w)", "Gemm (x, w)"), "step 1 is a MatMul here and a Gemm there"),
    ],
)
def test_where_two_plans_part_is_said(other: str, difference: str) -> None:
    assert (find_plan_difference(plan(), plan(other)) or "").startswith(difference)


def test_weights_of_another_shape_make_another_plan() -> None:
    wide = PLAN.replace("float[1,4] y", "float[1,8] y")
    found = find_plan_difference(plan(), plan(wide, size=8))
    assert found == "step 1, a MatMul, works on other tensors or in another way"


def test_an_attribute_that_differs_makes_another_plan() -> None:
    first, second = (PLAN.replace("Relu (h)", f"Softmax <axis = {axis}> (h)") for axis in (0, 1))
    found = find_plan_difference(plan(first), plan(second))
    assert found == "step 2, a Softmax, works on other tensors or in another way"


def test_the_bodies_of_a_plan_count() -> None:
    def branching(op: str) -> bytes:
        graph = f"""g (bool c, float[4] x) => (float[4] y) {{
            y = If (c) <
                then_branch = a () => (float[4] p) {{ p = {op} (x) }},
                else_branch = b () => (float[4] q) {{ q = Neg (x) }}
            >
        }}"""
        model: onnx.ModelProto = parse(graph)
        return bytes(model.SerializeToString())

    assert find_plan_difference(branching("Relu"), branching("Relu")) is None
    assert find_plan_difference(branching("Relu"), branching("Abs")) is not None
