"""The commit of a run, and the last tag of its repository."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.git import ask_git
from pytest_modelperf.history.records import Tag

# What GitHub Actions says of a checkout, which is of a commit and not of a branch.
_BRANCH_VARIABLES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME")
_TAG_FORMAT = "%(refname:short)%00%(objectname)%00%(*objectname)%00%(creatordate:iso-strict)"


class Revision(Struct, frozen=True):
    """The commit and the branch of a work tree; None if unknown, as outside of a repository."""

    commit: str | None = None
    branch: str | None = None


def find_revision(folder: Path) -> Revision:
    commit = _ask(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    if commit is None:
        return Revision()
    branch = _ask(folder, "symbolic-ref", "--quiet", "--short", "HEAD")
    known = (os.environ.get(name) for name in _BRANCH_VARIABLES)
    return Revision(commit, branch or next(filter(None, known), None))


def find_last_tag(folder: Path) -> Tag | None:
    """The youngest tag of the present commit and of those before it."""
    found = _ask(
        folder, "for-each-ref", "--merged=HEAD", "--sort=-creatordate", "--count=1",
        f"--format={_TAG_FORMAT}", "refs/tags",
    )  # fmt: skip
    if found is None:
        return None
    name, digest, commit, date = found.split("\0")
    # An annotated tag is an object of its own, which points to the commit.
    return Tag(name, commit or digest, dt.datetime.fromisoformat(date.replace("Z", "+00:00")))


def _ask(folder: Path, *arguments: str) -> str | None:
    """The answer in one line; None if there is none. A history does without git, too."""
    try:
        answer = ask_git(folder, *arguments)
    except UsageError:
        return None
    text = answer.output.decode("utf-8", "replace").strip("\n")
    return text if answer.code == 0 and text else None
