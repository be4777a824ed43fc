"""The private members of execnet that starting and ending a worker needs, where nothing is public.

- `ThreadExecModel.subprocess`: the module that execnet starts processes with.
- `popen_bootstrapline`: the program that execnet starts a Python on this machine with. It would
  keep the main thread.
- `Group._cleanup_atexit`: each group registers it with `atexit`, so execnet keeps every group until
  this process ends.
- `Gateway._io`: the pipes of a gateway. `Gateway.exit` waits for whoever reads or writes them, and
  leaves them to the garbage collector, which warns of them.

`tests/profiler/worker/test_execnet_private.py` fails where a release of execnet lacks one of them.
"""

from __future__ import annotations

import atexit
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

import execnet
from execnet.gateway_base import ThreadExecModel
from execnet.gateway_io import popen_bootstrapline

from pytest_modelperf.files.interrupts import interrupt_delayed
from pytest_modelperf.profiler.engines.source import find_source
from pytest_modelperf.systems.trees import TREES, Tree

_HOST = f"{__package__}.host"


class Processes:
    """Starts the processes of a group, and knows them before they have said anything."""

    PIPE = subprocess.PIPE

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._trees: list[Tree] = []
        self._inputs: list[IO[bytes]] = []

    def Popen(self, command: Sequence[str], stdin: int, stdout: int) -> subprocess.Popen[bytes]:  # noqa: N802  # as the standard library has it
        if command[-1] == popen_bootstrapline:
            command = [*command[:-1], find_source(_HOST).text]
        with interrupt_delayed():
            process = subprocess.Popen(command, stdin=stdin, stdout=stdout, **self._options)  # noqa: S603  # the user's gateway
            self._trees.append(TREES.tree_of(process.pid))
            if process.stdin is not None:
                self._inputs.append(process.stdin)
        return process

    def kill(self) -> None:
        """End all that were started, with what these started."""
        for tree in self._trees:
            tree.kill()

    def end(self) -> None:
        """Kill all, and drop what they did not read: the garbage collector would still write it."""
        self.kill()
        for pipe in self._inputs:
            with suppress(OSError):
                pipe.close()


class _Threads(ThreadExecModel):
    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    @property
    def subprocess(self) -> Processes:
        return self._processes


def group_of(processes: Processes) -> execnet.Group:
    """A group whose processes on this machine are started so."""
    group = execnet.Group()
    group.set_execmodel(_Threads(processes), "thread")  # type: ignore[arg-type]  # it takes a model as well
    return group


def forget_group(group: execnet.Group) -> None:
    """Let a group that was terminated be freed."""
    atexit.unregister(group._cleanup_atexit)  # noqa: SLF001  # see above


def cut_off(gateway: execnet.Gateway) -> None:
    """End a connection at once, whoever reads or writes it."""
    with suppress(OSError):
        gateway._io.kill()  # noqa: SLF001  # see above


def close_connection(gateway: execnet.Gateway) -> None:
    """Close the pipes of a gateway that has ended."""
    io = gateway._io  # noqa: SLF001  # see above
    for close in (io.close_read, io.close_write):
        with suppress(OSError):
            close()
