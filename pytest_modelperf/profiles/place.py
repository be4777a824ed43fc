"""Where the profiles of a model are kept, and what they may be called."""

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
from pytest_modelperf.text.words import nearest

FOLDER = "profiles"
MAX_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
# As `--engine callable` is given its function.
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def project_root(start: Path) -> Path:
    """The nearest folder upward with `[tool.modelperf]` or a git repository; else `start`."""
    for folder in (start, *start.parents):
        is_project = (folder / ".git").exists()
        if is_project or read_table(folder / "pyproject.toml") is not None:
            return folder
    return start


def model_folder(model: str, root: Path) -> str:
    """The name of a model's folder, as that of its baseline: its path from the project's root.

    A model that lies elsewhere has the way that leads there; a Python function is its own name.
    """
    if is_function(model):
        return folder_name(model)
    path = os.path.relpath(model, root)
    return folder_name(Path(path).as_posix())


def is_function(model: str) -> bool:
    """Whether it names a Python function, `package.module:function`, and no file."""
    return _FUNCTION.fullmatch(model) is not None and not Path(model).exists()


def check_name(name: str) -> None:
    """UsageError where no profile can be kept under this name."""
    if name.lower() == FLOPS:
        raise UsageError(
            f"{printable(name)!r} names what is counted, which is always there and cannot be "
            "kept or removed. Give another name, such as baseline."
        )
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise UsageError(
            f"{printable(name)!r} cannot name a profile. A name has up to {MAX_NAME} letters, "
            "digits, '.', '_' and '-', and does not start with '.'."
        )


def unknown_name(name: str, known: Iterable[str], command: str) -> UsageError:
    """What to say where there is no profile of that name; `command` lists those that there are.

    What is counted is always there, but where something is to be removed it is none of the `known`.
    """
    names = tuple(known)
    near = nearest(name, names)
    hint = f" Did you mean {near!r}?" if near is not None else ""
    are = "There are" if FLOPS in names else "Kept are"
    there = f"{are}: {printable(', '.join(names))}." if names else "None is kept."
    return UsageError(
        f"there is no profile {printable(name)!r}.{hint} {there} Listed by: {command}"
    )
