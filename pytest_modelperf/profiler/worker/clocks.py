"""Find how finely the clocks of a process tick, by reading them while the process works.

Its source is sent to a worker with the agent's, so it needs only the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Clock = Callable[[], int]

# The fastest inferences take some microseconds, so a clock with this tick resolves them.
FINE_NS = 100
# The steps of a clock that are enough to find its tick.
_ENOUGH_STEPS = 100
# The time until a clock as coarse as 10 ms has made several steps; and the time after which a clock
# without any step counts as stopped.
_COARSE_NS = 100_000_000
_STANDING_NS = 1_000_000_000
# One reading takes less than a microsecond, or a few in a sandbox.
_MOST_READINGS = 2_000_000


class ClocksError(RuntimeError):
    """The clocks of this process contradict each other, so its times are meaningless."""


class Clocks:
    """The ticks of the two clocks of a process, in nanoseconds.

    `knows_processor_time` means that the process clock is fine enough for single inferences. The
    system reads the waits of threads from the same source.
    """

    def __init__(self, wall_tick_ns: int, process_tick_ns: int) -> None:
        self.wall_tick_ns = wall_tick_ns
        self.process_tick_ns = process_tick_ns
        self.knows_processor_time = process_tick_ns <= FINE_NS


class _Readings:
    """The steps of a clock between readings that follow each other directly."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_ns = self._last_ns = clock()
        self._shortest_ns = self._divisor_ns = 0
        self.steps = 0
        self._has_stood = False
        self.goes_back = False

    def read(self) -> None:
        now = self._clock()
        step, self._last_ns = now - self._last_ns, now
        if step > 0:
            self.steps += 1
            self._shortest_ns = min(self._shortest_ns or step, step)
            self._divisor_ns = math.gcd(self._divisor_ns, step)
        elif step == 0:
            self._has_stood = True
        else:
            self.goes_back = True

    @property
    def passed_ns(self) -> int:
        return self._last_ns - self._begun_ns

    @property
    def tick_ns(self) -> int:
        # Two readings of a clock that ticks faster than it is read are never equal.
        return self._shortest_ns if self._has_stood else self._divisor_ns


def measure_clocks(wall_clock: Clock, process_clock: Clock) -> Clocks:
    """Return the ticks of both clocks. Raise ClocksError if one stops or goes back."""
    wall, process = _Readings(wall_clock), _Readings(process_clock)
    for _ in range(_MOST_READINGS):
        wall.read()
        process.read()
        fewest = min(wall.steps, process.steps)
        passed_ns = max(wall.passed_ns, process.passed_ns)
        if (
            fewest >= _ENOUGH_STEPS
            or (fewest > 0 and passed_ns > _COARSE_NS)
            or passed_ns > _STANDING_NS
            or wall.goes_back
            or process.goes_back
        ):
            break
    if min(wall.steps, process.steps) == 0 or wall.goes_back or process.goes_back:
        wall_ms, process_ms = wall.passed_ns / 1e6, process.passed_ns / 1e6
        raise ClocksError(
            "while the worker computed without a pause, the wall clock moved by "
            f"{wall_ms:.3f} ms and the process clock by {process_ms:.3f} ms"
        )
    return Clocks(wall.tick_ns, process.tick_ns)
