"""The folders in which a measurement keeps its files, each removed when its work is done.

A process that is killed cannot remove its folder. So each folder has a file that its process holds
a lock on, which ends with the process. A process that makes a new folder removes the folders
without a lock.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.files.interrupts import interrupt_delayed
from pytest_modelperf.files.store import take_lock
from pytest_modelperf.systems.files import FILES
from pytest_modelperf.text.escaping import printable

_PREFIX = "modelperf-"
# Only a folder with this file is a working folder; the folder's name is not enough.
_HELD = ".held-by-pytest-modelperf"
# The open files of this process.
_DESCRIPTORS = Path("/dev/fd")
# The file exists for a moment before it is locked, so younger folders are left alone.
_YOUNG_S = 60.0


class WorkingFolder:
    """A new folder, temporary or `within` another. Raises MeasureError if it cannot be made."""

    def __init__(self, kind: str, within: Path | None = None) -> None:
        try:
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=within))
        except OSError as error:
            place = "" if error.filename is None else f" {printable(str(error.filename))}"
            raise MeasureError(
                f"the temporary folder{place} cannot be made: {error.strerror or error}. Make "
                "room, or set TMPDIR to another folder."
            ) from error
        self._owner = os.getpid()
        self._lock = take_lock(self.path / _HELD, os.O_CREAT)
        _remove_abandoned(self.path.parent)

    def remove(self) -> None:
        """Remove the folder with its content, unless this is a forked process, which shares it."""
        if os.getpid() != self._owner:
            return
        with interrupt_delayed():
            # Windows does not remove a file that is open.
            if self._lock is not None:
                # A program that becomes a daemon closes all files.
                with contextlib.suppress(OSError):
                    os.close(self._lock)
                self._lock = None
            shutil.rmtree(self.path, ignore_errors=True)


def leave_inherited(folder: Path) -> None:
    """Point all open files that a forked process inherited in a folder to the null device.

    They share their position with the parent's files, and native code writes into them as it ends.
    """
    with contextlib.suppress(OSError):
        files = {_identity(path.lstat()) for path in folder.rglob("*")}
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in [int(path.name) for path in _DESCRIPTORS.iterdir()]:
            with contextlib.suppress(OSError):
                if _identity(os.fstat(number)) in files:
                    os.dup2(nowhere, number, inheritable=False)
        os.close(nowhere)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def working_folder(kind: str, within: Path | None = None) -> Iterator[Path]:
    """Yield a working folder, and remove it when the context ends."""
    folder = WorkingFolder(kind, within)
    try:
        yield folder.path
    finally:
        folder.remove()


@cache
def _remove_abandoned(parent: Path) -> None:
    """Remove this user's folders without a lock, once per process for each parent folder."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and _is_ours(entry):
                folder = Path(entry.path)
                lock = take_lock(folder / _HELD)
                if lock is not None:
                    os.close(lock)
                    shutil.rmtree(folder, ignore_errors=True)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        held = os.lstat(Path(entry.path, _HELD))
        is_old = time.time() - held.st_mtime > _YOUNG_S
        return is_old and FILES.is_own(held) and entry.is_dir(follow_symlinks=False)
    return False
