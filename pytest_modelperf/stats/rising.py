"""Percentiles of two sides that differ by judged ratios and rise on each side.

The ratio of each percentile is judged by itself: the median by pairs of turns without those that
were disturbed, a tail by groups of rounds, each up to the look that decided. So the ratios of two
percentiles can differ by more than the distance between these percentiles on one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from msgspec import Struct


class RatioOfSides(Struct, frozen=True):
    """A percentile of both sides, and the judged ratio of the second side to the first."""

    before_ns: float
    after_ns: float
    ratio: float


def rising_at_ratios(percentiles: Sequence[RatioOfSides]) -> list[RatioOfSides]:
    """Return the figures nearest to these that differ by their ratios and rise on both sides.

    The first percentile is the one that is known best, so it stays where it is. "Nearest" is by
    the squares of logs, which is isotonic regression.
    """
    if not percentiles:
        return []
    before, after, ratios = np.log(
        [(each.before_ns, each.after_ns, each.ratio) for each in percentiles]
    ).T
    # Both sides rise if and only if the middle rises by at least half the change of the log ratio.
    least = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(ratios)) / 2.0)])
    first, *others = ((before + after) / 2.0 - least).tolist()
    middles = np.maximum(first, [first, *_nearest_rising(others)]) + least
    # Rounding must not let one of two equal figures fall below the other.
    sides = (np.maximum.accumulate(np.exp(middles + half)) for half in (-ratios / 2, ratios / 2))
    return [
        RatioOfSides(float(old), float(new), each.ratio)
        for old, new, each in zip(*sides, percentiles, strict=True)
    ]


def _nearest_rising(values: Sequence[float]) -> list[float]:
    """Return the sequence nearest to these values, by squares, in which no value falls.

    It is the minimax formula of isotonic regression: Barlow, Bartholomew, Bremner and Brunk,
    "Statistical inference under order restrictions" (1972), 1.4.
    """
    ends = range(1, len(values) + 1)
    return [
        max(min(fmean(values[start:end]) for end in ends[last:]) for start in range(last + 1))
        for last in range(len(values))
    ]
