"""Locks and safe opening of files, as the system has them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pytest_modelperf.systems.windows_files import WindowsFiles, load_msvcrt


class Files(Protocol):
    """How a system opens and locks files."""

    @property
    def moves_open_files(self) -> bool:
        """Whether a file can be renamed and removed while it is open."""
        ...

    @property
    def has_locks(self) -> bool:
        """Whether this Python can lock files at all; a file system may still refuse."""
        ...

    def open(self, path: Path, flags: int, mode: int = 0o666) -> int:
        """The descriptor of a file; OSError with ELOOP for a link. A pipe is not waited for."""
        ...

    def take_lock(self, descriptor: int) -> bool:
        """Whether this process has the lock of an open file now, which ends with the process.

        OSError if there are no locks.
        """
        ...

    def share_lock(self, descriptor: int) -> None:
        """Wait for the lock of an open file, which others may share; OSError if that fails."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Flush the names in a folder to the disk, if its file system can."""
        ...

    def is_own(self, found: os.stat_result) -> bool:
        """Whether a file belongs to this user, as far as the system tells."""
        ...

    def user(self) -> str:
        """A name that differs between the users of this machine."""
        ...

    def lock_holder(self, path: Path) -> int | None:
        """The process that holds the lock of a file; None if the system does not tell."""
        ...


def _find_files() -> Files:
    if sys.platform != "win32":
        # A Python may lack the modules that this needs, whatever its platform is called.
        with suppress(ImportError):
            from pytest_modelperf.systems.posix_files import PosixFiles

            return PosixFiles()
    return WindowsFiles(load_msvcrt())


FILES = _find_files()
