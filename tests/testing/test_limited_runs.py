"""Budgets in a run of pytest: single inferences, kernels, other models, machines, improvements."""

from __future__ import annotations

import pytest

from pytest_modelperf import machine_key
from pytest_modelperf.baselines.records import BaselineRecording
from tests.support.project import assert_ended, write_dense, write_table
from tests.support.timed_models import JSON, TIMED, cases_of, store, write_timed


def limited(models: pytest.Pytester, model: str, words: str, *options: str) -> pytest.RunResult:
    """A run of one test with these budgets."""
    models.makepyfile(f"""
        import pytest

        @pytest.mark.perf_case(model={model!r}, baseline="base.onnx")
        @pytest.mark.perf_budget({words})
        def test_model(): pass
    """)
    return models.runpytest_inprocess(*(options or TIMED), JSON)


def metrics_of(models: pytest.Pytester) -> dict[str, str]:
    """The verdict of each budget by its figure."""
    (case,) = cases_of(models)
    return {m["name"]: m["verdict"] for m in case["metrics"] if m["limit"] is not None}


def test_each_budget_of_times_is_judged_and_shown(models: pytest.Pytester) -> None:
    words = (
        "max_ms=5, deadline_ms=0.1, misses=0.5, real_time_factor=0.05, audio_seconds=0.01, "
        "speedup=1.5, over='slow_400us.onnx'"
    )
    result = assert_ended(limited(models, "base.onnx", words), failed=1)
    assert metrics_of(models) == {
        "max_ms": "passed",
        "missed_deadlines": "over budget",
        "real_time_factor": "passed",
        "speedup": "passed",
    }
    result.stdout.fnmatch_lines(
        ["over budget: missed deadlines 100 %, deadline 0.1 ms*", "*limit 50 %"]
    )
    (case,) = cases_of(models)
    assert {m["name"]: m["detail"] for m in case["metrics"]}["speedup"] == "over slow_400us.onnx"


def test_a_speedup_that_is_too_small_is_over_budget(models: pytest.Pytester) -> None:
    limited(models, "base.onnx", "speedup=3, over='slow_400us.onnx'").assert_outcomes(failed=1)
    assert metrics_of(models) == {"speedup": "over budget"}
    limited(models, "slow_400us.onnx", "speedup=0.4, over='base.onnx'").assert_outcomes(passed=1)


@pytest.mark.parametrize("over", ["absent.onnx", "absent_module:run"])
def test_the_error_names_the_missing_part_of_a_speedup(models: pytest.Pytester, over: str) -> None:
    result = limited(models, "base.onnx", f"speedup=3, over={over!r}")
    result.stdout.fnmatch_lines([f"*there is no f* {over}*"])
    assert result.ret != 0


def test_kernels_are_counted_without_a_baseline_and_open_without_a_plan(
    models: pytest.Pytester,
) -> None:
    write_dense(models.path / "dense.onnx")
    options = ("--modelperf", "--modelperf-max-seconds=2")
    limited(models, "dense.onnx", "kernels=1", *options).assert_outcomes(passed=1)
    (case,) = cases_of(models)
    found = next(m for m in case["metrics"] if m["name"] == "kernels")
    assert (found["after"], found["after_interval"]) == (1, None)
    limited(models, "base.onnx", "kernels=1").assert_outcomes(passed=1)
    assert metrics_of(models) == {"kernels": "inconclusive"}
    (case,) = cases_of(models)
    assert "the engine shows no plan of this model, so its kernels are not counted" in case["notes"]


def test_exact_budgets_of_files_are_judged_if_nothing_runs(models: pytest.Pytester) -> None:
    words = "install_bytes=1, distribution='pluggy', max_ms=3, kernels=3"
    result = limited(models, "base.onnx", words, "--modelperf", "--modelperf-static-only")
    result.assert_outcomes(failed=1)
    assert metrics_of(models) == {"install_bytes": "over budget", "kernels": "inconclusive"}
    result.stdout.fnmatch_lines(["*not judged without a run*"])


def test_a_machine_has_the_limit_of_its_pattern_in_tables_as_well(models: pytest.Pytester) -> None:
    key = machine_key()
    source = f"""
        [tool.modelperf.models."base.onnx"]
        budget = {{max_ms = {{"{key}" = 0.001, "*" = 1000}}}}
    """
    write_table(models, source)
    result = models.runpytest_inprocess(*TIMED, JSON, "base.onnx")
    assert_ended(result, "*limits of the machine *", failed=1)
    (case,) = cases_of(models)
    assert case["machine"] == key


def test_a_machine_without_a_limit_fails_its_test_and_is_named(models: pytest.Pytester) -> None:
    result = limited(models, "base.onnx", "max_ms={'nowhere-*': 3}")
    assert_ended(result, f"max_ms has no limit for this machine, {machine_key()}*", failed=1)


def test_a_much_better_case_fails_and_says_how_to_accept_it(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(recording, models.path / "baselines")
    write_timed(models.path / "fast_100us.onnx", width=4)
    result = assert_ended(limited(models, "fast_100us.onnx", "improved_beyond=0.2"), failed=1)
    assert metrics_of(models) == {"improvement": "over budget"}
    result.stdout.fnmatch_lines(
        [
            "over budget: improvement −50*",
            "*record it again*",
            "accept: pytest --modelperf --modelperf-update-baseline *",
        ]
    )
    (case,) = cases_of(models)
    assert case["accept"] is not None
    limited(models, "fast_100us.onnx", "improved_beyond='70 %'").assert_outcomes(passed=1)
    improved = (*TIMED, "--modelperf-update-baseline=improved")
    limited(models, "fast_100us.onnx", "improved_beyond=0.2", *improved).assert_outcomes(passed=1)


def test_a_model_has_no_items(models: pytest.Pytester) -> None:
    result = limited(models, "base.onnx", "item_ms=3")
    result.stdout.fnmatch_lines(["*item_ms is about the items of a generator*"])
