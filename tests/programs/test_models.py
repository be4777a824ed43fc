"""The MACs of a program's inferences, counted for the inputs that a call gave."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from pytest_modelperf.baselines.program import CallWork, InferenceWork, SessionWork
from pytest_modelperf.programs.models import MacsCounter
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
