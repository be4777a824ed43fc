"""With other plugins: each is loaded in a process of its own, and what it does stays as it is."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.support.project import assert_ended, write_table
from tests.support.timed_models import JSON, TIMED, UPDATE, cases_of, test_of

pytestmark = pytest.mark.slow

SHORT = "--modelperf-max-seconds=0.2"
WROTE = "wrote the baselines of base.onnx"


def run_with(models: pytest.Pytester, plugin: str, *options: str) -> pytest.RunResult:
    return models.runpytest_subprocess("-p", plugin, *TIMED, JSON, *options)


FOUR = """
    import pytest

    @pytest.mark.perf_case(model="base.onnx", batch_size=[1, 2])
    def test_first(): pass

    @pytest.mark.perf_case(model="base.onnx", batch_size=[4, 8])
    def test_second(): pass
"""
# Each worker notes when it has the machine, by the clock that all processes share.
NOTES_TURNS = """
    import os, time
    import pytest
    from tests.support.faulty_plugin import modelperf_register_engines

    @pytest.fixture(autouse=True)
    def note_turns(monkeypatch):
        import pytest_modelperf.profiler.worker.client as client

        enter, leave = client.ProcessWorker.__enter__, client.ProcessWorker.__exit__

        def note(word):
            with open(f"turns-{os.getpid()}.txt", "a") as file:
                file.write(f"{time.monotonic_ns()} {word}\\n")

        def entered(self):
            note("begins")
            return enter(self)

        def left(self, *exc):
            result = leave(self, *exc)
            note("ends")
            return result

        monkeypatch.setattr(client.ProcessWorker, "__enter__", entered)
        monkeypatch.setattr(client.ProcessWorker, "__exit__", left)
"""


def test_under_xdist_workers_measure_in_turn_and_the_controller_alone_reports(
    models: pytest.Pytester,
) -> None:
    models.makeconftest(NOTES_TURNS)
    models.makepyfile(FOUR)
    result = assert_ended(run_with(models, "xdist", "-n", "2", "-v", SHORT), passed=4)
    files = list(models.path.glob("turns-*.txt"))
    assert len(files) == 2
    lines = [line.split() for file in files for line in file.read_text().splitlines()]
    words = [word for _, word in sorted(lines, key=lambda line: int(line[0]))]
    assert words == ["begins", "ends"] * 4
    text = result.stdout.str()
    assert text.count("= model performance =") == 1
    assert len(re.findall(r"^test_\w+\[b\d-c1\] +new ", text, re.MULTILINE)) == 4
    result.stdout.fnmatch_lines(["4 new."])
    assert {case["id"] for case in cases_of(models)} == {"b1-c1", "b2-c1", "b4-c1", "b8-c1"}


def test_under_xdist_baselines_are_written_once_and_whole(models: pytest.Pytester) -> None:
    models.makepyfile(FOUR)
    result = run_with(models, "xdist", "-n", "2", UPDATE, "--modelperf-static-only")
    result.assert_outcomes(passed=4)
    assert result.outlines.count(WROTE) == 1
    result.stdout.fnmatch_lines(["4 recorded."])
    again = models.runpytest_inprocess(*TIMED, "--modelperf-static-only", "--modelperf-strict")
    assert_ended(again, "4 passed.", passed=4)


def test_under_xdist_a_run_that_stops_after_a_failure_writes_what_had_ended(
    models: pytest.Pytester,
) -> None:
    models.makepyfile(f"{FOUR}\n    def test_third():\n        raise AssertionError\n")
    counts = ("--modelperf-static-only", "-p", "no:randomly")
    result = run_with(models, "xdist", "-n", "1", "--exitfirst", UPDATE, *counts)
    result.assert_outcomes(passed=4, failed=1)
    assert result.outlines.count(WROTE) == 1


def test_under_xdist_a_group_does_not_belong_to_the_recorded_test(
    models: pytest.Pytester,
) -> None:
    models.makepyfile(
        """
        import pytest

        @pytest.mark.xdist_group("first")
        @pytest.mark.perf_case(model="base.onnx")
        def test_it(): pass
        """
    )
    options = ("-n", "1", "--dist", "loadgroup", "--modelperf-static-only")
    run_with(models, "xdist", *options).assert_outcomes(passed=1)
    (case,) = cases_of(models)
    assert case["accept"].endswith('.py::test_it[b1-c1]"')


def test_under_xdist_a_failure_is_as_wide_as_the_terminal(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    models.makepyfile(test_of("slow_400us.onnx"))
    result = run_with(models, "xdist", "-n", "1", "--modelperf-against=fast_100us.onnx")
    result.assert_outcomes(failed=1)
    begin = next(i for i, line in enumerate(result.outlines) if line.startswith("regressed: "))
    end = next(i for i, line in enumerate(result.outlines) if "model performance" in line)
    shown = result.outlines[begin:end]
    assert max(map(len, shown)) <= 60
    assert any(line.startswith("accept: ") for line in shown)


@pytest.mark.parametrize(
    "named", [("mod\udce9l.onnx",), (), (".",)], ids=["model", "table", "folder"]
)
def test_under_xdist_a_path_that_is_not_utf8_is_refused_before_a_worker_starts(
    models: pytest.Pytester, named: tuple[str, ...]
) -> None:
    shutil.copy(models.path / "base.onnx", models.path / "mod\udce9l.onnx")
    if named != ("mod\udce9l.onnx",):
        write_table(models, '[tool.modelperf.models."mod*.onnx"]')
    result = models.runpytest_subprocess("-p", "xdist", "-n", "2", "--modelperf", *named)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = (line for line in result.errlines if line)
    assert line.startswith(
        "ERROR: pytest-xdist cannot send its workers text that is not UTF-8, such as "
    )
    assert line.endswith(
        "mod\\udce9l.onnx: give the file or the folder another name, or leave out -n."
    )
    assert "bringing up nodes" not in result.stdout.str()


def test_a_crash_of_a_worker_of_xdist_leaves_the_report_of_the_others(
    models: pytest.Pytester,
) -> None:
    source = f"{FOUR}\n    def test_third():\n        import os\n        os._exit(3)\n"
    models.makepyfile(source)
    result = run_with(models, "xdist", "-n", "2", UPDATE, "--modelperf-static-only")
    assert_ended(result, "*worker 'gw*' crashed*", WROTE, passed=4, failed=1)
    assert len(cases_of(models)) == 4


OLD_KIND = """
    import unittest
    import pytest

    class TestOfTheOldKind(unittest.TestCase):
        @pytest.mark.perf_case(model="base.onnx")
        def test_it(self): pass

        def test_other(self): pass
"""
OTHER_MACHINE = """
    import pytest

    @pytest.mark.perf_case(model="base.onnx", batch_size=[1, 2, 4, 8], machine="no-such-machine")
    def test_it(): pass
"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (OLD_KIND, "*@pytest.mark.perf_case is for test functions and their classes*"),
        (OTHER_MACHINE, "*this machine is *, and not no-such-machine: *"),
    ],
    ids=["kind", "machine"],
)
def test_under_xdist_an_error_that_ends_the_run_is_reported(
    models: pytest.Pytester, source: str, message: str
) -> None:
    models.makepyfile(source)
    result = run_with(models, "xdist", "-n", "2")
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    assert result.ret in {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}


def test_if_the_only_worker_of_xdist_crashes_no_baseline_is_unused(
    models: pytest.Pytester,
) -> None:
    models.makepyfile(FOUR)
    run_with(models, "xdist", "-n", "0", UPDATE, "--modelperf-static-only")
    models.makepyfile(f"{FOUR}\n    def test_third():\n        import os\n        os._exit(3)\n")
    crash = ("-n", "1", "--max-worker-restart=0", "--modelperf-prune")
    result = run_with(models, "xdist", *crash, "--modelperf-static-only")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["note: nothing was pruned: *"])
    assert (models.path / "baselines/base/model.json").exists()


def test_an_order_by_chance_changes_no_verdict(models: pytest.Pytester) -> None:
    models.makepyfile(FOUR)
    found = []
    for seed in (1, 2):
        result = run_with(models, "randomly", f"--randomly-seed={seed}", "--modelperf-static-only")
        result.assert_outcomes(passed=4)
        found.append([case["test"] for case in cases_of(models)])
    assert sorted(found[0]) == sorted(found[1])
    assert found[0] != found[1]


def test_a_test_that_takes_too_long_is_ended_and_the_next_one_runs(models: pytest.Pytester) -> None:
    models.makepyfile(
        """
        import pytest

        # It imports all that the next one needs: what a timeout breaks off would stay broken.
        @pytest.mark.perf_case(model="base.onnx", engine="timed", baseline="first.onnx")
        def test_first(): pass

        @pytest.mark.timeout(2)
        @pytest.mark.perf_case(
            model="base.onnx", engine="faulty", engine_options={"at": "20", "do": "hang"}
        )
        def test_hangs(): pass

        @pytest.mark.perf_case(model="base.onnx", engine="timed", baseline="next.onnx")
        def test_next(): pass
        """
    )
    result = models.runpytest_subprocess("-p", "timeout", "--modelperf", JSON)
    assert_ended(result, "*Timeout *2.0*s*", "2 new.", failed=1, passed=2)
    assert [case["verdict"] for case in cases_of(models)] == ["new", "new"]


def test_the_last_outcome_of_a_test_that_is_run_again_counts(models: pytest.Pytester) -> None:
    models.makepyfile(
        """
        from pathlib import Path
        import pytest

        @pytest.mark.perf_case(model="base.onnx")
        def test_flaky():
            once = Path("once")
            if not once.exists():
                once.touch()
                raise AssertionError
        """
    )
    result = run_with(models, "rerunfailures", "--reruns=1", "--modelperf-static-only", "-v")
    result.stdout.fnmatch_lines(
        ["*::test_flaky[[]b1-c1] RERUN *", "*::test_flaky[[]b1-c1] NEW *", "1 new."]
    )
    result.assert_outcomes(passed=1)
    assert len(cases_of(models)) == 1


def test_a_test_whose_last_run_had_no_outcome_has_none(models: pytest.Pytester) -> None:
    models.makepyfile(
        """
        from pathlib import Path
        import pytest

        @pytest.fixture
        def once():
            Path("once").touch(exist_ok=False)

        @pytest.mark.perf_case(model="base.onnx")
        @pytest.mark.perf_budget(macs=1)
        def test_flaky(once): pass

        @pytest.mark.perf_case(model="base.onnx", batch_size=2)
        def test_other(): pass
        """
    )
    result = run_with(models, "rerunfailures", "--reruns=1", "--modelperf-static-only")
    assert_ended(result, "1 new.", "note: no result of*", passed=1, errors=1)
    assert [case["id"] for case in cases_of(models)] == ["b2-c1"]


def test_a_repeated_regression_is_one_failure(models: pytest.Pytester) -> None:
    models.makepyfile(test_of("slow_400us.onnx"))
    options = ("--reruns=1", "--modelperf-against=fast_100us.onnx", "-v", "--junitxml=junit.xml")
    result = run_with(models, "rerunfailures", *options)
    result.stdout.fnmatch_lines(
        ["*::test_model[[]b1-c1] RERUN *", "*::test_model[[]b1-c1] REGRESSED *", "1 regressed.*"]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len(cases_of(models)) == 1
    junit = (models.path / "junit.xml").read_text("utf-8")
    # Each run of a test is a test case there.
    assert junit.count("<testcase ") == junit.count('name="modelperf.verdict"')


def test_coverage_of_tests_is_reported_as_well(models: pytest.Pytester) -> None:
    models.makepyfile(test_of("base.onnx"))
    result = run_with(models, "pytest_cov", "--cov=.", "--cov-report=term")
    assert_ended(result, "1 new.", "*coverage*", "TOTAL *%", passed=1)


def test_a_test_may_run_pytest_in_the_process_of_the_run(run: pytest.Pytester) -> None:
    run.makepyfile(
        test_inner="""
        def test_inner(pytester):
            pytester.makepyfile(test_more="import numpy, onnx\\ndef test_it(): pass")
            for _ in range(2):
                pytester.runpytest_inprocess().assert_outcomes(passed=1)
        """
    )
    result = run.runpytest_subprocess("-q", "-p", "pytester", "--modelperf", "test_inner.py")
    assert_ended(result, "1 passed in *", passed=1)
