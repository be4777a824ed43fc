"""Files that a process holds a lock on, by which others see whether it still runs.

The system frees the lock when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def take_lock(file: Path, flags: int = 0) -> int | None:
    """The descriptor that holds the lock; None if another process has it, or there are no locks."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
