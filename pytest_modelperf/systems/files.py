"""Locks and safe opening of files, by the means of each system.

Windows is the fallback for a Python without the means of POSIX, even for one without locks.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

# A lock blocks access to the bytes that it covers, so the locked byte is beyond any content. The C
# runtime takes positions of 31 bits.
_PLACE = 0x7FFF_FFF0


def load_msvcrt() -> Any:  # noqa: ANN401  # a module that has types on Windows only
    """Return the module of Windows, or None on another system."""
    try:
        return import_module("msvcrt")
    except ImportError:
        return None


class WindowsFiles:
    """Locks on one byte of a file by msvcrt, and links refused before a file is opened."""

    moves_open_files = False

    def __init__(self, msvcrt: Any) -> None:  # noqa: ANN401  # a module that has types on Windows only
        self._msvcrt = msvcrt

    @property
    def has_locks(self) -> bool:
        return self._msvcrt is not None

    def open(self, path: Path, flags: int, mode: int = 0o666) -> int:
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        # Without this flag, which only Windows has, line breaks would be translated.
        return os.open(path, flags | getattr(os, "O_BINARY", 0), mode)

    def take_lock(self, descriptor: int) -> bool:
        if self._msvcrt is None:
            raise OSError(errno.ENOLCK, "this Python has no file locks")
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
        try:
            self._msvcrt.locking(descriptor, self._msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)
        return True

    def share_lock(self, descriptor: int) -> None:  # noqa: ARG002  # the interface's
        raise OSError(errno.ENOLCK, "this Python has no shared locks")

    def sync_folder(self, folder: Path) -> None:
        """Do nothing: NTFS journals file names, and a folder cannot be opened to flush it."""

    def is_own(self, found: os.stat_result) -> bool:  # noqa: ARG002  # each user has folders of its own
        return True

    def user(self) -> str:
        return os.environ.get("USERNAME", "user")

    def lock_holder(self, path: Path) -> int | None:  # noqa: ARG002  # Windows does not show it
        return None


if sys.platform == "win32":
    Files: TypeAlias = WindowsFiles
else:
    if TYPE_CHECKING:
        from pytest_modelperf.systems.posix import PosixFiles

    Files: TypeAlias = "PosixFiles | WindowsFiles"


def _find_files() -> Files:
    if sys.platform != "win32":
        # Even on POSIX systems, a Python may lack the modules that this needs.
        with suppress(ImportError):
            from pytest_modelperf.systems.posix import PosixFiles

            return PosixFiles()
    return WindowsFiles(load_msvcrt())


FILES = _find_files()
