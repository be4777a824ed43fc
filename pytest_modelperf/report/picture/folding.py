"""Finds the stretches of a picture that become one box: those without a change or much time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pytest_modelperf.report.picture.layout import Layout
from pytest_modelperf.report.picture.records import Picture

# A picture of one model with at most so many kernels is shown whole.
_FEW = 150
# In a larger one, so many kernels with the largest figures stay in sight.
_KEPT = 60
# Fewer kernels than these are not worth a fold.
_LEAST = 3


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
