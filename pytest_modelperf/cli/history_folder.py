"""The folder of a history, as the commands find it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_modelperf.cli.options import project_folder_option

if TYPE_CHECKING:
    from pytest_modelperf.history.store import HistoryStore


history_dir_option = project_folder_option(
    "--dir", "folder", of="history", default="history of [tool.modelperf], or history"
)


def find_project_root() -> Path:
    from pytest_modelperf.profiles.store import project_root

    return project_root(Path.cwd())


def open_history(given: str | None, root: Path) -> HistoryStore:
    """The given folder, or that of the project."""
    from pytest_modelperf.history.store import HistoryStore

    folder = project_folder(root, "history", "history") if given is None else Path(given)
    return HistoryStore(folder)


def project_folder(root: Path, key: str, usual: str) -> Path:
    """The folder of a project that a key of [tool.modelperf] names, or the usual one."""
    from pytest_modelperf.files.settings_table import read_table
    from pytest_modelperf.spec.readers import read_place

    table = read_table(root / "pyproject.toml") or {}
    return root / read_place(table.get(key, usual), f"pyproject.toml, [tool.modelperf]: {key}")
