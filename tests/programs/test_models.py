"""The MACs of a program's inferences, counted for the inputs that a call gave."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from pytest_modelperf.baselines.program import CallWork, InferenceWork, SessionWork
from pytest_modelperf.programs.causes import MacsCounter
from pytest_modelperf.programs.sides import WatchedWork
from tests.support.small_models import parse

_MODEL = "g (float[batch, 8] x, float[8, 4] w) => (float[batch, 4] y) { y = MatMul(x, w) }"
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
