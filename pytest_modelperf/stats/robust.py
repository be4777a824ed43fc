"""Figures that a few disturbed times hardly move: undisturbed times, and slopes.

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
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from pytest_modelperf.stats.quantiles import standard_error, t_critical
from pytest_modelperf.stats.records import Growth, Slope

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


# The quantile that represents the shortest runs, and the longest undisturbed run relative to it.
_SHORT_SHARE = 0.05
_LONGER = 1.25
# The t quantile of fewer sessions makes any interval useless.
_FEWEST_SESSIONS = 3
# Runs that differ by at most this number of clock ticks count as equal.
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
    """A time without disturbances, for all sessions and for each session if known."""

    ns: float
    sessions_ns: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        runs: Sequence[float],
        sessions: Sequence[int],
        typical: Callable[[Sequence[float]], float],
    ) -> CalmTime:
        """Return the typical time of the runs of some sessions, in order.

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
        """Return the least of several times of one work, or 0 if none, for each session too."""
        sessions = zip(*(time.sessions_ns for time in times), strict=False)
        return cls(min((time.ns for time in times), default=0.0), tuple(map(min, sessions)))

    def scaled(self, factor: float) -> CalmTime:
        return CalmTime(self.ns * factor, tuple(factor * ns for ns in self.sessions_ns))

    def beyond(self, other: CalmTime) -> CalmTime:
        """Return how much longer this time is than another, or 0 if it is not longer."""
        pairs = zip(self.sessions_ns, other.sessions_ns, strict=False)
        return CalmTime(max(0.0, self.ns - other.ns), tuple(max(0.0, a - b) for a, b in pairs))


# The steps are divided into this many ranges, whose medians ignore disturbed inferences.
_RANGES = 16
# The t quantile of fewer rounds makes any interval useless.
_FEWEST_ROUNDS = 3


class SteppedTimes(Struct, frozen=True):
    """The times of a round, from `first_step` on. Step 0 follows the last step."""

    first_step: int
    times_ns: Sequence[int]


def slope_of(rounds: Sequence[SteppedTimes], steps: int, confidence: float) -> Slope | None:
    """Return the slope of the time over the steps, or None if there are too few rounds.

    It is the least squares slope through the medians of ranges of steps. Each range of a round is a
    point with its number of times as weight. Sessions differ, so the interval is that of the
    jackknife over rounds: Efron and Stein, "The jackknife estimate of variance" (1981).
    """
    if steps < 2 or len(rounds) < _FEWEST_ROUNDS:
        return None
    sums = np.array([_sums(each, steps) for each in rounds])
    total = sums.sum(axis=0)
    left_out = _slope(total - sums)
    if not np.isfinite(left_out).all():
        return None
    value = float(_slope(total))
    count = len(rounds)
    variance = (count - 1) / count * ((left_out - left_out.mean()) ** 2).sum()
    half = float(t_critical((1.0 - confidence) / 2.0, count - 1)) * float(variance) ** 0.5
    return Slope(ns_per_step=value, low=value - half, high=value + half, confidence=confidence)


def _sums(found: SteppedTimes, steps: int) -> list[float]:
    """Return the weight of a round, and its weighted sums of x, t, x*x and x*t."""
    times = np.asarray(found.times_ns, np.float64)
    at = (found.first_step + np.arange(len(times))) % steps
    ranges = at * min(_RANGES, steps) // steps
    sums = np.zeros(5)
    for each in np.unique(ranges):
        inside = ranges == each
        weight, x, t = inside.sum(), at[inside].mean(), np.median(times[inside])
        sums += weight * np.array([1.0, x, t, x * x, x * t])
    return [float(value) for value in sums]


def _slope(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the slopes from rows of such sums, or NaN if all points have the same x."""
    weight, x, t, xx, xt = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes: npt.NDArray[np.float64] = (weight * xt - x * t) / (weight * xx - x * x)
    return slopes


# The allocator of Linux requests 128 KiB more than it needs: mallopt(3), M_TOP_PAD.
_STEP_BYTES = 132 << 10


def growth_of(sizes: Sequence[int], block: int, level: float) -> Growth:
    """Return the growth, from the memory after each block of `block` inferences.

    A leak of a few bytes grows the memory in steps, when the allocator requests more. So the figure
    is the mean of what the blocks add, and not the median, which is 0. Its interval is that of the
    t test, with the error `level` at each end. A single jump has a wide interval. If the memory
    goes up and down around one size, the additions of the blocks vary more than their mean does, so
    the interval is rather too wide. Growth below a step of the allocator may be hidden, so both
    ends are extended by that step.
    """
    added = np.diff(np.array(sizes, dtype=np.float64)) / block
    centre = float(added.mean())
    half = float(t_critical(level, len(added) - 1) * standard_error(added))
    half += _STEP_BYTES / (block * len(added))
    return Growth(
        inferences=block * len(added),
        bytes_per_inference=centre,
        low=centre - half,
        high=centre + half,
        confidence=1.0 - 2.0 * level,
    )
