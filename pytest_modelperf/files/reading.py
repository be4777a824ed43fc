"""Reading files without waiting for other programs."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def require_file(path: Path) -> int:
    """The size of a file; OSError if there is none, or if it is no regular file.

    Opening a pipe waits for its other end, which may never come, and its content is read only once.
    """
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "Not a file", str(path))
    return found.st_size
