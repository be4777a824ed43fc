"""Reading files without waiting for other programs."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def require_file(path: Path) -> int:
    """Return the size of a file, or raise OSError if there is no regular file.

    Opening a pipe would wait for its other end, which may never come, and its content can be read
    only once.
    """
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "Not a file", str(path))
    return found.st_size
