"""The facts that a system tells a process of itself, and the settings that it lets it change.

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
    """How a system describes and steers the process that asks; None where it does not tell."""

    def settle(self) -> None:
        """Prepare a process that only measures, as far as it has to do that itself."""
        ...

    def allowed_processors(self, thread: int = 0) -> list[int] | None:
        """The processors that a thread may run on; 0: the one that asks."""
        ...

    def use_processors(self, processors: Collection[int]) -> None:
        """Run on these alone; OSError if that fails."""
        ...

    def siblings_of(self, processor: int) -> frozenset[int]:
        """The processors that share a physical core with this one, itself included."""
        ...

    def slow_processors(self) -> frozenset[int]:
        """The processors of a slower kind than others; empty where all are known as one kind."""
        ...

    def switches_forced(self) -> int | None:
        """How often another process took a processor away from this one."""
        ...

    def switches_of_thread(self) -> int | None:
        """How often the thread that asks gave its processor up."""
        ...

    def peak_bytes(self) -> int | None:
        """The most memory that this process ever had."""
        ...

    def resident_bytes(self) -> int | None:
        """The memory that this process has now."""
        ...

    def available_bytes(self) -> int | None:
        """The memory of the machine that is available without swapping."""
        ...


def _find_own_process() -> OwnProcess:
    if sys.platform != "win32":
        # A Python may lack the module that this needs, whatever its platform is called.
        with suppress(ImportError):
            return PosixProcess()
    return WindowsProcess(load_kernel32())


OWN_PROCESS = _find_own_process()
