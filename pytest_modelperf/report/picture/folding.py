"""Finds the stretches of a picture that become one box: those without a change or much time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.report.picture.layout import Layout
from pytest_modelperf.report.picture.records import Picture

# A picture of one model with at most so many kernels is shown whole.
_FEW = 150
# In a larger one, so many kernels with the largest figures stay in sight.
_KEPT = 60
# Fewer kernels than these are not worth a fold.
_LEAST = 3


# By identity: a fold can have thousands of boxes, and to compare them takes long.
class Item(Struct, frozen=True, eq=False):
    """One box that is seen: a kernel, or the kernels of a fold."""

    lane: int
    line: int
    boxes: tuple[int, ...]
    is_fold: bool


def items_of(picture: Picture, layout: Layout) -> list[Item]:
    """The item that shows each box of the picture."""
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
    """The rows of each stretch that is folded at first, from the top down."""
    boxes: dict[int, list[int]] = defaultdict(list)
    for box, row in enumerate(layout.rows):
        boxes[row].append(box)
    kept = {layout.rows[box] for box in _kept(picture)}
    if picture.is_pair:
        # A change stands in its context.
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
    """The boxes that are not folded."""
    boxes = picture.boxes
    if picture.is_pair:
        return [at for at, box in enumerate(boxes) if not box.is_still]
    if len(boxes) <= _FEW:
        return range(len(boxes))
    return sorted(range(len(boxes)), key=lambda at: -(boxes[at].values[0] or 0.0))[:_KEPT]
