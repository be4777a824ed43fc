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
    read. Integers count as the numbers that they stand for.
    """
    dims = related.dimensions
    makers = {t.name: each.node for each in related.nodes for t in each.node.outputs if t}
    quantizers = {
        each.node.input(0).name: each.node
        for each in related.nodes
        if each.node.qualified_op == "DequantizeLinear"
    }
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
        scale, zero = _quantization(values, quantizers.get(name), related, bound)
        for axis in sorted(axes):
            norms = _norms(values, axis, scale, zero)
            np.add.at(strength, dims.sets(Dim(name, axis)), norms)
    return strength


def _norms(values: Value, axis: int, scale: Value, zero: Value) -> npt.NDArray[np.float64]:
    """The squared norms along an axis, slice by slice, so that a large weight is not copied."""
    along = zip(*(np.moveaxis(each, axis, 0) for each in (values, scale, zero)), strict=True)
    return np.array(
        [float(np.square((part.astype(np.float64) - at) * by).sum()) for part, by, at in along]
    )


def _quantization(
    values: Value, node: Node | None, related: RelatedGraph, bound: BoundModel
) -> tuple[Value, Value]:
    """The scale and the zero point of each value, as views.

    A weight of floats has the scale 1 and the zero point 0. Scales of blocks do not occur here,
    because a weight that has them is not cut.
    """
    found: list[Value] = []
    for index, usual in ((1, 1.0), (2, 0.0)):
        setting = None if node is None else node.optional_input(index)
        stored = None if setting is None else related.stored.get(setting.name)
        own = np.float64(usual) if stored is None else bound.file.read_tensor(stored)
        own = np.asarray(own, np.float64)
        if node is not None and own.size > 1:
            shape = [1] * values.ndim
            shape[node.attr_int("axis", 1)] = own.size
            own = own.reshape(shape)
        found.append(np.broadcast_to(own.reshape(()) if own.size == 1 else own, values.shape))
    scale, zero = found
    return scale, zero


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
    for found in dims.axes(name):
        shared = np.intersect1d(dims.sets(found), sets)
        if (shared != PINNED).any():
            return found
    return None
