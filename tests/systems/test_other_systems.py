"""Runs on systems that lack what Linux has: what works there, and what it says of the rest."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import environment
from tests.support.project import write_dense

if sys.platform != "linux":
    pytest.skip("hides from Linux what other systems lack", allow_module_level=True)

from tests.support.other_system import sitecustomize

pytestmark = pytest.mark.slow

TABLE = """
[tool.modelperf]
max_seconds = 0.5
[tool.modelperf.models."dense.onnx"]
cores = 1
"""
BUDGET = """
measure = "always"
[tool.modelperf.models."dense.onnx".budget]
peak_memory_mb = 1
"""
UNPINNED = "not pinned to its processors: linux cannot pin a process"
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=[sitecustomize.WINDOWS, sitecustomize.MACOS])
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def call(system: str, tmp_path: Path) -> Call:
    """Runs a module on that system, in the folder of a project with one model."""
    write_dense(tmp_path / "dense.onnx")
    (tmp_path / "pyproject.toml").write_text(TABLE, encoding="utf-8")
    folder = Path(sitecustomize.__file__).parent
    own = environment()
    own |= {
        "PYTHONPATH": f"{folder}:{own['PYTHONPATH']}",
        sitecustomize.VARIABLE: system,
        "MODELPERF_LOCK": str(tmp_path / "lock"),
        "PYTEST_ADDOPTS": "-p no:randomly -p no:cacheprovider",
    }

    def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=tmp_path,
            env=own,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stdout + done.stderr
        return done

    return run


def test_counts_are_recorded_judged_and_reported(call: Call, tmp_path: Path) -> None:
    static = ("pytest", "--modelperf", "--modelperf-static-only")
    recorded = call(*static, "--modelperf-update-baseline")
    assert recorded.returncode == 0, recorded.stdout
    assert not list((tmp_path / "baselines").rglob("*.tmp"))
    assert not list((tmp_path / "baselines").rglob(".lock"))
    write_dense(tmp_path / "dense.onnx", width=7)
    reports = [f"--modelperf-{kind}=report.{kind}" for kind in ("json", "html", "markdown")]
    judged = call(*static, "--junitxml=report.xml", *reports)
    assert judged.returncode == 1
    assert "regressed: MACs" in judged.stdout
    document = json.loads((tmp_path / "report.json").read_bytes())
    assert [case["verdict"] for case in document["cases"]] == ["regressed"]
    for name in ("report.html", "report.markdown", "report.xml"):
        assert "dense" in (tmp_path / name).read_text(encoding="utf-8")
    listed = call("pytest_modelperf", "baselines")
    assert "1 baseline in baselines" in listed.stdout


def test_times_are_measured_and_a_note_says_that_nothing_was_pinned(
    call: Call, system: str, tmp_path: Path
) -> None:
    done = call("pytest_modelperf", "profile", "dense.onnx", "--max-seconds=0.5", "--json=out.json")
    assert done.returncode == 0, done.stderr
    [case] = json.loads((tmp_path / "out.json").read_bytes())["cases"]
    assert case["latency"]["p50_ms"] > 0
    assert case["layers"][0]["ms"] > 0
    assert UNPINNED in done.stdout
    # The stand-in for Windows has no kernel32 to ask.
    assert (case["peak_rss_bytes"] is None) == (system == sitecustomize.WINDOWS)


@pytest.mark.parametrize("system", [sitecustomize.WINDOWS], indirect=True)
def test_a_budget_of_a_figure_that_the_system_lacks_is_not_judged(
    call: Call, tmp_path: Path
) -> None:
    with (tmp_path / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(BUDGET)
    done = call("pytest", "--modelperf", "--modelperf-strict", "--modelperf-history=history")
    assert done.returncode == 1
    assert "inconclusive  peak memory unknown" in done.stdout
    assert "passed" not in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("system", [sitecustomize.WINDOWS], indirect=True)
def test_two_models_are_timed_in_turn_and_a_note_says_that_memory_is_not_compared(
    call: Call, tmp_path: Path
) -> None:
    write_dense(tmp_path / "wide.onnx", width=400)
    models = ("dense.onnx", "wide.onnx")
    done = call("pytest_modelperf", "compare", *models, "--max-seconds=0.5", "--json=out.json")
    assert done.returncode == 1, done.stderr
    [case] = json.loads((tmp_path / "out.json").read_bytes())["cases"]
    assert case["rounds"] > 0
    names = {metric["name"] for metric in case["metrics"]}
    assert "latency_p50" in names
    assert "memory_bytes" not in names
    assert "memory is not compared: this system does not report" in done.stdout


@pytest.mark.parametrize("system", [sitecustomize.WINDOWS], indirect=True)
def test_a_machine_that_cannot_serve_a_cluster_says_so(call: Call) -> None:
    done = call("pytest_modelperf", "worker", "tcp://127.0.0.1:1")
    assert done.returncode == 2
    assert "a machine of a cluster runs Linux or macOS" in done.stderr
