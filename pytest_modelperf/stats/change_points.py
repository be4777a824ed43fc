"""The places in a series at which its level changes, given the error of each point.

The cost of a segment is the weighted sum of squares around its mean. For pure noise with the known
errors, it is a chi-squared variable. Splitting noise at the best of n - 1 places lowers the cost by
the largest of n - 1 such variables with one degree of freedom each. So the penalty of a change
point is the quantile of that variable at the level of the series divided by n - 1 (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from pytest_modelperf.stats.linked_levels import Levels, LinkedBaselines

# The chance that a series of pure noise has any change point.
LEVEL = 0.01
# A twin may differ from its model by this much, so smaller changes do not count.
_LEAST_STEP = 0.01
# A single differing point is more often a disturbed run than a step.
_LEAST_POINTS = 2
# The least standard error of a point, because an unchanged model has no error of its own.
_LEAST_ERROR = 0.001
# A block is divided into `_BLOCKS_IN_ONE`. Noise leaves fewer than `_MOST_PAIRS` pairs of blocks
# open for each point of the series.
_BLOCKS_IN_ONE = 4
_MOST_PAIRS = 4


class LevelChange(Struct, frozen=True):
    """A change of the level at the point of this index, with its size and standard error."""

    index: int
    size: float
    error: float


def find_changes(levels: Levels) -> list[LevelChange]:
    """Find the changes between levels that hold for at least two points."""
    values = np.asarray(levels.values)
    if len(values) < 2 * _LEAST_POINTS:
        return []
    measured = np.maximum(np.asarray(levels.variances), _LEAST_ERROR**2)
    penalty = change_penalty(len(values))
    starts = find_starts(values, 1.0 / measured, penalty)
    if not starts:
        return []
    own = np.where(np.asarray(levels.are_links), _LEAST_ERROR**2, measured)
    baselines = np.asarray(levels.baselines)
    fitted = _fit_changes(values, own, baselines, _shared_variances(levels.linked), starts)
    while fitted.starts:
        scores = fitted.scores
        weakest = int(scores.argmin())
        if scores[weakest] > penalty:
            break
        fitted = fitted.without(weakest)
    return fitted.changes


def change_penalty(points: int, level: float = LEVEL) -> float:
    return NormalDist().inv_cdf(1.0 - level / (points - 1) / 2.0) ** 2


class _Prefixes(Struct, frozen=True):
    """All beginnings of a series that are long enough for a segment.

    `means` are their weighted means, and `rooms` the reciprocals of the sums of their weights.
    """

    means: npt.NDArray[np.float64]
    rooms: npt.NDArray[np.float64]

    def gains(
        self, starts: npt.NDArray[np.intp] | slice | int, ends: npt.NDArray[np.intp] | slice | int
    ) -> npt.NDArray[np.float64]:
        """Return the savings of two segments over one, split at the starts, up to the ends."""
        squares = (self.means[starts] - self.means[ends]) ** 2
        return np.asarray(squares / (self.rooms[starts] - self.rooms[ends]))


def find_starts(
    values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], penalty: float
) -> list[int]:
    """Return the starts of all segments but the first, in the segmentation of least cost.

    The cost is the weighted sum of squares around the mean of each segment, plus the penalty for
    each start. Optimal partitioning (Jackson et al., 2005): the best segmentation of the first
    points follows from those of fewer points, by the place of the last start. If few splits of one
    segment pay, only these and the ends that have one are tried, so a thousand points of noise
    take less than 1 ms. Otherwise all places are tried at once, which takes some 10 ms.
    """
    # Centre the values, so that the differences below lose no digits.
    centred = values - np.average(values, weights=weights)
    rooms = 1.0 / np.cumsum(weights)
    whole = slice(_LEAST_POINTS - 1, None)
    prefixes = _Prefixes((np.cumsum(weights * centred) * rooms)[whole], rooms[whole])
    count = len(prefixes.means)
    known, starts, ends = _find_paying(prefixes, penalty)
    # The savings of the best segmentation up to each end over one segment, and its last start.
    saved = np.zeros(count)
    last = np.full(count, -1)
    gains = prefixes.gains(starts, ends) - penalty
    # Among the splits with the same end, the last in this order is the best.
    order = np.lexsort((gains, ends))
    saved[ends[order]] = gains[order]
    last[ends[order]] = starts[order]
    for end in range(int(ends.min(initial=known)), known):
        if saved[end] > 0.0:
            later = slice(end + _LEAST_POINTS, known)
            gains = saved[end] + prefixes.gains(end, later) - penalty
            is_better = gains > saved[later]
            saved[later][is_better] = gains[is_better]
            last[later][is_better] = end
    for end in range(max(known, _LEAST_POINTS), count):
        before = slice(0, end - _LEAST_POINTS + 1)
        gains = saved[before] + prefixes.gains(before, end)
        best = gains.argmax()
        if gains[best] > penalty:
            saved[end], last[end] = gains[best] - penalty, best
    found = []
    end = int(last[-1])
    while end >= 0:
        found.append(end + _LEAST_POINTS)
        end = int(last[end])
    return found[::-1]


class _Splits(NamedTuple):
    """All splits of one segment that pay, with ends before `known`."""

    known: int
    starts: npt.NDArray[np.intp]
    ends: npt.NDArray[np.intp]


class _Blocks(Struct, frozen=True):
    """Blocks of successive ends, each with its extreme means and rooms (see `_Prefixes`)."""

    largest: npt.NDArray[np.float64]
    smallest: npt.NDArray[np.float64]
    most_room: npt.NDArray[np.float64]
    least_room: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.largest)

    def merged(self) -> _Blocks:
        begins = np.arange(0, len(self), _BLOCKS_IN_ONE)
        return _Blocks(
            np.maximum.reduceat(self.largest, begins),
            np.minimum.reduceat(self.smallest, begins),
            self.most_room[begins],
            np.minimum.reduceat(self.least_room, begins),
        )

    def may_pay(
        self, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp], penalty: float
    ) -> npt.NDArray[np.bool_]:
        """Return for each pair of blocks whether a split in one may pay at an end in the other."""
        above = self.largest[starts] - self.smallest[ends]
        below = self.largest[ends] - self.smallest[starts]
        most = np.maximum(above, below) ** 2
        return most > penalty * (self.least_room[starts] - self.most_room[ends])


def _find_paying(prefixes: _Prefixes, penalty: float) -> _Splits:
    """Find the splits of one segment that save more than the penalty.

    Branch and bound: the extremes of two blocks can rule out that a split in one pays at an end in
    the other. The remaining pairs of blocks are divided. In noise, few pairs of points remain.
    """
    means, rooms = prefixes.means, prefixes.rooms
    levels = [_Blocks(means, means, rooms, rooms)]
    while len(levels[-1]) > _BLOCKS_IN_ONE:
        levels.append(levels[-1].merged())
    parts = np.arange(_BLOCKS_IN_ONE)
    starts, ends = np.zeros((2, 1), dtype=np.intp)
    known = len(means)
    most = _MOST_PAIRS * known
    for height in reversed(range(len(levels))):
        blocks = levels[height]
        starts = np.repeat(_BLOCKS_IN_ONE * starts[:, None] + parts, _BLOCKS_IN_ONE, axis=1).ravel()
        ends = np.tile(_BLOCKS_IN_ONE * ends[:, None] + parts, _BLOCKS_IN_ONE).ravel()
        # A segment has at least this number of points between its start and its end.
        exists = (starts <= ends - (0 if height else _LEAST_POINTS)) & (ends < len(blocks))
        starts, ends = starts[exists], ends[exists]
        is_open = blocks.may_pay(starts, ends, penalty)
        starts, ends = starts[is_open], ends[is_open]
        if len(ends) > most:
            first_dropped = int(np.partition(ends, most)[most])
            known = min(known, first_dropped * _BLOCKS_IN_ONE**height)
            is_kept = ends < first_dropped
            starts, ends = starts[is_kept], ends[is_kept]
    return _Splits(known, starts, ends)


def _shared_variances(linked: LinkedBaselines) -> npt.NDArray[np.float64]:
    """Return the error of the links that each pair of baselines shares."""
    shared = np.zeros((len(linked.parents), len(linked.parents)))
    for place, (parent, variance) in enumerate(zip(linked.parents, linked.variances, strict=True)):
        shared[place, :place] = shared[:place, place] = shared[parent, :place]
        shared[place, place] = variance
    return shared


class _FittedChanges(Struct, frozen=True):
    """The sizes of the changes at these starts, and the covariance of their errors."""

    starts: list[int]
    sizes: npt.NDArray[np.float64]
    covariance: npt.NDArray[np.float64]

    @property
    def changes(self) -> list[LevelChange]:
        errors = np.sqrt(np.diag(self.covariance)).tolist()
        return list(map(LevelChange, self.starts, self.sizes.tolist(), errors))

    @property
    def scores(self) -> npt.NDArray[np.float64]:
        """The squared ratio of each change to its error, or 0 if a twin could account for it."""
        is_small = np.abs(self.sizes) < math.log1p(_LEAST_STEP)
        return np.where(is_small, 0.0, self.sizes**2 / np.diag(self.covariance))

    def without(self, place: int) -> _FittedChanges:
        """Return the fit without a change at this place.

        The other changes get the sizes that are expected if the size of this one is 0.
        """
        kept = np.arange(len(self.starts)) != place
        with_it = self.covariance[kept, place]
        follows = with_it / self.covariance[place, place]
        return _FittedChanges(
            [start for start, is_kept in zip(self.starts, kept, strict=True) if is_kept],
            self.sizes[kept] - follows * self.sizes[place],
            self.covariance[np.ix_(kept, kept)] - np.outer(follows, with_it),
        )


def _fit_changes(
    values: npt.NDArray[np.float64],
    variances: npt.NDArray[np.float64],
    baselines: npt.NDArray[np.intp],
    shared: npt.NDArray[np.float64],
    starts: Sequence[int],
) -> _FittedChanges:
    """Fit the sizes of all changes together, by generalized least squares.

    Two points share the errors of the links that their baselines have in common, so a change within
    one baseline is as certain as its points, and one across a link is less certain. Points of one
    segment and one baseline count as their mean, which has the same information about the levels.
    """
    relinked = np.flatnonzero(np.diff(baselines)) + 1
    begins = np.union1d(relinked, [0, *starts])
    weights = np.add.reduceat(1.0 / variances, begins)
    means = np.add.reduceat(values / variances, begins) / weights
    of_groups = baselines[begins]
    covariance = np.diag(1.0 / weights) + shared[np.ix_(of_groups, of_groups)]
    design = np.stack([begins >= start for start in (0, *starts)], axis=1).astype(float)
    weighted = np.linalg.solve(covariance, design)
    spread = np.linalg.inv(design.T @ weighted)
    sizes = spread @ (weighted.T @ means)
    # The first is the level before all changes.
    return _FittedChanges(list(starts), sizes[1:], spread[1:, 1:])
