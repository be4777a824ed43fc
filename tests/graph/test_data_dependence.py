"""Which graphs do work that depends on the values in them."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_modelperf.graph.data_dependence import DataDependence, find_data_dependence
from tests.support.graph_models import load, parse

# More numbers than a setting has.
_TRAINED = "Constant <value_floats = [" + ", ".join(f"0.{n}" for n in range(16)) + "]> ()"
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
    "a condition that is an input": """g (bool c, float[4] x) => (float[4] y) {
        y = If (c) <
            then_branch = a () => (float[4] p) { p = Relu (x) },
            else_branch = b () => (float[4] q) { q = Neg (x) }
        >
    }""",
    "a recurrence over the steps of a sequence": """g (float[4] s, float[N,4] x) => (float[4] y) {
        y = Scan <num_scan_inputs = 1, body = b (float[4] state, float[4] step) => (float[4] next) {
            next = Add (state, step)
        }> (s, x)
    }""",
    "a loop that counts to a size": """g (float[N,4] x) => (float[4] y) {
        shape = Shape (x)
        zero = Constant <value_int = 0> ()
        size = Gather (shape, zero)
        begins = Less (zero, size)
        start = Constant <value_floats = [0.0, 0.0, 0.0, 0.0]> ()
        last, y = Loop (, begins, zero, start) <
            body = b (int64 i, bool c, int64 n, float[4] sum)
                => (bool more, int64 next, float[4] now) {
                one = Constant <value_int = 1> ()
                next = Add (n, one)
                left = Cast <to = 1> (next)
                right = Cast <to = 1> (size)
                more = Less (left, right)
                row = Gather (x, n)
                now = Add (sum, row)
            }
        >
    }""",
    "the largest of what is given": """g (float[16] x) => (float[2] y, int64[1,N] z) {
        k = Constant <value_ints = [2]> ()
        y, i = TopK (x, k)
        z = NonZero (x)
    }""",
    "a size by a factor": """g (float[1,1,4,4] x) => (float[1,1,M,N] y) {
        shape = Shape (x)
        numbers = Cast <to = 1> (shape)
        factors = Constant <value_floats = [1.0, 1.0, 2.5, 2.5]> ()
        products = Mul (numbers, factors)
        sizes = Cast <to = 7> (products)
        y = Resize (x, , , sizes)
    }""",
    "a grid that is stored": """g (float[1,1,4,4] x) => (float[1,1,2,4] y) {
        w = WEIGHTS
        shape = Constant <value_ints = [1, 2, 4, 2]> ()
        grid = Reshape (w, shape)
        y = GridSample (x, grid)
    }""".replace("WEIGHTS", _TRAINED),
    "no index at all": "g (float[4] x) => (float[4] y) { y = Relu (x) }",
}
BY_DATA = {
    "NonZero": """g (float[16] x) => (int64[1,N] y) { z = Mul (x, w) y = NonZero (z) }""",
    "TopK": """g (float[16] x) => (float[2] y) {
        k = Constant <value_ints = [2]> ()
        z = Mul (x, w)
        y, i = TopK (z, k)
    }""",
    "Gather": """g (float[16] x) => (float[1] y) {
        z = Mul (x, w)
        i = ArgMax <axis = 0> (z)
        y = Gather <axis = 0> (x, i)
    }""",
    "GridSample": """g (float[1,1,4,4] x, float[1,2,4,2] grid) => (float[1,1,2,4] y) {
        shape = Constant <value_ints = [1, 2, 4, 2]> ()
        shift = Reshape (w, shape)
        moved = Add (grid, shift)
        y = GridSample (x, moved)
    }""",
    "If": """g (float[16] x) => (float[16] y) {
        z = Mul (x, w)
        sum = ReduceSum <keepdims = 0> (z)
        zero = Constant <value_float = 0.0> ()
        c = Greater (sum, zero)
        y = If (c) <
            then_branch = a () => (float[16] p) { p = Relu (x) },
            else_branch = b () => (float[16] q) { q = Neg (x) }
        >
    }""",
    "Loop": """g (float[16] x, bool begins) => (float[16] y) {
        y = Loop (, begins, x) <
            body = b (int64 i, bool c, float[16] n) => (bool more, float[16] next) {
                next = Mul (n, w)
                sum = ReduceSum <keepdims = 0> (next)
                one = Constant <value_float = 1.0> ()
                more = Less (sum, one)
            }
        >
    }""",
    "Compress": """g (float[16] x) => (float[N] y) {
        random = RandomUniformLike (x)
        half = Constant <value_float = 0.5> ()
        kept = Less (random, half)
        y = Compress (x, kept)
    }""",
}  # fmt: skip
# The deciding value is found through bodies: if it is carried to the next iteration, if it is
# computed around a body, and if it comes out of one.
THROUGH_BODIES = {
    "Tile": """g (float[16] x, bool begins, int64[1] start) => (float[N] y) {
        five = Constant <value_int = 5> ()
        last = Loop (five, begins, start) <
            body = b (int64 i, bool c, int64[1] n) => (bool c2, int64[1] next) {
                c2 = Identity (c)
                number = Cast <to = 1> (n)
                z = Mul (number, w)
                next = ArgMax <axis = 0> (z)
            }
        >
        y = Tile (x, last)
    }""",
    "Gather": """g (float[3,4] x, float[16] t) => (float[3,4] y) {
        z = Mul (t, w)
        i = ArgMax <axis = 0> (z)
        y = Scan <num_scan_inputs = 1, body = b (float[4] step) => (float[4] row) {
            rows = Gather (t, i)
            sums = ReduceSum <keepdims = 0> (rows)
            row = Add (step, sums)
        }> (x)
    }""",
    "NonZero": """g (bool c, float[16] x) => (int64[1,N] y) {
        i = If (c) <
            then_branch = a () => (int64[1] p) { z = Mul (x, w) p = ArgMax <axis = 0> (z) },
            else_branch = b () => (int64[1] q) { q = ArgMin <axis = 0> (x) }
        >
        y = NonZero (i)
    }""",
}
_DEPENDENT = [*BY_DATA.items(), *THROUGH_BODIES.items()]


def _with_weights(graph: str) -> str:
    return graph.replace("{", f"{{ w = {_TRAINED} ", 1)


@pytest.mark.parametrize("graph", STATIC.values(), ids=STATIC)
def test_work_that_follows_from_shapes_and_inputs_does_not_depend_on_data(graph: str) -> None:
    assert find_data_dependence(load(graph).graph) is None


@pytest.mark.parametrize(
    ("op", "graph"), _DEPENDENT, ids=[*BY_DATA, *(f"{op} through bodies" for op in THROUGH_BODIES)]
)
def test_work_that_depends_on_data_is_named(op: str, graph: str) -> None:
    model = load(_with_weights(graph))
    assert find_data_dependence(model.graph) == DataDependence(op)


@pytest.mark.parametrize("op", ["If", "Loop", "Gather"])
def test_a_run_shows_control_flow_and_nothing_else(op: str) -> None:
    graph = load(_with_weights(BY_DATA[op])).graph
    found = find_data_dependence(graph, after_run=True)
    assert found == (DataDependence(op) if op == "Gather" else None)


def test_a_run_does_not_show_which_of_two_branches_with_the_same_operators_ran() -> None:
    alike = BY_DATA["If"].replace("Neg (x)", "Relu (x)")
    graph = load(_with_weights(alike)).graph
    assert find_data_dependence(graph, after_run=True) == DataDependence("If")


def test_a_scan_of_opset_8_is_given_the_lengths_of_its_sequences() -> None:
    scan = """g (int64[2] n, float[2,4] s, float[2,3,4] x) => (float[2,4] y) {
        y = Scan <num_scan_inputs = 1, body = b (float[4] state, float[4] step) => (float[4] next) {
            next = Add (state, step)
        }> (n, s, x)
    }"""
    graph = load(scan, opset=8).graph
    assert find_data_dependence(graph) is None
    assert find_data_dependence(graph, inputs_are_data=True) == DataDependence("Scan")


def test_the_body_of_a_scan_of_opset_8_is_given_what_follows_the_lengths() -> None:
    scan = """g (float[1,16,4] x) => (float[1,16] y) {
        moved = ReduceSum <axes = [2], keepdims = 1> (x)
        v = Mul (moved, w)
        y = Scan <num_scan_inputs = 2, body = b (float[4] a, float[1] q) => (float r) {
            t = Cast <to = 7> (q)
            u = Tile (a, t)
            r = ReduceSum <keepdims = 0> (u)
        }> (, x, v)
    }"""
    model = parse(scan, {"w": np.ones((1, 16, 1), np.float32)}, opset=8)
    assert find_data_dependence(load(model).graph) == DataDependence("Tile")


def test_an_operator_of_which_nothing_is_known_is_named() -> None:
    graph = load("g (float[4] x) => (float[4] y) { y = custom.Mine (x) }").graph
    found = find_data_dependence(graph)
    assert found == DataDependence("Mine", is_unknown=True)
    assert str(found) == "it is unknown what the time of Mine depends on"


def test_a_loop_whose_damaged_body_has_no_outputs_causes_no_error() -> None:
    loop = """g (float[4] x, bool c) => (float[4] y) {
        y = Loop (, c, x) <body = b (int64 i, bool d, float[4] n) => () { now = Relu (n) }>
    }"""
    assert find_data_dependence(load(loop).graph) is None
