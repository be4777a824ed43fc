"""Processes that can be ended with all that they started, by the means of each system.

Windows has job objects for this. Its class is also the fallback for systems without process groups.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_modelperf.systems.kernel32 import JobLimits, load_kernel32

_EXTENDED_LIMITS = 9
_KILL_ON_JOB_CLOSE = 0x2000
_MAY_BE_TERMINATED_AND_ASSIGNED = 0x0001 | 0x0100
_EXIT_CODE = 1


class WindowsTree:
    """A process in a job, which the system ends when this process ends or closes the job."""

    def __init__(self, pid: int, kernel32: Any) -> None:  # noqa: ANN401  # a library of C
        self._pid = pid
        self._kernel32 = kernel32
        self._job = None if kernel32 is None else _job_of(pid, kernel32)
        self._is_open = self._job is not None

    def ask_to_end(self) -> None:
        """Do nothing: Windows has no way to ask a process without a window."""

    def pause(self) -> None:
        """Do nothing: Windows has no documented way to pause a process."""

    def resume(self) -> None:
        """Do nothing: the process was never paused."""

    def kill(self) -> None:
        if self._is_open:
            self._kernel32.TerminateJobObject(self._job, _EXIT_CODE)
            self._close()
        elif self._job is None:
            # On Windows this ends a process, whatever the signal.
            with suppress(OSError):
                os.kill(self._pid, signal.SIGTERM)

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._kernel32.CloseHandle(self._job)


class WindowsTrees:
    """Job objects. Each process gets one when its id is known."""

    def __init__(self, kernel32: Any) -> None:  # noqa: ANN401  # a library of C
        self._kernel32 = kernel32

    def popen_options(self) -> Mapping[str, Any]:
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}

    def tree_of(self, pid: int) -> WindowsTree:
        return WindowsTree(pid, self._kernel32)


def _job_of(pid: int, kernel32: Any) -> Any:  # noqa: ANN401  # a handle
    """Return a new job with the process in it, or None if the system refuses one."""
    job = kernel32.CreateJobObjectW(None, None)
    if not job:
        return None
    limits = JobLimits(flags=_KILL_ON_JOB_CLOSE)
    size = ctypes.sizeof(limits)
    process = kernel32.OpenProcess(_MAY_BE_TERMINATED_AND_ASSIGNED, 0, pid)
    is_in = (
        process
        and kernel32.SetInformationJobObject(job, _EXTENDED_LIMITS, ctypes.byref(limits), size)
        and kernel32.AssignProcessToJobObject(job, process)
    )
    if process:
        kernel32.CloseHandle(process)
    if not is_in:
        kernel32.CloseHandle(job)
        return None
    return job


if sys.platform == "win32":
    Tree: TypeAlias = WindowsTree
    Trees: TypeAlias = WindowsTrees
else:
    if TYPE_CHECKING:
        from pytest_modelperf.systems.posix import PosixTree, PosixTrees

    Tree: TypeAlias = "PosixTree | WindowsTree"
    Trees: TypeAlias = "PosixTrees | WindowsTrees"


def _find_trees() -> Trees:
    # Even on POSIX systems, a Python may lack the functions that this needs.
    if sys.platform != "win32" and hasattr(os, "killpg"):
        from pytest_modelperf.systems.posix import PosixTrees

        return PosixTrees()
    return WindowsTrees(load_kernel32())


TREES = _find_trees()
