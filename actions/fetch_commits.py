"""Fetches the history that a shallow clone lacks, if the project has baselines of programs.

Such a baseline names a commit, which must be part of the history. A project without one, or a
clone with all of its history, fetches nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from sync_history import git_settings
from workflow import read_input, require, run_step, say

_PROGRAM = ":(glob)**/program.json"


def fetch_commits() -> int:
    if _ask_git("rev-parse", "--is-shallow-repository") != "true":
        return 0
    if all(map(_is_in_history, recorded_commits())):
        return 0
    settings = git_settings(require("GITHUB_SERVER_URL"), read_input("token"))
    head = _ask_git("rev-parse", "HEAD")
    # By its id, because a pull request is checked out as a commit that is in no branch.
    fetch = ["fetch", "--unshallow", "--no-tags", "--no-recurse-submodules", "origin", head]
    print("$ git", *fetch, flush=True)
    if _run_git(*fetch, **settings).returncode:
        # The tests of programs fail and name the commit; those of models need no history.
        say(
            "warning",
            "the history could not be fetched, so programs have no older version to be compared "
            "with: give actions/checkout `fetch-depth: 0`",
        )
    return 0


def recorded_commits() -> Iterator[str | None]:
    """The commits that the baselines of programs name; None for one that names none."""
    for place in _ask_git("ls-files", "-z", "--", _PROGRAM).split("\0"):
        try:
            document = json.loads(Path(place).read_bytes()) if place else None
        except (OSError, ValueError):
            # The run reports it, if it is a baseline.
            continue
        if isinstance(document, dict) and "test" in document and "commit" in document:
            commit = document["commit"]
            yield commit if isinstance(commit, str) else None


def _is_in_history(commit: str | None) -> bool:
    """Whether HEAD contains the commit. One that is not named may be anywhere in the history."""
    if commit is None or commit.startswith("-"):
        return False
    return _run_git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0


def _ask_git(*arguments: str) -> str:
    """The output of a git command; empty if it fails, as in a folder without a repository."""
    done = _run_git(*arguments)
    return os.fsdecode(done.stdout).strip("\n") if done.returncode == 0 else ""


def _run_git(*arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment: Mapping[str, str] = {**os.environ, **variables}
    # Its errors are in the log only when it fetches.
    errors = None if variables else subprocess.DEVNULL
    return subprocess.run(
        ["git", *arguments],
        check=False,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=errors,
    )


if __name__ == "__main__":
    run_step(fetch_commits)
