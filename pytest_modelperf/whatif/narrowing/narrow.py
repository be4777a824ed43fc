"""Write a model with fewer channels, to see how fast it would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from msgspec import Struct
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.model_file import (
    DATA_TYPES,
    MAX_PROTO_BYTES,
    ModelFile,
    external_tensors,
    is_external,
)
from pytest_modelperf.graph.replaced import Replacement, write_replaced
from pytest_modelperf.graph.stored_tensors import (
    StorageKind,
    dense_weights,
    remove_named,
    used_names,
)
from pytest_modelperf.graph.stored_weights import stored_number
from pytest_modelperf.graph.structure import Node, Tensor, Value
from pytest_modelperf.graph.weights.numbers import codes_of
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.whatif.narrowing.dimensions import PINNED, Dim, Places, integers, normal_axes
from pytest_modelperf.whatif.narrowing.rules import slice_ranges
from pytest_modelperf.whatif.narrowing.selection import (
    ModelNode,
    RelatedGraph,
    RemovalPlan,
    Selection,
    relate,
    select,
    strengths,
)


class Rewriter:
    """A rewriter of one graph, in place. `added` are the nodes of its new constants."""

    def __init__(self, plan: RemovalPlan) -> None:
        self.plan = plan
        self.added: list[NodeProto] = []
        self._taken = set(plan.related.dimensions.shapes)

    def rewrite(self, node: ModelNode) -> None:
        adjust = _ADJUSTMENTS.get(node.node.qualified_op)
        # A node with a tensor of unknown shape keeps all of its shapes.
        if adjust is not None and any(map(self.changes, (*node.node.inputs, *node.node.outputs))):
            adjust(node.proto, node.node, self)

    def give(
        self, proto: NodeProto, index: int, values: Sequence[int], what: str, dtype: str = "int64"
    ) -> None:
        """Give a node its own constant integers as the input at `index`."""
        name = wish = f"{proto.output[0]}/{what}"
        count = 1
        while name in self._taken:
            count += 1
            name = f"{wish}#{count}"
        self._taken.add(name)
        self.added.append(_constant_node(name, np.asarray(values, dtype)))
        while len(proto.input) <= index:
            proto.input.append("")
        proto.input[index] = name

    def changes(self, tensor: Tensor | None) -> bool:
        return tensor is not None and self.plan.changes(tensor.name)

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        return self.plan.shape(tensor.name)


_Adjust: TypeAlias = Callable[[NodeProto, Node, Rewriter], None]


def _constant_node(name: str, values: Places) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(values))


def _adjust_reshape(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    if not rewriter.changes(node.output()):
        return
    target = rewriter.shape(node.output())
    old = integers(node, 1, "shape")
    if old is not None:
        # 0 and -1 keep their meaning.
        target = tuple(
            size if entry > 0 else entry for entry, size in zip(old, target, strict=True)
        )
    if "shape" in node.attributes:
        set_attribute(proto, "shape", target)
    else:
        rewriter.give(proto, 1, target, "target")


def _adjust_target(
    proto: NodeProto, node: Node, rewriter: Rewriter, *, index: int, what: str
) -> None:
    if rewriter.changes(node.output()):
        rewriter.give(proto, index, rewriter.shape(node.output()), what)


def _adjust_squeeze(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    """Name the axes, because a channel axis that shrinks to size 1 must not be squeezed."""
    if "axes" in node.attributes or node.optional_input(1) is not None:
        return
    axes = [axis for axis, size in enumerate(node.input(0).dims) if size == 1]
    if not axes:
        # An empty list of axes would mean all axes of size 1.
        proto.op_type = "Identity"
        del proto.input[1:]
    elif node.opset < 13:
        set_attribute(proto, "axes", axes)
    else:
        rewriter.give(proto, 1, axes, "axes")


def _adjust_resize(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    sizes = node.optional_input(3)
    if sizes is None or sizes.dims == (0,) or not rewriter.changes(node.output()):
        return
    shape = rewriter.shape(node.output())
    axes = normal_axes(node.attr_ints("axes"), len(shape)) or range(len(shape))
    rewriter.give(proto, 3, [shape[axis] for axis in axes], "sizes")


def _adjust_split(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    if not rewriter.changes(node.input(0)):
        return
    axis = node.attr_int("axis", 0)
    parts = [rewriter.shape(tensor)[axis] for tensor in node.outputs if tensor is not None]
    if node.opset < 13:
        set_attribute(proto, "split", parts)
    else:
        remove_named(proto.attribute, {"num_outputs"})
        rewriter.give(proto, 1, parts, "split")


def _adjust_slice(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    ranges = slice_ranges(node)
    if ranges is None or not rewriter.changes(node.input(0)):
        return
    bounds = {}
    for axis, taken in ranges.items():
        kept = rewriter.plan.kept(node.input(0).name, axis)
        if len(kept) < node.input(0).dims[axis]:
            inside = np.searchsorted(kept, [taken.start, taken.stop])
            bounds[axis] = (int(inside[0]), int(inside[1]))
    if not bounds:
        return
    for position, what in enumerate(("starts", "ends")):
        old = integers(node, position + 1, what) or ()
        new = [
            bounds[axis][position] if axis in bounds else value
            for axis, value in zip(ranges, old, strict=True)
        ]
        if what in node.attributes:
            set_attribute(proto, what, new)
        else:
            # All bounds of a Slice have one type, and its axes keep theirs.
            dtype = node.input(position + 1).dtype or "int64"
            rewriter.give(proto, position + 1, new, what, dtype)


def _adjust_groups(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    channels = node.input(0).dims[1]
    if node.attr_int("group", 1) == channels > 1:
        set_attribute(proto, "group", rewriter.shape(node.input(0))[1])


def _adjust_shape(proto: NodeProto, node: Node, rewriter: Rewriter) -> None:
    data = node.input(0)
    if rewriter.changes(data):
        start, end = node.attr_int("start", 0), node.attr_int("end", data.rank)
        # The nodes after this one get the old result.
        old = data.size if proto.op_type == "Size" else data.dims[start:end]
        proto.CopyFrom(_constant_node(proto.output[0], np.asarray(old, np.int64)))


def set_attribute(proto: NodeProto, name: str, value: int | Sequence[int]) -> None:
    remove_named(proto.attribute, {name})
    proto.attribute.append(helper.make_attribute(name, value))


_ADJUSTMENTS: Mapping[str, _Adjust] = {
    "ConstantOfShape": partial(_adjust_target, index=0, what="shape"),
    "Conv": _adjust_groups,
    "ConvTranspose": _adjust_groups,
    "Expand": partial(_adjust_target, index=1, what="target"),
    "Reshape": _adjust_reshape,
    "Resize": _adjust_resize,
    "Shape": _adjust_shape,
    "Size": _adjust_shape,
    "Slice": _adjust_slice,
    "Split": _adjust_split,
    "Squeeze": _adjust_squeeze,
    "com.microsoft::FusedConv": _adjust_groups,
}


def write_planned(bound: BoundModel, plan: RemovalPlan, path: Path, max_file_bytes: int) -> None:
    """Write the model after the removal. A larger one has its weights in a separate file."""
    proto = plan.related.proto
    rewriter = Rewriter(plan)
    used = set(used_names(proto))
    for each in plan.related.nodes:
        rewriter.rewrite(each)
    nodes = [*rewriter.added, *proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    unused = used - set(used_names(proto))
    # Replaced constants are removed. An unused input stays, because a caller gives it.
    gone = unused.intersection(tensor.name for tensor in proto.graph.initializer)
    remove_named(proto.graph.initializer, gone)
    remove_named(proto.graph.input, gone)
    _declare_shapes(proto.graph, plan, bound.tensors)
    replacements = list(_replacements(bound.file, plan))
    write_replaced(bound.file, proto, replacements, path, max_file_bytes=max_file_bytes)


def _declare_shapes(graph: GraphProto, plan: RemovalPlan, tensors: Mapping[str, Tensor]) -> None:
    for info in graph.output:
        tensor = tensors[info.name]
        data_type = DATA_TYPES.get(tensor.dtype or "")
        if data_type is not None and tensor.shape is not None:
            info.CopyFrom(onnx.helper.make_tensor_value_info(info.name, data_type, tensor.shape))
    for info in graph.input:
        if info.name in plan.related.stored:
            for dim, size in zip(
                info.type.tensor_type.shape.dim, plan.shape(info.name), strict=False
            ):
                dim.dim_value = size


def _replacements(file: ModelFile, plan: RemovalPlan) -> Iterator[Replacement]:
    proto = plan.related.proto
    for each in dense_weights(proto.graph):
        if not each.path and (plan.changes(each.name) or is_external(each.tensor)):
            cut, shape = partial(plan.cut, each.name), plan.shape(each.name)
            is_initializer = each.kind is StorageKind.INITIALIZER
            yield _replacement(file, each.tensor, cut, shape, is_initializer=is_initializer)
    # The others are tensors of bodies, or sparse ones.
    for tensor in external_tensors(proto):
        shape = tuple(tensor.dims)
        yield _replacement(file, tensor, lambda v: v, shape, is_initializer=False)


def _replacement(
    file: ModelFile,
    tensor: TensorProto,
    cut: Callable[[Value], Value],
    shape: Sequence[int],
    *,
    is_initializer: bool,
) -> Replacement:
    """Return the tensor in its new shape, with a copy that locates its old elements."""
    source = deepcopy(tensor)
    tensor.data_location = TensorProto.DEFAULT
    del tensor.dims[:]
    tensor.dims.extend(shape)
    make = partial(_elements, file, source, cut)
    return Replacement(tensor, make, is_initializer=is_initializer)


def _elements(
    file: ModelFile, source: TensorProto, cut: Callable[[Value], Value]
) -> Iterator[bytes]:
    number = stored_number(source)
    assert number is not None, "text is not cut, and lies in no other file"  # noqa: S101  # for mypy
    yield number.pack(codes_of(cut(file.read_tensor(source)), number))


# The most reasons in an error message.
_SHOWN = 3
# The operators that take parts of a tensor.
_CUTTING = frozenset({"Slice", "Split"})


class UnchangedLayer(Struct, frozen=True):
    """A layer that keeps all of its channels, and why."""

    name: str
    reason: str


class Narrowed(Struct, frozen=True):
    """The channels before and after, in the groups that lost some, and the number of layers.

    Channels that can only be removed together count once, such as those of all layers whose results
    a residual stream adds up. `layers` are nodes with a weight that became smaller. `kept` are the
    layers that keep all of their channels.
    """

    channels_before: int
    channels_after: int
    layers: int
    kept: tuple[UnchangedLayer, ...]


def write_narrowed(
    bound: BoundModel, path: Path, share: float, *, max_file_bytes: int = MAX_PROTO_BYTES
) -> Narrowed:
    """Write the model without that share of its channels.

    Inputs and outputs keep their shapes. The channels with the smallest weights are removed. If a
    multiple of 8 is near, that number stays, because kernels work on 8 channels or more at once
    (see `selection.kept_count`). The model is written at its bound dimensions, and each tensor
    keeps its name. If the file would be larger than `max_file_bytes`, the weights are in a separate
    file.
    """
    choice = select_channels(bound, share)
    plan, groups, kept = choice.plan, choice.selection.groups, choice.kept
    if not groups:
        reasons = "; ".join(f"{printable(each.name)}: {each.reason}" for each in kept[:_SHOWN])
        more = f"; and {len(kept) - _SHOWN} more" if len(kept) > _SHOWN else ""
        why = f"{reasons}{more}" if kept else "no layer with weights has channels"
        raise ModelError(f"{bound.file.name} cannot be narrowed: {why}.")
    write_planned(bound, plan, path, max_file_bytes)
    return Narrowed(
        sum(group.channels_before for group in groups),
        sum(group.channels_after for group in groups),
        _layers(plan),
        kept,
    )


class ChannelChoice(Struct, frozen=True, eq=False):
    """The channels that would be removed, before anything is written."""

    plan: RemovalPlan
    selection: Selection
    kept: tuple[UnchangedLayer, ...]


def select_channels(bound: BoundModel, share: float) -> ChannelChoice:
    """Choose the channels to remove. Raise a ModelError for an invalid share."""
    if not 0 < share < 1:
        raise ModelError(
            f"the share of channels to remove is {share:g}; it has to be between 0 and 1."
        )
    related = relate(bound)
    users = (*_weight_axes(related), *_part_axes(related))
    selection = select(related.findings, users, strengths(related, bound), share)
    plan = RemovalPlan(related, selection.removed)
    return ChannelChoice(plan, selection, _kept(related, selection))


def _weight_axes(related: RelatedGraph) -> list[Dim]:
    made = [
        tensor.name
        for each in related.nodes
        if each.node.op_type == "ConstantOfShape"
        for tensor in each.node.outputs
        if tensor is not None
    ]
    return [dim for name in (*related.stored, *made) for dim in related.dimensions.axes(name)]


def _part_axes(related: RelatedGraph) -> list[Dim]:
    """Return the cut axes of the parts of a Split or Slice. Each part has to keep some places."""
    return [
        Dim(part.name, axis)
        for each in related.nodes
        if each.node.op_type in _CUTTING and each.node.input(0).name in related.dimensions.shapes
        for part in each.node.outputs
        if part is not None and part.name in related.dimensions.shapes
        for axis, size in enumerate(part.dims)
        if size < each.node.input(0).dims[axis]
    ]


def _layers(plan: RemovalPlan) -> int:
    return sum(
        any(t is not None and t.is_constant and plan.changes(t.name) for t in each.node.inputs)
        for each in plan.related.nodes
        if not all(t is None or t.is_constant for t in each.node.outputs)
    )


def _kept(related: RelatedGraph, selection: Selection) -> tuple[UnchangedLayer, ...]:
    dims = related.dimensions
    reasons = dims.reasons()
    kept: dict[str, str] = {}
    narrowed: set[str] = set()
    for made in related.findings.made:
        sets = dims.sets(made.weight)
        if selection.removed[sets].any():
            narrowed.add(made.layer)
        elif (sets == PINNED).any():
            kept.setdefault(made.layer, reasons.get(made.weight, ""))
        elif np.isin(sets, list(selection.uneven)).any():
            kept.setdefault(made.layer, "its groups cannot all lose the same number of channels")
        else:
            kept.setdefault(
                made.layer, f"too few channels to lose that share: {len(np.unique(sets))}"
            )
    return tuple(UnchangedLayer(name, why) for name, why in kept.items() if name not in narrowed)
