"""In a runnable copy each node has a name of its own, and the model computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from pytest_modelperf.errors import OutputError
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.copies import needs_copy, nodes_by_name, write_runnable
from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.model_file import open_model
from tests.support.graph_models import parse, random_floats

_BRANCHES = """g (bool c, float[N, 3] x) => (float[N, 3] y) {
    k = Constant <value = float {2}> ()
    h = Relu (x)
    y = If (c) <
        then_branch = t () => (u) { q = Sin (h)  u = Mul (q, k) },
        else_branch = e () => (v) { q = Cos (h)  v = Mul (q, k) }
    >
}"""


def _save(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _bind(path: Path, batch: int = 2) -> BoundModel:
    return load_model(open_model(path), Binding(batch))


def _names(graph: onnx.GraphProto) -> list[str]:
    names = []
    for node in graph.node:
        names.append(node.name)
        for attribute in node.attribute:
            names.extend(_names(attribute.g))
    return names


def _named(model: onnx.ModelProto) -> onnx.ModelProto:
    for index, node in enumerate(model.graph.node):
        node.name = f"n{index}"
    return model


def test_every_node_has_a_name_of_its_own_those_of_bodies_too(tmp_path: Path) -> None:
    source, target = _save(tmp_path, parse(_BRANCHES)), tmp_path / "copy.onnx"
    write_runnable(_bind(source), target)

    written = onnx.load(str(target))
    onnx.checker.check_model(written)
    names = [name for name in _names(written.graph) if name]
    assert names == ["h", "y", "q", "u", "q#2", "v"]


def test_names_that_are_there_and_unique_are_kept(tmp_path: Path) -> None:
    model = parse("g (float[2] x) => (y) { a = Relu (x)  b = Sin (a)  c = Cos (b)  y = Neg (c) }")
    for node, name in zip(model.graph.node, ["b", "", "b", 'say "y"\\'], strict=True):
        node.name = name
    write_runnable(_bind(_save(tmp_path, model)), tmp_path / "copy.onnx")

    # The second node would be called `b` after its output, which the first has as its name.
    assert _names(onnx.load(str(tmp_path / "copy.onnx")).graph) == ["b", "b#2", "c", "y"]


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        ("nothing", False),
        ("no name", True),
        ("the same name", True),
        ("a quote", True),
        ("a line break", True),
        ("a constant without a name", False),
    ],
)
def test_a_copy_is_needed_where_names_do_not_tell_nodes_apart(
    tmp_path: Path, change: str, *, needed: bool
) -> None:
    model = _named(
        parse(
            "g (float[2] x) => (y) "
            "{ k = Constant <value_float = 1.0> ()  a = Add (x, k)  y = Relu (a) }"
        )
    )
    names = {"no name": "", "the same name": "n2", "a quote": 'n"', "a line break": "n\n"}
    model.graph.node[1].name = names.get(change, "n1")
    if change == "a constant without a name":
        model.graph.node[0].name = ""
    assert needs_copy(_bind(_save(tmp_path, model))) is needed


def test_a_copy_is_needed_where_the_file_is_not_what_runs(tmp_path: Path) -> None:
    """Another batch than the file has, functions that are unfolded, or no file at all."""
    model = _named(parse("g (float[1, 4] x) => (float[1, 4] y) { y = Relu (x) }"))
    path = _save(tmp_path, model)
    assert not needs_copy(_bind(path, 1))
    assert needs_copy(_bind(path, 2))
    assert needs_copy(load_model(open_model(model)))

    node = onnx.helper.make_node("Add", ["a", "a"], ["r"], name="n")
    model.functions.append(
        onnx.helper.make_function("custom", "twice", ["a"], ["r"], [node], model.opset_import)
    )
    assert needs_copy(_bind(_save(tmp_path, model), 1))


def test_the_copy_knows_no_more_of_its_shapes_than_the_file(tmp_path: Path) -> None:
    """With a batch that is bound an engine would fold what it has to compute otherwise."""
    source = _save(tmp_path, parse(_BRANCHES))
    write_runnable(_bind(source), tmp_path / "copy.onnx")
    (plain, copy) = (onnx.load(str(p)).graph for p in (source, tmp_path / "copy.onnx"))
    assert list(copy.input) == list(plain.input)
    assert list(copy.output) == list(plain.output)


def test_a_model_with_functions_keeps_its_free_dimensions(tmp_path: Path) -> None:
    model = parse("g (float[N, 3] x) => (float[N, 3] y) { h = custom.twice (x)  y = Relu (h) }")
    node = onnx.helper.make_node("Add", ["a", "a"], ["r"])
    model.functions.append(
        onnx.helper.make_function("custom", "twice", ["a"], ["r"], [node], model.opset_import)
    )
    source = _save(tmp_path, model)
    write_runnable(_bind(source), tmp_path / "copy.onnx")
    copy = onnx.load(str(tmp_path / "copy.onnx"))

    assert copy.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert [node.op_type for node in copy.graph.node] == ["Add", "Relu"]
    assert not copy.functions


def test_the_copy_computes_the_same_with_the_same_weights(tmp_path: Path) -> None:
    model = parse(
        "g (float[N, 64] x) => (float[N, 64] y) { m = MatMul (x, w)  y = Relu (m) }",
        {"w": random_floats(64, 64)},
    )
    source = _save(tmp_path, model)
    write_runnable(_bind(source), tmp_path / "copy.onnx")

    x = random_floats(2, 64, seed=1)
    outputs = [
        ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for path in (source, tmp_path / "copy.onnx")
    ]
    np.testing.assert_array_equal(*outputs)
    assert onnx.load(str(tmp_path / "copy.onnx")).graph.initializer[0] == model.graph.initializer[0]


def test_another_batch_runs_in_the_copy(tmp_path: Path) -> None:
    model = parse(
        "g (float[1, 4, 6] x) => (float[1, 24] y) <int64[2] t = {1, 24}> { y = Reshape (x, t) }"
    )
    write_runnable(_bind(_save(tmp_path, model), 3), tmp_path / "copy.onnx")
    session = ort.InferenceSession(str(tmp_path / "copy.onnx"), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": random_floats(3, 4, 6)})
    np.testing.assert_array_equal(y, random_floats(3, 4, 6).reshape(3, 24))


def test_a_loop_runs_at_another_batch_in_the_copy(tmp_path: Path) -> None:
    model = parse(
        """g (float[1, 4] x) => (float[1, 4] y) <int64 n = {3}> {
            y = Loop(n, , x) <body = b (int64 i, bool go, float[1, 4] s)
                => (bool more, float[1, 4] t) { more = Identity(go)  t = Add(s, s) }>
        }"""
    )
    write_runnable(_bind(_save(tmp_path, model), 3), tmp_path / "copy.onnx")
    session = ort.InferenceSession(str(tmp_path / "copy.onnx"), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": random_floats(3, 4)})
    np.testing.assert_array_equal(y, 8 * random_floats(3, 4))


def test_weights_in_external_data_stay_where_they_are(tmp_path: Path) -> None:
    model = parse("g (float[2, 64] x) => (y) { y = MatMul (x, w) }", {"w": random_floats(64, 64)})
    (tmp_path / "in" / "sub").mkdir(parents=True)
    onnx.save(model, str(tmp_path / "in/m.onnx"), save_as_external_data=True, location="sub/w.bin")
    (tmp_path / "out").mkdir()
    write_runnable(_bind(tmp_path / "in/m.onnx"), tmp_path / "out/copy.onnx")

    assert [p.name for p in (tmp_path / "out").iterdir()] == ["copy.onnx"]
    copy = onnx.load(str(tmp_path / "out/copy.onnx"), load_external_data=False)
    assert {e.key: e.value for e in copy.graph.initializer[0].external_data}["location"] == (
        "sub/w.bin"
    )


def test_the_nodes_that_run_are_found_by_their_names_in_the_copy(tmp_path: Path) -> None:
    """`q` is the name of a tensor in both branches; the nodes have different names."""
    bound = _bind(_save(tmp_path, parse(_BRANCHES)))
    write_runnable(bound, tmp_path / "copy.onnx")
    by_name = nodes_by_name(bound)

    assert {name: (node.op_type, node.id) for name, node in by_name.items()} == {
        "h": ("Relu", "h"),
        "y": ("If", "y"),
        "q": ("Sin", "q"),
        "u": ("Mul", "u"),
        "q#2": ("Cos", "q"),
        "v": ("Mul", "v"),
    }
    assert set(by_name.values()) == set(bound.graph.walk())
    assert set(by_name) == set(filter(None, _names(onnx.load(str(tmp_path / "copy.onnx")).graph)))


def test_a_folder_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    bound = _bind(_save(tmp_path, parse(_BRANCHES)))
    with pytest.raises(OutputError, match=r"cannot write .*copy\.onnx"):
        write_runnable(bound, tmp_path / "nowhere" / "copy.onnx")
