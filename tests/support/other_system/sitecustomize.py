"""Hides from our package what another operating system lacks; each Python loads it as it starts.

The folder of this file is put on PYTHONPATH, so the Pythons of workers load it too. Other packages
go by the platform that this really is, and miss nothing. Windows gets its `msvcrt`, whose locks are
those that an open file has here.
"""

from __future__ import annotations

import builtins
import fcntl
import importlib
import io
import mmap
import os
import pathlib
import signal
import struct
import sys
from types import FrameType, ModuleType
from typing import Any

VARIABLE = "MODELPERF_TESTED_SYSTEM"
WINDOWS, MACOS = "windows", "macos"

# Windows lacks these modules, and these members of others.
MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
OF_OS = (
    *("O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC"),
    *("P_PID", "WEXITED", "WNOHANG", "WNOWAIT", "wait", "wait3", "wait4", "waitid"),
    *("chown", "fchmod", "lchown", "mkfifo", "mknod", "major", "minor", "sendfile"),
    *("confstr", "sysconf", "uname", "pread", "preadv", "pwrite", "pwritev", "posix_spawn"),
    *("fork", "forkpty", "getpgid", "getpgrp", "getsid", "killpg", "setpgid", "setsid"),
    *("getegid", "geteuid", "getgid", "getgroups", "getuid", "tcgetpgrp", "tcsetpgrp"),
    *("getpriority", "nice", "sched_getaffinity", "sched_setaffinity", "setpriority"),
)
OF_SIGNAL = (
    *("ITIMER_REAL", "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGSTOP"),
    *("alarm", "pthread_kill", "pthread_sigmask", "setitimer", "siginterrupt", "sigwait"),
)
OF_MACOS = ("confstr", "sched_getaffinity", "sched_setaffinity")
_SYSTEM_FOLDERS = ("/proc/", "/sys/")
_BETWEEN = ("pathlib", __name__)


def _is_asked_by_us() -> bool:
    """Whether our package asks, by the standard library or itself."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        room = str(frame.f_globals.get("__name__")).partition(".")[0]
        if room not in _BETWEEN:
            return room == "pytest_modelperf"
        frame = frame.f_back
    return False


def hide_members(module: Any, *names: str) -> None:  # noqa: ANN401  # a module that is changed
    hidden = {name: getattr(module, name) for name in names if hasattr(module, name)}

    def give(name: str) -> Any:  # noqa: ANN401  # any member
        if name not in hidden or _is_asked_by_us():
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return hidden[name]

    for name in hidden:
        delattr(module, name)
    module.__getattr__ = give


def hide_modules() -> None:
    msvcrt: Any = ModuleType("msvcrt")
    msvcrt.locking, msvcrt.LK_NBLCK = lock_bytes, 2

    def replaced(function: Any) -> Any:  # noqa: ANN401  # either way to import
        def importing(name: str, *given: Any, **named: Any) -> Any:  # noqa: ANN401
            if name == msvcrt.__name__ and _is_asked_by_us():
                return msvcrt
            if name in MODULES and _is_asked_by_us():
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return function(name, *given, **named)

        return importing

    builtins.__import__ = replaced(builtins.__import__)
    importlib.import_module = replaced(importlib.import_module)


def hide_system_folders() -> None:
    def replaced(function: Any) -> Any:  # noqa: ANN401  # any function that takes a path
        def opening(path: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
            is_named = isinstance(path, (str, pathlib.Path))
            if is_named and str(path).startswith(_SYSTEM_FOLDERS) and _is_asked_by_us():
                raise FileNotFoundError(2, "hidden by a test", str(path))
            return function(path, *given, **named)

        return opening

    builtins.open = replaced(builtins.open)
    os.open = replaced(os.open)
    os.listdir = replaced(os.listdir)
    # `pathlib` opens files by this one.
    vars(io)["open"] = replaced(io.open)


def lock_bytes(descriptor: int, _mode: int, size: int) -> None:
    """A lock of an open file on the bytes from its position, as `msvcrt.locking` takes it."""
    start = os.lseek(descriptor, 0, os.SEEK_CUR)
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, start, size, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
    except BlockingIOError:
        raise PermissionError(13, "Permission denied") from None


def count_all_processors() -> None:
    """Python 3.13 counts the processors of a process by what is hidden, if it is there."""
    if hasattr(os, "process_cpu_count"):
        vars(os)["process_cpu_count"] = os.cpu_count


def refuse_links(*_: object, **__: object) -> None:
    raise OSError(None, "A required privilege is not held by the client")


if os.environ.get(VARIABLE) == WINDOWS:
    os.symlink = refuse_links
    hide_modules()
    hide_members(os, *OF_OS)
    count_all_processors()
    hide_members(signal, *OF_SIGNAL)
    hide_members(mmap, "MADV_DONTNEED")
    hide_system_folders()
elif os.environ.get(VARIABLE) == MACOS:
    hide_members(os, *OF_MACOS)
    count_all_processors()
    hide_system_folders()
