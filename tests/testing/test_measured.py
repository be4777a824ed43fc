"""Cases that run: verdicts, budgets, errors of a worker, and the answers of the fixture.

The engine of most runs takes as long as the name of a model says, and verdicts are asked for only
at twice or half the time.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import onnx
import pytest
from msgspec.structs import replace

from pytest_modelperf.baselines.records import BaselineRecording
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.engines.source import EngineModule
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.decisions import Decision, RatioAnswer
from tests.support.doubted_twin import doubted
from tests.support.installed import install
from tests.support.known import known
from tests.support.project import assert_ended, assert_says_no_internals, run_tests, write_table
from tests.support.recordings import record_baseline
from tests.support.small_models import ones, parse, save_beside
from tests.support.timed_models import JSON, TIMED, UPDATE, cases_of, store, test_of, write_timed

WIDE = "200 %"


@pytest.fixture
def recorded(models: pytest.Pytester, recording: BaselineRecording) -> pytest.Pytester:
    """A folder with a baseline of `base.onnx`."""
    store(recording, models.path / "baselines")
    return models


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The engine of the tests as a package, by whose version it is known before it runs."""
    install(monkeypatch, tmp_path_factory.mktemp("packages"), "timed", "1")


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make any start of a worker an error."""

    def start(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a worker was started")

    # Only a worker is a process of its own; nothing else of a run starts one.
    monkeypatch.setattr(subprocess, "Popen", start)


def measured(run: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    """A run of one test file, which ends with all that it was about in `run.json`."""
    run.makepyfile(source)
    return run.runpytest_inprocess(*TIMED, JSON, *options)


def case_of(run: pytest.Pytester) -> Mapping[str, Any]:
    (case,) = cases_of(run)
    return case


def names_of(metrics: Sequence[Mapping[str, Any]], verdict: str) -> set[str]:
    return {metric["name"] for metric in metrics if metric["verdict"] == verdict}


def without_times(recording: BaselineRecording) -> BaselineRecording:
    """Return the recording as of a checkout on another kind of machine."""
    return replace(recording, machine=replace(known(recording.machine), key="linux-other-2c"))


def of_older_engine(recording: BaselineRecording) -> BaselineRecording:
    """Return the recording as of an older engine."""
    assert recording.machine is not None
    cases = {
        case: replace(latency, engine=replace(latency.engine, version="0.9"))
        for case, latency in recording.machine.cases.items()
    }
    return replace(recording, machine=replace(recording.machine, cases=cases))


UNJUDGED: Mapping[str, tuple[Callable[[BaselineRecording], BaselineRecording], str]] = {
    "another kind of machine": (without_times, "no times of the recorded model are stored"),
    "another engine": (of_older_engine, "it was recorded on another engine"),
}


@pytest.mark.parametrize(("changed", "reason"), UNJUDGED.values(), ids=UNJUDGED)
def test_a_latency_that_nothing_can_judge_is_inconclusive(
    models: pytest.Pytester,
    recording: BaselineRecording,
    changed: Callable[[BaselineRecording], BaselineRecording],
    reason: str,
) -> None:
    store(doubted(changed(recording)), models.path / "baselines")
    source = test_of("slow_400us.onnx")
    options = ("--modelperf-markdown=run.md",)
    lenient = assert_ended(measured(models, source, *options), passed=1)
    strict = measured(models, source, *options, "--modelperf-strict")
    assert_ended(strict, "inconclusive: p50 latency 0.4* ms now, not judged, *", failed=1)
    for result in (lenient, strict):
        printed = " ".join(result.stdout.str().split())
        assert f"note: not run as a duet: the twin runs otherwise; {reason}" in printed
        assert "so the latency is not judged" in printed
        assert "there are no times to judge the latency by: record the baseline again" in printed
        assert "False-alarm bound" not in printed
        assert_says_no_internals(result)
    case = case_of(models)
    assert (case["verdict"], case["how"]) == ("inconclusive", None)
    assert reason in case["notes"][0]
    assert reason in (models.path / "run.md").read_text()


def test_a_trusted_twin_judges_on_a_machine_without_times(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(without_times(recording), models.path / "baselines")
    assert_ended(measured(models, test_of("slow_400us.onnx"), "--modelperf-strict"), failed=1)
    assert (case_of(models)["verdict"], case_of(models)["how"]) == ("regressed", "duet")


def test_counts_alone_pass_although_nothing_can_judge_the_latency(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(doubted(without_times(recording)), models.path / "baselines")
    options = ("--modelperf-static-only", "--modelperf-strict")
    measured(models, test_of("slow_400us.onnx"), *options).assert_outcomes(passed=1)


def test_a_case_that_was_not_recorded_again_is_inconclusive_on_another_machine(
    models: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The twin is that of the model of the other case, which was recorded again alone."""
    folder = tmp_path_factory.mktemp("twice")
    write_timed(folder / "base.onnx")
    engine = EngineModule("timed", "tests.support.timed")
    setup = Setup(engine=engine, policy=SamplingPolicy(max_seconds=30.0))
    for weight, sizes in ((1.0, (1, 2)), (2.0, (1,))):
        write_timed(folder / "base.onnx", weight=weight)
        made = record_baseline(
            "base", folder / "base.onnx", ProfileRequest(sizes), setup, dt.date(2026, 1, 31)
        )
        store(without_times(made), models.path / "baselines")
    result = measured(models, test_of("slow_400us.onnx", batch_size=2), "--modelperf-strict")
    result.assert_outcomes(failed=1)
    assert case_of(models)["verdict"] == "inconclusive"
    assert "b2-c1 was recorded with another model than the twin" in case_of(models)["notes"][0]


def test_without_a_baseline_a_case_is_measured_and_new(models: pytest.Pytester) -> None:
    assert_ended(
        measured(models, test_of("base.onnx"), "-v"),
        "*::test_model[[]b1-c1] NEW *",
        "test_model[[]b1-c1] * new * ms *",
        "1 new.",
        "new: *pytest --modelperf*",
        passed=1,
    )
    case = case_of(models)
    assert case["verdict"] == "new"
    assert case["latency"]["samples"] >= 130
    (reason,) = case["reasons"]
    assert "b1-c1" in reason


def test_a_new_case_fails_a_strict_run(models: pytest.Pytester) -> None:
    result = measured(models, test_of("base.onnx"), "--modelperf-strict")
    assert_ended(result, "new: *b1-c1", "record: pytest --modelperf *", failed=1)
    assert_says_no_internals(result)


@pytest.mark.usefixtures("installed")
def test_a_recorded_case_is_unchanged_in_the_next_run(models: pytest.Pytester) -> None:
    first = assert_ended(
        measured(models, test_of("base.onnx"), UPDATE, "-v"),
        "*::test_model[[]b1-c1] RECORDED *",
        "wrote *base.onnx",
        "test_model[[]b1-c1] *recorded *",
        "1 recorded.",
        passed=1,
    )
    first.stdout.no_fnmatch_line("*record what is new*")
    assert case_of(models)["recorded"] is True
    second = measured(models, test_of("base.onnx"), "-v")
    assert_ended(second, "*::test_model[[]b1-c1] UNCHANGED *", "1 unchanged.", passed=1)
    assert case_of(models)["latency"] is None


@pytest.mark.usefixtures("installed")
def test_other_external_weights_are_not_the_recorded_ones(models: pytest.Pytester) -> None:
    weights = save_beside(onnx.load(str(models.path / "base.onnx")), models.path / "base.onnx")
    graph = (models.path / "base.onnx").read_bytes()
    measured(models, test_of("base.onnx"), UPDATE).assert_outcomes(passed=1)
    measured(models, test_of("base.onnx")).stdout.fnmatch_lines(["1 unchanged."])
    weights.write_bytes(bytes(weights.stat().st_size))
    measured(models, test_of("base.onnx", tolerance=WIDE)).stdout.no_fnmatch_line("*unchanged*")
    case = case_of(models)
    assert (models.path / "base.onnx").read_bytes() == graph
    assert (case["verdict"], case["latency"] is None) == ("passed", False)


@pytest.mark.slow
def test_a_case_recorded_over_a_baseline_is_not_new(recorded: pytest.Pytester) -> None:
    result = measured(recorded, test_of("slow_400us.onnx"), UPDATE, "--modelperf-strict")
    assert_ended(result, "*p50 latency *0.2* ms *0.4* ms *", "1 recorded.", passed=1)
    result.stdout.no_fnmatch_line("* new*")


@pytest.mark.slow
def test_only_what_has_no_baseline_is_recorded_as_new(recorded: pytest.Pytester) -> None:
    before = (recorded.path / "baselines/base/model.json").read_bytes()
    assert_ended(measured(recorded, test_of("slow_400us.onnx"), f"{UPDATE}=new"), failed=1)
    assert (recorded.path / "baselines/base/model.json").read_bytes() == before
    other = measured(recorded, test_of("slow_400us.onnx", baseline="other.onnx"), f"{UPDATE}=new")
    assert_ended(other, "wrote *other.onnx", "1 recorded.", passed=1)


@pytest.mark.parametrize(
    ("model", "outcome", "lines"),
    [
        ("fast_100us.onnx", "passed", ["wrote *base.onnx", "1 improved.*"]),
        ("slow_400us.onnx", "failed", ["1 regressed.*"]),
    ],
)
def test_only_what_improved_is_recorded_as_such_and_still_called_improved(
    recorded: pytest.Pytester, model: str, outcome: str, lines: list[str]
) -> None:
    before = (recorded.path / "baselines/base/model.json").read_bytes()
    result = assert_ended(measured(recorded, test_of(model), f"{UPDATE}=improved"), **{outcome: 1})
    result.stdout.fnmatch_lines(lines)
    is_recorded = (recorded.path / "baselines/base/model.json").read_bytes() != before
    assert is_recorded == (outcome == "passed")


def test_an_improvement_that_cannot_be_recorded_fails(
    recorded: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise MeasureError("no room")

    monkeypatch.setattr("pytest_modelperf.testing.checking.record_case", refuse)
    assert_ended(measured(recorded, test_of("fast_100us.onnx"), f"{UPDATE}=improved"), failed=1)
    assert case_of(recorded)["failure"] == "no room"


def test_a_model_that_only_loads_more_slowly_regressed(recorded: pytest.Pytester) -> None:
    write_timed(recorded.path / "heavy_load9000us.onnx", weight=9)
    result = measured(recorded, test_of("heavy_load9000us.onnx"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["regressed: load +* %*, allowed +15 %;*", "* ms before, * ms now"])
    metrics = case_of(recorded)["metrics"]
    assert names_of(metrics, "regressed") == {"load_ms"}
    assert "latency_p50" in names_of(metrics, "passed")


@pytest.mark.slow
def test_memory_is_measured_if_it_is_named_or_the_model_changed(
    recorded: pytest.Pytester,
) -> None:
    def names() -> set[str]:
        return {metric["name"] for metric in case_of(recorded)["metrics"]}

    measured(recorded, test_of("equal_200us.onnx")).assert_outcomes(passed=1)
    assert "memory_bytes" not in names()
    measured(recorded, test_of("equal_200us.onnx", tolerance={"memory": 0.05}))
    assert "memory_bytes" in names()
    write_timed(recorded.path / "wide.onnx", width=9)
    measured(recorded, test_of("wide.onnx"))
    assert "memory_bytes" in names()


def test_a_model_that_takes_more_room_regressed(recorded: pytest.Pytester) -> None:
    model = onnx.load(recorded.path / "equal_200us.onnx")
    model.doc_string = "a trace of the source" * 100_000
    onnx.save(model, str(recorded.path / "equal_200us.onnx"))
    wide = {"p50": WIDE, "p95": WIDE, "load": WIDE, "first": WIDE}
    result = measured(recorded, test_of("equal_200us.onnx", tolerance=wide))
    assert_ended(
        result, "regressed: file size +*, allowed +1 MiB; 615 B before, * MiB now", failed=1
    )
    assert names_of(case_of(recorded)["metrics"], "regressed") == {"size_bytes"}
    measured(recorded, test_of("equal_200us.onnx", tolerance={**wide, "size": "99999999 %"}))
    assert "size_bytes" in names_of(case_of(recorded)["metrics"], "passed")


def test_the_growth_of_memory_has_a_budget(recorded: pytest.Pytester) -> None:
    source = with_budgets(test_of("equal_200us.onnx"), {"growth_kb_per_inference": 100})
    measured(recorded, source).assert_outcomes(passed=1)
    metrics = case_of(recorded)["metrics"]
    (growth,) = (m for m in metrics if m["name"] == "growth_bytes_per_inference")
    assert (growth["verdict"], growth["limit"]) == ("passed", 100_000)
    low, high = growth["after_interval"]
    assert low <= growth["after"] <= high < 100_000


@pytest.mark.slow
def test_outputs_are_judged_if_the_older_model_runs(recorded: pytest.Pytester) -> None:
    shares = {name: f"{100 * share:g} %" for name, share in {"p50": 9.0, "outputs": 0.01}.items()}
    measured(recorded, test_of("equal_200us.onnx", tolerance=shares)).assert_outcomes(passed=1)
    case = case_of(recorded)
    assert any(note.startswith("outputs are not judged: ") for note in case["notes"])
    assert "outputs" not in {metric["name"] for metric in case["metrics"]}
    recorded.makepyfile(test_of("slow_400us.onnx", tolerance=shares))
    options = ("--modelperf", "--modelperf-max-seconds=1", JSON)
    assert_ended(recorded.runpytest_inprocess(*options, "--modelperf-against=base.onnx"), failed=1)
    (outputs,) = (m for m in case_of(recorded)["metrics"] if m["name"] == "outputs")
    # The weights of the new model are three times as large.
    assert (outputs["verdict"], outputs["allowed"]) == ("regressed", 0.01)
    assert outputs["after"] == pytest.approx(2.0, rel=1e-3)


def test_a_slower_model_regressed(recorded: pytest.Pytester) -> None:
    result = measured(recorded, test_of("slow_400us.onnx"), "-v")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert_ended(
        result,
        "*::test_model[[]b1-c1] REGRESSED *",
        "regressed: p50 latency +* % (* % interval *",
        "metric *before* *now* *change* *allowed*",
        "p50 latency * ms * ms * regressed",
        "MACs * 128 * 128 * passed",
        "how: * duet, *",
        "note: the baseline takes * on this machine *",
        "accept: pytest --modelperf --modelperf-update-baseline *",
        "FAILED test_a_slower_model_regressed.py::test_model[[]b1-c1] - regressed: p50 l*",
        failed=1,
    )
    text = result.stdout.str().replace(" \\\n   ", " ").replace("\\\n", "")
    command = "pytest --modelperf --modelperf-update-baseline --modelperf-engine=timed"
    accept = f'accept: {command} "{{}}::test_model[b1-c1]"'
    assert accept.format("test_a_slower_model_regressed.py") in text
    # Its engine does not time layers.
    result.stdout.no_fnmatch_line("*time by layer type*")
    assert_says_no_internals(result)


@pytest.mark.slow
def test_the_accept_line_makes_it_pass(recorded: pytest.Pytester) -> None:
    measured(recorded, test_of("slow_400us.onnx")).assert_outcomes(failed=1)
    test = "test_the_accept_line_makes_it_pass.py::test_model[b1-c1]"
    recorded.runpytest_inprocess(*TIMED, UPDATE, test).assert_outcomes(passed=1)


@pytest.mark.usefixtures("idle")
def test_more_macs_are_shown_by_layer_without_a_run_too(recorded: pytest.Pytester) -> None:
    """The twin of the baseline knows the layers that its counts do not have."""
    write_timed(recorded.path / "base.onnx", width=9)
    assert_ended(measured(recorded, test_of("base.onnx"), "--modelperf-static-only"), failed=1)
    reason = "1 of 1 MatMul of another shape (first: product, output 1x8 -> 1x9): +16 MACs"
    assert case_of(recorded)["reasons"] == [reason]


@pytest.mark.usefixtures("idle")
def test_a_model_at_other_dimensions_than_were_recorded_is_new(recorded: pytest.Pytester) -> None:
    wide = parse(
        "g (float[N,16] x, float[K] z) => (float[N,9] y) { [product] y = MatMul(x, w) }",
        weights={"w": ones(16, 9)},
    )
    (recorded.path / "base.onnx").write_bytes(wide.SerializeToString())
    test = test_of("base.onnx", dims={"K": 4})
    assert_ended(measured(recorded, test, "--modelperf-static-only"), "1 new.*", passed=1)
    (reason,) = case_of(recorded)["reasons"]
    assert reason.startswith("the baseline of b1-c1 was recorded at other dimensions")


def test_a_tolerance_that_is_wide_enough_lets_a_slower_model_pass(
    recorded: pytest.Pytester,
) -> None:
    measured(recorded, test_of("slow_400us.onnx", tolerance=WIDE)).assert_outcomes(passed=1)


WITHIN = {
    "latency_ms": 1e6,
    "items_per_second": 1e-3,
    "load_ms": 1e6,
    "first_inference_ms": 1e6,
    "peak_memory_mb": 100_000,
    "macs": 128,
    "size_mb": 1,
}
OVER = {
    "latency_ms": 0.001,
    "p99_ms": 0.001,
    "items_per_second": 1e9,
    "load_ms": 1e-6,
    "first_inference_ms": 1e-6,
    "peak_memory_mb": 0.1,
    "macs": 127,
    "size_mb": 0.0001,
}
FIGURES = {
    "latency_p50",
    "latency_p99",
    "items_per_second",
    "load_ms",
    "first_inference_ms",
    "peak_rss_bytes",
    "macs",
    "size_bytes",
}


def with_budgets(source: str, budgets: Mapping[str, float]) -> str:
    given = ", ".join(f"{word}={limit}" for word, limit in budgets.items())
    return source.replace("def test_", f"@pytest.mark.perf_budget({given})\n        def test_")


def test_a_new_model_within_all_of_its_budgets(models: pytest.Pytester) -> None:
    assert_ended(measured(models, with_budgets(test_of("base.onnx"), WITHIN)), passed=1)
    case = case_of(models)
    assert case["verdict"] == "new"
    # A percentile takes more samples than there is time for.
    assert names_of(case["metrics"], "passed") == FIGURES - {"latency_p99"}


def test_a_new_model_over_all_of_its_budgets(models: pytest.Pytester) -> None:
    result = assert_ended(
        measured(models, with_budgets(test_of("base.onnx"), OVER), "-v"),
        "*OVER BUDGET*",
        "over budget: p50 latency * ms (* interval *), limit",
        "  0.001000 ms; also p99 latency, items/s, load, first inference, peak memory,",
        "budget: change it where it is set, in the test or in [[]tool.modelperf];*",
        failed=1,
    )
    case = case_of(models)
    assert case["verdict"] == "over budget"
    assert names_of(case["metrics"], "over budget") == FIGURES
    assert_says_no_internals(result)


@pytest.mark.usefixtures("installed")
def test_budgets_of_a_model_that_is_unchanged_are_measured(recorded: pytest.Pytester) -> None:
    assert_ended(measured(recorded, with_budgets(test_of("base.onnx"), WITHIN)), passed=1)
    assert case_of(recorded)["verdict"] == "unchanged"
    assert case_of(recorded)["how"] is None
    assert case_of(recorded)["rounds"] >= 1
    assert names_of(case_of(recorded)["metrics"], "passed") >= FIGURES - {"latency_p99"}
    over = measured(recorded, with_budgets(test_of("base.onnx"), {"latency_ms": 0.001}))
    over.assert_outcomes(failed=1)
    assert case_of(recorded)["verdict"] == "over budget"
    over.stdout.fnmatch_lines(["over budget: p50 latency * ms *, limit", "  0.001000 ms"])


def test_a_recorded_case_is_measured_until_its_budgets_are_decided(models: pytest.Pytester) -> None:
    """The short processes of a recording hold too few samples for a p99.9."""
    source = with_budgets(test_of("base.onnx"), {"p99_9_ms": 0.3})
    measured(models, source, UPDATE).assert_outcomes(passed=1)
    assert names_of(case_of(models)["metrics"], "passed") == {"latency_p99.9"}
    assert case_of(models)["recorded"]


@pytest.mark.usefixtures("installed", "idle")
def test_an_unchanged_model_without_a_budget_of_a_run_does_not_run(
    recorded: pytest.Pytester,
) -> None:
    measured(recorded, test_of("base.onnx")).assert_outcomes(passed=1)
    source = with_budgets(test_of("base.onnx"), {"macs": 127})
    measured(recorded, source).assert_outcomes(failed=1)


def test_a_budget_is_judged_in_addition_to_the_baseline(recorded: pytest.Pytester) -> None:
    source = with_budgets(test_of("slow_400us.onnx"), {"latency_ms": 0.3, "peak_memory_mb": 1e5})
    measured(recorded, source).assert_outcomes(failed=1)
    case = case_of(recorded)
    assert case["verdict"] == "regressed"
    limits = {m["name"]: m["verdict"] for m in case["metrics"] if m["limit"] is not None}
    assert limits == {"latency_p50": "over budget", "peak_rss_bytes": "passed"}


@pytest.fixture
def undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """No duet shows anything."""

    def judge(*_: object, **__: object) -> Decision:
        return Decision(
            answer=RatioAnswer.OPEN,
            confidence=0.99,
            rounds=6,
            ratio=1.02,
            low=0.99,
            high=1.05,
            detectable=0.041,
            rounds_needed=40,
        )

    # No engine can be made to leave a comparison open each time: that is up to chance.
    monkeypatch.setattr("pytest_modelperf.comparing.gates.judge_duet", judge)


@pytest.mark.usefixtures("undecided")
def test_an_inconclusive_case_passes_with_a_note_and_fails_a_strict_run(
    recorded: pytest.Pytester,
) -> None:
    options = ("-v", "--modelperf-max-seconds=0.3")
    assert_ended(
        measured(recorded, test_of("base.onnx"), *options),
        "*::test_model[[]b1-c1] INCONCLUSIVE *",
        "1 inconclusive.*",
        "inconclusive: *--modelperf-max-seconds*",
        passed=1,
    )
    strict = measured(recorded, test_of("base.onnx"), "--modelperf-strict", options[1])
    strict.assert_outcomes(failed=1)
    strict.stdout.fnmatch_lines(
        ["inconclusive: p50 latency +2.0 %*", "*this run could see *p50 latency +4.1 %*"]
    )
    assert_says_no_internals(strict)


FAULTY = """
    import pytest

    @pytest.mark.perf_case(
        model="base.onnx", engine="faulty", engine_options={{"at": "20", {options}}}
    )
    def test_faulty(): pass

    @pytest.mark.perf_case(model="base.onnx", engine="timed", baseline="next.onnx")
    def test_next(): pass
"""


def test_a_crash_of_an_engine_fails_one_test_and_the_next_one_runs(models: pytest.Pytester) -> None:
    source = FAULTY.format(options='"do": "signal", "signal": "SIGSEGV"')
    # An engine that is typed would count for both.
    models.makepyfile(source)
    # In a short time the first session may end before the crash.
    result = assert_ended(
        models.runpytest_inprocess("--modelperf", "--modelperf-max-seconds=30", JSON, "-v"),
        "*::test_faulty[[]b1-c1] FAILED *",
        "*::test_next[[]b1-c1] NEW *",
        "failed: *",
        "*SIGSEGV*",
        "1 failed, 1 new.",
        failed=1,
        passed=1,
    )
    assert [case["verdict"] for case in cases_of(models)] == [None, "new"]
    assert_says_no_internals(result)


def test_a_worker_that_hangs_is_given_up(models: pytest.Pytester) -> None:
    source = test_of("base.onnx", engine="faulty", engine_options={"at": "20", "do": "hang"})
    result = run_tests(models, source, "--modelperf", "--modelperf-timeout=0.5", JSON)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "failed: *",
            # In round 1, or before it if the worker is slow to begin.
            "no answer for * s *: the worker was ended.*",
            "*with --modelperf-timeout.",
        ]
    )
    assert case_of(models)["verdict"] is None
    assert_says_no_internals(result)


def test_a_side_that_does_not_load_gives_no_verdict(recorded: pytest.Pytester) -> None:
    result = measured(recorded, test_of("crash.onnx"))
    assert_ended(result, "failed: *", "*it does not load*", failed=1)
    assert case_of(recorded)["verdict"] is None


def test_a_case_that_cannot_be_recorded_stores_nothing(models: pytest.Pytester) -> None:
    result = assert_ended(measured(models, test_of("crash.onnx"), UPDATE), failed=1)
    printed = " ".join(result.stdout.str().split())
    assert re.search("b1-c1 cannot be recorded: .* RuntimeError: ", printed)
    assert not (models.path / "baselines").exists()


def test_too_few_cores_are_a_skipped_test(models: pytest.Pytester) -> None:
    result = measured(models, test_of("base.onnx", cores=4096), "-rs")
    assert_ended(result, "SKIPPED *4096 cores are wanted, but *", skipped=1)
    result.stdout.no_fnmatch_line("*Give at most*")
    assert cases_of(models) == []


CALL = """
def test_it(modelperf):
    modelperf.check("base.onnx", cores=4096)
"""


@pytest.mark.parametrize("source", [test_of("base.onnx", cores=4096), CALL], ids=["mark", "call"])
def test_too_few_cores_fail_a_strict_run(models: pytest.Pytester, source: str) -> None:
    result = assert_ended(measured(models, source, "--modelperf-strict"), failed=1)
    assert result.ret is pytest.ExitCode.TESTS_FAILED
    printed = " ".join(result.stdout.str().split())
    assert re.search(
        r"4096 cores are wanted, but [^.]+\. Give at most \d+ for cores, or use a machine with "
        r"4096 cores\. (E +)?--modelperf-strict fails a case that cannot run here: leave it out of "
        r"strict runs with --deselect '?test_too_few_cores_fail_a_strict_run.py::test_\S+",
        printed,
    )
    test = printed.partition(" --deselect ")[2].partition(",")[0].strip("'")
    again = models.runpytest_inprocess(*TIMED, "--modelperf-strict", f"--deselect={test}")
    again.assert_outcomes(deselected=1)


@pytest.mark.parametrize(
    "where",
    [
        "pytest_modelperf.testing.judging.compare_case",
        "pytest_modelperf.comparing.gates.judge_duet",
    ],
)
def test_an_exception_is_a_failure_and_never_a_verdict(
    recorded: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError("a mistake of ours")

    # A mistake that we know of would be mended.
    monkeypatch.setattr(where, fail)
    result = measured(recorded, test_of("base.onnx"))
    assert_ended(result, "*ZeroDivisionError: a mistake of ours*", failed=1)
    assert cases_of(recorded) == []


def test_the_error_of_an_unknown_engine_lists_the_known_ones(models: pytest.Pytester) -> None:
    result = run_tests(models, test_of("base.onnx"), "--modelperf", "--modelperf-engine=tmed")
    result.stdout.fnmatch_lines(["*there is no engine 'tmed'*There are: *timed*"])
    assert result.ret != pytest.ExitCode.OK
    assert_says_no_internals(result)


def test_a_path_replaces_the_baseline(models: pytest.Pytester) -> None:
    assert_ended(
        measured(models, test_of("base.onnx"), "--modelperf-against=fast_100us.onnx"),
        "modelperf: against fast_100us.onnx, *",
        "regressed: p50 latency *",
        "accept: allow it with --modelperf-tolerance, or give another version*",
        failed=1,
    )
    assert case_of(models)["accept"] is None


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_git_ref_replaces_the_baseline(models: pytest.Pytester) -> None:
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for command in ("init --quiet", "add base.onnx", "commit --quiet -m first"):
        subprocess.run([*git, *command.split()], cwd=models.path, check=True)
    write_timed(models.path / "base.onnx", width=16)
    result = measured(models, test_of("base.onnx", tolerance=WIDE), "--modelperf-against=HEAD")
    result.assert_outcomes(failed=1)
    found = {metric["name"]: metric for metric in case_of(models)["metrics"]}
    assert (found["macs"]["before"], found["macs"]["after"]) == (128, 256)
    assert found["latency_p50"]["verdict"] == "passed"


def test_a_comparison_with_a_path_needs_no_baseline_and_records_none(
    models: pytest.Pytester,
) -> None:
    options = ("--modelperf-against=slow_400us.onnx", "--modelperf-strict")
    measured(models, test_of("base.onnx"), *options).assert_outcomes(passed=1)
    assert case_of(models)["verdict"] == "improved"
    assert not (models.path / "baselines").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_the_side_of_the_baseline_may_have_a_python_of_its_own(recorded: pytest.Pytester) -> None:
    """The same model in two interpreters is not unchanged."""
    source = test_of("base.onnx", tolerance=WIDE)
    measured(recorded, source, f"--modelperf-baseline-python={sys.executable}")
    case = case_of(recorded)
    assert case["verdict"] in {"passed", "inconclusive"}
    assert case["rounds"] >= 1


@pytest.mark.usefixtures("idle")
def test_a_baseline_without_a_trusted_twin_cannot_run_in_a_python_of_its_own(
    models: pytest.Pytester, recording: BaselineRecording
) -> None:
    """Its stored times are of another engine than the one that was asked for."""
    store(doubted(recording), models.path / "baselines")
    option = f"--modelperf-baseline-python={sys.executable}"
    result = assert_ended(measured(models, test_of("equal_200us.onnx"), option), failed=1)
    assert_says_no_internals(result)
    message = "the baseline of b1-c1 cannot run in a Python of its own: the twin runs otherwise."
    result.stdout.fnmatch_lines([f"{message} Give the older model itself with *-against, *"])


def older_engine(run: pytest.Pytester) -> str:
    """The option that runs the baseline by version 0 of the engine."""
    python = run.path / "old-python"
    python.write_text(f'#!/bin/sh\nTIMED_VERSION=0 exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return f"--modelperf-baseline-python={python}"


@pytest.mark.slow
def test_a_model_that_another_engine_runs_slower_is_not_accepted_by_recording_it(
    recorded: pytest.Pytester,
) -> None:
    result = assert_ended(
        measured(recorded, test_of("slow_400us.onnx"), older_engine(recorded), "-rN"),
        "regressed, timed 0 → timed 1: p50 latency *",
        "accept: leave out * to judge the model alone: *",
        "*, timed 0, timed 1, 1 case in *",
        failed=1,
    )
    assert case_of(recorded)["accept"] is None
    result.stdout.no_fnmatch_line("*--modelperf-update-baseline*")


@pytest.mark.slow
def test_more_work_on_another_engine_is_accepted_by_recording_it(recorded: pytest.Pytester) -> None:
    """Counts are the same on every engine."""
    write_timed(recorded.path / "equal_200us.onnx", width=16)
    measured(recorded, test_of("equal_200us.onnx", tolerance=WIDE), older_engine(recorded))
    case = case_of(recorded)
    assert case["verdict"] == "regressed"
    assert "--modelperf-update-baseline" in case["accept"]


def run_body(models: pytest.Pytester, body: str, *options: str) -> pytest.RunResult:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    models.makepyfile(f"import pytest\ndef test_it(modelperf):\n{lines}")
    return models.runpytest_inprocess(*TIMED, JSON, *options)


def test_figures_that_take_a_run_are_had_when_they_are_asked_for(models: pytest.Pytester) -> None:
    body = """
import onnx, pathlib
profile = modelperf("base.onnx")
assert profile.latency.samples >= 130
assert profile.latency.p50_ms > 0.19
assert profile.load_ms >= 0
assert profile.first_inference_ms > 0.19
assert profile.peak_rss_bytes > 1_000_000
for in_memory in (pathlib.Path("base.onnx").read_bytes(), onnx.load("base.onnx")):
    profile = modelperf(in_memory)
    assert profile.static.macs == 128
    assert profile.latency.p50_ms > 0.19
"""
    run_body(models, body).assert_outcomes(passed=1)


@pytest.mark.usefixtures("idle")
def test_static_figures_run_nothing(models: pytest.Pytester) -> None:
    run_body(models, 'assert modelperf("crash.onnx").static.macs == 128').assert_outcomes(passed=1)


def test_an_error_of_a_run_is_shown_at_the_line_that_asked_for_it(models: pytest.Pytester) -> None:
    body = 'profile = modelperf("crash.onnx")\nassert profile.latency.p50_ms < 1'
    result = run_body(models, body)
    assert_ended(result, ">   *assert profile.latency.p50_ms < 1", "*it does not load*", failed=1)
    assert_says_no_internals(result)


@pytest.mark.slow
def test_layers_have_their_share_of_the_time(models: pytest.Pytester) -> None:
    """With the real engine, which gives the times of layers in whole microseconds."""
    text = """g (float[N,256] x) => (float[N,256] y) {
        [product] p = MatMul(x, w)
        [squash] y = Tanh(p)
    }"""
    model = parse(text, weights={"w": ones(256, 256)})
    (models.path / "two.onnx").write_bytes(model.SerializeToString())
    body = """
profile = modelperf("two.onnx", batch_size=64)
types = profile.layer_types
assert 0 < types["MatMul"].share < 1
assert 0 < types["Tanh"].share < 1
assert sum(kind.share for kind in types.values()) == pytest.approx(1)
assert types["MatMul"].macs == 64 * 256 * 256
ops = [row.qualified_op for row in profile.layers if row.static is not None]
assert ops == ["MatMul", "Tanh"]
"""
    models.makepyfile(
        "import pytest\ndef test_it(modelperf):\n"
        + "\n".join(f"    {line}" for line in body.strip().splitlines())
    )
    models.runpytest_inprocess("--modelperf", "--modelperf-max-seconds=1").assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_failure_of_the_real_engine_shows_which_layers_explain_it(
    models: pytest.Pytester,
) -> None:
    light = "g (float[N,64] x) => (float[N,64] y) { [one] y = MatMul(x, w) }"
    heavy = """g (float[N,64] x) => (float[N,64] y) {
        [one] a = MatMul(x, w)  [two] b = Erf(a)  [three] c = Erf(b)  [four] d = Erf(c)
        [five] e = MatMul(d, w)  [six] f = MatMul(e, w)  [seven] y = MatMul(f, w)
    }"""
    for name, text in (("light", light), ("heavy", heavy)):
        model = parse(text, weights={"w": ones(64, 64) / 64})
        (models.path / f"{name}.onnx").write_bytes(model.SerializeToString())
    models.makepyfile(test_of("heavy.onnx", batch_size=64))
    assert_ended(
        models.runpytest_inprocess("--modelperf", "--modelperf-against=light.onnx"),
        "regressed: p50 latency *",
        "why: *",
        "time by layer type, *",
        "layer type * now * change * interval * explains",
        "Erf * new",
        "-v also shows *",
        failed=1,
    )


BRANCHES = """g (float[1,16] x, bool cached) => (float[1,16] y) {
    y = If (cached) <
        then_branch = short () => (float[1,16] a) { a = MatMul(x, w) },
        else_branch = long () => (float[1,16] b) { c = MatMul(x, w)  b = MatMul(c, w) }
    >
}"""
INDICES = """g (float[16] x) => (float[N,16] y) {
    r = Relu(x)  i = NonZero(r)  t = Transpose(i)  f = Cast<to = 1>(t)  y = MatMul(f, w)
}"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "shape", "macs"), [(BRANCHES, (16, 16), 256), (INDICES, (1, 16), None)]
)
def test_counts_are_the_same_whether_or_not_a_run_completed_them(
    run: pytest.Pytester, text: str, shape: tuple[int, int], macs: int | None
) -> None:
    def write(weight: float) -> None:
        model = parse(text, weights={"w": weight * ones(*shape)})
        (run.path / "m.onnx").write_bytes(model.SerializeToString())

    def counts(*options: str) -> tuple[str, int, str]:
        run.runpytest_inprocess("--modelperf", "--modelperf-max-seconds=1", JSON, *options)
        case = case_of(run)
        found = {metric["name"]: metric for metric in case["metrics"]}
        judged = "recorded" if case["recorded"] else found["params"]["verdict"]
        return judged, case["static"]["macs"], found["macs"]["verdict"]

    # The MACs of one run, which are fewer than those of the costlier branch.
    write_table(run, f"""[tool.modelperf.models."m.onnx"]\nbudget = {{macs = {macs or 2000}}}""")
    write(1.0)
    _, recorded, kept = counts(UPDATE)
    assert kept == "passed"
    assert macs is None or recorded == macs
    # Nothing runs, in a run that only counts and in one that finds the model unchanged.
    assert counts("--modelperf-static-only") == ("passed", recorded, "passed")
    assert counts() == ("passed", recorded, "passed")
    write(2.0)
    assert counts() == ("passed", recorded, "passed")


def test_two_models_side_by_side_are_a_value_to_assert_on(models: pytest.Pytester) -> None:
    body = """
slower = modelperf.compare("base.onnx", "slow_400us.onnx")
assert slower.verdict.value == "regressed"
assert modelperf.compare("base.onnx", "base.onnx").verdict.value == "unchanged"
assert modelperf.compare("base.onnx", "fast_100us.onnx").verdict.value == "improved"
"""
    run_body(models, body).assert_outcomes(passed=1)
    assert cases_of(models) == []


def test_a_check_within_a_test_compares_a_model_with_its_baseline_and_returns_its_figures(
    recorded: pytest.Pytester,
) -> None:
    body = 'modelperf.check("slow_400us.onnx", baseline="base.onnx")\nraise AssertionError'
    result = run_body(recorded, body)
    assert_ended(result, ">   *modelperf.check(*", "E * regressed: p50 latency *", failed=1)
    assert case_of(recorded)["verdict"] == "regressed"
    assert_says_no_internals(result)
    body = """
profile = modelperf.check("fast_100us.onnx", baseline="base.onnx")
assert profile.latency.p50_ms < 0.19
assert profile.static.macs == 128
"""
    run_body(recorded, body).assert_outcomes(passed=1)
    assert case_of(recorded)["verdict"] == "improved"


def test_budgets_of_the_test_hold_for_a_call(models: pytest.Pytester) -> None:
    models.makepyfile("""
        import pytest

        @pytest.mark.perf_budget(latency_ms=0.001)
        def test_it(modelperf):
            modelperf("base.onnx")
            raise AssertionError
        """)
    result = models.runpytest_inprocess(*TIMED)
    assert_ended(result, ">   *modelperf(*", "E * over budget: p50 latency *", failed=1)
    assert_says_no_internals(result)


FUNCTIONS = """
    import pytest

    def spin():
        return sum(range(1000))

    @pytest.mark.perf_budget({budget})
    def test_spin(modelperf):
        profile = modelperf({call})
        assert profile.latency.samples >= 11
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    ["spin", "lambda: spin()", "'shapes:spin', engine='callable'"],
    ids=["function", "lambda", "name"],
)
def test_a_function_is_held_against_budgets(models: pytest.Pytester, call: str) -> None:
    models.makepyfile(shapes="def spin():\n    return sum(range(1000))\n")
    models.syspathinsert()

    def outcome(budget: str) -> pytest.RunResult:
        models.makepyfile(FUNCTIONS.format(call=call, budget=budget))
        return models.runpytest_inprocess("--modelperf", "--modelperf-max-seconds=60", JSON)

    outcome("latency_ms=1e6").assert_outcomes(passed=1)
    assert case_of(models)["verdict"] == "passed"
    assert_ended(outcome("latency_ms=0.0001"), "E * over budget: p50 latency *", failed=1)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        *(
            (word, "is for models*leave it out")
            for word in (
                "growth_kb_per_inference",
                "load_ms",
                "first_inference_ms",
                "macs",
                "size_mb",
            )
        ),
        ("peak_memory_mb", "needs a process*give the name"),
    ],
)
def test_a_budget_that_a_function_has_no_figure_for_is_refused(
    models: pytest.Pytester, word: str, message: str
) -> None:
    models.makepyfile(f"""
        import pytest

        @pytest.mark.perf_budget({word}=1)
        def test_function(modelperf):
            modelperf(lambda: sum(range(1000)))
    """)
    models.runpytest_inprocess("--modelperf").stdout.fnmatch_lines([f"*{word} {message}*"])


UNLIMITED = """
    import pytest

    def test_function(modelperf):
        modelperf.check("spins:spin", engine="callable")

    @pytest.mark.perf_budget(latency_ms=1e6)
    def test_limited(modelperf):
        modelperf.check("spins:spin", engine="callable")
"""
SPINS = """
    def spin():
        return sum(range(1000))
"""


@pytest.mark.slow
def test_a_function_without_a_budget_has_not_passed(models: pytest.Pytester) -> None:
    models.makepyfile(UNLIMITED, spins=SPINS)

    def run(*options: str) -> pytest.RunResult:
        return models.runpytest_inprocess(
            "--modelperf", "--modelperf-max-seconds=1", JSON, *options
        )

    result = assert_ended(run("--modelperf-update-baseline"), passed=2)
    assert sorted([case["verdict"] for case in cases_of(models)]) == ["inconclusive", "passed"]
    result.stdout.fnmatch_lines(
        ["*a Python function has no baseline, so it is judged by budgets alone*"]
    )
    result.stdout.fnmatch_lines(["*so --modelperf-update-baseline did not*"])
    strict = run("--modelperf-strict")
    assert_ended(strict, "*inconclusive: nothing was judged*", passed=1, failed=1)


def test_a_function_that_did_not_run_has_not_passed(models: pytest.Pytester) -> None:
    models.makepyfile(UNLIMITED, spins=SPINS)
    result = models.runpytest_inprocess("--modelperf", "--modelperf-static-only", JSON)
    result.assert_outcomes(passed=2)
    assert {case["verdict"] for case in cases_of(models)} == {"inconclusive"}


@pytest.mark.slow
@pytest.mark.parametrize("call", ["'sold:price', engine='callable'", "sold.price"])
def test_a_failure_names_the_file_of_the_function_that_the_test_imports(
    models: pytest.Pytester, call: str
) -> None:
    """The project has the package in `src`, and a release of it is further back in the path."""
    for place in ("src", "release"):
        models.mkdir(place).joinpath("sold.py").write_text("def price():\n    pass\n")
        models.syspathinsert(models.path / "release")
    models.makeini("[pytest]\npythonpath = src")
    models.makepyfile(f"""
        import pytest
        import sold

        @pytest.mark.perf_budget(latency_ms=1e-9)
        def test_price(modelperf):
            modelperf({call})
    """)
    result = models.runpytest_inprocess("--modelperf", "--modelperf-max-seconds=60", JSON)
    result.assert_outcomes(failed=1)
    file = models.path / "src" / "sold.py"
    assert case_of(models)["model"]["function_file"] == str(file)
    result.stdout.fnmatch_lines(["E * case: b1-c1 of *price from*"])


@pytest.mark.slow
def test_a_function_is_not_compared_with_another_version_and_a_note_says_so(
    models: pytest.Pytester,
) -> None:
    models.makepyfile(FUNCTIONS.format(call="spin", budget="latency_ms=1e6"))
    result = models.runpytest_inprocess(
        "--modelperf", "--modelperf-max-seconds=60", "--modelperf-against=base.onnx", JSON
    )
    result.assert_outcomes(passed=1)
    (note,) = case_of(models)["notes"]
    assert (
        note == "a Python function has no older version, so --modelperf-against did not compare it"
    )
    notes = json.loads((models.path / "run.json").read_text("utf-8"))["notes"]
    assert any(each.startswith(f"{note}: test_") for each in notes)


def test_a_function_has_no_graph_to_count(models: pytest.Pytester) -> None:
    models.makepyfile("""
        def spin():
            return sum(range(1000))

        def test_spin(modelperf):
            assert modelperf(spin).static.macs
        """)
    result = models.runpytest_inprocess("--modelperf", "--modelperf-max-seconds=1")
    assert_ended(result, "E * has no graph to count*", failed=1)
    assert_says_no_internals(result)


def test_a_case_that_ran_has_a_trace(models: pytest.Pytester) -> None:
    assert_ended(measured(models, test_of("base.onnx"), "--modelperf-trace=traces"), passed=1)
    (path,) = (models.path / "traces").iterdir()
    assert path.name.endswith("--test_model[b1-c1].json")
    names = {event["name"] for event in json.loads(path.read_text())["traceEvents"]}
    assert {"process_name", "round 1"} <= names


def test_each_case_of_a_test_has_a_trace_of_its_own_although_the_id_is_long(
    models: pytest.Pytester,
) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("number", [1], ids=["1" * 250])
        def test_models(modelperf, number):
            for size in (1, 2):
                modelperf.check("base.onnx", batch_size=size)
    """
    measured(models, source, "--modelperf-trace=traces").assert_outcomes(passed=1)
    names = [path.name for path in (models.path / "traces").iterdir()]
    assert len(names) == 2
    assert all("--test_models[1111" in name for name in names)


def test_a_trace_that_cannot_be_had_fails_its_test(
    models: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise MeasureError("the engine is gone")

    monkeypatch.setattr("pytest_modelperf.testing.checking.Checker.measure", fail)
    result = measured(models, test_of("base.onnx"), "--modelperf-trace=traces")
    assert_ended(result, "*the engine is gone*", failed=1)


def test_a_test_that_skips_itself_before_its_check_is_reported_by_a_strict_run(
    recorded: pytest.Pytester,
) -> None:
    source = """
        import pytest

        def test_before(modelperf):
            pytest.skip("only on the large machine")

        def test_after(modelperf):
            modelperf.check("base.onnx")
            pytest.skip("only on the large machine")

        @pytest.mark.xfail
        def test_expected(modelperf):
            raise KeyError
    """
    recorded.makepyfile(test_it=source)
    result = recorded.runpytest_inprocess(*TIMED, "--modelperf-strict")
    result.assert_outcomes(skipped=2, xfailed=1)
    printed = " ".join(result.stdout.str().split())
    note = "note: 1 test was skipped by the project itself, and not judged: test_it.py::test_before"
    assert note in printed
