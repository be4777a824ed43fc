"""Files for readers that want a path: one folder for each process, gone when it ends."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="modelperf-fuzz-")


def scratch_path(name: str) -> Path:
    return Path(_folder().name) / name


def scratch_file(name: str, data: bytes) -> Path:
    """A file with this content; the one that had its name is gone."""
    path = scratch_path(name)
    path.write_bytes(data)
    return path
