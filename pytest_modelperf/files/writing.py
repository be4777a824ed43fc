"""Writing files so that each is the old or the new one, even if the writer is killed.

A file is written beside its place, flushed to the disk, and renamed. Writers take turns by a lock
that the kernel releases when its holder dies.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from pytest_modelperf.errors import BaselineError, OutputError
from pytest_modelperf.files.documents import OF_BASELINE
from pytest_modelperf.systems.files import FILES
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes

LOCK_NAME = ".lock"
LOCK_SECONDS = 60.0
_POLL_SECONDS = 0.01
_READ_BYTES = 1 << 20
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp", re.ASCII)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def read_file(path: Path, most_bytes: int, advice: str = OF_BASELINE.broken) -> bytes | None:
    """The content of a regular file; None if there is none. BaselineError if it is something else.

    Links are refused: a baseline in somebody's pull request must not reveal other files.
    """
    name = printable(str(path))
    try:
        handle = FILES.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BaselineError(
                f"{name} is a link, which could lead anywhere. Put the file itself there."
            ) from None
        raise _unreadable(name, error) from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise BaselineError(f"{name} is not a file. {advice}")
        if found.st_size > most_bytes:
            raise BaselineError(
                f"{name} has {format_bytes(found.st_size)}, and at most "
                f"{format_bytes(most_bytes)} are read. {advice}"
            )
        parts = []
        while part := os.read(handle, _READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    except OSError as error:
        raise _unreadable(name, error) from None
    finally:
        os.close(handle)


def write_file(path: Path, content: bytes) -> None:
    """Writes a file to its place on the disk in one step; a failed attempt leaves nothing."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        handle = FILES.open(temporary, _NEW_FILE)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    FILES.sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Removes unfinished files of a killed writer; the caller holds the lock."""
    for path in list(folder.iterdir()):
        if _TEMPORARY.fullmatch(path.name):
            path.unlink()


def find_closed(folder: Path) -> Path | None:
    """The part of a path that lets no file be made in this folder; None if one can be made."""
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


def has_leftovers(root: Path, folder: Path) -> bool:
    """Whether there is a lock or an unfinished file: of a writer at work, or of a killed one."""
    if (root / LOCK_NAME).exists():
        return True
    try:
        return any(_TEMPORARY.fullmatch(path.name) for path in folder.iterdir())
    except OSError:
        return False


@contextlib.contextmanager
def locked(folder: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Holds the lock of a folder; OutputError if another process does not release it.

    The lock file is removed at the end, so that nobody commits it. A process that waited for it
    then finds that the name is gone or belongs to another file, and starts over.
    """
    path = folder / LOCK_NAME
    give_up = time.monotonic() + seconds
    while True:
        handle = FILES.open(path, os.O_RDWR | os.O_CREAT)
        try:
            if _try_lock(handle) and _is_at(handle, path):
                break
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if time.monotonic() > give_up:
            raise OutputError(
                f"{printable(str(folder))} is being written by another process for more than "
                f"{seconds:.0f} s. See whether a test run hangs, and end it."
            )
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        if not FILES.moves_open_files:
            os.close(handle)
        with contextlib.suppress(OSError):
            path.unlink()
        if FILES.moves_open_files:
            os.close(handle)


def _try_lock(handle: int) -> bool:
    # Without any locks, writers cannot take turns. A file system that refuses one is an error.
    return not FILES.has_locks or FILES.take_lock(handle)


def _is_at(handle: int, path: Path) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _unreadable(name: str, error: OSError) -> BaselineError:
    reason = error.strerror or str(error)
    advice = "Make it a file that you may read."
    if isinstance(error, NotADirectoryError):
        advice = "Give a folder, or a path where nothing is yet."
    return BaselineError(f"{name} cannot be read: {reason}. {advice}")
