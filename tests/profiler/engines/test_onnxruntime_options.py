"""The number of threads as an option of ONNX Runtime: a case may have fewer than it has cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_modelperf.profiler.engines import onnxruntime as engine
from pytest_modelperf.profiler.worker.agent import ModelLocation
from tests.support.small_models import ones, parse

SQUARE = "g (float[4] x) => (float[4] y) { y = Mul(x, x) }"


@pytest.fixture
def model(tmp_path: Path) -> ModelLocation:
    path = tmp_path / "square.onnx"
    path.write_bytes(parse(SQUARE, opset=17).SerializeToString())
    return ModelLocation(str(path), None)


def session_threads(threads: int, options: dict[str, str], model: ModelLocation) -> int:
    """The threads that a session has by its own account."""
    session = engine.load(model, threads, options)._session
    return int(session.get_session_options().intra_op_num_threads)


def test_a_case_has_as_many_threads_as_cores_or_fewer(model: ModelLocation) -> None:
    assert session_threads(2, {}, model) == 2
    assert session_threads(2, {"intra_op_num_threads": "1"}, model) == 1


@pytest.mark.parametrize("threads", ["3", "0", "-1", "two"])
def test_more_threads_than_cores_are_refused(model: ModelLocation, threads: str) -> None:
    with pytest.raises(engine.OptionError, match=f"cannot be '{threads}': .* here 2, or fewer"):
        engine.load(model, 2, {"intra_op_num_threads": threads})


def test_shapes_are_observed_on_one_thread_whatever_the_case_has(
    model: ModelLocation, tmp_path: Path
) -> None:
    options = {"intra_op_num_threads": "2"}
    seen = engine.observe_shapes(model, options, {"x": ones(4)}, {"x": "float32"}, str(tmp_path))
    assert [node["calls"] for node in seen] == [[[[4]]]]
