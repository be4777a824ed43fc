"""Programs that commands name by their tests: compared with a commit, and bisected."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.command import refusal, spawn
from tests.support.repository import needs_git
from tests.support.stored_programs import READER, ProgramRepository, reader_repository

pytestmark = needs_git

TESTS = """
    import pytest
    from reader import Reader

    def test_read(modelperf):
        modelperf.check(Reader("model.onnx").read, 4)

    @pytest.mark.parametrize("rows", [1, 2])
    def test_sizes(modelperf, rows):
        modelperf.check(Reader("model.onnx").read, rows)

    def test_idle(): pass

    def test_model(modelperf):
        modelperf.check("model.onnx")

    @pytest.mark.perf_case("model.onnx")
    def test_marked(modelperf):
        assert modelperf.profile.static.params
"""
TWICE = READER.replace(
    "return self", "self.session.run(None, {'x': np.ones((rows, 3), 'f')})\n        return self"
)
READ = "test_read.py::test_read"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramRepository:
    # Other plugins take a second to load.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return reader_repository(tmp_path, monkeypatch, TESTS)


def test_the_work_tree_is_compared_with_a_commit(repository: ProgramRepository) -> None:
    """Options of the project that are for whole runs have no effect on the one test."""
    (repository.path / "reader.py").write_text(TWICE, "utf-8")
    (repository.path / "pytest.ini").write_text(
        "[pytest]\naddopts = --modelperf --modelperf-json=run.json -k nothing -x\n"
    )
    result = spawn("compare", "--ref", "HEAD", READ, "--json", "-")
    document = json.loads(result.out)
    assert (result.exit_code, document["verdict"]) == (1, "regressed")
    (case,) = document["cases"]
    assert case["reasons"] == ["1 inference of model.onnx more (1 -> 2)"]
    assert document["before"]["name"].startswith("test_read at HEAD (")
    assert document["after"]["name"] == "test_read now"
    assert not (repository.path / "run.json").exists()


@pytest.mark.slow
def test_the_commit_with_more_work_is_found_and_a_broken_one_stepped_around(
    repository: ProgramRepository,
) -> None:
    repository.commit("Break", {"test_read.py": b"import nothing"})
    repository.commit("Repair", {"test_read.py": dedent(TESTS).encode()})
    slow = repository.commit("Read twice", {"reader.py": TWICE.encode()})
    repository.commit("Note", {"reader.py": f"{TWICE}# note\n".encode()})
    result = spawn("bisect", READ, "--good", "HEAD~4", "--json", "-")
    document = json.loads(result.out)
    assert (result.exit_code, document["judges"], document["by"]) == (1, "work", "commits")
    (found,) = document["regressions"]
    assert found["first_bad"] == {"name": slow, "title": "Read twice"}
    assert found["last_good"]["title"] == "Repair"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["compare", "--ref", "HEAD", "test_read.py::test_no"], 2, "finds no test test_read"),
        (["compare", "--ref", "HEAD", "no.py::test_no"], 2, "file or directory not found"),
        (["compare", "--ref", "HEAD", "test_read.py::test_sizes"], 2, "names 2 tests, give one"),
        (["compare", "--ref", "HEAD", "test_read.py::test_idle"], 3, "ended without calling"),
        (["compare", "--ref", "HEAD", "test_read.py::test_model"], 2, "the test is about a model"),
        (["compare", "--ref", "HEAD", "test_read.py::test_marked"], 3, "the test is about a model"),
        (["compare", "--ref", "v9", READ], 2, "--ref names v9, which is no commit"),
        (["bisect", READ], 2, "has no baseline, so no commit is known to be fast"),
        (["bisect", READ, "--good", "HEAD"], 2, "begins and ends with the commit"),
    ],
)  # fmt: skip
def test_errors_that_pytest_finds_are_errors_of_the_command(
    repository: ProgramRepository, arguments: list[str], code: int, message: str
) -> None:
    result = spawn(*arguments)
    assert result.exit_code == code
    assert message in result.err
    assert "Traceback" not in result.err
    assert not (repository.path / "baselines").exists()


def test_a_folder_without_git_is_an_error(
    repository: ProgramRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository.path / ".git").rename(repository.path / "no-git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(repository.path.parent.resolve()))
    result = spawn("compare", "--ref", "HEAD", READ)
    assert result.exit_code == 2
    assert "is not in a git repository" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", READ], "give --ref with the commit to compare with"),
        (["compare", READ, "--ref", "HEAD", "--requirement-a", "numpy==1"], "give --ref with"),
        (["compare", READ, "b.onnx", "--ref", "HEAD"], "leave out b.onnx, and give --ref"),
        (["compare", READ, "--ref", "HEAD", "--batch", "2"], "--batch is for models"),
        (["compare", READ, "--ref", "HEAD", "--static"], "--static is for models"),
        (["compare", "a.onnx"], "compare takes two models"),
        (["compare", "a.onnx", "b.onnx", "--ref", "HEAD"], "or --ref and a test"),
        (["bisect", READ, "--package", "onnxruntime"], "--package is for models"),
        (["bisect", READ, "--outputs"], "--outputs is for models"),
        (["bisect", READ, "--commits", "a..b", "--good", "c"], "--commits names both ends"),
        (["bisect", READ, "--commits", "a"], "--commits takes a range"),
    ],
)  # fmt: skip
def test_options_without_an_effect_are_refused_before_anything_runs(
    arguments: list[str], message: str
) -> None:
    assert message in refusal(*arguments)
