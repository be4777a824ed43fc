"""A model without the names that people gave: its tensors, nodes and dimensions are numbered.

    renamed = make_anonymous(shared.proto)
    shared = msgspec.structs.replace(shared, proto=renamed.proto)

Operators and attributes that an engine knows keep their names. Data outside of the model stays
where it is, so give its file a name that reveals nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

from google.protobuf.message import Message
from msgspec import Struct, field
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorAnnotation,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
)

from pytest_modelperf.graph.binding import parse_expression
from pytest_modelperf.graph.stored_tensors import remove_named, walk_nodes

# The domain of all functions of an anonymous model.
_FUNCTION_DOMAIN = "functions"
_STANDARD = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "com.microsoft"})
# The parts of the expressions that exporters write: `2*past + 1`, `floor(width/2)`.
_FUNCTIONS_OF_DIMS = frozenset({"ceil", "ceiling", "floor", "max", "min", "Max", "Min", "Mod"})
_KNOWN_PARTS = (
    ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.Constant, ast.operator,
    ast.unaryop, ast.expr_context,
)  # fmt: skip
_TEXT_FIELDS = ("doc_string", "metadata_props", "denotation", "device_configurations")


class Renamed(Struct, frozen=True, eq=False):
    """A model with other names, and the new names of values and dimensions by the original ones."""

    proto: ModelProto
    values: Mapping[str, str]
    dims: Mapping[str, str]


def make_anonymous(proto: ModelProto) -> Renamed:
    """Return a copy of the model without the names that people chose."""
    made = ModelProto()
    made.CopyFrom(proto)
    for name in ("producer_name", "producer_version", "domain", "model_version", "configuration"):
        if name in made.DESCRIPTOR.fields_by_name:
            made.ClearField(name)
    names = _Names()
    # Inputs and outputs come first: a program refers to them by their names.
    names.number("x", (info.name for info in made.graph.input))
    names.number("y", (info.name for info in made.graph.output))
    names.read_functions(made.functions)
    # An import that no node needs only reveals where the model comes from.
    names.domains |= {node.domain for node in walk_nodes(made)}
    names.rename(made)
    return Renamed(made, names.values, names.dims)


class _Function(Struct, frozen=True):
    name: str
    attributes: Mapping[str, str]


class _Names(Struct):
    values: dict[str, str] = field(default_factory=dict)
    dims: dict[str, str] = field(default_factory=dict)
    # By domain, name and overload.
    functions: dict[tuple[str, str, str], _Function] = field(default_factory=dict)
    domains: set[str] = field(default_factory=lambda: set(_STANDARD))
    nodes: int = 0
    graphs: int = 0

    def number(self, letter: str, originals: Iterable[str]) -> None:
        for index, name in enumerate(originals):
            self.values.setdefault(name, f"{letter}{index}")

    def value(self, name: str) -> str:
        """Return the new name of a value, or an empty name for an input that is left out."""
        return self.values.setdefault(name, f"t{len(self.values)}") if name else ""

    def dim(self, text: str) -> str:
        tree = parse_expression(text.strip())
        if tree is None:
            return self._dim_name(text)
        found = tuple(ast.walk(tree))
        parts = {each.id for each in found if isinstance(each, ast.Name)} - _FUNCTIONS_OF_DIMS
        is_known = all(isinstance(each, _KNOWN_PARTS) for each in found)
        if not parts or text in parts or not is_known:
            return self._dim_name(text)
        return re.sub(
            r"[^\W\d]\w*", lambda m: self._dim_name(m[0]) if m[0] in parts else m[0], text
        )

    def _dim_name(self, name: str) -> str:
        return self.dims.setdefault(name, f"d{len(self.dims)}")

    def read_functions(self, functions: Iterable[FunctionProto]) -> None:
        for function in functions:
            own = [*function.attribute, *(each.name for each in function.attribute_proto)]
            self.functions.setdefault(
                (function.domain, function.name, function.overload),
                _Function(f"f{len(self.functions)}", {name: f"a{i}" for i, name in enumerate(own)}),
            )

    def rename(self, message: Message, function: _Function | None = None) -> None:
        for name in _TEXT_FIELDS:
            if name in message.DESCRIPTOR.fields_by_name:
                message.ClearField(name)
        if isinstance(message, FunctionProto):
            function = self.functions[message.domain, message.name, message.overload]
            self._rename_function(message, function)
        elif isinstance(message, NodeProto):
            self._rename_node(message)
        elif isinstance(message, AttributeProto):
            self._rename_attribute(message, function)
        elif isinstance(message, ModelProto):
            self._rename_imports(message)
        else:
            self._rename_leaf(message)
        for each, value in message.ListFields():
            if each.message_type is not None:
                for inner in [value] if isinstance(value, Message) else value:
                    self.rename(inner, function)

    def _rename_leaf(self, message: Message) -> None:
        if isinstance(message, GraphProto):
            message.name = f"g{self.graphs}"
            self.graphs += 1
        elif isinstance(message, (TensorProto, ValueInfoProto)) and message.name:
            message.name = self.value(message.name)
        elif isinstance(message, TensorAnnotation):
            message.tensor_name = self.value(message.tensor_name)
            for entry in message.quant_parameter_tensor_names:
                entry.value = self.value(entry.value)
        elif isinstance(message, TensorShapeProto.Dimension) and message.dim_param:
            message.dim_param = self.dim(message.dim_param)
        elif isinstance(message, TypeProto.Opaque):
            message.Clear()

    def _rename_function(self, message: FunctionProto, function: _Function) -> None:
        message.name, message.domain = function.name, _FUNCTION_DOMAIN
        message.ClearField("overload")
        message.input[:] = [self.value(name) for name in message.input]
        message.output[:] = [self.value(name) for name in message.output]
        message.attribute[:] = [function.attributes[name] for name in message.attribute]
        for attribute in message.attribute_proto:
            attribute.name = function.attributes[attribute.name]
        self._rename_imports(message)

    def _rename_node(self, node: NodeProto) -> None:
        called = self.functions.get((node.domain, node.op_type, node.overload))
        node.name = f"n{self.nodes}"
        self.nodes += 1
        node.input[:] = [self.value(name) for name in node.input]
        node.output[:] = [self.value(name) for name in node.output]
        if called is not None:
            node.op_type, node.domain = called.name, _FUNCTION_DOMAIN
            node.ClearField("overload")
            for attribute in node.attribute:
                attribute.name = called.attributes.get(attribute.name, attribute.name)

    def _rename_attribute(self, attribute: AttributeProto, function: _Function | None) -> None:
        if function is not None and attribute.ref_attr_name:
            own = attribute.ref_attr_name
            attribute.ref_attr_name = function.attributes.get(own, own)
        # The name of a tensor in an attribute is never used to find it.
        for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors):
            tensor.ClearField("name")

    def _rename_imports(self, message: ModelProto | FunctionProto) -> None:
        """Import the one domain of functions instead of the domains that they were in."""
        wanted = self.domains - ({domain for domain, *_ in self.functions} - _STANDARD)
        unwanted = {each.domain for each in message.opset_import} - wanted
        remove_named(message.opset_import, unwanted, by="domain")
        if self.functions:
            message.opset_import.add(domain=_FUNCTION_DOMAIN, version=1)
