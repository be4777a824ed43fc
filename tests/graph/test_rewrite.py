"""A written model is the same model, with every shape in it, and no trace is left of a failure."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from pytest_modelperf.errors import ModelError, OutputError, UsageError
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.copies import write_shaped_model
from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.model_file import open_model
from tests.support.graph_models import load, parse, random_floats, save_model, zeros


def _model() -> onnx.ModelProto:
    """Symbolic in batch and length, with 2 MiB of weights."""
    return parse(
        """g (float[N, seq, 512] x) => (float[N, seq, 1024] y) {
        h = Relu (x)
        m = MatMul (h, w)
        y = Add (m, b)
    }""",
        {"w": random_floats(512, 1024), "b": random_floats(1024, seed=1)},
    )


def _bind(path: Path) -> BoundModel:
    return load_model(open_model(path), Binding(2, {"seq": 3}))


def _save(folder: Path, name: str = "model.onnx") -> Path:
    folder.mkdir(exist_ok=True)
    return save_model(folder, _model(), name)


def _run(path: Path, *outputs: str) -> list[npt.NDArray[np.float32]]:
    options = ort.SessionOptions()
    # Fusions depend on which shapes are known, and so do the last bits.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    made: list[npt.NDArray[np.float32]] = session.run(
        list(outputs) or None, {"x": random_floats(2, 3, 512, seed=2)}
    )
    return made


def _value_shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    infos = (*model.graph.value_info, *model.graph.output, *model.graph.input)
    return {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in infos}


def test_a_written_model_is_the_same_model_with_every_shape(tmp_path: Path) -> None:
    source, target, plain = _save(tmp_path), tmp_path / "shaped.onnx", tmp_path / "plain"
    written = write_shaped_model(_bind(source), target)
    plain.write_bytes(b"")

    onnx.checker.check_model(str(target), full_check=True)
    np.testing.assert_array_equal(_run(target)[0], _run(source)[0])
    model = onnx.load(str(target))
    assert _value_shapes(model) == {
        "x": [2, 3, 512], "h": [2, 3, 512], "m": [2, 3, 1024], "y": [2, 3, 1024],
    }  # fmt: skip
    assert (written.unknown, written.new_outputs) == ((), ())
    assert list(model.graph.initializer) == list(_model().graph.initializer)
    # A temporary file is private; what it becomes must not be.
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_named_tensors_become_outputs_with_their_values(tmp_path: Path) -> None:
    target = tmp_path / "shaped.onnx"
    written = write_shaped_model(_bind(_save(tmp_path)), target, ["h,m", "y"])

    assert written.new_outputs == ("h", "m")
    h, m, y = _run(target, "h", "m", "y")
    np.testing.assert_array_equal(h, np.maximum(random_floats(2, 3, 512, seed=2), 0))
    np.testing.assert_array_equal(m + random_floats(1024, seed=1), y)


def test_a_name_with_a_comma_in_it_can_be_named(tmp_path: Path) -> None:
    model = _model()
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = "h,0"
    bound = load(model, Binding(2, {"seq": 3}))
    assert write_shaped_model(bound, tmp_path / "m.onnx", ["h,0", "m"]).new_outputs == ("h,0", "m")


def test_an_unknown_name_is_refused_with_the_nearest_and_nothing_is_written(tmp_path: Path) -> None:
    bound = load(_model(), Binding(2, {"seq": 3}))
    with pytest.raises(UsageError, match=r"no tensor 'hh'.*Did you mean h"):
        write_shaped_model(bound, tmp_path / "m.onnx", ["hh"])
    assert list(tmp_path.iterdir()) == []


def test_a_model_can_be_written_over_itself(tmp_path: Path) -> None:
    path = _save(tmp_path)
    expected = _run(path)[0]

    write_shaped_model(_bind(path), path)

    np.testing.assert_array_equal(_run(path)[0], expected)
    assert _value_shapes(onnx.load(str(path)))["m"] == [2, 3, 1024]
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    path = _save(tmp_path)
    write_shaped_model(_bind(path), tmp_path / "one.onnx")
    write_shaped_model(load_model(open_model(tmp_path / "one.onnx")), tmp_path / "two.onnx")

    first, second = (onnx.load(str(tmp_path / n)) for n in ("one.onnx", "two.onnx"))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(
        deterministic=True
    )


def test_a_model_in_memory_is_written_and_not_changed(tmp_path: Path) -> None:
    target, bound = tmp_path / "shaped.onnx", load(_model(), Binding(2, {"seq": 3}))
    before = bound.proto.SerializeToString(deterministic=True)
    write_shaped_model(bound, target, ["h"])

    assert bound.proto.SerializeToString(deterministic=True) == before
    assert onnx.load(str(target)).graph.initializer[0] == _model().graph.initializer[0]


def test_a_tensor_of_unknown_shape_is_written_without_one(tmp_path: Path) -> None:
    bound = load("g (float[2, 3] x) => (y) { i = NonZero (x)  y = Transpose (i) }")
    written = write_shaped_model(bound, tmp_path / "m.onnx")

    assert (written.tensors, written.unknown) == (3, ("i", "y"))
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.eye(2, 3, dtype=np.float32)})
    assert y.tolist() == [[0, 0], [1, 1]]


def test_a_model_with_bodies_functions_and_constants_can_be_written(tmp_path: Path) -> None:
    model = parse("""g (bool c, float[N, 3] x) => (y) {
        k = Constant <value = float {2}> ()
        k2 = Add (k, k)
        y = If (c) <
            then_branch = t () => (a) { a = Mul (x, k2) },
            else_branch = e () => (b) { b = custom.double (x) }
        >
    }""")
    node = onnx.helper.make_node("Add", ["a", "a"], ["r"])
    model.functions.append(
        onnx.helper.make_function("custom", "double", ["a"], ["r"], [node], model.opset_import)
    )
    target = tmp_path / "m.onnx"
    write_shaped_model(load(model, Binding(2)), target)

    session = ort.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    x = random_floats(2, 3)
    for condition, factor in ((True, 4), (False, 2)):
        (y,) = session.run(None, {"c": np.asarray(condition), "x": x})
        np.testing.assert_allclose(y, x * np.float32(factor))


def test_a_rebound_model_is_written_as_it_runs(tmp_path: Path) -> None:
    model = parse(
        "g (float[1, 4, 6] x) => (float[1, 24] y) <int64[2] t = {1, 24}> { y = Reshape (x, t) }"
    )
    target = tmp_path / "m.onnx"
    write_shaped_model(load(model, Binding(3)), target)

    session = ort.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": random_floats(3, 4, 6)})
    np.testing.assert_array_equal(y, random_floats(3, 4, 6).reshape(3, 24))


def _save_external(folder: Path, location: str = "weights/w.bin") -> Path:
    model = _model()
    folder.mkdir(exist_ok=True)
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    with (folder / location).open("wb") as file:
        for tensor in model.graph.initializer:
            offset = file.tell()
            file.write(tensor.raw_data)
            length = len(tensor.raw_data)
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", location), ("offset", offset), ("length", length)):
                tensor.external_data.add(key=key, value=str(value))
    return save_model(folder, model)


def test_external_data_goes_next_to_the_copy_and_may_be_written_again(tmp_path: Path) -> None:
    """The data that is there the second time is this model's own, byte for byte."""
    source, target = _save_external(tmp_path / "in"), tmp_path / "out" / "shaped.onnx"
    target.parent.mkdir()
    for _ in range(2):
        write_shaped_model(_bind(source), target)
        data_files = (folder / "weights/w.bin" for folder in (source.parent, target.parent))
        assert len({file.read_bytes() for file in data_files}) == 1
        np.testing.assert_array_equal(_run(target)[0], _run(source)[0])


def test_in_the_same_folder_external_data_is_shared(tmp_path: Path) -> None:
    source, target = _save_external(tmp_path), tmp_path / "shaped.onnx"
    write_shaped_model(_bind(source), target)
    assert sorted(p.name for p in tmp_path.rglob("*.bin")) == ["w.bin"]
    np.testing.assert_array_equal(_run(target)[0], _run(source)[0])


def test_the_external_data_of_another_model_is_not_overwritten(tmp_path: Path) -> None:
    source = _save_external(tmp_path / "in")
    (tmp_path / "out/weights").mkdir(parents=True)
    other = tmp_path / "out/weights/w.bin"
    other.write_bytes(b"precious")

    with pytest.raises(OutputError, match=r"would overwrite .*w\.bin.*another folder"):
        write_shaped_model(_bind(source), tmp_path / "out/shaped.onnx")
    assert other.read_bytes() == b"precious"
    assert not (tmp_path / "out/shaped.onnx").exists()


def test_a_model_is_not_written_over_its_own_external_data(tmp_path: Path) -> None:
    source = _save_external(tmp_path, "w.bin")
    before = (tmp_path / "w.bin").read_bytes()
    with pytest.raises(OutputError, match=r"w.bin"):
        write_shaped_model(_bind(source), tmp_path / "w.bin")
    assert (tmp_path / "w.bin").read_bytes() == before


def test_external_data_that_is_missing_is_an_error_and_nothing_is_written(tmp_path: Path) -> None:
    source = _save_external(tmp_path / "in")
    (tmp_path / "in/weights/w.bin").unlink()
    (tmp_path / "out").mkdir()

    with pytest.raises(ModelError, match="not there"):
        write_shaped_model(_bind(source), tmp_path / "out/shaped.onnx")
    assert not list((tmp_path / "out").rglob("*.onnx"))


@pytest.mark.parametrize("target", ["nowhere/m.onnx", "m.onnx"], ids=["no folder", "a folder"])
def test_a_target_that_cannot_be_written_leaves_no_temporary_file(
    tmp_path: Path, target: str
) -> None:
    (tmp_path / "m.onnx").mkdir()
    with pytest.raises(OutputError, match=r"cannot write .*m\.onnx"):
        write_shaped_model(load(_model(), Binding(2, {"seq": 3})), tmp_path / target)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_a_failure_in_the_middle_leaves_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _save(tmp_path)
    before = path.read_bytes()

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "full", str(self), None, str(target))

    bound = _bind(path)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OutputError, match="full"):
        write_shaped_model(bound, path)

    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_bytes() == before


def test_weights_in_typed_fields_small_and_large_are_written_as_they_are(tmp_path: Path) -> None:
    model = parse(
        "g (float[2, 8] x) => (y) { a = Mul (x, s)  m = MatMul (a, w)  y = Add (m, t) }",
        {"s": zeros(8), "w": random_floats(8, 400)},
    )
    values = random_floats(400)
    typed = onnx.helper.make_tensor("t", onnx.TensorProto.FLOAT, [400], values.tolist())
    model.graph.initializer.append(typed)
    write_shaped_model(load(model), tmp_path / "m.onnx")

    written = onnx.load(str(tmp_path / "m.onnx")).graph.initializer
    assert list(written) == list(model.graph.initializer)
    np.testing.assert_array_equal(numpy_helper.to_array(written[2]), values)
