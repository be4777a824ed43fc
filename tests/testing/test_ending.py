"""Ends of runs: interrupted, with files that cannot be written or read, and with nothing left."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import onnx
import pytest

from pytest_modelperf.baselines.records import BaselineRecording
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.testing.pytest_internals import lack_of_memory_told
from tests.support.bencher import assert_is_bencher
from tests.support.project import (
    assert_ended,
    assert_says_no_internals,
    assert_usage_error,
    read_json,
    run_tests,
)
from tests.support.small_models import save_beside
from tests.support.timed_models import JSON, TIMED, UPDATE, cases_of, store, test_of

COUNTS = (*TIMED, "--modelperf-static-only")
FULL = Path("/dev/full")


def interrupted(models: pytest.Pytester, *options: str) -> pytest.RunResult:
    """A run that is interrupted after its first test."""
    models.makepyfile(f"{test_of('base.onnx')}\n        def test_stop():\n"
                      "            raise KeyboardInterrupt\n")  # fmt: skip
    return models.runpytest_inprocess(*COUNTS, JSON, *options, no_reraise_ctrlc=True)


def test_a_run_that_is_interrupted_reports_what_had_ended_and_writes_no_baseline(
    models: pytest.Pytester,
) -> None:
    note = "note: the run was interrupted: no baseline was written"
    plain = interrupted(models)
    assert plain.ret == pytest.ExitCode.INTERRUPTED
    plain.stdout.fnmatch_lines(["1 new."])
    plain.stdout.no_fnmatch_line(note)
    assert [case["id"] for case in cases_of(models)] == ["b1-c1"]
    updating = interrupted(models, UPDATE)
    assert updating.ret == pytest.ExitCode.INTERRUPTED
    updating.stdout.fnmatch_lines(["1 new.", note])
    assert [case["recorded"] for case in cases_of(models)] == [False]
    assert not (models.path / "baselines").exists()


@pytest.mark.parametrize(
    ("options", "stop"), [((), "raise KeyboardInterrupt"), (("--exitfirst",), "pytest.fail()")]
)
def test_a_run_that_ends_early_says_how_many_tests_it_did_not_reach(
    models: pytest.Pytester, options: tuple[str, ...], stop: str
) -> None:
    models.makepyfile(f"""
        import pytest

        @pytest.mark.perf_case(model="base.onnx", batch_size=[1, 2, 4, 8])
        def test_model(request):
            if "b4" in request.node.name:
                {stop}

        def test_other(): pass
        """)
    result = models.runpytest_inprocess(
        *COUNTS, JSON, "-p", "no:randomly", *options, no_reraise_ctrlc=True
    )
    left = 1 if options else 2
    said = f"the run ended early: {left} of 4 tests of models did not end"
    result.stdout.fnmatch_lines([f"note: {said}"])
    assert read_json(models.path / "run.json")["notes"] == [said]


def test_a_run_that_stops_after_a_failure_writes_what_had_ended(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(recording, models.path / "baselines")
    models.makepyfile("""
        import pytest

        @pytest.mark.perf_case(model="equal_200us.onnx", batch_size=[1, 2])
        def test_model(request):
            request.session.shouldstop = "it is enough"
        """)
    result = models.runpytest_inprocess(*COUNTS, JSON, UPDATE, "--modelperf-prune")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["1 recorded.", "note: nothing was pruned: *"])
    assert [case["recorded"] for case in cases_of(models)] == [True]
    stored = {path.parent.name for path in models.path.glob("baselines/*/model.json")}
    assert stored == {"base", "equal_200us"}


def test_an_error_at_collection_ends_a_run_early_and_writes_no_baseline(
    models: pytest.Pytester,
) -> None:
    models.makepyfile(test_of("base.onnx"), test_broken="import no_such_module")
    quiet = models.runpytest_inprocess(*COUNTS, "--quiet")
    quiet.stdout.fnmatch_lines(["*model performance*", "note: the run ended early: 1 of 1 test*"])
    assert models.runpytest_inprocess(*COUNTS, UPDATE, JSON).ret == pytest.ExitCode.INTERRUPTED
    assert not (models.path / "baselines").exists()


@pytest.mark.parametrize("code", [0, 1])
def test_an_exit_with_any_code_is_an_interruption(models: pytest.Pytester, code: int) -> None:
    source = f"{test_of('base.onnx')}\n        def test_stop(): pytest.exit('stop', {code})\n"
    assert run_tests(models, source, *COUNTS, JSON, UPDATE).ret == code
    assert [case["recorded"] for case in cases_of(models)] == [False]
    assert not (models.path / "baselines").exists()


@pytest.mark.parametrize("options", [(), ("--cache-show",)], ids=["exit", "no-tests"])
def test_a_run_that_did_not_collect_its_tests_knows_no_unused_baselines(
    models: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    recording: BaselineRecording,
    options: tuple[str, ...],
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_modelperf.plugin")
    store(recording, models.path / "baselines")
    models.makeconftest("""
        import pytest

        def pytest_collection():
            pytest.exit("nothing to do", 0)
        """)
    result = models.runpytest_inprocess(*COUNTS, "--modelperf-prune", *options)
    assert result.ret == pytest.ExitCode.OK
    assert (models.path / "baselines/base/model.json").exists()


@pytest.mark.parametrize(
    "option",
    ["--collect-only", "--setup-plan", "--setup-only", "--fixtures-per-test", "--cache-show"],
)
def test_a_run_that_is_to_run_no_test_changes_no_file(
    models: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    recording: BaselineRecording,
    option: str,
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_modelperf.plugin")
    store(recording, models.path / "baselines")
    (models.path / "run.json").write_text("an earlier run")
    models.makepyfile(test_of("base.onnx", baseline="other.onnx"))
    result = models.runpytest_inprocess(*COUNTS, JSON, "--modelperf-prune", option)
    assert result.ret == pytest.ExitCode.OK
    assert (models.path / "baselines/base/model.json").exists()
    assert (models.path / "run.json").read_text() == "an earlier run"


def test_a_run_that_cannot_prune_says_so(models: pytest.Pytester) -> None:
    note = "note: nothing was pruned: only a run of all tests, *"
    interrupted(models, "--modelperf-prune").stdout.fnmatch_lines([note])
    result = models.runpytest_inprocess(*COUNTS, "--modelperf-prune", "-k", "no_such_test")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines([note])


@pytest.mark.parametrize(
    "source",
    [
        "def test_it(request): request.getfixturevalue('modelperf').check('base.onnx')\n",
        "def test_it(by_name): by_name.check('base.onnx')\n",
    ],
)
def test_the_baseline_of_a_skipped_test_that_asks_for_the_fixture_by_name_stays(
    models: pytest.Pytester, source: str
) -> None:
    fixture = (
        "import pytest\n"
        "@pytest.fixture\n"
        "def by_name(request): return request.getfixturevalue('modelperf')\n"
    )
    run_tests(models, fixture + source, *COUNTS, UPDATE).assert_outcomes(passed=1)
    models.makepyfile(f"{fixture}@pytest.mark.skip\n{source}")
    models.runpytest_inprocess(*COUNTS, "--modelperf-prune").assert_outcomes(skipped=1)
    assert (models.path / "baselines/base/model.json").exists()


@pytest.mark.parametrize("moment", ["writing", "summary"])
def test_an_interrupt_while_a_run_ends_loses_nothing(
    models: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    moment: str,
) -> None:
    replace = Path.replace
    # A program that was started in the background ignores interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def interrupt(self: Path, target: Path) -> Path:
        signal.raise_signal(signal.SIGINT)
        monkeypatch.undo()
        return replace(self, target)

    models.makepyfile(test_of("base.onnx"))
    if moment == "writing":
        monkeypatch.setattr(Path, "replace", interrupt)
    else:
        plugin = "def pytest_terminal_summary():\n    signal.raise_signal(signal.SIGINT)\n"
        models.makepyfile(ending=f"import signal\n{plugin}")
        models.syspathinsert()
    options = ("-p", "ending") if moment == "summary" else ()
    result = models.runpytest_inprocess(*COUNTS, UPDATE, JSON, *options, no_reraise_ctrlc=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        ["1 recorded.", "interrupted at the end of the run: all its files were written"]
    )
    assert [case["recorded"] for case in cases_of(models)] == [True]
    assert (models.path / "baselines/base/model.json").exists()
    assert_says_no_internals(result)


@pytest.mark.parametrize("options", [(UPDATE,), ("--modelperf-prune",)])
def test_baselines_that_cannot_be_written_are_reported_before_anything_is_measured(
    models: pytest.Pytester, options: tuple[str, ...]
) -> None:
    models.makepyfile(test_of("base.onnx"))
    (models.path / "baselines").write_text("not a folder")
    result = models.runpytest_inprocess(*COUNTS, *options)
    assert_usage_error(
        result,
        "ERROR: no baseline can be stored in */baselines: */baselines*--modelperf-baseline-dir.",
    )
    assert (models.path / "baselines").read_text() == "not a folder"
    assert_says_no_internals(result)


def test_a_limit_of_too_few_open_files_is_reported_before_anything_runs(
    models: pytest.Pytester,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Files that are open stay open.
    resource.setrlimit(resource.RLIMIT_NOFILE, (31, hard))
    try:
        result = models.runpytest_inprocess(*COUNTS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    error = "ERROR: this process may open 31 files, and needs 32: allow more with ulimit -n 1024."
    result.stderr.fnmatch_lines([error])


UNMAPPED = "numpy.so: failed to map segment from shared object"


@pytest.mark.parametrize("error", [MemoryError(), ImportError(UNMAPPED)], ids=repr)
def test_memory_that_ran_out_is_the_error_that_the_place_asks_for(error: Exception) -> None:
    with pytest.raises(MeasureError, match="there is not enough memory"), lack_of_memory_told():
        raise error
    with (
        pytest.raises(pytest.UsageError, match="ulimit -v") as found,
        lack_of_memory_told(lambda lack: pytest.UsageError(lack.message)),
    ):
        raise error
    assert found.value.__suppress_context__


@pytest.mark.parametrize("error", [ImportError("no module named a"), ValueError("a")], ids=repr)
def test_an_error_that_is_not_a_lack_of_memory_is_left_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as found, lack_of_memory_told():
        raise error
    assert found.value is error


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [(), ("-p", "xdist", "-n1")], ids=["one process", "pytest-xdist"]
)
def test_a_recording_that_cannot_be_stored_is_a_failure_of_its_test(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    replace = Path.replace

    def fail(path: Path, target: Path) -> Path:
        if target.name == "model.json":
            raise OSError(28, "No space left on device", str(target))
        return replace(path, target)

    # A disk that is full for the baseline and not for the reports of the run.
    monkeypatch.setattr(Path, "replace", fail)
    models.makepyfile(test_of("base.onnx"))
    result = models.runpytest_inprocess(
        *COUNTS, UPDATE, JSON, "--modelperf-markdown=run.md", "--junitxml=run.xml", *options
    )
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*= FAILURES =*",
            "the baseline in *base could not be written: *",
            "nothing was written",
            "1 failed.",
            "error: the baseline in *base could not be written: *",
            "*= 1 failed in *",
        ]
    )
    result.stdout.no_fnmatch_line("wrote the baselines*")
    report = read_json(models.path / "run.json")
    assert report["baselines"]["written"] is False
    assert (report["counts"]["recorded"], report["counts"]["failed"]) == (0, 1)
    (case,) = report["cases"]
    assert (case["verdict"], case["recorded"]) == (None, False)
    assert case["failure"].startswith("the baseline in ")
    assert "failed: it could not be stored" in (models.path / "run.md").read_text("utf-8")
    suite = ET.parse(models.path / "run.xml").getroot()[0]  # noqa: S314  # our own
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    (failure,) = suite.iter("failure")
    assert failure.get("message", "").startswith("the baseline in ")
    (verdict,) = (p for p in suite.iter("property") if p.get("name") == "modelperf.verdict")
    assert verdict.get("value") == "failed"
    assert_says_no_internals(result)


@pytest.mark.parametrize("options", [(), (UPDATE,)], ids=["check", "update"])
def test_a_baseline_in_conflict_is_an_error_of_its_test_and_stays_as_it_is(
    models: pytest.Pytester, recording: BaselineRecording, options: tuple[str, ...]
) -> None:
    store(recording, models.path / "baselines")
    file = models.path / "baselines/base/model.json"
    broken = file.read_text("utf-8").replace("{", "<<<<<<< HEAD\n{", 1)
    file.write_text(broken, "utf-8")
    models.makepyfile(f"{test_of('base.onnx')}\n{test_of('equal_200us.onnx', baseline='b.onnx')}"
                      .replace("def test_model", "def test_first", 1))  # fmt: skip
    result = models.runpytest_inprocess(*COUNTS, JSON, "-k", "b1", *options)
    assert_ended(result, "*base/model.json*conflict*", failed=1, passed=1)
    assert file.read_text("utf-8") == broken
    found = {case["test"].partition("::")[2]: case["failure"] for case in cases_of(models)}
    assert found == {"test_first[b1-c1]": found["test_first[b1-c1]"], "test_model[b1-c1]": None}
    assert "conflict" in found["test_first[b1-c1]"]
    assert_says_no_internals(result)


def test_a_broken_baseline_that_no_test_uses_is_an_error_of_the_run(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(recording, models.path / "baselines")
    (models.path / "baselines/base/model.json").write_text("<<<<<<< HEAD\n", "utf-8")
    result = run_tests(models, test_of("base.onnx", baseline="other.onnx"), *COUNTS)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["error: *base/model.json*"])
    assert_says_no_internals(result)


def test_a_machine_that_cannot_be_read_is_an_error_of_the_test(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(recording, models.path / "baselines")
    (file,) = (p for p in (models.path / "baselines/base").glob("*.json") if p.stem != "model")
    file.write_text("{}", "utf-8")
    result = run_tests(models, test_of("base.onnx"), *COUNTS)
    assert_ended(result, f"*{file.name}*", failed=1)
    assert_says_no_internals(result)


@pytest.mark.skipif(not FULL.exists(), reason="needs a file that is full")
@pytest.mark.parametrize("option", ["json", "markdown", "html", "benchmark-json", "bencher-json"])
def test_a_report_that_cannot_be_written_is_an_error_of_the_run(
    models: pytest.Pytester, option: str
) -> None:
    result = run_tests(models, test_of("base.onnx"), *COUNTS, f"--modelperf-{option}={FULL}")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["1 new.", f"error: cannot write {FULL}: *."])
    assert_says_no_internals(result)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("base.onnx", "--modelperf-json=base.onnx"),
            "--modelperf-json would overwrite *base.onnx, which is read: give another file.",
        ),
        (
            ("outside.onnx", "--modelperf-json=weights"),
            "--modelperf-json would overwrite *weights, which is read: give another file.",
        ),
        (
            ("base.onnx", "--modelperf-json=run", "--modelperf-html=run"),
            "--modelperf-json and --modelperf-html would both write *run: *",
        ),
    ],
    ids=["a model", "external data", "another report"],
)
def test_a_report_is_not_written_over_what_is_read_or_another_report(
    models: pytest.Pytester, options: tuple[str, ...], message: str
) -> None:
    model = models.path / "base.onnx"
    weights = save_beside(onnx.load(model), models.path / "outside.onnx")
    before = model.read_bytes(), weights.read_bytes()
    assert_usage_error(models.runpytest_inprocess(*COUNTS, *options), f"ERROR: {message}")
    assert (model.read_bytes(), weights.read_bytes()) == before


def test_reports_are_written_if_tests_fail_too(models: pytest.Pytester) -> None:
    source = test_of("base.onnx").replace(
        "def test_", "@pytest.mark.perf_budget(macs=1)\n        def test_"
    )
    models.makepyfile(source)
    result = models.runpytest_inprocess(
        *COUNTS, JSON, "--modelperf-markdown=run.md", "--modelperf-html=run.html",
        "--modelperf-benchmark-json=bench.json", "--modelperf-bencher-json=bencher.json",
    )  # fmt: skip
    result.assert_outcomes(failed=1)
    assert read_json(models.path / "run.json")["verdict"] == "over budget"
    assert "over budget" in (models.path / "run.md").read_text("utf-8")
    page = (models.path / "run.html").read_text("utf-8")
    assert "base.onnx" in page
    assert "MACs" in page
    assert ": over budget</td>" in page
    assert read_json(models.path / "bench.json")["benchmarks"] == []
    bencher = read_json(models.path / "bencher.json")
    assert_is_bencher(bencher)
    assert [measures["macs"]["value"] for measures in bencher.values()] == [128]


EXPECTED = """
    import pytest

    pytestmark = pytest.mark.perf_budget(macs=1)

    @pytest.fixture
    def checked(modelperf):
        modelperf.check("base.onnx", baseline="set-up.onnx")

    @pytest.mark.xfail
    @pytest.mark.perf_case(model="base.onnx")
    def test_marked(): pass

    @pytest.mark.xfail(strict=True)
    def test_set_up(checked): pass

    def test_caught(modelperf):
        with pytest.raises(pytest.fail.Exception):
            modelperf.check("base.onnx", baseline="caught.onnx")
"""


def test_a_failure_that_its_test_expects_is_none_of_the_run(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    models.makepyfile(EXPECTED)
    reports = ("--modelperf-html=run.html", "--junitxml=run.xml")
    result = models.runpytest_inprocess(*COUNTS, JSON, *reports, "--modelperf-strict")
    result.assert_outcomes(passed=1, xfailed=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["test_marked* xfailed  MACs 128 *", "3 xfailed."])
    result.stdout.no_fnmatch_line("::*")
    report = read_json(models.path / "run.json")
    counts = {word: count for word, count in report["counts"].items() if count}
    assert (report["verdict"], counts) == ("passed", {"xfailed": 3})
    cases = [(case["verdict"], case["xfailed"]) for case in report["cases"]]
    assert cases == [("over budget", True)] * 3
    assert "all 3 xfailed" in (models.path / "run.html").read_text("utf-8")
    assert (models.path / "run.xml").read_text("utf-8").count('verdict" value="xfailed"') == 3


def test_an_unexpected_failure_is_reported_as_any_other(
    models: pytest.Pytester,
) -> None:
    models.makepyfile(EXPECTED.replace("mark.xfail", "mark.xfail(raises=KeyError)", 1))
    assert_ended(models.runpytest_inprocess(*COUNTS, "-k", "marked"), "1 over budget.", failed=1)


def test_pytest_benchmark_reads_its_json(models: pytest.Pytester) -> None:
    models.makepyfile(test_of("base.onnx", batch_size=[1, 8]))
    result = models.runpytest_inprocess(*TIMED, "--modelperf-benchmark-json=bench.json")
    result.assert_outcomes(passed=2)
    read = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", "bench.json", "--csv=bench.csv"],
        cwd=models.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert read.returncode == 0, read.stderr
    head, *rows = (models.path / "bench.csv").read_text("utf-8").splitlines()
    median = head.split(",").index("median")
    assert [float(row.split(",")[median]) > 0.00019 for row in rows] == [True, True]


@pytest.fixture
def temporary(models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files of a run, and of every process that it starts."""
    folder = models.mkdir("temporary")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    assert not list(folder.glob("*modelperf*"))
    assert not list(folder.glob("*.onnx"))


def test_runs_that_record_fail_or_crash_leave_nothing(
    models: pytest.Pytester, temporary: Path, recording: BaselineRecording
) -> None:
    models.makepyfile(test_of("base.onnx", batch_size=4))
    recorded = models.runpytest_inprocess(*TIMED, "--modelperf-max-seconds=0.5", UPDATE)
    recorded.assert_outcomes(passed=1)
    store(recording, models.path / "baselines")
    run_tests(models, test_of("slow_400us.onnx"), *TIMED).assert_outcomes(failed=1)
    options = {"at": "20", "do": "signal", "signal": "SIGKILL"}
    models.makepyfile(test_of("base.onnx", engine="faulty", engine_options=options))
    models.runpytest_inprocess("--modelperf").assert_outcomes(failed=1)
    assert temporary.is_dir()


def test_a_model_that_nothing_names_is_an_error_of_its_test_alone(
    models: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "base.onnx"
    outside.write_bytes((models.path / "base.onnx").read_bytes())
    models.makepyfile(test_of(str(outside), baseline=None), test_other=test_of("base.onnx"))
    result = models.runpytest_inprocess(*COUNTS)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*base.onnx is not below *: name its baseline, as in baseline=*"])
    assert_says_no_internals(result)


def test_a_project_behind_a_link_has_the_baselines_of_its_real_folder(
    models: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory
) -> None:
    link = tmp_path_factory.mktemp("elsewhere") / "project"
    link.symlink_to(models.path)
    models.makepyfile(test_of(str(models.path / "base.onnx"), baseline=None))
    arguments = (*COUNTS, UPDATE, f"--rootdir={link}", link)
    models.runpytest_inprocess(*arguments).assert_outcomes(passed=1)
    assert [path.parent.name for path in models.path.rglob("model.json")] == ["base"]


def test_baselines_are_written_even_if_others_cannot_be(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(recording, models.path / "baselines")
    (models.path / "baselines/base/model.json").write_text("<<<<<<< HEAD\n", "utf-8")
    models.makepyfile(
        test_one=test_of("base.onnx"), test_two=test_of("base.onnx", baseline="other.onnx")
    )
    result = models.runpytest_inprocess(*COUNTS, UPDATE)
    assert_ended(result, "wrote *other.onnx", failed=1, passed=1)
    assert (models.path / "baselines/other/model.json").exists()
