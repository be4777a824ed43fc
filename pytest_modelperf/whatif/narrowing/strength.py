"""How strong each channel is: the squared L2 norm of the weights that make it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.structure import Node
from pytest_modelperf.whatif.narrowing.dimensions import PINNED, Dim
from pytest_modelperf.whatif.narrowing.relating import RelatedGraph

if TYPE_CHECKING:
    import numpy.typing as npt

    from pytest_modelperf.graph.structure import Value


def strengths(related: RelatedGraph, bound: BoundModel) -> npt.NDArray[np.float64]:
    """The strength of each set of places; weights are read one after the other.

    A weight that a node makes has one value and adds nothing. A weight that cannot be cut is not
    read.
    """
    dims = related.dimensions
    makers = {t.name: each.node for each in related.nodes for t in each.node.outputs if t}
    wanted: dict[str, set[int]] = {}
    for made in related.findings.made:
        if dims.is_pinned(made.weight):
            continue
        source = _stored_axis(made.weight, related, makers)
        if source is not None:
            wanted.setdefault(source.tensor, set()).add(source.axis)
    strength = np.zeros(dims.count)
    for name, axes in wanted.items():
        values = bound.file.read_tensor(related.stored[name])
        for axis in sorted(axes):
            np.add.at(strength, dims.sets(Dim(name, axis)), _norms(values, axis))
    return strength


def _norms(values: Value, axis: int) -> npt.NDArray[np.float64]:
    """The squared norms along an axis, slice by slice, so that a large weight is not copied."""
    along = np.moveaxis(values, axis, 0)
    return np.array([float(np.square(part.astype(np.float64)).sum()) for part in along])


def _stored_axis(dim: Dim, related: RelatedGraph, makers: Mapping[str, Node]) -> Dim | None:
    """The axis of the stored weight that an axis is computed from by constant nodes."""
    dims = related.dimensions
    sets = np.unique(dims.sets(dim))
    name = dim.tensor
    while name not in related.stored:
        node = makers.get(name)
        if node is None or node.op_type == "ConstantOfShape":
            return None
        source = node.optional_input(0)
        if source is None:
            return None
        name = source.name
    if name == dim.tensor:
        return dim
    for axis in range(len(dims.shapes.get(name, ()))):
        found = Dim(name, axis)
        shared = np.intersect1d(dims.sets(found), sets)
        if (shared != PINNED).any():
            return found
    return None
