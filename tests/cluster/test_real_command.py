"""The commands that take `--cluster`, on a real cluster."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.profiler.engines.source import EngineModule
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.bisect.test_commits import Repository, repository  # noqa: F401  # a fixture
from tests.support.checkout import ROOT
from tests.support.clusters import ClusterProcesses, joined
from tests.support.command import run
from tests.support.recordings import record_baseline
from tests.support.repository import git
from tests.support.timed_models import store, write_timed

pytestmark = pytest.mark.slow

TIMED = ("--engine", "timed", "--plugin", "tests.support.faulty_plugin", "--max-seconds", "30")


def test_a_profile_says_what_the_machines_measured(
    processes: ClusterProcesses, tmp_path: Path
) -> None:
    path, document = tmp_path / "slow_400us.onnx", tmp_path / "profile.json"
    write_timed(path)
    with joined(processes.file, machines=2):
        place = ("--cluster", str(processes.file), "--machine", "first,elsewhere")
        result = run(
            "profile", str(path), "--batch", "1,8", *TIMED, *place, "--json", str(document)
        )
    assert result.exit_code == 0, result.err
    cases = json.loads(document.read_text())["cases"]
    assert [case["id"] for case in cases] == ["b1-c1", "b8-c1"]
    assert [round(case["latency"]["p50_ms"], 1) for case in cases] == [0.4, 0.4]
    assert "b8-c1" in result.out


def test_a_kind_of_machine_that_is_not_there_is_one_error(
    processes: ClusterProcesses, tmp_path: Path
) -> None:
    path = tmp_path / "slow_400us.onnx"
    write_timed(path)
    with joined(processes.file, machines=2):
        place = ("--cluster", str(processes.file), "--machine", "gpu")
        result = run("profile", str(path), *TIMED, *place)
    assert result.exit_code == 3
    assert "no machine gpu. " in result.err


def test_a_plugin_that_a_machine_lacks_is_one_error(
    processes: ClusterProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "slow_400us.onnx"
    write_timed(path)
    registers = "def modelperf_register_operators(operators):\n    pass\n"
    (tmp_path / "only_here.py").write_text(registers)
    monkeypatch.syspath_prepend(tmp_path)
    with joined(processes.file, machines=2):
        place = ("--cluster", str(processes.file), "--plugin", "only_here")
        result = run("profile", str(path), *TIMED, *place)
    assert result.exit_code == 3
    assert "cannot import only_here, whose hooks this run uses: " in result.err


def test_a_machine_needs_the_versions_of_both_engines(
    own_processes: ClusterProcesses, tmp_path: Path
) -> None:
    path = tmp_path / "slow_400us.onnx"
    write_timed(path)
    fake = tmp_path / "packages" / "onnxruntime-0.0.1.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime\nVersion: 0.0.1\n")
    own_processes.start_scheduler()
    paths = os.pathsep.join([str(fake.parent), str(ROOT)])
    own_processes.start_worker(environment={"PYTHONPATH": paths})
    with joined(own_processes.file, machines=1):
        for engines in (("timed", "onnxruntime"), ("onnxruntime", "timed")):
            chosen = ("--engine", engines[0], "--engine-b", engines[1])
            place = ("--cluster", str(own_processes.file))
            result = run("compare", str(path), str(path), *TIMED, *chosen, *place)
            assert result.exit_code == 3
            assert " it is 0.0.1: " in result.err


@pytest.fixture
def place(processes: ClusterProcesses) -> Iterator[tuple[str, ...]]:
    """The options that name the cluster, whose machines have both come."""
    with joined(processes.file, machines=2):
        yield "--cluster", str(processes.file)


def write_both(folder: Path) -> tuple[str, str]:
    paths = folder / "base_200us.onnx", folder / "slow_400us.onnx"
    for weight, path in enumerate(paths, 1):
        write_timed(path, weight=weight)
    return str(paths[0]), str(paths[1])


def test_a_comparison_says_where_each_case_ran(place: tuple[str, ...], tmp_path: Path) -> None:
    document = tmp_path / "comparison.json"
    before, after = write_both(tmp_path)
    result = run(
        "compare", before, after, "--batch", "1,8", *TIMED, *place, "--json", str(document)
    )
    assert result.exit_code == 1, result.err
    found = json.loads(document.read_text())
    assert found["verdict"] == "regressed"
    assert (found["before"]["path"], found["after"]["path"]) == (before, after)
    assert found["engines"] == ["timed 1"]
    # Both cases share the level of the run.
    assert found["confidence"] == pytest.approx(Gate().divided(2).confidence, abs=1e-6)
    assert [case["id"] for case in found["cases"]] == ["b1-c1", "b8-c1"]
    for case in found["cases"]:
        (median,) = [m for m in case["metrics"] if m["name"] == "latency_p50"]
        assert median["ratio"] == pytest.approx(2.0, rel=0.02)
        assert any(note.startswith("run on machine ") for note in case["notes"])


def test_a_case_that_fails_on_its_machine_says_why_and_keeps_its_counts(
    place: tuple[str, ...], tmp_path: Path
) -> None:
    document = tmp_path / "comparison.json"
    before, _ = write_both(tmp_path)
    write_timed(tmp_path / "crash.onnx", weight=3.0)
    after = str(tmp_path / "crash.onnx")
    result = run("compare", before, after, *TIMED, *place, "--json", str(document))
    assert result.exit_code == 3, result.err
    (case,) = json.loads(document.read_text())["cases"]
    assert "it does not load" in case["failure"]
    assert [m["name"] for m in case["metrics"] if m["after"] is not None] != []


def test_a_baseline_is_compared_on_the_cluster(place: tuple[str, ...], tmp_path: Path) -> None:
    before, after = write_both(tmp_path)
    setup = Setup(
        engine=EngineModule("timed", "tests.support.timed"),
        options={"times": "twin=200"},
        policy=SamplingPolicy(max_seconds=30.0),
    )
    recording = record_baseline("base", before, ProfileRequest(), setup, dt.date(2026, 1, 31))
    store(recording, tmp_path / "baselines")
    stored = str(tmp_path / "baselines" / "base")
    result = run("compare", stored, after, *TIMED, "--engine-option", "times=twin=200", *place)
    assert result.exit_code == 1, result.err + result.out
    assert "regressed" in result.out
    assert "was recorded" in result.out


def test_sizes_that_one_model_fixes_are_refused_before_anything_runs(
    place: tuple[str, ...], tmp_path: Path
) -> None:
    before, _ = write_both(tmp_path)
    result = run("compare", before, before, "--dim", "seq=1,2", *TIMED, *place)
    assert result.exit_code == 2
    assert "seq" in result.err


def test_a_sweep_runs_on_one_machine(place: tuple[str, ...], tmp_path: Path) -> None:
    document = tmp_path / "sweep.json"
    before, after = write_both(tmp_path)
    result = run(
        "sweep",
        after,
        "--against",
        before,
        "--batch",
        "1,8",
        "--streams",
        "1,2",
        *TIMED,
        *place,
        "--machine",
        "second",
        "--json",
        str(document),
    )
    assert result.exit_code == 0, result.err
    found = json.loads(document.read_text())
    assert [side["model"]["path"] for side in found["sides"]] == [before, after]
    assert len(found["sides"][0]["configurations"]) == 4
    assert found["comparison"]["after"]["path"] == after


def test_a_what_if_runs_on_one_machine(place: tuple[str, ...], tmp_path: Path) -> None:
    document = tmp_path / "whatif.json"
    before, _ = write_both(tmp_path)
    times = "times=stored=200 pruned-0.5=100"
    result = run(
        "whatif",
        before,
        "--prune",
        "0.5",
        *TIMED,
        "--engine-option",
        times,
        *place,
        "--json",
        str(document),
    )
    assert result.exit_code == 0, result.err
    found = json.loads(document.read_text())
    assert found["model"]["path"] == before
    assert [level["title"] for level in found["cases"][0]["levels"]] == ["Baseline", "Pruned 0.5"]


def test_a_python_that_a_machine_lacks_is_reported_by_the_machine(
    place: tuple[str, ...], tmp_path: Path
) -> None:
    before, after = write_both(tmp_path)
    result = run("compare", before, after, "--python-a", "/no/such/python", *TIMED, *place)
    assert result.exit_code == 3, result.out
    assert "no worker could be started" in result.out + result.err


def test_a_bisect_takes_commits_from_git_and_sends_their_models(
    place: tuple[str, ...],
    repository: Repository,  # noqa: F811  # a fixture
) -> None:
    repository.change("first", 200)
    git(repository.path, "tag", "v1")
    repository.change("other weights", 200, 2.0)
    slow = repository.change("slow", 300, 3.0)
    repository.change("slow as before", 300, 4.0)
    result = run("bisect", "models/m.onnx", *TIMED, *place, "--commits", "v1..HEAD", "--json", "-")
    assert result.exit_code == 1, result.err
    found = json.loads(result.out)
    (regression,) = found["regressions"]
    assert regression["first_bad"]["name"] == slow
