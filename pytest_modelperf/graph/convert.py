"""Protobuf messages of onnx as plain values: calls, attributes, types.

Reading a field of a message costs as much as a dozen Python operations, so each is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, helper

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.model_file import dtype_name
from pytest_modelperf.graph.shape_rules import OutputType
from pytest_modelperf.graph.structure import Attribute, Shape
from pytest_modelperf.text.escaping import printable

_NOTHING: dict[str, Any] = {}


# Bodies within bodies. Real models stay below 5.
MAX_BODY_DEPTH = 32
# The total of nodes, including those of unfolded functions and of bodies.
MAX_NODES = 200_000


class Call(Struct, frozen=True, gc=False, eq=False):
    """A NodeProto as plain values. `kinds` has the types of all attributes, even of bodies."""

    proto: NodeProto
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kinds: Mapping[str, int]
    attributes: Mapping[str, Attribute]
    bodies: Mapping[str, ParsedGraph]


class ParsedGraph(Struct, frozen=True, eq=False):
    """A graph, or the body of a control flow operator, with its nodes read.

    `bodies` are those of its own nodes, and `ops` the domains and types of all nodes inside it.
    """

    proto: GraphProto
    calls: tuple[Call, ...]
    bodies: tuple[ParsedGraph, ...]
    ops: frozenset[tuple[str, str]]

    def walk(self) -> Iterator[ParsedGraph]:
        yield self
        for body in self.bodies:
            yield from body.walk()

    def has_any(self, op_types: Container[str]) -> bool:
        """Whether a node has one of these types, in any domain."""
        return any(op_type in op_types for _, op_type in self.ops)


def read_graph(graph: GraphProto, model: str, depth: int = 0) -> ParsedGraph:
    calls = read_calls(graph.node, model, depth)
    bodies = tuple([body for call in calls if call.bodies for body in call.bodies.values()])
    ops = frozenset([(call.domain, call.op_type) for call in calls])
    return ParsedGraph(graph, calls, bodies, ops.union(*[body.ops for body in bodies]))


def read_calls(nodes: Sequence[NodeProto], model: str, depth: int = 0) -> tuple[Call, ...]:
    # Check this before reading the nodes, because each takes a kilobyte.
    if len(nodes) > MAX_NODES:
        raise ModelError(
            f"{model} has {len(nodes):,} nodes in a graph; {MAX_NODES:,} is the limit."
        )
    if depth > MAX_BODY_DEPTH:
        raise ModelError(f"{model} nests control flow deeper than {MAX_BODY_DEPTH} levels.")
    return tuple([_read_call(node, model, depth) for node in nodes])


def _read_call(node: NodeProto, model: str, depth: int) -> Call:
    op_type, domain = node.op_type, node.domain
    inputs, outputs = tuple(node.input), tuple(node.output)
    check_text(model, node.name, op_type, domain, *inputs, *outputs)
    kinds: dict[str, int] = _NOTHING
    plain: dict[str, Attribute] = _NOTHING
    bodies: Mapping[str, ParsedGraph] = _NOTHING
    attributes = node.attribute
    if attributes:
        kinds, plain = {}, {}
        for attribute in attributes:
            name, kind = attribute.name, attribute.type
            kinds[name] = kind
            reader = _READERS.get(kind)
            if reader is not None:
                plain[name] = reader(attribute)
        check_text(model, *kinds)
        if len(kinds) < len(attributes):
            raise ModelError(
                f"{model} gives an attribute of {printable(op_type)} {printable(node.name)!r} "
                "twice. The file is damaged: export the model again."
            )
        # Graphs, like tensors, have no plain value.
        if len(plain) < len(kinds):
            bodies = {
                a.name: read_graph(a.g, model, depth + 1)
                for a in attributes
                if a.type == AttributeProto.GRAPH
            }
    return Call(node, op_type, unified_domain(domain), inputs, outputs, kinds, plain, bodies)


def unified_domain(domain: str) -> str:
    """Return the canonical name of a domain, which is empty for the standard domain."""
    return "" if domain == "ai.onnx" else domain


def check_text(model: str, *names: object) -> None:
    """Raise ModelError if a name is not text: protobuf returns such a name as bytes."""
    try:
        "".join(names)  # type: ignore[arg-type]  # this is what it checks
    except TypeError:
        wrong = next(name for name in names if not isinstance(name, str))
        raise ModelError(
            f"{model} holds a name that is not UTF-8 text: {wrong!r:.80}. The file is damaged: "
            "export the model again."
        ) from None


def attribute_value(attribute: AttributeProto) -> Attribute | None:
    """Return the plain value of an attribute, or None for a tensor (a weight) or a body."""
    reader = _READERS.get(attribute.type)
    return None if reader is None else reader(attribute)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


_READERS: Mapping[int, Callable[[AttributeProto], Attribute]] = {
    AttributeProto.INT: lambda a: a.i,
    AttributeProto.INTS: lambda a: tuple(a.ints),
    AttributeProto.FLOAT: lambda a: a.f,
    AttributeProto.FLOATS: lambda a: tuple(a.floats),
    AttributeProto.STRING: lambda a: _text(a.s),
    AttributeProto.STRINGS: lambda a: tuple(map(_text, a.strings)),
}


def read_type(proto: TypeProto | None) -> OutputType:
    """Return the dtype and shape in a type, both unknown if it is not the type of a tensor."""
    if proto is None or not proto.HasField("tensor_type"):
        return UNKNOWN_TYPE
    tensor = proto.tensor_type
    dtype = dtype_name(tensor.elem_type)
    if not tensor.HasField("shape"):
        return OutputType(dtype, None)
    shape: Shape = tuple([dim.dim_value for dim in tensor.shape.dim])
    if all(size > 0 for size in shape if size is not None):
        return OutputType(dtype, shape)
    # An unset size also reads as 0. A negative size comes from an overflow in onnx's inference.
    return OutputType(
        dtype,
        tuple(
            size if dim.HasField("dim_value") and size is not None and size >= 0 else None
            for size, dim in zip(shape, tensor.shape.dim, strict=True)
        ),
    )


UNKNOWN_TYPE = OutputType(None, None)


def constant_tensor(attribute: AttributeProto) -> TensorProto | None:
    """Return the tensor that a Constant's value_int, value_floats and so on describe."""
    value = attribute_value(attribute)
    kinds = {"int": TensorProto.INT64, "float": TensorProto.FLOAT, "string": TensorProto.STRING}
    kind = kinds.get(attribute.name.removeprefix("value_").removesuffix("s"))
    if value is None or kind is None:
        return None
    shape = [len(value)] if isinstance(value, tuple) else []
    values: Any = value if isinstance(value, tuple) else [value]
    try:
        return helper.make_tensor("", kind, shape, values)
    except (TypeError, ValueError):
        # The value has a type other than the name of the attribute implies.
        return None
