"""A kernel32 that keeps in Python what Windows would do, and records its calls."""

# ruff: noqa: ANN401, N802  # the names and the pointers are those of Windows

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OWN, PROCESS, JOB = 1, 7, 9


@dataclass
class FakeKernel32:
    """One process with a mask of processors, and the jobs that processes are put in."""

    mask: int = 0b1111
    peak: int = 300 << 20
    resident: int = 200 << 20
    available: int = 5 << 30
    takes_jobs: bool = True
    calls: list[str] = field(default_factory=list)
    flags: int = 0

    def GetCurrentProcess(self) -> int:
        return OWN

    def SetPriorityClass(self, process: int, priority: int) -> int:
        self.calls.append(f"priority {priority:#x} of {process}")
        return 1

    def GetProcessAffinityMask(self, _process: int, own: Any, of_system: Any) -> int:
        own._obj.value, of_system._obj.value = self.mask, 0b1111
        return 1

    def SetProcessAffinityMask(self, _process: int, mask: int) -> int:
        if mask & ~0b1111:
            return 0
        self.mask = mask
        return 1

    def GetLogicalProcessorInformation(self, relations: Any, nbytes: Any) -> int:
        """Two cores with two threads each, and a cache of both."""
        entries = ((0b0011, 0), (0b1111, 2), (0b1100, 0))
        if relations is None:
            nbytes._obj.value = 32 * len(entries)
            return 0
        for place, (mask, kind) in enumerate(entries):
            relations._obj[place].mask, relations._obj[place].kind = mask, kind
        return 1

    def K32GetProcessMemoryInfo(self, _process: int, counters: Any, size: int) -> int:
        assert counters._obj.size == size
        counters._obj.peak_working_set = self.peak
        counters._obj.working_set = self.resident
        return 1

    def GlobalMemoryStatusEx(self, status: Any) -> int:
        status._obj.available_physical = self.available
        return int(status._obj.size == 64)

    def CreateJobObjectW(self, _security: None, _name: None) -> int:
        return JOB

    def OpenProcess(self, _access: int, _inherited: int, pid: int) -> int:
        self.calls.append(f"open {pid}")
        return PROCESS

    def SetInformationJobObject(self, _job: int, _kind: int, limits: Any, size: int) -> int:
        assert size == 144
        self.flags = limits._obj.flags
        return 1

    def AssignProcessToJobObject(self, job: int, process: int) -> int:
        self.calls.append(f"assign {process} to {job}")
        return int(self.takes_jobs)

    def TerminateJobObject(self, job: int, _code: int) -> int:
        self.calls.append(f"terminate {job}")
        return 1

    def CloseHandle(self, handle: int) -> int:
        self.calls.append(f"close {handle}")
        return 1
