"""The places that stay along each axis of every tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pytest_modelperf.whatif.narrowing.dimensions import Dim
from pytest_modelperf.whatif.narrowing.links import EqualBlocks
from pytest_modelperf.whatif.narrowing.relating import RelatedGraph

if TYPE_CHECKING:
    import numpy.typing as npt

    from pytest_modelperf.graph.structure import Value
    from pytest_modelperf.whatif.narrowing.dimensions import Places


@dataclass(frozen=True, slots=True, eq=False)
class RemovalPlan:
    """A related graph, and for each set of places whether it is removed."""

    related: RelatedGraph
    removed: npt.NDArray[np.bool_]
    _shapes: dict[str, tuple[int, ...]] = field(default_factory=dict, init=False)

    def kept(self, tensor: str, axis: int) -> Places:
        """The indexes that stay along an axis of a tensor."""
        sets = self.related.dimensions.sets(Dim(tensor, axis))
        return np.flatnonzero(~self.removed[sets])

    def shape(self, tensor: str) -> tuple[int, ...]:
        """The shape of a tensor after the removal."""
        if tensor not in self._shapes:
            self._shapes[tensor] = self._new_shape(tensor)
        return self._shapes[tensor]

    def _new_shape(self, tensor: str) -> tuple[int, ...]:
        old = self.old_shape(tensor)
        if (channels := self.related.findings.block_columns.get(tensor)) is not None:
            columns = len(self.kept(*channels.dim)) // channels.count
            rest = (len(self.kept(tensor, axis)) for axis in range(2, len(old)))
            return (len(self.kept(tensor, 0)), columns, *rest)
        return tuple(len(self.kept(tensor, axis)) for axis in range(len(old)))

    def old_shape(self, tensor: str) -> tuple[int, ...]:
        return self.related.dimensions.shapes[tensor]

    def changes(self, tensor: str) -> bool:
        """Whether a tensor of known shape becomes smaller."""
        return tensor in self.related.dimensions.shapes and (
            self.shape(tensor) != self.old_shape(tensor)
        )

    def cut(self, tensor: str, values: Value) -> Value:
        """The values of a weight that stay."""
        if (channels := self.related.findings.block_columns.get(tensor)) is not None:
            return self._cut_blocks(tensor, values, channels)
        for axis, size in enumerate(values.shape):
            kept = self.kept(tensor, axis)
            if len(kept) < size:
                values = np.take(values, kept, axis)
        return values

    def _cut_blocks(self, tensor: str, values: Value, channels: EqualBlocks) -> Value:
        """Cut the kernel of a grouped convolution: each block of rows has its own columns."""
        rows_of_block = len(values) // channels.count
        columns_of_block = values.shape[1]
        rows, columns = self.kept(tensor, 0), self.kept(*channels.dim)
        return np.concatenate(
            [
                values[rows[rows // rows_of_block == block]][
                    :, columns[columns // columns_of_block == block] % columns_of_block
                ]
                for block in range(channels.count)
            ]
        )
