"""The places in a series at which its level changes, given the error of each point.

The cost of a segment is the weighted sum of squares around its mean, which for pure noise with the
known errors is a chi-squared variable. Splitting noise at the best of n - 1 places lowers the cost
by the largest of n - 1 such variables with one degree of freedom each. So the penalty of a change
point is the quantile of that variable at the level of the series divided by n - 1 (Bonferroni).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from importlib.util import find_spec
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

# The chance that a series of pure noise has any change point.
LEVEL = 0.01
# Smaller ones are within what the twin of a baseline may differ from its model.
_LEAST_STEP = 0.01
# The least standard error of a point: an unchanged model has none of its own.
LEAST_ERROR = 0.001


def can_find_changes() -> bool:
    """Whether the extra `history` is installed."""
    return find_spec("ruptures") is not None


def find_changes(
    levels: Sequence[float], variances: Sequence[float], shared_variances: Sequence[float]
) -> list[int]:
    """The indexes of the first points with a new level.

    `variances` are the errors of the single points. A change of `shared_variances`, the errors of
    all points of a baseline, adds to the error of a step.
    """
    if len(levels) < 2:
        return []
    import ruptures

    values = np.asarray(levels)
    weights = 1.0 / np.maximum(np.asarray(variances), LEAST_ERROR**2)
    penalty = change_penalty(len(values))
    search = ruptures.Pelt(custom_cost=_weighted_cost(weights), min_size=1, jump=1)
    ends = search.fit(values).predict(pen=penalty)
    return _significant(values, weights, np.asarray(shared_variances), ends[:-1], penalty)


def change_penalty(points: int, level: float = LEVEL) -> float:
    """The penalty of a change point in a series of so many points."""
    return NormalDist().inv_cdf(1.0 - level / (points - 1) / 2.0) ** 2


def _weighted_cost(weights: npt.NDArray[np.float64]) -> object:
    """The weighted sum of squares around the mean, as ruptures asks for it."""
    from ruptures.base import BaseCost

    class WeightedSquares(BaseCost):  # type: ignore[misc]  # it ships no types
        model = "weighted squares"
        min_size = 1

        def fit(self, signal: npt.NDArray[np.float64]) -> WeightedSquares:
            self.signal = signal
            # Around the mean of all, so that the differences below lose no digits.
            values = signal - np.average(signal, weights=weights)
            powers = (weights, weights * values, weights * values**2)
            self._sums = [np.concatenate(([0.0], np.cumsum(each))).tolist() for each in powers]
            return self

        def error(self, start: int, end: int) -> float:
            weight, first, second = (each[end] - each[start] for each in self._sums)
            return float(max(0.0, second - first * first / weight))

    return WeightedSquares()


def _significant(
    values: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    shared: npt.NDArray[np.float64],
    starts: Sequence[int],
    penalty: float,
) -> list[int]:
    """The change points that remain if the errors of links count too; the least ones go first."""
    kept = list(starts)
    while kept:
        bounds = [0, *kept, len(values)]
        parts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        means = np.array([np.average(values[part], weights=weights[part]) for part in parts])
        errors = np.array([1.0 / weights[part].sum() for part in parts])
        links = np.array([shared[part].mean() for part in parts])
        steps = np.abs(np.diff(means))
        variances = errors[1:] + errors[:-1] + np.abs(np.diff(links))
        scores = np.where(steps < np.log1p(_LEAST_STEP), 0.0, steps**2 / variances)
        weakest = int(np.argmin(scores))
        if scores[weakest] > penalty:
            break
        del kept[weakest]
    return kept
