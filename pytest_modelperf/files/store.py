"""Files that processes share, and that stay whole even if their writer is killed.

A file is written next to its place, flushed to the disk, and renamed, so readers need no lock. The
writers of a folder take turns by a lock, and an unfinished file is locked too. The system frees a
lock when its holder ends for any reason. So an unfinished file without a lock was left by a killed
process, and the next writer in the folder removes it. All caches of this user are in one folder.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from pytest_modelperf.errors import ModelPerfError, OutputError, UsageError
from pytest_modelperf.systems.files import FILES
from pytest_modelperf.text.escaping import printable

# The environment variable by which a user chooses another folder.
FOLDER_VARIABLE = "MODELPERF_CACHE_DIR"
_XDG_VARIABLE = "XDG_CACHE_HOME"
_WINDOWS_VARIABLE = "LOCALAPPDATA"


def user_cache_folder(
    environment: Mapping[str, str] = os.environ, system: str = sys.platform
) -> Path:
    """Return the folder of all caches, or raise UsageError for a user without a home folder."""
    own = environment.get(FOLDER_VARIABLE)
    if own:
        return Path(own)
    named = environment.get(_XDG_VARIABLE, "")
    # The XDG specification says to ignore a relative path.
    if named and Path(named).is_absolute():
        folder = Path(named)
    elif system == "darwin":
        folder = _home() / "Library" / "Caches"
    elif system == "win32" and environment.get(_WINDOWS_VARIABLE):
        folder = Path(environment[_WINDOWS_VARIABLE])
    else:
        folder = _home() / ".cache"
    return folder / "modelperf"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise UsageError(
            "this user has no home folder to keep caches in: set HOME, or "
            f"{FOLDER_VARIABLE}, to a folder."
        ) from error


T = TypeVar("T")

LOCK_NAME = ".lock"
LOCK_SECONDS = 60.0
_POLL_SECONDS = 0.01
_UNFINISHED = re.compile(r"\.modelperf-[0-9a-f]{8}\.tmp", re.ASCII)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


# -- locks


def take_lock(file: Path, flags: int = 0) -> int | None:
    """Return the descriptor that holds the lock, or None if the file cannot be locked."""
    try:
        descriptor = FILES.open(file, os.O_RDWR | flags, 0o600)
    except OSError:
        return None
    with suppress(OSError):
        if FILES.take_lock(descriptor):
            return descriptor
    os.close(descriptor)
    return None


@contextmanager
def locked(
    folder: Path,
    seconds: float = LOCK_SECONDS,
    error: ModelPerfError | None = None,
    on_wait: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Hold the lock of a folder, which is made if needed.

    Raises `error` if another process keeps the lock. The lock file is removed at the end, so that
    it is never committed. A process that waited for it then finds that the name is gone or belongs
    to another file, and starts over.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK_NAME
    give_up = time.monotonic() + seconds
    lock = _take_turn(path)
    if lock is None:
        on_wait()
    while lock is None:
        if time.monotonic() > give_up:
            raise error or OutputError(
                f"another process has been writing {printable(str(folder))} for more than "
                f"{seconds:.0f} s. If a test run hangs, end it."
            )
        time.sleep(_POLL_SECONDS)
        lock = _take_turn(path)
    try:
        yield
    finally:
        _remove_locked(path, lock)


def _take_turn(path: Path) -> int | None:
    descriptor = FILES.open(path, os.O_RDWR | os.O_CREAT)
    try:
        # On a system without locks, writers cannot take turns. A file system that refuses one is an
        # error.
        if (not FILES.has_locks or FILES.take_lock(descriptor)) and _is_at(descriptor, path):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove_locked(path: Path, lock: int) -> None:
    if not FILES.moves_open_files:
        # Such a system cannot remove an open file.
        os.close(lock)
    # A file of another user may not be removable.
    with suppress(OSError):
        path.unlink()
    if FILES.moves_open_files:
        os.close(lock)


# -- writing


class Unfinished(Struct, frozen=True):
    """A file that is being written, and its path."""

    file: BinaryIO
    path: Path

    def flush(self) -> None:
        """Write all content. If the system allows it, keep the lock until the file is moved."""
        self.file.flush()
        if not FILES.moves_open_files:
            self.file.close()
            return
        # A network file system reports errors only when a descriptor is closed.
        os.close(os.dup(self.file.fileno()))


def write_file(place: Path, content: bytes) -> None:
    """Write a file to the disk in one step, or raise OSError and leave no unfinished file."""
    with unfinished_next_to(place) as unfinished:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(unfinished.file.fileno(), rest) :]
        os.fsync(unfinished.file.fileno())
        unfinished.flush()
        unfinished.path.replace(place)
    FILES.sync_folder(place.parent)


def name_next_to(place: Path) -> Path:
    # Without the name of the file, because the longer name could be refused.
    return place.with_name(f".modelperf-{os.urandom(4).hex()}.tmp")


@contextmanager
def unfinished_next_to(place: Path) -> Iterator[Unfinished]:
    """Yield a new file that the body moves to its place. If it does not, the file is removed."""
    remove_abandoned(place.parent)
    unfinished = _new_file(place)
    try:
        with unfinished.file:
            yield unfinished
    finally:
        with suppress(OSError):
            unfinished.path.unlink()


def _new_file(place: Path) -> Unfinished:
    while True:
        path = name_next_to(place)
        file = os.fdopen(FILES.open(path, _NEW_FILE), "wb")
        is_locked = True
        # Some file systems have no locks; on these, unfinished files of other processes are never
        # removed.
        with suppress(OSError):
            is_locked = FILES.take_lock(file.fileno())
        if is_locked and os.fstat(file.fileno()).st_nlink:
            return Unfinished(file, path)
        # Another writer removed the file as abandoned before it was locked.
        file.close()


def remove_abandoned(folder: Path) -> None:
    """Remove the unfinished files in a folder whose writers have ended."""
    for path in unfinished_in(folder):
        lock = take_lock(path)
        if lock is not None:
            _remove_locked(path, lock)


def unfinished_in(folder: Path) -> list[Path]:
    """Return the unfinished files in a folder, both of active writers and of killed ones."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if _UNFINISHED.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        ]
    return []


def find_closed(folder: Path) -> Path | None:
    """Return the part of a path that prevents making a file in this folder, or None."""
    for path in (folder, *folder.parents):
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            if not path.is_symlink():
                continue
            return path
        except OSError:
            return path
        return None if is_folder and os.access(path, os.W_OK | os.X_OK) else path
    return folder


# -- notes on what is cached


def write_note(path: Path, note: Struct) -> None:
    write_file(path, msgspec.json.format(msgspec.json.encode(note)))


def read_note(path: Path, kind: type[T]) -> T | None:
    """Return the note at a path, or None without a readable note of this kind."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, ValueError, RecursionError):
        return None
