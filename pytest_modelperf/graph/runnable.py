"""Write a copy of a model with a unique name for every node; weights stream from file to file.

An engine reports the work of a kernel by the name of its node. In its profile, nodes without a name
are lost, nodes with the same name cannot be distinguished, and a quote in a name breaks the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import GraphProto, NodeProto

from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.stored_tensors import with_bodies
from pytest_modelperf.graph.stream import restored_chunks, write_chunks
from pytest_modelperf.graph.structure import Graph, Node


def needs_copy(bound: BoundModel) -> bool:
    """Whether the model needs a copy: names are missing, or it differs from its file."""
    if bound.file.path is None or bound.inputs.rebound or bound.file.proto.functions:
        return True
    names = Counter(node.name for node in _running(bound.file.proto.graph))
    return any(count > 1 or not _is_safe(name) for name, count in names.items())


def write_runnable(bound: BoundModel, path: Path) -> None:
    """Write the model as it has to run, each of its nodes with a unique name.

    Names that are unique are kept. Weights in external data stay in the folder of the model.
    """
    proto = as_it_runs(bound)
    _name_nodes(proto.graph)
    chunks = restored_chunks(proto, bound.file, "with the names of its nodes")
    write_chunks(bound.file, path, chunks)


def nodes_by_name(bound: BoundModel) -> dict[str, Node]:
    """The nodes that run, by their names in the copy, or their own names if no copy is needed."""
    proto = onnx.ModelProto()
    proto.CopyFrom(bound.proto)
    _name_nodes(proto.graph)
    return dict(_pairs(proto.graph, bound.graph))


def as_it_runs(bound: BoundModel) -> onnx.ModelProto:
    """The model with only the shapes that its file declares.

    The plan of an engine depends on the shapes that it knows, and the copy must run like the file.
    If the batch was changed, the declared shapes are wrong and removed. Then inputs have the bound
    ones, except where they change with the steps of a generation.
    """
    original, is_rebound = bound.file.proto, bound.inputs.rebound
    proto = onnx.ModelProto()
    proto.CopyFrom(bound.proto if is_rebound or original.functions else original)
    if is_rebound:
        changing = {} if bound.phase is None else bound.phase.changing_axes
        for info in proto.graph.input:
            for axis in changing.get(info.name, ()):
                info.type.tensor_type.shape.dim[axis].Clear()
    elif original.functions:
        for kept, own in (
            (proto.graph.input, original.graph.input),
            (proto.graph.output, original.graph.output),
            (proto.graph.value_info, original.graph.value_info),
        ):
            del kept[:]
            kept.extend(own)
    return proto


def _running(graph: GraphProto) -> list[NodeProto]:
    """All nodes that an engine may run, those of bodies directly after the node that holds them."""
    return [node for node in with_bodies(graph.node) if node.op_type != "Constant"]


def _name_nodes(graph: GraphProto) -> None:
    """Give a name to each node without a unique one; the first of several keeps its name."""
    nodes = _running(graph)
    taken = {node.name for node in nodes}
    kept: set[str] = set()
    for node in nodes:
        if node.name not in kept and _is_safe(node.name):
            kept.add(node.name)
            continue
        wish = next(filter(None, node.output), "") or node.name
        wish = wish if _is_safe(wish) else node.op_type
        name, count = wish, 1
        while name in taken:
            count += 1
            name = f"{wish}#{count}"
        node.name = name
        taken.add(name)
        kept.add(name)


def _is_safe(name: str) -> bool:
    """Whether a name is safe in a profile: older versions of ONNX Runtime escape nothing."""
    return bool(name) and name.isprintable() and not {'"', "\\"} & set(name)


def _pairs(proto: GraphProto, graph: Graph) -> Iterator[tuple[str, Node]]:
    """The name and the record of each node that is in both graphs."""
    made = {tensor.name: node for node in graph.nodes for tensor in node.outputs if tensor}
    for call in proto.node:
        node = next((made[name] for name in call.output if name in made), None)
        if node is None:
            continue
        yield call.name, node
        for attribute in call.attribute:
            if attribute.name in node.bodies:
                yield from _pairs(attribute.g, node.bodies[attribute.name])
