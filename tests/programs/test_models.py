"""The MACs of a program's inferences, counted for the inputs that a call gave."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest

from pytest_modelperf.baselines.program import CallWork, InferenceWork, SessionWork
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.programs.causes import MacsCounter, keep_changed_models
from pytest_modelperf.programs.sides import WatchedWork
from pytest_modelperf.programs.work import SessionPair
from tests.support.small_models import parse

_MODEL = "g (float[batch, 8] x, float[8, 4] w) => (float[batch, 4] y) { y = MatMul(x, w) }"
_WEIGHTED = """g (float[2, 3] x) => (float[2, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
    y = MatMul(x, w)
}"""
_DIGEST = "a" * 64


@pytest.mark.parametrize(
    ("kind", "macs", "notes"),
    [("float32", 64, 0), ("list", 64, 0), ("float64", None, 1)],
)
def test_a_list_is_counted_as_the_type_that_the_model_declares(
    tmp_path: Path, kind: str, macs: int | None, notes: int
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(parse(_MODEL), path)
    inputs = (f"w: 8x4 {kind}", f"x: 2x8 {kind}")
    session = SessionWork(
        model="m.onnx",
        sha256=_DIGEST,
        options={},
        inferences=(InferenceWork(inputs=inputs, count=1),),
    )
    watched = WatchedWork(
        work=CallWork(sessions=(session,)), next_work=None, models={"m.onnx": path}
    )
    counter = MacsCounter(watched)
    assert counter(_DIGEST, inputs) == macs
    assert len(counter.notes) == notes


_REPEATED = """g (float[batch, 8] x, int64 n, float[8, 4] w) => (float[rows, 4] y) {
    one = Constant <value = int64[1] {1}> ()
    axis = Constant <value = int64[1] {0}> ()
    number = Unsqueeze (n, axis)
    repeats = Concat <axis = 0> (number, one)
    many = Tile (x, repeats)
    y = MatMul (many, w)
}"""


@pytest.mark.parametrize(("numbers", "macs"), [({"n": 3.0}, 3 * 64), ({"n": 5.0}, 5 * 64)])
def test_an_input_that_is_a_single_number_has_the_value_of_the_call(
    tmp_path: Path, numbers: dict[str, float], macs: int
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(parse(_REPEATED), path)
    inputs = ("n: scalar int64", "w: 8x4 float32", "x: 2x8 float32")
    session = SessionWork(
        model="m.onnx",
        sha256=_DIGEST,
        options={},
        inferences=(InferenceWork(inputs=inputs, count=1),),
    )
    watched = WatchedWork(
        CallWork(sessions=(session,)), None, {"m.onnx": path}, {"m.onnx": numbers}
    )
    counter = MacsCounter(watched)
    assert counter(_DIGEST, inputs) == macs
    assert not counter.notes


def test_changed_models_are_kept_after_the_folder_of_their_test_is_removed(tmp_path: Path) -> None:
    sides = []
    for digest in ("a", "b"):
        folder = tmp_path / digest
        folder.mkdir()
        made, same = folder / "made.onnx", folder / "same.onnx"
        model = parse(_WEIGHTED)
        onnx.save(model, same)
        onnx.save(model, made, save_as_external_data=True, location="made.data", size_threshold=0)
        session = SessionWork(model="made.onnx", sha256=digest * 64, options={}, inferences=())
        work = CallWork(sessions=(session,))
        sides.append(WatchedWork(work, None, {"made.onnx": made, "same.onnx": same}))
    before, after = sides
    pairs = [SessionPair(before.work.sessions[0], after.work.sessions[0])]
    kept = keep_changed_models((before, after), pairs, tmp_path / "kept")
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    for watched, side in zip(kept, sides, strict=True):
        assert open_model(watched.models["made.onnx"]).sha256()
        assert watched.models["same.onnx"] == side.models["same.onnx"]
    assert before.models["made.onnx"].name == kept[0].models["made.onnx"].name
