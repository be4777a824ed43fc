"""`modelperf init` from start to end, as a user and as a script call it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_modelperf.errors import PLAIN, ModelError
from pytest_modelperf.init.planning import measure_noise
from pytest_modelperf.init.records import FileChange, Project, Remark, SetupPart
from pytest_modelperf.init.report import change_report, noise_report, survey_report
from pytest_modelperf.init.surveying import Survey, find_project, survey_project
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.sizing.records import FoundInput, FoundSize, FoundSizes
from tests.support.command import environment, run
from tests.support.project import write_dense, write_linear
from tests.support.repository import git, needs_git

COMMANDS = (
    "record: pytest --modelperf --modelperf-update-baseline\n",
    "check: pytest --modelperf\n",
)
QUICK = ("--no-noise", "--ci", "none")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with settings of pytest, two models, and no table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    write_dense(tmp_path / "models" / "dense.onnx")
    write_linear(tmp_path / "models" / "linear.onnx")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q\n")
    return tmp_path


def answering(text: str, *arguments: str) -> tuple[int, str]:
    """Return the exit code and output of the command if a terminal gives these answers."""
    asking, answered = pty.openpty()
    try:
        os.write(asking, text.encode())
        done = subprocess.run(
            [sys.executable, "-m", "pytest_modelperf", "init", *arguments],
            stdin=answered,
            capture_output=True,
            text=True,
            check=False,
            env=environment({"COLUMNS": "80"}),
        )
    finally:
        os.close(answered)
        os.close(asking)
    return done.returncode, done.stdout + done.stderr


def test_every_model_gets_a_table_that_pytest_reads(pytester: pytest.Pytester) -> None:
    write_dense(pytester.path / "models" / "dense.onnx")
    write_linear(pytester.path / "models" / "linear.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(pytester.path)
        done = run("init", "--yes", *QUICK)
        assert done.exit_code == 0, done.err
        result = pytester.runpytest_inprocess("--modelperf", "--modelperf-static-only")
    result.assert_outcomes(passed=2)


def test_twice_is_once(project: Path) -> None:
    text = "# ours\n[project]  # name\nname = 'a'\n\n[tool.modelperf]\nmax_seconds = 3\n"
    (project / "pyproject.toml").write_text(text)
    first = run("init", "--yes", *QUICK)
    assert first.exit_code == 0, first.err
    assert "wrote pyproject.toml\n" in first.out
    assert first.out.endswith(COMMANDS[1])
    assert COMMANDS[0] in first.out
    written = (project / "pyproject.toml").read_text()
    assert written.startswith(text)
    second = run("init", *QUICK)
    assert second.exit_code == 0, second.err
    assert "nothing to change\n" in second.out
    assert second.out.endswith(COMMANDS[1])
    assert (project / "pyproject.toml").read_text() == written


def test_without_a_terminal_nothing_is_written(project: Path) -> None:
    done = run("init", *QUICK)
    assert done.exit_code == 2
    assert '+[tool.modelperf.models."models/dense.onnx"]\n' in done.out
    assert "nothing was written: pyproject.toml would change" in done.err
    assert done.err.rstrip().endswith("--yes")
    assert not (project / "pyproject.toml").exists()


@needs_git
def test_a_user_answers_each_question(project: Path) -> None:
    git(project, "init", "--quiet", "--initial-branch=trunk")
    code, out = answering("y\nn\n\n", "--no-noise")
    assert code == 0, out
    assert (project / "pyproject.toml").exists()
    assert not (project / ".github").exists()
    assert (project / ".gitattributes").exists()
    assert "left .github/workflows/model-performance.yml as it is\n" in out
    assert max(map(len, out.splitlines())) <= 80


@needs_git
def test_options_are_answers(project: Path) -> None:
    git(project, "init", "--quiet", "--initial-branch=trunk")
    done = run("init", "--no-tables", "--ci", "github", "--gitattributes", "--no-noise")
    assert done.exit_code == 0, done.err
    assert not (project / "pyproject.toml").exists()
    assert "branches: [trunk]" in (project / ".github/workflows/model-performance.yml").read_text()
    assert (project / ".gitattributes").read_text() == "baselines/**/twin.onnx binary\n"


def test_a_long_line_of_a_diff_is_indented_where_it_goes_on() -> None:
    change = FileChange(
        part=SetupPart.TABLES, path=Path("a"), name="a", before=None, after=f"# {'word ' * 9}\n"
    )
    text = render_report(change_report(change), TextStyle(40))
    assert text == "new file: a\n+# word word word word word word word\n  word word\n"


def test_a_user_who_leaves_writes_nothing(project: Path) -> None:
    code, out = answering("\x04", *QUICK)
    assert code == 130, out
    assert not (project / "pyproject.toml").exists()


def test_a_model_that_is_declared_stays_as_it_is(project: Path) -> None:
    text = '[tool.modelperf.models."models/d*.onnx"]\ncores = [1, 2]\n'
    (project / "pyproject.toml").write_text(text)
    done = run("init", "--yes", *QUICK)
    assert done.exit_code == 0, done.err
    written = (project / "pyproject.toml").read_text()
    assert written.startswith(text)
    assert "dense" not in written
    assert '[tool.modelperf.models."models/linear.onnx"]\n' in written


def test_the_error_of_a_project_without_models_names_the_searched_folder(project: Path) -> None:
    for path in (project / "models").iterdir():
        path.unlink()
    write_dense(project / "build" / "a.onnx")
    (project / "b.onnx").write_text("no model\n")
    done = run("init", "--yes", *QUICK)
    assert done.exit_code == 2
    assert f"there is no ONNX model to test in {project}: 2 folders searched" in done.err
    assert "for files named *.onnx, without build." in done.err
    assert "  b.onnx: " in done.err
    assert not (project / "pyproject.toml").exists()


def test_only_the_named_file_is_reported_if_it_is_not_a_model(project: Path) -> None:
    (project / "b.onnx").write_text("no model\n")
    done = run("init", "--yes", *QUICK, "b.onnx")
    assert done.exit_code == 2
    assert f"there is no ONNX model to test in {project / 'b.onnx'}.\n  b.onnx: " in done.err


def test_the_error_of_broken_toml_names_the_line(project: Path) -> None:
    (project / "pytest.ini").unlink()
    (project / "pyproject.toml").write_text("[tool.modelperf]\nmax_seconds = \n")
    done = run("init", "--yes", *QUICK)
    assert done.exit_code == 2
    assert "pyproject.toml" in done.err
    assert "line 2" in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_reported(project: Path) -> None:
    project.chmod(0o500)
    done = run("init", "--yes", *QUICK)
    project.chmod(0o700)
    assert done.exit_code == 2
    assert "Permission denied" in done.err


def test_the_noise_is_described_in_one_sentence() -> None:
    (answer,) = measure_noise(PLAIN, seconds=0.1)
    assert answer.startswith("1 core: ")
    text = render_report(noise_report([answer]), TextStyle(80))
    assert text.startswith("noise of this machine: 1 core: ")
    assert max(map(len, text.splitlines())) <= 80


# -- the survey


def survey(root: Path, sizes: dict[str, FoundSizes]) -> Survey:
    """The survey if the search for sizes finds these, and fails for other models."""

    def find(path: Path) -> FoundSizes:
        if path.name not in sizes:
            raise ModelError(f"{path.name} cannot be bound.")
        return sizes[path.name]

    return survey_project(Project(root=root, reason="it is a test"), [root], find)


FOUND = FoundSizes(
    "dense",
    dims=(FoundSize("a dim", 64, ("x[1]",), "a usual\nlength"),),
    inputs=(FoundInput("sr", "sr:int64::16000", "an If compares it"),),
    has_run=True,
)


@needs_git
def test_a_named_model_that_git_ignores_is_not_added_and_told(project: Path) -> None:
    git(project, "init", "--quiet")
    (project / ".gitignore").write_text("dense.onnx\n")
    shown = run("init", "models/dense.onnx", "models/linear.onnx", "--yes", *QUICK).out
    assert "note: git ignores models/dense.onnx, so other checkouts lack it: have the" in shown
    (commit,) = (line for line in shown.splitlines() if line.startswith("commit: "))
    assert "models/linear.onnx baselines" in commit
    assert "dense" not in commit


def test_a_table_has_the_reason_of_each_size(project: Path) -> None:
    found = survey(project, {"dense.onnx": FOUND, "linear.onnx": FoundSizes("linear")})
    assert found.tables == {
        "models/dense.onnx": "# a dim=64 in x[1]: a usual\\nlength\n"
        "# sr:int64::16000: an If compares it\n"
        'dims = {"a dim" = 64}\ninputs = ["sr:int64::16000"]\n',
        "models/linear.onnx": "",
    }


def test_a_guessed_size_is_called_one_in_the_table_and_on_the_terminal(project: Path) -> None:
    size = FoundSize("seq", 64, ("x[1]",), "a usual size", is_guess=True)
    found = survey(project, {"dense.onnx": FoundSizes("dense", dims=(size,))})
    advice = "The work that is measured depends on a guessed size: give that of your data."
    assert found.tables["models/dense.onnx"] == (
        f"# seq=64 in x[1]: a guess: a usual size\n# {advice}\ndims = {{seq = 64}}\n"
    )
    lines = render_report(survey_report(found), TextStyle(80)).splitlines()
    assert any(
        line.split() == ["models/dense.onnx", "new", "seq=64", "(a", "guess)"] for line in lines
    )
    assert advice in lines


def test_a_model_without_sizes_is_reported_and_gets_no_table(project: Path) -> None:
    found = survey(project, {"linear.onnx": FoundSizes("linear", error="no size fits x[1].")})
    assert found.tables == {}
    assert found.unsized == (
        Remark("models/dense.onnx", "dense.onnx cannot be bound."),
        Remark("models/linear.onnx", "no size fits x[1]."),
    )
    text = render_report(survey_report(found), TextStyle(80))
    assert "models/linear.onnx: no size fits x[1].\n" in text


@pytest.mark.parametrize("width", [80, 160])
def test_the_survey_fits_the_terminal(project: Path, width: int) -> None:
    for number in range(30):
        write_dense(project / "a folder with a long name" / ("deep" * 15) / f"{number}.onnx")
        (project / f"{number}.onnx").write_text("text")
    names = {path.name: FOUND for path in project.rglob("*.onnx")}
    text = render_report(survey_report(survey(project, names)), TextStyle(width))
    assert max(map(len, text.splitlines())) <= width
    assert "and 12 more models\n" in text
    assert "and 10 more\n" in text


def test_the_project_is_found_from_a_folder_in_it(project: Path) -> None:
    assert find_project(project / "models").root == project
