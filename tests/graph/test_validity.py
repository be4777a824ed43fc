"""A model that cannot be understood is refused with the fault and its place, in any order."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import onnx
import pytest
from hypothesis import given, settings
from onnx import helper

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.counting.count import profile_graph
from tests.support.graph_models import load, op_types, parse, shapes, zeros

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


ORDERS: dict[str, tuple[str, list[str]]] = {
    "one that is right": ("c = Exp (x)  a = Relu (x)  b = Sigmoid (x)", ["Exp", "Relu", "Sigmoid"]),
    "that of the file, of nodes that may run in any":
        ("c = Exp (d)  a = Relu (x)  b = Sigmoid (x)  d = Tanh (x)",
         ["Relu", "Sigmoid", "Tanh", "Exp"]),
    "a body behind what it captures":
        ("""a = If (c0) <then_branch = t () => (float[2] p) { p = Relu (b) },
                        else_branch = e () => (float[2] q) { q = Exp (b) }>
            b = Sigmoid (x)  c = Exp (x)""",
         ["Sigmoid", "If", "Exp"]),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "order"), ORDERS.values(), ids=ORDERS)
def test_an_order_is_kept_or_made(nodes: str, order: list[str]) -> None:
    text = f"g (bool c0, float[2] x) => (float[2] a, float[2] b, float[2] c) {{ {nodes} }}"
    assert op_types(load(text).graph.nodes) == order


@given(st.integers(0, 2**32))
@settings(max_examples=30)
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
    random.Random(seed).shuffle(order)
    plain, shuffled = load(text), load(_with_nodes(parse(text), order))

    assert {n: t.shape for n, t in shuffled.tensors.items()} == {
        n: t.shape for n, t in plain.tensors.items()
    }


def test_nodes_of_a_body_are_sorted_too() -> None:
    bound = load("""g (bool cond, float[2] x) => (float[2] y) {
        y = If (cond) <
            then_branch = t () => (float[2] a) { a = Relu (b)  b = Exp (x) },
            else_branch = e () => (float[2] c) { c = Exp (x) }
        >
    }""")
    assert op_types(bound.graph.nodes[0].bodies["then_branch"].nodes) == ["Exp", "Relu"]


REFUSED: dict[str, tuple[str, str]] = {
    "a cycle, whose nodes are named":
        ("[first] a = Add (x, b)  [second] b = Relu (a)  y = Exp (b)",
         r"cycle.*Add 'first'.*Relu 'second'"),
    "a node that takes its own output": ("y = Add (x, y)", r"cycle.*'y'"),
    "a tensor that two nodes make":
        ("[one] y = Relu (x)  [two] y = Exp (x)",
         r"makes the tensor 'y' twice.*Relu 'one'.*Exp 'two'"),
    "a node that makes a tensor twice":
        ("y, y = Split <num_outputs = 2> (x)", "makes the tensor 'y' twice"),
    "a tensor that no node makes":
        ("[mm] y = MatMul (x, w)", r"takes the tensor 'w' in MatMul 'mm'.*no node makes it"),
    "a tensor of a body that no node makes":
        ("""y = If (c) <then_branch = t () => (float[2] a) { a = Add (x, w) },
                        else_branch = e () => (float[2] b) { b = Relu (x) }>""",
         r"takes the tensor 'w'.*no node makes it"),
    "a node with more inputs than one before it":
        ("[one] z = Relu (x)  [two] y = Relu (x, z)", "Relu 'two' with 2 inputs; it takes 1"),
    "a node with more outputs than one before it":
        ("[one] z = Relu (x)  [two] y, more = Relu (z)", "Relu 'two' for 2 outputs; it has 1"),
    "an attribute of another type":
        ('y = Transpose <perm = "no"> (x)', "with an attribute 'perm' of another type than it has"),
    "an output that no node makes": ("z = Relu (x)", r"has the output 'y', but no node makes it"),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "message"), REFUSED.values(), ids=REFUSED)
def test_a_graph_is_refused_with_what_is_wrong(nodes: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(f"g (bool c, float[2] x) => (y) {{ {nodes} }}")


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


@pytest.mark.parametrize("domain", ["nowhere", "ai.onnx"])
def test_a_domain_without_a_version_is_refused(domain: str) -> None:
    model = parse(f"g (float[2] x) => (float[2] y) {{ y = {domain}.Relu (x) }}")
    del model.opset_import[:]
    with pytest.raises(ModelError, match=rf"'{domain}'.*which version"):
        load(model)


@pytest.mark.parametrize("call", ["com.microsoft.Gelu", "ai.onnx.ml.Binarizer"])
def test_a_domain_that_engines_have_unasked_needs_no_version(call: str) -> None:
    model = parse(f"g (float[2, 3] x) => (y) {{ y = {call} (x) }}", opset=17)
    del model.opset_import[1:]
    assert shapes(load(model), "y") == [(2, 3)]


def test_a_local_function_may_use_a_domain_that_engines_have_unasked() -> None:
    model = parse(
        """g (float[2, 3] x) => (y) { y = local.f (x) }
        <domain: "local", opset_import: ["" : 17]>
        f (a) => (b) { b = com.microsoft.Gelu (a) }""",
        opset=17,
    )
    del model.opset_import[1:]
    model.opset_import.add(domain="local", version=1)
    assert shapes(load(model), "y") == [(2, 3)]


def test_the_domain_may_be_spelled_out() -> None:
    model = parse("g (float[2, 3] x) => (float[3, 2] y) { y = Transpose (x) }")
    model.opset_import[0].domain = "ai.onnx"
    model.graph.node[0].domain = "ai.onnx"
    del model.graph.output[0].type.tensor_type.shape.dim[:]

    bound = load(model)

    assert bound.graph.nodes[0].qualified_op == "Transpose"
    assert shapes(bound, "y") == [(3, 2)]


def test_a_model_is_not_refused_for_an_unknown_operator() -> None:
    bound = load("g (float[2] x) => (float[2, 5] y) { a = custom.Magic (x)  y = NoSuchOp (a) }")
    assert op_types(bound.graph.nodes) == ["Magic", "NoSuchOp"]
    assert [each.op_type for each in profile_graph(bound.graph).uncounted] == ["Magic", "NoSuchOp"]
    assert shapes(bound, "a", "y") == [None, (2, 5)]


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2, 3] x, float[4, 5] w) => (float[2, 5] y) { [odd] y = MatMul (x, w) }",
        "g (float[2, 3] x, float[2, 4] w) => (float[2, 4] y) { [odd] y = Add (x, w) }",
        "g (float[2, 3] x, float[4] w) => (y) { [odd] y = Concat <axis = 0> (x, w) }",
    ],
)
def test_shapes_that_do_not_fit_together_are_refused(text: str) -> None:
    """Declarations do not matter: counts from such shapes would be of a model that cannot run."""
    with pytest.raises(ModelError, match=r"do not fit together.*odd"):
        load(text)


def test_a_binding_that_the_weights_do_not_allow_is_refused() -> None:
    model = parse(
        "g (float[N, seq, 8] x) => (y) { [position] y = Add (x, table) }", {"table": zeros(64, 8)}
    )
    assert shapes(load(model, Binding(2, {"seq": 64})), "y") == [(2, 64, 8)]
    with pytest.raises(ModelError, match=r"do not fit together.*position"):
        load(model, Binding(2, {"seq": 100}))


_IN_A_BODY = """y = If (c) <
    then_branch = t () => (p) { p = custom.f (x) },
    else_branch = e () => (q) { q = Relu (x) }
>"""


@pytest.mark.parametrize("inside", ["y = custom.f (x)", _IN_A_BODY])
@pytest.mark.parametrize("outside", ["y = custom.f (x)", _IN_A_BODY])
def test_a_local_function_that_calls_itself_is_refused(outside: str, inside: str) -> None:
    model = parse(f"g (bool c, float[2] x) => (y) {{ {outside} }}")
    nodes = parse(f"g (bool c, float[2] x) => (y) {{ {inside} }}").graph.node
    model.functions.append(
        helper.make_function("custom", "f", ["x"], ["y"], nodes, model.opset_import)
    )
    with pytest.raises(ModelError, match="local function 'f' that calls itself"):
        load(model)


def test_a_function_may_call_another_one_of_its_name() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = custom.f (x) }")
    call = helper.make_node("f", ["a"], ["b"], domain="custom", overload="other")
    for overload, node in (("", call), ("other", helper.make_node("Relu", ["a"], ["b"]))):
        model.functions.append(
            helper.make_function(
                "custom", "f", ["a"], ["b"], [node], model.opset_import, overload=overload
            )
        )
    assert op_types(load(model).graph.nodes) == ["Relu"]


@pytest.mark.parametrize("depth", [1, 10, 25])
def test_nested_control_flow_is_read(depth: int) -> None:
    model = onnx.ModelProto.FromString(nested_bytes(depth))
    assert op_types([*load(model).graph.walk()]) == [*["If"] * depth, *["Relu"] * (depth + 1)]


@pytest.mark.parametrize("depth", [40, 400])
def test_control_flow_deeper_than_any_real_model_is_refused(depth: int) -> None:
    with pytest.raises(ModelError, match=r"nest|not a valid protobuf"):
        open_model(nested_bytes(depth))


def nested_bytes(depth: int) -> bytes:
    """An If in an If in an If, with a Relu in each; protobuf itself would not build a deep one."""
    model = parse("g (bool c, float[2] x) => (float[2] y) { y = Relu (x) }")
    node = model.graph.node.pop().SerializeToString()
    leaf = node
    for level in range(depth):
        plain = onnx.NodeProto(name=f"if{level}", op_type="If", input=["c"], output=["y"])
        taken, other = _branch("then_branch", node), _branch("else_branch", leaf)
        node = plain.SerializeToString() + _field(5, taken) + _field(5, other)
    graph = model.graph.SerializeToString() + _field(1, node)
    model.ClearField("graph")
    return model.SerializeToString() + _field(7, graph)


def _branch(name: str, node: bytes) -> bytes:
    body = _field(1, node) + _field(2, name.encode()) + _field(12, _field(1, b"y"))
    attribute = onnx.AttributeProto(name=name, type=onnx.AttributeProto.GRAPH)
    return attribute.SerializeToString() + _field(6, body)


def _field(number: int, content: bytes) -> bytes:
    size, encoded = len(content), bytearray()
    while size >= 0x80:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *encoded, size]) + content
