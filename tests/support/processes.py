"""The processes that a test started, directly or not: which there are, and whether they end."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc and pinning")


def is_running(pid: int) -> bool:
    """Whether there is such a process, a dead one that nobody has collected aside."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def ends(pid: int) -> bool:
    """Whether a process that was told to end does: its signal may still be on its way."""
    deadline = time.monotonic() + 30
    while is_running(pid) and time.monotonic() < deadline:
        os.sched_yield()
    return not is_running(pid)


def children() -> set[int]:
    """The processes that this one has started; none where the platform does not tell."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for path in lists for pid in path.read_text().split()}
