"""The records of a setup: the project, the models in it, and the changes to its files."""

from __future__ import annotations

import enum
from pathlib import Path

from msgspec import Struct


class Project(Struct, frozen=True, kw_only=True):
    """The folder that pytest takes as its root, and the git repository around it.

    `reason` says why it is that folder. `repository` and `branch`, the default one, are None
    outside of git. `remote` is the address of the remote, empty if there is none.
    """

    root: Path
    reason: str
    repository: Path | None = None
    branch: str | None = None
    remote: str = ""

    @property
    def inner(self) -> str:
        """The path of the root in the repository: `.` if both are the same folder."""
        return "." if self.repository is None else inner_path(self.root, self.repository)


class Remark(Struct, frozen=True):
    """A place that was found but not used, and why."""

    path: str
    reason: str


class ModelSearch(Struct, frozen=True):
    """The result of a search: models by their paths in the project, and what was left out.

    `looked` are the searched places, and `folders` is the number of searched folders. `skipped` are
    the folders that hold no models of the project itself.
    """

    looked: tuple[str, ...]
    folders: int
    models: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()
    skipped: tuple[str, ...] = ()


class SetupPart(enum.Enum):
    """One part of the setup, about which the user is asked once."""

    TABLES = "tables"
    CI = "ci"
    GITATTRIBUTES = "gitattributes"


class Service(enum.Enum):
    """A service that runs the tests of a project."""

    GITHUB = "github"
    GITLAB = "gitlab"


class FileChange(Struct, frozen=True, kw_only=True):
    """A file before and after a change.

    `before` is None for a new file. `name` is its path as shown.
    """

    part: SetupPart
    path: Path
    name: str
    before: str | None
    after: str


class Plan(Struct, frozen=True):
    """The file changes that set a project up, and the steps that only the user can take."""

    changes: tuple[FileChange, ...] = ()
    notes: tuple[str, ...] = ()


def inner_path(path: Path, folder: Path) -> str:
    """Return the path below a folder with slashes, or the whole path if it is elsewhere."""
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)
