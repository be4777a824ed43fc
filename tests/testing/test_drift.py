"""The budget of a drift: judged by the history and the run, and reported with its steps."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

import pytest_modelperf.testing.history_lines  # noqa: F401  # a run inside of this process needs it
from pytest_modelperf.baselines.records import BaselineRecording
from pytest_modelperf.comparing.budgets import read_budgets
from pytest_modelperf.errors import UsageError
from pytest_modelperf.history.records import HistoryLine
from pytest_modelperf.history.store import HistoryStore
from pytest_modelperf.profiler.machine.describe import describe_machine
from tests.history.lines import commit_of, make_line
from tests.support.project import STATIC, assert_says_no_internals, write_table
from tests.support.repository import git, needs_git
from tests.support.timed_models import JSON, TIMED, UPDATE, cases_of, store, test_of

HISTORY = "--modelperf-history=kept"
MARK = "@pytest.mark.perf_budget(drift='10%')"
OLD = "digest of the first model"


@pytest.fixture
def models(models: pytest.Pytester, recording: BaselineRecording) -> pytest.Pytester:
    """A test of a model that is as fast as its baseline, and may drift by 10 %."""
    store(recording, models.path / "baselines")
    write_test(models, "equal_200us.onnx")
    return models


def write_test(run: pytest.Pytester, model: str, mark: str = MARK) -> None:
    text = test_of(model).replace("        @pytest.mark.perf_case", f"        {mark}\n"
                                  "        @pytest.mark.perf_case")  # fmt: skip
    run.makepyfile(test_drift=text)


def write_past(run: pytest.Pytester, lines: Iterable[HistoryLine]) -> None:
    """Write the lines of earlier runs of the case on this machine."""
    machine = describe_machine().key
    own = [replace(line, model="base", machine=machine, engine="timed") for line in lines]
    HistoryStore(run.path / "kept").append(own)


def grown(recording: BaselineRecording, ratio: float, error: float = 0.002) -> list[HistoryLine]:
    """Runs at one level, and one that made a slower model the baseline of today."""
    now = recording.cases[0].model_sha256
    return [
        *(make_line(day, 1.0, error, baseline=OLD) for day in range(4)),
        make_line(4, ratio, error, baseline=OLD, digest=now, reasons=("MatMul takes longer",)),
    ]


def printed(result: pytest.RunResult) -> str:
    return " ".join(" ".join(result.outlines).split())


@pytest.mark.slow
def test_a_case_that_drifted_is_over_its_budget_with_the_start_of_the_drift(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    """The run itself differs from its baseline by nothing."""
    write_past(models, grown(recording, 1.15))
    result = models.runpytest_inprocess(*TIMED, HISTORY, JSON)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = printed(result)
    # Any of its inferences takes up to a hundredth more, so that both sides are not quite equal.
    level = r"\+1[45]\.\d %"
    assert re.search(rf"over budget: drift {level}", text)
    assert "limit +10.0 %" in text
    since = re.escape(f"drift since its first point, {commit_of(0)[:9]} (2026-01-01): ")
    assert re.search(f"{since}{level}", text)
    assert "in 6 runs" in text
    assert f"between {commit_of(3)[:9]} (2026-01-04) and {commit_of(4)[:9]} (2026-01-05)" in text
    assert "MatMul takes longer" in text
    assert_says_no_internals(result)
    (case,) = cases_of(models)
    (drift,) = [metric for metric in case["metrics"] if metric["name"] == "drift"]
    assert drift["limit"] == pytest.approx(1.1)
    assert drift["after"] == pytest.approx(1.15, rel=0.01)


@pytest.mark.parametrize(
    ("ratio", "error", "verdict"),
    [(1.05, 0.002, "passed"), (0.5, 0.002, "passed"), (1.1, 0.02, "inconclusive")],
    ids=["within", "faster", "uncertain"],
)
def test_a_case_within_its_budget_passes(
    models: pytest.Pytester, recording: BaselineRecording, ratio: float, error: float, verdict: str
) -> None:
    write_past(models, grown(recording, ratio, error))
    assert models.runpytest_inprocess(*TIMED, HISTORY, JSON).ret == 0
    (case,) = cases_of(models)
    assert case["verdict"] == verdict


def test_the_first_run_has_no_drift(models: pytest.Pytester) -> None:
    assert models.runpytest_inprocess(*TIMED, HISTORY, JSON).ret == 0
    (case,) = cases_of(models)
    (drift,) = [metric for metric in case["metrics"] if metric["name"] == "drift"]
    assert (drift["after"], drift["verdict"]) == (1.0, "passed")


def test_an_update_counts_its_own_step(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    """The new model is recorded, and over the budget all the same."""
    write_past(models, grown(recording, 1.0))
    write_test(models, "slow_400us.onnx")
    result = models.runpytest_inprocess(*TIMED, HISTORY, UPDATE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    # The old model takes 200 us, or up to a hundredth more.
    assert re.search(r"over budget: drift \+(9[89]|100)\.\d %", printed(result))
    result.stdout.fnmatch_lines(["wrote *base.onnx"])


def test_a_chain_that_begins_again_says_so(models: pytest.Pytester) -> None:
    write_past(models, [make_line(0, 1.0, baseline="another")])
    result = models.runpytest_inprocess(*TIMED, HISTORY, "-v")
    assert result.ret == 0
    assert "the chain begins at" in printed(result)


@needs_git
def test_the_drift_since_the_last_tag_counts_too(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    """Twice as fast as at first, and slower than at the tag."""
    now = recording.cases[0].model_sha256
    git(models.path, "init", "-q", "-b", "trunk")
    git(models.path, "commit", "-q", "--allow-empty", "-m", "one")
    git(models.path, "tag", "v1.0")
    tagged = git(models.path, "rev-parse", "HEAD")
    git(models.path, "commit", "-q", "--allow-empty", "-m", "two")
    past = [
        make_line(0, 2.0, 0.002, baseline=OLD),
        replace(make_line(1, 0.8, 0.002, baseline=OLD), commit=tagged),
        make_line(2, 1.0, 0.002, baseline=OLD, digest=now),
    ]
    write_past(models, past)
    result = models.runpytest_inprocess(*TIMED, HISTORY)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "drift since v1.0" in printed(result)


def test_without_a_history_the_error_says_what_to_set(models: pytest.Pytester) -> None:
    result = models.runpytest_inprocess(*TIMED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "--modelperf-history=history" in printed(result)
    assert 'history = "history" in [tool.modelperf]' in printed(result)
    assert_says_no_internals(result)


def test_a_case_without_a_baseline_has_no_drift(run: pytest.Pytester) -> None:
    source = """
        [tool.modelperf]
        history = "kept"
        [tool.modelperf.models."dense.onnx"]
        budget = {drift = "10%"}
    """
    write_table(run, source)
    result = run.runpytest_inprocess("--modelperf", JSON, "-v", "--modelperf-max-seconds=1")
    assert "drift is not judged" in printed(result)
    (case,) = cases_of(run)
    assert case["verdict"] == "new"


def test_a_run_that_counts_only_judges_no_drift(run: pytest.Pytester) -> None:
    write_table(run, '[tool.modelperf.models."dense.onnx"]\nbudget = {drift = 0.1}\n')
    assert "not judged without a run" in printed(run.runpytest_inprocess(*STATIC, "-v", HISTORY))


def test_a_function_has_no_drift(run: pytest.Pytester) -> None:
    run.makepyfile(f"""
        import pytest

        {MARK}
        @pytest.mark.perf_case(model=len)
        def test_function(): pass
        """)
    result = run.runpytest_inprocess("--modelperf", HISTORY)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "leave drift out" in printed(result)


@pytest.mark.parametrize("value", ["much", 3, -0.1, None])
def test_a_budget_that_is_not_a_share_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="here: drift takes a share"):
        read_budgets({"drift": value}, "here")


def test_shares_are_written_in_two_ways() -> None:
    budgets = [read_budgets({"drift": value}, "here") for value in (0.1, "10 %", "0.1")]
    assert [budget.limit for (budget,) in budgets] == pytest.approx([1.1, 1.1, 1.1])
