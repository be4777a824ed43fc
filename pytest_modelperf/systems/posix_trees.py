"""Process groups of Linux and macOS."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

assert sys.platform != "win32"  # noqa: S101  # types are checked for Windows as well


class PosixTree:
    """A process and its group, which holds everything that it started."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def ask_to_end(self) -> None:
        self._send(signal.SIGTERM, (os.killpg,))

    def pause(self) -> None:
        # On other systems it would wait forever if this process were killed: see
        # `PosixProcess.settle`.
        if sys.platform == "linux":
            self._send(signal.SIGSTOP, (os.killpg,))

    def resume(self) -> None:
        if sys.platform == "linux":
            self._send(signal.SIGCONT, (os.killpg,))

    def kill(self) -> None:
        # The process may not lead a group yet.
        self._send(signal.SIGKILL, (os.killpg, os.kill))

    def _send(self, number: int, ways: tuple[Callable[[int, int], None], ...]) -> None:
        for send in ways:
            # The process may have ended by now, and macOS refuses signals to ended processes.
            with suppress(OSError):
                send(self._pid, number)


class PosixTrees:
    """Process groups, each in a session of its own."""

    def popen_options(self) -> Mapping[str, Any]:
        return {"start_new_session": True}

    def tree_of(self, pid: int) -> PosixTree:
        return PosixTree(pid)
