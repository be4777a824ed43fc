"""Prints the section of the changelog for a release, once its tag agrees with the version."""

from __future__ import annotations

import re
import sys

from install_release import ROOT, read_version
from workflow import StepError, run_step

_HEADING = re.compile(r"^## \[([^\]]+)\](.*)$", re.MULTILINE)
_DATED = re.compile(r" - \d{4}-\d\d-\d\d")


def check_tag(tag: str, version: str) -> None:
    """StepError unless the tag is `v` and the version of the package."""
    if tag != f"v{version}":
        raise StepError(
            f"the tag is {tag}, and the version is {version}: set `__version__` in "
            f"pytest_modelperf/text/version.py, or tag the commit v{version}"
        )


def cut_section(changelog: str, version: str) -> str:
    """The text below the heading of that version."""
    headings = list(_HEADING.finditer(changelog))
    for index, heading in enumerate(headings):
        if heading[1] != version:
            continue
        if not _DATED.fullmatch(heading[2]):
            raise StepError(
                f"the heading {heading[0]!r} of CHANGELOG.md has no day: write it as "
                f"`## [{version}] - 2026-01-31`"
            )
        end = headings[index + 1].start() if index + 1 < len(headings) else len(changelog)
        text = changelog[heading.end() : end].strip()
        if not text:
            raise StepError(f"the section of {version} in CHANGELOG.md is empty")
        return f"{text}\n"
    raise StepError(
        f"CHANGELOG.md has no section of {version}: rename [Unreleased] to [{version}], with the "
        "day"
    )


def print_notes() -> int:
    if len(sys.argv) != 2:
        raise StepError("give the tag of the release, as in: release_notes.py v1.2.3")
    version = read_version()
    check_tag(sys.argv[1], version)
    print(cut_section((ROOT / "CHANGELOG.md").read_text("utf-8"), version), end="")
    return 0


if __name__ == "__main__":
    run_step(print_notes)
