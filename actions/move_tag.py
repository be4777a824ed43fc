"""Moves the tag that users of the actions name to the commit of their newest release."""

from __future__ import annotations

import re
import sys

from github_api import GitHub, NotFoundError
from workflow import StepError, require, run_step, say

_RELEASE = re.compile(r"(v\d+)\.(\d+)\.(\d+)", re.ASCII)


def move_tag(github: GitHub, name: str, commit: str, release: str) -> None:
    """Has the tag point to the commit of this release, whether or not there is such a tag.

    It stays where it is if there is a newer release of the name, as after a patch of an older one.
    """
    listed = [each["tag_name"] for each in github.pages("releases")]
    newest = max(listed, key=lambda tag: _order(tag, name), default=release)
    if _order(newest, name) > _order(release, name):
        say("notice", f"{name} stays at {newest}, which is newer than {release}")
        return
    try:
        github.get(f"git/ref/tags/{name}")
    except NotFoundError:
        github.send("POST", "git/refs", {"ref": f"refs/tags/{name}", "sha": commit})
    else:
        github.send("PATCH", f"git/refs/tags/{name}", {"sha": commit, "force": True})


def _order(tag: str, name: str) -> tuple[int, int]:
    """The key that sorts the releases of `name` by their version; other tags come first."""
    found = _RELEASE.fullmatch(tag)
    return (int(found[2]), int(found[3])) if found and found[1] == name else (-1, -1)


def move() -> int:
    if len(sys.argv) != 2:
        raise StepError("give the name of the tag, as in: move_tag.py v1")
    token = require("INPUT_TOKEN")
    github = GitHub(require("GITHUB_API_URL"), require("GITHUB_REPOSITORY"), token)
    move_tag(github, sys.argv[1], require("GITHUB_SHA"), require("GITHUB_REF_NAME"))
    return 0


if __name__ == "__main__":
    run_step(move)
