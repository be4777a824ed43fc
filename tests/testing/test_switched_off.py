"""Without `--modelperf` the plugin costs nothing and says one line; taken away it is not there."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support.project import assert_ended, run_tests

HEAVY = {"numpy", "onnx", "onnxruntime", "scipy", "msgspec", "click"}

USES_FIXTURE = """
    def test_budget(modelperf):
        assert modelperf("linear.onnx", dims={"seq": 64}).static.macs == 64 * 3 * 5
"""
USES_MARKERS = """
    import pytest

    @pytest.mark.perf_case(model="nowhere.onnx", batch_size=[1, 8])
    @pytest.mark.perf_budget(macs=1)
    def test_case():
        raise AssertionError

    @pytest.mark.perf_budget(macs=1)
    def test_only_a_budget():
        raise AssertionError
"""
SHOWS_MODULES = f"""
    import sys

    def pytest_unconfigure():
        print("plugin:", "pytest_modelperf.plugin" in sys.modules)
        print("heavy:", sorted({HEAVY!r} & set(sys.modules)))
        ours = sorted(name for name in sys.modules if name.split(".")[0] == "pytest_modelperf")
        print("ours:", *ours)
"""
# Modules that every pytest run of every user loads.
LOADED = (
    "pytest_modelperf",
    "pytest_modelperf.fixtures",
    "pytest_modelperf.plugin",
    "pytest_modelperf.programs",
    "pytest_modelperf.programs.station",
    "pytest_modelperf.programs.station.current",
    "pytest_modelperf.spec",
    "pytest_modelperf.spec.run_definitions",
    "pytest_modelperf.testing",
    "pytest_modelperf.testing.current_run",
    "pytest_modelperf.testing.startup",
    "pytest_modelperf.text",
    "pytest_modelperf.text.version",
)


@pytest.mark.parametrize(
    ("source", "skipped"), [(USES_FIXTURE, 1), (USES_MARKERS, 2)], ids=["fixture", "markers"]
)
def test_tests_that_profile_are_skipped_with_one_line(
    run: pytest.Pytester, source: str, skipped: int
) -> None:
    result = run_tests(run, f"{source}\n    def test_other(): pass\n", "-rs")
    result.assert_outcomes(skipped=skipped, passed=1)
    reasons = [line for line in result.outlines if line.startswith("SKIPPED")]
    assert reasons
    assert all(line.endswith(": needs --modelperf") for line in reasons)


def test_a_named_model_is_one_skipped_test(run: pytest.Pytester) -> None:
    result = run_tests(run, "def test_other(): pass", "-v", "-rs", "dense.onnx")
    assert_ended(result, "dense.onnx::* SKIPPED (needs --modelperf)*", skipped=1)
    run.runpytest_inprocess("dense.onnx::b8-c2").assert_outcomes(skipped=1)


def test_a_model_next_to_a_named_one_is_left_alone(run: pytest.Pytester) -> None:
    folder = run.mkdir("tests")
    (run.path / "linear.onnx").rename(folder / "linear.onnx")
    run.makepyfile("def test_other(): pass").rename(folder / "test_other.py")
    run.runpytest_inprocess("tests", "dense.onnx").assert_outcomes(skipped=1, passed=1)


@pytest.mark.parametrize(
    "table",
    ['[tool.modelperf.models."dense.onnx"]', "[tool.modelperf]\nno_such_key = 1\n"],
    ids=["models", "broken"],
)
def test_a_table_makes_no_test_and_disturbs_none(run: pytest.Pytester, table: str) -> None:
    run.makepyprojecttoml(table)
    run_tests(run, "def test_other(): pass").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "source", [USES_FIXTURE, USES_MARKERS, "def test_other(): pass"], ids=["fixture", "markers", ""]
)
def test_nothing_heavy_is_imported(run: pytest.Pytester, source: str) -> None:
    run.makeconftest(SHOWS_MODULES)
    run.makepyfile(test_it=source)
    result = run.runpytest_subprocess("-s", "test_it.py")
    result.stdout.fnmatch_lines(["plugin: True", "heavy: [[][]]", f"ours: {' '.join(LOADED)}"])


def test_a_model_that_is_named_costs_no_more_than_the_records_of_its_test(
    run: pytest.Pytester,
) -> None:
    run.makeconftest(SHOWS_MODULES)
    run.runpytest_subprocess("-s", "dense.onnx").stdout.fnmatch_lines(["heavy: [[]'msgspec'[]]"])


def test_with_the_option_the_same_list_is_not_empty(run: pytest.Pytester) -> None:
    """The test before relies on this: the list would show what is imported."""
    run.makeconftest(SHOWS_MODULES)
    run.makepyfile(USES_FIXTURE)
    result = run.runpytest_subprocess("-s", "--modelperf")
    result.stdout.fnmatch_lines(["heavy: [[]*'numpy', 'onnx'*[]]"])


@pytest.mark.slow
def test_the_plugin_can_be_taken_away(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cacheprovider -p no:modelperf")
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    _install_entry_point(run.path / "site", monkeypatch)
    run.makepyfile(f"{USES_FIXTURE}\n    def test_other(): pass\n")
    assert_ended(run.runpytest_subprocess(), "*fixture 'modelperf' not found", passed=1, errors=1)
    assert "modelperf_" not in run.runpytest_subprocess("--help", "--markers").stdout.str()
    assert "perf_case" not in run.runpytest_subprocess("--markers").stdout.str()
    refused = run.runpytest_subprocess("--modelperf")
    refused.stderr.fnmatch_lines(["*unrecognized arguments: --modelperf*"])


@pytest.mark.slow
def test_an_installed_plugin_is_found_by_its_entry_point(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cacheprovider")
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    _install_entry_point(run.path / "site", monkeypatch)
    run.makepyfile(USES_FIXTURE)
    run.runpytest_subprocess("--modelperf").assert_outcomes(passed=1)


def _install_entry_point(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the plugin an installed one if it is only a folder on the path."""
    if any(entry.name == "modelperf" for entry in entry_points(group="pytest11")):
        return
    info = site / "pytest_modelperf-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest-modelperf\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[pytest11]\nmodelperf = pytest_modelperf.plugin\n")
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
