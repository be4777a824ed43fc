"""The versions that a bisect tries: commits along first parents, or releases of a package."""

from __future__ import annotations

import bisect
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from packaging.version import Version as Release

from pytest_modelperf.bisect.records import LeftOut, RangeKind, Version, VersionRange
from pytest_modelperf.errors import EnvironmentMakingError, UsageError
from pytest_modelperf.revisions.commits import Commit, RefOption, data_files, find_commit
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shell_word

OPTION = RefOption("--commits", "modelperf compare old.onnx new.onnx", takes_paths=False)
_SHORT = 10
HEAD = "HEAD"
# Git's settings may print a signature check before each commit, or choose another encoding.
_LOG = ("log", "--no-show-signature", "--encoding=UTF-8")


def commits_between(model: str, text: str) -> VersionRange:
    """Return the good commit, and those in `good..bad` that changed the model or its external data.

    A merge counts as one commit with all that it brought.
    """
    path = Path(model)
    folder = path.absolute().parent
    good, bad = (find_commit(ref, folder, OPTION) for ref in read_commits(text))
    _require_range(good, bad)
    files = sorted({*data_files(good, path), *data_files(bad, path)})
    changes = list(_changes(good, bad, files))
    if not changes:
        raise UsageError(
            f"no commit of {printable(text)} changed {printable(model)}, so none of them "
            "changed its time. If the engine changed, give --good and --bad with its versions."
        )
    count = bad.ask("rev-list", "--count", "--first-parent", f"{good.sha}..{bad.sha}")
    total = int(count.output)
    note = f"{len(changes)} of {total} commits changed the model"
    return VersionRange(RangeKind.COMMITS, (_version(good), *changes), notes=(note,))


def all_commits_between(good: Commit, bad: Commit) -> VersionRange:
    _require_range(good, bad)
    return VersionRange(RangeKind.COMMITS, (_version(good), *_changes(good, bad, [])))


def read_commits(text: str) -> tuple[str, str]:
    """Return the refs of a range such as `v1.0..HEAD`."""
    first, separator, last = text.partition("..")
    if not first or not separator or "..." in text:
        raise UsageError(
            f"--commits takes a range such as v1.0..HEAD, not {printable(text)!r}: the fast "
            "commit, two dots, and the slow one."
        )
    return first, last or HEAD


def _require_range(good: Commit, bad: Commit) -> None:
    if good.sha == bad.sha:
        raise UsageError(
            f"the range begins and ends with the commit {good.sha[:_SHORT]}: give a commit that is "
            "fast and a later one that is slow."
        )
    if bad.ask("merge-base", "--is-ancestor", good.sha, bad.sha).code != 0:
        raise UsageError(
            f"{good} does not come before {bad}, so no commit is between them. Give a range "
            f"whose first commit is part of the second: `git merge-base {shell_word(good.text)} "
            f"{shell_word(bad.text)}` names the last common one."
        )


def _changes(good: Commit, bad: Commit, files: list[str]) -> Iterator[Version]:
    listed = bad.ask(
        *_LOG, "-z", "--reverse", "--first-parent", "--topo-order", "--format=%H %s",
        f"{good.sha}..{bad.sha}", "--", *files,
    )  # fmt: skip
    if listed.code != 0:
        raise UsageError(f"git cannot list the commits of {good}..{bad}: {listed.reason}.")
    for entry in listed.output.decode("utf-8", "replace").split("\0"):
        sha, _, title = entry.strip().partition(" ")
        if sha:
            yield Version(sha, sha[:_SHORT], title)


def _version(commit: Commit) -> Version:
    answer = commit.ask(*_LOG, "-1", "--format=%s", commit.sha)
    title = answer.output.decode("utf-8", "replace").strip()
    return Version(commit.sha, commit.sha[:_SHORT], title)


# -- the releases of a package between two versions


_SECONDS = 120.0
_LISTED = re.compile(r"^Available versions:(.*)$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_PRE_RELEASE = "no final release; --pre tries these as well"
# The package of each built-in engine.
PACKAGES = {"onnxruntime": "onnxruntime", "openvino": "openvino"}

# The versions of a package that this Python can install, in any order.
ListVersions: TypeAlias = Callable[[str], Sequence[str]]


def list_versions(package: str) -> tuple[str, ...]:
    """Ask pip for the versions that the package index has as wheels for this Python.

    Pre-releases are among them. pip reads its own settings and variables.
    """
    command = [
        *_find_pip(), "index", "versions", "--pre", "--only-binary=:all:",
        "--disable-pip-version-check", "--no-input", "--no-color", package,
    ]  # fmt: skip
    try:
        done = subprocess.run(  # noqa: S603  # pip, with a list of arguments and no shell
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentMakingError(
            f"pip did not list the versions of {package} within {_SECONDS:g} s. Try it by hand: "
            f"python -m pip index versions {package}."
        ) from None
    listed = _LISTED.search(done.stdout.decode("utf-8", "replace"))
    if done.returncode or listed is None:
        raise EnvironmentMakingError(
            f"pip cannot list the versions of {package} for Python {platform.python_version()}: "
            f"{_reason(done.stderr.decode('utf-8', 'replace'))}. Try it by hand: "
            f"python -m pip index versions {package}."
        )
    return tuple(part.strip() for part in listed[1].split(",") if part.strip())


def releases_between(
    package: str,
    good: str,
    bad: str,
    *,
    takes_pre_releases: bool = False,
    listed: ListVersions = list_versions,
) -> VersionRange:
    """Return the releases from the good one to the bad one.

    The bad one may be the older of both.
    """
    if not _NAME.fullmatch(package):
        raise UsageError(
            f"--package takes the name of a package, such as onnxruntime, not "
            f"{printable(package)!r}."
        )
    first, last = _read("--good", good), _read("--bad", bad)
    if first == last:
        raise UsageError(
            f"--good and --bad are both {first}: give a version that is fast and one that is slow."
        )
    found = sorted({release for text in listed(package) for release in _readable(text)})
    for option, end in (("--good", first), ("--bad", last)):
        if end not in found:
            raise _unknown(option, end, package, found)
    low, high = sorted((first, last))
    inside = [release for release in found if low <= release <= high]
    kept = [
        release
        for release in inside
        if takes_pre_releases or not release.is_prerelease or release in (first, last)
    ]
    names = [str(release) for release in (kept if first < last else reversed(kept))]
    return VersionRange(
        RangeKind.RELEASES,
        tuple(Version(name, f"{canonicalize_name(package)} {name}") for name in names),
        tuple(LeftOut(str(release), _PRE_RELEASE) for release in inside if release not in kept),
    )


def _find_pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-I", "-m", "pip"]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "tool", "run", "--python", sys.executable, "pip"]
    raise EnvironmentMakingError(
        f"the Python {printable(sys.executable)} has no pip, which lists the versions of a "
        "package. Install it: python -m ensurepip."
    )


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return printable((errors or lines or ["it gave no reason"])[0]).rstrip(".")


def _read(option: str, text: str) -> Release:
    try:
        return Release(text)
    except InvalidVersion:
        raise UsageError(
            f"{option} takes a version such as 1.22.0, not {printable(text)!r}."
        ) from None


def _readable(text: str) -> Iterator[Release]:
    """Yield the release if today's installers can order its version."""
    try:
        yield Release(text)
    except InvalidVersion:
        return


def _unknown(option: str, end: Release, package: str, found: Sequence[Release]) -> UsageError:
    finals = [release for release in found if not release.is_prerelease]
    place = bisect.bisect(finals, end)
    near = finals[max(place - 2, 0) : place + 2]
    there = f" The nearest are {', '.join(map(str, near))}." if near else ""
    return UsageError(
        f"{option} names {end}, and the package index has no such {printable(package)} for Python "
        f"{platform.python_version()} on this platform.{there} To list all: python -m pip index "
        f"versions {printable(package)}."
    )
