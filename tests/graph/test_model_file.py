"""Other files are refused with what they seem to be; weights are read only on demand."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.model_file import open_model
from tests.support.graph_models import parse, random_floats, save_model, shapes
from tests.support.known import known
from tests.support.small_models import save_beside

_WEIGHT = random_floats(64, 32)


def _model() -> onnx.ModelProto:
    return parse("g (float[1, 64] x) => (float[1, 32] y) { y = MatMul (x, w) }", {"w": _WEIGHT})


def _save_external(folder: Path, location: str, **entries: object) -> Path:
    """A model that declares its only weight to be in `location`; that file is not written."""
    model = _model()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    for key, value in entries.items():
        weight.external_data.add(key=key, value=str(value))
    return save_model(folder, model)


def _load(path: Path) -> BoundModel:
    return load_model(open_model(path))


def _read(path: Path) -> object:
    return _load(path).read_weight("w")


def test_a_path_bytes_and_a_proto_give_the_same_model(tmp_path: Path) -> None:
    proto = _model()
    path = save_model(tmp_path, proto, "m.onnx")

    for source in (path, str(path), proto.SerializeToString(), proto):
        values = load_model(open_model(source)).read_weight("w")
        np.testing.assert_array_equal(known(values), _WEIGHT)
    assert proto.SerializeToString(deterministic=True) == _model().SerializeToString(
        deterministic=True
    )
    file, digest = open_model(path), hashlib.sha256(path.read_bytes()).hexdigest()
    assert (file.name, file.size_bytes) == ("m.onnx", path.stat().st_size)
    assert file.sha256() == open_model(path.read_bytes()).sha256() == digest


def test_the_digest_covers_external_data(tmp_path: Path) -> None:
    path = _save_external(tmp_path, "weights.bin")
    weights = tmp_path / "weights.bin"
    digests = []
    for values in (_WEIGHT, -_WEIGHT, _WEIGHT):
        weights.unlink(missing_ok=True)
        weights.write_bytes(values.tobytes())
        digests.append(open_model(path).sha256())

    assert digests[0] == digests[2]
    assert len({*digests, hashlib.sha256(path.read_bytes()).hexdigest()}) == 3


def test_a_file_that_several_weights_share_is_one_file_of_the_digest(tmp_path: Path) -> None:
    weights = {name: random_floats(16, 16) for name in "vw"}
    text = "g (float[1, 16] x) => (float[1, 16] y) { h = MatMul (x, v) y = MatMul (h, w) }"
    path = tmp_path / "m.onnx"
    save_beside(parse(text, weights), path)
    (seen,) = open_model(path).beside().values()

    assert seen.size_bytes >= 2 * 16 * 16 * 4


@pytest.mark.parametrize(
    ("location", "message"),
    [("w.bin", r"'w\.bin', which is not there"), ("../m", "outside of the model's folder")],
)
def test_without_its_external_data_a_model_has_no_digest(
    tmp_path: Path, location: str, message: str
) -> None:
    path = _save_external(tmp_path, location)
    with pytest.raises(ModelError, match=message):
        open_model(path).sha256()
    with pytest.raises(ModelError, match="does not have next to"):
        open_model(path.read_bytes()).sha256()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("resnet51.onnx", r"no file .*resnet51\.onnx.*resnet50\.onnx"),
        ("nowhere/m.onnx", r"no file (?!.*there is:)"),
        ("", "is a folder"),
        ("n" * 5000, "cannot be read"),
        ("m\0.onnx", "m"),
        ("a\x1b[31mb.onnx", r"^[^\x1b]*\\x1b\[31m[^\x1b]*$"),
    ],
    ids=[
        "missing, with the models that are there", "missing in a missing folder", "a folder",
        "a path that the system refuses", "a zero byte", "an unreadable name is shown escaped",
    ],
)  # fmt: skip
def test_a_path_without_a_model_is_an_error_of_ours(
    tmp_path: Path, path: str, message: str
) -> None:
    (tmp_path / "resnet50.onnx").write_bytes(b"x")
    with pytest.raises(ModelError, match=message):
        open_model(tmp_path / path)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04" + b"\0" * 60, "PyTorch checkpoint"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b"\x80\x04\x95\x10\0\0\0\0\0\0\0}.", "pickle"),
        (b"\x80\x05\x95\x10\0\0\0\0\0\0\0}.", "pickle"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 60, "Keras"),
        (b"\x1f\x8b\x08" + b"\0" * 60, "unpack it first"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "pointer: run"),
        (b"<?xml version='1.0'?><net/>", "OpenVINO"),
        (b"\x18\0\0\0ORTM" + b"\0" * 60, "ONNX Runtime's own format"),
        (b"\x1c\0\0\0TFL3" + b"\0" * 60, "TensorFlow Lite"),
        (b"this is a text, and no model\n", "not a complete ONNX model|not an ONNX model"),
        (b"# model\nprint('hello')\n", "not a complete ONNX model|not an ONNX model"),
    ],
)
def test_the_error_of_a_file_that_is_not_a_model_says_what_it_seems_to_be(
    tmp_path: Path, content: bytes, hint: str
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=hint) as caught:
        open_model(path)
    assert "model.onnx" in str(caught.value)


def test_a_model_may_have_no_byte_that_texts_lack() -> None:
    model = onnx.ModelProto()
    model.graph.node.add().op_type = "R" * 32
    data = model.SerializeToString()
    assert data.decode("ascii").isprintable() or b"\n" in data
    assert min(data) >= ord("\t")

    assert open_model(data).proto.graph.node[0].op_type == "R" * 32


def test_a_model_may_begin_as_another_format_names_itself() -> None:
    model = onnx.ModelProto(ir_version=8, producer_name="ORTM")
    model.graph.node.add().op_type = "Relu"
    data = model.SerializeToString()
    assert data[4:8] == b"ORTM"

    assert open_model(data).producer == "ORTM"


def test_a_model_without_a_graph_is_refused() -> None:
    with pytest.raises(ModelError, match="holds no graph"):
        open_model(onnx.ModelProto(ir_version=8, producer_name="tests"))
    empty = onnx.ModelProto(ir_version=8)
    empty.graph.name = "empty"
    with pytest.raises(ModelError, match="holds no graph"):
        open_model(empty)
    with pytest.raises(ModelError):
        open_model(_model().graph.initializer[0].SerializeToString())


def test_external_data_that_is_missing_does_not_matter_until_it_is_read(tmp_path: Path) -> None:
    bound = _load(_save_external(tmp_path, "weights.bin"))
    assert shapes(bound, "y") == [(1, 32)]
    assert bound.graph.weights["w"].params == 64 * 32
    with pytest.raises(ModelError, match=r"'w'.*'weights\.bin', which is not there"):
        bound.read_weight("w")


@pytest.mark.parametrize(
    ("location", "entries", "before"),
    [
        ("sub/w.bin", {"offset": 5, "length": _WEIGHT.nbytes}, b"12345"),
        # ONNX Runtime reads it so: the bytes of its shape, and other weights may follow.
        ("w.bin", {}, b""),
        ("w.bin", {"length": 0}, b""),
    ],
    ids=["from its offset", "no length", "a length of 0"],
)
def test_external_data_is_read(
    tmp_path: Path, location: str, entries: dict[str, int], before: bytes
) -> None:
    path = _save_external(tmp_path, location, **entries)
    (tmp_path / "sub").mkdir()
    (tmp_path / location).write_bytes(before + _WEIGHT.tobytes() + b"more")
    values = _load(path).read_weight("w")
    np.testing.assert_array_equal(known(values), _WEIGHT)


# Even at an absolute path inside the folder, as the model would not survive being moved.
@pytest.mark.parametrize(
    "location", ["../secret", "sub/../../secret", "", "a\0b", "{absolute}", "link.bin"]
)
def test_external_data_outside_of_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(_WEIGHT.tobytes())
    folder = tmp_path / "models"
    (folder / "sub").mkdir(parents=True)
    (folder / "w.bin").write_bytes(_WEIGHT.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "secret")
    location = location.format(absolute=folder / "w.bin")
    with pytest.raises(ModelError, match="outside of the model's folder"):
        _read(_save_external(folder, location))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"length": 64 * 32 * 4}, "do not belong together"),
        ({"offset": 10**6}, "do not belong together"),
        ({"offset": -1}, "do not belong together"),
        ({"length": -1}, "do not belong together"),
        ({"length": 10**18}, "do not belong together"),
        ({}, "'w'"),
        ({"offset": "0x10"}, "cannot be used"),
    ],
    ids=[
        "a longer length", "beyond the end", "a negative offset", "a negative length",
        "an enormous length", "a file shorter than the shape", "an offset that is not a number",
    ],
)  # fmt: skip
def test_external_data_that_does_not_fit_is_refused(
    tmp_path: Path, entries: dict[str, object], message: str
) -> None:
    path = _save_external(tmp_path, "w.bin", **entries)
    (tmp_path / "w.bin").write_bytes(b"\0" * 100)
    with pytest.raises(ModelError, match=message):
        _read(path)


def test_external_data_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    path = _save_external(tmp_path, "w.bin")
    (tmp_path / "w.bin").mkdir()
    with pytest.raises(ModelError, match="w"):
        _read(path)


def test_a_model_given_as_bytes_has_no_external_data(tmp_path: Path) -> None:
    data = _save_external(tmp_path, "w.bin").read_bytes()
    bound = load_model(open_model(data))
    assert shapes(bound, "y") == [(1, 32)]
    with pytest.raises(ModelError, match="Give the path of the model"):
        bound.read_weight("w")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"dims": [64, 33]},
            r"claims the shape \[64, 33\], that is 8\.250 KiB, but the file holds 8",
        ),
        ({"dims": [2**40]}, "but the file holds"),
        ({"dims": [-64, -32]}, "negative dimension"),
        ({"raw_data": None}, r"claims the shape.*the file holds"),
        ({"data_type": 99}, "element type 99"),
    ],
    ids=["a larger size", "an enormous size", "negative", "no data", "an unknown element type"],
)
def test_a_weight_that_is_not_what_it_claims_is_refused(
    fields: dict[str, Any], message: str
) -> None:
    model = _model()
    weight = model.graph.initializer[0]
    for name in fields:
        weight.ClearField(name)
    weight.MergeFrom(TensorProto(**fields))
    with pytest.raises(ModelError, match=message):
        load_model(open_model(model))


@pytest.mark.skipif("FLOAT6E2M3" not in TensorProto.DataType.keys(), reason="since onnx 1.23")  # noqa: SIM118  # no mapping
@pytest.mark.parametrize("field", ["raw_data", "int32_data"])
def test_an_element_type_that_onnx_knows_and_we_do_not_is_named(field: str) -> None:
    """A file of 6-bit floats is not damaged, and its weights do not count as nothing."""
    model = _model()
    weight = model.graph.initializer[0]
    weight.data_type = TensorProto.DataType.Value("FLOAT6E2M3")
    if field == "int32_data":
        weight.ClearField("raw_data")
        weight.int32_data[:] = [0] * int(np.prod(weight.dims))

    with pytest.raises(ModelError, match="has the element type float6e2m3, which is not supported"):
        load_model(open_model(model))


def test_typed_data_of_another_length_is_refused_when_it_is_read() -> None:
    model = _model()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.float_data.extend([1.0] * 1000)

    with pytest.raises(ModelError, match="'w'"):
        load_model(open_model(model)).read_weight("w")


def test_a_small_typed_tensor_of_another_length_is_refused() -> None:
    """One that is read while the graph is built, for a shape may depend on it."""
    model = parse("g (float[2, 3] x) => (y) { y = Reshape (x, t) }")
    target = model.graph.initializer.add(name="t", data_type=TensorProto.INT64, dims=[3])
    target.int64_data.append(6)
    with pytest.raises(ModelError, match="'t'"):
        load_model(open_model(model))


def test_the_raw_numbers_of_a_small_tensor_count_if_it_has_listed_ones_too() -> None:
    """Both onnx and the engines read it so."""
    model = parse("g (float[2, 3] x) => (y) { y = Reshape (x, t) }")
    target = model.graph.initializer.add(name="t", data_type=TensorProto.INT64, dims=[1])
    target.int64_data.append(5)
    target.raw_data = np.array([6], np.int64).tobytes()

    file = open_model(model)

    assert file.read_tensor(file.proto.graph.initializer[0]).tolist() == [6]
