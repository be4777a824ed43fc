"""The folder of a history, as the commands find it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_modelperf.cli.setting_options import Command

if TYPE_CHECKING:
    from pytest_modelperf.history.store import HistoryStore


def history_dir_option(command: Command) -> Command:
    return click.option(
        "--dir",
        "folder",
        metavar="DIR",
        help="Folder of the history.  [default: history of [tool.modelperf], or history in the "
        "project's root, which is the nearest folder upward with [tool.modelperf] or .git]",
    )(command)


def find_project_root() -> Path:
    from pytest_modelperf.profiles.place import project_root

    return project_root(Path.cwd())


def open_history(given: str | None, root: Path) -> HistoryStore:
    """The given folder, or that of the project."""
    from pytest_modelperf.history.store import HistoryStore

    folder = project_folder(root, "history", "history") if given is None else Path(given)
    return HistoryStore(folder)


def project_folder(root: Path, key: str, usual: str) -> Path:
    """The folder of a project that a key of [tool.modelperf] names, or the usual one."""
    from pytest_modelperf.files.settings_table import read_table

    table = read_table(root / "pyproject.toml") or {}
    return root / str(table.get(key, usual))
