"""Models that fixtures and functions return become a file, in whatever form they are."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir
import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.obtaining.origins import file_of
from tests.support.project import write_dense


class ONNXProgram:
    """A stand-in for the result of `torch.onnx.export`."""

    def __init__(self, model: object) -> None:
        self.model = model


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    return write_dense(tmp_path / "dense.onnx", width=200)


@pytest.mark.parametrize("form", ["bytes", "message", "ir", "program"])
def test_a_model_in_memory_is_written_with_its_weights(
    dense: Path, tmp_path: Path, form: str
) -> None:
    message = onnx.load(dense)
    value = {
        "bytes": dense.read_bytes(),
        "message": message,
        "ir": onnx_ir.from_proto(message),
        "program": ONNXProgram(onnx_ir.from_proto(message)),
    }[form]
    found = file_of(value, "export()", tmp_path / "written", "encoder")
    assert found == tmp_path / "written" / "encoder.onnx"
    file = open_model(found)
    (weight,) = file.proto.graph.initializer
    assert file.read_tensor(weight).sum() == 600


@pytest.mark.parametrize("form", [str, Path])
def test_a_file_stays_where_it_is(dense: Path, tmp_path: Path, form: type) -> None:
    assert file_of(form(dense), "export()", tmp_path / "written", "encoder") == dense
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, r"export\(\) returned nothing; expected the path"),
        ({"a": 1}, r"export\(\) returned a value of the type dict"),
        ("nowhere.onnx", r"export\(\) returned the path nowhere\.onnx, and there is no such file"),
    ],
)
def test_a_value_that_is_not_a_model_is_refused(
    tmp_path: Path, value: object, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        file_of(value, "export()", tmp_path, "encoder")
