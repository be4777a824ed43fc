"""The process of a worker: its output, its processors, its machine, and what others took of it.

Its source is sent to a worker with the agent's, so it needs only the standard library.
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
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from pytest_modelperf.systems.process import OWN_PROCESS

_NS_PER_S = 1_000_000_000


class Meter:
    """The counters of the system around a block. A counter that the platform lacks is None."""

    def __init__(self, cgroup_files: tuple[str, ...], processors: Sequence[int] | None) -> None:
        self._cgroup_files = cgroup_files
        self._processors = None if processors is None else frozenset(processors)

    def read(self) -> dict[str, int | None]:
        """Return the counters now. The key of a cgroup's halted time is the path of its file."""
        busy, stolen = self._processor_times()
        return {
            "wall_ns": time.perf_counter_ns(),
            "cpu_ns": time.process_time_ns(),
            "involuntary_switches": OWN_PROCESS.switches_forced(),
            "busy_ns": busy,
            "stolen_ns": stolen,
            **{path: throttled_ns(path) for path in self._cgroup_files},
        }

    def since(self, before: Mapping[str, int | None]) -> dict[str, int | None]:
        """Return the change since `before`.

        `others_ns` is the time that the processors spent on other processes. It can be a little
        below 0, because processor time comes in ticks of 10 ms. `throttled_ns` is how long cgroups
        halted this process: the longest of its groups.
        """
        now = self.read()
        spent: dict[str, int | None] = {}
        for name, value in now.items():
            past = before[name]
            spent[name] = None if value is None or past is None else value - past
        busy, own = spent.pop("busy_ns"), spent["cpu_ns"]
        spent["others_ns"] = None if busy is None or own is None else busy - own
        halted = [spent.pop(path) for path in self._cgroup_files]
        spent["throttled_ns"] = max((ns for ns in halted if ns is not None), default=None)
        return spent

    def _processor_times(self) -> tuple[int | None, int | None]:
        """Return busy and stolen time of the pinned processors (proc_stat(5))."""
        if self._processors is None or not hasattr(os, "sysconf"):
            return None, None
        busy = stolen = 0
        try:
            with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123
                for line in file:
                    name, _, rest = line.partition(" ")
                    if not name.startswith("cpu"):
                        break
                    if name[3:].isdigit() and int(name[3:]) in self._processors:
                        user, nice, system, _, _, irq, softirq, steal = map(int, rest.split()[:8])
                        busy += user + nice + system + irq + softirq
                        stolen += steal
        except (OSError, ValueError):
            return None, None
        tick_ns = _NS_PER_S // os.sysconf("SC_CLK_TCK")
        return busy * tick_ns, stolen * tick_ns


def throttled_ns(path: str) -> int | None:
    """Return the throttled time of a `cpu.stat` file, which counts microseconds."""
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123
            for line in file:
                name, _, value = line.partition(" ")
                if name == "throttled_usec":
                    return int(value) * 1000
    except (OSError, ValueError):
        pass
    return None


# The interval of heartbeats, in seconds.
_WORD_S = 0.25


def redirect_output(path: str) -> None:
    """Send all output to a file, including that of native code. A crash writes its stack there."""
    for stream in (sys.stdout, sys.stderr):
        # The streams are missing if the starter of the worker had closed its own.
        if stream is not None:
            stream.flush()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    # If streams were closed, the file itself may have one of these numbers.
    if file not in {1, 2}:
        os.close(file)
    sys.stdout, sys.stderr = _text_to(1), _text_to(2)
    # Only one thread, because walking the others, which still run, may crash again. The stack of
    # native code, which Python 3.14 adds, would push the engine's messages out of the last lines.
    options = {"c_stack": False} if sys.version_info >= (3, 14) else {}
    faulthandler.enable(file=2, all_threads=False, **options)


def _text_to(number: int) -> io.TextIOWrapper:
    """Return a text stream to an open file that accepts characters that the locale lacks."""
    file = os.fdopen(number, "wb", closefd=False)
    return io.TextIOWrapper(file, "utf-8", "backslashreplace", line_buffering=True)


@contextlib.contextmanager
def heartbeat(report: Callable[[], None]) -> Iterator[None]:
    """Call `report` regularly while Python code runs, but not while native code does.

    Python handles a signal between two of its instructions, which native code that hangs never
    reaches. Only the main thread handles signals. Windows has no such timer.
    """
    if sys.platform == "win32" or not hasattr(signal, "setitimer"):
        yield
    else:

        def report_again(*_: object) -> None:
            report()
            # One at a time: `report` blocks if the other side does not read.
            signal.setitimer(signal.ITIMER_REAL, _WORD_S)

        signal.signal(signal.SIGALRM, report_again)
        # Do not interrupt system calls of native code.
        signal.siginterrupt(signal.SIGALRM, False)  # noqa: FBT003  # the standard library's
        signal.setitimer(signal.ITIMER_REAL, _WORD_S)
        try:
            yield
        finally:
            # Another signal may already be on its way.
            signal.signal(signal.SIGALRM, signal.SIG_IGN)


def pin(cores: int, place: int = 0) -> tuple[list[int] | None, str | None]:
    """Pin this process to that many processors. Return which, or why not.

    Processes with different places get different processors if there are enough.
    """
    allowed = OWN_PROCESS.allowed_processors()
    if allowed is None:
        return None, f"{sys.platform} cannot pin a process"
    slow = OWN_PROCESS.slow_processors()
    wanted = choose_processors(cores, allowed, OWN_PROCESS.siblings_of, slow, place)
    try:
        OWN_PROCESS.use_processors(wanted)
    except OSError as error:
        return None, f"pinning failed: {error.strerror}"
    if OWN_PROCESS.allowed_processors() != wanted:
        return None, "the system did not keep the process on the chosen processors"
    return wanted, None


def processors_left(besides: frozenset[str]) -> set[int]:
    """Return the processors that the threads of this process may run on, except some threads.

    All threads are queried, because some runtimes pin each of their threads, including this one.
    """
    allowed = set(OWN_PROCESS.allowed_processors() or ())
    with contextlib.suppress(OSError):
        for thread in set(os.listdir("/proc/self/task")) - besides:  # noqa: PTH208  # paths are strings on this side
            # The thread may have ended since then.
            with contextlib.suppress(OSError):
                allowed.update(OWN_PROCESS.allowed_processors(int(thread)) or ())
    return allowed


def other_threads() -> frozenset[str]:
    """Return all other threads of this process. Empty if the platform does not list them."""
    with contextlib.suppress(OSError):
        threads = os.listdir("/proc/self/task")  # noqa: PTH208  # paths are strings on this side
        return frozenset(threads) - {str(threading.get_native_id())}
    return frozenset()


def choose_processors(
    cores: int,
    allowed: Sequence[int],
    siblings_of: Callable[[int], frozenset[int]],
    slow: Collection[int] = (),
    place: int = 0,
) -> list[int]:
    """Return the last allowed processors: one of each physical core first, and `slow` ones last.

    Systems tend to use the first ones for their own work. A later `place` gets the
    processors that follow the choice of the place before. If too few are left, it gets the same as
    the first place.
    """
    first: list[int] = []
    second: list[int] = []
    taken: set[int] = set()
    for processor in sorted(allowed, key=lambda each: (each not in slow, each), reverse=True):
        if taken & siblings_of(processor):
            second.append(processor)
        else:
            first.append(processor)
            taken.add(processor)
    ranked = first + second
    begin = place * cores if (place + 1) * cores <= len(ranked) else 0
    return sorted(ranked[begin : begin + cores])


def describe_platform() -> dict[str, str | int | None]:
    """Return the facts of this machine that are known without this package."""
    allowed = OWN_PROCESS.allowed_processors()
    usable = os.cpu_count() if allowed is None else len(allowed)
    lines: list[str] = []
    with contextlib.suppress(OSError), open("/proc/cpuinfo", "rb") as file:  # noqa: PTH123
        lines = file.read().decode("utf-8", "replace").splitlines()
    parted = (line.partition(":") for line in lines)
    models = (value.strip() for name, _, value in parted if name.strip() == "model name")
    # `platform` comes last, because it starts a program to find the name.
    cpu = next(models, None) or platform.processor() or None
    return {
        "system": platform.system() or None,
        "kernel": platform.release() or None,
        "architecture": platform.machine() or None,
        "cpu": cpu,
        "logical_cores": os.cpu_count(),
        "usable_cores": usable,
        "python": platform.python_version(),
    }
