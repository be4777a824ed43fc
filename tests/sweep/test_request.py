"""Sweeps of models whose times are known: what is found of each configuration, and of all."""

from __future__ import annotations

import importlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from examples.generating.make_decoder import make_decoder
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.structure import Generation
from pytest_modelperf.profiler.engines.source import BUILT_IN, EngineModule
from pytest_modelperf.profiler.hookspecs import Extensions, load_extensions
from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.profiler.model_request import ModelRun
from pytest_modelperf.profiler.records import Outcome
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.agent import Agent
from pytest_modelperf.sweep.records import Sweep
from pytest_modelperf.sweep.request import SweepRequest
from pytest_modelperf.sweep.results import look_closer
from tests.support.graph_models import save_model
from tests.support.known import known
from tests.support.small_models import ones, parse

pytestmark = pytest.mark.slow

MODEL = "g (float[N,16] x) => (float[N,8] y) { [product] y = MatMul(x, w) }"
POLICY = SamplingPolicy(max_seconds=30.0)


@pytest.fixture(scope="module")
def extensions() -> Extensions:
    return load_extensions(["tests.support.faulty_plugin"])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for number, name in enumerate(("base.onnx", "slow_800us.onnx", "crash.onnx"), 1):
        save_model(folder, parse(MODEL, weights={"w": number * ones(16, 8)}), name)
    return folder


def sweep(  # noqa: PLR0913  # what is swept, and over what
    models: Path,
    names: Sequence[str],
    extensions: Extensions,
    engine: str = "timed",
    *,
    batch: tuple[int, ...] = (1,),
    cores: tuple[int, ...] = (1,),
    streams: tuple[int, ...] = (1,),
    threshold_ms: float | None = None,
    all_layers: bool = False,
    options: dict[str, str] | None = None,
    seen: list[Progress] | None = None,
    plans: list[str] | None = None,
) -> Sweep:
    policy = POLICY if engine == "timed" else SamplingPolicy(max_seconds=1.0)
    setup = Setup(engine=extensions.engines.find(engine), policy=policy, options=options or {})
    asked = SweepRequest(
        tuple(ModelRun(str(models / name), setup) for name in names),
        ProfileRequest(batch_sizes=batch, cores=cores),
        streams,
        threshold_ms,
        all_layers,
    )
    return asked.run(
        extensions,
        lambda progress: None if seen is None else seen.append(progress),
        lambda plan: None if plans is None else plans.append(plan),
    )


def test_one_model_at_every_configuration(models: Path, extensions: Extensions) -> None:
    seen: list[Progress] = []
    plans: list[str] = []
    found = sweep(
        models, ["base.onnx"], extensions, batch=(1, 4), streams=(1, 2), seen=seen, plans=plans
    )
    (plan,) = plans
    assert plan == (
        "4 configurations, up to 30.0 s each, and the best in detail: up to 2 min 30 s; more if "
        "sessions take longer than 15.0 s to load"
    )
    # The rounds of the detail have half of the time of a configuration, and its layers the other.
    *_, last_load = (progress for progress in seen if progress.step == "load")
    assert known(last_load.seconds_left) <= 15.0

    (side,) = found.sides
    assert [point.id for point in side.points] == ["b1-c1", "b1-c1-s2", "b4-c1", "b4-c1-s2"]
    one, four = side.point("b1-c1"), side.point("b4-c1")
    # The engine takes 200 us whatever the batch.
    assert one.p50_ms == pytest.approx(0.2, rel=0.01)
    assert known(one.throughput).value == pytest.approx(5000, rel=0.01)
    assert known(four.throughput).value == pytest.approx(4 * 5000, rel=0.01)
    assert side.spot.best == "b4-c1-s2"
    assert {(s.of, s.base, s.id, s.factor) for s in side.scaling} == {
        ("batch", "b1-c1", "b4-c1", 4.0),
        ("batch", "b1-c1-s2", "b4-c1-s2", 4.0),
        ("streams", "b1-c1", "b1-c1-s2", 2.0),
        ("streams", "b4-c1", "b4-c1-s2", 2.0),
    }
    assert found.changes == ()
    assert found.comparison is None
    assert found.profile is not None
    assert [case.case.id for case in found.profile.cases] == [side.spot.best.removesuffix("-s2")]
    assert found.passes >= POLICY.min_rounds
    assert found.machine is not None
    assert {progress.case_id for progress in seen} >= {"b1-c1", "b1-c1-s2", "b4-c1", "b4-c1-s2"}


def test_all_layers_are_those_of_every_case(models: Path, extensions: Extensions) -> None:
    plans: list[str] = []
    sizes: dict[str, Any] = {"batch": (1, 4), "streams": (1, 2), "all_layers": True}
    found = sweep(models, ["base.onnx"], extensions, plans=plans, **sizes)
    assert plans[0].startswith(
        "4 configurations, up to 30.0 s each, and 2 cases in detail: up to 3 min"
    )
    assert [case.case.id for case in known(found.profile).cases] == ["b1-c1", "b4-c1"]

    found = sweep(models, ["base.onnx", "slow_800us.onnx"], extensions, **sizes)
    assert [case.id for case in known(found.comparison).cases] == ["b1-c1", "b4-c1"]


def test_two_models_are_compared_if_they_were_measured_together(
    models: Path, extensions: Extensions
) -> None:
    found = sweep(models, ["base.onnx", "slow_800us.onnx"], extensions, threshold_ms=0.5)

    before, after = found.sides
    assert before.model.name == "base.onnx"
    assert before.spot.best == "b1-c1"
    assert after.spot.best is None
    (change,) = found.changes
    assert change.latency.value == pytest.approx(4.0, rel=0.01)
    assert change.throughput.value == pytest.approx(1 / 4, rel=0.01)
    assert known(found.comparison).verdict.value == "regressed"
    assert found.profile is None


def test_too_many_cores_are_skipped_and_the_rest_is_measured(
    models: Path, extensions: Extensions
) -> None:
    found = sweep(models, ["base.onnx"], extensions, cores=(1, 100_000))

    one, many = found.sides[0].points
    assert one.latency is not None
    assert many.outcome is Outcome.SKIPPED
    assert "100000 cores are wanted" in (many.reason or "")
    assert not found.has_failed


def test_a_model_that_fails_leaves_the_other_alone(models: Path, extensions: Extensions) -> None:
    found = sweep(models, ["crash.onnx", "base.onnx"], extensions, batch=(1, 2))

    before, after = found.sides
    assert all(point.outcome is Outcome.FAILED for point in before.points)
    assert all("it does not load" in (point.reason or "") for point in before.points)
    assert all(point.latency is not None for point in after.points)
    assert found.changes == ()
    assert after.spot.best == "b2-c1"


def test_a_sweep_without_measured_cases_has_failed(models: Path, extensions: Extensions) -> None:
    found = sweep(models, ["crash.onnx"], extensions)
    assert found.has_failed
    assert found.sides[0].spot.best is None
    assert found.profile is None


def test_a_worker_that_dies_is_replaced(
    models: Path, extensions: Extensions, tmp_path: Path
) -> None:
    options = {"at": "7", "do": "signal", "once": str(tmp_path / "once")}
    found = sweep(models, ["base.onnx"], extensions, "faulty", batch=(1, 2, 4), options=options)

    points = found.sides[0].points
    assert sum(point.outcome is Outcome.FAILED for point in points) == 1
    assert sum(point.latency is not None for point in points) == 2


def test_models_at_different_batches_cannot_be_compared(
    tmp_path: Path, extensions: Extensions
) -> None:
    for size in (1, 2):
        text = MODEL.replace("float[N", f"float[{size}")
        save_model(tmp_path, parse(text, weights={"w": ones(16, 8)}), f"{size}.onnx")
    setup = Setup(engine=extensions.engines.find("timed"), policy=POLICY)
    sides = tuple(ModelRun(str(tmp_path / f"{size}.onnx"), setup) for size in (1, 2))
    with pytest.raises(UsageError, match=r"runs at batch sizes 1 and 2\.onnx at 2"):
        SweepRequest(sides, ProfileRequest()).run(extensions)


def test_models_with_other_phases_cannot_be_compared(tmp_path: Path) -> None:
    """The second takes one token at a time, so that it has no prefill."""
    model = make_decoder()
    save_model(tmp_path, model, "both.onnx")
    for info in model.graph.input:
        if info.name == "input_ids":
            info.type.tensor_type.shape.dim[1].dim_value = 1
    save_model(tmp_path, model, "steps.onnx")
    setup = Setup(policy=POLICY)
    sides = tuple(ModelRun(str(tmp_path / name), setup) for name in ("both.onnx", "steps.onnx"))
    request = ProfileRequest(generations=(Generation(8, 4),))
    for pair in (sides, sides[::-1]):
        with pytest.raises(UsageError, match=r"both\.onnx has the phase prefill and step"):
            SweepRequest(pair, request).run(Extensions())


@pytest.mark.parametrize(
    ("left_seconds", "most"),
    [(300.0, 15.0), (20.0, 10.0), (-5.0, 3.75)],
    ids=["all", "less", "none"],
)
def test_the_detail_takes_the_time_that_the_passes_left(
    models: Path, extensions: Extensions, left_seconds: float, most: float
) -> None:
    swept = sweep(models, ["base.onnx"], extensions)
    setup = Setup(engine=extensions.engines.find("timed"), policy=POLICY)
    source = ModelRun(str(models / "base.onnx"), setup)
    seen: list[Progress] = []
    look_closer(swept, [source], ProfileRequest(), left_seconds, extensions, seen.append)
    first_load = next(progress for progress in seen if progress.step == "load")
    assert first_load.seconds_left == most


def test_a_model_without_a_batch_is_looked_at_closely(
    tmp_path: Path, extensions: Extensions
) -> None:
    text = "g (float[4] x, float[3] z) => (float[4] y, float[3] v) { y = Relu(x) v = Abs(z) }"
    save_model(tmp_path, parse(text), "two.onnx")
    setup = Setup(engine=extensions.engines.find("timed"), policy=POLICY)
    asked = SweepRequest((ModelRun(str(tmp_path / "two.onnx"), setup),), ProfileRequest())
    found = asked.run(extensions)
    assert [case.case.id for case in known(found.profile).cases] == ["b1-c1"]


@pytest.fixture(params=["onnxruntime", "openvino"])
def real_engine(request: pytest.FixtureRequest) -> EngineModule:
    name = str(request.param)
    pytest.importorskip(name, reason=f"needs the extra {name}")
    return BUILT_IN[name]


@pytest.mark.parametrize("streams", [1, 3])
def test_requests_of_one_session_run_at_once_and_each_has_outputs_of_its_own(
    models: Path, real_engine: EngineModule, streams: int
) -> None:
    x = np.arange(32, dtype=np.float32).reshape(2, 16)
    agent = Agent()
    agent.use_engine(importlib.import_module(real_engine.module))
    agent.do_inputs({"x": ("float32", "float32", x.shape, x.tobytes())})
    agent.do_open("a", str(models / "base.onnx"), None, 1, {}, streams=streams)
    together = threading.Barrier(streams, timeout=60)

    def infer(request: Callable[[], Any]) -> npt.NDArray[Any]:
        together.wait()
        answer = request()
        (y,) = answer.values() if isinstance(answer, Mapping) else answer
        return np.asarray(y)

    with ThreadPoolExecutor(streams) as threads:
        found = list(threads.map(infer, agent._infer["a"]))
    assert len(found) == streams
    for y in found:
        # Exact in bfloat16 too, which some processors compute in.
        np.testing.assert_array_equal(y, x @ ones(16, 8))
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(found, 2))


def test_a_real_engine_has_a_rate_at_every_number_of_streams(
    models: Path, extensions: Extensions, real_engine: EngineModule
) -> None:
    found = sweep(models, ["base.onnx"], extensions, real_engine.name, streams=(1, 3))
    (side,) = found.sides
    assert {point.id: point.reason for point in side.points} == {"b1-c1": None, "b1-c1-s3": None}
    assert all(point.throughput is not None for point in side.points)


def sweep_decoder(folder: Path, request: ProfileRequest) -> Sweep:
    path = save_model(folder, make_decoder())
    setup = Setup(
        engine=Extensions().engines.find("onnxruntime"), policy=SamplingPolicy(max_seconds=0.5)
    )
    return SweepRequest((ModelRun(path, setup),), request).run(Extensions())


def test_the_lengths_of_a_generation_are_axes(tmp_path: Path) -> None:
    """Each phase at each length is a configuration; the best is a step, and looked at closely."""
    generations = tuple(Generation(prompt, 4) for prompt in (8, 16))
    found = sweep_decoder(tmp_path, ProfileRequest(generations=generations))
    (side,) = found.sides
    ids = {f"b1-c1-prompt{n}-{end}" for n in (8, 16) for end in ("prefill", "generate4-step")}
    assert {point.id for point in side.points} == ids
    assert all(point.latency is not None for point in side.points)
    assert side.spot.best in {each for each in ids if each.endswith("step")}
    assert [case.case.id for case in known(found.profile).cases] == [side.spot.best]


def test_phases_do_not_scale_into_each_other(tmp_path: Path) -> None:
    request = ProfileRequest(batch_sizes=(1, 2), generations=(Generation(8, 4),))
    (side,) = sweep_decoder(tmp_path, request).sides
    assert {(each.base, each.id) for each in side.scaling} == {
        (f"b1-c1-prompt8-{phase}", f"b2-c1-prompt8-{phase}")
        for phase in ("prefill", "generate4-step")
    }
