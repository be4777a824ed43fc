"""What else a machine does while something is measured: processes that keep its cores busy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

QUIET, TAKEN, BUSY = "quiet", "40 % taken", "both busy"
LOADS = (QUIET, TAKEN, BUSY)
# What the neighbours do, and on which of two cores.
NEIGHBOURS: Mapping[str, tuple[tuple[str, int], ...]] = {
    QUIET: (),
    TAKEN: (("share", 0), ("share", 1)),
    BUSY: (("busy", 0), ("busy", 1)),
    "a core busy": (("busy", 0),),
    "memory": (("memory", 1),),
    "bursts": (("bursts", 0), ("bursts", 1)),
}
_SHARE = 0.4

_NEIGHBOUR = """
import os, random, sys, time
kind, core, share = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
choose = random.Random(sys.argv[4])
os.sched_setaffinity(0, {core})
if kind == "memory":
    import numpy
    here = numpy.ones(1 << 24)
    there = numpy.empty_like(here)
parent = os.getppid()
while os.getppid() == parent:
    if kind == "memory":
        numpy.copyto(there, here)
        continue
    seconds = 0.1 * share if kind == "share" else choose.uniform(0.05, 0.5)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    if kind == "share":
        time.sleep(0.1 * (1 - share))
    elif kind == "bursts":
        time.sleep(choose.uniform(0.05, 0.5))
"""


@contextmanager
def loaded(load: str, seed: int = 0, without: str | None = None) -> Iterator[None]:
    """Start the neighbours of a load, which end with the context.

    They do not get the environment variable `without`.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    environment = {name: value for name, value in os.environ.items() if name != without}
    started = []
    try:
        for kind, place in NEIGHBOURS[load]:
            given = (kind, str(cores[place % len(cores)]), str(_SHARE), f"{seed} {place}")
            command = [sys.executable, "-c", _NEIGHBOUR, *given]
            started.append(subprocess.Popen(command, env=environment))
        yield
    finally:
        for neighbour in started:
            neighbour.kill()
            neighbour.wait()
