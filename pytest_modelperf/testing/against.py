"""The older version of a model that `--modelperf-against` names, by a path or by a git ref."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_modelperf.errors import UsageError
from pytest_modelperf.revisions.commits import (
    RefOption,
    UnknownCommitError,
    find_commit,
    has_commit,
    submodules,
    taken_from_git,
)
from pytest_modelperf.spec.run_definitions import AGAINST
from pytest_modelperf.text.escaping import printable

_OPTION = RefOption(AGAINST.flag, f"{AGAINST.flag} old.onnx")


@contextmanager
def older_version(text: str, model: Path, root: Path) -> Iterator[Path]:
    """Yield the file of the older version of a model, given by a path or a git ref.

    The file of a git ref is temporary. If `text` is a file, it is the older version of any model.
    In a folder, the older version has the path that the model has in `root`, or else its name. A
    path wins over a ref of the same name.
    """
    named = named_path(text, root)
    if named is not None:
        yield file_named(named, text, model, root)
        return
    commit = find_commit(text, model.absolute().parent, _OPTION)
    with taken_from_git(commit, model) as path:
        yield path


def check_against(text: str, root: Path) -> None:
    """Raise UsageError at the start of a run if `text` is neither a path nor a commit.

    It may also be a commit of a submodule, because a submodule may contain the model.
    """
    if named_path(text, root) is not None:
        return
    try:
        find_commit(text, root, _OPTION)
    except UnknownCommitError:
        if not any(has_commit(text, folder, _OPTION) for folder in submodules(root, _OPTION)):
            raise


# -- by its path: a file, or a folder that contains it


# Folders of copies and packages, which do not contain the user's own models.
_COPIES = frozenset({"build", "dist", "node_modules", "venv", "__pycache__"})


def named_path(text: str, root: Path) -> Path | None:
    """Return the path `text`, relative to the current folder or to `root`, or None if absent."""
    if not text.strip():
        raise UsageError(f"{AGAINST.flag} takes a path or a git ref, such as HEAD~1 or old.onnx.")
    given = Path(text).expanduser() if text.startswith("~/") else Path(text)
    # Unlike `Path.exists`, this raises no error for a text that cannot be a path.
    found = (path for path in (given, root / given) if os.path.exists(path))  # noqa: PTH110
    return next((path.absolute() for path in found), None)


def file_named(named: Path, text: str, model: Path, root: Path) -> Path:
    path = _file_in_folder(named, text, model, root) if named.is_dir() else named
    if _place(path) == _place(model):
        raise UsageError(
            f"{AGAINST.flag} {printable(text)} names the model {printable(str(model))} itself. "
            "Give an older version of it: another file, or a git ref such as HEAD~1."
        )
    return path


def _file_in_folder(folder: Path, text: str, model: Path, root: Path) -> Path:
    place, top = _place(model), root.resolve()
    wanted = folder / model.name
    if place.is_relative_to(top):
        wanted = folder / place.relative_to(top)
        if wanted.is_file():
            return wanted
    by_name = folder / model.name
    if not by_name.is_file():
        near = sorted(p for pattern in ("*.onnx", "*/*.onnx") for p in folder.glob(pattern))[:5]
        hint = f" There are: {', '.join(printable(str(path)) for path in near)}." if near else ""
        tried = dict.fromkeys((str(wanted.relative_to(folder)), model.name))
        raise UsageError(
            f"{AGAINST.flag} names the folder {printable(text)}, which does not contain "
            f"{' or '.join(map(printable, tried))}.{hint} "
            f"Put the older version there, or give its path.{_ref_hint(text)}"
        )
    for other in _namesakes(model.name, top, folder.resolve()):
        if other != place:
            raise UsageError(
                f"{printable(str(by_name))} may be the older version of "
                f"{printable(str(model))} or of {printable(str(other))}. "
                f"Put it at {printable(str(wanted))}, or give {AGAINST.flag} the path of a file."
            )
    return by_name


def _ref_hint(text: str) -> str:
    if "/" in text or text.startswith("."):
        return ""
    return f" If you mean the branch of that name, type refs/heads/{printable(text)}."


def _namesakes(name: str, top: Path, but: Path) -> Iterator[Path]:
    """Yield the files of that name below `top`, except in `but` and in folders of tools."""
    for where, folders, files in os.walk(top):
        here = Path(where)
        folders[:] = [
            each
            for each in folders
            if not each.startswith(".")
            and each not in _COPIES
            and here / each != but
            and not (here / each / "pyvenv.cfg").exists()
        ]
        if name in files:
            yield here / name


def _place(path: Path) -> Path:
    """Resolve the links in the folder of a file, but not the file itself."""
    return path.parent.resolve() / path.name
