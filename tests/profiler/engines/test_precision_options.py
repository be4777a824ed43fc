"""Options by which an engine runs a model in another precision, or makes use of zeros."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.engines import onnxruntime
from pytest_modelperf.profiler.engines.source import BUILT_IN
from pytest_modelperf.profiler.model_in_worker import variant_options
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.agent import Agent
from pytest_modelperf.profiler.worker.client import ProcessWorker, WorkerRequest
from pytest_modelperf.profiler.worker.sessions import ModelLocation
from tests.profiler.engines.test_openvino import perceptron
from tests.support.small_models import ones

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Engine

PRECISIONS = ("f32", "bf16", "f16")


# -- OpenVINO


@pytest.fixture
def openvino() -> Any:  # noqa: ANN401  # a module
    pytest.importorskip("openvino", reason="needs the extra openvino")
    from pytest_modelperf.profiler.engines import openvino

    return openvino


def offered(engine: Any) -> dict[str, dict[str, str]]:  # noqa: ANN401  # a module
    found = {}
    for precision in PRECISIONS:
        with suppress(engine.OptionError):
            found[precision] = engine.precision_options(precision, {})
    return found


def test_a_precision_that_is_offered_is_the_one_that_layers_run_in(
    openvino: Any,  # noqa: ANN401  # a module
    tmp_path: Path,
) -> None:
    names = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
    model = ModelLocation(perceptron(tmp_path), None)
    assert "f32" in offered(openvino)
    for precision, options in offered(openvino).items():
        session = openvino.load_profiled(model, 1, options, "")
        session.prepare({"x": ones(16, 8)}, {"x": "float32"})()
        kernels = session.report(1)["kernels"]
        products = [k["precision"] for k in kernels if k["op_type"] == "FullyConnected"]
        assert products == [names[precision]] * 2


def test_a_precision_that_the_processor_lacks_is_refused_though_the_runtime_takes_it(
    openvino: Any,  # noqa: ANN401  # a module
    tmp_path: Path,
) -> None:
    lacking = [precision for precision in PRECISIONS if precision not in offered(openvino)]
    if not lacking:
        pytest.skip("this processor has all of them")
    openvino.load(
        ModelLocation(perceptron(tmp_path), None), 1, {"INFERENCE_PRECISION_HINT": lacking[0]}
    ).close()
    with pytest.raises(
        openvino.OptionError,
        match=f"does not compute in {lacking[0]} on this CPU. There are: "
        f"{', '.join(offered(openvino))}",
    ):
        openvino.precision_options(lacking[0], {})


def test_a_precision_that_is_none_is_refused(openvino: Any) -> None:  # noqa: ANN401  # a module
    with pytest.raises(openvino.OptionError, match=r"does not compute in i8 on this CPU.*f32"):
        openvino.precision_options("i8", {})
    with pytest.raises(openvino.OptionError, match="no device 'ABACUS'"):
        openvino.precision_options("f32", {"device": "ABACUS"})


def test_a_sparse_model_is_compiled_with_a_limit_below_its_share(
    openvino: Any,  # noqa: ANN401  # a module
    tmp_path: Path,
) -> None:
    options = openvino.sparsity_options(0.9, {})
    assert options == {"CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE": "0.891"}
    session = openvino.load(ModelLocation(perceptron(tmp_path), None), 1, options)
    rate = session._compiled.get_property("CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE")
    assert rate == pytest.approx(0.891)


def test_a_device_without_that_property_gets_no_option(
    openvino: Any,  # noqa: ANN401  # a module
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Which properties a device has is up to the machine.
    supported = {"NUM_STREAMS": "RW"}
    monkeypatch.setattr(openvino.ov.Core, "get_property", lambda *_: supported)
    assert openvino.sparsity_options(0.9, {}) == {}


# -- ONNX Runtime


@pytest.mark.parametrize("machine", ["x86_64", "AMD64"])
def test_onnxruntime_has_no_precision_but_that_of_the_model(
    monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    for precision in PRECISIONS:
        with pytest.raises(
            onnxruntime.OptionError,
            match=r"in the precision that it is stored in\. Give another --engine",
        ):
            onnxruntime.precision_options(precision, {})


def test_onnxruntime_multiplies_in_bfloat16_on_arm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    options = onnxruntime.precision_options("bf16", {})
    session = onnxruntime.load(ModelLocation(perceptron(tmp_path), None), 1, options)
    (y,) = session.prepare({"x": ones(2, 8)}, {"x": "float32"})()
    np.testing.assert_array_equal(y, np.full((2, 4), 56.0))
    with pytest.raises(onnxruntime.OptionError, match="can multiply matrices of float32 in bf16"):
        onnxruntime.precision_options("f16", {})


# -- by way of a worker


def test_a_worker_is_asked_for_the_options_of_its_engine() -> None:
    pytest.importorskip("openvino", reason="needs the extra openvino")
    with ProcessWorker(WorkerRequest(cores=1)) as worker:
        setup = Setup(engine=BUILT_IN["openvino"])
        assert variant_options(worker, setup, "precision", "f32") == {
            "INFERENCE_PRECISION_HINT": "f32"
        }
        assert variant_options(worker, setup, "sparsity", 0.5) == {
            "CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE": "0.495"
        }
        with pytest.raises(UsageError, match="does not compute in f8 on this CPU"):
            variant_options(worker, setup, "precision", "f8")


def test_an_engine_that_knows_no_such_thing_gives_none() -> None:
    agent = Agent()
    agent.use_engine(cast("Engine", SimpleNamespace()))
    asked: Mapping[str, Any] = {"value": "bf16", "options": {}}
    for kind in ("precision", "sparsity"):
        answer = agent.handle({"command": "variant_options", "kind": kind, **asked})
        assert answer == {"ok": None}
