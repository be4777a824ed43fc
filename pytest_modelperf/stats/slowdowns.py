"""Whether a short run of a model took longer than recorded, by more than drift explains.

A process of one model can take longer than another: sessions differ, machines differ from day to
day, and neighbours share caches. The other models of a run show how the machine differs today from
the days of their recordings, and the processor time of others shows the neighbours. What remains is
a slowdown of the model itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from msgspec import Struct

from pytest_modelperf.stats.spread import percentile_of

# Low percentiles hardly change when other processes hold up some of the inferences.
_LOW_PERCENT = 5.0
# The deviations of the logarithm of a slowdown: that of one process from others of its model, that
# of the machine from the one of the recording, and that of a process for each of its processors
# that others have: a thread that waits holds up the others. docs/parts.md says what they rest on.
_PROCESSES = 0.05
_MACHINES = 0.07
_NEIGHBOURS = 0.15
# The number of deviations that are explained. Each look has to exceed them.
_DEVIATIONS = 2.4


class ShortLook(Struct, frozen=True):
    """A short run: its time as a multiple of the expected one, and how busy the machine was.

    `taken` is how many of its processors others had meanwhile, on average.
    """

    slowdown: float
    taken: float = 0.0


class MachineDrift(Struct, frozen=True):
    """How much longer everything takes than when it was recorded, and how sure that is.

    Both are logarithms. By default both runs were on one machine, one right after the other.
    """

    centre: float = 0.0
    deviation: float = 0.0

    @classmethod
    def of(cls, others: Sequence[float]) -> MachineDrift:
        """The drift since a recording, by the slowdowns of other models.

        It is their median, drawn towards 1 if they are few. Others that got faster explain nothing.
        """
        weight = len(others) / (len(others) + (_PROCESSES / _MACHINES) ** 2)
        centre = weight * math.log(typical_slowdown(others))
        return cls(max(0.0, centre), _MACHINES * math.sqrt(1.0 - weight))

    def explains(self, look: ShortLook) -> bool:
        return look.slowdown <= self.most(look.taken)

    def most(self, taken: float = 0.0) -> float:
        """The largest slowdown that is explained."""
        spread = math.hypot(_PROCESSES, self.deviation, _NEIGHBOURS * max(taken, 0.0))
        return math.exp(self.centre + _DEVIATIONS * spread)


class Weighed(Struct, frozen=True):
    """The smallest slowdown of some looks, and whether drift explains one of them."""

    slowdown: float
    is_explained: bool


def weigh(looks: Iterable[ShortLook], drift: MachineDrift) -> Weighed:
    """Weigh looks, at least one, one after the other: none is taken after one that is explained."""
    taken: list[float] = []
    for look in looks:
        taken.append(look.slowdown)
        if drift.explains(look):
            return Weighed(min(taken), is_explained=True)
    return Weighed(min(taken), is_explained=False)


def low_time(rounds_ns: Iterable[Sequence[int]]) -> float:
    """The time of an inference in the rounds of a process while little disturbs it."""
    return min(percentile_of(sorted(times_ns), _LOW_PERCENT) for times_ns in rounds_ns)


def typical_slowdown(others: Sequence[float]) -> float:
    """The median slowdown of other models; 1 without any."""
    return median(others) if others else 1.0
