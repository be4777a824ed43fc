"""Strict runs that judge no model, or meet a table and do not read it: they fail and say why."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.project import STATIC, read_json, write_dense, write_table

STRICT = (*STATIC, "--modelperf-strict")
COMMAND = "pytest --modelperf --modelperf-strict"
TABLE = '[tool.modelperf.models."dense.onnx"]\nbudget = {macs = 100}\n'


@pytest.fixture
def project(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with a table of a model, and an ordinary test in a folder."""
    monkeypatch.setenv("COLUMNS", "400")
    write_table(run, TABLE)
    (run.mkdir("tests") / "test_unit.py").write_text("def test_unit(): pass\n", "utf-8")
    return run


def error_of(result: pytest.RunResult) -> str:
    """The one error of a run whose tests passed."""
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1)
    (line,) = [line for line in result.outlines if line.startswith("error: ")]
    return line.removeprefix("error: ").removeprefix(
        "no model was judged, and --modelperf-strict fails such a run: "
    )


def test_a_strict_run_that_judges_its_models_passes(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess(*STRICT, "--modelperf-update-baseline")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("error: *")
    assert project.runpytest_inprocess(*STRICT).ret == pytest.ExitCode.OK


def test_a_strict_run_of_ordinary_tests_says_what_it_looked_for(project: pytest.Pytester) -> None:
    looked = (
        "no .onnx file was named, and no test in tests has the marker perf_case or uses the "
        "fixture modelperf"
    )
    file = project.path / "pyproject.toml"
    assert error_of(project.runpytest_inprocess(*STRICT, "tests")) == (
        f"{looked}; the tables of {file} make tests only if the command line names none. Name the "
        f"models, too, or type: {COMMAND}"
    )
    file.unlink()
    assert error_of(project.runpytest_inprocess(*STRICT, "tests")) == (
        f"{looked}; {project.path / 'pyproject.toml'} has no [tool.modelperf.models]. Name a "
        "model, as in pytest model.onnx --modelperf --modelperf-strict, or type modelperf init, "
        "which finds the models of a project and writes a table for each"
    )


def test_a_strict_run_below_its_tables_says_where_it_starts(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.path / "tests")
    assert error_of(project.runpytest_inprocess(*STRICT)) == (
        f"the tables of {project.path / 'pyproject.toml'} are for a run that starts in its "
        f"folder. Type: cd .. && {COMMAND}"
    )


@pytest.mark.parametrize(
    ("options", "model"),
    [
        (["--ignore-glob=*.onnx"], "dense.onnx"),
        (["--ignore=dense.onnx"], "dense.onnx"),
        (["-k", "unit"], "dense.onnx::b1-c1"),
        (["--deselect=dense.onnx::b1-c1"], "dense.onnx::b1-c1"),
    ],
)
@pytest.mark.parametrize("workers", [[], ["-p", "xdist", "-n", "1"]], ids=["alone", "xdist"])
def test_a_strict_run_names_the_models_that_were_left_out(
    project: pytest.Pytester, options: list[str], model: str, workers: list[str]
) -> None:
    result = project.runpytest_inprocess(*STRICT, *options, *workers)
    assert error_of(result) == (
        f"left out by an option or a conftest: {model}. Have one of them run, or leave "
        "--modelperf-strict out"
    )


def test_the_way_out_of_a_strict_table_lets_a_run_of_some_tests_pass(
    project: pytest.Pytester,
) -> None:
    write_table(project, f"[tool.modelperf]\nstrict = true\n{TABLE}")
    typed = [*STATIC, "-k", "unit"]
    error = error_of(project.runpytest_inprocess(*typed))
    assert error.endswith("Have one of them run, or type -o modelperf_strict=false")
    again = project.runpytest_inprocess(*typed, "-o", "modelperf_strict=false")
    assert again.ret == pytest.ExitCode.OK


def test_a_strict_run_of_no_tests_keeps_the_exit_code_of_pytest(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess(*STRICT, "-k", "nothing")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["error: no model was judged, *dense.onnx::b1-c1*"])


def test_a_strict_run_of_the_last_failures_says_that_models_were_left_out(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_modelperf.plugin")
    test = project.path / "tests/test_unit.py"
    test.write_text("def test_unit(): assert False\n", "utf-8")
    project.runpytest_inprocess()
    test.write_text("def test_unit(): pass\n", "utf-8")
    error = error_of(project.runpytest_inprocess(*STRICT, "--lf"))
    assert error == (
        f"the models of {project.path / 'pyproject.toml'} were left out, as --lf does. Type: "
        f"{COMMAND}"
    )


@pytest.mark.parametrize("option", ["--collect-only", "--fixtures"])
def test_a_strict_run_without_tests_need_not_judge_a_model(
    project: pytest.Pytester, option: str
) -> None:
    assert project.runpytest_inprocess(*STRICT, "tests", option).ret == pytest.ExitCode.OK


def test_a_test_that_asserts_a_profile_judges_a_model(project: pytest.Pytester) -> None:
    (project.path / "tests/test_unit.py").write_text(
        "def test_it(modelperf): assert modelperf('dense.onnx').static.macs == 15", "utf-8"
    )
    assert project.runpytest_inprocess(*STRICT, "tests").ret == pytest.ExitCode.OK


def test_a_table_that_is_met_and_not_read_fails_a_strict_run_that_judges_others(
    project: pytest.Pytester,
) -> None:
    write_dense(project.path / "part/dense.onnx")
    (project.path / "part/pyproject.toml").write_text(TABLE, "utf-8")
    project.runpytest_inprocess(*STATIC, "--modelperf-update-baseline")
    result = project.runpytest_inprocess(*STRICT, "--modelperf-json=run.json", "--junitxml=j.xml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2)
    error = (
        f"part/pyproject.toml has [tool.modelperf], which this run does not read: pytest took "
        f"{project.path} as its root. For the models of that project type: cd part && pytest "
        "--rootdir=. --modelperf --modelperf-strict. To leave that project out of this run, add "
        "--ignore=part"
    )
    assert f"error: {error}" in result.outlines
    document = read_json(project.path / "run.json")
    assert document["errors"] == [error]
    assert document["notes"] == []
    assert ET.parse(project.path / "j.xml").getroot().find("testsuite") is not None  # noqa: S314  # our own file
    assert project.runpytest_inprocess(*STRICT, "--ignore=part").ret == pytest.ExitCode.OK
    lenient = project.runpytest_inprocess(*STATIC)
    assert lenient.ret == pytest.ExitCode.OK
    lenient.stdout.fnmatch_lines(["note: part/pyproject.toml has *, which this run does not read*"])


def test_a_table_above_the_root_is_met_if_the_root_has_none(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project.path / "tests"
    (folder / "pytest.ini").touch()
    monkeypatch.chdir(folder)
    error = error_of(project.runpytest_inprocess(*STRICT))
    assert error.startswith("../pyproject.toml has [tool.modelperf], which this run does not read")
    assert error.endswith("type: cd .. && pytest --rootdir=. --modelperf --modelperf-strict")
    (folder / ".git").mkdir()
    assert "../pyproject.toml" not in error_of(project.runpytest_inprocess(*STRICT))
    (folder / ".git").rmdir()
    (folder / "pyproject.toml").write_text("[tool.modelperf]\n", "utf-8")
    assert "../pyproject.toml" not in error_of(project.runpytest_inprocess(*STRICT))


def test_an_error_of_a_run_is_in_every_report(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    reports = ["--modelperf-json=r.json", "--modelperf-markdown=r.md", "--modelperf-html=r.html"]
    result = project.runpytest_inprocess(*STRICT, "-k", "unit", *reports)
    (error,) = read_json(project.path / "r.json")["errors"]
    assert f"::error title=model performance::{error}" in result.outlines
    for file in ("r.md", "r.html"):
        text = Path(project.path / file).read_text("utf-8").replace("\\", "")
        assert "error: no model was judged" in text
