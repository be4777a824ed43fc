"""Files in the tree of a commit that its checkout does not bring: ignored ones, and Git LFS."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from pytest_modelperf.baselines.program import ProgramSources
from pytest_modelperf.errors import ModelError, OutputError, UsageError
from pytest_modelperf.files.git import FETCH_SECONDS, ask_git
from pytest_modelperf.programs.commits import ignored_files
from pytest_modelperf.programs.contents import file_has_digest
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_MAX_POINTER_BYTES = 1024
_MOST_NAMED = 3


def complete_tree(tree: Path, seen: ProgramSources, top: Path) -> None:
    """Put the files into a tree that the program read there and that the commit does not have.

    A file that git ignores is linked to the one of the work tree. UsageError if that is not the
    recorded one, or if a file of Git LFS cannot be had.
    """
    models = {model.path: model.sha256 for model in seen.models if model.path is not None}
    for place in ignored_files(seen, top):
        source = top / place
        if place in seen.files:
            found = [source] if _is_recorded(source, seen.files[place]) else []
        else:
            found = _files_of_model(source, models[place])
        if not found:
            raise UsageError(
                f"{printable(place)} is not in git, and is not the file that the program read when "
                "it was recorded. Bring that one back, or record the test again with "
                "`pytest --modelperf --modelperf-update-baseline`."
            )
        for each in found:
            _link(each, tree / os.path.relpath(each, top), place)
    _download({place for place in {*seen.files, *models} if _is_pointer(tree / place)}, tree)


def _is_recorded(source: Path, digest: str) -> bool:
    try:
        return file_has_digest(source, digest)
    except OSError:
        return False


def _files_of_model(source: Path, digest: str | None) -> list[Path]:
    """A model and its external data; empty if it is not the recorded one.

    The digest of what the graph cannot be read from is None.
    """
    # Imported here: it loads onnx, and most models are in git.
    from pytest_modelperf.graph.model_file import external_files, open_model

    if digest is None:
        return [source] if source.is_file() else []
    try:
        model = open_model(source)
        if model.sha256() != digest:
            return []
        return [source, *external_files(model).values()]
    except ModelError:
        return []


def _link(source: Path, target: Path, place: str) -> None:
    if target.exists() and not _is_ours(source, target):
        # The commit has it: git ignores it today.
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        _make_link(source, target)
    except OSError as error:
        raise OutputError(
            f"{printable(str(target))} cannot be linked to {printable(place)}: "
            f"{error.strerror or error}. Remove {printable(str(target.parent))} and run again."
        ) from error


def _is_ours(source: Path, target: Path) -> bool:
    """Whether an earlier run made the file in the tree: a link, or a copy of what the source was.

    A copy is untracked there.
    """
    if target.is_symlink():
        return True
    found = ask_git(target.parent, "ls-files", "--error-unmatch", "--", target.name)
    return found.code != 0 and source.name == target.name


def _make_link(source: Path, target: Path) -> None:
    """Link to a file, or copy it if the system allows neither kind of link."""
    try:
        target.symlink_to(source.resolve())
    except OSError:
        try:
            # Windows lets few users make symbolic links.
            os.link(source.resolve(), target)
        except OSError:
            shutil.copyfile(source, target)


def _download(places: Collection[str], tree: Path) -> None:
    """Replace pointers of Git LFS, which the checkout left because LFS is not set up here."""
    if not places:
        return
    answer = ask_git(
        tree, "lfs", "pull", "--include", ",".join(sorted(places)), seconds=FETCH_SECONDS
    )
    left = [printable(place) for place in sorted(places) if _is_pointer(tree / place)]
    if left:
        raise UsageError(
            f"the program reads {shorten_list(left, _MOST_NAMED)}, stored with Git LFS, and in its "
            f"older version is only the pointer to it ({answer.reason}). Install git-lfs, then run "
            "`git lfs fetch --all origin`."
        )


def _is_pointer(path: Path) -> bool:
    try:
        if path.stat().st_size > _MAX_POINTER_BYTES:
            return False
        return path.read_bytes().startswith(_LFS_POINTER)
    except OSError:
        return False
