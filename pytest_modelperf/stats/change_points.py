"""The places in a series at which its level changes, given the error of each point.

The cost of a segment is the weighted sum of squares around its mean, which for pure noise with the
known errors is a chi-squared variable. Splitting noise at the best of n - 1 places lowers the cost
by the largest of n - 1 such variables with one degree of freedom each. So the penalty of a change
point is the quantile of that variable at the level of the series divided by n - 1 (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from msgspec import Struct

# The chance that a series of pure noise has any change point.
LEVEL = 0.01
# Smaller ones are within what the twin of a baseline may differ from its model.
_LEAST_STEP = 0.01
# A single point off the others is more often a disturbed run than a step.
_LEAST_POINTS = 2
# The least standard error of a point: an unchanged model has none of its own.
_LEAST_ERROR = 0.001
# A difference below this share of the largest term may be rounding: then the search decides.
_ROUNDING = 1e-9
# Few enough that their pairs with all splits stay in the cache of a core.
_ENDS_AT_ONCE = 48


class LevelChange(Struct, frozen=True):
    """A change of the level at the point of this index, with its size and standard error."""

    index: int
    size: float
    error: float


def find_changes(
    levels: Sequence[float], variances: Sequence[float], shared_variances: Sequence[float]
) -> list[LevelChange]:
    """The changes between levels that hold for at least two points.

    `variances` are the errors of the single points. `shared_variances` are those of the links to
    their baselines, which add up from each baseline to the next.
    """
    if len(levels) < 2 * _LEAST_POINTS:
        return []
    values = np.asarray(levels)
    own = np.maximum(np.asarray(variances), _LEAST_ERROR**2)
    penalty = change_penalty(len(values))
    starts = find_starts(values, 1.0 / own, penalty)
    while starts:
        changes = _fit_changes(values, own, np.asarray(shared_variances), starts)
        weakest = min(changes, key=_score)
        if _score(weakest) > penalty:
            return changes
        starts.remove(weakest.index)
    return []


def change_penalty(points: int, level: float = LEVEL) -> float:
    """The penalty of a change point in a series of so many points."""
    return NormalDist().inv_cdf(1.0 - level / (points - 1) / 2.0) ** 2


def find_starts(
    values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], penalty: float
) -> list[int]:
    """The starts of all segments but the first, in the segmentation of least cost.

    That is the weighted sum of squares around the mean of each segment, and the penalty for each
    start. Optimal partitioning (Jackson et al., 2005): the best segmentation of the first points
    follows from those of fewer points, by the place of the last start. All places are tried at
    once, so a thousand points take some 10 ms. The ends before which no start can be are left out,
    so a thousand points of noise mostly take some 1 ms.
    """
    count = len(values)
    # Around the mean of all, so that the differences below lose no digits.
    centred = values - np.average(values, weights=weights)
    powers = (weights, weights * centred, weights * centred**2)
    weight, first, second = (np.concatenate(([0.0], np.cumsum(each))) for each in powers)
    whole = _count_unsplit(weight, first, penalty)
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    unsplit = slice(_LEAST_POINTS, whole + 1)
    best[unsplit] = second[unsplit] - first[unsplit] ** 2 / weight[unsplit]
    last = np.zeros(count + 1, dtype=int)
    for end in range(whole + 1, count + 1):
        begins = end - _LEAST_POINTS + 1
        moments = first[end] - first[:begins]
        costs = best[:begins] - second[:begins] - moments**2 / (weight[end] - weight[:begins])
        last[end] = np.argmin(costs)
        best[end] = costs[last[end]] + second[end] + penalty
    starts = []
    end = count
    while last[end] > 0:
        end = int(last[end])
        starts.append(end)
    return starts[::-1]


def _count_unsplit(
    weight: npt.NDArray[np.float64], first: npt.NDArray[np.float64], penalty: float
) -> int:
    """A number of points such that so many first points, and any fewer, are one segment.

    `weight` and `first` are the sums of the weights and of the weighted values of the first points.
    If the first s points are one segment, splitting the first e at s lowers the cost by
    (mean(s) - mean(e))**2 / (1 / weight(s) - 1 / weight(e)). No start pays as long as this is below
    the penalty for all s before e. Multiplied out it is a product of matrices, which tries
    all pairs in the time that the search takes for a few ends.
    """
    ends = np.arange(_LEAST_POINTS, len(weight))
    means = first[ends] / weight[ends]
    limits = penalty / weight[ends]
    # More than the terms of both ways are rounded.
    squares = means**2 * (1.0 + _ROUNDING)
    left = np.stack([squares - limits * (1.0 - _ROUNDING), np.ones_like(means), -2.0 * means])
    right = np.stack([np.ones_like(means), squares + limits, means])
    # A segment has several points, so no split is closer to an end, or after it.
    places = np.arange(_ENDS_AT_ONCE)
    too_close = np.where(places > places[:, None] - _LEAST_POINTS, -np.inf, 0.0)
    for begin in range(0, len(ends), _ENDS_AT_ONCE):
        after = min(begin + _ENDS_AT_ONCE, len(ends))
        excess = right[:, begin:after].T @ left[:, :after]
        excess[:, begin:] += too_close[: after - begin, : after - begin]
        # Not the other way round, so that the search has what is no number.
        if not excess.max() < 0.0:
            return int(ends[begin]) - 1
    return len(weight) - 1


def _fit_changes(
    values: npt.NDArray[np.float64],
    variances: npt.NDArray[np.float64],
    shared_variances: npt.NDArray[np.float64],
    starts: Sequence[int],
) -> list[LevelChange]:
    """The sizes of all changes together, by generalized least squares.

    Two points share the errors of the links up to the earlier of their baselines, so a change
    within one baseline is as certain as its points, and one across a link is less certain.
    """
    covariance = np.diag(variances) + np.minimum.outer(shared_variances, shared_variances)
    places = np.arange(len(values))
    design = np.stack([places >= start for start in (0, *starts)], axis=1).astype(float)
    weighted = np.linalg.solve(covariance, design)
    spread = np.linalg.inv(design.T @ weighted)
    sizes = spread @ (weighted.T @ values)
    errors = np.sqrt(np.diag(spread))
    return [
        LevelChange(start, float(sizes[index]), float(errors[index]))
        for index, start in enumerate(starts, 1)
    ]


def _score(change: LevelChange) -> float:
    """How many squared errors large the change is; 0 for one that a twin could account for."""
    if abs(change.size) < math.log1p(_LEAST_STEP):
        return 0.0
    return (change.size / change.error) ** 2
