"""Between onnx's protobuf messages and the values that `structure` holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onnx import AttributeProto, NodeProto, TensorProto, TypeProto, helper

from pytest_modelperf.graph.model_file import dtype_name
from pytest_modelperf.graph.shape_rule import OutputType
from pytest_modelperf.graph.structure import Attribute, Shape


def read_type(proto: TypeProto | None) -> tuple[str | None, Shape | None]:
    if proto is None or not proto.HasField("tensor_type"):
        return None, None
    tensor = proto.tensor_type
    dtype = dtype_name(tensor.elem_type)
    if not tensor.HasField("shape"):
        return dtype, None
    # onnx's inference does not check for overflow: a negative dimension is one it got wrong.
    return dtype, tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None
        for d in tensor.shape.dim
    )


def output_type(proto: TypeProto | None) -> OutputType | None:
    if proto is None:
        return None
    dtype, shape = read_type(proto)
    return OutputType(dtype, shape)


def read_attributes(node: NodeProto) -> dict[str, Attribute]:
    return {a.name: value for a in node.attribute if (value := attribute_value(a)) is not None}


def attribute_value(attribute: AttributeProto) -> Attribute | None:
    """The plain value of an attribute; None for tensors, which are weights, and for bodies."""
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


def constant_tensor(attribute: AttributeProto) -> TensorProto | None:
    """A Constant's value_int, value_floats and so on as the tensor that it means."""
    value = attribute_value(attribute)
    kinds = {"int": TensorProto.INT64, "float": TensorProto.FLOAT, "string": TensorProto.STRING}
    kind = kinds.get(attribute.name.removeprefix("value_").removesuffix("s"))
    if value is None or kind is None:
        return None
    shape = [len(value)] if isinstance(value, tuple) else []
    values: Any = value if isinstance(value, tuple) else [value]
    return helper.make_tensor("", kind, shape, values)


def has_bodies(node: NodeProto) -> bool:
    return any(a.type == AttributeProto.GRAPH for a in node.attribute)
