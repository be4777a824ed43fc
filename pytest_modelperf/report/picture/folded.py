"""A picture as the boxes that are seen of it: kernels, and stretches of others as one box each."""

from __future__ import annotations

from msgspec import Struct

from pytest_modelperf.files.documents import Count, Figure, Positive
from pytest_modelperf.report.picture.folding import items_of
from pytest_modelperf.report.picture.layout import lay_out
from pytest_modelperf.report.picture.records import Box, BoxState, Picture


class SeenBox(Struct, frozen=True, kw_only=True):
    """A kernel, or `kernels` of them in one box, which have no name.

    `change_ms` is how much longer a kernel takes now; None if it is unknown or may be chance.
    `inputs` are the boxes that feed it, by their indexes.
    """

    op_type: str
    name: str
    kernels: Positive = 1
    change_ms: Figure | None = None
    state: BoxState = BoxState.SAME
    inputs: tuple[Count, ...] = ()


def seen_boxes(picture: Picture) -> tuple[SeenBox, ...]:
    """The boxes in the order of the data."""
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
