"""Counters of the system: the time that others took from the model.

Its source is sent to a worker with the agent's, so it needs only the standard library.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from pytest_modelperf.systems.process import OWN_PROCESS

_NS_PER_S = 1_000_000_000


class Meter:
    """The counters of the system around a block; a counter that the platform lacks is None."""

    def __init__(self, cgroup_files: tuple[str, ...], processors: Sequence[int] | None) -> None:
        self._cgroup_files = cgroup_files
        self._processors = None if processors is None else frozenset(processors)

    def read(self) -> dict[str, int | None]:
        """Return the counters now; the key of a cgroup's halted time is the path of its file."""
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
