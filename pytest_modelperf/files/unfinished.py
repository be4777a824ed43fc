"""A file that is written beside its place, until it is whole and moved there.

A process that is killed cannot remove its file. So it holds a lock on it, and whoever next writes
into the folder removes the files without one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from pytest_modelperf.files.held import take_lock
from pytest_modelperf.systems.files import FILES

_NAME = re.compile(r"\.modelperf-[0-9a-f]{8}\.tmp", re.ASCII)


class Unfinished(Struct, frozen=True):
    """A file that is being written, and where it is."""

    file: BinaryIO
    path: Path

    def flush(self) -> None:
        """Write all of it, and keep its lock until it was moved, where the system can do that."""
        self.file.flush()
        if not FILES.moves_open_files:
            self.file.close()
            return
        # A network file system tells of errors only where a descriptor is closed.
        os.close(os.dup(self.file.fileno()))


def replace_file(place: Path, content: bytes) -> None:
    """Write a file in one step; OSError if that fails."""
    with unfinished_beside(place) as unfinished:
        unfinished.file.write(content)
        unfinished.flush()
        unfinished.path.replace(place)


def name_beside(place: Path) -> Path:
    # The name of the file is left out: with more letters it could be too long.
    return place.with_name(f".modelperf-{os.urandom(4).hex()}.tmp")


@contextmanager
def unfinished_beside(place: Path) -> Iterator[Unfinished]:
    """A new file that the body moves to its place; where it does not, nothing is left."""
    remove_abandoned(place.parent)
    unfinished = _new_file(place)
    try:
        with unfinished.file:
            yield unfinished
    finally:
        with suppress(OSError):
            unfinished.path.unlink()


def remove_abandoned(folder: Path) -> None:
    """Remove the files in a folder whose writers have ended."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                _remove_unheld(Path(entry.path))


def _remove_unheld(path: Path) -> None:
    lock = take_lock(path)
    if lock is None:
        return
    if not FILES.moves_open_files:
        # Such a system removes no file that is open, here or in its writer.
        os.close(lock)
    # Another user's file stays.
    with suppress(OSError):
        path.unlink()
    if FILES.moves_open_files:
        os.close(lock)


def _new_file(place: Path) -> Unfinished:
    while True:
        path = name_beside(place)
        file = path.open("xb")
        is_locked = True
        # Some file systems have no locks; there, nobody removes a file of others.
        with suppress(OSError):
            is_locked = FILES.take_lock(file.fileno())
        if is_locked and os.fstat(file.fileno()).st_nlink:
            return Unfinished(file, path)
        # Another writer took it for abandoned before it was locked.
        file.close()
