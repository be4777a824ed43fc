"""Counters of the system: time that others took from the model, and memory.

Its source is sent to a worker with the agent's, so it needs only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence

_KIB = 1024
_NS_PER_S = 1_000_000_000


class Meter:
    """Reads counters of the system around a block; None: the platform does not have it."""

    def __init__(self, cgroup_files: tuple[str, ...], processors: Sequence[int] | None) -> None:
        self._cgroup_files = cgroup_files
        self._processors = None if processors is None else frozenset(processors)
        self._tick_ns = _NS_PER_S // os.sysconf("SC_CLK_TCK")

    def read(self) -> dict[str, int | None]:
        busy, stolen = self._processor_times()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "wall_ns": time.perf_counter_ns(),
            "cpu_ns": int((usage.ru_utime + usage.ru_stime) * _NS_PER_S),
            "involuntary_switches": usage.ru_nivcsw,
            "busy_ns": busy,
            "stolen_ns": stolen,
            "throttled_ns": self._throttled(),
        }

    def since(self, before: Mapping[str, int | None]) -> dict[str, int | None]:
        """The change since `before`; `others_ns` is what the processors did for other processes.

        It can be a little below 0, because processor time comes in ticks of 10 ms.
        """
        now = self.read()
        spent: dict[str, int | None] = {}
        for name, value in now.items():
            past = before[name]
            spent[name] = None if value is None or past is None else value - past
        busy, own = spent.pop("busy_ns"), spent["cpu_ns"]
        spent["others_ns"] = None if busy is None or own is None else busy - own
        return spent

    def _processor_times(self) -> tuple[int | None, int | None]:
        """Busy and stolen time of the pinned processors (proc_stat(5))."""
        if self._processors is None:
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
        return busy * self._tick_ns, stolen * self._tick_ns

    def _throttled(self) -> int | None:
        """How long cgroups halted this process: the longest of its groups."""
        times = [t for path in self._cgroup_files if (t := throttled_ns(path)) is not None]
        return max(times, default=None)


def throttled_ns(path: str) -> int | None:
    """The throttled time of a `cpu.stat`: microseconds in version 2, nanoseconds in version 1."""
    factors = {"throttled_usec": 1000, "throttled_time": 1}
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123
            for line in file:
                name, _, value = line.partition(" ")
                if name in factors:
                    return int(value) * factors[name]
    except (OSError, ValueError):
        pass
    return None


def peak_rss_bytes() -> int:
    """The most memory that this process ever had.

    On Linux a process inherits `ru_maxrss` from its parent, so the peak is read from a file that
    starts anew (proc_pid_status(5)). On macOS `ru_maxrss` is in bytes.
    """
    told = _status_bytes(b"VmHWM:")
    if told is not None:
        return told
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * _KIB


def rss_bytes() -> int | None:
    """The memory that this process has now; None if the platform does not tell."""
    return _status_bytes(b"VmRSS:")


def available_bytes() -> int | None:
    """The memory that is available without swapping (proc_meminfo(5))."""
    return _kib_after(b"MemAvailable:", "/proc/meminfo")


def _status_bytes(field: bytes) -> int | None:
    return _kib_after(field, "/proc/self/status")


def _kib_after(field: bytes, path: str) -> int | None:
    """The bytes on the line of a system file that begins with `field`."""
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(field):
                return int(line.split()[1]) * _KIB
    return None
