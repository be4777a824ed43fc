"""The spread of a list of times, in plain Python: showing a stored profile needs no numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_modelperf.stats.records import RoundSpread

# The percentiles in a chart of many rounds: the extremes, the quartiles, and two between.
_PERCENTS = (0, 5, 25, 50, 75, 95, 100)


def percentile_of(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted times, by linear interpolation as in numpy."""
    place = percent / 100 * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread_of_round(times: Sequence[int]) -> RoundSpread:
    """Return the spread of one round."""
    ordered = sorted(times)
    return RoundSpread(len(ordered), *(percentile_of(ordered, each) for each in _PERCENTS))
