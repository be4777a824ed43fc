"""Git as the tests call it: without the settings of the user who runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_GIT = shutil.which("git") or ""
_IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")

needs_git = pytest.mark.skipif(not _GIT, reason="needs git")


def git(folder: Path, *arguments: str, date: str = "", given: str = "") -> str:
    """Return the output of a git command with this input; its commits and tags have this date."""
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
    return subprocess.check_output(
        [_GIT, *_IDENTITY, *arguments],
        cwd=folder,
        input=given,
        text=True,
        env={**os.environ, **dates},
    ).strip()
