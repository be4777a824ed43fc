"""The action fetches the history of a shallow clone, if a program needs it and not otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fetch_commits import fetch_commits

from pytest_modelperf.baselines.program_store import program_name, read_program
from pytest_modelperf.programs.commits import accepted_commit
from tests.actions.runner import read_action
from tests.support.repository import git, needs_git
from tests.support.stored_programs import (
    TEST,
    ProgramRepository,
    isolate_git,
    seen_of,
    stored_program,
)

pytestmark = needs_git

CONTENT = {"reader.py": b"a = 1\n"}


@pytest.fixture(autouse=True)
def _runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate_git(tmp_path, monkeypatch)
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("INPUT_TOKEN", "secret of the job")


@pytest.fixture
def origin(tmp_path: Path) -> ProgramRepository:
    """A repository whose first commit has a program."""
    made = ProgramRepository(tmp_path / "origin")
    made.commit("a program", CONTENT)
    return made


def record(origin: ProgramRepository, commit: str | None) -> None:
    """Add a baseline that names the commit, and a later change of the program."""
    origin.record(stored_program(seen_of(CONTENT), commit))
    origin.commit("a baseline")
    origin.commit("a change", {"reader.py": b"a = 2\n"})


def clone(origin: ProgramRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Clone the last commit alone, as actions/checkout does, and go there."""
    path = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{origin.path}", str(path))
    git(path, "checkout", "-q", "--detach")
    monkeypatch.chdir(path)
    return path


def is_shallow(path: Path) -> bool:
    return git(path, "rev-parse", "--is-shallow-repository") == "true"


@pytest.mark.parametrize("names_commit", [True, False])
def test_the_recorded_commit_is_found_after_the_step(
    origin: ProgramRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    names_commit: bool,
) -> None:
    first = git(origin.path, "rev-parse", "HEAD")
    record(origin, first if names_commit else None)
    brought = git(origin.path, "rev-parse", "HEAD~1")
    path = clone(origin, tmp_path, monkeypatch)
    assert fetch_commits() == 0
    assert not is_shallow(path)
    name = program_name(TEST)
    stored = read_program(path / "baselines", name)
    assert stored is not None
    file = path / "baselines" / name / "program.json"
    assert accepted_commit(stored, file, path) == (first if names_commit else brought)


def test_a_commit_that_no_branch_has_is_fetched_with_its_history(
    origin: ProgramRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GitHub merges a pull request into a commit of its own, of which a branch knows nothing."""
    record(origin, git(origin.path, "rev-parse", "HEAD"))
    path = clone(origin, tmp_path, monkeypatch)
    git(origin.path, "update-ref", "refs/pull/5/merge", "HEAD")
    git(origin.path, "reset", "-q", "--hard", "HEAD~2")
    assert fetch_commits() == 0
    assert not is_shallow(path)


def test_a_project_without_programs_fetches_nothing(
    origin: ProgramRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin.commit("others", {"data/program.json": b"[1]", "b/program.json": b"no JSON"})
    path = clone(origin, tmp_path, monkeypatch)
    assert fetch_commits() == 0
    assert is_shallow(path)


def test_a_clone_that_has_the_commit_fetches_nothing(
    origin: ProgramRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin.commit("more")
    record(origin, git(origin.path, "rev-parse", "HEAD"))
    path = clone(origin, tmp_path, monkeypatch)
    git(path, "fetch", "-q", "--depth=3", "origin", git(path, "rev-parse", "HEAD"))
    assert fetch_commits() == 0
    assert is_shallow(path)


def test_a_folder_in_no_repository_has_nothing_to_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fetch_commits() == 0


@pytest.mark.parametrize("commit", ["--upload-pack=touch harmed", "HEAD", "0" * 40])
def test_a_forged_commit_is_not_an_option_of_git_and_not_fetched_by_name(
    origin: ProgramRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: str
) -> None:
    document = json.dumps({"test": TEST, "commit": commit})
    origin.commit("forged", {"baselines/a++b/program.json": document.encode()})
    path = clone(origin, tmp_path, monkeypatch)
    assert fetch_commits() == 0
    assert not (path / "harmed").exists()
    # The whole history of HEAD at most, which the run then looks at.
    assert is_shallow(path) is (commit == "HEAD")


def test_a_history_that_cannot_be_fetched_is_a_warning(
    origin: ProgramRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    record(origin, git(origin.path, "rev-parse", "HEAD"))
    path = clone(origin, tmp_path, monkeypatch)
    git(path, "remote", "set-url", "origin", str(tmp_path / "gone"))
    assert fetch_commits() == 0
    out = capfd.readouterr().out
    assert "::warning title=modelperf::the history could not be fetched" in out
    assert "fetch-depth: 0" in out
    assert "secret of the job" not in out


def test_the_action_has_the_step_before_the_run() -> None:
    steps = [step.get("run", "") for step in read_action("action.yml")["runs"]["steps"]]
    (place,) = (number for number, run in enumerate(steps) if "fetch_commits.py" in run)
    assert "run_models.py" in steps[place + 1]
