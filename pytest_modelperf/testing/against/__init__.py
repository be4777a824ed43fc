"""The older version of a model that `--modelperf-against` names, by a path or by a git ref."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_modelperf.revisions.commits import (
    RefOption,
    UnknownCommitError,
    find_commit,
    has_commit,
    submodules,
    taken_from_git,
)
from pytest_modelperf.spec.run_definitions import AGAINST
from pytest_modelperf.testing.against.paths import file_named, named_path

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
