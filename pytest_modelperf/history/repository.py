"""The commit of a run, the last tag of its repository, and its pages on its service."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.git import ask_git
from pytest_modelperf.history.records import Tag
from pytest_modelperf.report.model import Link

# GitHub Actions checks out a commit, and names its branch in these variables.
_BRANCH_VARIABLES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME")
_TAG_FORMAT = "%(refname:short)%00%(objectname)%00%(*objectname)%00%(creatordate:iso-strict)"

# The placeholder of a commit in an address.
COMMIT = "{commit}"
# The paths to a commit, by a word in the name of the host.
_COMMIT_PATHS = {
    "github": "commit",
    "gitlab": "-/commit",
    "gitea": "commit",
    "forgejo": "commit",
    "codeberg": "commit",
    "bitbucket.org": "commits",
}
# `https://host/owner/name.git`, `ssh://git@host:22/owner/name`, `git@host:owner/name.git`
_REMOTE = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/]*@)?(?P<host>[a-z0-9.-]+)(?::[0-9]+)?/"
    r"|(?:[^@/:]*@)?(?P<ssh_host>[a-z0-9.-]+):)(?P<path>[\w.~/-]+?)(?:\.git)?/*",
    re.ASCII | re.IGNORECASE,
)


class Revision(Struct, frozen=True):
    """The commit and the branch of a work tree.

    They are None if unknown, as outside of a repository.
    """

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
    """Return the newest tag of the present commit and of those before it."""
    found = _ask(
        folder, "for-each-ref", "--merged=HEAD", "--sort=-creatordate", "--count=1",
        f"--format={_TAG_FORMAT}", "refs/tags",
    )  # fmt: skip
    if found is None:
        return None
    name, digest, commit, date = found.split("\0")
    if not date:
        # A tag of an old Git may lack its tagger, and so its date.
        return None
    # An annotated tag is an object of its own, which points to the commit.
    return Tag(name, commit or digest, dt.datetime.fromisoformat(date.replace("Z", "+00:00")))


def find_commit_url(folder: Path) -> str | None:
    """Return the address of a commit, with `{commit}` in it, on the host of the remote `origin`.

    The result is None if the host is not known to have such addresses. Passwords of the remote are
    left out.
    """
    address = _ask(folder, "remote", "get-url", "origin")
    found = None if address is None else _REMOTE.fullmatch(address)
    if found is None:
        return None
    host = (found["host"] or found["ssh_host"]).lower()
    path = next((path for word, path in _COMMIT_PATHS.items() if word in host), None)
    return None if path is None else f"https://{host}/{found['path']}/{path}/{COMMIT}"


def _ask(folder: Path, *arguments: str) -> str | None:
    """Return git's answer, or None without one. A history also works without git."""
    try:
        answer = ask_git(folder, *arguments)
    except UsageError:
        return None
    text = answer.output.decode("utf-8", "replace").strip("\n")
    return text if answer.code == 0 and text else None


# -- the page of a run on the service that ran it


# The variables in which GitLab, Jenkins, CircleCI and Buildkite give the address of the job.
_ADDRESSES = ("CI_JOB_URL", "BUILD_URL", "CIRCLE_BUILD_URL", "BUILDKITE_BUILD_URL")
# GitHub Actions gives it in three parts.
_GITHUB_PARTS = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
# GitHub names a pull request in its ref, GitLab a merge request in two variables.
_PULL_REQUEST = re.compile(r"refs/pull/([0-9]+)/merge")
_GITLAB_PARTS = ("PROJECT_URL", "IID")
_SHORT = 10
_MOST_CHARACTERS = 2000
# Stored lines may have any text here. Only a web address becomes a link.
_WEB_ADDRESS = re.compile(rf"https?://[!-~]{{1,{_MOST_CHARACTERS}}}", re.IGNORECASE)


def find_run_url(environment: Mapping[str, str]) -> str | None:
    """Return the address of the page of this run, or None if no service gives one."""
    server, repository, run = (environment.get(name) for name in _GITHUB_PARTS)
    github = [f"{server}/{repository}/actions/runs/{run}"] if server and repository and run else []
    addresses = [*github, *(environment.get(name, "") for name in _ADDRESSES)]
    return next(filter(is_web_address, addresses), None)


def find_links(folder: Path, environment: Mapping[str, str]) -> tuple[Link, ...]:
    """Return links to the commit of a folder, its pull request, and the page of this run."""
    commit, address = find_revision(folder).commit, find_commit_url(folder)
    found = [
        (f"commit {(commit or '')[:_SHORT]}", commit and address and address.format(commit=commit)),
        _find_request(environment),
        ("this run in CI", find_run_url(environment)),
    ]
    return tuple(Link(text, to) for text, to in found if to and is_web_address(to))


def _find_request(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the name and address of the pull request or merge request that CI runs for."""
    server, repository, ref = (
        environment.get(name, "") for name in (*_GITHUB_PARTS[:2], "GITHUB_REF")
    )
    number = _PULL_REQUEST.fullmatch(ref)
    if server and repository and number is not None:
        return f"pull request {number[1]}", f"{server}/{repository}/pull/{number[1]}"
    project, merge = (environment.get(f"CI_MERGE_REQUEST_{name}", "") for name in _GITLAB_PARTS)
    address = f"{project}/-/merge_requests/{merge}" if project and merge else ""
    return f"merge request {merge}", address


def is_web_address(text: str) -> bool:
    """Whether the text is an address to which a browser may be sent."""
    return _WEB_ADDRESS.fullmatch(text) is not None
