"""The contents of a picture of a graph: a box for each kernel, and the parts that changed."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class BoxState(str, Enum):
    """The change of a kernel between two sides. Without a second side every kernel is the same.

    `REFUSED`: the kernel now runs other nodes of the model.
    """

    SAME = "same"
    CHANGED = "changed"
    REFUSED = "re-fused"
    NEW = "new"
    GONE = "gone"


class Box(Struct, frozen=True, kw_only=True):
    """One kernel of a picture.

    `inputs` are the indexes of the boxes that feed it; `only_before` and `only_after` are those
    that feed it on only one of two sides. `values` has its figure on each side, in the unit of the
    picture; None is unknown. `row` is the index of the layer that a page shows for it, and `part`
    the index of the part of the picture that it belongs to. A layout kernel only changes how a
    tensor is arranged in memory. `is_clear` means that the change of its figure is more than
    chance.
    """

    op_type: str
    name: str
    inputs: tuple[int, ...] = ()
    only_before: tuple[int, ...] = ()
    only_after: tuple[int, ...] = ()
    values: tuple[float | None, ...] = (None,)
    row: int | None = None
    state: BoxState = BoxState.SAME
    is_layout: bool = False
    is_clear: bool = False
    part: int | None = None

    @property
    def is_still(self) -> bool:
        """Whether the kernel is the same on both sides, and its difference may be chance."""
        return self.state is BoxState.SAME and self.part is None and not self.is_clear

    @property
    def change(self) -> float | None:
        """The increase of its figure, or None if the figure of a side is unknown.

        A side that lacks the kernel counts as 0.
        """
        if len(self.values) < 2:
            return None
        before, after = self.values
        if self.state is BoxState.NEW:
            return after
        if self.state is BoxState.GONE:
            return None if before is None else -before
        return None if before is None or after is None else after - before


class ChangedPart(Struct, frozen=True):
    """Kernels that changed together: what happened, and how much longer they take now."""

    text: str
    change_ms: float
    interval_ms: tuple[float, float] | None = None


class Picture(Struct, frozen=True):
    """The kernels of one model, or those of two models in one graph.

    `unit` is that of their figures. Without `boxes`, `reason` is a sentence that explains why.
    """

    boxes: tuple[Box, ...]
    unit: str = "ms"
    sides: tuple[str, ...] = ("",)
    parts: tuple[ChangedPart, ...] = ()
    reason: str = ""

    @property
    def is_pair(self) -> bool:
        return len(self.sides) == 2
