"""Whether a short run of a model took longer than drift since its recording explains.

A process of one model can take longer than another: sessions differ, machines differ from day to
day, and neighbours share caches. The other models of a run show how the machine differs today from
the days of their recordings, and the processor time of other processes shows the neighbours. The
rest is a slowdown of the model itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from pytest_modelperf.stats.records import percentile_of

# Low percentiles hardly change if other processes hold up some of the inferences.
_LOW_PERCENT = 5.0
# Models that run at the same time were seen to slow each other down, by 0 to 20 %.
_COMMON_PERCENT = 25.0
# Standard deviations of the logarithm of a slowdown: between processes of one model; between the
# machine now and at the recording; and of a process for each of its processors that others use,
# because a waiting thread holds up the other threads. docs/statistics.md has the rule.
_PROCESSES = 0.05
_MACHINES = 0.07
_NEIGHBOURS = 0.15
# The number of deviations that drift explains. A slowdown must exceed them in each look.
_DEVIATIONS = 2.4


class ShortLook(Struct, frozen=True):
    """A short run: its time over the expected one, and the processors that others used."""

    slowdown: float
    taken: float = 0.0


class MachineDrift(Struct, frozen=True):
    """The general slowdown since the recording, and its uncertainty.

    Both are logarithms. The default is for two runs on one machine, one right after the other.
    """

    centre: float = 0.0
    deviation: float = 0.0

    @classmethod
    def of(cls, others: Sequence[float]) -> MachineDrift:
        """Return the drift since a recording, by the slowdowns of other models.

        It is their lower quartile, moved towards 1 if they are few. A cause that slows only some of
        them, such as a neighbour that shares a cache, does not slow every model. It is never below
        1, because a speedup of others does not explain a slowdown.
        """
        weight = len(others) / (len(others) + (_PROCESSES / _MACHINES) ** 2)
        common = percentile_of(sorted(others), _COMMON_PERCENT) if others else 1.0
        centre = weight * math.log(common)
        return cls(max(0.0, centre), _MACHINES * math.sqrt(1.0 - weight))

    def explains(self, look: ShortLook) -> bool:
        return look.slowdown <= self.most(look.taken)

    def most(self, taken: float = 0.0) -> float:
        """Return the largest slowdown that drift explains."""
        spread = math.hypot(_PROCESSES, self.deviation, _NEIGHBOURS * max(taken, 0.0))
        return math.exp(self.centre + _DEVIATIONS * spread)


class Weighed(Struct, frozen=True):
    """The smallest slowdown of some looks, and whether drift explains any look."""

    slowdown: float
    is_explained: bool


def weigh(looks: Iterable[ShortLook], drift: MachineDrift) -> Weighed:
    """Weigh one or more looks in turn, up to the first that drift explains."""
    taken: list[float] = []
    for look in looks:
        taken.append(look.slowdown)
        if drift.explains(look):
            return Weighed(min(taken), is_explained=True)
    return Weighed(min(taken), is_explained=False)


def low_time(rounds_ns: Iterable[Sequence[int]]) -> float:
    """Return the time of an inference in the less disturbed moments of a process's rounds."""
    return min(percentile_of(sorted(times_ns), _LOW_PERCENT) for times_ns in rounds_ns)


def typical_slowdown(others: Sequence[float]) -> float:
    """Return the median slowdown of other models, or 1 without any."""
    from statistics import median

    return median(others) if others else 1.0
