"""Where the boxes of a picture stand: in rows, from the inputs of the model down, and in lanes.

A box stands in the row below the last box that feeds it. It goes straight down from one of these if
that lane is free, else into the nearest free lane. A tensor that is read further below goes down
in a lane of its own, which all of its readers share, so no line crosses a box. The time that this
takes is linear in the number of boxes and lines, and it needs no recursion.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import count

from msgspec import Struct


class Layout(Struct, frozen=True):
    """The row and the lane of each box, and the lane of its output where that goes further down."""

    rows: tuple[int, ...]
    lanes: tuple[int, ...]
    ways: tuple[int | None, ...]


def lay_out(inputs: Sequence[Sequence[int]]) -> Layout:
    """The places of boxes that are fed by those at `inputs`, which must form no cycle."""
    readers: list[list[int]] = [[] for _ in inputs]
    for box, feeding in enumerate(inputs):
        for feeder in feeding:
            readers[feeder].append(box)
    order = _in_order(inputs, readers)
    rows = _rows(inputs, readers, order)
    return _Lanes(inputs, readers, rows, _depths(readers, order)).layout()


def _in_order(inputs: Sequence[Sequence[int]], readers: Sequence[Sequence[int]]) -> list[int]:
    """The boxes, each after those that feed it, else in their own order."""
    waits = [len(feeding) for feeding in inputs]
    ready = [box for box, missing in enumerate(waits) if not missing]
    heapify(ready)
    order = []
    while ready:
        box = heappop(ready)
        order.append(box)
        for reader in readers[box]:
            waits[reader] -= 1
            if not waits[reader]:
                heappush(ready, reader)
    if len(order) != len(inputs):
        raise ValueError("the graph has a cycle")
    return order


def _rows(
    inputs: Sequence[Sequence[int]], readers: Sequence[Sequence[int]], order: Sequence[int]
) -> list[int]:
    """As far up as possible; what feeds only one box, and nothing but that, stands near to it."""
    rows = [0] * len(inputs)
    is_apart = [False] * len(inputs)
    for box in order:
        rows[box] = max((rows[feeder] + 1 for feeder in inputs[box]), default=0)
        is_apart[box] = all(
            is_apart[feeder] and len(readers[feeder]) == 1 for feeder in inputs[box]
        )
    for box in reversed(order):
        if is_apart[box] and readers[box]:
            rows[box] = min(rows[reader] for reader in readers[box]) - 1
    # A box without company may have left its row.
    kept = {row: place for place, row in enumerate(sorted(set(rows)))}
    return [kept[row] for row in rows]


def _depths(readers: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """How many boxes follow each one on the longest way down."""
    depths = [0] * len(readers)
    for box in reversed(order):
        depths[box] = max((depths[reader] + 1 for reader in readers[box]), default=0)
    return depths


class _Lanes:
    """The lanes, given away row by row."""

    def __init__(
        self,
        inputs: Sequence[Sequence[int]],
        readers: Sequence[Sequence[int]],
        rows: Sequence[int],
        depths: Sequence[int],
    ) -> None:
        self._inputs = inputs
        self._rows = rows
        self._lanes = [0] * len(rows)
        self._ways: list[int | None] = [None] * len(rows)
        self._ends = [max((rows[r] for r in own), default=0) for own in readers]
        self._in_row: dict[int, list[int]] = defaultdict(list)
        for box in sorted(range(len(rows)), key=lambda box: -depths[box]):
            self._in_row[rows[box]].append(box)

    def layout(self) -> Layout:
        # The lanes that lead on through the row at hand.
        held: set[int] = set()
        ending: dict[int, list[int]] = defaultdict(list)
        for row in range(len(self._in_row)):
            held.difference_update(ending.pop(row, ()))
            taken = _Taken(held)
            for box in self._in_row[row]:
                self._lanes[box] = taken.nearest(self._wanted(box, row))
            for box in self._in_row[row - 1] if row else ():
                if self._ends[box] > row:
                    way = self._ways[box] = taken.nearest(self._lanes[box])
                    held.add(way)
                    ending[self._ends[box]].append(way)
        left = min(self._lanes, default=0)
        left = min([left, *(way for way in self._ways if way is not None)])
        return Layout(
            tuple(self._rows),
            tuple(lane - left for lane in self._lanes),
            tuple(None if way is None else way - left for way in self._ways),
        )

    def _wanted(self, box: int, row: int) -> int:
        """The lane of an input, the one nearest to the middle."""
        above = (self._lane_above(feeder, row) for feeder in self._inputs[box])
        return min(above, key=abs, default=0)

    def _lane_above(self, feeder: int, row: int) -> int:
        way = self._ways[feeder]
        return self._lanes[feeder] if way is None or self._rows[feeder] == row - 1 else way


class _Taken:
    """The lanes of one row that are taken."""

    def __init__(self, held: set[int]) -> None:
        self._lanes = set(held)
        # Where the search for a free lane goes on, by the lane that is wanted.
        self._steps: dict[int, int] = {}

    def nearest(self, wanted: int) -> int:
        """Take the free lane that is nearest to the wanted one, of two the right one."""
        for step in count(self._steps.get(wanted, 0)):
            lane = wanted + (step + 1) // 2 * (1 if step % 2 else -1)
            if lane not in self._lanes:
                self._steps[wanted] = step
                self._lanes.add(lane)
                return lane
        raise AssertionError
