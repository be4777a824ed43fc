"""Small files of the kernel, read so that none of them can raise, whatever it holds."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_modelperf.text.escaping import printable

# Linux itself is built for at most 8192 processors on x86, and for fewer elsewhere.
MAX_PROCESSORS = 8192
# A kernel counts in 64 bits; longer numbers would not fit a float.
_NATURAL = re.compile(r"[0-9]{1,19}")
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_MAX_NAME = 120


def read_text(path: Path, limit_bytes: int = 1 << 20) -> str | None:
    """The content of a file, up to a limit; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(limit_bytes).decode("utf-8", "replace")
    except (OSError, ValueError):  # a path from another file may hold a null character
        return None


def read_line(path: Path) -> str | None:
    """The first line of a file without the spaces around it; None for an empty one too."""
    text = read_text(path, 1 << 12)
    return None if text is None else text.partition("\n")[0].strip() or None


def exists(path: Path) -> bool:
    """Whether a file exists; False if that cannot be found out."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def parse_natural(text: str | None) -> int | None:
    """A number of decimal digits and nothing else."""
    text = (text or "").strip()
    return int(text) if _NATURAL.fullmatch(text) else None


def parse_processors(text: str | None) -> frozenset[int]:
    """The processors of a list such as `0-3,8`; empty if any part is malformed."""
    processors: set[int] = set()
    for part in (text or "").strip().split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return frozenset()
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if not first <= last < MAX_PROCESSORS:
            return frozenset()
        processors.update(range(first, last + 1))
    return frozenset(processors)


def readable(text: str | None) -> str | None:
    """A name in one line of moderate length that is safe to print; None if nothing is left."""
    words = " ".join((text or "")[: 4 * _MAX_NAME].split())
    return printable(words)[:_MAX_NAME].strip() or None
