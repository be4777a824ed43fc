"""Files and process groups on Linux and macOS."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

assert sys.platform != "win32"  # noqa: S101  # types are checked for Windows as well

# Linux lists the holders of locks, but only within the same container.
_HELD_LOCKS = Path("/proc/locks")


class PosixFiles:
    """Locks by flock(2), and links refused by open(2)."""

    # Whether a file can be renamed and removed while it is open.
    moves_open_files = True
    has_locks = True

    def open(self, path: Path, flags: int, mode: int = 0o666) -> int:
        """Open a file without waiting for a pipe, or raise OSError with ELOOP for a link."""
        try:
            return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
        except OSError as error:
            # FreeBSD's number for a link.
            if error.errno != errno.EMLINK:
                raise
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None

    def take_lock(self, descriptor: int) -> bool:
        """Try to lock an open file, which stays locked until the process ends.

        Return whether this process holds the lock. Raise OSError if there are no locks.
        """
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def share_lock(self, descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_SH)

    def sync_folder(self, folder: Path) -> None:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(handle)

    def is_own(self, found: os.stat_result) -> bool:
        return found.st_uid == os.getuid()

    def user(self) -> str:
        return str(os.getuid())

    def lock_holder(self, path: Path) -> int | None:
        with suppress(OSError):
            found = path.stat()
            device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
            for line in _HELD_LOCKS.read_text(encoding="ascii").splitlines():
                # 1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF
                words = line.split()
                if words[1] == "FLOCK" and words[5:6] == [f"{device}:{found.st_ino}"]:
                    return int(words[4])
        return None


assert sys.platform != "win32"  # noqa: S101  # types are checked for Windows as well


class PosixTree:
    """A process and its group. The group contains everything that it started."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def ask_to_end(self) -> None:
        self._send(signal.SIGTERM, (os.killpg,))

    def pause(self) -> None:
        # On other systems it would wait forever after a kill of this process: see
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
