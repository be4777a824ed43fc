"""The lock that allows one measurement at a time on a machine: two would disturb each other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.systems.files import FILES
from pytest_modelperf.text.escaping import printable

# One path for all users and sessions, independent of their TMPDIR.
_SHARED_FOLDER = Path("/tmp")  # noqa: S108  # the lock holds no content, and no link is followed
_EVERYONE = 0o666
# A sweep holds the lock until it ends; a process that holds it for longer than this hangs.
LONGEST_WAIT_S = 3600.0
# The variable that names another file, for containers that share a machine but not its /tmp.
LOCK_VARIABLE = "MODELPERF_LOCK"


def lock_path(folder: Path = _SHARED_FOLDER) -> Path:
    """Return the path of the machine's lock, or of the user's own lock.

    The user's own lock is used if another user's lock cannot be opened. Raise MeasureError if no
    file can be made anywhere.
    """
    named = os.environ.get(LOCK_VARIABLE)
    if named:
        return Path(named)
    if not os.access(folder, os.W_OK):
        folder = _temporary_folder()
    path = folder / "modelperf.lock"
    if path.exists() and not os.access(path, os.W_OK):
        return folder / f"modelperf-{FILES.user()}.lock"
    return path


def _temporary_folder() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise MeasureError(
            "no folder for temporary files is writable. Make room, or set TMPDIR to a "
            "writable folder."
        ) from error


@contextmanager
def measuring_alone(
    on_wait: Callable[[str], None] = lambda holder: None,  # noqa: ARG005  # by default, the wait is silent
    path: Path | None = None,
    longest_s: float = LONGEST_WAIT_S,
) -> Iterator[None]:
    """Hold the machine's lock, or raise MeasureError. `on_wait` gets its holder and the limit."""
    path = path or lock_path()
    lock = FileLock(path, mode=_EVERYONE)
    if not _is_acquired(lock, path, 0):
        longest = f"{longest_s / 60:.0f} min" if longest_s >= 60.0 else f"{longest_s:.0f} s"
        on_wait(f"{describe_holder(path)} to end measuring, {longest} at most")
        if not _is_acquired(lock, path, longest_s):
            raise MeasureError(
                f"another measurement on this machine did not end within {longest}: "
                f"{describe_holder(path)} holds {printable(str(path))}. End it if it hangs, or "
                f"name another lock with {LOCK_VARIABLE}."
            )
    try:
        yield
    finally:
        lock.release()


def _is_acquired(lock: BaseFileLock, path: Path, seconds: float) -> bool:
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return False
    except OSError as error:
        reason = "it is a link" if path.is_symlink() else error.strerror or str(error)
        raise MeasureError(
            f"the lock of this machine cannot be taken at {printable(str(path))}: {reason}. Set "
            f"{LOCK_VARIABLE} to the path of an existing file, or of one that can be created."
        ) from error
    return True


def describe_holder(path: Path) -> str:
    """Return the process that holds a lock, such as `process 4711`, if the system reports it."""
    holder = FILES.lock_holder(path)
    return "another process" if holder is None else f"process {holder}"
