"""The tensors that a model stores, and which of them are parameters."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, MutableSequence, Sequence
from enum import Enum
from math import prod
from typing import Any

from msgspec import Struct
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from pytest_modelperf.graph.structure import BITS, Node, ZeroPoint


class StorageKind(Enum):
    """The form in which a model stores a tensor. The value is its name in messages."""

    INITIALIZER = "the weight"
    CONSTANT = "the value of the Constant"
    SPARSE_VALUES = "the sparse weight"
    SPARSE_INDICES = "the indices of the sparse weight"
    ATTRIBUTE = "an attribute of"


class StoredTensor(Struct, frozen=True, eq=False):
    """One stored tensor, with the name of its value in its graph."""

    tensor: TensorProto
    kind: StorageKind
    name: str
    # The shape of the weight that sparse indices refer to.
    dense_shape: tuple[int, ...] = ()
    # The path to the body that stores the tensor (see `body_path`).
    path: str = ""


def walk_stored(model: ModelProto) -> Iterator[StoredTensor]:
    yield from _of_graph(model.graph, "")
    for training in model.training_info:
        yield from _of_graph(training.initialization, "")
        yield from _of_graph(training.algorithm, "")
    for function in model.functions:
        yield from _of_nodes(function.node, "")
        for attribute in function.attribute_proto:
            yield from _of_attribute(attribute, function.name, "", is_constant=False)
            for body in bodies_of(attribute):
                yield from _of_graph(body, "")


def dense_weights(graph: GraphProto) -> Iterator[StoredTensor]:
    """Yield the initializers and the values of Constant nodes, in a graph and in its bodies."""
    kinds = StorageKind.INITIALIZER, StorageKind.CONSTANT
    return (stored for stored in _of_graph(graph, "") if stored.kind in kinds)


def walk_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield all nodes of the model, its bodies and its functions."""
    graphs = [model.graph]
    for training in model.training_info:
        graphs += [training.initialization, training.algorithm]
    for nodes in (*(graph.node for graph in graphs), *(f.node for f in model.functions)):
        yield from with_bodies(nodes)


def used_names(model: ModelProto) -> Iterator[str]:
    """Yield the names of all used values, once for each use, including those in bodies."""
    for node in walk_nodes(model):
        yield from node.input
        for attribute in node.attribute:
            yield from (info.name for info in attribute.g.output)
    yield from (info.name for info in model.graph.output)


def with_bodies(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield the nodes, each followed by the nodes of its bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for body in bodies_of(attribute):
                yield from with_bodies(body.node)


# The types of attributes that hold no tensor and no body. Models of IR 1 leave the type out.
_PLAIN = frozenset({
    AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.FLOATS,
    AttributeProto.STRING, AttributeProto.STRINGS,
})  # fmt: skip


def bodies_of(attribute: AttributeProto) -> Sequence[GraphProto]:
    if attribute.type in _PLAIN:
        return ()
    return [*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs]


def body_path(path: str, node: NodeProto, attribute: AttributeProto) -> str:
    """Return the path to a body of a node. In our graph, the names of its weights begin with it."""
    return f"{path}{node.name or next(filter(None, node.output), '')}/{attribute.name}/"


def stored_names(graph: GraphProto) -> set[str]:
    """Return the names of the initializers of a graph, including sparse ones."""
    sparse = {each.values.name for each in graph.sparse_initializer}
    return sparse | {tensor.name for tensor in graph.initializer}


def remove_named(entries: MutableSequence[Any], names: Container[str], by: str = "name") -> None:
    """Remove in place the messages whose field `by` has one of these names, and keep the others."""
    for index in reversed(range(len(entries))):
        if getattr(entries[index], by) in names:
            del entries[index]


def clear_data(tensor: TensorProto) -> None:
    for field in (
        "raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data",
        "string_data", "external_data", "data_location",
    ):  # fmt: skip
        tensor.ClearField(field)


def point_outside(tensor: TensorProto, location: str, offset: int, nbytes: int) -> None:
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
        attributes = [each for each in node.attribute if each.type not in _PLAIN]
        if not attributes:
            continue
        name = next(iter(node.output), node.name)
        # Tensors of other operators are settings, such as the thresholds of a tree.
        is_constant = node.op_type == "Constant" and node.domain in ("", "ai.onnx")
        for attribute in attributes:
            yield from _of_attribute(attribute, name, path, is_constant=is_constant)
            for body in bodies_of(attribute):
                yield from _of_graph(body, body_path(path, node, attribute))


def _of_attribute(
    attribute: AttributeProto, name: str, path: str, *, is_constant: bool
) -> Iterator[StoredTensor]:
    kind = values = indices = StorageKind.ATTRIBUTE
    if is_constant:
        kind = StorageKind.CONSTANT
        values, indices = StorageKind.SPARSE_VALUES, StorageKind.SPARSE_INDICES
    if attribute.HasField("t"):
        yield StoredTensor(attribute.t, kind, name, path=path)
    for tensor in attribute.tensors:
        yield StoredTensor(tensor, StorageKind.ATTRIBUTE, name, path=path)
    sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for item in (*sparse, *attribute.sparse_tensors):
        yield StoredTensor(item.values, values, name, path=path)
        yield StoredTensor(item.indices, indices, name, tuple(item.dims), path)


# -- which stored constants are parameters


# Operands that are settings, by operator.
_SETTINGS: Mapping[str, frozenset[int]] = {
    "Clip": frozenset({1, 2}),
    "Dropout": frozenset({1, 2}),
    "NonMaxSuppression": frozenset({2, 3, 4}),
    "OneHot": frozenset({1, 2}),
    "Pad": frozenset({1, 2, 3}),
    "Range": frozenset({0, 1, 2}),
    "Resize": frozenset({1, 2, 3}),
    "Upsample": frozenset({1}),
}

_NEVER = frozenset({"bool", "string", "int64", "uint64", "uint32"})

# Operands that are quantized biases, or weights to be dequantized, if they are 32-bit integers.
INTEGER_WEIGHTS: Mapping[str, frozenset[int]] = {
    "DequantizeLinear": frozenset({0}),
    "QLinearConv": frozenset({8}),
    "QGemm": frozenset({6}),
}

# Operands whose bytes pack several weights, by operator.
_PACKED: Mapping[str, frozenset[int]] = {
    "MatMulNBits": frozenset({1, 3}),
    "MatMulNBitsQLoRA": frozenset({1, 3, 5}),
    "MatMulNBitsMlp": frozenset({3, 6}),
    "MatMulNBitsQkv": frozenset({3, 6, 9}),
    "MatMulBnb4": frozenset({1}),
    "MatMulFpQ4": frozenset({1}),
    "GatherBlockQuantized": frozenset({0, 3}),
    "QMoE": frozenset({2, 5, 8, 11, 12, 13}),
}
# The layer of an expert to which each of QMoE's operands belongs. A layer may have its own bits.
_EXPERT_LAYERS: Mapping[int, int] = {2: 1, 5: 2, 8: 3, 11: 1, 12: 2, 13: 3}

# Operands whose format is a number in an attribute.
_FORMATS: Mapping[str, Mapping[int, str]] = {
    "GatherPacked": {0: "packed_type"},
    "MatMulPacked": {1: "packed_type"},
    "MoEPacked": {2: "gate_type", 3: "up_type", 4: "down_type"},
}
# The bytes that 256 weights take in each format, as the kernel of GatherPacked requires.
_BYTES_OF_256: Mapping[object, int] = {
    0: 1024, 1: 512, 2: 144, 6: 176, 8: 272, 13: 176, 14: 210, 16: 66, 17: 74, 18: 98, 20: 144,
    22: 82, 23: 136, 30: 512, 42: 72,
}  # fmt: skip

# Quantized operands, with the operand that is their zero point and its axis.
_ZERO_POINTS: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "DequantizeLinear": {0: (2, 1)},
    "ConvInteger": {1: (3, 0)},
    "QLinearConv": {3: (5, 0)},
    "MatMulInteger": {0: (2, 0), 1: (3, 1)},
    "QLinearMatMul": {0: (2, 0), 3: (5, 1)},
    "MatMulIntegerToFloat": {1: (5, 1)},
    "DynamicQuantizeMatMul": {1: (3, 1)},
    "QGemm": {3: (5, 1)},
    "QAttention": {1: (7, 1)},
    "QLinearAdd": {0: (2, 1), 3: (5, 1)},
    "QLinearMul": {0: (2, 1), 3: (5, 1)},
}


def find_zero_point(node: Node, index: int) -> ZeroPoint | None:
    """Return the zero point of the stored constant that `node` takes at `index`."""
    place = _ZERO_POINTS.get(node.op_type, {}).get(index)
    tensor = None if place is None else node.optional_input(place[0])
    if place is None or tensor is None or len(tensor.weights) != 1:
        return None
    axis = node.attr_int("axis", place[1])
    return ZeroPoint(tensor.weights[0], axis, node.attr_int("block_size", 0) or None)


def count_params(
    op_type: str, index: int, dtype: str, shape: tuple[int, ...], attributes: Mapping[str, object]
) -> int:
    """Count the parameters in a stored constant that an operator takes at `index`."""
    if dtype in _NEVER or index in _SETTINGS.get(op_type, ()):
        return 0
    if dtype == "int32" and index not in INTEGER_WEIGHTS.get(op_type, ()):
        return 0
    size = prod(shape)
    if dtype == "uint8" and index in _PACKED.get(op_type, ()):
        is_adapter = op_type == "MatMulNBitsQLoRA" and index != 1
        bits = attributes.get("lora_bits", 8) if is_adapter else attributes.get("bits")
        return _unpacked(index, size, attributes, bits)
    if dtype == "uint8" and index in _FORMATS.get(op_type, ()):
        return size * 256 // _BYTES_OF_256.get(attributes.get(_FORMATS[op_type][index]), 256)
    return size


def _unpacked(index: int, size: int, attributes: Mapping[str, object], bits: object) -> int:
    if bits is None:
        of_experts = attributes.get("expert_weight_bits", 4)
        bits = attributes.get(f"fc{_EXPERT_LAYERS.get(index)}_expert_weight_bits", of_experts)
    rows, columns = attributes.get("K"), attributes.get("N")
    if index == 1 and size and isinstance(rows, int) and isinstance(columns, int):
        # The file pads K to whole blocks, and the padding does not count.
        return rows * columns
    return size * BITS["uint8"] // bits if isinstance(bits, int) and 0 < bits < 8 else size
