"""A process on Windows, with a fallback for a system that reports nothing.

Its source is sent to a worker with the agent's, so it needs only the standard library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterable
from typing import Any

from pytest_modelperf.systems.kernel32 import MemoryCounters, MemoryStatus, ProcessorRelation

_ABOVE_NORMAL_PRIORITY = 0x8000
# The kind of relation of the processors of one physical core.
_OF_ONE_CORE = 0


class WindowsProcess:
    """A process as kernel32 describes and controls it; Windows does not count its switches."""

    def __init__(self, kernel32: Any) -> None:  # noqa: ANN401  # a library of C
        self._kernel32 = kernel32

    def settle(self) -> None:
        """Raise the priority above that of a desktop's background work."""
        if self._kernel32 is not None:
            self._kernel32.SetPriorityClass(self._own, _ABOVE_NORMAL_PRIORITY)

    def allowed_processors(self, thread: int = 0) -> list[int] | None:  # noqa: ARG002  # threads follow their process
        """Return the processors of the mask, which has those of one group: 64 at most."""
        if self._kernel32 is None:
            return None
        own, of_system = ctypes.c_size_t(), ctypes.c_size_t()
        is_told = self._kernel32.GetProcessAffinityMask(
            self._own, ctypes.byref(own), ctypes.byref(of_system)
        )
        if not is_told or not own.value:
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
        """Return what the processors share with one another; empty if Windows reports nothing."""
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
