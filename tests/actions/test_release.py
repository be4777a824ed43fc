"""A release has the version of its tag, the notes of the changelog, and moves the tag `v1`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from github_api import GitHub
from install_release import read_version
from move_tag import move_tag
from release_notes import check_tag, cut_section
from workflow import StepError

from tests.actions.stand_in import COMMIT, REPOSITORY, TOKEN, StandIn, serve
from tests.support.checkout import ROOT

CHANGELOG = """# Changelog

## [Unreleased]

### Added

- Later.

## [1.2.0] - 2026-02-01

### Added

- See [1.1.0].

## [1.1.0] - 2026-01-01

- First.

## [1.0.0]

- No day.

## [0.9.0] - 2025-01-01
"""


def test_the_notes_are_the_section_of_the_version() -> None:
    assert cut_section(CHANGELOG, "1.2.0") == "### Added\n\n- See [1.1.0].\n"
    assert cut_section(CHANGELOG, "1.1.0") == "- First.\n"


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("1.3.0", "has no section of 1.3.0: rename [Unreleased] to [1.3.0], with the day"),
        ("1.0.0", "the heading '## [1.0.0]' of CHANGELOG.md has no day"),
        ("0.9.0", "the section of 0.9.0 in CHANGELOG.md is empty"),
    ],
)
def test_a_section_that_is_not_ready_stops_the_release(version: str, message: str) -> None:
    with pytest.raises(StepError) as raised:
        cut_section(CHANGELOG, version)
    assert message in str(raised.value)


def test_the_changelog_of_today_becomes_notes_when_it_is_released() -> None:
    version = read_version()
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = text.replace("## [Unreleased]", f"## [{version}] - 2026-01-31", 1)
    assert cut_section(released, version).startswith("### Added\n")


def test_the_tag_must_be_that_of_the_version() -> None:
    check_tag("v1.2.0", "1.2.0")
    for tag in ("1.2.0", "v1.2.1", "v1.2.0rc1"):
        with pytest.raises(StepError, match="the tag is"):
            check_tag(tag, "1.2.0")


def test_the_program_refuses_another_tag() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "actions" / "release_notes.py", "v0.0.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.startswith("::error title=modelperf::the tag is v0.0.0, and the version is ")


@pytest.mark.parametrize("before", [None, "f" * 40])
def test_the_tag_of_the_actions_moves(before: str | None) -> None:
    state = StandIn()
    if before is not None:
        state.tags["v1"] = before
    with serve(state):
        move_tag(GitHub(state.url, REPOSITORY, TOKEN), "v1", COMMIT, "v1.2.3")
    assert state.tags == {"v1": COMMIT}


@pytest.mark.parametrize(
    ("releases", "after"),
    [
        (["v1.2.3", "v1.2.2", "v1.1.9"], COMMIT),
        (["v1.10.0", "v1.2.3"], "f" * 40),
        (["v1.2.10"], "f" * 40),
        (["v2.0.0", "v1.2.3", "nightly"], COMMIT),
    ],
)
def test_the_tag_of_the_actions_never_moves_back(releases: list[str], after: str) -> None:
    state = StandIn()
    state.tags["v1"] = "f" * 40
    state.releases = releases
    with serve(state):
        move_tag(GitHub(state.url, REPOSITORY, TOKEN), "v1", COMMIT, "v1.2.3")
    assert state.tags["v1"] == after


def test_no_release_waits_for_another_and_is_dropped() -> None:
    """A workflow keeps only the last of those that wait for one group."""
    assert "github.ref" in workflow("release")["concurrency"]["group"]


def workflow(name: str) -> dict[str, Any]:
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text("utf-8")
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def test_a_release_is_built_once_and_published_after_its_checks() -> None:
    jobs = workflow("release")["jobs"]
    builds = [name for name, job in jobs.items() for s in job["steps"] if "make dist" in str(s)]
    assert builds == ["build"]
    needs = {name: job.get("needs") for name, job in jobs.items()}
    assert needs == {"build": None, "check": "build", "publish": "check", "announce": "publish"}


def test_a_release_is_checked_under_every_python_that_is_supported() -> None:
    versions = workflow("release")["jobs"]["check"]["strategy"]["matrix"]["python"]
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text) == versions
    assert versions == workflow("ci")["jobs"]["types"]["strategy"]["matrix"]["python"]


def test_only_what_writes_may_write() -> None:
    """Each job has the rights that it needs, and no job that runs tests has any."""
    release = workflow("release")
    assert release["permissions"] == {"contents": "read"}
    rights = {name: job.get("permissions") for name, job in release["jobs"].items()}
    assert rights == {
        "build": None,
        "check": None,
        "publish": {"id-token": "write", "attestations": "write"},
        "announce": {"contents": "write"},
    }


@pytest.mark.parametrize(("exists", "asked"), [("false", ["view", "create"]), ("true", ["view"])])
def test_a_release_that_a_first_run_made_is_left_alone(
    tmp_path: Path, exists: str, asked: list[str]
) -> None:
    """Otherwise the job could not be run again after its last step, which moves the tag, failed."""
    (step,) = (
        step["run"]
        for step in workflow("release")["jobs"]["announce"]["steps"]
        if "gh release" in step.get("run", "")
    )
    gh = tmp_path / "gh"
    gh.write_text(f'#!/bin/sh\necho "$2" >>"{tmp_path}/calls"\ntest "$2" != view || {exists}\n')
    gh.chmod(0o755)
    subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step],  # noqa: S607  # as the runner does
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "GITHUB_REF_NAME": "v1.2.3"},
        check=True,
    )
    assert (tmp_path / "calls").read_text().split() == asked


def test_the_tag_of_the_actions_starts_no_release() -> None:
    # YAML reads the key `on` as true.
    triggers = next(each for key, each in workflow("release").items() if str(key) == "True")
    (pattern,) = triggers["push"]["tags"]
    assert pattern == "v[0-9]+.[0-9]+.[0-9]+"
