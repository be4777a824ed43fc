"""Reasons of parts on the real engine: what they name, not how long anything takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from pytest_modelperf.comparing.by_running import compare_models
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.limits import read_tolerances
from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.known import known
from tests.support.small_models import parse

pytestmark = pytest.mark.slow

# Shape inference does not know the output of the Scaler, so a run has to. The products take
# most of the time, so that the part that changes is small.
GRAPH = """g (float[128,512] x) => (float[128,512] y) {
    a = MatMul (x, w0)
    b = ai.onnx.ml.Scaler <offset = [0.0], scale = [1.0]> (a)
    c = CHANGED
    d = MatMul (c, w1)
    e = MatMul (d, w2)
    y = Relu (e)
}"""


def model(changed: str) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    shapes = (512, 512), (512, 4096), (4096, 512)
    weights: dict[str, Any] = {
        f"w{k}": random.standard_normal(shape).astype(np.float32) / 23
        for k, shape in enumerate(shapes)
    }
    made = parse(GRAPH.replace("CHANGED", changed), weights=weights)
    made.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 3))
    return made


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> CaseComparison:
    folder = tmp_path_factory.mktemp("models")
    paths = []
    for name, changed in (("before", "Relu (b)"), ("after", "Abs (b)")):
        paths.append(Path(folder, f"{name}.onnx"))
        onnx.save(model(changed), paths[-1])
    setup = Setup(policy=SamplingPolicy(max_seconds=2.0))
    # The tolerance is so large that noise decides nothing.
    gate = Gate(tolerances=read_tolerances({"p50": "900 %"}, "here"), judges_starts=False)
    before, after = (Side(path, setup) for path in paths)
    (found,) = compare_models(before, after, ProfileRequest(), gate).cases
    return found


def test_a_part_whose_shapes_came_from_a_run_is_the_reason(case: CaseComparison) -> None:
    assert case.failure is None
    (part,) = case.parts
    assert part.reasons == ("1 Relu became 1 Abs",)
    (reason,) = [each for each in case.reasons if "Relu became" in each]
    assert re.match(r"1 Relu became Abs \(first: ", reason)


def test_its_layers_have_times_that_differ_by_the_part_alone(case: CaseComparison) -> None:
    times = {change.op: change.time for change in case.layer_types}
    product, scaler = times["MatMul"], times["ai.onnx.ml::Scaler"]
    assert known(product).ns == known(scaler).ns == 0.0
    (p50,) = (metric for metric in case.metrics if metric.name == "latency_p50")
    total = sum(time.ns for time in times.values() if time is not None)
    assert total == pytest.approx(1e6 * (known(p50.after) - known(p50.before)), abs=1.0)


def test_weights_that_an_engine_dequantizes_in_each_run_are_named(tmp_path: Path) -> None:
    product = "[fc] y = Gemm<transB = 1>(x, w)"
    models = {
        "plain": parse(
            f"g (float[4,16] x) => (y) {{ {product} }}",
            weights={"w": np.ones((16, 16), np.float32)},
        ),
        "quantized": parse(
            f"g (float[4,16] x) => (y) {{ w = DequantizeLinear(q, s) {product} }}",
            weights={"q": np.ones((16, 16), np.int8), "s": np.array(0.5, np.float32)},
        ),
    }
    for name, made in models.items():
        onnx.save(made, tmp_path / f"{name}.onnx")
    setup = Setup(policy=SamplingPolicy(max_seconds=0.5))
    gate = Gate(tolerances=read_tolerances({"p50": "900 %"}, "here"), judges_starts=False)
    before, after = (Side(tmp_path / f"{name}.onnx", setup) for name in models)
    (found,) = compare_models(before, after, ProfileRequest(), gate).cases
    named = "1 of 1 Gemm with quantized weights, dequantized in each run (first: fc"
    assert any(named in reason for reason in found.reasons)
