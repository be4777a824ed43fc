"""Which places along the axes of all tensors can only be removed together.

A place is one index of one axis of one tensor. Rules join places, such as the third channel of a
Relu's output and of its input. Joined places are removed together or not at all. Places joined to
one that has to stay also stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Places: TypeAlias = npt.NDArray[np.int64]

# The number of the set of all places that have to stay. No tensor has this place.
PINNED = 0


class Dim(NamedTuple):
    """One axis of one tensor."""

    tensor: str
    axis: int


class Dimensions:
    """Sets of places along the axes of tensors of these shapes; its first place identifies a set.

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

    def axes(self, tensor: str) -> list[Dim]:
        """All axes of a tensor; none if its shape is not known."""
        return [Dim(tensor, axis) for axis in range(len(self.shapes.get(tensor, ())))]

    def join(self, one: Dim, other: Dim) -> None:
        """Join two axes of the same size, place by place."""
        self.join_places(one, self.places(one), other, self.places(other))

    def join_places(self, one: Dim, ones: Places, other: Dim, others: Places) -> None:
        """Join places of one axis to equally many of another."""
        self._links.setdefault(one, []).append(other)
        self._links.setdefault(other, []).append(one)
        self._union(ones, others)

    def pin(self, dim: Dim, reason: str) -> None:
        """Record that a whole axis has to stay."""
        self._reasons.setdefault(dim, reason)
        self._union(self.places(dim), np.full(self.size(dim), PINNED))

    def is_pinned(self, dim: Dim) -> bool:
        return not self.sets(dim).any()

    def size(self, dim: Dim) -> int:
        return self.shapes[dim.tensor][dim.axis]

    def places(self, dim: Dim) -> Places:
        """The places along an axis: numbers that no other axis has."""
        start = self._starts[dim]
        return np.arange(start, start + self.size(dim))

    def sets(self, dim: Dim) -> Places:
        """The set that each place of an axis is in."""
        return self._roots(self.places(dim))

    @property
    def count(self) -> int:
        """An upper bound of the numbers of sets."""
        return len(self._parents)

    def reasons(self) -> dict[Dim, str]:
        """Why axes joined to a pinned one have to stay: the nearest reason.

        All axes are done at once, because each axis alone would take a walk through the graph.
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
            # Always the higher below the lower, so that no cycle can arise. If several claim the
            # same place, the lowest wins and the next iteration joins the others.
            high, low = np.maximum(one, other)[apart], np.minimum(one, other)[apart]
            np.minimum.at(self._parents, high, low)
