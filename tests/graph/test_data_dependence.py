"""Which graphs do work that depends on the values in them."""

from __future__ import annotations

import pytest

from pytest_modelperf.graph.data_dependence import CONTROL_FLOW, find_data_dependence
from tests.support.graph_models import load

_LOOP = """g (float[4] x, bool begins, int64[1] start) => (int64[1] y) {{
    limit = Constant <value_floats = [3.0]> ()
    five = Constant <value_ints = [5]> ()
    y = Loop (, begins, {0}) <
        body = b (int64 i, bool c, int64[1] n) => (bool more, int64[1] next) {{
            number = Cast <to = 1> (n)
            now = Sqrt (number)
            {1}
            {2}
        }}
    >
}}"""
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
    "If": """g (float[4] x) => (float[4] y) {
        sum = ReduceSum <keepdims = 0> (x)
        zero = Constant <value_float = 0.0> ()
        c = Greater (sum, zero)
        y = If (c) <
            then_branch = a () => (float[4] p) { p = Relu (x) },
            else_branch = b () => (float[4] q) { q = Neg (x) }
        >
    }""",
    "Loop": _LOOP.format("start", "next = Mul (n, n)", "more = Less (now, limit)"),
}
# What decides is found through bodies: by a value that is carried to the next trip, by one that is
# computed around a body, and by one that comes out of it.
THROUGH_BODIES = {
    "Loop": _LOOP.format("start", "next = ArgMax <axis = 0> (now)", "more = Less (n, five)"),
    "Gather": """g (float[3,4] x, float[5,4] t) => (float[3,4] y) {
        z = Relu (x)
        i = ArgMax <axis = 0> (z)
        y = Scan <num_scan_inputs = 1, body = b (float[4] step) => (float[4] row) {
            rows = Gather (t, i)
            sums = ReduceSum <keepdims = 0> (rows)
            row = Add (step, sums)
        }> (x)
    }""",
    "NonZero": """g (bool c, float[4] x) => (int64[1,N] y) {
        i = If (c) <
            then_branch = a () => (int64[1] p) { p = ArgMax <axis = 0> (x) },
            else_branch = b () => (int64[1] q) { q = ArgMin <axis = 0> (x) }
        >
        y = NonZero (i)
    }""",
}


@pytest.mark.parametrize("graph", STATIC.values(), ids=STATIC)
def test_work_that_follows_from_shapes_and_inputs_does_not_depend_on_data(graph: str) -> None:
    assert find_data_dependence(load(graph).graph) is None


@pytest.mark.parametrize(("op", "graph"), BY_DATA.items(), ids=BY_DATA)
def test_work_that_depends_on_data_is_named(op: str, graph: str) -> None:
    assert find_data_dependence(load(graph).graph) == op


@pytest.mark.parametrize(("op", "graph"), THROUGH_BODIES.items(), ids=THROUGH_BODIES)
def test_data_is_followed_through_bodies(op: str, graph: str) -> None:
    assert find_data_dependence(load(graph).graph) == op


@pytest.mark.parametrize("op", ["If", "Loop", "Gather"])
def test_control_flow_can_be_left_apart_and_nothing_beside_it(op: str) -> None:
    graph = load(BY_DATA[op]).graph
    found = find_data_dependence(graph, apart_from=CONTROL_FLOW)
    assert found == (None if op in CONTROL_FLOW else op)


def test_a_scan_of_opset_8_is_given_the_lengths_of_its_sequences() -> None:
    scan = """g (float[2,4] s, float[2,3,4] x) => (float[2,4] y) {
        y = Scan <num_scan_inputs = 1, body = b (float[4] state, float[4] step) => (float[4] next) {
            next = Add (state, step)
        }> (, s, x)
    }"""
    assert find_data_dependence(load(scan, opset=8).graph) == "Scan"


def test_a_loop_whose_damaged_body_has_no_outputs_is_no_error() -> None:
    loop = """g (float[4] x, bool c) => (float[4] y) {
        y = Loop (, c, x) <body = b (int64 i, bool d, float[4] n) => () { now = Relu (n) }>
    }"""
    assert find_data_dependence(load(loop).graph) is None
