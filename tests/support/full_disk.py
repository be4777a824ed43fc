"""A disk that is full, as this process sees it: the kernel takes no more of a file."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def room_for(size_bytes: int) -> Iterator[None]:
    """Files of this process end there: the kernel takes no more, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        # Python would keep the half of a compiled module, and fail to load it ever after.
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
