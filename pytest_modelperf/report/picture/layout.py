"""The places of a picture's boxes. Each stretch without a change is folded into one box."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import count

from msgspec import Struct

from pytest_modelperf.files.documents import Count, Figure, Positive
from pytest_modelperf.report.picture.records import Box, BoxState, Picture


class Layout(Struct, frozen=True):
    """The row and the lane of each box, and the lane of any output that passes the next row."""

    rows: tuple[int, ...]
    lanes: tuple[int, ...]
    ways: tuple[int | None, ...]


def lay_out(inputs: Sequence[Sequence[int]]) -> Layout:
    """Return the places of boxes. `inputs` has the boxes that feed each one, without a cycle."""
    readers: list[list[int]] = [[] for _ in inputs]
    for box, feeding in enumerate(inputs):
        for feeder in feeding:
            readers[feeder].append(box)
    order = _in_order(inputs, readers)
    rows = _rows(inputs, readers, order)
    return _Lanes(inputs, readers, rows, _depths(readers, order)).layout()


def _in_order(inputs: Sequence[Sequence[int]], readers: Sequence[Sequence[int]]) -> list[int]:
    """Return the boxes in their own order, but each after those that feed it."""
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
    """Return the row of each box, as far up as possible.

    A box that feeds only one other, and is itself fed only by such boxes, is placed close to its
    reader.
    """
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
    # A box that was alone in its row may have moved away and left the row empty.
    kept = {row: place for place, row in enumerate(sorted(set(rows)))}
    return [kept[row] for row in rows]


def _depths(readers: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """Return how many boxes follow each box on the longest path down."""
    depths = [0] * len(readers)
    for box in reversed(order):
        depths[box] = max((depths[reader] + 1 for reader in readers[box]), default=0)
    return depths


class _Lanes:
    """The lanes of all boxes, assigned row by row."""

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
        # The lanes of lines that run through the current row.
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
        """Return the lane of the input that is nearest to the middle."""
        above = (self._lane_above(feeder, row) for feeder in self._inputs[box])
        return min(above, key=abs, default=0)

    def _lane_above(self, feeder: int, row: int) -> int:
        way = self._ways[feeder]
        return self._lanes[feeder] if way is None or self._rows[feeder] == row - 1 else way


class _Taken:
    """The taken lanes of one row."""

    def __init__(self, held: set[int]) -> None:
        self._lanes = set(held)
        # The step at which the search for a free lane continues, by the wanted lane.
        self._steps: dict[int, int] = {}

    def nearest(self, wanted: int) -> int:
        """Take the free lane that is nearest to the wanted one, or the right one of two."""
        for step in count(self._steps.get(wanted, 0)):
            lane = wanted + (step + 1) // 2 * (1 if step % 2 else -1)
            if lane not in self._lanes:
                self._steps[wanted] = step
                self._lanes.add(lane)
                return lane
        raise AssertionError


# -- find the stretches of a picture that become one box


# A picture of one model with at most this number of kernels is shown whole.
_FEW = 150
# In a larger picture, this number of kernels with the largest figures stays visible.
_KEPT = 60
# Fewer kernels than this are not worth a fold.
_LEAST = 3


# Compared by identity: a fold can have thousands of boxes, and comparing them takes long.
class Item(Struct, frozen=True, eq=False):
    """One visible box: a kernel, or the kernels of a fold."""

    lane: int
    line: int
    boxes: tuple[int, ...]
    is_fold: bool


def items_of(picture: Picture, layout: Layout) -> list[Item]:
    fold_of = {row: rows for rows in fold(picture, layout) for row in rows}
    tops = [fold_of[row].start if row in fold_of else row for row in layout.rows]
    lines = {top: line for line, top in enumerate(sorted(set(tops)))}
    shown_together: dict[object, list[int]] = defaultdict(list)
    for box, row in enumerate(layout.rows):
        shown_together[fold_of.get(row, box)].append(box)
    items: dict[int, Item] = {}
    for boxes in shown_together.values():
        first = boxes[0]
        is_fold = layout.rows[first] in fold_of
        item = Item(layout.lanes[first], lines[tops[first]], tuple(boxes), is_fold)
        items.update(dict.fromkeys(boxes, item))
    return [items[box] for box in range(len(tops))]


def fold(picture: Picture, layout: Layout) -> tuple[range, ...]:
    """Return the rows of each stretch to fold, from the top down."""
    boxes: dict[int, list[int]] = defaultdict(list)
    for box, row in enumerate(layout.rows):
        boxes[row].append(box)
    kept = {layout.rows[box] for box in _kept(picture)}
    if picture.is_pair:
        # A change is shown with its neighbours.
        kept |= {row + step for row in kept for step in (-1, 1)}
    found = []
    first = 0
    for row in range(len(boxes) + 1):
        if row < len(boxes) and row not in kept:
            continue
        if row - first > 1 and sum(len(boxes[each]) for each in range(first, row)) >= _LEAST:
            found.append(range(first, row))
        first = row + 1
    return tuple(found)


def _kept(picture: Picture) -> Sequence[int]:
    """Return the boxes that are not folded."""
    boxes = picture.boxes
    if picture.is_pair:
        return [at for at, box in enumerate(boxes) if not box.is_still]
    if len(boxes) <= _FEW:
        return range(len(boxes))
    return sorted(range(len(boxes)), key=lambda at: -(boxes[at].values[0] or 0.0))[:_KEPT]


# -- the visible boxes of a picture


class SeenBox(Struct, frozen=True, kw_only=True):
    """A visible box: one kernel, or `kernels` of them without a name.

    `change_ms` is how much longer a kernel takes now, or None if that is unknown or may be chance.
    `inputs` are the indexes of the boxes that feed it.
    """

    op_type: str
    name: str
    kernels: Positive = 1
    change_ms: Figure | None = None
    state: BoxState = BoxState.SAME
    inputs: tuple[Count, ...] = ()


def seen_boxes(picture: Picture) -> tuple[SeenBox, ...]:
    """Return the visible boxes from the top down."""
    boxes = picture.boxes
    if not boxes:
        return ()
    items = dict.fromkeys(items_of(picture, lay_out([box.inputs for box in boxes])))
    ordered = sorted(items, key=lambda item: item.line)
    place = {at: index for index, item in enumerate(ordered) for at in item.boxes}
    found = []
    for index, item in enumerate(ordered):
        feeders = {place[feeder] for at in item.boxes for feeder in boxes[at].inputs}
        found.append(_seen([boxes[at] for at in item.boxes], feeders - {index}))
    return tuple(found)


def _seen(own: list[Box], inputs: set[int]) -> SeenBox:
    if len(own) > 1:
        return SeenBox(op_type="", name="", kernels=len(own), inputs=tuple(sorted(inputs)))
    (box,) = own
    return SeenBox(
        op_type=box.op_type,
        name=box.name,
        change_ms=None if box.is_still else box.change,
        state=box.state,
        inputs=tuple(sorted(inputs)),
    )
