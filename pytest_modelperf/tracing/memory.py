"""Reads the resident memory of this process, fast enough to be read often."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

_STATM = Path("/proc/self/statm")


class ResidentMemory:
    """The resident memory of this process.

    The file stays open, so that a read takes a microsecond. On platforms without it, reads return
    None.
    """

    def __init__(self) -> None:
        try:
            self._file = os.open(_STATM, os.O_RDONLY)
        except OSError:
            self._file = -1
        self._page_bytes = mmap.PAGESIZE

    def read_bytes(self) -> int | None:
        if self._file < 0 or not hasattr(os, "pread"):
            return None
        try:
            _, resident, _ = os.pread(self._file, 128, 0).split(b" ", 2)
            return int(resident) * self._page_bytes
        except (OSError, ValueError):
            # A program that becomes a daemon closes all files, and another file may then get this
            # number.
            return None

    def close(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
        self._file = -1
