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
from tests.support.graph_models import load, parse, random_floats, zeros


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
    path = folder / name
    path.write_bytes(_model().SerializeToString())
    return path


def _run(path: Path, *outputs: str) -> list[npt.NDArray[np.float32]]:
    options = ort.SessionOptions()
    # What is fused depends on what is known of the shapes, and so do the last bits.
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


def test_a_written_model_is_valid_and_computes_the_same(tmp_path: Path) -> None:
    source, target = _save(tmp_path), tmp_path / "shaped.onnx"
    write_shaped_model(_bind(source), target)

    onnx.checker.check_model(str(target), full_check=True)
    np.testing.assert_array_equal(_run(target)[0], _run(source)[0])


def test_every_tensor_of_a_written_model_has_its_shape(tmp_path: Path) -> None:
    target = tmp_path / "shaped.onnx"
    written = write_shaped_model(_bind(_save(tmp_path)), target)

    assert _value_shapes(onnx.load(str(target))) == {
        "x": [2, 3, 512], "h": [2, 3, 512], "m": [2, 3, 1024], "y": [2, 3, 1024],
    }  # fmt: skip
    assert written.unknown == ()
    assert written.new_outputs == ()


def test_the_weights_of_a_written_model_are_the_same_bits(tmp_path: Path) -> None:
    target = tmp_path / "shaped.onnx"
    write_shaped_model(_bind(_save(tmp_path)), target)
    written = {t.name: t for t in onnx.load(str(target)).graph.initializer}

    for tensor in _model().graph.initializer:
        assert written[tensor.name].raw_data == tensor.raw_data
        assert written[tensor.name] == tensor


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

    written = write_shaped_model(
        load(model, Binding(2, {"seq": 3})), tmp_path / "m.onnx", ["h,0", "m"]
    )
    assert written.new_outputs == ("h,0", "m")


def test_an_unknown_name_is_refused_with_the_nearest_and_nothing_is_written(
    tmp_path: Path,
) -> None:
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


def test_a_written_file_can_be_read_by_others(tmp_path: Path) -> None:
    """A temporary file is private; what it becomes must not be."""
    plain, target = tmp_path / "plain", tmp_path / "shaped.onnx"
    plain.write_bytes(b"")
    write_shaped_model(_bind(_save(tmp_path)), target)

    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_model_in_memory_can_be_written(tmp_path: Path) -> None:
    target = tmp_path / "shaped.onnx"
    write_shaped_model(load(_model(), Binding(2, {"seq": 3})), target)

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


# -- external data


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
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_goes_beside_the_copy(tmp_path: Path) -> None:
    source = _save_external(tmp_path / "in")
    target = tmp_path / "out" / "shaped.onnx"
    target.parent.mkdir()
    write_shaped_model(_bind(source), target)

    assert (tmp_path / "out/weights/w.bin").read_bytes() == (
        tmp_path / "in/weights/w.bin"
    ).read_bytes()
    np.testing.assert_array_equal(_run(target)[0], _run(source)[0])


def test_in_the_same_folder_external_data_is_shared(tmp_path: Path) -> None:
    source = _save_external(tmp_path)
    target = tmp_path / "shaped.onnx"
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


def test_writing_again_to_the_same_other_folder_is_allowed(tmp_path: Path) -> None:
    """The data that lies there is this model's own, byte for byte."""
    source = _save_external(tmp_path / "in")
    (tmp_path / "out").mkdir()
    for _ in range(2):
        write_shaped_model(_bind(source), tmp_path / "out/shaped.onnx")


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


# -- failures


def test_a_folder_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    bound = load(_model(), Binding(2, {"seq": 3}))

    with pytest.raises(OutputError, match=r"cannot write .*m\.onnx"):
        write_shaped_model(bound, tmp_path / "nowhere" / "m.onnx")


def test_a_target_that_is_a_folder_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").mkdir()

    with pytest.raises(OutputError, match="cannot write"):
        write_shaped_model(load(_model(), Binding(2, {"seq": 3})), tmp_path / "m.onnx")
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


def test_the_given_model_is_not_changed_by_writing_it(tmp_path: Path) -> None:
    bound = load(_model(), Binding(2, {"seq": 3}))
    before = bound.proto.SerializeToString(deterministic=True)
    write_shaped_model(bound, tmp_path / "m.onnx", ["h"])

    assert bound.proto.SerializeToString(deterministic=True) == before


def test_a_weight_in_typed_fields_is_written_as_it_is(tmp_path: Path) -> None:
    model = parse("g (float[2, 600] x) => (float[2, 600] y) { y = Add (x, w) }")
    values = random_floats(600)
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [600], values.tolist())
    model.graph.initializer.append(weight)
    target = tmp_path / "m.onnx"
    write_shaped_model(load(model), target)

    (written,) = onnx.load(str(target)).graph.initializer
    assert written == weight
    np.testing.assert_array_equal(numpy_helper.to_array(written), values)


def test_a_small_and_a_large_weight_both_survive(tmp_path: Path) -> None:
    model = parse(
        "g (float[2, 8] x) => (y) { a = Mul (x, s)  y = MatMul (a, w) }",
        {"s": zeros(8), "w": random_floats(8, 400)},
    )
    target = tmp_path / "m.onnx"
    write_shaped_model(load(model), target)

    assert list(onnx.load(str(target)).graph.initializer) == list(model.graph.initializer)
