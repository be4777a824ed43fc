"""Choose sets of channels so that all blocks lose equally many, as grouped convolutions require.

The channels of a grouped convolution form blocks, and every block has to lose equally many. One
channel can be in blocks of several convolutions; after a channel shuffle, in several blocks of one.
The choice grows by small balanced sets: each starts with the weakest remaining channel and is
completed with channels that make it more even.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Table = npt.NDArray[np.int64]

# The most channels that may balance another one: a few for each block, or the search ends.
MAX_ADDED_PER_BLOCK = 4


def balanced_choice(tables: Sequence[Table], group_of: Table, allowed: Table) -> Table:
    """The indexes of the chosen candidates: at most `allowed` of each group.

    A row of a table says how often a candidate is in each block; the weakest candidates come first.
    """
    left = np.ones(len(group_of), bool)
    allowed = allowed.copy()
    chosen: list[int] = []
    for seed in range(len(group_of)):
        if not left[seed]:
            continue
        added = _balanced_set(seed, tables, group_of, allowed, left)
        if added:
            chosen += added
            left[added] = False
            np.subtract.at(allowed, group_of[added], 1)
    return np.array(sorted(chosen), np.int64)


def _balanced_set(
    seed: int,
    tables: Sequence[Table],
    group_of: Table,
    allowed: Table,
    left: npt.NDArray[np.bool_],
) -> list[int]:
    """A balanced set that contains `seed`; empty if none is found."""
    room = allowed.copy()
    free = left.copy()
    added: list[int] = []
    following = seed
    for _ in range(1 + MAX_ADDED_PER_BLOCK * sum(table.shape[1] for table in tables)):
        if room[group_of[following]] == 0:
            return []
        added.append(following)
        free[following] = False
        room[group_of[following]] -= 1
        totals = [table[added].sum(axis=0) for table in tables]
        lacking = next((i for i, t in enumerate(totals) if t.min() < t.max()), None)
        if lacking is None:
            return added
        block = int(totals[lacking].argmin())
        fitting = np.flatnonzero(free & (tables[lacking][:, block] > 0) & (room[group_of] > 0))
        if not fitting.size:
            return []
        following = int(fitting[_unevenness(fitting, tables, totals).argmin()])
    return []


def _unevenness(fitting: Table, tables: Sequence[Table], totals: Sequence[Table]) -> Table:
    """For each candidate that fits, how much all blocks would then lack compared to the fullest."""
    lack = np.zeros(len(fitting), np.int64)
    for total, table in zip(totals, tables, strict=True):
        after = total + table[fitting]
        lack += after.max(axis=1) * after.shape[1] - after.sum(axis=1)
    return lack
