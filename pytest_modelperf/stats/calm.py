"""The time that something takes while nothing disturbs it, and how sure that is.

Another process can hold up most runs of a slow kernel, and then their median tells how long it
waited. A kernel that nobody holds up takes about the same time in each run. So the time of a kernel
is the median of its shorter runs: those that take little more than the shortest ones. Beside busy
processes it was within 6 % of the quiet median for the larger kernels of four models
(docs/layer-times.md). The median of all runs was up to 2.4 times as long, and fixed
quantiles were too long there or too short on a quiet machine.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from statistics import median, median_grouped

from msgspec import Struct

from pytest_modelperf.stats.quantiles import t_critical

# Which of the shortest runs others are held against, and how much longer an undisturbed one is.
_SHORT_SHARE = 0.05
_LONGER = 1.25
# The t quantile of fewer sessions makes any interval useless.
_FEWEST_SESSIONS = 3
# Runs are told apart by no less than so many steps of the clock.
_TICKS = 2


def calm_time(runs: Sequence[float], tick_ns: int) -> float:
    """The median of the undisturbed runs."""
    ordered = sorted(runs)
    short = ordered[int(_SHORT_SHARE * len(ordered))]
    limit = max(_LONGER * short, short + _TICKS * tick_ns)
    return tick_median(ordered[: bisect_right(ordered, limit)], tick_ns)


def tick_median(runs: Sequence[float], tick_ns: int) -> float:
    """The median; interpolated between the ticks of a coarse clock."""
    return median(runs) if tick_ns <= 1 else max(0.0, median_grouped(runs, tick_ns))


class CalmTime(Struct, frozen=True):
    """A time without disturbances, and the same time in each session that told it."""

    ns: float
    sessions_ns: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        runs: Sequence[float],
        sessions: Sequence[int],
        typical: Callable[[Sequence[float]], float],
    ) -> CalmTime:
        """The typical time of the runs of some sessions, one after the other.

        `sessions` are their numbers of runs. If these are not all the runs, or if the sessions are
        too few to tell how much sessions differ, the time has none.
        """
        if len(sessions) < _FEWEST_SESSIONS or sum(sessions) != len(runs):
            return cls(typical(runs))
        ends = (0, *accumulate(sessions))
        return cls(typical(runs), tuple(typical(runs[a:b]) for a, b in pairwise(ends)))

    def doubts(self, confidence: float) -> tuple[float, ...]:
        """The uncertainty, as a vector whose length is half the interval; empty if unknown.

        The sum of times with the same sessions has the sum of their vectors. The interval is the t
        interval over the sessions, which differ by more than the runs of one session do.
        """
        count = len(self.sessions_ns)
        if count <= 1:
            return ()
        mean = math.fsum(self.sessions_ns) / count
        critical = float(t_critical((1.0 - confidence) / 2.0, count - 1))
        factor = critical / math.sqrt(count * (count - 1))
        return tuple(factor * (ns - mean) for ns in self.sessions_ns)

    @classmethod
    def sum(cls, times: Sequence[CalmTime]) -> CalmTime:
        sessions = zip(*(time.sessions_ns for time in times), strict=False)
        return cls(math.fsum(time.ns for time in times), tuple(map(math.fsum, sessions)))

    @classmethod
    def least(cls, times: Sequence[CalmTime]) -> CalmTime:
        """The least of several times of the same work, as in each session; 0 if there is none."""
        sessions = zip(*(time.sessions_ns for time in times), strict=False)
        return cls(min((time.ns for time in times), default=0.0), tuple(map(min, sessions)))

    def scaled(self, factor: float) -> CalmTime:
        return CalmTime(self.ns * factor, tuple(factor * ns for ns in self.sessions_ns))

    def beyond(self, other: CalmTime) -> CalmTime:
        """How much longer it is than another, or 0."""
        pairs = zip(self.sessions_ns, other.sessions_ns, strict=False)
        return CalmTime(max(0.0, self.ns - other.ns), tuple(max(0.0, a - b) for a, b in pairs))
