"""The history that a test run writes, and what the command lists of it."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from pytest_modelperf.baselines.records import BaselineRecording
from pytest_modelperf.comparing.records import How
from pytest_modelperf.history.records import HistoryLine, HistoryMetric
from pytest_modelperf.history.store import HistoryStore
from pytest_modelperf.history.summary import chain_cases
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.testing.history_lines import ratio_to_baseline, write_history
from pytest_modelperf.testing.judging import LinkGate
from tests.support.comparisons import GRAPH, SAME, SLOWER
from tests.support.doubted_twin import doubted
from tests.support.known import known
from tests.support.profiles import make_round
from tests.support.project import (
    STATIC,
    assert_says_no_internals,
    assert_usage_error,
    run_tests,
    write_dense,
    write_table,
)
from tests.support.repository import git, needs_git
from tests.support.run_reports import outcome
from tests.support.timed_models import TIMED, UPDATE, store, test_of

HISTORY = "--modelperf-history=kept"
JOB = "https://gitlab.example.org/models/-/jobs/5"
COUNTS = (*TIMED, "--modelperf-static-only")


@pytest.fixture
def models(models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "GITHUB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CI_JOB_URL", JOB)
    return models


def lines_in(folder: Path) -> list[HistoryLine]:
    return [line for file in HistoryStore(folder).files() for line in file.read(HistoryLine)]


def test_a_case_that_did_not_run_is_listed_under_this_machine(tmp_path: Path) -> None:
    """The machine of another case of the run, as behind a gateway, does not matter."""
    settings = SimpleNamespace(root=tmp_path, baseline_dir=tmp_path, static_only=False)
    ran = outcome(SAME, baseline="ran")
    kept = outcome(SAME, baseline="kept", machine=None)
    now = dt.datetime(2026, 2, 1, tzinfo=dt.timezone.utc)
    write_history(tmp_path / "kept", settings, [ran, kept], [], now)  # type: ignore[arg-type]  # a part of them
    found = {line.model: line.machine for line in lines_in(tmp_path / "kept")}
    assert found == {"ran": known(ran.machine).key, "kept": describe_machine().key}
    assert found["ran"] != found["kept"]


def test_a_run_adds_a_line_with_the_ratio_to_its_baseline(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(recording, models.path / "baselines")
    run_tests(models, test_of("slow_400us.onnx"), *TIMED, HISTORY)
    (line,) = lines_in(models.path / "kept")
    assert (line.model, line.case, line.engine, line.verdict) == (
        "base", "b1-c1", "timed", "regressed",
    )  # fmt: skip
    assert line.how == "duet"
    assert line.run_url == JOB
    assert line.baseline == recording.cases[0].model_sha256
    assert line.digest not in {None, line.baseline}
    assert line.p50 is not None
    assert line.p50.low <= line.p50.ratio <= line.p50.high
    assert line.p50.low > 1.3
    assert line.figures is not None
    assert line.figures.macs == 128
    assert line.figures.size_bytes == (models.path / "slow_400us.onnx").stat().st_size
    assert not line.recorded


def test_a_model_with_the_plan_of_its_baseline_is_as_fast_without_a_run() -> None:
    counted = replace(SLOWER, metrics=GRAPH, how=How.PLAN)
    for name in ("latency_p50", "latency_p95"):
        found = known(ratio_to_baseline(counted, name, is_static=False))
        assert (found.ratio, found.low, found.high) == (1.0, 1.0, 1.0)
    assert ratio_to_baseline(replace(counted, how=None), "latency_p50", is_static=False) is None


def test_only_times_that_were_measured_in_turn_have_a_ratio() -> None:
    metric = replace(SLOWER.metrics[0], confidence=0.99)
    cases = {how: replace(SLOWER, metrics=(metric,), how=how) for how in How}
    found = {
        how: ratio_to_baseline(case, "latency_p50", is_static=False) for how, case in cases.items()
    }
    assert found[How.STORED] is None
    duet = found[How.DUET]
    assert duet == found[How.PARTS]
    assert known(duet).high == 1.131


def test_an_update_of_the_baseline_is_a_link_of_the_chain(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    """A model that no run measured is recorded, and compared with the baseline before."""
    store(recording, models.path / "baselines")
    models.makepyfile(test_of("equal_200us.onnx"))
    for options in ((UPDATE,), ()):
        models.runpytest_inprocess(*TIMED, HISTORY, *options)
    lines = lines_in(models.path / "kept")
    assert [line.verdict for line in lines] == ["recorded", "passed"]
    assert [line.recorded for line in lines] == [True, False]
    assert lines[0].baseline == recording.cases[0].model_sha256
    assert lines[1].baseline == lines[0].digest
    assert [line.unlinked for line in lines] == [None, None]
    link, later = lines[0].p50, lines[1].p50
    assert link is not None
    # One interval in some fifty leaves out the true ratio.
    assert 0.99 < link.low <= link.ratio <= link.high < 1.01
    (chain,) = chain_cases(lines, HistoryMetric.P50).values()
    first, last = chain.points
    assert last.level == pytest.approx(first.level + math.log(known(later).ratio))
    # The error of the link is that of the first point.
    assert chain.shift(0, 1).error == pytest.approx(math.sqrt(last.variance))


def test_the_link_of_a_slower_model_is_its_ratio(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(recording, models.path / "baselines")
    run_tests(models, test_of("slow_400us.onnx"), *TIMED, HISTORY, UPDATE)
    (line,) = lines_in(models.path / "kept")
    assert line.p50 is not None
    assert line.p95 is not None
    assert 1.9 < line.p50.low < line.p50.high < 2.1
    assert line.verdict == "recorded"


def test_a_broken_file_of_another_machine_loses_no_line(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(recording, models.path / "baselines")
    (models.path / "baselines/base/linux-arm64-4c.json").write_text("{")
    run_tests(models, test_of("base.onnx"), *TIMED, HISTORY)
    (line,) = lines_in(models.path / "kept")
    assert line.verdict == "passed"


def make_pair(index: int, ratio: float, spread: float) -> DuetRound:
    """A round whose second side takes `ratio` as long, by more or less in every other round."""
    factor = ratio * (1 + spread if index % 2 else 1 - spread)
    before, after = (make_round([round(part * 1e6)] * 20) for part in (1.0, factor))
    return DuetRound(before=before, after=after)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_a_link_is_measured_until_it_is_precise_whatever_it_is(ratio: float) -> None:
    gate = LinkGate()
    pairs = [make_pair(index, ratio, spread=0.02) for index in range(80)]
    decided = [gate.is_decided(pairs[:count]) for count in range(81)]
    assert decided[:6] == [False] * 6
    assert not decided[20]
    assert decided[80]
    assert gate.is_decided([make_pair(index, ratio, spread=0.001) for index in range(6)])


def with_other_dims(recording: BaselineRecording) -> BaselineRecording:
    (case,) = recording.cases
    return replace(recording, cases=(replace(case, dims={"N": 7}),))


@pytest.mark.parametrize(
    ("change", "problem"),
    [(doubted, "the twin runs otherwise"), (with_other_dims, "recorded at other dimensions")],
)
def test_an_update_says_why_it_does_not_make_a_link(
    models: pytest.Pytester,
    recording: BaselineRecording,
    change: Callable[[BaselineRecording], BaselineRecording],
    problem: str,
) -> None:
    store(change(recording), models.path / "baselines")
    result = run_tests(models, test_of("slow_400us.onnx"), *TIMED, HISTORY, UPDATE)
    (line,) = lines_in(models.path / "kept")
    assert (line.p50, line.recorded) == (None, True)
    assert problem in known(line.unlinked)
    printed = " ".join(line.strip() for line in result.outlines)
    assert "the history has no ratio of this model to the previous baseline" in printed
    assert problem in printed


def test_an_improved_model_that_is_recorded_is_linked_by_the_same_run(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(recording, models.path / "baselines")
    run_tests(models, test_of("fast_100us.onnx"), *TIMED, HISTORY, f"{UPDATE}=improved")
    (line,) = lines_in(models.path / "kept")
    assert (line.recorded, line.verdict) == (True, "improved")
    assert known(line.p50).ratio < 0.8
    assert line.baseline == recording.cases[0].model_sha256 != line.digest


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [(), ("-p", "xdist", "-n2")], ids=["one process", "pytest-xdist"]
)
def test_each_case_has_a_line(run: pytest.Pytester, options: tuple[str, ...]) -> None:
    source = """
        [tool.modelperf]
        history = "kept"
        [tool.modelperf.models."dense.onnx"]
        batch_size = [1, 8]
    """
    write_table(run, source)
    run.runpytest_inprocess(*STATIC, *options)
    found = sorted((line.case, line.verdict) for line in lines_in(run.path / "kept"))
    assert found == [("b1-c1", "new"), ("b8-c1", "new")]


def test_a_run_without_the_option_writes_none(run: pytest.Pytester) -> None:
    run.runpytest_inprocess(*STATIC, "dense.onnx")
    assert not list(run.path.rglob("*.jsonl"))


@needs_git
def test_a_line_names_the_commit_and_the_branch(run: pytest.Pytester) -> None:
    git(run.path, "init", "-q", "-b", "trunk")
    git(run.path, "commit", "-q", "--allow-empty", "-m", "one")
    run.runpytest_inprocess(*STATIC, HISTORY, "dense.onnx")
    (line,) = lines_in(run.path / "kept")
    assert (line.commit, line.branch) == (git(run.path, "rev-parse", "HEAD"), "trunk")


def test_a_run_that_counts_only_says_nothing_of_time(run: pytest.Pytester) -> None:
    run.runpytest_inprocess(*STATIC, UPDATE, "dense.onnx")
    run.runpytest_inprocess(*STATIC, HISTORY, "dense.onnx")
    write_dense(run.path / "dense.onnx", width=6)
    run.runpytest_inprocess(*STATIC, HISTORY, "dense.onnx")
    same, wider = lines_in(run.path / "kept")
    assert (same.p50, wider.p50) == (None, None)
    assert (same.how, wider.how) == (None, None)
    assert any("MatMul" in reason for reason in wider.reasons)
    assert [line.figures and line.figures.macs for line in (same, wider)] == [15, 18]


def test_a_run_that_is_interrupted_adds_no_line(models: pytest.Pytester) -> None:
    models.makepyfile(f"{test_of('base.onnx')}\n        def test_stop():\n"
                      "            raise KeyboardInterrupt\n")  # fmt: skip
    models.runpytest_inprocess(*COUNTS, HISTORY, no_reraise_ctrlc=True)
    assert not (models.path / "kept").exists()


def test_a_file_in_the_place_of_the_folder_is_reported_before_anything_runs(
    run: pytest.Pytester,
) -> None:
    (run.path / "kept").write_text("mine")
    result = run.runpytest_inprocess(*STATIC, HISTORY, "dense.onnx")
    assert_usage_error(result, "*kept is not a folder*--modelperf-history*")


def test_a_history_that_cannot_be_written_fails_the_run(run: pytest.Pytester) -> None:
    (run.path / "kept").mkdir()
    (run.path / "kept/dense").write_text("mine")
    result = run.runpytest_inprocess(*STATIC, HISTORY, "dense.onnx")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*cannot write *kept/dense/*.jsonl*"])
    assert_says_no_internals(result)
