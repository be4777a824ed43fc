"""Environments, each made once and kept in a folder of its own.

Their names are digests of the interpreter, the platform and the requirements. An environment
is never incomplete: it is made under another name, and then renamed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import platform
import secrets
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from pytest_modelperf.environments.installing import (
    Installer,
    Show,
    WantedPackages,
    constraints_of,
    find_installer,
    is_met,
    packages_in,
    python_in,
    read_requirements,
)
from pytest_modelperf.environments.records import (
    STORED_ENVIRONMENT,
    Environment,
    Kept,
    KeptEnvironment,
    Unreadable,
)
from pytest_modelperf.errors import BaselineError, EnvironmentMakingError, OutputError
from pytest_modelperf.files.documents import DocumentFile, FileAdvice
from pytest_modelperf.files.store import FOLDER_VARIABLE, locked, user_cache_folder, write_file
from pytest_modelperf.report.document import SCHEMA
from pytest_modelperf.systems.files import FILES
from pytest_modelperf.text.escaping import printable

NOTE = "environment.json"
UNFINISHED = ".making-"
# Another process may be installing several environments, one after the other.
_LONGEST_WAIT_S = 1800.0
_MOST_BYTES = 1 << 20
_DIGEST_LENGTH = 24
_ADVICE = FileAdvice(
    broken="Remove it with `modelperf env --prune all`.",
    conflict="Remove it with `modelperf env --prune all`.",
)

_ADVICE_ON_VERSIONS = (
    "Give a version that has a wheel for this Python in the package index, or name the Python of "
    "an environment of your own."
)
# The package that every worker imports, with any engine.
_FOR_WORKERS = "numpy"


def environments_folder() -> Path:
    """Return the folder of environments among the caches of this user."""
    # Installers and workers run in other folders, so the path must be absolute.
    return (user_cache_folder() / "environments").absolute()


def folder_of(wanted: WantedPackages) -> str:
    """Return the name of the environment with these exact requirements for this interpreter."""
    named = [
        sys.implementation.cache_tag, platform.python_version(), sys.base_prefix,
        sysconfig.get_platform(), *wanted.key,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:_DIGEST_LENGTH]


def make_environment(
    requirements: Sequence[str],
    *,
    on_progress: Show = lambda step: None,  # noqa: ARG005  # shows nothing
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
        raise EnvironmentMakingError(
            f"no environment can be made in {printable(str(folder))}: {error.strerror or error}. "
            f"Make room there, or set {FOLDER_VARIABLE} to another folder."
        ) from error


def find_environment(folder: Path, wanted: WantedPackages) -> Environment | None:
    """Return the kept environment for these requirements or ranges, or None without one."""
    kept = _find_kept(folder, wanted)
    if kept is None:
        return None
    with suppress(OSError):
        # Its modification time is the time of the last use.
        os.utime(kept.environment.folder / NOTE)
    return kept.environment


def keep_environment(
    folder: Path,
    unfinished: Path,
    requested: WantedPackages,
    packages: Mapping[str, str],
    installer: str,
) -> Environment:
    """Move a new environment to its place, while the caller holds the lock."""
    exact = requested.exactly(packages)
    requests = () if requested.versions is not None else (requested.key,)
    place = folder / folder_of(exact)
    # An environment with the same versions may have been made for other ranges.
    present = _read_kept(place) if _has_python(place) else None
    if isinstance(present, KeptEnvironment):
        _write_note(place, replace(present, requests=(*present.requests, *requests)))
        shutil.rmtree(unfinished, ignore_errors=True)
        return present.environment
    now = dt.datetime.now(dt.timezone.utc)
    made = KeptEnvironment(
        environment=Environment(python_in(place), packages, place),
        requirements=exact.requirements,
        requests=requests,
        python_version=platform.python_version(),
        installer=installer,
        made=now,
        used=now,
    )
    _write_note(unfinished, made)
    if place.exists():
        # Its note cannot be read, or its Python was removed.
        shutil.rmtree(place)
    unfinished.rename(place)
    FILES.sync_folder(folder)
    return made.environment


def list_environments(folder: Path) -> Kept:
    """Return all kept environments, the most recently used first."""
    found: list[KeptEnvironment] = []
    unreadable: list[Unreadable] = []
    for place in _folders_in(folder):
        kept = _read_kept(place)
        if isinstance(kept, Unreadable):
            unreadable.append(kept)
        else:
            found.append(kept)
    found.sort(key=lambda kept: kept.used, reverse=True)
    return Kept(folder, tuple(found), tuple(unreadable))


def with_sizes(kept: Kept) -> Kept:
    measured = (
        replace(each, nbytes=_folder_bytes(each.environment.folder)) for each in kept.environments
    )
    return replace(kept, environments=tuple(measured))


def prune_environments(folder: Path, unused_since: dt.datetime | None) -> Kept:
    """Remove environments that were not used since then, or all, and return them.

    Unreadable folders and the leftovers of killed installations are always removed.
    """
    if not folder.is_dir():
        return Kept(folder)
    try:
        with locked_environments(folder):
            return _prune(folder, unused_since)
    except OSError as error:
        place = printable(str(error.filename or folder))
        raise OutputError(
            f"environments in {printable(str(folder))} cannot be removed: {place}: "
            f"{error.strerror or error}. Make the folder writable, or remove it by hand."
        ) from error


def _prune(folder: Path, unused_since: dt.datetime | None) -> Kept:
    remove_unfinished(folder)
    kept = with_sizes(list_environments(folder))
    old = [each for each in kept.environments if unused_since is None or each.used < unused_since]
    places = [each.environment.folder for each in old] + [u.folder for u in kept.unreadable]
    for place in places:
        # It is renamed first, so that other processes never find half of it.
        doomed = folder / f"{UNFINISHED}{secrets.token_hex(4)}"
        place.rename(doomed)
        shutil.rmtree(doomed)
    return Kept(folder, tuple(old), kept.unreadable)


def remove_unfinished(folder: Path) -> None:
    """Remove the leftovers of killed installations, while the caller holds the lock."""
    for place in folder.glob(f"{UNFINISHED}*"):
        # A program that outlived its installation may still be writing there.
        shutil.rmtree(place, ignore_errors=True)


def locked_environments(
    folder: Path,
    on_wait: Show = lambda holder: None,  # noqa: ARG005
) -> AbstractContextManager[None]:
    """Hold the lock of the folder, or raise OSError if it cannot be written."""
    hangs = EnvironmentMakingError(
        f"another process has been making environments in {printable(str(folder))} for more than "
        f"{_LONGEST_WAIT_S / 60:.0f} min: end it if it hangs."
    )
    step = "waiting for another process that makes an environment"
    return locked(folder, _LONGEST_WAIT_S, hangs, partial(on_wait, step))


def _make(wanted: WantedPackages, folder: Path, installer: Installer, show: Show) -> Environment:
    """Make a new environment, while the caller holds the lock."""
    remove_unfinished(folder)
    unfinished = folder / f"{UNFINISHED}{secrets.token_hex(4)}"
    try:
        unfinished.mkdir()
        return _install(wanted, folder, unfinished, installer, show)
    except EnvironmentMakingError as error:
        named = " and ".join(wanted.requirements)
        raise EnvironmentMakingError(
            f"no environment with {named} for Python {platform.python_version()} can be made: "
            f"{error.message}\n{_ADVICE_ON_VERSIONS}"
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _install(
    wanted: WantedPackages, folder: Path, unfinished: Path, installer: Installer, show: Show
) -> Environment:
    named = " and ".join(wanted.requirements)
    show(f"making an environment with {named} by {installer.name}")
    installer.create(unfinished, show)
    asked = [*wanted.requirements, *([] if _FOR_WORKERS in wanted.names else [_FOR_WORKERS])]
    known = constraints_of(wanted, wanted.versions or {})
    installer.install(unfinished, [*asked, *known], show)
    packages = packages_in(unfinished)
    # The versions that a range resolves to are known only now.
    missed = [each for each in constraints_of(wanted, packages) if not is_met(each, packages)]
    if missed:
        installer.install(unfinished, [*wanted.exactly(packages).requirements, *missed], show)
        packages = packages_in(unfinished)
    if not python_in(unfinished).exists() or not all(name in packages for name in wanted.names):
        raise EnvironmentMakingError(f"{installer.name} reported success but installed nothing.")
    return keep_environment(folder, unfinished, wanted, packages, installer.name)


def _find_kept(folder: Path, wanted: WantedPackages) -> KeptEnvironment | None:
    if wanted.versions is not None:
        kept = _read_kept(folder / folder_of(wanted))
        candidates = [kept] if isinstance(kept, KeptEnvironment) else []
    else:
        candidates = [
            kept
            for kept in list_environments(folder).environments
            if wanted.key in kept.requests and _is_of_this_python(kept)
        ]
    return next((kept for kept in candidates if _has_python(kept.environment.folder)), None)


def _folders_in(folder: Path) -> list[Path]:
    try:
        places = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise EnvironmentMakingError(
            f"{printable(str(folder))} cannot be read: {error.strerror or error}. Make the folder "
            f"readable, or set {FOLDER_VARIABLE} to another folder."
        ) from error
    return [place for place in places if not place.name.startswith(".") and place.is_dir()]


def _folder_bytes(folder: Path) -> int:
    """Add up the files in a folder, including those that uv shares with its cache."""
    files = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return sum(map(_file_bytes, files))


def _file_bytes(path: Path) -> int:
    """Return the size of a file, or 0 if it has gone, as Python's temporary files soon do."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def _is_of_this_python(kept: KeptEnvironment) -> bool:
    return folder_of(read_requirements(kept.requirements)) == kept.environment.folder.name


def _has_python(place: Path) -> bool:
    """Whether its interpreter, a link to one of the system, still exists."""
    return python_in(place).exists()


def _read_kept(place: Path) -> KeptEnvironment | Unreadable:
    file = DocumentFile(place / NOTE, _ADVICE)
    try:
        data = file.content(_MOST_BYTES)
        if data is None:
            return Unreadable(place, f"it has no {NOTE}")
        stored = file.read(data, STORED_ENVIRONMENT.json_type, SCHEMA)
        used = dt.datetime.fromtimestamp(file.path.stat().st_mtime, dt.timezone.utc)
    except (BaselineError, OSError) as error:
        return Unreadable(place, str(error))
    environment = Environment(python_in(place), stored.packages, place)
    return STORED_ENVIRONMENT.read(stored, environment=environment, used=used)


def _write_note(place: Path, kept: KeptEnvironment) -> None:
    write_file(place / NOTE, STORED_ENVIRONMENT.dump(kept).encode())
