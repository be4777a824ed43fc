"""The folders and the names of kept profiles."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.names import folder_name
from pytest_modelperf.files.settings_table import read_table
from pytest_modelperf.profiles.records import FLOPS
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import suggestion

FOLDER = "profiles"
MAX_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
# The form in which `--engine callable` gets its function.
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def project_root(start: Path) -> Path:
    """The nearest folder upward with `[tool.modelperf]` or a git repository; else `start`."""
    for folder in (start, *start.parents):
        is_project = (folder / ".git").exists()
        if is_project or read_table(folder / "pyproject.toml") is not None:
            return folder
    return start


def model_folder(model: str, root: Path) -> str:
    """The name of a model's folder, made from its path as the name of its baseline is.

    The path is relative to the root of the project. A Python function has its own name.
    """
    if is_function(model):
        return folder_name(model)
    return folder_name(Path(relative_path(model, root)).as_posix())


def relative_path(path: str, start: Path) -> str:
    """The path as it is from a folder; the whole one if it lies on another drive of Windows."""
    try:
        return os.path.relpath(path, start)
    except ValueError:
        return str(Path(path).absolute())


def is_function(model: str) -> bool:
    """Whether it names a Python function, `package.module:function`, and not a file."""
    return _FUNCTION.fullmatch(model) is not None and not Path(model).exists()


def check_name(name: str) -> None:
    """Raise a UsageError if no profile can be kept under this name."""
    if name.lower() == FLOPS:
        raise UsageError(
            f"{printable(name)!r} is the name of the counts, which are always there and cannot "
            "be kept or removed. Give another name, such as baseline."
        )
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise UsageError(
            f"{printable(name)!r} cannot name a profile. A name has up to {MAX_NAME} letters, "
            "digits, '.', '_' and '-', and does not start with '.'."
        )


def unknown_name(name: str, known: Iterable[str], command: str) -> UsageError:
    """The error for a name that is not `known`; `command` lists the profiles.

    The counts are among the `known` names, but not if a profile is to be removed.
    """
    names = tuple(known)
    are = "There are" if FLOPS in names else "Kept are"
    there = f"{are}: {printable(', '.join(names))}." if names else "None is kept."
    return UsageError(
        f"there is no profile {printable(name)!r}.{suggestion(name, names)} {there} Listed by: "
        f"{command}"
    )
