"""The private members of execnet that starting and ending a worker needs, where nothing is public.

- `ThreadExecModel.subprocess`: the module that execnet starts processes with.
- `Group._cleanup_atexit`: each group registers it with `atexit`, so execnet keeps every group until
  this process ends.
- `Gateway._io`: the pipes or the socket of a gateway. `Gateway.exit` waits for whoever reads or
  writes them, and leaves the pipes to the garbage collector, which warns of them.

`tests/profiler/worker/test_execnet_private.py` fails where a release of execnet lacks one of them.
"""

from __future__ import annotations

import atexit
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress

import execnet
from execnet.gateway_base import ThreadExecModel

from pytest_modelperf.systems.trees import TREES


class _InOwnSession:
    """Starts a process that gets no Ctrl-C of the terminal, of which it would print a traceback."""

    PIPE = subprocess.PIPE

    @staticmethod
    def Popen(command: Sequence[str], stdin: int, stdout: int) -> subprocess.Popen[bytes]:  # noqa: N802  # as the standard library has it
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, **TREES.popen_options())  # noqa: S603  # the user's gateway


class _Threads(ThreadExecModel):
    subprocess = _InOwnSession


def group_in_own_sessions() -> execnet.Group:
    """A group whose processes on this machine begin in a session of their own."""
    group = execnet.Group()
    group.set_execmodel(_Threads(), "thread")  # type: ignore[arg-type]  # it takes a model as well
    return group


def forget_group(group: execnet.Group) -> None:
    """Let a group that was terminated be freed."""
    atexit.unregister(group._cleanup_atexit)  # noqa: SLF001  # see above


def cut_off(gateway: execnet.Gateway) -> None:
    """End a connection at once, whoever reads or writes it."""
    io = gateway._io  # noqa: SLF001  # see above
    with suppress(OSError):
        if hasattr(io, "sock"):
            io.sock.shutdown(socket.SHUT_RDWR)
        else:
            io.kill()


def close_connection(gateway: execnet.Gateway) -> None:
    """Close the pipes or the socket of a gateway that has ended."""
    io = gateway._io  # noqa: SLF001  # see above
    closers = [io.close_read, io.close_write]
    if hasattr(io, "sock"):
        closers.append(io.sock.close)
    for close in closers:
        with suppress(OSError):
            close()
