"""A model that cannot be understood is refused with what is wrong and where; order does not matter."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import onnx
import pytest
from hypothesis import given, settings
from onnx import helper

from pytest_modelperf.errors import ModelError
from tests.graph.models import load, op_types, parse, shapes

_CHAIN = """g (float[2, 3] x) => (float[3, 2] y) {
    a = Relu (x)
    b = Transpose <perm = [1, 0]> (a)
    c = Sigmoid (b)
    y = Exp (c)
}"""


def _with_nodes(model: onnx.ModelProto, order: list[int]) -> onnx.ModelProto:
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes[i] for i in order)
    return model


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_nodes_in_any_order_are_put_into_the_order_they_run_in(order: list[int]) -> None:
    bound = load(_with_nodes(parse(_CHAIN), order))

    assert op_types(bound.graph.nodes) == ["Relu", "Transpose", "Sigmoid", "Exp"]
    assert shapes(bound, "a", "b", "c", "y") == [(2, 3), (3, 2), (3, 2), (3, 2)]


def test_an_order_that_is_right_is_kept() -> None:
    bound = load("""g (float[2] x) => (float[2] a, float[2] b, float[2] c) {
        c = Exp (x)
        a = Relu (x)
        b = Sigmoid (x)
    }""")

    assert op_types(bound.graph.nodes) == ["Exp", "Relu", "Sigmoid"]


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_any_order_gives_the_same_shapes(seed: int) -> None:
    text = """g (float[2, 6] x) => (float[2, 6] y) {
        s = Shape (x)
        h = Constant <value_ints = [3, 4]> ()
        r = Reshape (x, h)
        t = Transpose (r)
        u = Reshape (t, s)
        y = Add (x, u)
    }"""
    order = list(range(6))
    random.Random(seed).shuffle(order)  # noqa: S311  # an order, no secret
    plain, shuffled = load(text), load(_with_nodes(parse(text), order))

    assert {n: t.shape for n, t in shuffled.tensors.items()} == {
        n: t.shape for n, t in plain.tensors.items()
    }


def test_a_body_that_stands_before_what_it_captures_is_sorted_behind_it() -> None:
    bound = load("""g (bool cond, float[2] x) => (float[2] y) {
        y = If (cond) <
            then_branch = t () => (float[2] a) { a = Relu (outer) },
            else_branch = e () => (float[2] b) { b = Exp (outer) }
        >
        outer = Sigmoid (x)
    }""")

    assert op_types(bound.graph.nodes) == ["Sigmoid", "If"]


def test_nodes_of_a_body_are_sorted_too() -> None:
    bound = load("""g (bool cond, float[2] x) => (float[2] y) {
        y = If (cond) <
            then_branch = t () => (float[2] a) { a = Relu (b)  b = Exp (x) },
            else_branch = e () => (float[2] c) { c = Exp (x) }
        >
    }""")

    assert op_types(bound.graph.nodes[0].bodies["then_branch"].nodes) == ["Exp", "Relu"]


def test_the_nodes_of_a_cycle_are_named() -> None:
    with pytest.raises(ModelError, match=r"cycle.*Add 'first'.*Relu 'second'"):
        load("""g (float[2] x) => (float[2] y) {
            [first] a = Add (x, b)
            [second] b = Relu (a)
            y = Exp (b)
        }""")


def test_a_node_that_takes_its_own_output_is_a_cycle() -> None:
    with pytest.raises(ModelError, match="cycle.*'y'"):
        load("g (float[2] x) => (float[2] y) { y = Add (x, y) }")


def test_a_tensor_that_two_nodes_make_is_refused_with_both() -> None:
    with pytest.raises(ModelError, match=r"makes the tensor 'y' twice.*Relu 'one'.*Exp 'two'"):
        load("g (float[2] x) => (float[2] y) { [one] y = Relu (x)  [two] y = Exp (x) }")


def test_a_node_that_makes_a_tensor_twice_is_refused() -> None:
    with pytest.raises(ModelError, match="makes the tensor 'a' twice"):
        load("g (float[2] x) => (float[1] a) { a, a = Split <num_outputs = 2> (x) }")


def test_a_tensor_that_nothing_makes_is_refused_with_who_takes_it() -> None:
    with pytest.raises(ModelError, match=r"takes the tensor 'w' in MatMul 'mm'.*nothing makes it"):
        load("g (float[2] x) => (float y) { [mm] y = MatMul (x, w) }")


def test_a_body_that_takes_a_tensor_that_nothing_makes_is_refused() -> None:
    with pytest.raises(ModelError, match=r"takes the tensor 'w'.*nothing makes it"):
        load("""g (bool cond, float[2] x) => (float[2] y) {
            y = If (cond) <
                then_branch = t () => (float[2] a) { a = Add (x, w) },
                else_branch = e () => (float[2] b) { b = Relu (x) }
            >
        }""")


def test_an_output_that_nothing_makes_is_refused() -> None:
    with pytest.raises(ModelError, match=r"gives out the tensor 'z', but nothing makes it"):
        load("g (float[2] x) => (float[2] y, float[2] z) { y = Relu (x) }")


def test_an_input_and_a_weight_may_be_outputs() -> None:
    bound = load("g (float[2] x) => (float[2] x, float[2] w) <float[2] w = {1, 2}> { }")

    assert [t.shape for t in bound.graph.outputs] == [(2,), (2,)]


def test_a_model_of_a_newer_operator_set_says_what_to_install() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }", opset=18)
    model.opset_import[0].version = onnx.defs.onnx_opset_version() + 1

    with pytest.raises(ModelError, match=r"opset \d+; onnx .*pip install --upgrade onnx"):
        load(model)


@pytest.mark.parametrize("version", [0, -3])
@pytest.mark.parametrize("domain", ["", "custom"])
def test_a_version_that_cannot_be_is_refused(domain: str, version: int) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    for entry in model.opset_import:
        if entry.domain == domain:
            entry.version = version

    with pytest.raises(ModelError, match="The file is damaged"):
        load(model)


def test_a_domain_without_a_version_is_refused() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = nowhere.Relu (x) }")

    with pytest.raises(ModelError, match="'nowhere'.*which version"):
        load(model)


def test_operators_without_any_operator_set_are_refused() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    del model.opset_import[:]

    with pytest.raises(ModelError, match="'ai.onnx'.*which version"):
        load(model)


def test_the_domain_may_be_spelled_out() -> None:
    model = parse("g (float[2, 3] x) => (float[3, 2] y) { y = Transpose (x) }")
    model.opset_import[0].domain = "ai.onnx"
    model.graph.node[0].domain = "ai.onnx"
    del model.graph.output[0].type.tensor_type.shape.dim[:]

    bound = load(model)

    assert bound.graph.nodes[0].qualified_op == "Transpose"
    assert shapes(bound, "y") == [(3, 2)]


def test_an_unknown_operator_is_no_reason_to_refuse_a_model() -> None:
    bound = load("g (float[2] x) => (float[2, 5] y) { a = custom.Magic (x)  y = NoSuchOp (a) }")

    assert op_types(bound.graph.nodes) == ["Magic", "NoSuchOp"]
    assert shapes(bound, "a", "y") == [None, (2, 5)]


def test_shapes_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ModelError, match="do not fit together"):
        load("""g (float[2, 3] x) => (float y) <float[4, 5] w = {0,0,0,0,0,0,0,0,0,0,
            0,0,0,0,0,0,0,0,0,0}> { y = MatMul (x, w) }""")


def test_a_local_function_that_calls_itself_is_refused() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = custom.f (x) }")
    loop = helper.make_node("f", ["a"], ["b"], domain="custom")
    model.functions.append(
        helper.make_function("custom", "f", ["a"], ["b"], [loop], model.opset_import)
    )

    with pytest.raises(ModelError, match="local function 'f' that calls itself"):
        load(model)


def test_control_flow_deeper_than_any_real_model_is_refused_or_read() -> None:
    for depth, fits in ((10, True), (40, False)):
        if fits:
            bound = load(nested(depth))
            assert op_types(bound.graph.walk())[-1] == "Relu"  # type: ignore[arg-type]  # any iterable
        else:
            with pytest.raises(ModelError, match="nest"):
                load(nested(depth))


def nested(depth: int) -> onnx.ModelProto:
    """An If in an If in an If, with a Relu in the innermost."""
    model = parse("g (bool c, float[2] x) => (float[2] y) { y = Relu (x) }")
    node = model.graph.node[0]
    for level in range(depth):
        outer = helper.make_node("If", ["c"], [f"y{level}"])
        for name in ("then_branch", "else_branch"):
            attribute = outer.attribute.add(name=name, type=onnx.AttributeProto.GRAPH)
            attribute.g.name = f"{name}{level}"
            inner = attribute.g.node.add()
            if name == "then_branch" or level == 0:
                inner.CopyFrom(node)
            else:
                inner.CopyFrom(helper.make_node("Exp", ["x"], [f"e{level}"]))
            attribute.g.output.add(name=inner.output[0])
        node = outer
    del model.graph.node[:]
    model.graph.node.append(node)
    model.graph.output[0].name = node.output[0]
    return model
