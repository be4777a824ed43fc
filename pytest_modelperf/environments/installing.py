"""The requirements of an environment, the installers `uv` and `pip`, and the sizes on disk."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeAlias

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, canonicalize_version
from packaging.version import InvalidVersion, Version

from pytest_modelperf.environments.records import InstalledSize
from pytest_modelperf.errors import EnvironmentMakingError, UsageError
from pytest_modelperf.files.opened import installed_version
from pytest_modelperf.systems.trees import TREES
from pytest_modelperf.text.escaping import printable

# The first pip that installs into another Python.
_FIRST_PIP_FOR_OTHERS = Version("22.3")
# Variables that lead pip or Python to packages outside of the new environment.
_MISLEADING = (
    "PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_USER", "PIP_PYTHON", "PYTHONHOME", "PYTHONPATH",
    "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "UV_SYSTEM_PYTHON", "VIRTUAL_ENV",
)  # fmt: skip
# Packages are not built from source, because that runs their code and takes minutes.
_NO_SOURCES = "--only-binary=:all:"
_ERROR = "ERROR: "
_WARNING = "WARNING: "
_NOTHING_FOUND = "(from versions: none)"
_MOST_LINES = 12

Show: TypeAlias = Callable[[str], None]


class Installer(Protocol):
    """A program that makes environments, or raises EnvironmentMakingError with its message."""

    @property
    def name(self) -> str: ...

    def create(self, folder: Path, show: Show) -> None:
        """Make an empty environment."""
        ...

    def install(self, folder: Path, requirements: Sequence[str], show: Show) -> None:
        """Install packages into an environment."""
        ...


class Uv:
    """uv. It does not copy packages that it has downloaded before."""

    name = "uv"

    def __init__(self, program: str) -> None:
        self._program = program

    def create(self, folder: Path, show: Show) -> None:
        _run(
            [self._program, "venv", "--relocatable", "--python", sys.executable, "."], folder, show
        )

    def install(self, folder: Path, requirements: Sequence[str], show: Show) -> None:
        python = str(python_in(folder))
        install = ["pip", "install", _NO_SOURCES, "--python", python]
        _run([self._program, *install, *requirements], folder, show)


class Pip:
    """venv and pip: the pip of this Python, or the one that venv brings."""

    name = "pip"

    def __init__(self) -> None:
        self._is_ours = _has_pip_for_others()

    def create(self, folder: Path, show: Show) -> None:
        without = ["--without-pip"] if self._is_ours else []
        _run([sys.executable, "-I", "-m", "venv", *without, "."], folder, show)

    def install(self, folder: Path, requirements: Sequence[str], show: Show) -> None:
        python = str(python_in(folder))
        chosen = [sys.executable, "-I", "-m", "pip", "--python", python]
        _run(
            [
                *(chosen if self._is_ours else [python, "-I", "-m", "pip"]),
                "--disable-pip-version-check", "--no-input", "install", "--progress-bar=off",
                # A worker compiles the modules that it imports.
                "--no-compile", "--no-warn-script-location",
                _NO_SOURCES, *requirements,
            ],
            folder,
            show,
        )  # fmt: skip


def find_installer() -> Installer:
    """Return uv if it is on PATH, otherwise venv and pip."""
    program = shutil.which("uv")
    return Pip() if program is None else Uv(str(Path(program).absolute()))


def python_in(folder: Path) -> Path:
    on_windows = folder / "Scripts" / "python.exe"
    return on_windows if on_windows.exists() else folder / "bin" / "python"


def packages_in(folder: Path) -> Mapping[str, str]:
    # The second pattern is for Windows.
    found_in = [*folder.glob("lib/python*/site-packages"), *folder.glob("Lib/site-packages")]
    places = [str(place) for place in sorted(found_in)]
    found = {
        str(canonicalize_name(each.metadata["Name"])): each.version
        for each in distributions(path=places)
    }
    return dict(sorted(found.items()))


def failure_of(output: str) -> str:
    """Return the lines of an installer's output that say why it failed."""
    lines = [printable(line.rstrip()) for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    if any(_NOTHING_FOUND in line for line in errors):
        # The index was not reachable or does not have the package; a warning shows which.
        retries = [line for line in lines if line.startswith(f"{_WARNING}Retrying")]
        errors = [line.removeprefix(_WARNING) for line in retries[-1:]] + errors
    reasons = errors or lines[-_MOST_LINES:]
    return "\n".join(f"  {line}" for line in dict.fromkeys(reasons))


def _has_pip_for_others() -> bool:
    if importlib.util.find_spec("pip") is None:
        return False
    found = installed_version("pip")
    return found is not None and Version(found) >= _FIRST_PIP_FOR_OTHERS


def _run(command: Sequence[str], folder: Path, show: Show) -> None:
    """Run a program in a folder.

    Its lines go to `show`, and are the message if it fails. Temporary files are next to that
    folder, under a name that begins with the folder's. So the leftovers of a killed installation
    are removed with it.
    """
    with TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as scratch:
        _run_with(command, folder, scratch, show)


def _run_with(command: Sequence[str], folder: Path, scratch: str, show: Show) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in _MISLEADING}
    environment["TMPDIR"] = scratch
    try:
        process = subprocess.Popen(  # noqa: S603  # its requirements were read before
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            **TREES.popen_options(),
        )
    except OSError as error:
        raise EnvironmentMakingError(
            f"{printable(command[0])} cannot be run: {error.strerror or error}."
        ) from error
    lines = []
    # If it is ended, so are all processes that it started.
    tree = TREES.tree_of(process.pid)
    with process:
        try:
            for line in process.stdout or ():
                lines.append(line)
                if line.strip():
                    show(printable(line.strip()))
        except BaseException:
            tree.kill()
            process.wait()
            raise
    if process.returncode:
        name = "uv" if Path(command[0]).stem == "uv" else "venv" if "venv" in command else "pip"
        text = failure_of("".join(lines))
        said = f":\n{text}" if text else f" without any output: exit code {process.returncode}."
        raise EnvironmentMakingError(f"{name} failed{said}")


# -- the requirements that an environment is made of


_EXACT = "=="
_NUMPY = "numpy"
# Earlier releases were compiled for numpy 1 and cannot be imported with numpy 2, although their
# metadata allows it.
_FIRST_FOR_NUMPY_2 = {"onnxruntime": Version("1.19")}


class WantedPackages(Struct, frozen=True):
    """The contents of an environment: normalized requirements, one for each package.

    `versions` has the version of each package, or is None if a requirement is a range. `key` is
    the same for all spellings of the same requirements: 1.22 and 1.22.0 are one version.
    """

    requirements: tuple[str, ...]
    versions: Mapping[str, str] | None
    key: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(Requirement(text).name for text in self.requirements)

    def exactly(self, packages: Mapping[str, str]) -> WantedPackages:
        read = map(Requirement, self.requirements)
        return read_requirements([f"{_with_extras(r)}=={packages[r.name]}" for r in read])


def read_requirements(texts: Sequence[str]) -> WantedPackages:
    """Read requirements into a normal form, or raise UsageError if one cannot be read."""
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
        raise UsageError("no requirement is given: give one, such as onnxruntime==1.22.0.")
    versions = {name: _exact_version(requirement) for name, requirement in found.items()}
    known = {name: version for name, version in versions.items() if version is not None}
    return WantedPackages(
        tuple(str(found[name]) for name in sorted(found)),
        known if len(known) == len(found) else None,
        tuple(_key(found[name], versions[name]) for name in sorted(found)),
    )


def constraints_of(wanted: WantedPackages, packages: Mapping[str, str]) -> tuple[str, ...]:
    """Return requirements of `packages` that their own metadata lacks."""
    if _NUMPY in wanted.names:
        # The user has chosen a numpy.
        return ()
    return tuple(
        f"{_NUMPY}<2"
        for name, first in _FIRST_FOR_NUMPY_2.items()
        for found, version in packages.items()
        if (found == name or found.startswith(f"{name}-")) and _is_before(version, first)
    )[:1]


def is_met(constraint: str, packages: Mapping[str, str]) -> bool:
    requirement = Requirement(constraint)
    found = packages.get(requirement.name)
    return found is None or requirement.specifier.contains(found, prereleases=True)


def own_requirements(distribution: str) -> tuple[str, ...]:
    """Return an installed distribution's requirements for this Python, without those of extras."""
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
