"""The requirements that an environment is made of: read, normalized, and constrained.

Only `packaging` is asked what a requirement means, because pip and uv ask it, too.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, canonicalize_version
from packaging.version import InvalidVersion, Version

from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable

_EXACT = "=="
_NUMPY = "numpy"
# The releases before were compiled for numpy 1 and cannot be imported with numpy 2, but their
# metadata allows it.
_FIRST_FOR_NUMPY_2 = {"onnxruntime": Version("1.19")}


class WantedPackages(Struct, frozen=True):
    """The contents of an environment: normalized requirements, one for each package.

    `versions` has the version of each package, or None where one of them is a range. `key` is the
    same for all spellings of the same requirements: 1.22 and 1.22.0 are one version.
    """

    requirements: tuple[str, ...]
    versions: Mapping[str, str] | None
    key: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(Requirement(text).name for text in self.requirements)

    def exactly(self, packages: Mapping[str, str]) -> WantedPackages:
        """The same packages in just these versions."""
        read = map(Requirement, self.requirements)
        return read_requirements([f"{_with_extras(r)}=={packages[r.name]}" for r in read])


def read_requirements(texts: Sequence[str]) -> WantedPackages:
    """The requirements in a normal form; UsageError if they cannot be read."""
    found: dict[str, Requirement] = {}
    for text in texts:
        requirement = _read(text)
        if requirement.name in found:
            raise UsageError(
                f"{requirement.name} is required twice: give one requirement, such as "
                f"'{requirement.name}>=1,<2'."
            )
        found[requirement.name] = requirement
    if not found:
        raise UsageError("there is no requirement: give one, such as onnxruntime==1.22.0.")
    versions = {name: _exact_version(requirement) for name, requirement in found.items()}
    known = {name: version for name, version in versions.items() if version is not None}
    return WantedPackages(
        tuple(str(found[name]) for name in sorted(found)),
        known if len(known) == len(found) else None,
        tuple(_key(found[name], versions[name]) for name in sorted(found)),
    )


def constraints_of(wanted: WantedPackages, packages: Mapping[str, str]) -> tuple[str, ...]:
    """The requirements of `packages` beyond their own metadata."""
    if _NUMPY in wanted.names:
        # The user knows better.
        return ()
    return tuple(
        f"{_NUMPY}<2"
        for name, first in _FIRST_FOR_NUMPY_2.items()
        for found, version in packages.items()
        if (found == name or found.startswith(f"{name}-")) and _is_before(version, first)
    )[:1]


def is_met(constraint: str, packages: Mapping[str, str]) -> bool:
    """Whether the packages satisfy a constraint."""
    requirement = Requirement(constraint)
    found = packages.get(requirement.name)
    return found is None or requirement.specifier.contains(found, prereleases=True)


def own_requirements(distribution: str) -> tuple[str, ...]:
    """The requirements of an installed distribution for this Python, without those of extras."""
    read = map(Requirement, importlib.metadata.requires(distribution) or ())
    needed = [each for each in read if each.marker is None or each.marker.evaluate({"extra": ""})]
    for each in needed:
        each.marker = None
    return tuple(sorted(map(str, needed)))


def _read(text: str) -> Requirement:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = printable(str(error).splitlines()[0])
        raise UsageError(
            f"the requirement {printable(text)!r} cannot be read: {reason}. Give a package and "
            "its version as pip takes them, such as onnxruntime==1.22.0."
        ) from None
    if requirement.url is not None:
        raise UsageError(
            f"the requirement {printable(text)} names an address, whose content may change: "
            "install it into an environment of your own, and name the Python of that."
        )
    if requirement.marker is not None:
        raise UsageError(
            f"the requirement {printable(text)} has a condition: leave out the semicolon and what "
            "follows."
        )
    requirement.name = canonicalize_name(requirement.name)
    return requirement


def _with_extras(requirement: Requirement) -> str:
    extras = ",".join(sorted(requirement.extras))
    return f"{requirement.name}[{extras}]" if extras else requirement.name


def _key(requirement: Requirement, version: str | None) -> str:
    asked = str(requirement.specifier) if version is None else f"{_EXACT}{version}"
    return _with_extras(requirement) + asked


def _exact_version(requirement: Requirement) -> str | None:
    """The version that a requirement names; None for a range."""
    specifiers = list(requirement.specifier)
    if len(specifiers) != 1 or specifiers[0].operator != _EXACT:
        return None
    version = specifiers[0].version
    return None if version.endswith(".*") else str(canonicalize_version(version))


def _is_before(version: str, first: Version) -> bool:
    try:
        return Version(version) < first
    except InvalidVersion:
        return False
