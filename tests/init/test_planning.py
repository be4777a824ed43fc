"""A setup changes what is missing and nothing else, and twice is once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml

from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.init.planning import (
    GITHUB_FILE,
    GITLAB_FILE,
    GITLAB_PART,
    Wishes,
    add_twins_line,
    plan_setup,
    settle_changes,
    usual_service,
    write_changes,
)
from pytest_modelperf.init.records import FileChange, Plan, Project, Service, SetupPart
from pytest_modelperf.init.surveying import (
    files_to_add,
    find_project,
    ignored_by_git,
    model_files,
    untracked_files,
)
from tests.support.checkout import ROOT
from tests.support.full_disk import room_for
from tests.support.project import write_linear
from tests.support.repository import git, needs_git
from tests.support.small_models import save_beside

TABLES = {"models/a.onnx": "dims = {seq = 64}\n"}
LINE = "baselines/**/twin.onnx binary\n"
needs_toml_of_pytest = pytest.mark.skipif(
    pytest.version_tuple < (9,), reason="pytest has a TOML file of its own since version 9"
)


def project_at(root: Path, **more: Any) -> Project:  # noqa: ANN401  # the fields of a record
    return Project(root=root, reason="", **{"repository": root, "branch": "main", **more})


def plan(
    project: Project, tables: Mapping[str, str] = TABLES, service: Service | None = Service.GITHUB
) -> Plan:
    return plan_setup(
        project, tables, project.root / "baselines", Wishes(service=service, engine="1.32.0")
    )


def names(changes: tuple[FileChange, ...]) -> list[str]:
    return [change.name for change in changes]


def block(first: str) -> str:
    """The file that docs/ci.md shows below this line."""
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    shown = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    text: str = next(each for each in shown if each.startswith(f"# {first}\n"))
    return text.partition("\n")[2]


# -- files for CI


@pytest.mark.parametrize(
    ("service", "path"), [(Service.GITHUB, GITHUB_FILE), (Service.GITLAB, GITLAB_FILE)]
)
def test_the_file_is_the_one_of_the_page(tmp_path: Path, service: Service, path: str) -> None:
    change = next(c for c in plan(project_at(tmp_path), service=service).changes if c.name == path)
    assert change.after == block(path)


def test_the_workflow_has_the_values_of_the_project(tmp_path: Path) -> None:
    project = project_at(tmp_path / "sub dir", repository=tmp_path, branch='re"lease: x')
    wishes = Wishes(service=Service.GITHUB, engine="1.22.0")
    made = plan_setup(project, {}, project.root / "baselines", wishes)
    (change,) = (each for each in made.changes if each.part is SetupPart.CI)
    assert change.path == tmp_path / GITHUB_FILE
    workflow = yaml.safe_load(change.after)
    # YAML 1.1 reads the key `on` as true.
    assert workflow[True]["push"]["branches"] == ['re"lease: x']
    action = workflow["jobs"]["modelperf"]["steps"][-1]["with"]
    assert action == {
        "strict": "true",
        "packages": "onnxruntime==1.22.0",
        "working-directory": "sub dir",
    }


def test_a_job_of_gitlab_runs_in_the_folder_of_the_project(tmp_path: Path) -> None:
    project = project_at(tmp_path / "sub dir", repository=tmp_path)
    (change,) = (e for e in plan(project, service=Service.GITLAB).changes if e.part is SetupPart.CI)
    job = yaml.safe_load(change.after)["model-performance"]
    assert job["script"][0] == "cd 'sub dir'"
    assert job["artifacts"]["paths"] == ["sub dir/modelperf.md"]
    assert job["artifacts"]["reports"] == {"junit": "sub dir/junit.xml"}


def test_a_pipeline_of_the_user_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / GITLAB_FILE).write_text("stages: [test]\n")
    made = plan(project_at(tmp_path), service=Service.GITLAB)
    assert GITLAB_PART in names(made.changes)
    assert GITLAB_FILE not in names(made.changes)
    assert made.notes == (f'add this line to {GITLAB_FILE}: include: "{GITLAB_PART}"',)


@pytest.mark.parametrize("text", ["name: other\n", "- run: pytest --modelperf\n"])
def test_a_workflow_of_the_user_is_not_touched(tmp_path: Path, text: str) -> None:
    path = tmp_path / GITHUB_FILE
    path.parent.mkdir(parents=True)
    path.write_text(text)
    made = plan(project_at(tmp_path))
    assert GITHUB_FILE not in names(made.changes)
    assert made.notes == (f"{GITHUB_FILE} already exists; not changed",)


@pytest.mark.parametrize(
    ("remote", "service"),
    [
        ("git@github.com:a/b.git", Service.GITHUB),
        ("https://gitlab.example.org/a/b", Service.GITLAB),
        ("", Service.GITHUB),
    ],
)
def test_the_usual_service_is_that_of_the_remote(
    tmp_path: Path, remote: str, service: Service
) -> None:
    assert usual_service(project_at(tmp_path, remote=remote)) is service
    (tmp_path / GITLAB_FILE).touch()
    assert usual_service(project_at(tmp_path, remote=remote)) is Service.GITLAB


# -- the line for git


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", LINE),
        ("*.txt text", f"*.txt text\n{LINE}"),
        (LINE, LINE),
        ("baselines/**/twin.onnx -diff\n", "baselines/**/twin.onnx -diff\n"),
        ("*.txt text\r\n", f"*.txt text\r\n{LINE[:-1]}\r\n"),
        (
            "*.onnx filter=lfs diff=lfs merge=lfs -text\n",
            "*.onnx filter=lfs diff=lfs merge=lfs -text\nbaselines/**/twin.onnx binary -filter\n",
        ),
    ],
)
def test_the_line_is_added_at_the_end_once(before: str, after: str) -> None:
    assert add_twins_line(before, "baselines") == after
    assert add_twins_line(after, "baselines") == after


@needs_git
def test_git_lfs_does_not_take_the_twins(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    text = "*.onnx filter=lfs diff=lfs merge=lfs -text\n"
    (tmp_path / ".gitattributes").write_text(add_twins_line(text, "my baselines"))
    printed = git(
        tmp_path, "check-attr", "filter", "diff", "--", "my baselines/a/twin.onnx", "a.onnx"
    )
    assert printed.splitlines() == [
        "my baselines/a/twin.onnx: filter: unset",
        "my baselines/a/twin.onnx: diff: unset",
        "a.onnx: filter: lfs",
        "a.onnx: diff: lfs",
    ]


# -- the whole


@pytest.mark.parametrize("service", [*Service, None])
@pytest.mark.parametrize("text", [None, "# ours\r\n[project]\r\nname = 'a' # b\r\n", "[tool.x]"])
def test_a_second_setup_changes_nothing(
    tmp_path: Path, service: Service | None, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_bytes(text.encode())
    made = plan(project_at(tmp_path), service=service)
    write_changes(made.changes)
    written = {change.path: change.path.read_bytes() for change in made.changes}
    assert written == {change.path: change.after.encode() for change in made.changes}
    again = plan(project_at(tmp_path), tables={}, service=service)
    assert again.changes == ()


def test_without_git_only_tables_are_written(tmp_path: Path) -> None:
    made = plan(Project(root=tmp_path, reason=""))
    assert names(made.changes) == ["pyproject.toml"]
    (note,) = made.notes
    assert "git init" in note


def test_a_project_of_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".gitattributes").write_bytes(b"\xff\n")
    with pytest.raises(UsageError, match=r"\.gitattributes is not UTF-8"):
        plan(project_at(tmp_path))


def test_nothing_is_written_if_one_file_cannot_be(tmp_path: Path) -> None:
    (tmp_path / ".github").write_text("a file where a folder must be")
    made = plan(project_at(tmp_path))
    with pytest.raises(OutputError, match=r"cannot write .*model-performance\.yml"):
        write_changes(made.changes)
    assert not (tmp_path / "pyproject.toml").exists()
    assert not (tmp_path / ".gitattributes").exists()


def test_nothing_is_written_if_the_disk_has_no_room_for_one_file(tmp_path: Path) -> None:
    changes = tuple(
        FileChange(part=SetupPart.CI, path=tmp_path / name, name=name, before=None, after=after)
        for name, after in (("a.txt", "short"), ("b.txt", "long" * 1000))
    )
    with room_for(1 << 10), pytest.raises(OutputError, match=r"cannot write .*b\.txt"):
        write_changes(changes)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    made = plan(project_at(tmp_path))
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(OutputError, match="was changed by another program meanwhile"):
        write_changes(made.changes)
    assert (tmp_path / "pyproject.toml").read_text() == "[project]\n"


def test_each_change_is_shown_and_answered_once(tmp_path: Path) -> None:
    changes = plan(project_at(tmp_path)).changes
    shown: list[FileChange] = []
    asked: list[FileChange] = []

    def ask(change: FileChange) -> bool:
        assert shown[-1] is change
        asked.append(change)
        return change.part is SetupPart.CI

    settled = settle_changes(changes, {SetupPart.TABLES: True}, shown.append, ask)
    assert [change.part for change in settled.accepted] == [SetupPart.TABLES, SetupPart.CI]
    assert [change.part for change in asked] == [SetupPart.CI, SetupPart.GITATTRIBUTES]
    assert tuple(shown) == changes
    unasked = settle_changes(changes, {SetupPart.TABLES: True}, shown.append, None)
    assert [change.part for change in unasked.unanswered] == [SetupPart.CI, SetupPart.GITATTRIBUTES]


# -- the root


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", ""),
        pytest.param("pytest.toml", "", marks=needs_toml_of_pytest),
        pytest.param(".pytest.toml", "[pytest]\n", marks=needs_toml_of_pytest),
        ("pyproject.toml", "[tool.pytest.ini_options]\n"),
        ("tox.ini", "[tox]\n[pytest]\n"),
        ("setup.cfg", "[metadata]\n[tool:pytest]\naddopts = -q\n"),
    ],
)
def test_the_root_is_that_of_pytest(pytester: pytest.Pytester, name: str, text: str) -> None:
    inner = pytester.mkdir("sub")
    (inner / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    (pytester.path / name).write_text(text)
    found = find_project(inner)
    assert found.root == pytester.path
    assert name in found.reason
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(inner)
        assert pytester.parseconfig("--collect-only").rootpath == found.root


def test_a_project_without_settings_of_pytest_has_its_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "setup.cfg").write_text("[metadata]\n")
    (tmp_path / "sub").mkdir()
    assert find_project(tmp_path / "sub").root == tmp_path


@needs_git
def test_the_repository_is_the_last_resort(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert find_project(tmp_path / "sub").root == tmp_path / "sub"
    git(tmp_path, "init", "--quiet", "--initial-branch=trunk")
    found = find_project(tmp_path / "sub")
    assert (found.root, found.repository, found.branch) == (tmp_path, tmp_path, "trunk")
    (tmp_path / "new.onnx").touch()
    (tmp_path / "kept.onnx").touch()
    git(tmp_path, "add", "kept.onnx")
    assert untracked_files(found, ["kept.onnx", "new.onnx"]) == ("new.onnx",)
    (tmp_path / ".git" / "HEAD").write_text("no branch\n")
    assert untracked_files(found, ["kept.onnx", "new.onnx"]) == ("kept.onnx", "new.onnx")


@needs_git
def test_a_few_files_to_add_are_named_and_many_are_matched_by_patterns(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / ".gitignore").write_text("ignored.*\n")
    write_linear(tmp_path / "models" / "linear.onnx")
    stored = onnx.load(tmp_path / "models" / "linear.onnx")
    (tmp_path / "models" / "large").mkdir()
    save_beside(stored, tmp_path / "models" / "large" / "big.onnx", "weights.bin")
    write_linear(tmp_path / "ignored.onnx")
    found = find_project(tmp_path)
    models = ["ignored.onnx", "models/linear.onnx", "models/large/big.onnx"]
    files = model_files(found, [*models, "models/missing.onnx"])
    assert files == (*models, "models/missing.onnx", "models/large/weights.bin")
    assert ignored_by_git(found, files) == {"ignored.onnx"}
    assert set(files_to_add(found, files)) == {*models[1:], "models/large/weights.bin"}
    many = [f"models/{number}.onnx" for number in range(9)]
    for path in many:
        (tmp_path / path).touch()
    added = files_to_add(found, (*many, *files))
    assert set(added) == {"models/*.onnx", "models/large/*.onnx", "models/large/*.bin"}
    git(tmp_path, "add", *added)
    assert untracked_files(found, (*many, *files)) == ()
    git(tmp_path, "rm", "--quiet", "--cached", "-r", ".")
    assert set(files_to_add(found, [*many, "models/linear.onnx"])) == {*many, "models/linear.onnx"}


def test_the_error_of_broken_toml_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = \n")
    with pytest.raises(UsageError, match=r"pyproject\.toml.*line 2"):
        find_project(tmp_path)
