"""An engine that changed since a baseline was recorded: said, and judged apart from the model.

The engine takes as long as the name of a model says. Its version 2 is installed, and takes twice as
long where a test says so; version 1 recorded the baseline, and is in an environment of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_modelperf.baselines.records import BaselineRecording
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.environments.store import environments_folder, make_environment
from pytest_modelperf.files.store import FOLDER_VARIABLE
from pytest_modelperf.stats.decisions import share_level
from tests.support.doubted_twin import doubted
from tests.support.installed import install
from tests.support.installers import FakeInstaller
from tests.support.known import known
from tests.support.project import assert_ended, assert_says_no_internals, write_table
from tests.support.timed_models import JSON, TIMED, UPDATE, cases_of, store, test_of

pytestmark = pytest.mark.slow

JUDGE = "--modelperf-judge-upgrades"
REQUIREMENT = "--modelperf-baseline-requirement"
OLD = FakeInstaller(
    {"timed": ("1",), "numpy": ("2.1.0",)},
    variables="TIMED_VERSION=1 TIMED_FACTOR=1 TIMED_OUTPUT=1",
)


@pytest.fixture
def upgraded(
    models: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    recording: BaselineRecording,
    tmp_path_factory: pytest.TempPathFactory,
) -> pytest.Pytester:
    """A baseline by version 1, and version 2 installed; nothing can be downloaded."""
    store(recording, models.path / "baselines")
    install(monkeypatch, tmp_path_factory.mktemp("packages"), "timed", "2")
    monkeypatch.setenv("TIMED_VERSION", "2")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path_factory.mktemp("cache")))
    tools = tmp_path_factory.mktemp("tools")
    (tools / "uv").write_text('#!/bin/sh\necho "no network here"\nexit 2\n')
    (tools / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    return models


@pytest.fixture
def with_old_version(upgraded: pytest.Pytester) -> pytest.Pytester:
    make_environment(["timed==1"], installer=OLD, folder=environments_folder())
    return upgraded


@pytest.fixture
def slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2 takes twice as long as version 1."""
    monkeypatch.setenv("TIMED_FACTOR", "2")


def checked(run: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    run.makepyfile(source)
    return run.runpytest_inprocess(*TIMED, JSON, *options)


def verdicts_of(run: pytest.Pytester) -> Mapping[str, str | None]:
    return {case["id"]: case["verdict"] for case in cases_of(run)}


def upgrade_of(run: pytest.Pytester) -> Mapping[str, Any]:
    (found,) = (case for case in cases_of(run) if case["upgrade"])
    return found


def test_a_run_says_that_the_engine_changed_and_what_judges_it(upgraded: pytest.Pytester) -> None:
    assert_ended(
        checked(upgraded, test_of("base.onnx")),
        f"modelperf: 1 baseline recorded with timed 1, installed is 2: {JUDGE} judges the *",
        "engine: timed 1 → 2 since 1 case was recorded, and both sides ran on 2;",
        f"        {JUDGE} judges the upgrade",
        passed=1,
    )
    (case,) = cases_of(upgraded)
    assert case["engine_change"] == {"engine": "timed", "recorded": "1", "installed": "2"}
    assert not case["upgrade"]


def test_an_engine_that_did_not_change_is_not_mentioned(
    upgraded: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    install(monkeypatch, tmp_path_factory.mktemp("same"), "timed", "1")
    result = checked(upgraded, test_of("base.onnx"), JUDGE)
    assert verdicts_of(upgraded) == {"b1-c1": "unchanged"}
    result.stdout.no_fnmatch_line("*recorded with timed*")
    result.stdout.no_fnmatch_line("engine:*")


@pytest.mark.parametrize(
    "options",
    [("--modelperf-static-only",), ("--modelperf-against=base.onnx",), (UPDATE,)],
    ids=lambda options: options[0],
)
def test_a_run_that_compares_with_no_baseline_on_an_engine_does_not_say_so(
    upgraded: pytest.Pytester, options: tuple[str, ...]
) -> None:
    write_table(upgraded, "[tool.modelperf]\njudge_engine_upgrades = true\n")
    result = checked(upgraded, test_of("base.onnx"), *options)
    result.stdout.no_fnmatch_line("*recorded with timed*")
    result.stdout.no_fnmatch_line("engine:*")
    assert not any(case["upgrade"] for case in cases_of(upgraded))


def test_a_broken_baseline_is_reported_by_its_check_and_not_by_the_header(
    upgraded: pytest.Pytester,
) -> None:
    (upgraded.path / "baselines" / "base" / "model.json").write_text("{")
    result = assert_ended(checked(upgraded, test_of("base.onnx"), JUDGE), failed=1)
    assert_says_no_internals(result)
    result.stdout.fnmatch_lines(["*model.json, line 1: *"])


@pytest.mark.usefixtures("slower")
def test_a_slower_engine_is_another_verdict_than_that_of_the_model(
    with_old_version: pytest.Pytester,
) -> None:
    reports = ("--modelperf-markdown=run.md", "--modelperf-history=history", "--junitxml=run.xml")
    result = checked(with_old_version, test_of("base.onnx"), JUDGE, *reports)
    result.assert_outcomes(failed=1)
    assert verdicts_of(with_old_version) == {"b1-c1": "passed", "b1-c1-upgrade": "regressed"}
    result.stdout.fnmatch_lines(
        [
            "modelperf: 1 baseline recorded with timed 1, installed is 2: the upgrade is judged",
            "upgrade *: regressed, timed 1 → timed 2: p50 latency +* %*",
            "accept: pytest --modelperf --modelperf-update-baseline *",
            "*, timed 1, timed 2, 1 case and 1 upgrade in *",
            "*model[[]b1-c1] upgrade *regressed *",
            "*model[[]b1-c1] *passed *",
            "1 regressed, 1 passed. *",
        ]
    )
    assert_says_no_internals(result)
    upgrade = upgrade_of(with_old_version)
    assert upgrade["engine_change"]["recorded"] == "1"
    ratios = {metric["name"]: metric["ratio"] for metric in upgrade["metrics"]}
    assert ratios["latency_p50"] == pytest.approx(2, rel=0.01)
    # Both are answers of one run, and share its level.
    shared = round(Gate(level=share_level(2)).confidence, 3)
    assert {case["confidence"] for case in cases_of(with_old_version)} == {shared}
    rows = (with_old_version.path / "run.md").read_text().splitlines()
    assert [row for row in rows if "upgrade" in row and "regressed" in row and "|" in row]
    lines = [
        line
        for path in (with_old_version.path / "history").rglob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    # It says nothing of the model.
    assert len(lines) == 1
    assert "upgrade" not in lines[0]


def test_a_slower_model_is_another_verdict_than_that_of_the_engine(
    with_old_version: pytest.Pytester,
) -> None:
    result = assert_ended(checked(with_old_version, test_of("slow_400us.onnx"), JUDGE), failed=1)
    assert verdicts_of(with_old_version) == {"b1-c1": "regressed", "b1-c1-upgrade": "passed"}
    result.stdout.no_fnmatch_line("upgrade *: regressed*")


@pytest.mark.usefixtures("slower")
def test_a_model_and_an_engine_that_are_both_slower_are_both_reported(
    with_old_version: pytest.Pytester,
) -> None:
    result = assert_ended(checked(with_old_version, test_of("slow_400us.onnx"), JUDGE), failed=1)
    assert set(verdicts_of(with_old_version).values()) == {"regressed"}
    result.stdout.fnmatch_lines(
        ["regressed: p50 latency *", "upgrade *: regressed, timed 1 → timed 2: *"]
    )


@pytest.mark.usefixtures("slower")
def test_the_table_may_ask_for_upgrades_and_the_fixture_judges_them_too(
    with_old_version: pytest.Pytester,
) -> None:
    write_table(with_old_version, "[tool.modelperf]\njudge_engine_upgrades = true\n")
    source = """
        def test_it(modelperf):
            modelperf.check("base.onnx")
    """
    assert_ended(checked(with_old_version, source), failed=1)
    assert verdicts_of(with_old_version) == {"b1-c1": "passed", "b1-c1-upgrade": "regressed"}


@pytest.mark.usefixtures("slower")
def test_recording_the_baseline_again_accepts_the_upgrade(
    with_old_version: pytest.Pytester,
) -> None:
    checked(with_old_version, test_of("base.onnx"), UPDATE).assert_outcomes(passed=1)
    assert_ended(checked(with_old_version, test_of("base.onnx"), JUDGE), passed=1)
    assert verdicts_of(with_old_version) == {"b1-c1": "unchanged"}


def output_metric(case: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = next(
        (metric for metric in case["metrics"] if metric["name"] == "outputs"), None
    )
    return found


def test_an_upgrade_that_changes_outputs_fails_if_a_limit_judges_them(
    with_old_version: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMED_OUTPUT", "1.05")
    write_table(with_old_version, "[tool.modelperf]\ntolerance = {outputs = 0.01}\n")
    result = assert_ended(checked(with_old_version, test_of("base.onnx"), JUDGE), failed=1)
    upgrade = upgrade_of(with_old_version)
    assert upgrade["verdict"] == "regressed"
    assert known(output_metric(upgrade))["after"] == pytest.approx(0.05, rel=1e-3)
    result.stdout.fnmatch_lines(["*outputs: y differs first at product (MatMul): *"])


def test_an_upgrade_within_the_limit_of_outputs_passes(
    with_old_version: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMED_OUTPUT", "1.005")
    write_table(with_old_version, "[tool.modelperf]\ntolerance = {outputs = 0.01}\n")
    checked(with_old_version, test_of("base.onnx"), JUDGE).assert_outcomes(passed=1)
    assert upgrade_of(with_old_version)["verdict"] == "passed"


def test_without_a_limit_the_outputs_of_an_upgrade_judge_nothing(
    with_old_version: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMED_OUTPUT", "1.05")
    checked(with_old_version, test_of("base.onnx"), JUDGE).assert_outcomes(passed=1)
    assert output_metric(upgrade_of(with_old_version)) is None


def test_a_version_that_cannot_be_installed_is_a_failure_and_the_model_keeps_its_verdict(
    upgraded: pytest.Pytester,
) -> None:
    result = assert_ended(checked(upgraded, test_of("base.onnx"), JUDGE), failed=1)
    assert verdicts_of(upgraded) == {"b1-c1": "passed", "b1-c1-upgrade": None}
    assert "no environment with timed==1 for Python" in upgrade_of(upgraded)["failure"]
    result.stdout.fnmatch_lines(["upgrade of the engine: failed: *"])
    result.stdout.fnmatch_lines(["*uv failed:*", "*no network here*"])
    assert_says_no_internals(result)


def store_again(recording: BaselineRecording, folder: Path) -> None:
    """An update alone keeps what a figure was first recorded with."""
    shutil.rmtree(folder)
    store(recording, folder)


@pytest.mark.usefixtures("slower")
def test_without_a_trusted_twin_the_recorded_model_itself_runs(
    with_old_version: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(doubted(recording), with_old_version.path / "baselines")
    checked(with_old_version, test_of("base.onnx"), JUDGE)
    assert upgrade_of(with_old_version)["verdict"] == "regressed"


def test_without_a_trusted_twin_of_a_changed_model_nothing_is_judged(
    with_old_version: pytest.Pytester, recording: BaselineRecording
) -> None:
    store(doubted(recording), with_old_version.path / "baselines")
    result = checked(with_old_version, test_of("equal_200us.onnx"), JUDGE)
    found = upgrade_of(with_old_version)
    assert found["verdict"] == "inconclusive"
    assert found["reasons"] == [
        "the model changed, and the recorded one cannot be run: the twin runs otherwise"
    ]
    assert_says_no_internals(result)


@pytest.mark.usefixtures("slower")
@pytest.mark.parametrize("requirement", ["timed==1", "recorded"])
def test_the_side_of_the_baseline_may_have_packages_of_its_own(
    with_old_version: pytest.Pytester, requirement: str
) -> None:
    result = assert_ended(
        checked(with_old_version, test_of("base.onnx"), f"{REQUIREMENT}={requirement}"),
        "regressed, timed 1 → timed 2: p50 latency *",
        "accept: leave out --modelperf-baseline-requirement to judge the model alone: *",
        failed=1,
    )
    assert f"leave out {REQUIREMENT} to judge" in " ".join(result.stdout.str().split())
    result.stdout.no_fnmatch_line("*recorded with timed*")


def test_the_recorded_version_needs_no_environment_if_it_is_installed(
    upgraded: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    install(monkeypatch, tmp_path_factory.mktemp("same"), "timed", "1")
    checked(upgraded, test_of("base.onnx"), f"{REQUIREMENT}=recorded").assert_outcomes(passed=1)
    assert verdicts_of(upgraded) == {"b1-c1": "unchanged"}


def test_a_case_without_a_baseline_needs_no_environment(upgraded: pytest.Pytester) -> None:
    source = test_of("base.onnx", baseline="other.onnx")
    checked(upgraded, source, f"{REQUIREMENT}=recorded").assert_outcomes(passed=1)
    assert verdicts_of(upgraded) == {"b1-c1": "new"}


def test_a_baseline_without_a_version_gives_none(
    upgraded: pytest.Pytester, recording: BaselineRecording
) -> None:
    (case,) = recording.cases
    unknown = replace(case, provenance=replace(known(case.provenance), packages={}))
    store_again(replace(recording, cases=(unknown,)), upgraded.path / "baselines")
    result = checked(upgraded, test_of("slow_400us.onnx"), f"{REQUIREMENT}=recorded")
    assert_ended(result, "the baseline of b1-c1 does not say which version of *", failed=1)
    assert_says_no_internals(result)


def test_a_recorded_version_is_never_an_option_of_an_installer(
    upgraded: pytest.Pytester, recording: BaselineRecording
) -> None:
    """A baseline comes with the changes of strangers."""
    (case,) = recording.cases
    version = "1 --index-url=https://elsewhere"
    hostile = replace(case, provenance=replace(known(case.provenance), packages={"timed": version}))
    store_again(replace(recording, cases=(hostile,)), upgraded.path / "baselines")
    checked(upgraded, test_of("base.onnx"), JUDGE).assert_outcomes(failed=1)
    assert "cannot be read" in upgrade_of(upgraded)["failure"]
    assert not list(Path(environments_folder()).glob("*"))
