"""How much longer each step takes, or how much memory grows with each inference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from pytest_modelperf.stats.quantiles import standard_error, t_critical
from pytest_modelperf.stats.records import Growth, Slope

# The steps are divided into this many ranges, whose medians ignore disturbed inferences.
_RANGES = 16
# The t quantile of fewer rounds makes any interval useless.
_FEWEST_ROUNDS = 3


class SteppedTimes(Struct, frozen=True):
    """The times of a round. The first is that of `first_step`, and step 0 follows the last step."""

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
    goes up and down around one size, what the blocks add varies more than its mean does, so the
    interval is too wide rather than too narrow. Less than a step of the allocator may be hidden, so
    both ends are further out by that step.
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
