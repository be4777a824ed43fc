"""The process that a worker is: its group, its output, its processors, its machine.

Its source is sent to a worker with the agent's: the standard library is all that it needs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

# prctl(PR_SET_PDEATHSIG): see prctl(2).
_PR_SET_PDEATHSIG = 1
# So often word is given that Python code runs.
_WORD_S = 0.25


def become_group_leader() -> None:
    """A group of its own, so that all of it can be ended; and an end when the starter ends."""
    with contextlib.suppress(OSError):
        os.setsid()
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def redirect_output(path: str) -> None:
    """All output, that of native code too, goes into a file; a crash leaves its stack there."""
    for stream in (sys.stdout, sys.stderr):
        # There is none where who started the worker had closed its own.
        if stream is not None:
            stream.flush()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    # Then the file itself may have one of these numbers.
    if file not in {1, 2}:
        os.close(file)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), line_buffering=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), line_buffering=True)
    # One thread: to walk the others, which still run, may crash once more.
    faulthandler.enable(file=2, all_threads=False)


@contextlib.contextmanager
def heartbeat(tell: Callable[[], None]) -> Iterator[None]:
    """Have `tell` called again and again while Python code runs, but not while native code does.

    For Python handles a signal between two of its instructions, and native code that hangs never
    comes back to one. Only the main thread handles any.
    """

    def tell_again(*_: object) -> None:
        tell()
        # One at a time: nobody may read what is told, and then it takes long.
        signal.setitimer(signal.ITIMER_REAL, _WORD_S)

    signal.signal(signal.SIGALRM, tell_again)
    # What native code asks of the system is not broken off.
    signal.siginterrupt(signal.SIGALRM, False)  # noqa: FBT003  # the standard library's
    signal.setitimer(signal.ITIMER_REAL, _WORD_S)
    try:
        yield
    finally:
        # One more may be on its way.
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


def pin(cores: int) -> tuple[list[int] | None, str | None]:
    """Bind this process to so many processors: which, or why not."""
    if not hasattr(os, "sched_setaffinity"):
        return None, f"{sys.platform} has no way to pin a process"
    wanted = choose_processors(cores, sorted(os.sched_getaffinity(0)), siblings)
    try:
        os.sched_setaffinity(0, wanted)
    except OSError as error:
        return None, f"pinning failed: {error.strerror}"
    if sorted(os.sched_getaffinity(0)) != wanted:
        return None, "the system did not keep the process where it was pinned"
    return wanted, None


def processors_left(besides: frozenset[str]) -> set[int]:
    """Those that this thread and all but some others of this process may run on.

    Not of this thread alone: some runtimes bind each of their threads, this one among them.
    """
    allowed: set[int] = set(os.sched_getaffinity(0))
    with contextlib.suppress(OSError):
        for thread in set(os.listdir("/proc/self/task")) - besides:  # noqa: PTH208  # paths are texts on this side
            # It may have ended since.
            with contextlib.suppress(OSError):
                allowed |= os.sched_getaffinity(int(thread))
    return allowed


def other_threads() -> frozenset[str]:
    """All of this process but the one that asks; none where the platform does not tell."""
    with contextlib.suppress(OSError):
        threads = os.listdir("/proc/self/task")  # noqa: PTH208  # paths are texts on this side
        return frozenset(threads) - {str(threading.get_native_id())}
    return frozenset()


def choose_processors(
    cores: int, allowed: Sequence[int], siblings_of: Callable[[int], frozenset[int]]
) -> list[int]:
    """The last of the allowed ones, one of each physical core before a second of any.

    The last, because systems tend to run their own business on the first.
    """
    first: list[int] = []
    second: list[int] = []
    taken: set[int] = set()
    for processor in reversed(allowed):
        if taken & siblings_of(processor):
            second.append(processor)
        else:
            first.append(processor)
            taken.add(processor)
    return sorted((first + second)[:cores])


def siblings(processor: int) -> frozenset[int]:
    """The processors that share a physical core with this one, itself included."""
    path = f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
    found = {processor}
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:  # noqa: PTH123
        for part in file.read().strip().split(","):
            low, _, high = part.partition("-")
            found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def describe_platform() -> dict[str, str | int | None]:
    """What can be told of this machine without this package."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cpu = platform.processor() or None
    lines: list[str] = []
    with contextlib.suppress(OSError), open("/proc/cpuinfo", "rb") as file:  # noqa: PTH123
        lines = file.read().decode("utf-8", "replace").splitlines()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            cpu = value.strip()
            break
    return {
        "system": platform.system() or None,
        "kernel": platform.release() or None,
        "architecture": platform.machine() or None,
        "cpu": cpu,
        "logical_cores": os.cpu_count(),
        "usable_cores": usable,
        "python": platform.python_version(),
    }
