"""A process on Linux and macOS.

Its source is sent to a worker with the agent's, so it needs only the standard library. macOS cannot
pin a process and has no /proc, so some answers are None there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Collection
from importlib import import_module
from typing import Any

_KIB = 1024
# prctl(PR_SET_PDEATHSIG): see prctl(2).
_PR_SET_PDEATHSIG = 1
# The slower kinds of processors, if an Intel CPU combines kinds. Linux gives them the last numbers.
_SLOW = ("/sys/devices/cpu_atom/cpus", "/sys/devices/cpu_lowpower/cpus")


class PosixProcess:
    """A process as getrusage(2), sched_setaffinity(2) and /proc describe and control it."""

    def __init__(self) -> None:
        # Imported here, because the source of this module is sent to every system.
        self._resource: Any = import_module("resource")
        self._of_thread = getattr(self._resource, "RUSAGE_THREAD", None)

    def settle(self) -> None:
        """Lead a group of processes, which can be killed as one, and die with the parent."""
        if hasattr(os, "setsid"):
            with contextlib.suppress(OSError):
                os.setsid()
        if sys.platform == "linux":
            import ctypes

            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def allowed_processors(self, thread: int = 0) -> list[int] | None:
        if not hasattr(os, "sched_getaffinity"):
            return None
        return sorted(os.sched_getaffinity(thread))

    def use_processors(self, processors: Collection[int]) -> None:
        if not hasattr(os, "sched_setaffinity"):
            raise OSError(None, "not supported by this system")
        os.sched_setaffinity(0, processors)

    def siblings_of(self, processor: int) -> frozenset[int]:
        path = f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
        return _processors_in(path) | {processor}

    def slow_processors(self) -> frozenset[int]:
        return frozenset[int]().union(*map(_processors_in, _SLOW))

    def switches_forced(self) -> int | None:
        return int(self._resource.getrusage(self._resource.RUSAGE_SELF).ru_nivcsw)

    def switches_of_thread(self) -> int | None:
        if self._of_thread is None:
            return None
        return int(self._resource.getrusage(self._of_thread).ru_nvcsw)

    def peak_bytes(self) -> int | None:
        # A process on Linux inherits `ru_maxrss` from its parent; this file starts at zero
        # (proc_pid_status(5)).
        told = _kib_after(b"VmHWM:", "/proc/self/status")
        if told is not None:
            return told
        peak = int(self._resource.getrusage(self._resource.RUSAGE_SELF).ru_maxrss)
        # macOS has it in bytes.
        return peak if sys.platform == "darwin" else peak * _KIB

    def resident_bytes(self) -> int | None:
        return _kib_after(b"VmRSS:", "/proc/self/status")

    def available_bytes(self) -> int | None:
        """See proc_meminfo(5)."""
        return _kib_after(b"MemAvailable:", "/proc/meminfo")


def _processors_in(path: str) -> frozenset[int]:
    """Return the processors in a file such as `0-3,8`; empty if it cannot be read."""
    found: set[int] = set()
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:  # noqa: PTH123
        for part in file.read().strip().split(","):
            low, _, high = part.partition("-")
            found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def _kib_after(field: bytes, path: str) -> int | None:
    """Return the bytes on the line of a system file that begins with `field`."""
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(field):
                return int(line.split()[1]) * _KIB
    return None
