"""Select the places to remove, and find the places of the whole graph that stay."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from math import floor
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from msgspec import Struct
from onnx import NodeProto, TensorProto

from pytest_modelperf.graph.convert import Call, read_graph
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.stored_tensors import dense_weights, used_names
from pytest_modelperf.graph.structure import Node, Tensor, UnknownShapeError, Value, is_open
from pytest_modelperf.graph.validity import describe
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.whatif.narrowing import dimensions, rules
from pytest_modelperf.whatif.narrowing.dimensions import (
    PINNED,
    Dim,
    Dimensions,
    EqualBlocks,
    Findings,
    Links,
    Places,
    Rule,
)

RULES: Mapping[str, Rule] = {**rules.RULES, **dimensions.RULES}


class ModelNode(Struct, frozen=True, eq=False):
    """A node of the model, with its message and its record. It may make a constant."""

    proto: NodeProto
    node: Node


class RelatedGraph(Struct, frozen=True, eq=False):
    """A graph with everything that the rules found. `stored` are its weights, except text."""

    proto: onnx.ModelProto
    nodes: tuple[ModelNode, ...]
    stored: Mapping[str, TensorProto]
    findings: Findings

    @property
    def dimensions(self) -> Dimensions:
        return self.findings.dimensions


def relate(bound: BoundModel) -> RelatedGraph:
    """Find what belongs together in a model, without changing the model."""
    proto = deepcopy(bound.proto)
    calls = read_graph(proto.graph, bound.file.name).calls
    opsets = {entry.domain: entry.version for entry in proto.opset_import}
    tensors = bound.tensors
    shapes = {name: tensor.dims for name, tensor in tensors.items() if tensor.has_known_shape}
    findings = Findings(Dimensions(shapes))
    users = Counter(used_names(proto))
    # Text has no channels, so it is not cut.
    stored = {
        each.name: each.tensor
        for each in dense_weights(proto.graph)
        if not each.path and each.tensor.data_type != TensorProto.STRING
    }
    nodes = [
        _model_node(call, tensors, users, opsets.get(call.domain, 0))
        for call in calls
        if call.op_type != "Constant" or call.domain
    ]
    _pin_ends(bound, nodes, stored, findings.dimensions)
    _pin_captured(calls, findings.dimensions)
    # Reshapes come last: the axis that may shrink depends on all other nodes.
    for each in sorted(nodes, key=lambda each: each.node.qualified_op in dimensions.RULES):
        _apply(each.node, findings, users)
    return RelatedGraph(proto, tuple(nodes), stored, findings)


def _model_node(
    call: Call, tensors: Mapping[str, Tensor], users: Mapping[str, int], opset: int
) -> ModelNode:
    """Return the record of a node. Unused results after the first, such as a mask, are None."""
    operands = tuple(tensors.get(name) for name in call.inputs)
    results = tuple(
        tensors.get(name) if users[name] or not index else None
        for index, name in enumerate(call.outputs)
    )
    names = call.proto.name, call.op_type, call.domain
    return ModelNode(call.proto, Node(*names, operands, results, call.attributes, opset=opset))


def _apply(node: Node, findings: Findings, users: Mapping[str, int]) -> None:
    weight = node.optional_input(1)
    links = Links(node, findings, 0 if weight is None else users[weight.name])
    rule = RULES.get(node.qualified_op)
    unknown = next(filter(is_open, (*node.inputs, *node.outputs)), None)
    if rule is None:
        links.because("is an operator that is not known to work with fewer channels")
    elif unknown is not None:
        links.because(f"uses {printable(unknown.name)!r}, whose shape is known only at run time")
    else:
        with suppress(UnknownShapeError):
            rule(node, links)
    links.pin_rest()


def _pin_ends(
    bound: BoundModel, nodes: list[ModelNode], stored: Mapping[str, TensorProto], dims: Dimensions
) -> None:
    made = {t.name for each in nodes for t in each.node.outputs if t is not None}
    outputs = {info.name for info in bound.proto.graph.output}
    inputs = set(bound.inputs.shapes)
    for name in dims.shapes:
        if name in outputs:
            reason = f"{printable(name)!r} is an output of the model"
        elif name in inputs:
            reason = f"{printable(name)!r} is an input of the model"
        elif name not in made and name not in stored:
            reason = f"{printable(name)!r} is stored in a way that cannot be cut"
        else:
            continue
        for dim in dims.axes(name):
            dims.pin(dim, reason)


def _pin_captured(calls: tuple[Call, ...], dims: Dimensions) -> None:
    for call in calls:
        for body in call.bodies.values():
            for inner in body.walk():
                for name in (n for c in inner.calls for n in c.inputs):
                    for dim in dims.axes(name):
                        dims.pin(dim, f"{describe(call)} uses it inside")
                for info in inner.proto.output:
                    for dim in dims.axes(info.name):
                        dims.pin(dim, f"{describe(call)} returns it")


@dataclass(frozen=True, slots=True, eq=False)
class RemovalPlan:
    """A related graph, and for each set of places whether it is removed."""

    related: RelatedGraph
    removed: npt.NDArray[np.bool_]
    _shapes: dict[str, tuple[int, ...]] = field(default_factory=dict, init=False)

    def kept(self, tensor: str, axis: int) -> Places:
        sets = self.related.dimensions.sets(Dim(tensor, axis))
        return np.flatnonzero(~self.removed[sets])

    def shape(self, tensor: str) -> tuple[int, ...]:
        if tensor not in self._shapes:
            self._shapes[tensor] = self._new_shape(tensor)
        return self._shapes[tensor]

    def _new_shape(self, tensor: str) -> tuple[int, ...]:
        old = self.related.dimensions.shapes[tensor]
        if (channels := self.related.findings.block_columns.get(tensor)) is not None:
            columns = len(self.kept(*channels.dim)) // channels.count
            rest = (len(self.kept(tensor, axis)) for axis in range(2, len(old)))
            return (len(self.kept(tensor, 0)), columns, *rest)
        return tuple(len(self.kept(tensor, axis)) for axis in range(len(old)))

    def changes(self, tensor: str) -> bool:
        old = self.related.dimensions.shapes.get(tensor)
        return old is not None and self.shape(tensor) != old

    def cut(self, tensor: str, values: Value) -> Value:
        if (channels := self.related.findings.block_columns.get(tensor)) is not None:
            return self._cut_blocks(tensor, values, channels)
        for axis, size in enumerate(values.shape):
            kept = self.kept(tensor, axis)
            if len(kept) < size:
                values = np.take(values, kept, axis)
        return values

    def _cut_blocks(self, tensor: str, values: Value, channels: EqualBlocks) -> Value:
        """Cut the kernel of a grouped convolution. Each block of rows has its own columns."""
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


Table: TypeAlias = npt.NDArray[np.int64]

# The most channels per block that may balance another one, so that the search ends.
MAX_ADDED_PER_BLOCK = 4


def balanced_choice(tables: Sequence[Table], group_of: Table, allowed: Table) -> Table:
    """Return the indexes of the chosen candidates, at most `allowed` of each group.

    A row of a table says how often a candidate is in each block. The weakest candidates come first.
    """
    left = np.ones(len(group_of), bool)
    allowed = allowed.copy()
    chosen: list[int] = []
    for seed in range(len(group_of)):
        if not left[seed]:
            continue
        added = _balanced_set(seed, tables, group_of, allowed, left)
        if added:
            chosen += added
            left[added] = False
            np.subtract.at(allowed, group_of[added], 1)
    return np.array(sorted(chosen), np.int64)


def _balanced_set(
    seed: int, tables: Sequence[Table], group_of: Table, allowed: Table, left: npt.NDArray[np.bool_]
) -> list[int]:
    room = allowed.copy()
    free = left.copy()
    added: list[int] = []
    following = seed
    for _ in range(1 + MAX_ADDED_PER_BLOCK * sum(table.shape[1] for table in tables)):
        if room[group_of[following]] == 0:
            return []
        added.append(following)
        free[following] = False
        room[group_of[following]] -= 1
        totals = [table[added].sum(axis=0) for table in tables]
        lacking = next((i for i, t in enumerate(totals) if t.min() < t.max()), None)
        if lacking is None:
            return added
        block = int(totals[lacking].argmin())
        fitting = np.flatnonzero(free & (tables[lacking][:, block] > 0) & (room[group_of] > 0))
        if not fitting.size:
            return []
        following = int(fitting[_unevenness(fitting, tables, totals).argmin()])
    return []


def _unevenness(fitting: Table, tables: Sequence[Table], totals: Sequence[Table]) -> Table:
    """Return the total lack of all blocks against the fullest, for each fitting candidate."""
    lack = np.zeros(len(fitting), np.int64)
    for total, table in zip(totals, tables, strict=True):
        after = total + table[fitting]
        lack += after.max(axis=1) * after.shape[1] - after.sum(axis=1)
    return lack


# -- select the places to remove


# Kernels work on vectors of 8 or 16 channels, and a count that is not a multiple of 8 also pays for
# the rest of the vector. ONNX Runtime 1.31, one core with AVX-512, 3x3 convolutions at 28 x 28 to N
# channels and back: 56 took 1.15 ms, 60 took 1.28, 63 took 1.45, 64 took 1.27, 65 took 1.65. For
# matrix products there was no difference beyond noise.
LANES = 8
# The largest change of the count for that, as a share of the group.
MAX_SHIFT = 1 / 16


class Selection(Struct, frozen=True, eq=False):
    """For each set of places whether it is removed, and the groups that lose some."""

    removed: npt.NDArray[np.bool_]
    groups: tuple[ChannelGroup, ...]
    uneven: frozenset[int]


class ChannelGroup(Struct, frozen=True, eq=False):
    """Sets of places with the same users, the weakest first, and how many are removed."""

    sets: Places
    # The number of places that a set has in its layer: 64 for heads of that size.
    width: int
    going: int = 0

    @property
    def channels_before(self) -> int:
        return len(self.sets) * self.width

    @property
    def channels_after(self) -> int:
        return (len(self.sets) - self.going) * self.width


def kept_count(count: int, share: float, *, in_lanes: bool = True) -> int:
    """Return the number to keep: at least one, and a multiple of 8 if one is close enough."""
    wanted = count * (1 - share)
    kept = max(1, floor(wanted + 0.5))
    near = LANES * floor(wanted / LANES + 0.5)
    if in_lanes and 0 < near < count and abs(near - wanted) <= count * MAX_SHIFT:
        return near
    return kept


def select(
    findings: Findings, users: Iterable[Dim], strength: npt.NDArray[np.float64], share: float
) -> Selection:
    """Select what to remove, by the strength of each set.

    `users` are the axes of weights, and those of parts that a Split or Slice takes. Each of them
    keeps at least one place.
    """
    dims = findings.dimensions
    width = _widths(findings)
    candidates = np.flatnonzero(width)
    candidates = candidates[candidates != PINNED]
    removed = np.zeros(dims.count, bool)
    groups = [
        ChannelGroup(sets[np.lexsort((sets, strength[sets]))], int(width[sets[0]]))
        for sets in _by_users(findings, users, candidates)
    ]
    group_of = np.full(dims.count, -1)
    for index, group in enumerate(groups):
        group_of[group.sets] = index
    chosen: list[ChannelGroup] = []
    uneven: set[int] = set()
    for cluster, blocks in _clusters(findings, group_of, len(groups)):
        members = [groups[index] for index in cluster]
        if blocks:
            going = _choose_balanced(findings, members, blocks, strength, share)
            if not going.size:
                uneven.update(int(s) for group in members for s in group.sets)
        else:
            (group,) = members
            kept = kept_count(len(group.sets), share, in_lanes=group.width == 1)
            going = group.sets[: len(group.sets) - kept]
        removed[going] = True
        for group in members:
            count = int(removed[group.sets].sum())
            if count:
                chosen.append(ChannelGroup(group.sets, group.width, count))
    return Selection(removed, tuple(chosen), frozenset(uneven))


def _widths(findings: Findings) -> Places:
    width = np.zeros(findings.dimensions.count, np.int64)
    for made in findings.made:
        counted, counts = np.unique(findings.dimensions.sets(made.weight), return_counts=True)
        width[counted] = np.maximum(width[counted], counts)
    return width


def _by_users(findings: Findings, users: Iterable[Dim], candidates: Places) -> list[Places]:
    takers: dict[int, list[int]] = {int(candidate): [] for candidate in candidates}
    for number, dim in enumerate(users):
        for found in np.unique(findings.dimensions.sets(dim)).tolist():
            if found in takers:
                takers[found].append(number)
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for candidate, numbers in takers.items():
        together[tuple(numbers)].append(candidate)
    return [np.array(sets) for sets in together.values()]


def _clusters(
    findings: Findings, group_of: Places, count: int
) -> list[tuple[list[int], list[EqualBlocks]]]:
    label = list(range(count))
    met: list[tuple[EqualBlocks, int]] = []
    for blocks in findings.blocks:
        groups = np.unique(group_of[findings.dimensions.sets(blocks.dim)])
        groups = groups[groups >= 0]
        if not groups.size:
            continue
        labels = {label[group] for group in groups.tolist()}
        label = [min(labels) if old in labels else old for old in label]
        met.append((blocks, int(groups[0])))
    clusters: dict[int, tuple[list[int], list[EqualBlocks]]] = defaultdict(lambda: ([], []))
    for group in range(count):
        clusters[label[group]][0].append(group)
    for blocks, group in met:
        clusters[label[group]][1].append(blocks)
    return list(clusters.values())


def _choose_balanced(
    findings: Findings,
    groups: Sequence[ChannelGroup],
    blocks: Sequence[EqualBlocks],
    strength: npt.NDArray[np.float64],
    share: float,
) -> Places:
    sets = np.concatenate([group.sets for group in groups])
    group_of = np.repeat(np.arange(len(groups)), [len(group.sets) for group in groups])
    order = np.lexsort((sets, strength[sets]))
    sets, group_of = sets[order], group_of[order]
    index = np.full(findings.dimensions.count, -1)
    index[sets] = np.arange(len(sets))
    tables: dict[bytes, npt.NDArray[np.int64]] = {}
    for each in blocks:
        places = index[findings.dimensions.sets(each.dim)].reshape(each.count, -1)
        table = np.zeros((len(sets), each.count), np.int64)
        for block, members in enumerate(places):
            np.add.at(table[:, block], members[members >= 0], 1)
        tables[table.tobytes()] = table
    allowed = np.array(
        [len(g.sets) - kept_count(len(g.sets), share, in_lanes=False) for g in groups]
    )
    return sets[balanced_choice(tuple(tables.values()), group_of, allowed)]


# -- the strength of each channel


def strengths(related: RelatedGraph, bound: BoundModel) -> npt.NDArray[np.float64]:
    """Return the strength of each set of places, reading one weight after the other."""
    # A weight that a node makes has one value and adds nothing. A weight that cannot be cut is not
    # read. Integers count as the numbers that they represent.
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
    """Return the squared norms along an axis, slice by slice, to avoid copying a large weight."""
    along = zip(*(np.moveaxis(each, axis, 0) for each in (values, scale, zero)), strict=True)
    return np.array(
        [float(np.square((part.astype(np.float64) - at) * by).sum()) for part, by, at in along]
    )


def _quantization(
    values: Value, node: Node | None, related: RelatedGraph, bound: BoundModel
) -> tuple[Value, Value]:
    """Return the scale and the zero point of each value, as views."""
    # A weight of floats has the scale 1 and the zero point 0. Scales of blocks do not occur here,
    # because a weight that has them is not cut.
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
