"""The facts that a system reports to a process about itself, and the settings it can change.

Its source is sent to a worker with the agent's, so it needs only the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Protocol

from pytest_modelperf.systems.kernel32 import load_kernel32
from pytest_modelperf.systems.posix_process import PosixProcess
from pytest_modelperf.systems.windows_process import WindowsProcess


class OwnProcess(Protocol):
    """The current process as a system describes and controls it; unknown facts are None."""

    def settle(self) -> None:
        """Prepare a process that only measures, if the process has to do that itself."""
        ...

    def allowed_processors(self, thread: int = 0) -> list[int] | None:
        """Return the processors that a thread may run on; 0 is the calling thread."""
        ...

    def use_processors(self, processors: Collection[int]) -> None:
        """Run on these processors only; raise OSError if that fails."""
        ...

    def siblings_of(self, processor: int) -> frozenset[int]:
        """Return the processors that share a physical core with this one, including itself."""
        ...

    def slow_processors(self) -> frozenset[int]:
        """Return the processors of a slower kind than others; empty if only one kind is known."""
        ...

    def switches_forced(self) -> int | None:
        """Return how often another process took a processor away from this one."""
        ...

    def switches_of_thread(self) -> int | None:
        """Return how often the calling thread gave up its processor."""
        ...

    def peak_bytes(self) -> int | None:
        """Return the most memory that this process ever had."""
        ...

    def resident_bytes(self) -> int | None:
        """Return the memory that this process has now."""
        ...

    def available_bytes(self) -> int | None:
        """Return the memory of the machine that is available without swapping."""
        ...


def _find_own_process() -> OwnProcess:
    if sys.platform != "win32":
        # Even on POSIX systems, a Python may lack the module that this needs.
        with suppress(ImportError):
            return PosixProcess()
    return WindowsProcess(load_kernel32())


OWN_PROCESS = _find_own_process()
