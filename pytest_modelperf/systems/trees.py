"""Processes that can be ended with all that they started, by the means of each system."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from pytest_modelperf.systems.kernel32 import load_kernel32
from pytest_modelperf.systems.windows_trees import WindowsTrees


class Tree(Protocol):
    """A process and all that it started."""

    def ask_to_end(self) -> None:
        """Ask all of it to end in good order, if the system has a way to ask."""
        ...

    def pause(self) -> None:
        """Make all of it wait, if the system would still end it together with this process."""
        ...

    def resume(self) -> None:
        """Make all of it continue."""
        ...

    def kill(self) -> None:
        """End all of it at once; do nothing if it has ended."""
        ...


class Trees(Protocol):
    """The way a system keeps a process and all that it started together."""

    def popen_options(self) -> Mapping[str, Any]:
        """Return the options of `Popen` for the head of a tree.

        It does not get the terminal's Ctrl-C.
        """
        ...

    def tree_of(self, pid: int) -> Tree:
        """Return the tree of a process that was started with these options."""
        ...


def _find_trees() -> Trees:
    # Even on POSIX systems, a Python may lack the functions that this needs.
    if sys.platform != "win32" and hasattr(os, "killpg"):
        from pytest_modelperf.systems.posix_trees import PosixTrees

        return PosixTrees()
    return WindowsTrees(load_kernel32())


TREES = _find_trees()
