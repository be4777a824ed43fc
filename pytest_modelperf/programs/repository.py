"""Find the git repository of a program: its top folder, and the commit that is checked out."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.git import ask_git
from pytest_modelperf.text.escaping import printable


def top_of(folder: Path) -> Path:
    """Return the top folder of the work tree, or raise UsageError if there is none."""
    answer = ask_git(folder, "rev-parse", "--show-toplevel")
    if answer.code == 0 and answer.output.strip():
        return Path(os.fsdecode(answer.output.removesuffix(b"\n")))
    shown = printable(str(folder))
    if "dubious ownership" in answer.words:
        # git prints the exact command.
        found = re.search(r"git config --global --add safe\.directory .*", answer.words)
        step = printable(found[0].strip()) if found else "git config --global safe.directory FOLDER"
        raise UsageError(
            f"git does not trust the repository of {shown}, because another user owns it. "
            f"Run `{step}`."
        )
    if "not a git repository" in answer.words:
        raise UsageError(
            f"{shown} is not in a git repository, so there is no older version of a program. "
            "Run `git init` there, and commit the program."
        )
    raise UsageError(f"git does not find the work tree of {shown}: {answer.reason}.")


def head_commit(top: Path) -> str:
    """Return the id of the commit that is checked out, or raise UsageError if there is none yet."""
    answer = ask_git(top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if answer.code != 0:
        raise UsageError(
            f"the git repository of {printable(str(top))} has no commit yet: commit the program "
            "first."
        )
    return answer.output.decode("ascii").strip()
