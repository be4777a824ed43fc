"""A run that measures on a real cluster of processes: two machines, one of them a `board`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tests.support.project import assert_usage_error

pytest.importorskip("distributed", reason="needs the extra `cluster`")

from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.history.records import HistoryLine
from pytest_modelperf.history.store import HistoryStore
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.stats.decisions import share_level
from tests.support.clusters import ClusterProcesses, joined
from tests.support.known import known
from tests.support.project import assert_ended
from tests.support.timed_models import JSON, TIMED, UPDATE, cases_of

pytestmark = pytest.mark.slow

# A run inside of this process forgets the modules that it loads.
import_module("pytest_modelperf.testing.on_cluster")
PLUGIN = ("-p", "tests.support.faulty_plugin")
FAULTY = ("--modelperf", "--modelperf-engine=faulty", *PLUGIN)
TWO = """
    import pytest

    @pytest.mark.perf_case(model="base.onnx", batch_size=[1, 8])
    def test_base(): pass
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    started = ClusterProcesses(tmp_path_factory.mktemp("cluster"))
    try:
        started.start_scheduler()
        started.start_worker("first", "board")
        started.start_worker("second")
        with joined(started.file, machines=2):
            pass
        yield started
    finally:
        started.close()


@pytest.fixture
def own_processes(tmp_path: Path) -> Iterator[ClusterProcesses]:
    """Processes that a test may end."""
    started = ClusterProcesses(tmp_path)
    try:
        yield started
    finally:
        started.close()


def run_on(processes: ClusterProcesses, models: pytest.Pytester, *options: str) -> pytest.RunResult:
    return models.runpytest_inprocess(f"--modelperf-cluster={processes.file}", *options)


def test_a_run_records_and_judges_as_one_without_a_cluster(
    processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    models.makepyfile(TWO)
    assert_ended(
        run_on(processes, models, *TIMED, UPDATE),
        "modelperf: baselines in baselines, *, updating all, on the cluster *scheduler.json",
        "modelperf: 2 cases for 2 machines of *: * (linux-*, first, board), * (linux-*second)",
        "wrote *base.onnx",
        "2 recorded.",
        passed=2,
    )
    key = describe_machine().key
    assert (models.path / "baselines" / "base" / f"{key}.json").is_file()
    models.makepyfile("""
        import pytest

        @pytest.mark.perf_case(model="slow_400us.onnx", baseline="base.onnx", batch_size=1)
        def test_slower(): pass

        @pytest.mark.perf_case(model="equal_200us.onnx", baseline="base.onnx", batch_size=8)
        def test_equal(): pass
        """)
    found = []
    for options in ((f"--modelperf-cluster={processes.file}",), ()):
        judged = models.runpytest_inprocess(*TIMED, JSON, "-rA", *options)
        judged.assert_outcomes(passed=1, failed=1)
        cases = [
            {name: case[name] for name in ("test", "id", "verdict", "static", "accept")}
            | {"p50": round(case["metrics"][0]["ratio"], 1)}
            for case in cases_of(models)
        ]
        tests = [line for line in judged.outlines if line.startswith(("PASSED ", "FAILED "))]
        found.append((cases, tests))
    assert found[0] == found[1]
    assert [case["verdict"] for case in found[0][0]] == ["regressed", "passed"]


def test_models_are_tests_and_keep_their_order(
    processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    names = ["slow_400us.onnx", "base.onnx", "crash.onnx", "fast_100us.onnx"]
    run_on(processes, models, *TIMED, JSON, *names)
    cases = cases_of(models)
    assert [case["test"] for case in cases] == [f"{name}::b1-c1" for name in names]
    assert [case["verdict"] for case in cases] == ["new", "new", None, "new"]
    assert [case["model"]["path"] for case in cases] == [str(models.path / n) for n in names]
    assert [case["machine"] for case in cases if case["latency"]] == [describe_machine().key] * 3


def test_the_fixture_measures_on_the_cluster_too(
    processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    models.makepyfile("""
        import onnx
        import pytest

        @pytest.mark.perf_case(model="base.onnx", machine="board")
        def test_profile(modelperf):
            assert round(modelperf.profile.latency.p50_ms, 1) == 0.2

        def test_call(modelperf):
            profile = modelperf("slow_400us.onnx", batch_size=8)
            assert profile.static.macs == 8 * 16 * 8
            assert round(profile.latency.p50_ms, 1) == 0.4

        def test_compare(modelperf):
            found = modelperf.compare("base.onnx", "slow_400us.onnx")
            (median,) = [m for m in found.metrics if m.name == "latency_p50"]
            assert round(median.ratio, 1) == 2.0

        @pytest.mark.perf_budget(latency_ms=0.3)
        def test_in_memory(modelperf):
            modelperf(onnx.load("base.onnx"))

        @pytest.mark.perf_budget(latency_ms=60_000)
        @pytest.mark.perf_case(model=print, engine="callable")
        def test_function(): pass
        """)
    result = assert_ended(run_on(processes, models, *TIMED, JSON), passed=5)
    (first, memory, function) = cases_of(models)
    assert (memory["model"]["name"], memory["model"]["path"]) == ("the given model", None)
    note = "a Python function cannot be sent to a cluster, so it was measured here"
    assert note in function["notes"]
    assert note not in first["notes"]
    assert f"note: {note}:" in re.sub(r"\s+", " ", result.stdout.str())


def test_cases_requested_by_running_tests_are_measured_on_the_cluster_and_skipped_ones_are_not(
    processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    models.makepyfile("""
        import pytest

        def test_call(request):
            modelperf = request.getfixturevalue("modelperf")
            assert round(modelperf("base.onnx").latency.p50_ms, 1) == 0.2

        @pytest.mark.skipif("True", reason="not here")
        @pytest.mark.perf_case(model="base.onnx")
        def test_skipped(): pass
        """)
    result = run_on(processes, models, *TIMED)
    assert_ended(result, "modelperf: 0 cases for 2 machines of *", passed=1, skipped=1)


def test_each_case_has_a_trace_of_its_layers(
    processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    models.makepyfile(TWO)
    run_on(processes, models, *TIMED, "--modelperf-trace=traces").assert_outcomes(passed=2)
    traces = sorted(models.path.glob("traces/*.json"))
    assert [json.loads(path.read_text())["traceEvents"] != [] for path in traces] == [True, True]


def test_a_first_failure_ends_the_run(processes: ClusterProcesses, models: pytest.Pytester) -> None:
    result = run_on(processes, models, *TIMED, "-x", "crash.onnx", "base.onnx", "slow_400us.onnx")
    assert_ended(result, "*stopping after 1 failures*", failed=1)


def test_an_interrupt_ends_the_run(processes: ClusterProcesses, models: pytest.Pytester) -> None:
    models.makepyfile(f"{TWO}\n    def test_last():\n        raise KeyboardInterrupt\n")
    models.makepyfile(
        test_after="""
        import pytest

        @pytest.mark.perf_case(model="slow_400us.onnx")
        def test_it(): pass
        """
    )
    place = f"--modelperf-cluster={processes.file}"
    # Inside of this process it would end this run as well.
    result = models.runpytest_subprocess(place, *TIMED, UPDATE)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*interrupted: no baseline*"])
    assert not (models.path / "baselines").exists()


def test_arrays_travel_with_their_case_and_more_cores_than_its_machine_has_skip_a_test(
    processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    np.savez(models.path / "two.npz", x=np.ones((2, 16), np.float32))
    models.makepyfile("""
        import pytest

        @pytest.mark.perf_case(model="base.onnx", input_file="two.npz")
        def test_arrays(): pass

        @pytest.mark.perf_case(model="base.onnx", cores=4096)
        def test_cores(): pass
        """)
    run_on(processes, models, *TIMED, JSON).assert_outcomes(passed=1, skipped=1)
    assert [case["id"] for case in cases_of(models)] == ["b2-c1"]


def test_the_older_model_itself_travels_with_its_case(
    processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    against = "--modelperf-against=slow_400us.onnx"
    result = run_on(processes, models, *TIMED, JSON, against, "base.onnx", "fast_100us.onnx")
    result.assert_outcomes(passed=2)
    cases = cases_of(models)
    assert [case["verdict"] for case in cases] == ["improved", "improved"]
    assert [round(case["metrics"][0]["ratio"], 2) for case in cases] == [0.5, 0.25]
    models.makepyfile("""
        import onnx
        import pytest

        @pytest.mark.perf_case(model=onnx.load("base.onnx"), baseline="base.onnx")
        def test_in_memory(): pass
        """)
    result = run_on(processes, models, *TIMED, against)
    assert_ended(
        result, "*is not a file, so --modelperf-against cannot name an older one*", failed=1
    )


def test_a_case_runs_on_each_machine_that_its_table_names(
    processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    models.makepyprojecttoml("""
        [tool.modelperf.models."base.onnx"]
        machines = ["second", "board"]
        """)
    assert_ended(run_on(processes, models, *TIMED, UPDATE, "base.onnx"), passed=2)
    # The twin has another name, so it stays as fast as it was.
    slower = "--modelperf-engine-option=times=base=400"
    judged = assert_ended(run_on(processes, models, *TIMED, JSON, slower, "base.onnx"), failed=2)
    cases = cases_of(models)
    assert [(case["test"], case["verdict"]) for case in cases] == [
        ("base.onnx::b1-c1@second", "regressed"),
        ("base.onnx::b1-c1@board", "regressed"),
    ]
    judged.stdout.re_match_lines([r"base.onnx::b1-c1@second +regressed .*"])
    # Both cases share the level of the run.
    shared = Gate(level=share_level(2)).confidence
    assert {case["confidence"] for case in cases} == {round(shared, 3)}


def test_a_machine_that_is_not_there_is_an_error_before_anything_runs(
    processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    models.makepyprojecttoml("""
        [tool.modelperf.models."base.onnx"]
        machines = ["board", "gpu"]
        """)
    result = run_on(processes, models, *TIMED)
    assert_usage_error(result, "ERROR: *no machine gpu. *board (1), *")
    result = run_on(processes, models, *TIMED, "--modelperf-machine=second", "-k", "board")
    result.stderr.fnmatch_lines(["ERROR: * has no machine board+second. It has: *"])
    result = run_on(processes, models, *TIMED, "--modelperf-machine=board,second", "-k", "board")
    result.assert_outcomes(passed=1, deselected=1)


def test_an_engine_that_only_a_conftest_has_is_an_error_before_anything_runs(
    processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    models.makeconftest("""
        def modelperf_register_engines(engines):
            engines.register("own", module="tests.support.timed")
        """)
    models.makepyfile(TWO)
    result = run_on(processes, models, "--modelperf", "--modelperf-engine=own")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    line = "ERROR: modelperf_register_engines in *conftest.py is only here, and *pytest -p MODULE*"
    result.stderr.fnmatch_lines([line])


def test_a_plugin_that_a_machine_lacks_is_an_error_before_anything_runs(
    processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    models.makepyfile(
        only_here="""
        def modelperf_register_engines(engines):
            engines.register("own", module="tests.support.timed")
        """
    )
    models.makepyfile(TWO)
    place = f"--modelperf-cluster={processes.file}"
    models.syspathinsert()
    result = models.runpytest_subprocess("-p", "only_here", place, *TIMED)
    assert_usage_error(result, "ERROR: * cannot import only_here, whose hooks this run uses: *")


def test_pytest_xdist_and_a_cluster_do_not_go_together(
    processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    models.makepyfile(TWO)
    place = f"--modelperf-cluster={processes.file}"
    result = models.runpytest_subprocess("-p", "xdist", "-n", "2", place, *TIMED)
    assert_usage_error(result, "ERROR: --modelperf-cluster goes with one process of pytest,*")


def test_a_case_whose_machine_dies_is_measured_by_another(
    own_processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    own_processes.start_scheduler()
    own_processes.start_worker("one")
    own_processes.start_worker("two")
    with joined(own_processes.file, machines=2):
        pass
    deadly = f"dict(at='2', do='end', once={str(models.path / 'once')!r})"
    always = "dict(at='2', do='end')"
    models.makepyfile(f"""
        import pytest

        @pytest.mark.perf_case(model="base.onnx", engine_options={deadly})
        def test_once(): pass

        @pytest.mark.perf_case(model="fast_100us.onnx", engine_options={always})
        def test_always(): pass

        @pytest.mark.perf_case(model="slow_400us.onnx", batch_size=[1, 2, 4])
        def test_others(): pass
        """)
    result = run_on(own_processes, models, *FAULTY, "--modelperf-max-seconds=0.5", JSON)
    result.assert_outcomes(passed=4, failed=1)
    line = "*test_always?b1-c1? was not measured: * and then * was lost while it ran*"
    result.stdout.fnmatch_lines([line])
    failed = [case["test"] for case in cases_of(models) if case["failure"] is not None]
    assert (len(cases_of(models)), len(failed)) == (5, 1)
    assert "test_always" in failed[0]


def test_a_scheduler_that_vanishes_ends_the_run_with_what_is_known(
    own_processes: ClusterProcesses, models: pytest.Pytester
) -> None:
    scheduler = own_processes.start_scheduler()
    own_processes.start_worker()
    with joined(own_processes.file, machines=1):
        pass
    # By then the first result has come, and its test is over.
    begun = str(models.path / "begun")
    deadly = f"dict(at='2', do='end', process='{scheduler.pid}', after={begun!r})"
    models.makepyfile(f"""
        from pathlib import Path
        import pytest

        @pytest.fixture
        def begins():
            Path({begun!r}).touch()

        @pytest.mark.perf_case(model="base.onnx")
        def test_before(): pass

        @pytest.mark.usefixtures("begins")
        @pytest.mark.perf_case(model="fast_100us.onnx", engine_options={deadly})
        def test_deadly(): pass

        @pytest.mark.perf_case(model="slow_400us.onnx")
        def test_after(): pass
        """)
    result = run_on(own_processes, models, *FAULTY, "--modelperf-max-seconds=0.5", UPDATE)
    assert_ended(result, "*scheduler * is gone. What ended before is kept;*", passed=1, failed=1)
    result.stdout.fnmatch_lines(["wrote *base.onnx"])
    result.stdout.fnmatch_lines(["*scheduler * is gone: start it again*"])
    assert [path.name for path in (models.path / "baselines").iterdir()] == ["base"]


def test_a_case_of_another_machine_names_the_option_that_helps(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.makepyfile("""
        import pytest

        @pytest.mark.perf_case(model="base.onnx", machine=["board", "gpu"])
        def test_it(): pass
        """)
    monkeypatch.setenv("MODELPERF_TAGS", "board")
    result = models.runpytest_inprocess(*TIMED)
    assert_usage_error(result, "ERROR: this machine is linux-*, board, and not gpu: *")
    models.runpytest_inprocess(*TIMED, "-k", "not gpu").assert_outcomes(passed=1, deselected=1)
    models.runpytest_inprocess(*TIMED, "--modelperf-static-only").assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--modelperf-machine=board",), "--modelperf-machine chooses machines of a cluster: *"),
        (("--modelperf-cluster=host:8786",), "host:8786 does not say how to reach *"),
        (
            ("--modelperf-cluster=local:2", f"--modelperf-baseline-python={sys.executable}"),
            "--modelperf-baseline-python needs a Python of this machine, and *",
        ),
        (
            ("--modelperf-cluster=local:2", "--modelperf-static-only"),
            "--modelperf-cluster would have no effect: with --modelperf-static-only *",
        ),
    ],
)
def test_options_that_do_not_go_together_are_errors(
    models: pytest.Pytester, options: tuple[str, ...], message: str
) -> None:
    assert_usage_error(models.runpytest_inprocess(*TIMED, *options), f"ERROR: {message}")


ANOTHER_KIND = """
    import pytest
    from msgspec.structs import replace
    from pytest_modelperf.testing.packing import pack, unpack
    from tests.support.faulty_plugin import modelperf_register_engines

    def moved(outcome):
        machine = replace(outcome.machine, microarchitecture="other")
        recorded = replace(outcome.recording.machine, key=machine.key, machine=machine)
        recording = replace(outcome.recording, machine=recorded)
        return replace(outcome, machine=machine, recording=recording)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        if call.when == "call" and "@other" in item.nodeid:
            report.modelperf_outcomes = pack(map(moved, unpack(report.modelperf_outcomes)))
        return report
"""


def test_each_kind_of_machine_has_its_own_baseline_and_history(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.makeconftest(ANOTHER_KIND)
    models.makepyprojecttoml("""
        [tool.modelperf.models."base.onnx"]
        machines = ["here", "other"]
        """)
    monkeypatch.setenv("MODELPERF_TAGS", "here,other")
    result = models.runpytest_inprocess(*TIMED, UPDATE, "--modelperf-history=kept")
    result.assert_outcomes(passed=2)
    facts = describe_machine()
    keys = {facts.key, replace(facts, microarchitecture="other").key}
    stored = known(BaselineStore(models.path / "baselines").read("base"))
    assert {machine.key for machine in stored.machines} == keys
    files = HistoryStore(models.path / "kept").files()
    assert {line.machine for file in files for line in file.read(HistoryLine)} == keys
    result.stdout.fnmatch_lines(["wrote *base.onnx", "2 recorded."])
