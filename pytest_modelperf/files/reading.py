"""Files that are read without waiting for anyone."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


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
