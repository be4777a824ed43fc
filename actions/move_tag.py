"""Moves the tag that users of the actions name to the commit of a release."""

from __future__ import annotations

import sys

from github_api import GitHub, NotFoundError
from workflow import StepError, require, run_step


def move_tag(github: GitHub, name: str, commit: str) -> None:
    """Has the tag point to the commit, whether or not there is such a tag."""
    try:
        github.get(f"git/ref/tags/{name}")
    except NotFoundError:
        github.send("POST", "git/refs", {"ref": f"refs/tags/{name}", "sha": commit})
    else:
        github.send("PATCH", f"git/refs/tags/{name}", {"sha": commit, "force": True})


def move() -> int:
    if len(sys.argv) != 2:
        raise StepError("give the name of the tag, as in: move_tag.py v1")
    token = require("INPUT_TOKEN")
    github = GitHub(require("GITHUB_API_URL"), require("GITHUB_REPOSITORY"), token)
    move_tag(github, sys.argv[1], require("GITHUB_SHA"))
    return 0


if __name__ == "__main__":
    run_step(move)
