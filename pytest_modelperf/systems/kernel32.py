"""The functions of Windows that Python has no module for, with the types of their arguments.

Its source is sent to a worker with the agent's, so it needs only the standard library. 64-bit
Windows has one calling convention, so the one that other systems use for C libraries works here.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any


class MemoryCounters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS of psapi.h."""

    _fields_ = (
        ("size", c_uint32),
        ("page_faults", c_uint32),
        ("peak_working_set", c_size_t),
        ("working_set", c_size_t),
        ("pools_and_page_file", c_size_t * 6),
    )


class MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of sysinfoapi.h."""

    _fields_ = (
        ("size", c_uint32),
        ("load", c_uint32),
        ("total_physical", c_uint64),
        ("available_physical", c_uint64),
        ("page_file_and_virtual", c_uint64 * 5),
    )


class ProcessorRelation(ctypes.Structure):
    """SYSTEM_LOGICAL_PROCESSOR_INFORMATION of winnt.h."""

    _fields_ = (("mask", c_size_t), ("kind", c_uint32), ("details", c_uint64 * 2))


class JobLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION of winnt.h."""

    _fields_ = (
        ("times", c_int64 * 2),
        ("flags", c_uint32),
        ("working_sets", c_size_t * 2),
        ("most_processes", c_uint32),
        ("affinity", c_size_t),
        ("priority_class", c_uint32),
        ("scheduling_class", c_uint32),
        ("transfers", c_uint64 * 6),
        ("memory", c_size_t * 4),
    )


_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "AssignProcessToJobObject": (c_int, (c_void_p, c_void_p)),
    "CloseHandle": (c_int, (c_void_p,)),
    "CreateJobObjectW": (c_void_p, (c_void_p, c_void_p)),
    "GetCurrentProcess": (c_void_p, ()),
    "GetLogicalProcessorInformation": (c_int, (c_void_p, c_void_p)),
    "GetProcessAffinityMask": (c_int, (c_void_p, c_void_p, c_void_p)),
    "GlobalMemoryStatusEx": (c_int, (c_void_p,)),
    "K32GetProcessMemoryInfo": (c_int, (c_void_p, c_void_p, c_uint32)),
    "OpenProcess": (c_void_p, (c_uint32, c_int, c_uint32)),
    "SetInformationJobObject": (c_int, (c_void_p, c_int, c_void_p, c_uint32)),
    "SetPriorityClass": (c_int, (c_void_p, c_uint32)),
    "SetProcessAffinityMask": (c_int, (c_void_p, c_size_t)),
    "TerminateJobObject": (c_int, (c_void_p, c_uint32)),
}


def load_kernel32() -> Any:  # noqa: ANN401  # a library of C
    """Return the library of Windows, or None on another system."""
    try:
        library = ctypes.CDLL("kernel32")
    except OSError:
        return None
    for name, (returned, taken) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = returned, taken
    return library
