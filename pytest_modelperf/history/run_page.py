"""The page of a run on the service that ran it, whose artifacts have its report."""

from __future__ import annotations

import re
from collections.abc import Mapping

# The addresses of the running job that GitLab, Jenkins, CircleCI and Buildkite tell.
_ADDRESSES = ("CI_JOB_URL", "BUILD_URL", "CIRCLE_BUILD_URL", "BUILDKITE_BUILD_URL")
# GitHub Actions says it in three parts.
_GITHUB_PARTS = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
_MOST_CHARACTERS = 2000
# Stored lines may have any text, of which only a web address becomes a link.
_WEB_ADDRESS = re.compile(rf"https?://[!-~]{{1,{_MOST_CHARACTERS}}}", re.IGNORECASE)


def find_run_url(environment: Mapping[str, str]) -> str | None:
    """The address of the page of this run; None where no service tells one."""
    server, repository, run = (environment.get(name) for name in _GITHUB_PARTS)
    github = [f"{server}/{repository}/actions/runs/{run}"] if server and repository and run else []
    told = [*github, *(environment.get(name, "") for name in _ADDRESSES)]
    return next(filter(is_web_address, told), None)


def is_web_address(text: str) -> bool:
    """Whether a browser may be sent there."""
    return _WEB_ADDRESS.fullmatch(text) is not None
