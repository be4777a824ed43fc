"""`modelperf init --from -- PROGRAM`: the models of a project, as a program uses them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_modelperf.init.records import Remark
from pytest_modelperf.init.surveying import Survey, find_project, survey_project, survey_used
from pytest_modelperf.tracing.launch import InferenceSizes, SessionRuns
from tests.init.test_used_sizes import PLAIN
from tests.support.command import run
from tests.support.project import write_dense, write_linear

QUICK = ("--no-noise", "--ci", "none")
PROGRAM = """\
import numpy as np
import onnxruntime as ort
session = ort.InferenceSession("models/linear.onnx", providers=["CPUExecutionProvider"])
for seq in (7, 7, 9):
    session.run(None, {"x": np.ones((2, seq, 3), np.float32)})
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with settings of pytest, two models, and no table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    write_dense(tmp_path / "models" / "dense.onnx")
    write_linear(tmp_path / "models" / "linear.onnx")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q\n")
    return tmp_path


def from_program(text: str) -> tuple[str, ...]:
    Path("bench.py").write_text(text)
    return ("--from", "--", sys.executable, "bench.py")


def session(model: Path | None, *, rows: int = 2, size: int = 0, sha256: str = "") -> SessionRuns:
    inferences = (InferenceSizes({"x": (rows, 3)}, {}, 1),) if rows else ()
    return SessionRuns(model, sha256 or None, size, PLAIN, inferences)


def survey(*sessions: SessionRuns) -> Survey:
    found = find_project(Path.cwd())
    return survey_used(survey_project(found, [found.root], None), sessions)


@pytest.mark.slow
def test_the_table_has_the_sizes_that_the_program_used(project: Path) -> None:
    done = run("init", "--yes", *QUICK, *from_program(PROGRAM))
    assert done.exit_code == 0, done.err
    assert (project / "pyproject.toml").read_text().splitlines()[-6:] == [
        f"# 3 inferences of: {sys.executable} bench.py",
        "# 2 with x: 2x7x3",
        "# 1 with x: 2x9x3",
        "# The program leaves the number of threads to the runtime; here cores sets it.",
        "batch_size = 2",
        "dims = {seq = [7, 9]}",
    ]
    assert "models/dense.onnx: the program did not load it\n" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.slow
def test_pytest_reads_the_table(pytester: pytest.Pytester) -> None:
    write_linear(pytester.path / "models" / "linear.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(pytester.path)
        done = run("init", "--yes", *QUICK, *from_program(PROGRAM))
        assert done.exit_code == 0, done.err
        result = pytester.runpytest_inprocess("--modelperf", "--modelperf-static-only")
    result.assert_outcomes(passed=2)


@pytest.mark.slow
def test_a_second_run_changes_nothing(project: Path) -> None:
    command = ("init", "--yes", *QUICK, *from_program(PROGRAM))
    assert run(*command).exit_code == 0
    written = (project / "pyproject.toml").read_text()
    second = run(*command)
    assert "nothing to change\n" in second.out
    assert (project / "pyproject.toml").read_text() == written


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit(7)", "the program ended with exit code 7, so nothing was written"),
        ("", "no session was seen: the program made no onnxruntime.InferenceSession"),
    ],
)
def test_a_program_that_fails_or_runs_no_model_is_an_error(
    project: Path, program: str, message: str
) -> None:
    done = run("init", "--yes", *QUICK, *from_program(program))
    assert (done.exit_code, done.out) == (2, "")
    assert message in done.err
    assert not (project / "pyproject.toml").exists()


@pytest.mark.parametrize("words", [("--from",), ("--from", "--"), ("--from", "models")])
def test_a_program_is_given_after_two_dashes(words: tuple[str, ...]) -> None:
    done = run("init", *words)
    assert done.exit_code == 2
    assert "--from takes a program after two dashes" in done.err


def test_a_program_of_other_models_is_an_error_that_names_them(tmp_path: Path) -> None:
    outside = write_dense(tmp_path.parent / f"{tmp_path.name}-outside.onnx")
    found = survey(session(outside))
    assert not found.used
    assert found.unused[0] == Remark(
        str(outside), "it is outside the project: copy it in, so that every checkout has it"
    )


def test_a_model_in_memory_is_that_of_the_file_with_its_bytes(project: Path) -> None:
    from hashlib import sha256

    content = (project / "models" / "dense.onnx").read_bytes()
    digest = sha256(content).hexdigest()
    found = survey(
        session(None, size=len(content), sha256=digest),
        session(None, size=len(content), sha256=digest[::-1]),
    )
    assert [case.batch_size for case in found.used["models/dense.onnx"].cases] == [2]
    assert found.unused[0] == Remark(
        f"a model in memory, {len(content)} B",
        "no file of the project has these bytes: save them to one",
    )


def test_a_model_that_ran_nothing_gets_no_table(project: Path) -> None:
    found = survey(session(project / "models" / "dense.onnx", rows=0))
    assert not found.tables
    assert (
        Remark("models/dense.onnx", "the program loaded it, but ran no inference") in found.unused
    )


def test_a_link_to_a_model_is_that_model(project: Path) -> None:
    (project / "link.bin").symlink_to(project / "models" / "dense.onnx")
    assert list(survey(session(project / "link.bin")).used) == ["models/dense.onnx"]


def test_a_model_in_a_folder_that_is_not_searched_is_named(project: Path) -> None:
    hidden = write_dense(project / "build" / "a.onnx")
    (remark, *_) = survey(session(hidden)).unused
    assert remark == Remark(
        "build/a.onnx", "it is in a folder that is not searched: name it to use it all the same"
    )
