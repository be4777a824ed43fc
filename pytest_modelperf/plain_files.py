"""Files that are read without waiting for anyone, and written to their end or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


def require_file(path: Path) -> int:
    """The size of a file; OSError where there is none, or something else.

    To open a pipe is to wait for its other end, which may never come, and it is read only once.
    """
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "Not a file", str(path))
    return found.st_size


@contextmanager
def written_text(path: Path) -> Iterator[TextIO]:
    """A text that is written anew. Of what does not come to its end nothing is left.

    Half a report could be taken for a whole one. What is no file, as a terminal, stays.
    """
    file = path.open("w", encoding="utf-8", newline="\n")
    try:
        with file:
            yield file
    except BaseException:
        with suppress(OSError):
            place = path.resolve()
            if place.is_file():
                place.unlink()
        raise
