"""Cases that are settled together before the first test, and those that an earlier run settled."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
from collections.abc import Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_modelperf.baselines.records import BaselineRecording
from pytest_modelperf.graph.model_file import ModelFile, ModelSource, open_model
from pytest_modelperf.profiler.pairs.plans import save_plan
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig
from pytest_modelperf.profiler.shared_worker import SharedWorkers
from pytest_modelperf.testing import ahead
from pytest_modelperf.testing.ahead import SettledCache
from pytest_modelperf.testing.checking import Checker
from pytest_modelperf.testing.hooks import RunHooks
from pytest_modelperf.testing.settings import is_empty
from tests.support.known import known
from tests.support.project import assert_ended
from tests.support.recordings import record_baseline
from tests.support.timed_models import store
from tests.testing.test_plans import LIMITS, stack

NAMES = ("one", "two", "three")
JSON = ("--modelperf-json", "run.json")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Sequence[BaselineRecording]:
    """Baselines whose times are so long that no check takes longer, on any machine."""
    folder = tmp_path_factory.mktemp("recorded")
    setup = Setup(policy=SamplingPolicy(max_seconds=3.0))
    found = []
    for seed, name in enumerate(NAMES):
        path = folder / f"{name}.onnx"
        path.write_bytes(stack(seed=seed).SerializeToString())
        found.append(
            record_baseline(name, str(path), ProfileRequest(), setup, dt.date(2026, 1, 31))
        )
    return found


def write(run: pytest.Pytester, name: str, seed: int, activation: str = "Relu") -> None:
    (run.path / f"{name}.onnx").write_bytes(stack(activation, seed=seed).SerializeToString())


def scale(run: pytest.Pytester, name: str, factor: float, **starts: int) -> None:
    """Change the times of a baseline, and its loads or first inferences."""
    (path,) = run.path.glob(f"baselines/{name}/*-*.json")
    document = json.loads(path.read_text())
    for process in document["cases"]["b64-c1"]["processes"]:
        process["times_ns"] = [[round(ns * factor) for ns in each] for each in process["times_ns"]]
        for key, value in starts.items():
            process[key] = [value for _ in process[key]]
    path.write_text(json.dumps(document))


@pytest.fixture
def retrained(run: pytest.Pytester, recordings: Sequence[BaselineRecording]) -> pytest.Pytester:
    """Three models with baselines, each replaced by itself with other weights."""
    for model in run.path.glob("*.onnx"):
        model.unlink()
    for seed, recording in enumerate(recordings, 10):
        store(recording, run.path / "baselines")
        scale(run, recording.name, 1000)
        write(run, recording.name, seed)
    return run


def check(run: pytest.Pytester, *options: str) -> pytest.RunResult:
    has_files = any(option.endswith((".onnx", ".py")) for option in options)
    files = () if has_files else [f"{name}.onnx" for name in NAMES]
    return run.runpytest_inprocess("--modelperf", *LIMITS, *JSON, *options, *files)


def cases(run: pytest.Pytester) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = json.loads((run.path / "run.json").read_text())["cases"]
    return found


@pytest.fixture
def checked_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tests whose cases were not settled before."""
    tests: list[str] = []
    plain = Checker.check

    def note(self: Checker, check: Any) -> Any:  # noqa: ANN401  # as the method
        tests.append(check.test)
        return plain(self, check)

    monkeypatch.setattr(Checker, "check", note)
    return tests


def test_one_worker_for_each_core_settles_all_models(
    retrained: pytest.Pytester, checked_here: list[str], started: list[subprocess.Popen[bytes]]
) -> None:
    check(retrained).assert_outcomes(passed=3)
    assert not checked_here
    assert 1 <= len(started) <= max(1, os.cpu_count() or 1)
    assert len(started) < len(NAMES) or (os.cpu_count() or 1) >= len(NAMES)
    for case in cases(retrained):
        assert (case["verdict"], case["how"], case["rounds"]) == ("passed", "plan", 1)
        # A busy machine may run too few inferences for a median.
        assert case["latency"]["mean_ms"] > 0
        assert "load and first inference are those of the baseline" in case["notes"]


def test_load_and_first_inference_are_the_recorded_ones(retrained: pytest.Pytester) -> None:
    scale(retrained, "one", 1, load_ns=7_000_000, first_ns=9_000_000)
    check(retrained, "one.onnx").assert_outcomes(passed=1)
    (case,) = cases(retrained)
    assert (case["load_ms"], case["first_inference_ms"]) == (7.0, 9.0)


def test_a_changed_model_is_checked_by_its_test(
    retrained: pytest.Pytester, checked_here: list[str]
) -> None:
    write(retrained, "two", 20, "Sigmoid")
    check(retrained)
    assert checked_here == ["two.onnx::b64-c1"]
    assert [case["how"] for case in cases(retrained)].count("plan") == 2


def test_a_plan_that_differs_is_made_once_before_the_duet(
    retrained: pytest.Pytester, checked_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = retrained.path / "baselines/two/model.json"
    document = json.loads(path.read_text())
    document["cases"]["b64-c1"]["plan"]["digest"] = "0" * 32
    path.write_text(json.dumps(document))
    saved: list[str] = []

    def save(rig: Rig, *arguments: Any, **options: Any) -> object:  # noqa: ANN401  # as the function
        saved.append(str(rig.workload.model))
        return save_plan(rig, *arguments, **options)

    monkeypatch.setattr("pytest_modelperf.comparing.settled.save_plan", save)
    check(retrained)
    assert checked_here == ["two.onnx::b64-c1"]
    assert len(saved) == 3


def test_a_model_that_a_fixture_writes_is_checked_as_it_is_then(
    retrained: pytest.Pytester, checked_here: list[str]
) -> None:
    retrained.makeconftest("""
        import os, pytest

        @pytest.fixture(scope="session", autouse=True)
        def export(pytestconfig):
            os.utime(pytestconfig.rootpath / "two.onnx", ns=(1, 1))
        """)
    retrained.makepyfile("""
        import pytest

        @pytest.mark.perf_case(model="one.onnx", batch_size=64)
        @pytest.mark.perf_case(model="two.onnx", batch_size=64)
        def test_model(): pass
        """)
    check(retrained, "test_a_model_that_a_fixture_writes_is_checked_as_it_is_then.py")
    assert [case["verdict"] for case in cases(retrained)] == ["passed", "passed"]
    (test,) = checked_here
    assert "two" in test


def test_a_cache_is_empty_until_a_case_is_kept(retrained: pytest.Pytester) -> None:
    cache = known(SettledCache.of_user())
    assert is_empty(cache.folder)
    check(retrained, "one.onnx").assert_outcomes(passed=1)
    assert not is_empty(cache.folder)


def test_workers_start_before_a_model_is_read_if_nothing_is_kept(
    retrained: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    start = SharedWorkers.start

    def note_read(source: ModelSource) -> ModelFile:
        steps.append("read")
        return open_model(source)

    def note_start(self: SharedWorkers, setup: Setup, cores: int, places: int) -> None:
        steps.append("start")
        start(self, setup, cores, places)

    monkeypatch.setattr(ahead, "open_model", note_read)
    monkeypatch.setattr(SharedWorkers, "start", note_start)
    for options, first in (((), "start"), ((), "read"), (("--modelperf-no-cache",), "start")):
        steps.clear()
        check(retrained, "one.onnx", *options).assert_outcomes(passed=1)
        assert steps[0] == first


def test_the_first_model_has_the_worker_that_started_before_the_collection(
    retrained: pytest.Pytester, started: list[subprocess.Popen[bytes]]
) -> None:
    retrained.makepyfile("""
        import pytest

        @pytest.mark.perf_case(model="one.onnx", batch_size=64)
        def test_model(): pass
        """)
    check(retrained, *map(str, retrained.path.glob("test_*.py"))).assert_outcomes(passed=1)
    assert [case["how"] for case in cases(retrained)] == ["plan"]
    assert len(started) == 1


def test_a_worker_that_started_too_early_is_replaced(
    retrained: pytest.Pytester,
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SET_BY_CONFTEST", "before")
    retrained.makeconftest("""
        import os

        def pytest_collection():
            os.environ["SET_BY_CONFTEST"] = "after"
        """)
    check(retrained, "one.onnx").assert_outcomes(passed=1)
    assert [case["how"] for case in cases(retrained)] == ["plan"]
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_a_run_that_cannot_collect_ends_the_worker_that_started_early(
    retrained: pytest.Pytester, started: list[subprocess.Popen[bytes]]
) -> None:
    retrained.makepyfile(test_broken="import missing_module")
    check(retrained, "one.onnx", "test_broken.py").assert_outcomes(errors=1)
    assert all(process.poll() is not None for process in started)


@pytest.mark.parametrize(
    "options",
    [
        ("--collect-only",),
        ("--modelperf-static-only",),
        ("--modelperf-update-baseline",),
        ("--modelperf-engine=openvino",),
        ("--modelperf-baseline-dir=none",),
        ("-pxdist.plugin", "-n=1"),
    ],
)
def test_no_worker_starts_early_if_no_plan_is_needed_here(
    retrained: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: Sequence[str]
) -> None:
    early: list[object] = []
    plain = RunHooks.__init__

    def note(self: RunHooks, config: Any, settings: Any, workers: Any) -> None:  # noqa: ANN401  # as the method
        early.append(workers)
        plain(self, config, settings, workers)

    monkeypatch.setattr(RunHooks, "__init__", note)
    check(retrained, "one.onnx", "-k=nothing", *options)
    assert early == [None]


def test_a_case_settled_by_an_earlier_run_starts_no_worker(
    retrained: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(retrained).assert_outcomes(passed=3)
    before = cases(retrained)

    def start(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a worker was started")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", start)
        check(retrained).assert_outcomes(passed=3)
        assert [case["latency"] for case in cases(retrained)] == [
            case["latency"] for case in before
        ]
        for case in cases(retrained):
            (note,) = (each for each in case["notes"] if "earlier run" in each)
            assert (
                note == "found in an earlier run for the same model, baseline, engine and processor"
            )
            assert case["seconds"] == 0
    check(retrained, "--modelperf-no-cache").assert_outcomes(passed=3)
    assert all("earlier run" not in note for case in cases(retrained) for note in case["notes"])


@pytest.mark.parametrize("changed", ["model", "baseline", "tolerance"])
def test_a_kept_answer_holds_only_for_the_same_model_baseline_and_tolerance(
    retrained: pytest.Pytester, started: list[subprocess.Popen[bytes]], changed: str
) -> None:
    check(retrained, "one.onnx").assert_outcomes(passed=1)
    started.clear()
    if changed == "model":
        write(retrained, "one", seed=20)
    elif changed == "baseline":
        scale(retrained, "one", 2)
    options = ("--modelperf-tolerance=0.1",) if changed == "tolerance" else ()
    check(retrained, "one.onnx", *options).assert_outcomes(passed=1)
    assert started


def test_a_case_with_a_budget_is_not_kept(
    retrained: pytest.Pytester, started: list[subprocess.Popen[bytes]]
) -> None:
    """A budget may limit what no key holds, such as the size of a distribution."""
    retrained.makepyfile("""
        import pytest

        @pytest.mark.perf_case(model="one.onnx", batch_size=64)
        @pytest.mark.perf_budget(macs=10**9)
        def test_model(): pass
        """)
    for _ in range(2):
        started.clear()
        check(retrained, "test_a_case_with_a_budget_is_not_kept.py").assert_outcomes(passed=1)
        (case,) = cases(retrained)
        assert (case["how"], case["verdict"]) == ("plan", "passed")
        assert started


def test_a_broken_file_of_the_cache_is_none(retrained: pytest.Pytester) -> None:
    check(retrained, "one.onnx").assert_outcomes(passed=1)
    (path,) = Path(f"{retrained.path}-cache", "settled").iterdir()
    path.write_text("{")
    check(retrained, "one.onnx").assert_outcomes(passed=1)
    (case,) = cases(retrained)
    assert not any("earlier run" in note for note in case["notes"])


def test_a_cache_that_cannot_be_written_keeps_nothing(
    retrained: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = retrained.path / "file"
    file.touch()
    monkeypatch.setenv("MODELPERF_CACHE_DIR", str(file))
    for _ in range(2):
        check(retrained, "one.onnx").assert_outcomes(passed=1)
        assert not any("earlier run" in note for case in cases(retrained) for note in case["notes"])


def test_the_oldest_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_modelperf.testing.ahead._MOST_FILES", 4)
    cache = SettledCache(tmp_path / "settled", run="1")
    cache.prune()
    for number in range(5):
        cache.note_unsettled(str(number))
        os.utime(tmp_path / "settled" / f"{number}.1", (number, number))
    cache.prune()
    assert {path.name for path in (tmp_path / "settled").iterdir()} == {"3.1", "4.1"}


def test_workers_of_one_run_plan_each_model_once(
    retrained: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of pytest-xdist have all tests; here one after the other."""
    write(retrained, "two", 20, "Sigmoid")
    settled: list[str] = []
    plain = Checker.settle

    def settle(self: Checker, check: Any, *others: Any) -> Any:  # noqa: ANN401  # as the method
        settled.append(check.test)
        return plain(self, check, *others)

    monkeypatch.setattr(Checker, "settle", settle)
    retrained.makeconftest("""
        def pytest_configure(config):
            config.workerinput = {"testrunuid": "a run"}
        """)
    for _ in range(2):
        check(retrained, "-p", "no:terminal")
    assert sorted(settled) == [f"{name}.onnx::b64-c1" for name in sorted(NAMES)]


def test_a_machine_that_cannot_be_used_is_reported_by_each_test(
    retrained: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, checked_here: list[str]
) -> None:
    monkeypatch.setenv("MODELPERF_LOCK", str(retrained.path / "one.onnx" / "lock"))
    assert_ended(check(retrained), failed=3)
    assert len(checked_here) == 3


def test_an_interrupt_ends_the_workers(
    retrained: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    started: list[subprocess.Popen[bytes]],
) -> None:
    plain = futures.as_completed

    def interrupt(settling: Any) -> Any:  # noqa: ANN401  # as the function
        yield next(iter(plain(settling)))
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_modelperf.testing.ahead.as_completed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        check(retrained)
    assert started
    assert all(worker.poll() is not None for worker in started)
