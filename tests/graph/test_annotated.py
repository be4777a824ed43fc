"""An annotated copy is the same model, with notes at its nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from pytest_modelperf.graph.copies import write_annotated
from pytest_modelperf.graph.model_file import open_model
from tests.support.graph_models import parse

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


def test_notes_stand_at_the_nodes_beside_those_of_the_model(tmp_path: Path) -> None:
    path, copy = _model(tmp_path), tmp_path / "copy.onnx"
    write_annotated(open_model(path), {"y": {"modelperf.ms": "0.5"}, "z": {"a": "b"}}, str(copy))
    assert _notes_of(copy) == [{}, {"namespace": "layer1", "modelperf.ms": "0.5"}]


def test_the_copy_has_the_weights_and_can_be_checked(tmp_path: Path) -> None:
    path, copy = _model(tmp_path), tmp_path / "copy.onnx"
    write_annotated(open_model(path), {"m": {"modelperf.ms": "1"}}, str(copy))
    model = onnx.load(copy)
    onnx.checker.check_model(model)
    assert np.array_equal(numpy_helper.to_array(model.graph.initializer[0]), _WEIGHTS)


def test_weights_in_another_file_stay_there(tmp_path: Path) -> None:
    path, copy = _model(tmp_path, external=True), tmp_path / "copy.onnx"
    write_annotated(open_model(path), {"m": {"modelperf.ms": "1"}}, str(copy))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.onnx", "model.onnx", "w.data"]
    assert np.array_equal(numpy_helper.to_array(onnx.load(copy).graph.initializer[0]), _WEIGHTS)


def test_notes_are_written_once(tmp_path: Path) -> None:
    path, copy = _model(tmp_path), tmp_path / "copy.onnx"
    write_annotated(open_model(path), {"y": {"modelperf.ms": "1"}}, str(copy))
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
