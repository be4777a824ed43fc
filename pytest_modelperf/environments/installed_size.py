"""The size of a distribution on disk, with all distributions that it requires."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of


class InstalledSize(Struct, frozen=True):
    """The bytes of each distribution by its name, beginning with the one that has the budget."""

    sizes: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.sizes.values())

    def describe(self) -> str:
        """Describe the sizes: `magika and 12 requirements; onnxruntime takes 48.2 MB`."""
        name, *others = self.sizes
        if not others:
            return name
        largest = max(others, key=self.sizes.__getitem__)
        count = count_of(len(others), "requirement")
        return f"{name} and {count}; {largest} takes {self.sizes[largest] / 1e6:,.1f} MB"


def installed_size(text: str) -> InstalledSize:
    """Measure an installed distribution with all that it requires.

    `magika[extra]` includes the requirements of this extra. Requirements that are not installed,
    such as those for other systems, count as 0 bytes. Raises UsageError if the distribution itself
    is missing.
    """
    try:
        asked = Requirement(text)
        importlib.metadata.distribution(asked.name)
    except (InvalidRequirement, importlib.metadata.PackageNotFoundError) as error:
        raise UsageError(
            f"install_bytes: there is no distribution {printable(text)} in this environment. Give "
            "the name that `pip list` shows, or install it."
        ) from error
    sizes: dict[str, int] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    open_ones = [asked]
    while open_ones:
        requirement = open_ones.pop()
        name = canonicalize_name(requirement.name)
        extras = frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            found = importlib.metadata.distribution(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if name not in sizes:
            sizes[name] = _size_of(found)
        open_ones += _required_by(found, extras)
    return InstalledSize(sizes)


def _required_by(
    found: importlib.metadata.Distribution, extras: frozenset[str]
) -> list[Requirement]:
    requirements = [Requirement(text) for text in found.requires or ()]
    return [
        each
        for each in requirements
        if each.marker is None
        or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def _size_of(found: importlib.metadata.Distribution) -> int:
    total = 0
    for file in found.files or ():
        path = str(found.locate_file(file))
        if os.path.isfile(path):  # noqa: PTH113  # pathlib takes three times as long for thousands
            total += os.stat(path).st_size  # noqa: PTH116  # for the same reason
    return total
