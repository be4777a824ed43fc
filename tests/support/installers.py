"""An installer without a network: it knows which packages there are, and counts what it does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from pytest_modelperf.environments.installing import python_in
from pytest_modelperf.errors import EnvironmentMakingError

INDEX: Mapping[str, tuple[str, ...]] = {
    "engine": ("1.0", "1.1", "2.0"),
    "numpy": ("1.26.4", "2.1.0"),
    "onnxruntime": ("1.17.3", "1.18.0", "1.18.1", "1.19.0", "1.22.0"),
}


class FakeInstaller:
    """Installs the newest version that all requirements allow, as metadata without modules."""

    name = "fake"

    def __init__(
        self, index: Mapping[str, tuple[str, ...]] = INDEX, *, variables: str = ""
    ) -> None:
        self.index = index
        self.variables = variables
        self.installed: list[tuple[str, ...]] = []
        # Called in the folder after the first package.
        self.interrupt: Callable[[Path], None] = lambda folder: None  # noqa: ARG005

    def create(self, folder: Path, show: Callable[[str], None]) -> None:
        write_environment(folder, variables=self.variables)
        show("created")

    def install(
        self, folder: Path, requirements: Sequence[str], show: Callable[[str], None]
    ) -> None:
        self.installed.append(tuple(requirements))
        wanted = [Requirement(text) for text in requirements]
        for name in dict.fromkeys(each.name for each in wanted):
            allowed = [
                version
                for version in self.index.get(name, ())
                if all(r.specifier.contains(version) for r in wanted if r.name == name)
            ]
            if not allowed:
                raise EnvironmentMakingError(f"fake failed:\n  there is no {name} like that")
            write_package(folder, name, max(allowed, key=Version))
            self.interrupt(folder)
        show("installed")


def write_environment(folder: Path, *, variables: str = "") -> Path:
    """A Python in a folder: this one, started with variables such as `A=1`."""
    python = python_in(folder)
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\n{variables} exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python


def write_package(folder: Path, name: str, version: str) -> None:
    """The metadata of an installed package, in the place of any other version."""
    site = folder / "lib" / "python3" / "site-packages"
    place = site / f"{name}.dist-info"
    place.mkdir(parents=True, exist_ok=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
