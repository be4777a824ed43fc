"""Options of ONNX Runtime that its sessions are made with: threads and providers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import onnxruntime as ort
import pytest

from pytest_modelperf.profiler.engines import onnxruntime as engine
from pytest_modelperf.profiler.worker.sessions import ModelLocation
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


def test_a_case_has_no_more_threads_than_cores(model: ModelLocation) -> None:
    assert session_threads(2, {}, model) == 2
    assert session_threads(2, {"intra_op_num_threads": "1"}, model) == 1


@pytest.mark.parametrize("threads", ["3", "0", "-1", "two"])
def test_more_threads_than_cores_are_refused(model: ModelLocation, threads: str) -> None:
    with pytest.raises(
        engine.OptionError, match=f"cannot be '{threads}': .* to the cores of the case, here 2"
    ):
        engine.load(model, 2, {"intra_op_num_threads": threads})


def test_an_unknown_option_is_answered_with_those_that_are_taken(model: ModelLocation) -> None:
    with pytest.raises(engine.OptionError, match="no session option 'no_such'") as caught:
        engine.load(model, 1, {"no_such": "1"})
    named = str(caught.value).partition("There are: ")[2].split(", ")
    assert {"execution_mode", "enable_mem_pattern"} <= set(named)
    for refused in ("enable_profiling", "profile_file_prefix", "optimized_model_filepath"):
        assert refused not in named
        with pytest.raises(engine.OptionError, match=f"{refused} cannot be set"):
            engine.load(model, 1, {refused: "1"})


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


# This build has no CUDA and says so, although it claims otherwise here.
WITHOUT_CUDA = pytest.mark.filterwarnings("ignore:Specified provider")


@WITHOUT_CUDA
def test_missing_libraries_of_a_device_are_named(
    cuda: Callable[[str], None], model: ModelLocation, capsys: pytest.CaptureFixture[str]
) -> None:
    cuda(
        "Failed to load libcublas.so.13: libcublas.so.13: cannot open shared object file\n"
        "Failed to load /lib/libcurand.so.10: file too short\n"
        "Please follow the installation guide.\n"
    )
    with pytest.raises(engine.OptionError, match=r": libcublas\.so\.13, /lib/libcurand\.so\.10\. "):
        engine.load(model, 1, {"provider": "CUDA"})
    # A worker answers on its standard output.
    assert capsys.readouterr().out == ""


@WITHOUT_CUDA
def test_a_missing_device_has_an_error_of_its_own(
    cuda: Callable[[str], None], model: ModelLocation
) -> None:
    cuda("Skip loading CUDA and cuDNN DLLs since torch is imported.")
    with pytest.raises(engine.OptionError, match="libraries may be missing, or its device"):
        engine.load(model, 1, {"provider": "CUDA"})


def test_parts_of_a_plan_run_on_the_cpu_alone(cuda: Callable[[str], None]) -> None:
    cuda("")
    assert engine.runs_parts({})
    assert not engine.runs_parts({"provider": "CUDA"})
