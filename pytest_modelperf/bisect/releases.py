"""The releases of a package between two versions, in the order of a package index."""

from __future__ import annotations

import bisect
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from packaging.version import Version as Release

from pytest_modelperf.bisect.records import LeftOut, RangeKind, Version, VersionRange
from pytest_modelperf.errors import EnvironmentMakingError, UsageError
from pytest_modelperf.text.escaping import printable

_SECONDS = 120.0
_LISTED = re.compile(r"^Available versions:(.*)$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_PRE_RELEASE = "no final release; --pre tries these as well"
# The package of each engine of ours.
PACKAGES = {"onnxruntime": "onnxruntime", "openvino": "openvino"}

# The versions of a package that this Python can install, in any order.
ListVersions: TypeAlias = Callable[[str], Sequence[str]]


def list_versions(package: str) -> tuple[str, ...]:
    """The versions that the package index has as wheels for this Python, as pip finds them.

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
    """The releases from the good one to the bad one; the bad one may be the older of both."""
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
    """Pip of this Python, or the one that uv runs."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-I", "-m", "pip"]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "tool", "run", "--python", sys.executable, "pip"]
    raise EnvironmentMakingError(
        f"the Python {printable(sys.executable)} has no pip, which lists the versions of a "
        "package. Install it: python -m ensurepip."
    )


def _reason(told: str) -> str:
    lines = [line.strip() for line in told.splitlines() if line.strip()]
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
    """The release; nothing for a version that no installer of today can order."""
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
