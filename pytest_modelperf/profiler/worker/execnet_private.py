"""The private members of execnet that ending a worker needs, for which execnet has nothing public.

- `Group._cleanup_atexit`: each group registers it with `atexit`, so execnet keeps every group until
  this process ends.
- `Gateway._io`: the pipes or the socket of a gateway. `Gateway.exit` waits for whoever reads or
  writes them, and leaves the pipes to the garbage collector, which warns of them.

`tests/profiler/worker/test_execnet_private.py` fails where a release of execnet lacks one of them.
"""

from __future__ import annotations

import atexit
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import execnet


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
