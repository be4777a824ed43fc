"""A case is judged by what the engine runs: by its plan, by the parts that changed, or as a whole.

The engine is the real one, and no test asks how long anything took.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.support.small_models import parse

pytestmark = pytest.mark.slow

LAYERS = 6
WIDTH = 192
# The tolerance is so large that no change of these models leaves a case open.
WIDE = "p50=200 %"
LIMITS = ("--modelperf-max-seconds", "3", "--modelperf-tolerance", WIDE)


def stack(
    activation: str = "Relu",
    seed: int = 0,
    *,
    product: str = "MatMul",
    activates_first: bool = False,
) -> onnx.ModelProto:
    """Products one after the other, each with an activation after or before it."""
    random = np.random.default_rng(seed)
    weights: dict[str, Any] = {}
    lines, source = [], "x"
    for layer in range(LAYERS):
        weights[f"w{layer}"] = random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 14
        target = "y" if layer == LAYERS - 1 else f"a{layer}"
        if activates_first:
            lines.append(f"m{layer} = {activation} ({source})")
            lines.append(f"[product{layer}] {target} = {product} (m{layer}, w{layer})")
        else:
            lines.append(f"[product{layer}] m{layer} = {product} ({source}, w{layer})")
            lines.append(f"{target} = {activation} (m{layer})")
        source = target
    graph = f"g (float[64,{WIDTH}] x) => (float[64,{WIDTH}] y) {{ {' '.join(lines)} }}"
    return parse(graph, weights=weights)


def gated(weight: float) -> onnx.ModelProto:
    """Two products that run only if the sign of a weight says so."""
    shape = (WIDTH, WIDTH)
    weights: dict[str, Any] = {
        "gate": np.full(shape, weight, np.float32),
        "v": np.random.default_rng(0).standard_normal(shape).astype(np.float32),
    }
    graph = f"""g (float[64,{WIDTH}] x) => (float[64,{WIDTH}] y) {{
        size = Abs (x)
        score = MatMul (size, gate)
        sum = ReduceSum <keepdims = 0> (score)
        zero = Constant <value_float = 0.0> ()
        c = Greater (sum, zero)
        y = If (c) <
            then_branch = a () => (float[64,{WIDTH}] p) {{ q = MatMul (x, v) p = MatMul (q, v) }},
            else_branch = b () => (float[64,{WIDTH}] r) {{ r = Identity (x) }}
        >
    }}"""
    return parse(graph, weights=weights)


@pytest.fixture
def recorded(run: pytest.Pytester) -> pytest.Pytester:
    """A folder with the baseline of a stack."""
    record(run, stack())
    return run


def record(run: pytest.Pytester, model: onnx.ModelProto) -> None:
    """Record a baseline whose times are so long that no check takes longer, on any machine."""
    write(run, model)
    result = run.runpytest_inprocess(
        "--modelperf", "--modelperf-update-baseline", *LIMITS, "m.onnx"
    )
    result.assert_outcomes(passed=1)
    scale_times(run, 1000)


def scale_times(run: pytest.Pytester, factor: float) -> None:
    """Have the baseline say that the model took this many times as long when it was recorded."""
    (path,) = run.path.glob("baselines/m/*-*.json")
    document = json.loads(path.read_text())
    for process in document["cases"]["b64-c1"]["processes"]:
        process["times_ns"] = [
            [max(1, round(ns * factor)) for ns in times] for times in process["times_ns"]
        ]
    path.write_text(json.dumps(document))


def write(run: pytest.Pytester, model: onnx.ModelProto) -> None:
    (run.path / "m.onnx").write_bytes(model.SerializeToString())


def judged(run: pytest.Pytester, *options: str, **outcomes: int) -> dict[str, Any]:
    """The only case of a run, whose outcomes have to be these if any are given."""
    arguments = ("--modelperf", "--modelperf-json", "run.json", *LIMITS, *options, "m.onnx")
    result = run.runpytest_inprocess(*arguments)
    if outcomes:
        result.assert_outcomes(**outcomes)
    found: dict[str, Any]
    (found,) = json.loads((run.path / "run.json").read_text())["cases"]
    return found


def checked(run: pytest.Pytester, *options: str) -> dict[str, Any]:
    """The only case of a run that has to pass."""
    return judged(run, *options, passed=1)


def stored_case(run: pytest.Pytester) -> dict[str, Any]:
    document = json.loads((run.path / "baselines/m/model.json").read_text())
    found: dict[str, Any] = document["cases"]["b64-c1"]
    return found


def p50(case: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(m for m in case["metrics"] if m["name"] == "latency_p50")
    return found


def test_a_recording_needs_no_duet_if_the_plans_are_the_same(recorded: pytest.Pytester) -> None:
    case = stored_case(recorded)
    assert case["fidelity"] == {
        "has_same_plan": True,
        "interval": None,
        "is_trusted": True,
        "ratio": None,
        "reason": None,
        "rounds": 0,
    }
    assert case["plan"]["kernels"] >= LAYERS


def test_a_retrained_model_passes_by_its_plan(recorded: pytest.Pytester) -> None:
    kernels = stored_case(recorded)["plan"]["kernels"]
    write(recorded, stack(seed=1))
    case = checked(recorded)
    assert (case["verdict"], case["how"]) == ("passed", "plan")
    assert (p50(case)["ratio"], p50(case)["before"], p50(case)["verdict"]) == (1.0, None, "passed")
    # A busy machine may run too few inferences for a median.
    assert case["latency"]["mean_ms"] > 0
    assert case["rounds"] == 1
    (note,) = (each for each in case["notes"] if each.startswith("same plan: "))
    assert f" {kernels} kernels " in note


def test_a_check_that_a_plan_settles_imports_nothing_that_only_measurements_need(
    recorded: pytest.Pytester,
) -> None:
    unwanted = {
        "jinja2", "onnxruntime", "scipy", "pytest_modelperf.profiler.doctor",
        "pytest_modelperf.profiler.worker.agent", "pytest_modelperf.programs.callables",
        "pytest_modelperf.sweep", "pytest_modelperf.whatif",
    }  # fmt: skip
    recorded.makeconftest(f"""
        import sys

        def pytest_unconfigure():
            print("unwanted:", sorted({unwanted} & set(sys.modules)))
        """)
    write(recorded, stack(seed=1))
    options = ("-s", "--modelperf", "--modelperf-json", "run.json", *LIMITS, "m.onnx")
    recorded.runpytest_subprocess(*options).stdout.fnmatch_lines(["unwanted: []"])
    (case,) = json.loads((recorded.path / "run.json").read_text())["cases"]
    assert case["how"] == "plan"


def test_a_retrained_model_that_takes_the_same_branch_passes_by_its_plan(
    run: pytest.Pytester,
) -> None:
    record(run, gated(1.0))
    write(run, gated(1.01))
    case = checked(run)
    assert (case["verdict"], case["how"]) == ("passed", "plan")


def test_a_retrained_model_that_takes_another_branch_is_measured(run: pytest.Pytester) -> None:
    record(run, gated(-1.0))
    write(run, gated(1.0))
    assert judged(run)["how"] != "plan"


def test_a_model_that_runs_longer_than_recorded_is_measured_although_its_plan_is_the_same(
    recorded: pytest.Pytester,
) -> None:
    scale_times(recorded, 1e-6)
    write(recorded, stack(seed=1))
    case = checked(recorded)
    assert (case["verdict"], case["how"]) == ("passed", "duet")
    (note,) = (each for each in case["notes"] if each.startswith("the plan is the recorded one"))
    assert re.fullmatch(
        r".*, but the model took \d+\.\d times as long as recorded: compared as a duet", note
    )


def test_times_of_another_model_or_engine_raise_no_doubt_of_a_plan(
    recorded: pytest.Pytester,
) -> None:
    scale_times(recorded, 1e-6)
    (path,) = recorded.path.glob("baselines/m/*-*.json")
    document = json.loads(path.read_text())
    document["cases"]["b64-c1"]["engine"]["version"] = "0.1"
    path.write_text(json.dumps(document))
    write(recorded, stack(seed=1))
    assert checked(recorded)["how"] == "plan"


def test_a_larger_file_with_the_same_plan_is_worse(recorded: pytest.Pytester) -> None:
    model = stack(seed=1)
    onnx.helper.set_model_props(model, {"notes": "x" * (2 << 20)})
    write(recorded, model)
    case = judged(recorded, failed=1)
    assert (case["verdict"], case["how"]) == ("regressed", "plan")
    worse = [m["name"] for m in case["metrics"] if m["gated"] and m["verdict"] == "regressed"]
    assert worse == ["size_bytes"]


def test_the_duet_runs_all_the_same_if_it_is_asked_for_or_a_tolerance_needs_it(
    recorded: pytest.Pytester,
) -> None:
    write(recorded, stack(seed=1))
    case = checked(recorded, "--modelperf-measure", "always")
    assert (case["verdict"], case["how"]) == ("passed", "duet")
    assert case["rounds"] >= 4
    assert any(note.startswith("same plan: ") for note in case["notes"])
    assert checked(recorded, "--modelperf-tolerance", f"{WIDE},load=300 %")["how"] == "duet"


def test_a_baseline_without_the_digest_of_a_plan_has_its_twin_asked(
    recorded: pytest.Pytester,
) -> None:
    path = recorded.path / "baselines/m/model.json"
    document = json.loads(path.read_text())
    document["cases"]["b64-c1"]["plan"] = None
    path.write_text(json.dumps(document))
    write(recorded, stack(seed=1))
    case = checked(recorded)
    assert (case["verdict"], case["how"]) == ("passed", "plan")


@pytest.mark.parametrize(
    "other", [stack("Sign"), stack(activates_first=True)], ids=["operator", "order"]
)
def test_the_plan_of_another_model_of_the_same_counts_is_not_believed(
    other: onnx.ModelProto, recorded: pytest.Pytester
) -> None:
    folder = recorded.path / "baselines/m"
    shutil.copytree(folder, recorded.path / "kept")
    write(recorded, other)
    update = ("--modelperf", "--modelperf-update-baseline", *LIMITS, "m.onnx")
    recorded.runpytest_inprocess(*update).assert_outcomes(passed=1)
    plan = stored_case(recorded)["plan"]
    shutil.rmtree(folder)
    shutil.copytree(recorded.path / "kept", folder)
    document = json.loads((folder / "model.json").read_text())
    document["cases"]["b64-c1"]["plan"] = plan
    (folder / "model.json").write_text(json.dumps(document))
    assert judged(recorded)["how"] != "plan"


def test_an_older_model_with_the_same_plan_needs_no_duet(run: pytest.Pytester) -> None:
    write(run, stack())
    Path(run.path / "m.onnx").rename(run.path / "old.onnx")
    write(run, stack(seed=1))
    assert checked(run, "--modelperf-against", "old.onnx")["how"] == "plan"


def test_a_budget_has_the_time_that_it_needs(recorded: pytest.Pytester) -> None:
    write(recorded, stack(seed=1))
    settings = '[tool.modelperf.models."m.onnx"]\nbudget = { latency_ms = 1000 }\n'
    (recorded.path / "pyproject.toml").write_text(settings)
    case = checked(recorded)
    assert case["how"] == "plan"
    assert case["rounds"] >= 5


def test_a_change_of_most_of_the_model_is_judged_as_a_whole(recorded: pytest.Pytester) -> None:
    write(recorded, stack(seed=1, product="Gemm <transB = 1>"))
    case = checked(recorded)
    assert (case["how"], case["parts"]) == ("duet", [])
    (note,) = [note for note in case["notes"] if note.startswith("judged by the whole model: ")]
    assert re.fullmatch(r".*: kernels that take \d+ % of it changed", note)
