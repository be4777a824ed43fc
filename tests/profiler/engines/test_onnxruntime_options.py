"""Options of ONNX Runtime that its sessions are made with: threads and providers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import onnxruntime as ort
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


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Has the runtime claim that it has CUDA, and say this when it looks for its libraries."""
    present = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(ort, "get_available_providers", lambda: present)

    def saying(text: str) -> None:
        engine._load_cuda.cache_clear()
        monkeypatch.setattr(ort, "preload_dlls", lambda: sys.stdout.write(text), raising=False)

    yield saying
    engine._load_cuda.cache_clear()


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_missing_libraries_of_a_device_are_named(
    cuda: Callable[[str], None], model: ModelLocation, capsys: pytest.CaptureFixture[str]
) -> None:
    cuda("Failed to load libcublas.so.13")
    with pytest.raises(engine.OptionError, match=r"onnxruntime-gpu\[cuda,cudnn\]") as caught:
        engine.load(model, 1, {"provider": "CUDA"})
    assert str(caught.value).endswith("onnxruntime says: Failed to load libcublas.so.13")
    # A worker answers on its standard output.
    assert capsys.readouterr().out == ""


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_device_that_is_missing_is_told_apart(
    cuda: Callable[[str], None], model: ModelLocation
) -> None:
    cuda("")
    with pytest.raises(engine.OptionError, match="libraries may be missing, or its device"):
        engine.load(model, 1, {"provider": "CUDA"})


def test_parts_of_a_plan_run_on_the_cpu_alone(cuda: Callable[[str], None]) -> None:
    cuda("")
    assert engine.runs_parts({})
    assert not engine.runs_parts({"provider": "CUDA"})
