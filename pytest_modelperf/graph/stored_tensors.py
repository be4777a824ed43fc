"""Every tensor that a model stores, in graphs, bodies, functions and attributes; and its data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from msgspec import Struct
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto


class StorageKind(Enum):
    """The form in which a model stores a tensor; the value is its name in messages."""

    INITIALIZER = "the weight"
    CONSTANT = "the value of the Constant"
    SPARSE_VALUES = "the sparse weight"
    SPARSE_INDICES = "the indices of the sparse weight"
    ATTRIBUTE = "an attribute of"


class StoredTensor(Struct, frozen=True, eq=False):
    """One stored tensor, with the name of its value in its graph.

    `dense_shape` is the shape of the weight that sparse indices refer to. `path` leads to the body
    that stores it (see `body_path`).
    """

    tensor: TensorProto
    kind: StorageKind
    name: str
    dense_shape: tuple[int, ...] = ()
    path: str = ""


def walk_stored(model: ModelProto) -> Iterator[StoredTensor]:
    """All stored tensors, in the order of the file."""
    yield from _of_graph(model.graph, "")
    for training in model.training_info:
        yield from _of_graph(training.initialization, "")
        yield from _of_graph(training.algorithm, "")
    for function in model.functions:
        yield from _of_nodes(function.node, "")
        yield from _of_defaults(function)


def dense_weights(graph: GraphProto) -> Iterator[StoredTensor]:
    """The initializers and the values of Constant nodes, in a graph and in its bodies."""
    kinds = StorageKind.INITIALIZER, StorageKind.CONSTANT
    return (stored for stored in _of_graph(graph, "") if stored.kind in kinds)


def walk_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """All nodes of the model, its bodies and its functions."""
    graphs = [model.graph]
    for training in model.training_info:
        graphs += [training.initialization, training.algorithm]
    for nodes in (*(graph.node for graph in graphs), *(f.node for f in model.functions)):
        yield from with_bodies(nodes)


def used_names(model: ModelProto) -> Iterator[str]:
    """The names of all used values, once for each use, in bodies too."""
    for node in walk_nodes(model):
        yield from node.input
        for attribute in node.attribute:
            yield from (info.name for info in attribute.g.output)
    yield from (info.name for info in model.graph.output)


def with_bodies(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, each followed by the nodes of its bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for body in bodies_of(attribute):
                yield from with_bodies(body.node)


def bodies_of(attribute: AttributeProto) -> Iterator[GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def body_path(path: str, node: NodeProto, attribute: AttributeProto) -> str:
    """The path to a body of a node, with which the names of its weights begin in our graph."""
    return f"{path}{node.name or next(filter(None, node.output), '')}/{attribute.name}/"


def stored_names(graph: GraphProto) -> set[str]:
    """The names of the initializers of a graph, sparse ones included."""
    sparse = {each.values.name for each in graph.sparse_initializer}
    return sparse | {tensor.name for tensor in graph.initializer}


def clear_data(tensor: TensorProto) -> None:
    """Remove the data of a tensor, and everything that says where it is."""
    for field in (
        "raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data",
        "string_data", "external_data", "data_location",
    ):  # fmt: skip
        tensor.ClearField(field)


def point_outside(tensor: TensorProto, location: str, offset: int, nbytes: int) -> None:
    """Replace the data of a tensor by its place in another file."""
    clear_data(tensor)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": offset, "length": nbytes}.items():
        tensor.external_data.add(key=key, value=str(value))


def _of_graph(graph: GraphProto, path: str) -> Iterator[StoredTensor]:
    for tensor in graph.initializer:
        yield StoredTensor(tensor, StorageKind.INITIALIZER, tensor.name, path=path)
    for sparse in graph.sparse_initializer:
        name, shape = sparse.values.name, tuple(sparse.dims)
        yield StoredTensor(sparse.values, StorageKind.SPARSE_VALUES, name, path=path)
        yield StoredTensor(sparse.indices, StorageKind.SPARSE_INDICES, name, shape, path)
    yield from _of_nodes(graph.node, path)


def _of_nodes(nodes: Iterable[NodeProto], path: str) -> Iterator[StoredTensor]:
    for node in nodes:
        name = next(iter(node.output), node.name)
        # Tensors of other operators are settings, such as the thresholds of a tree.
        is_constant = node.op_type == "Constant" and node.domain in ("", "ai.onnx")
        for attribute in node.attribute:
            yield from _of_attribute(attribute, name, path, is_constant=is_constant)
            for body in bodies_of(attribute):
                yield from _of_graph(body, body_path(path, node, attribute))


def _of_defaults(function: FunctionProto) -> Iterator[StoredTensor]:
    for attribute in function.attribute_proto:
        yield from _of_attribute(attribute, function.name, "", is_constant=False)
        for body in bodies_of(attribute):
            yield from _of_graph(body, "")


def _of_attribute(
    attribute: AttributeProto, name: str, path: str, *, is_constant: bool
) -> Iterator[StoredTensor]:
    kind = StorageKind.CONSTANT if is_constant else StorageKind.ATTRIBUTE
    if attribute.HasField("t"):
        yield StoredTensor(attribute.t, kind, name, path=path)
    for tensor in attribute.tensors:
        yield StoredTensor(tensor, StorageKind.ATTRIBUTE, name, path=path)
    sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for item in (*sparse, *attribute.sparse_tensors):
        kinds = (
            (StorageKind.SPARSE_VALUES, StorageKind.SPARSE_INDICES)
            if is_constant
            else (StorageKind.ATTRIBUTE, StorageKind.ATTRIBUTE)
        )
        yield StoredTensor(item.values, kinds[0], name, path=path)
        yield StoredTensor(item.indices, kinds[1], name, tuple(item.dims), path)
