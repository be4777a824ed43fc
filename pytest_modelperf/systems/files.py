"""Locks and safe opening of files, by the means of each system."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pytest_modelperf.systems.windows_files import WindowsFiles, load_msvcrt


class Files(Protocol):
    """The way a system opens and locks files."""

    @property
    def moves_open_files(self) -> bool:
        """Whether a file can be renamed and removed while it is open."""
        ...

    @property
    def has_locks(self) -> bool:
        """Whether this Python can lock files at all; a file system may still refuse."""
        ...

    def open(self, path: Path, flags: int, mode: int = 0o666) -> int:
        """Open a file without waiting for a pipe, and return its descriptor.

        Raise OSError with ELOOP for a link.
        """
        ...

    def take_lock(self, descriptor: int) -> bool:
        """Take the lock of an open file, and return whether this process has it now.

        The lock ends with the process. Raise OSError if there are no locks.
        """
        ...

    def share_lock(self, descriptor: int) -> None:
        """Wait for the lock of an open file, which others may share; raise OSError on failure."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Flush the names in a folder to the disk, if its file system can."""
        ...

    def is_own(self, found: os.stat_result) -> bool:
        """Whether a file belongs to this user; true if the system cannot show it."""
        ...

    def user(self) -> str:
        """Return a name that differs between the users of this machine."""
        ...

    def lock_holder(self, path: Path) -> int | None:
        """Return the process that holds the lock of a file, or None if the system hides it."""
        ...


def _find_files() -> Files:
    if sys.platform != "win32":
        # Even on POSIX systems, a Python may lack the modules that this needs.
        with suppress(ImportError):
            from pytest_modelperf.systems.posix_files import PosixFiles

            return PosixFiles()
    return WindowsFiles(load_msvcrt())


FILES = _find_files()
