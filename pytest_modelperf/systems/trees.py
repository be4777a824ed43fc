"""Processes that are ended with all that they started, as the system can do it."""

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
        """Have all of it end in good order, where the system has a way to ask."""
        ...

    def pause(self) -> None:
        """Have all of it wait, if the system would end it with this process even then."""
        ...

    def resume(self) -> None:
        """Have all of it go on."""
        ...

    def kill(self) -> None:
        """End all of it at once; nothing where it has ended."""
        ...


class Trees(Protocol):
    """How a system keeps a process and all that it started together."""

    def popen_options(self) -> Mapping[str, Any]:
        """The options of `Popen` for the head of a tree, which gets no Ctrl-C of the terminal."""
        ...

    def tree_of(self, pid: int) -> Tree:
        """The tree of a process that was started with these options."""
        ...


def _find_trees() -> Trees:
    # A Python may lack the functions that this needs, whatever its platform is called.
    if sys.platform != "win32" and hasattr(os, "killpg"):
        from pytest_modelperf.systems.posix_trees import PosixTrees

        return PosixTrees()
    return WindowsTrees(load_kernel32())


TREES = _find_trees()
