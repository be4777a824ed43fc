"""Levels of a series, and the errors that some of them have in common.

A level is measured relative to a baseline, which an earlier measurement linked to the previous
baseline. So all levels of a baseline share the errors of the links up to it. The baselines are a
tree: if an older one comes back, its next link begins another branch. Levels on two branches share
the errors only up to the point at which the branches part.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct, field

# The least variance of a measurement, as a share of the typical one of its series.
_LEAST_SHARE = 0.5


def moderated(variances: Sequence[float]) -> list[float]:
    """Increase variances that are far below the typical one of their series.

    A few rounds can agree by chance. One such measurement in a hundred would outweigh all its
    neighbours, and show a change that does not exist. Exact ones stay exact, because an unchanged
    model has no error.
    """
    noisy = [each for each in variances if each > 0.0]
    least = _LEAST_SHARE * median(noisy) if noisy else 0.0
    return [max(each, least) if each > 0.0 else each for each in variances]


class LinkedBaselines(Struct, frozen=True):
    """The baselines of a series, with the number 0 for the first.

    `parents[i]` is the number of the earlier baseline to which baseline i is linked.
    `variances[i]` is the summed variance of all links from there back to baseline 0.
    """

    parents: list[int] = field(default_factory=lambda: [0])
    variances: list[float] = field(default_factory=lambda: [0.0])

    def add(self, parent: int, variance: float) -> int:
        self.parents.append(parent)
        self.variances.append(self.variances[parent] + variance)
        return len(self.parents) - 1

    def variances_from(self, start: int) -> Sequence[float]:
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

    `baselines` has the number of the baseline that each was measured against. `are_links` marks the
    points that measured a later baseline. Their number is that of the later baseline, because its
    link has the error of the point.
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
        """Return the variance of a point that it does not share with a link."""
        return 0.0 if self.are_links[place] else self.variances[place]
