"""Apply the rules to a whole graph to find the places that stay along each axis of its tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field

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
    # Reshapes come last, because which of their axes may shrink depends on all other nodes.
    for each in sorted(nodes, key=lambda each: each.node.qualified_op in dimensions.RULES):
        _apply(each.node, findings, users)
    return RelatedGraph(proto, tuple(nodes), stored, findings)


def _model_node(
    call: Call, tensors: Mapping[str, Tensor], users: Mapping[str, int], opset: int
) -> ModelNode:
    """Return the record of a node without further unused results, such as a Dropout's mask."""
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
