"""The version of an engine that a case was recorded with, and the installed one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from pytest_modelperf.baselines.records import StoredCase
from pytest_modelperf.files.opened import installed_version

# Other builds of an engine, which are separate packages with the same version.
_BUILDS: Mapping[str, Sequence[str]] = {
    "onnxruntime": ("onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml")
}


class EngineChange(Struct, frozen=True, order=True):
    """An engine whose installed version differs from the recorded one."""

    engine: str
    recorded: str
    installed: str

    def __str__(self) -> str:
        return f"{self.engine} {self.recorded} → {self.installed}"

    @property
    def recorded_requirement(self) -> str:
        return requirement_of(self.engine, self.recorded)


def find_engine_change(stored: StoredCase) -> EngineChange | None:
    """Return the change of a case's engine since it was recorded, or None if none is known."""
    return change_of_engine(stored.engine, stored.engine_version)


def change_of_engine(engine: str | None, recorded: str | None) -> EngineChange | None:
    """Return the change of an engine since this version was recorded, or None if none is known."""
    if engine is None or recorded is None:
        return None
    installed = list(installed_builds(engine).values())
    if not installed or recorded in installed:
        return None
    return EngineChange(engine, recorded, installed[0])


def installed_builds(engine: str) -> Mapping[str, str]:
    """Return the installed packages with an engine, and the version of each."""
    found = {package: installed_version(package) for package in (engine, *_BUILDS.get(engine, ()))}
    return {package: version for package, version in found.items() if version is not None}


def with_builds(packages: Mapping[str, str]) -> dict[str, str]:
    """Add the versions of engines of which only another build is installed."""
    found = {engine: [*installed_builds(engine).values()] for engine in _BUILDS}
    return {**{engine: versions[0] for engine, versions in found.items() if versions}, **packages}


def requirement_of(engine: str, version: str) -> str:
    """Return the requirement for this version of an engine, as the build that is installed."""
    package = next(iter(installed_builds(engine)), engine)
    return f"{package}=={version}"
