"""The table of the inputs that decide how long an operator takes, against all known operators."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

import onnx
import pytest
from msgspec import Struct
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from pytest_modelperf.graph.deciding_inputs import deciding_inputs, find_chance, find_random
from tests.support.graph_models import load

# These are unknown on purpose: they hide what they run.
_HIDING = frozenset({
    "BeamSearch", "EPContext", "Gradient", "GreedySearch", "Sampling", "Snpe", "WhisperBeamSearch",
})  # fmt: skip
_RUNTIME = tuple(map(int, version("onnxruntime").split(".")[:2]))


class _Operator(Struct, frozen=True):
    domain: str
    name: str
    since: int
    inputs: int

    def __str__(self) -> str:
        return f"{self.domain}:{self.name}-{self.since}"


def _known() -> Iterator[_Operator]:
    schemas = [*onnx.defs.get_all_schemas_with_history(), *runtime.get_all_operator_schema()]
    for schema in schemas:
        yield _Operator(schema.domain, schema.name, schema.since_version, len(schema.inputs))


def test_every_operator_of_onnx_and_the_runtime_has_an_entry() -> None:
    missing = {
        str(each)
        for each in _known()
        if deciding_inputs(each.name, each.domain) is None and each.name not in _HIDING
    }
    assert missing == set()


@pytest.mark.skipif(_RUNTIME < (1, 32), reason="the operators of an older runtime lack inputs")
def test_every_place_is_an_input_of_the_newest_version() -> None:
    newest: dict[tuple[str, str], _Operator] = {}
    for each in _known():
        known = newest.setdefault((each.domain, each.name), each)
        if each.since > known.since:
            newest[each.domain, each.name] = each
    beyond = {
        str(each)
        for each in newest.values()
        if max(deciding_inputs(each.name, each.domain) or (-1,)) >= each.inputs
    }
    assert beyond == set()


@pytest.mark.parametrize("domain", ["com.example", "ai.onnx.contrib", "com.microsoft"])
def test_nothing_is_known_of_an_operator_that_is_not_listed(domain: str) -> None:
    assert deciding_inputs("Mine", domain) is None


def test_onnx_has_two_names() -> None:
    assert deciding_inputs("Resize", "ai.onnx") == deciding_inputs("Resize", "") == (1, 2, 3)


def test_only_a_scan_of_opset_8_is_given_lengths() -> None:
    assert deciding_inputs("Scan", "", opset=8) == (0,)
    assert deciding_inputs("Scan", "", opset=9) == deciding_inputs("Scan", "") == ()


def test_the_numbers_of_a_max_pool_decide_only_if_it_returns_their_places() -> None:
    assert deciding_inputs("MaxPool", "") == ()
    assert deciding_inputs("MaxPool", "", outputs=2) == (0,)


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
    "random values counted by the graph": """g (int64[1] unused) => (float[2] y, int64[2] i) {
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
