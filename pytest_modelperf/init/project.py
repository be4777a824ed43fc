"""The folder that pytest takes as the root of a project, and the git repository around it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.git import ask_git
from pytest_modelperf.files.settings_table import PYPROJECT, read_toml
from pytest_modelperf.init.records import Project

_MAIN = "main"
# The files that are settings of pytest, whatever they hold, and the sections of other files.
_OWN_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")
_SECTIONS = {"tox.ini": "[pytest]", "setup.cfg": "[tool:pytest]"}


def find_project(start: Path) -> Project:
    """The project that a run of pytest in this folder would have; UsageError for broken TOML.

    Without settings of pytest and without a `pyproject.toml`, it is the git repository.
    """
    repository = _find_repository(start)
    root, reason = _find_root(start, repository)
    if repository is None:
        return Project(root=root, reason=reason)
    return Project(
        root=root,
        reason=reason,
        repository=repository,
        branch=_default_branch(repository),
        remote=_ask(repository, "remote", "get-url", "origin"),
    )


def untracked_files(project: Project, paths: Sequence[str]) -> tuple[str, ...]:
    """Which of these paths git does not keep yet; all of them where git does not tell."""
    if project.repository is None or not paths:
        return tuple(paths)
    try:
        answer = ask_git(project.root, "ls-files", "--others", "-z", "--", *paths)
    except UsageError:
        answer = None
    if answer is None or answer.code != 0:
        # To add a file that git keeps already does nothing.
        return tuple(paths)
    return tuple(map(os.fsdecode, filter(None, answer.output.split(b"\0"))))


def _find_root(start: Path, repository: Path | None) -> tuple[Path, str]:
    folders = (start, *start.parents)
    for folder in folders:
        settings = _pytest_settings(folder)
        if settings is not None:
            return folder, f"it has the settings of pytest in {settings}"
    for folder in folders:
        if (folder / PYPROJECT).is_file():
            return folder, f"it has a {PYPROJECT}"
    if repository is not None:
        return repository, "it is the top of the git repository"
    return start, "it is the working folder"


def _pytest_settings(folder: Path) -> str | None:
    """The file of this folder that makes it the root for pytest, in the order of pytest."""
    for name in _OWN_FILES:
        if (folder / name).is_file():
            return name
    tool = read_toml(folder / PYPROJECT).get("tool")
    if isinstance(tool, Mapping) and isinstance(tool.get("pytest"), Mapping):
        return PYPROJECT
    for name, section in _SECTIONS.items():
        if section in _lines(folder / name):
            return name
    return None


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return []


def _find_repository(start: Path) -> Path | None:
    found = _ask(start, "rev-parse", "--show-toplevel")
    return Path(found) if found else None


def _default_branch(repository: Path) -> str:
    """The branch that the remote has as its default; without a remote, the present one."""
    head = _ask(repository, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
    if head:
        return head.partition("/")[2]
    return _ask(repository, "symbolic-ref", "--quiet", "--short", "HEAD") or _MAIN


def _ask(folder: Path, *arguments: str) -> str:
    """The answer in one line; empty if there is none, as without git."""
    try:
        answer = ask_git(folder, *arguments)
    except UsageError:
        return ""
    text = os.fsdecode(answer.output).strip("\n")
    return text if answer.code == 0 else ""
