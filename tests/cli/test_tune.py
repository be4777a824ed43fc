"""`modelperf tune` on a real engine: a planted bad option is found, and wrong usage is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_request import ModelRun
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.race import RaceRule
from pytest_modelperf.tuning.request import TuningRequest
from pytest_modelperf.tuning.tuned import TuningTerms
from tests.support.command import refusal, run
from tests.support.known import known
from tests.support.small_models import parse

DENORMAL = np.float32(1e-20)


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The square of its only weight is a subnormal number of float32."""
    text = (
        "g (float[4] x) => (float[4] y) { w = Mul(v, v)  n = Abs(x)  m = Sign(n)  y = Mul(w, m) }"
    )
    model = parse(text, opset=17, weights={"v": np.full(4, DENORMAL)})
    path = tmp_path_factory.mktemp("models") / "squares.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)


@pytest.mark.slow
def test_sets_of_options_run_on_a_real_engine_and_what_fails_is_named(squares: str) -> None:
    """Nothing is folded, so that denormals are computed as it runs; four rounds end it soon."""
    setup = Setup(
        options={"graph_optimization_level": "none"}, policy=SamplingPolicy(max_seconds=600.0)
    )
    wanted = {
        "enable_mem_pattern": ("0",),
        "session.set_denormal_as_zero": ("1",),
        "no_such": ("1",),
    }
    rule = RaceRule(rounds=4, level=0.2, pass_level=0.2)
    model = ModelRun(squares, setup)
    found = TuningRequest(model, ProfileRequest(), wanted, TuningTerms(rule=rule)).run(Extensions())
    (case,) = found.cases
    assert found.has_failed
    pattern, denormals, broken = case.tried[:3]
    assert (pattern.failure, pattern.refusal) == (None, None)
    assert pattern.rounds >= 1
    assert denormals.refusal == "its outputs differ by 100 % of their largest value, allowed 0.1 %"
    assert "no session option 'no_such'" in known(broken.failure)
    assert case.baseline.p50_ms is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--try", "a"], "--try takes an option of the engine and its values"),
        (["--try", "a=,b"], "--try takes an option of the engine and its values"),
        (["--latency-ms", "0"], "--latency-ms takes milliseconds above 0"),
        (["--memory", "much"], "--memory takes megabytes above 0"),
        (["--tolerance", "p50=0.1"], "--tolerance of a tuning applies only to outputs"),
        (["--tolerance", "outputs=3"], "takes a share such as 0.03"),
        (["--engine-option", "session.force_spinning_stop=0"], "leave it out"),
        (["--try", "session.force_spinning_stop=1,0"], "leave it out"),
        (["--engine", "callable"], "a tuning takes only ONNX models"),
    ],
)
def test_wrong_usage_is_refused(squares: str, options: list[str], message: str) -> None:
    assert message in refusal("tune", squares, *options)


def test_the_error_of_a_model_that_does_not_run_has_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "crash.onnx"
    path.write_bytes(parse("g (float[4] x) => (float[4] y) { y = Abs(x) }").SerializeToString())
    engine = ("--plugin", "tests.support.faulty_plugin", "--engine", "timed")
    done = run("tune", str(path), *engine, "--try", "a=1", "--json", "-")
    assert done.exit_code == 3
    (case,) = json.loads(done.out)["cases"]
    assert "it does not load" in case["failure"]
    assert "it does not load" in done.err
