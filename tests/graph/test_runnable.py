"""In a runnable copy each node has a name of its own, and the model computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from pytest_modelperf.errors import OutputError
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.copies import needs_copy, nodes_by_name, write_annotated, write_runnable
from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.model_file import open_model
from tests.support.graph_models import parse, random_floats, save_model

_BRANCHES = """g (bool c, float[N, 3] x) => (float[N, 3] y) {
    k = Constant <value = float {2}> ()
    h = Relu (x)
    y = If (c) <
        then_branch = t () => (u) { q = Sin (h)  u = Mul (q, k) },
        else_branch = e () => (v) { q = Cos (h)  v = Mul (q, k) }
    >
}"""


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


def test_every_node_has_a_name_of_its_own_by_which_it_is_found(tmp_path: Path) -> None:
    """`q` is the name of a tensor in both branches; the nodes have different names."""
    source, target = save_model(tmp_path, parse(_BRANCHES)), tmp_path / "copy.onnx"
    bound = _bind(source)
    write_runnable(bound, target)
    plain, copy = onnx.load(str(source)).graph, onnx.load(str(target))
    onnx.checker.check_model(copy)
    names = [name for name in _names(copy.graph) if name]
    by_name = nodes_by_name(bound)

    assert names == ["h", "y", "q", "u", "q#2", "v"]
    assert {name: (node.op_type, node.id) for name, node in by_name.items()} == {
        "h": ("Relu", "h"), "y": ("If", "y"), "q": ("Sin", "q"), "u": ("Mul", "u"),
        "q#2": ("Cos", "q"), "v": ("Mul", "v"),
    }  # fmt: skip
    assert set(by_name.values()) == set(bound.graph.walk())
    # With a batch that is bound an engine would fold what it has to compute otherwise.
    assert (list(copy.graph.input), list(copy.graph.output)) == (
        list(plain.input), list(plain.output),
    )  # fmt: skip


def test_names_that_are_there_and_unique_are_kept(tmp_path: Path) -> None:
    model = parse("g (float[2] x) => (y) { a = Relu (x)  b = Sin (a)  c = Cos (b)  y = Neg (c) }")
    for node, name in zip(model.graph.node, ["b", "", "b", 'say "y"\\'], strict=True):
        node.name = name
    write_runnable(_bind(save_model(tmp_path, model)), tmp_path / "copy.onnx")

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
def test_a_copy_is_needed_if_nodes_share_names(
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
    assert needs_copy(_bind(save_model(tmp_path, model))) is needed


def test_a_copy_is_needed_if_the_file_is_not_what_runs(tmp_path: Path) -> None:
    """Another batch than the file has, functions that are unfolded, or no file at all."""
    model = _named(parse("g (float[1, 4] x) => (float[1, 4] y) { y = Relu (x) }"))
    path = save_model(tmp_path, model)
    assert not needs_copy(_bind(path, 1))
    assert needs_copy(_bind(path, 2))
    assert needs_copy(load_model(open_model(model)))

    node = onnx.helper.make_node("Add", ["a", "a"], ["r"], name="n")
    model.functions.append(
        onnx.helper.make_function("custom", "twice", ["a"], ["r"], [node], model.opset_import)
    )
    assert needs_copy(_bind(save_model(tmp_path, model), 1))


def test_a_model_with_functions_keeps_its_free_dimensions(tmp_path: Path) -> None:
    model = parse("g (float[N, 3] x) => (float[N, 3] y) { h = custom.twice (x)  y = Relu (h) }")
    node = onnx.helper.make_node("Add", ["a", "a"], ["r"])
    model.functions.append(
        onnx.helper.make_function("custom", "twice", ["a"], ["r"], [node], model.opset_import)
    )
    source = save_model(tmp_path, model)
    write_runnable(_bind(source), tmp_path / "copy.onnx")
    copy = onnx.load(str(tmp_path / "copy.onnx"))

    assert copy.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert [node.op_type for node in copy.graph.node] == ["Add", "Relu"]
    assert not copy.functions


def _run(path: Path, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def test_the_copy_computes_the_same_with_the_same_weights(tmp_path: Path) -> None:
    model = parse(
        "g (float[N, 64] x) => (float[N, 64] y) { m = MatMul (x, w)  y = Relu (m) }",
        {"w": random_floats(64, 64)},
    )
    source, copy = save_model(tmp_path, model), tmp_path / "copy.onnx"
    write_runnable(_bind(source), copy)
    x = random_floats(2, 64, seed=1)
    np.testing.assert_array_equal(_run(source, x), _run(copy, x))
    assert onnx.load(str(copy)).graph.initializer[0] == model.graph.initializer[0]


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        (
            """g (float[1, 2, 4] x) => (float[1, 8] y) <int64[2] t = {1, 8}> {
                y = Reshape (x, t)
            }""",
            1,
        ),
        (
            """g (float[1, 2, 4] x) => (float[1, 2, 4] y) <int64 n = {3}> {
                y = Loop(n, , x) <body = b (int64 i, bool go, float[1, 2, 4] s)
                    => (bool more, float[1, 2, 4] t) { more = Identity(go)  t = Add(s, s) }>
            }""",
            8,
        ),
    ],
    ids=["a reshape", "a loop"],
)
def test_another_batch_runs_in_the_copy(tmp_path: Path, text: str, factor: int) -> None:
    write_runnable(_bind(save_model(tmp_path, parse(text)), 3), tmp_path / "copy.onnx")
    x = random_floats(3, 2, 4)
    y = _run(tmp_path / "copy.onnx", x)
    np.testing.assert_array_equal(y, factor * x.reshape(y.shape))
    assert y.shape[0] == 3


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


def test_a_folder_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    bound = _bind(save_model(tmp_path, parse(_BRANCHES)))
    with pytest.raises(OutputError, match=r"cannot write .*copy\.onnx"):
        write_runnable(bound, tmp_path / "nowhere" / "copy.onnx")


_WEIGHTS = np.arange(90_000, dtype=np.float32).reshape(300, 300)


def _notes_of(path: Path) -> list[dict[str, str]]:
    model = onnx.load(path, load_external_data=False)
    return [{e.key: e.value for e in node.metadata_props} for node in model.graph.node]


def _model(folder: Path, *, external: bool = False) -> Path:
    proto = parse(
        "g (float[1, 300] x) => (float[1, 300] y) { m = MatMul (x, w)  y = Relu (m) }",
        {"w": _WEIGHTS},
    )
    proto.graph.node[1].metadata_props.add(key="namespace", value="layer1")
    path = folder / "model.onnx"
    onnx.save(proto, path, save_as_external_data=external, location="w.data", size_threshold=0)
    return path


@pytest.mark.parametrize("external", [False, True], ids=["one file", "external weights"])
def test_a_copy_has_notes_the_weights_and_can_be_checked(
    tmp_path: Path,
    external: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    path, copy = _model(tmp_path, external=external), tmp_path / "copy.onnx"
    files = {file.name for file in tmp_path.iterdir()}
    write_annotated(open_model(path), {"y": {"modelperf.ms": "0.5"}, "z": {"a": "b"}}, str(copy))
    assert _notes_of(copy) == [{}, {"namespace": "layer1", "modelperf.ms": "0.5"}]
    assert {file.name for file in tmp_path.iterdir()} == {*files, "copy.onnx"}
    model = onnx.load(copy)
    onnx.checker.check_model(model)
    assert np.array_equal(numpy_helper.to_array(model.graph.initializer[0]), _WEIGHTS)
    # Notes are written once.
    write_annotated(open_model(copy), {"y": {"modelperf.ms": "2"}}, str(path))
    assert _notes_of(path)[1] == {"namespace": "layer1", "modelperf.ms": "2"}


def test_nodes_in_bodies_have_notes_too(tmp_path: Path) -> None:
    proto = parse("""g (bool c, float[4] x) => (y) {
        y = If (c) <then_branch = t () => (float[4] a) { a = Relu (x) },
                    else_branch = e () => (float[4] b) { b = Neg (x) }>
    }""")
    path, copy = tmp_path / "model.onnx", tmp_path / "copy.onnx"
    onnx.save(proto, path)
    write_annotated(open_model(path), {"a": {"modelperf.ms": "1"}}, str(copy))
    branch = next(a.g for a in onnx.load(copy).graph.node[0].attribute if a.name == "then_branch")
    assert [entry.value for entry in branch.node[0].metadata_props] == ["1"]
