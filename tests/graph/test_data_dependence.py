"""Which graphs do work that depends on the values in them."""

from __future__ import annotations

import pytest

from pytest_modelperf.graph.data_dependence import find_data_dependence
from tests.support.graph_models import load

STATIC = {
    "an index that is an input": """g (float[8,4] t, int64[3] i) => (float[3,4] y) {
        y = Gather <axis = 0> (t, i)
    }""",
    "an index that follows from an input": """g (float[8,4] t, int64[3] i) => (float[3,4] y) {
        two = Constant <value_ints = [2]> ()
        j = Mod (i, two)
        y = Gather <axis = 0> (t, j)
    }""",
    "an index that is a shape": """g (float[N,4] x) => (int64[1] y) {
        s = Shape (x)
        zero = Constant <value_ints = [0]> ()
        y = Gather <axis = 0> (s, zero)
    }""",
    "no index at all": "g (float[4] x) => (float[4] y) { y = Relu (x) }",
}
BY_DATA = {
    "NonZero": "g (float[4] x) => (int64[1,N] y) { y = NonZero (x) }",
    "TopK": """g (float[4] x) => (float[2] y) {
        k = Constant <value_ints = [2]> ()
        y, i = TopK (x, k)
    }""",
    "Gather": """g (float[8,4] x) => (float[4,4] y) {
        z = Relu (x)
        i = ArgMax <axis = 0, keepdims = 0> (z)
        y = Gather <axis = 0> (x, i)
    }""",
    "If": """g (bool c, float[4] x) => (float[4] y) {
        y = If (c) <
            then_branch = a () => (float[4] p) { p = Relu (x) },
            else_branch = b () => (float[4] q) { q = Neg (x) }
        >
    }""",
}


@pytest.mark.parametrize("graph", STATIC.values(), ids=STATIC)
def test_work_that_follows_from_shapes_and_inputs_does_not_depend_on_data(graph: str) -> None:
    assert find_data_dependence(load(graph).graph) is None


@pytest.mark.parametrize(("op", "graph"), BY_DATA.items(), ids=BY_DATA)
def test_work_that_depends_on_data_is_named(op: str, graph: str) -> None:
    assert find_data_dependence(load(graph).graph) == op
