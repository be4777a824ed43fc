"""Levels of a series, and the errors that some of them have in common.

A level is measured relative to a baseline, which an earlier measurement linked to the baseline
before. So all levels of a baseline share the errors of the links up to it. The baselines are a
tree: where an older one comes back, its next link begins another branch, and levels on two branches
share the errors only up to the place where these part.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct, field

# The least variance of a measurement, as a share of the typical one of its series.
_LEAST_SHARE = 0.5


def moderated(variances: Sequence[float]) -> list[float]:
    """The variances of the measurements of a series, none of them far below the typical one.

    A few rounds can agree by chance. One such measurement in a hundred would outweigh all its
    neighbours, and be sure of a change that is none. Exact ones stay exact: an unchanged model has
    no error.
    """
    noisy = [each for each in variances if each > 0.0]
    least = _LEAST_SHARE * median(noisy) if noisy else 0.0
    return [max(each, least) if each > 0.0 else each for each in variances]


class LinkedBaselines(Struct, frozen=True):
    """The baselines of a series; number 0 is the first of all.

    `parents` has the number of the baseline that each is linked to, which is smaller, and
    `variances` the error of all links between each and the first one.
    """

    parents: list[int] = field(default_factory=lambda: [0])
    variances: list[float] = field(default_factory=lambda: [0.0])

    def add(self, parent: int, variance: float) -> int:
        """Adds a baseline by a link of this variance, and returns its number."""
        self.parents.append(parent)
        self.variances.append(self.variances[parent] + variance)
        return len(self.parents) - 1

    def variances_from(self, start: int) -> Sequence[float]:
        """The error of the links between this baseline and each one."""
        way = {0, start}
        place = start
        while place:
            place = self.parents[place]
            way.add(place)
        shared: list[float] = []
        for place, (parent, variance) in enumerate(zip(self.parents, self.variances, strict=True)):
            shared.append(variance if place in way else shared[parent])
        whole = self.variances[start]
        pairs = zip(self.variances, shared, strict=True)
        return [whole + variance - 2.0 * common for variance, common in pairs]


class Levels(Struct, frozen=True):
    """The levels of a series, and the errors of their measurements as `variances`.

    `baselines` has the number of the baseline that each was measured against. `are_links` tells
    which points measured a later baseline: theirs is that one, for its error is that of the point.
    """

    values: Sequence[float] = ()
    variances: Sequence[float] = ()
    baselines: Sequence[int] = ()
    are_links: Sequence[bool] = ()
    linked: LinkedBaselines = field(default_factory=LinkedBaselines)

    def at(self, places: Sequence[int]) -> Levels:
        return Levels(
            [self.values[place] for place in places],
            [self.variances[place] for place in places],
            [self.baselines[place] for place in places],
            [self.are_links[place] for place in places],
            self.linked,
        )

    def own_variance(self, place: int) -> float:
        """The error of a point that none of the links has."""
        return 0.0 if self.are_links[place] else self.variances[place]
