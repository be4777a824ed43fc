"""Make an environment with given requirements once, and find it in the cache afterwards."""

from __future__ import annotations

import platform
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_modelperf.environments.installing import (
    Installer,
    WantedPackages,
    constraints_of,
    find_installer,
    is_met,
    packages_in,
    python_in,
    read_requirements,
)
from pytest_modelperf.environments.records import Environment
from pytest_modelperf.environments.store import (
    UNFINISHED,
    environments_folder,
    find_environment,
    keep_environment,
    locked_environments,
    remove_unfinished,
    unwritable,
)
from pytest_modelperf.errors import EnvironmentMakingError

_ADVICE = (
    "Give a version that has a wheel for this Python in the package index, or name the Python of "
    "an environment of your own."
)
# The package that every worker imports, with any engine.
_FOR_WORKERS = "numpy"


def make_environment(
    requirements: Sequence[str],
    *,
    on_progress: Callable[[str], None] = lambda step: None,  # noqa: ARG005  # shows nothing
    installer: Installer | None = None,
    folder: Path | None = None,
) -> Environment:
    """Return the environment with these requirements and numpy, from the cache if it exists.

    Raises UsageError for requirements that cannot be read, and EnvironmentMakingError with the
    message of the installer for those that cannot be installed.
    """
    wanted = read_requirements(requirements)
    folder = folder or environments_folder()
    found = find_environment(folder, wanted)
    if found is not None:
        return found
    try:
        with locked_environments(folder, on_progress):
            # Another process may have made it in the meantime.
            found = find_environment(folder, wanted)
            return found or _make(wanted, folder, installer or find_installer(), on_progress)
    except OSError as error:
        raise unwritable(folder, error) from error


def _make(
    wanted: WantedPackages, folder: Path, installer: Installer, tell: Callable[[str], None]
) -> Environment:
    """Make a new environment, while the caller holds the lock."""
    remove_unfinished(folder)
    unfinished = folder / f"{UNFINISHED}{secrets.token_hex(4)}"
    try:
        unfinished.mkdir()
        return _install(wanted, folder, unfinished, installer, tell)
    except EnvironmentMakingError as error:
        named = " and ".join(wanted.requirements)
        raise EnvironmentMakingError(
            f"no environment with {named} for Python {platform.python_version()} can be made: "
            f"{error.message}\n{_ADVICE}"
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _install(
    wanted: WantedPackages,
    folder: Path,
    unfinished: Path,
    installer: Installer,
    tell: Callable[[str], None],
) -> Environment:
    named = " and ".join(wanted.requirements)
    tell(f"making an environment with {named} by {installer.name}")
    installer.create(unfinished, tell)
    asked = [*wanted.requirements, *([] if _FOR_WORKERS in wanted.names else [_FOR_WORKERS])]
    known = constraints_of(wanted, wanted.versions or {})
    installer.install(unfinished, [*asked, *known], tell)
    packages = packages_in(unfinished)
    # The versions that a range resolves to are known only now.
    missed = [each for each in constraints_of(wanted, packages) if not is_met(each, packages)]
    if missed:
        installer.install(unfinished, [*wanted.exactly(packages).requirements, *missed], tell)
        packages = packages_in(unfinished)
    if not python_in(unfinished).exists() or not all(name in packages for name in wanted.names):
        raise EnvironmentMakingError(f"{installer.name} reported success but installed nothing.")
    return keep_environment(folder, unfinished, wanted, packages, installer.name)
