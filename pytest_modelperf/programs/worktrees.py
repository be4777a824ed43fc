"""Make the trees of commits: git worktrees in the cache folder, made once and removed when old.

    trees/<repository>/<commit>/      the work tree of a commit, detached
    trees/<repository>/<commit>.json  its note, which is written when the tree is complete

Names are short, because Windows limits the length of paths. A tree without a note was left by a
killed process and is made again. The modification time of the note is the time of the last use.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.baselines.program import CommitId
from pytest_modelperf.errors import MeasureError, OutputError, UsageError
from pytest_modelperf.files.git import FETCH_SECONDS, GitAnswer, ask_git
from pytest_modelperf.files.store import (
    FOLDER_VARIABLE,
    locked,
    read_note,
    user_cache_folder,
    write_note,
)
from pytest_modelperf.text.escaping import printable

KEPT_TREES = 10
KEPT_DAYS = 14
# A tree that was used within this time may still be in use.
_IN_USE_SECONDS = 6 * 3600.0
_DAY_SECONDS = 86_400.0
# Another process may have to download files from Git LFS.
_LONGEST_WAIT_S = 1800.0
_NAME_LENGTH = 12
# With these, no hook of the user runs, no setting leaves files out, and long paths work on Windows.
_SETTINGS = (
    "-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false",
    "-c", "core.sparseCheckout=false", "-c", "core.longpaths=true",
    "-c", "advice.detachedHead=false",
)  # fmt: skip


class TreeNote(Struct, frozen=True, kw_only=True):
    """The note of a complete tree: its commit, and the git folder that it belongs to."""

    commit: CommitId
    repository: str


def trees_folder() -> Path:
    return (user_cache_folder() / "trees").absolute()


def tree_of(
    commit: str,
    top: Path,
    *,
    folder: Path | None = None,
    on_progress: Callable[[str], None] = lambda step: None,  # noqa: ARG005
    now: Callable[[], float] = time.time,
) -> Path:
    """Return the work tree of a commit as it was checked in, and make it if necessary.

    `commit` is a full id, and `top` is a folder of the repository. Raises UsageError if git cannot
    check it out, and OutputError if it cannot be written.
    """
    common = _common_folder(top)
    digest = hashlib.sha256(os.fsencode(common)).hexdigest()[:_NAME_LENGTH]
    place = (folder or trees_folder()) / digest
    tree = place / commit[:_NAME_LENGTH]
    try:
        with _locked(place, on_progress):
            if not _is_whole(tree, commit):
                on_progress(f"checking out {commit[:10]}")
                _remove_old(place.parent, place, now(), top)
                _make(tree, commit, common, top)
            os.utime(_note_of(tree), (now(), now()))
    except OSError as error:
        raise OutputError(
            f"the commit {commit[:10]} cannot be checked out in {printable(str(place))}: "
            f"{printable(str(error.filename or ''))}: {error.strerror or error}. Make room there, "
            f"or set {FOLDER_VARIABLE} to another folder."
        ) from error
    return tree


def prune_trees(unused_since: dt.datetime | None, folder: Path | None = None) -> int:
    """Remove the trees that were not used since then, or all, and return their number."""
    trees = folder or trees_folder()
    limit = math.inf if unused_since is None else unused_since.timestamp()
    removed = 0
    try:
        for place in _trees_in(trees) if trees.is_dir() else ():
            with _locked(place, lambda holder: None):  # noqa: ARG005
                for tree in _trees_in(place):
                    if _used(tree) < limit:
                        note = _read_note(tree)
                        is_known = note is not None and Path(note.repository).exists()
                        _remove_tree(tree, Path(note.repository) if note and is_known else trees)
                        removed += 1
    except OSError as error:
        raise OutputError(
            f"worktrees in {_shown(trees)} cannot be removed: "
            f"{printable(str(error.filename or ''))}: {error.strerror or error}. Make the folder "
            "writable, or remove it yourself."
        ) from error
    return removed


def _common_folder(top: Path) -> Path:
    answer = ask_git(top, "rev-parse", "--git-common-dir")
    if answer.code != 0:
        raise UsageError(f"git cannot read the repository of {_shown(top)}: {answer.reason}.")
    return (top / os.fsdecode(answer.output.removesuffix(b"\n"))).resolve()


def _is_whole(tree: Path, commit: str) -> bool:
    """Whether the tree is complete, with each file as committed. Changed files are reset."""
    note = _read_note(tree)
    if note is None or note.commit != commit or not (tree / ".git").is_file():
        return False
    # If the repository was cloned again, it does not know the tree.
    head = ask_git(tree, *_SETTINGS, "rev-parse", "--verify", "--quiet", "HEAD")
    if head.code != 0 or head.output.strip() != commit.encode():
        return False
    # A test may have changed files of its project.
    if ask_git(tree, *_SETTINGS, "diff", "--quiet", "--ignore-submodules", "HEAD").code == 0:
        return True
    return ask_git(tree, *_SETTINGS, "reset", "--quiet", "--hard").code == 0


def _make(tree: Path, commit: str, common: Path, top: Path) -> None:
    """Make a tree that is missing or incomplete. The caller holds the lock."""
    _remove_tree(tree, top)
    # No other process knows this name. The git of a killed process may still run, and removes its
    # unfinished tree at the end.
    unfinished = tree.with_name(f"{tree.name}.{secrets.token_hex(4)}")
    answer = ask_git(
        top, *_SETTINGS, "worktree", "add", "--detach", str(unfinished), commit,
        seconds=FETCH_SECONDS,
    )  # fmt: skip
    if answer.code == 0:
        # Forced, because git may still list a tree at this path whose folder the user removed.
        answer = ask_git(
            top, *_SETTINGS, "worktree", "move", "--force", "--force", str(unfinished), str(tree)
        )
    if answer.code != 0:
        _remove_tree(unfinished, top)
        raise _not_checked_out(commit, answer)
    _fill_submodules(tree, commit, top)
    write_note(_note_of(tree), TreeNote(commit=commit, repository=str(common)))


def _not_checked_out(commit: str, answer: GitAnswer) -> UsageError:
    short = commit[:10]
    if "lfs" in answer.words.lower():
        return UsageError(
            f"files of the commit {short} are stored with Git LFS and cannot be fetched "
            f"({answer.reason}). Install git-lfs if it is missing, then run "
            f"`git lfs fetch origin {commit}`."
        )
    return UsageError(f"git cannot check out the commit {short}: {answer.reason}.")


def _fill_submodules(tree: Path, commit: str, top: Path) -> None:
    """Check out the submodules of a commit from those of the user, which are not changed."""
    for place, wanted in _submodules_in(commit, top):
        source = top / place
        step = f"`git submodule update --init {printable(place)}`"
        if not (source / ".git").exists():
            raise UsageError(
                f"the commit {commit[:10]} has the submodule {printable(place)}, which is not "
                f"checked out here. Run {step}."
            )
        target = tree / place
        _remove_folder(target)
        cloned = ask_git(
            top, *_SETTINGS, "clone", "--quiet", "--shared", "--no-checkout", str(source),
            str(target),
        )  # fmt: skip
        answer = cloned
        if cloned.code == 0:
            answer = ask_git(
                target, *_SETTINGS, "checkout", "--quiet", "--detach", wanted, seconds=FETCH_SECONDS
            )
        if answer.code != 0:
            raise UsageError(
                f"the commit {commit[:10]} has the submodule {printable(place)} at {wanted[:10]}, "
                f"which cannot be checked out: {answer.reason}. Run "
                f"`git -C {printable(place)} fetch origin {wanted}`."
            )
        _fill_submodules(target, wanted, source)


def _submodules_in(commit: str, top: Path) -> Iterator[tuple[str, str]]:
    answer = ask_git(top, "ls-tree", "-rz", "--full-tree", commit)
    for entry in answer.output.split(b"\0"):
        facts, _, name = entry.partition(b"\t")
        if facts.startswith(b"160000 "):
            yield os.fsdecode(name), facts.split(b" ")[-1].decode("ascii")


def _note_of(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}.json")


def _read_note(tree: Path) -> TreeNote | None:
    return read_note(_note_of(tree), TreeNote)


def _remove_old(trees: Path, place: Path, now: float, top: Path) -> None:
    """Remove unused trees before another one is made. The caller holds the lock."""
    used = sorted(((_used(tree), tree) for tree in _trees_in(place)), reverse=True)
    for index, (when, tree) in enumerate(used):
        age = now - when
        # One more tree is about to be made.
        is_one_too_many = index >= KEPT_TREES - 1 and age > _IN_USE_SECONDS
        if is_one_too_many or age > KEPT_DAYS * _DAY_SECONDS:
            _remove_tree(tree, top)
    for other in trees.iterdir():
        if other != place and other.is_dir() and _has_lost_repository(other):
            with suppress(OSError):
                _remove_folder(other)


def _trees_in(place: Path) -> list[Path]:
    return [path for path in place.iterdir() if path.is_dir()]


def _used(tree: Path) -> float:
    """Return the time of the last use, or 0 for an unused tree, which has no note."""
    try:
        return _note_of(tree).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove_tree(tree: Path, top: Path) -> None:
    _note_of(tree).unlink(missing_ok=True)
    # Git forgets the tree. Files that it leaves are removed in any case.
    ask_git(top, "worktree", "remove", "--force", "--force", str(tree))
    _remove_folder(tree)


def _has_lost_repository(place: Path) -> bool:
    notes = [note for tree in _trees_in(place) if (note := _read_note(tree)) is not None]
    return bool(notes) and not any(Path(note.repository).exists() for note in notes)


def _remove_folder(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _locked(place: Path, on_wait: Callable[[str], None]) -> AbstractContextManager[None]:
    """Hold the lock of a repository's trees, so that one process at a time changes them."""
    hangs = MeasureError(
        f"another process checks out commits in {_shown(place)} for more than "
        f"{_LONGEST_WAIT_S / 60:.0f} min: end it if it hangs."
    )
    step = "waiting for another process that checks out a commit"
    return locked(place, _LONGEST_WAIT_S, hangs, partial(on_wait, step))


def _shown(path: Path) -> str:
    return printable(str(path))
