"""A baseline with a sketch of outputs: "faster and wrong" fails, and what was trained does not.

The engine answers as `TIMED_OUTPUT` says, whatever the weights are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.project import assert_ended, read_json, write_table
from tests.support.timed_models import JSON, TIMED, UPDATE, cases_of, test_of

SKETCH = "[tool.modelperf]\noutput_sketch = true\n"


@pytest.fixture
def recorded(models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A baseline of base.onnx with a sketch."""
    write_table(models, SKETCH)
    monkeypatch.setenv("TIMED_OUTPUT", "1")
    checked(models, "base.onnx", UPDATE).assert_outcomes(passed=1)
    return models


def checked(run: pytest.Pytester, model: str, *options: str, **words: object) -> pytest.RunResult:
    run.makepyfile(test_of(model, **words))
    return run.runpytest_inprocess(*TIMED, JSON, *options)


def only_case(run: pytest.Pytester) -> Mapping[str, Any]:
    (case,) = cases_of(run)
    return case


def judged(case: Mapping[str, Any]) -> float | None:
    metrics = [metric for metric in case["metrics"] if metric["name"] == "outputs"]
    return metrics[0]["after"] if metrics else None


def test_equal_outputs_pass(recorded: pytest.Pytester) -> None:
    checked(recorded, "base.onnx").assert_outcomes(passed=1)
    assert judged(only_case(recorded)) == 0.0


def test_other_outputs_of_the_same_weights_fail(
    recorded: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMED_OUTPUT", "1.05")
    result = assert_ended(checked(recorded, "base.onnx"), failed=1)
    assert only_case(recorded)["verdict"] == "regressed"
    assert judged(only_case(recorded)) == pytest.approx(0.05, rel=1e-3)
    result.stdout.fnmatch_lines(["*regressed: outputs differ by 5 %, allowed +0.1 %*"])


@pytest.mark.parametrize("asks", [(True, False), (False, True)], ids=["first", "last"])
def test_a_sketch_that_one_of_two_tests_of_a_case_asks_for_is_kept(
    recorded: pytest.Pytester, asks: tuple[bool, bool]
) -> None:
    first, last = (test_of("base.onnx", output_sketch=each) for each in asks)
    recorded.makepyfile(test_first=first, test_last=last)
    result = recorded.runpytest_inprocess(*TIMED, UPDATE, "test_first.py", "test_last.py")
    result.assert_outcomes(passed=2)
    assert "outputs" in read_json(recorded.path / "baselines/base/model.json")["cases"]["b1-c1"]


def test_rounding_passes_and_a_limit_of_the_user_comes_first(
    recorded: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMED_OUTPUT", "1.0002")
    checked(recorded, "base.onnx").assert_outcomes(passed=1)
    checked(recorded, "base.onnx", tolerance={"outputs": 0.0001}).assert_outcomes(failed=1)
    monkeypatch.setenv("TIMED_OUTPUT", "1.05")
    checked(recorded, "base.onnx", tolerance={"outputs": 0.1}).assert_outcomes(passed=1)


def test_the_same_graph_with_other_weights_was_trained_and_is_not_compared(
    recorded: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMED_OUTPUT", "7")
    checked(recorded, "equal_200us.onnx").assert_outcomes(passed=1)
    case = only_case(recorded)
    assert judged(case) is None
    assert any("the same graph has other weights" in note for note in case["notes"])


def test_recording_the_baseline_again_accepts_other_outputs(
    recorded: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMED_OUTPUT", "1.05")
    checked(recorded, "base.onnx", UPDATE).assert_outcomes(passed=1)
    checked(recorded, "base.onnx").assert_outcomes(passed=1)


def test_without_the_setting_nothing_is_recorded_or_compared(
    recorded: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMED_OUTPUT", "1.05")
    checked(recorded, "base.onnx", output_sketch=False).assert_outcomes(passed=1)
    checked(recorded, "base.onnx", UPDATE, output_sketch=False).assert_outcomes(passed=1)
    (stored,) = read_json(recorded.path / "baselines/base/model.json")["cases"].values()
    assert "outputs" not in stored


def test_a_baseline_without_a_sketch_says_how_to_get_one(recorded: pytest.Pytester) -> None:
    checked(recorded, "base.onnx", UPDATE, output_sketch=False).assert_outcomes(passed=1)
    checked(recorded, "base.onnx").assert_outcomes(passed=1)
    notes = only_case(recorded)["notes"]
    assert (
        "outputs are not held against the sketch of outputs in the baseline: it has none: record "
        "it again with --modelperf-update-baseline"
    ) in notes


def test_an_engine_that_returns_no_outputs_is_reported(
    recorded: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIMED_OUTPUT")
    checked(recorded, "base.onnx").assert_outcomes(passed=1)
    assert any("does not report the outputs" in note for note in only_case(recorded)["notes"])
