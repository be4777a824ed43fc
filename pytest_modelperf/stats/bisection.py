"""The error levels of the comparisons of a bisect, and the ratio that tells its two halves apart.

An answer is wrong if one of its comparisons is. How many comparisons a search makes is not known
before: one that shows nothing is replaced by another. So a part of the level belongs to the
comparisons that a search needs if each shows something, and the rest is a series for all others,
whose sum is bounded.
"""

from __future__ import annotations

import math

from msgspec import Struct

from pytest_modelperf.stats.looks import share_level

# The part of the level for comparisons beyond the planned ones.
_RESERVE = 0.1


class SearchLevels(Struct, frozen=True):
    """The error levels of the comparisons of one search among so many versions."""

    versions: int
    level: float

    @property
    def planned(self) -> int:
        """The comparisons if each shows something: both ends, the halvings, and the found pair."""
        return 2 + math.ceil(math.log2(max(self.versions - 1, 1)))

    def of(self, number: int) -> float:
        """The level of the comparison with this number, from 1."""
        beyond = number - self.planned
        if beyond <= 0:
            return share_level(self.planned, (1.0 - _RESERVE) * self.level)
        return _RESERVE * self.level * series_share(beyond)


def series_share(number: int) -> float:
    """The share of the member with this number, from 1, of a series whose sum is 1.

    These are Euler's terms of the inverse squares.
    """
    return 6.0 / (math.pi * number) ** 2


def middle_change(ratio: float) -> float:
    """The relative change halfway to this ratio on a logarithmic scale."""
    return math.sqrt(ratio) - 1.0
