"""The facts that a process can read about itself, and the settings that it can change.

Unknown facts are None: macOS cannot pin a process and has no /proc. The class for Windows is the
fallback for a system that reports nothing. The source is sent to a worker with the agent's, so it
needs only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

from pytest_modelperf.systems.kernel32 import (
    MemoryCounters,
    MemoryStatus,
    ProcessorRelation,
    load_kernel32,
)

_KIB = 1024
# prctl(PR_SET_PDEATHSIG): see prctl(2).
_PR_SET_PDEATHSIG = 1
# The slower kinds of processors, if an Intel CPU combines kinds. Linux gives them the last numbers.
_SLOW = ("/sys/devices/cpu_atom/cpus", "/sys/devices/cpu_lowpower/cpus")


class PosixProcess:
    """The current process by getrusage(2), sched_setaffinity(2) and /proc."""

    def __init__(self) -> None:
        # Imported here, because the source of this module is sent to every system.
        self._resource: Any = import_module("resource")
        self._of_thread = getattr(self._resource, "RUSAGE_THREAD", None)

    def settle(self) -> None:
        if hasattr(os, "setsid"):
            with suppress(OSError):
                os.setsid()
        if sys.platform == "linux":
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def allowed_processors(self, thread: int = 0) -> list[int] | None:
        """Return the processors that a thread may run on. 0 is the calling thread."""
        if not hasattr(os, "sched_getaffinity"):
            return None
        return sorted(os.sched_getaffinity(thread))

    def use_processors(self, processors: Collection[int]) -> None:
        if not hasattr(os, "sched_setaffinity"):
            raise OSError(None, "not supported by this system")
        os.sched_setaffinity(0, processors)

    def siblings_of(self, processor: int) -> frozenset[int]:
        """Return the processors that share a physical core with this one, including itself."""
        path = f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
        return _processors_in(path) | {processor}

    def slow_processors(self) -> frozenset[int]:
        """Return the processors of a slower kind than others, if several kinds are known."""
        return frozenset[int]().union(*map(_processors_in, _SLOW))

    def switches_forced(self) -> int | None:
        """Return how often another process took a processor away from this one."""
        return int(self._resource.getrusage(self._resource.RUSAGE_SELF).ru_nivcsw)

    def switches_of_thread(self) -> int | None:
        """Return how often the calling thread gave up its processor."""
        if self._of_thread is None:
            return None
        return int(self._resource.getrusage(self._of_thread).ru_nvcsw)

    def peak_bytes(self) -> int | None:
        # A process on Linux inherits `ru_maxrss` from its parent; this file starts at zero
        # (proc_pid_status(5)).
        high_water = _kib_after(b"VmHWM:", "/proc/self/status")
        if high_water is not None:
            return high_water
        peak = int(self._resource.getrusage(self._resource.RUSAGE_SELF).ru_maxrss)
        # macOS has it in bytes.
        return peak if sys.platform == "darwin" else peak * _KIB

    def resident_bytes(self) -> int | None:
        return _kib_after(b"VmRSS:", "/proc/self/status")

    def available_bytes(self) -> int | None:
        """See proc_meminfo(5)."""
        return _kib_after(b"MemAvailable:", "/proc/meminfo")


def _processors_in(path: str) -> frozenset[int]:
    """Return the processors in a file such as `0-3,8`, or none if it cannot be read."""
    found: set[int] = set()
    with suppress(OSError, ValueError), open(path, encoding="ascii") as file:  # noqa: PTH123
        for part in file.read().strip().split(","):
            low, _, high = part.partition("-")
            found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def _kib_after(field: bytes, path: str) -> int | None:
    """Return the bytes on the line of a system file that begins with `field`."""
    with suppress(OSError, ValueError), open(path, "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(field):
                return int(line.split()[1]) * _KIB
    return None


_ABOVE_NORMAL_PRIORITY = 0x8000
# The kind of relation of the processors of one physical core.
_OF_ONE_CORE = 0


class WindowsProcess:
    """The current process by kernel32. Windows does not count its switches."""

    def __init__(self, kernel32: Any) -> None:  # noqa: ANN401  # a library of C
        self._kernel32 = kernel32

    def settle(self) -> None:
        """Raise the priority above that of a desktop's background work."""
        if self._kernel32 is not None:
            self._kernel32.SetPriorityClass(self._own, _ABOVE_NORMAL_PRIORITY)

    def allowed_processors(self, thread: int = 0) -> list[int] | None:  # noqa: ARG002  # threads follow their process
        """Return the processors of the mask: those of one group, 64 at most."""
        if self._kernel32 is None:
            return None
        own, of_system = ctypes.c_size_t(), ctypes.c_size_t()
        is_known = self._kernel32.GetProcessAffinityMask(
            self._own, ctypes.byref(own), ctypes.byref(of_system)
        )
        if not is_known or not own.value:
            return None
        return _bits(own.value)

    def use_processors(self, processors: Collection[int]) -> None:
        mask = sum(1 << each for each in processors)
        if self._kernel32 is None or not self._kernel32.SetProcessAffinityMask(self._own, mask):
            raise OSError(None, "the system refused it")

    def siblings_of(self, processor: int) -> frozenset[int]:
        masks = (each.mask for each in self._relations() if each.kind == _OF_ONE_CORE)
        own = next((mask for mask in masks if mask >> processor & 1), 1 << processor)
        return frozenset(_bits(own))

    def slow_processors(self) -> frozenset[int]:
        return frozenset()

    def switches_forced(self) -> int | None:
        return None

    def switches_of_thread(self) -> int | None:
        return None

    def peak_bytes(self) -> int | None:
        counters = self._counters()
        return None if counters is None else int(counters.peak_working_set)

    def resident_bytes(self) -> int | None:
        counters = self._counters()
        return None if counters is None else int(counters.working_set)

    def available_bytes(self) -> int | None:
        status = MemoryStatus(size=ctypes.sizeof(MemoryStatus))
        if self._kernel32 is None or not self._kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            return None
        return int(status.available_physical)

    @property
    def _own(self) -> Any:  # noqa: ANN401  # a handle
        return self._kernel32.GetCurrentProcess()

    def _relations(self) -> Iterable[ProcessorRelation]:
        """Return what the processors share with one another, if Windows reports it."""
        if self._kernel32 is None:
            return ()
        nbytes = ctypes.c_uint32()
        # Without a buffer to write to, the function returns the size that it needs.
        self._kernel32.GetLogicalProcessorInformation(None, ctypes.byref(nbytes))
        relations = (ProcessorRelation * (nbytes.value // ctypes.sizeof(ProcessorRelation)))()
        if not self._kernel32.GetLogicalProcessorInformation(
            ctypes.byref(relations), ctypes.byref(nbytes)
        ):
            return ()
        return relations

    def _counters(self) -> MemoryCounters | None:
        counters = MemoryCounters(size=ctypes.sizeof(MemoryCounters))
        if self._kernel32 is None or not self._kernel32.K32GetProcessMemoryInfo(
            self._own, ctypes.byref(counters), counters.size
        ):
            return None
        return counters


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _find_own_process() -> PosixProcess | WindowsProcess:
    if sys.platform != "win32":
        # Even on POSIX systems, a Python may lack the module that this needs.
        with suppress(ImportError):
            return PosixProcess()
    return WindowsProcess(load_kernel32())


OWN_PROCESS = _find_own_process()
