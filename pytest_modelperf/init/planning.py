"""Plan the changes of a setup to the files of a project; nothing is written here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.settings_table import PYPROJECT
from pytest_modelperf.init.ci_files import ci_file, runs_in_ci
from pytest_modelperf.init.records import FileChange, Plan, Project, Service, SetupPart, inner_path
from pytest_modelperf.init.tables import add_tables
from pytest_modelperf.text.escaping import printable

_ATTRIBUTES = ".gitattributes"
_TWINS = "**/twin.onnx"
# Models in Git LFS would take the twins along, which are small and need to be there at once.
_LFS = re.compile(r"^\*[\w.]*onnx\s.*\bfilter=lfs\b|^\*\*/\*\.onnx\s.*\bfilter=lfs\b", re.MULTILINE)


class Wishes(Struct, frozen=True, kw_only=True):
    """The parts to set up: tables, a service, a line for the twins.

    `engine` is the installed version of ONNX Runtime, which the service installs too.
    """

    tables: bool = True
    service: Service | None = None
    gitattributes: bool = True
    engine: str | None = None


def plan_setup(
    project: Project, tables: Mapping[str, str], baselines: Path, wishes: Wishes
) -> Plan:
    """The changes that are left to make; `tables` has the lines of each new table as TOML."""
    changes: list[FileChange] = []
    notes: list[str] = []
    if wishes.tables:
        pyproject = project.root / PYPROJECT
        before = read_text(pyproject)
        after = add_tables(before or "", tables)
        changes += _changed(project, SetupPart.TABLES, pyproject, before, after)
    if project.repository is None:
        if wishes.service is not None or wishes.gitattributes:
            notes.append(
                "there is no git repository, so nothing is set up for CI: type git init, and run "
                "this again"
            )
        return Plan(tuple(changes), tuple(notes))
    if wishes.service is not None:
        there = runs_in_ci(project.repository, wishes.service)
        if there is None:
            made = ci_file(project, project.repository, wishes.service, wishes.engine)
            path = project.repository / made.path
            there = made.path if path.exists() else None
            if there is None:
                changes += _changed(project, SetupPart.CI, path, None, made.text)
                notes += [made.note] if made.note is not None else []
        if there is not None:
            notes.append(f"{there} is there already: it is left as it is")
    if wishes.gitattributes and baselines.is_relative_to(project.root):
        path = project.root / _ATTRIBUTES
        before = read_text(path)
        after = add_twins_line(before or "", inner_path(baselines, project.root))
        changes += _changed(project, SetupPart.GITATTRIBUTES, path, before, after)
    return Plan(tuple(changes), tuple(notes))


def add_twins_line(text: str, baselines: str) -> str:
    """The attributes with a line for the twins in this folder; unchanged if they have one.

    git then does not merge twins by lines.
    """
    pattern = f"{baselines}/{_TWINS}".replace(" ", "[[:space:]]")
    if any(line.split()[:1] == [pattern] for line in text.splitlines()):
        return text
    end = "" if not text or text.endswith("\n") else "\n"
    lfs = " -filter" if _LFS.search(text) else ""
    newline = "\r\n" if "\r\n" in text else "\n"
    return f"{text}{end}{pattern} binary{lfs}{newline}"


def _changed(
    project: Project, part: SetupPart, path: Path, before: str | None, after: str
) -> Iterator[FileChange]:
    if after != (before or ""):
        name = inner_path(path, project.root)
        yield FileChange(part=part, path=path, name=name, before=before, after=after)


def read_text(path: Path) -> str | None:
    """The text of a file with its line ends; None if there is none."""
    name = printable(str(path))
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is no UTF-8: save it in that encoding.") from error
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}.") from error
