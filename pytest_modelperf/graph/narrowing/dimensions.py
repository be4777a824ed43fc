"""Which places along the axes of all tensors can only go together.

A place is one index of one axis of one tensor. Rules join places: the third channel of a Relu's
output to that of its input. What is joined is removed together or not at all, and what is joined
to a place that has to stay, stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Places: TypeAlias = npt.NDArray[np.int64]

# The set of all places that have to stay is that of the first place, which is no tensor's.
PINNED = 0


class Dim(NamedTuple):
    """One axis of one tensor."""

    tensor: str
    axis: int


class Dimensions:
    """Sets of places, over the axes of tensors of these shapes; a set is told by its first place.

    A union-find over arrays: joining two axes takes a few numpy calls, however long they are.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        self._starts: dict[Dim, int] = {}
        count = 1
        for name, shape in shapes.items():
            for axis, size in enumerate(shape):
                self._starts[Dim(name, axis)] = count
                count += size
        self._parents = np.arange(count)
        self._links: dict[Dim, list[Dim]] = {}
        self._reasons: dict[Dim, str] = {}

    def join(self, one: Dim, other: Dim) -> None:
        """Join two axes of one size, place by place."""
        self.join_places(one, self.places(one), other, self.places(other))

    def join_places(self, one: Dim, ones: Places, other: Dim, others: Places) -> None:
        """Join places of one axis to as many of another."""
        self._links.setdefault(one, []).append(other)
        self._links.setdefault(other, []).append(one)
        self._union(ones, others)

    def pin(self, dim: Dim, reason: str) -> None:
        """All of an axis has to stay."""
        self._reasons.setdefault(dim, reason)
        self._union(self.places(dim), np.full(self.size(dim), PINNED))

    def is_pinned(self, dim: Dim) -> bool:
        return not self.sets(dim).any()

    def size(self, dim: Dim) -> int:
        return self.shapes[dim.tensor][dim.axis]

    def places(self, dim: Dim) -> Places:
        """The places along an axis, which are numbers that no other axis has."""
        start = self._starts[dim]
        return np.arange(start, start + self.size(dim))

    def sets(self, dim: Dim) -> Places:
        """The set that each place of an axis is in."""
        return self._roots(self.places(dim))

    @property
    def count(self) -> int:
        """More than the number of any set."""
        return len(self._parents)

    def reasons(self) -> dict[Dim, str]:
        """Why axes that are tied to a pinned one have to stay: the nearest of the reasons.

        Of all axes at once: to look for that of each alone would take a walk through the graph.
        """
        found = dict(self._reasons)
        waiting = deque(found)
        while waiting:
            here = waiting.popleft()
            for near in self._links.get(here, ()):
                if near not in found:
                    found[near] = found[here]
                    waiting.append(near)
        return found

    def _roots(self, places: Places) -> Places:
        roots = self._parents[places]
        while True:
            above = self._parents[roots]
            if (above == roots).all():
                break
            roots = above
        self._parents[places] = roots
        return roots

    def _union(self, ones: Places, others: Places) -> None:
        while True:
            one, other = self._roots(ones), self._roots(others)
            apart = one != other
            if not apart.any():
                return
            # Always the higher below the lower, so that no circle can come of it. Of several
            # that want the same place the lowest wins, and the rest is joined in the next turn.
            high, low = np.maximum(one, other)[apart], np.minimum(one, other)[apart]
            np.minimum.at(self._parents, high, low)
