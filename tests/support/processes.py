"""The processes that a test started, directly or not: which there are, and whether they end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

# Only a test that fails waits so long.
LIMIT_S = 120.0
_BETWEEN_LOOKS_S = 0.01

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc and pinning")


def is_running(pid: int) -> bool:
    """Whether there is such a process; a dead one whose status was not collected does not count."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def ends(pid: int) -> bool:
    """Whether a process that got a signal to end does: it may still be on its way."""
    deadline = time.monotonic() + LIMIT_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(_BETWEEN_LOOKS_S)
    return not is_running(pid)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for what other processes do, and leave them the processor."""
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(_BETWEEN_LOOKS_S)


def children() -> set[int]:
    """The processes that this one has started; none if the platform does not list them."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for path in lists for pid in path.read_text().split()}
