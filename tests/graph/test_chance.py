"""Which graphs compute more or less by chance."""

from __future__ import annotations

import pytest

from pytest_modelperf.graph.deciding_inputs import find_chance, find_random
from tests.support.graph_models import load

_BRANCHES = """<
    then_branch = a () => (float[4] p) { p = Relu (x) },
    else_branch = b () => (float[4] q) { q = Neg (x) }
>"""
CERTAIN = {
    "random values that are only added": """g (float[4] x) => (float[4] y) {
        r = RandomNormal <shape = [4]> ()
        y = Add (x, r)
    }""",
    "random values of a shape that data decides": """g (float[4] x) => (float[N] y) {
        i = NonZero (x)
        j = Squeeze (i)
        z = Gather (x, j)
        r = RandomNormal <shape = [1]> ()
        y = Add (z, r)
    }""",
    "as many random values as the graph says": """g (int64[1] unused) => (float[2] y, int64[2] i) {
        r = RandomNormal <shape = [4]> ()
        k = Constant <value_ints = [2]> ()
        y, i = TopK (r, k)
    }""",
    "a branch by an input": f"""g (bool c, float[4] x) => (float[4] z) {{
        r = RandomNormal <shape = [4]> ()
        y = If (c) {_BRANCHES}
        z = Add (y, r)
    }}""",
}
BY_CHANCE = {
    "a branch": f"""g (float[4] x) => (float[4] y) {{
        r = RandomUniform <shape = [1]> ()
        half = Constant <value_floats = [0.5]> ()
        c = Greater (r, half)
        y = If (c) {_BRANCHES}
    }}""",
    "a shape": """g (float[4] x) => (int64[1,N] y) {
        r = RandomUniform <shape = [4]> ()
        z = Add (x, r)
        y = NonZero (z)
    }""",
    "a trip count": """g (float[4] x) => (float[4] y) {
        r = RandomUniform <shape = [1], high = 9.0> ()
        n = Cast <to = 7> (r)
        c = Constant <value_ints = [1]> ()
        go = Cast <to = 9> (c)
        y = Loop (n, go, x) <body = b (int64 i, bool d, float[4] v) => (bool e, float[4] w) {
            e = Identity (d)
            w = Relu (v)
        }>
    }""",
    "the end of a loop": """g (int64 n, bool go, float[4] x) => (float[4] y) {
        y = Loop (n, go, x) <body = b (int64 i, bool d, float[4] v) => (bool e, float[4] w) {
            r = RandomUniform <shape = [1]> ()
            half = Constant <value_floats = [0.5]> ()
            e = Greater (r, half)
            w = Relu (v)
        }>
    }""",
    "a size": """g (float[4] x) => (float[N] y) {
        r = RandomUniform <shape = [1], high = 9.0> ()
        n = Cast <to = 7> (r)
        y = ConstantOfShape (n)
    }""",
}


@pytest.mark.parametrize("graph", CERTAIN.values(), ids=CERTAIN)
def test_random_values_that_decide_no_amount_leave_it_exact(graph: str) -> None:
    assert find_chance(load(graph).graph) is None


@pytest.mark.parametrize("graph", BY_CHANCE.values(), ids=BY_CHANCE)
def test_random_values_that_decide_an_amount_are_named(graph: str) -> None:
    assert find_chance(load(graph).graph) == "RandomUniform"


def test_random_tensors_are_those_that_are_computed_from_random_values() -> None:
    graph = f"""g (bool c, float[4] x) => (float[4] z, float[4] s) {{
        r = RandomNormal <shape = [4]> ()
        s = Sigmoid (x)
        x2 = Add (s, r)
        y = If (c) {_BRANCHES.replace("(x)", "(x2)")}
        z = Add (y, s)
    }}"""
    assert find_random(load(graph).graph) == {"r", "x2", "y", "z"}
