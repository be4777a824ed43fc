"""Files that a process holds a lock on, by which others see whether it still runs.

The system frees the lock when the process ends, however it ends.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pytest_modelperf.systems.files import FILES


def take_lock(file: Path, flags: int = 0) -> int | None:
    """The descriptor that holds the lock; None if another process has it, or there are no locks."""
    try:
        descriptor = FILES.open(file, os.O_RDWR | flags, 0o600)
    except OSError:
        return None
    with suppress(OSError):
        if FILES.take_lock(descriptor):
            return descriptor
    os.close(descriptor)
    return None
