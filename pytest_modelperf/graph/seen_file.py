"""The state of a file when it was first read, to detect later changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.errors import ChangedModelError
from pytest_modelperf.text.escaping import printable


class SeenFile(Struct, frozen=True):
    """The state of a file when it was first read, because it may change before it is read again."""

    path: Path
    device: int
    inode: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path, found: os.stat_result) -> SeenFile:
        return cls(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    @contextmanager
    def open(self) -> Iterator[BufferedReader]:
        """Open the file, and raise ChangedModelError if it changed before or while it was open."""
        self.require_unchanged()
        with self.path.open("rb") as file:
            yield file
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Raise ChangedModelError if the file was changed, replaced or removed."""
        name = printable(str(self.path))
        try:
            now = SeenFile.of(self.path, self.path.stat())
        except OSError as error:
            raise ChangedModelError(
                f"{name} was there when it was opened, and cannot be read any more: "
                f"{error.strerror or error}. Measure again when the file stays in place."
            ) from error
        if now != self:
            raise ChangedModelError(
                f"{name} was changed after it was opened: what was counted and what ran would be "
                "two models. Measure again when the file no longer changes."
            )
