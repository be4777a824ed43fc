"""The undisturbed time of a kernel or other work, and its uncertainty.

Other processes can hold up most runs of a slow kernel, and then the median of its runs includes the
waiting. A kernel that is not held up takes about the same time in each run. So the time of a kernel
is the median of its shorter runs: those that take little more than the shortest ones. Next to busy
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

# The quantile that represents the shortest runs, and how many times as long an undisturbed run is
# at most.
_SHORT_SHARE = 0.05
_LONGER = 1.25
# The t quantile of fewer sessions makes any interval useless.
_FEWEST_SESSIONS = 3
# Runs that differ by at most this many ticks of the clock are taken to be equal.
_TICKS = 2


def calm_time(runs: Sequence[float], tick_ns: int) -> float:
    """Return the median of the undisturbed runs."""
    ordered = sorted(runs)
    short = ordered[int(_SHORT_SHARE * len(ordered))]
    limit = max(_LONGER * short, short + _TICKS * tick_ns)
    return tick_median(ordered[: bisect_right(ordered, limit)], tick_ns)


def tick_median(runs: Sequence[float], tick_ns: int) -> float:
    """Return the median, interpolated between the ticks of a coarse clock."""
    return median(runs) if tick_ns <= 1 else max(0.0, median_grouped(runs, tick_ns))


class CalmTime(Struct, frozen=True):
    """A time without disturbances, and the same time in each session, if known."""

    ns: float
    sessions_ns: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        runs: Sequence[float],
        sessions: Sequence[int],
        typical: Callable[[Sequence[float]], float],
    ) -> CalmTime:
        """Return the typical time of runs, which are those of some sessions in order.

        `sessions` are their numbers of runs. If these do not add up to all runs, or if there are
        too few sessions to show how much sessions differ, the result has no times of sessions.
        """
        if len(sessions) < _FEWEST_SESSIONS or sum(sessions) != len(runs):
            return cls(typical(runs))
        ends = (0, *accumulate(sessions))
        return cls(typical(runs), tuple(typical(runs[a:b]) for a, b in pairwise(ends)))

    def doubts(self, confidence: float) -> tuple[float, ...]:
        """Return the uncertainty, as a vector whose length is half the interval, if known.

        The sum of times of the same sessions has the sum of their vectors. The interval is the t
        interval over the sessions, because sessions differ by more than the runs of one session.
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
        """Return the least of several times of one work (0 if none), in each session too."""
        sessions = zip(*(time.sessions_ns for time in times), strict=False)
        return cls(min((time.ns for time in times), default=0.0), tuple(map(min, sessions)))

    def scaled(self, factor: float) -> CalmTime:
        return CalmTime(self.ns * factor, tuple(factor * ns for ns in self.sessions_ns))

    def beyond(self, other: CalmTime) -> CalmTime:
        """Return how much longer this time is than another, or 0 if it is not longer."""
        pairs = zip(self.sessions_ns, other.sessions_ns, strict=False)
        return CalmTime(max(0.0, self.ns - other.ns), tuple(max(0.0, a - b) for a, b in pairs))
