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

import numpy as np
from msgspec import Struct

from pytest_modelperf.stats.quantiles import t_critical

# Which of the shortest runs others are held against, and how much longer an undisturbed one is.
_SHORT_SHARE = 0.05
_LONGER = 1.25
# The fewest blocks that tell how sure a figure is.
_BLOCKS = 5
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


def make_blocks(sessions: Sequence[int]) -> tuple[slice, ...]:
    """The runs of each session, cut further into equal blocks where there are few sessions.

    `sessions` are their numbers of runs. Sessions differ by more than runs of one session do.
    """
    parts = -(-_BLOCKS // max(1, len(sessions)))
    ends = accumulate(
        len(own)
        for runs in sessions
        for own in np.array_split(range(runs), max(1, min(parts, runs)))
    )
    return tuple(slice(*each) for each in pairwise((0, *ends)))


class CalmTime(Struct, frozen=True):
    """A time without disturbances, and what it would be without one block of its runs, for each."""

    ns: float
    replicates_ns: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        runs: Sequence[float],
        blocks: Sequence[slice],
        typical: Callable[[Sequence[float]], float],
    ) -> CalmTime:
        """The typical time of runs; no replicates if these are not its blocks."""
        if len(blocks) <= 1 or blocks[-1].stop != len(runs):
            return cls(typical(runs))
        left = ((*runs[: block.start], *runs[block.stop :]) for block in blocks)
        return cls(typical(runs), tuple(map(typical, left)))

    def doubts(self, confidence: float) -> tuple[float, ...]:
        """The uncertainty, as a vector whose length is half the interval; empty if unknown.

        The sum of times with the same blocks has the sum of their vectors. The interval is the
        jackknife's (Tukey, "Bias and Confidence in Not-quite Large Samples", 1958).
        """
        count = len(self.replicates_ns)
        if count <= 1:
            return ()
        mean = math.fsum(self.replicates_ns) / count
        critical = float(t_critical((1.0 - confidence) / 2.0, count - 1))
        factor = critical * math.sqrt((count - 1) / count)
        return tuple(factor * (ns - mean) for ns in self.replicates_ns)

    @classmethod
    def sum(cls, times: Sequence[CalmTime]) -> CalmTime:
        replicates = zip(*(time.replicates_ns for time in times), strict=False)
        return cls(math.fsum(time.ns for time in times), tuple(map(math.fsum, replicates)))

    def scaled(self, factor: float) -> CalmTime:
        return CalmTime(self.ns * factor, tuple(factor * ns for ns in self.replicates_ns))

    def beyond(self, other: CalmTime) -> CalmTime:
        """How much longer it is than another, or 0."""
        pairs = zip(self.replicates_ns, other.replicates_ns, strict=False)
        return CalmTime(max(0.0, self.ns - other.ns), tuple(max(0.0, a - b) for a, b in pairs))
