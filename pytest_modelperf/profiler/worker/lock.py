"""One measurement at a time on a machine, whoever starts it: two would disturb each other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

# The same for all users and sessions, whatever their TMPDIR.
_SHARED_FOLDER = Path("/tmp")  # noqa: S108  # the lock holds no content, and no link is followed
_EVERYONE = 0o666


# Names another file, for containers that share a machine and not its /tmp.
LOCK_VARIABLE = "MODELPERF_LOCK"


def lock_path(folder: Path = _SHARED_FOLDER) -> Path:
    """The machine's lock; where another user's cannot be opened, one of this user's own."""
    named = os.environ.get(LOCK_VARIABLE)
    if named:
        return Path(named)
    if not os.access(folder, os.W_OK):
        folder = Path(tempfile.gettempdir())
    path = folder / "modelperf.lock"
    if path.exists() and not os.access(path, os.W_OK):
        return folder / f"modelperf-{os.getuid()}.lock"
    return path


@contextmanager
def measuring_alone(
    on_wait: Callable[[], None] = lambda: None, path: Path | None = None
) -> Iterator[None]:
    """Hold the machine's lock; `on_wait` is called where another measurement holds it."""
    lock = FileLock(path or lock_path(), mode=_EVERYONE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_wait()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
