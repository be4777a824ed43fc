"""A model in ONNX Runtime's own format is read by the runtime, with the graph that it holds."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
import pytest

from pytest_modelperf.errors import ModelError
from pytest_modelperf.obtaining.making import write_as_onnx
from pytest_modelperf.profiler.request import profile_model
from tests.support.project import write_dense


def write_ort(source: Path, target: Path) -> Path:
    """The same model as the runtime converts it."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.optimized_model_filepath = str(target)
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    return target


def test_the_graph_and_the_weights_are_those_of_the_file(tmp_path: Path) -> None:
    dense = write_dense(tmp_path / "dense.onnx", width=200)
    converted = write_ort(dense, tmp_path / "dense.ort")
    written = write_as_onnx(converted, tmp_path / "written")
    assert written == tmp_path / "written" / "dense.ort.onnx"
    before, after = (profile_model(each).cases[0].static for each in (dense, written))
    assert after is not None
    assert before is not None
    assert (after.macs, after.params) == (before.macs, before.params) == (600, 600)
    session = ort.InferenceSession(str(written), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["x"]


def test_a_file_that_the_runtime_cannot_read_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "broken.ort").write_bytes(b"broken")
    with pytest.raises(ModelError, match=r"broken\.ort cannot be read by ONNX Runtime: "):
        write_as_onnx(tmp_path / "broken.ort", tmp_path / "written")
