"""A model for people who may not have its weights: without them, and without the given names.

    renamed = make_anonymous(shared.proto)
    shared = msgspec.structs.replace(shared, proto=renamed.proto)

Operators and attributes that an engine knows keep their names. Data outside of the model stays
in its file, so give the file a name that reveals nothing.

    shared = leave_weights_out(open_model("model.onnx"))
    write_weightless(shared, folder / "model.onnx")

`shared.proto` runs once the file that it names contains the weights. `weights.program` draws them
from `shared.weights`, and needs only numpy. `run_plan` writes that program and its input into a
folder.

A twin keeps small weights, because it stays with the people who have the model. A model that is
shared with everybody keeps none. What stays are single numbers, small integers (shapes, indices,
constants and masks), and the few floats that decide how long the model takes.
"""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np
from google.protobuf.message import Message
from msgspec import Struct, field
from msgspec.structs import replace
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
    numpy_helper,
)

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.binding import parse_expression
from pytest_modelperf.graph.data_dependence import find_model_settings
from pytest_modelperf.graph.model_bytes import INTEGER_TYPES, KEEP_INTEGER_BYTES
from pytest_modelperf.graph.model_file import MAX_PROTO_BYTES, ModelFile, packed_bytes
from pytest_modelperf.graph.stored_tensors import (
    INTEGER_WEIGHTS,
    StorageKind,
    StoredTensor,
    bodies_of,
    clear_data,
    point_outside,
    remove_named,
    walk_nodes,
    walk_stored,
)
from pytest_modelperf.graph.stored_weights import stored_number
from pytest_modelperf.graph.twin import (
    LeftOutWeight,
    Twin,
    Uses,
    left_out,
    make_twin,
    turn_lists_into_tensors,
)
from pytest_modelperf.graph.weights.drawing import Drawer, describe, draw_all
from pytest_modelperf.graph.weights.notes import Indices, Note, Statistics, factor_between
from pytest_modelperf.graph.weights.numbers import Codes, NumberType, codes_of
from pytest_modelperf.graph.weights.run_plan import (
    FEW_NUMBERS,
    WEIGHTS_FILE,
    DrawnNumbers,
    note_for_program,
    without_values,
    write_bytes,
)
from pytest_modelperf.text.units import format_bytes

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


# The operators of classical machine learning keep their weights in attributes.
_ML = "ai.onnx.ml"
_TEXT_ATTRIBUTES = frozenset(
    {"cats_strings", "classes_strings", "classlabels_strings", "default_string", "keys_strings"}
    | {"pattern", "pool_strings", "separators", "stopwords", "string_vocabulary", "tokenexp"}
    | {"values_strings"}
)
_DRAWN = frozenset(map(NumberType, ("float16", "float32", "float64")))
# ONNX Runtime keeps tensors up to this size in the graph, so that shape inference can read them.
_INSIDE_BYTES = 127
# Engines map external data into memory: large weights page by page.
_ALIGNMENT, _PAGE, _LARGE = 64, 4096, 1 << 20


class Weightless(Struct, frozen=True, eq=False):
    """A model without its weights.

    `weights` are notes on the weights in `weights_file`, in its order. `texts` maps the original
    texts to their replacements. `doubts` describe which weights may change the time.
    """

    name: str
    proto: ModelProto
    weights_file: str
    weights: tuple[DrawnNumbers, ...]
    texts: Mapping[str, str]
    doubts: tuple[str, ...]

    @property
    def weight_bytes(self) -> int:
        return max(((each.offset or 0) + each.nbytes for each in self.weights), default=0)


def leave_weights_out(file: ModelFile, weights_file: str = WEIGHTS_FILE) -> Weightless:
    """Return the model without weights. For a changed one, give `replace(file, proto=changed)`."""
    proto = ModelProto()
    proto.CopyFrom(file.proto)
    proto.ClearField("training_info")
    turn_lists_into_tensors(proto, 0)
    settings = find_model_settings(proto)

    def limit(stored: StoredTensor, uses: Uses) -> int:
        return _kept_bytes(stored, uses, is_setting=stored.name in settings)

    twin = make_twin(replace(file, proto=proto), limit)
    proto = twin.proto
    del proto.metadata_props[:]
    texts = _replace_texts(proto)
    doubts = list(_draw_attributes(proto))
    _turn_constants_into_initializers(proto.graph)
    places = _Places(weights_file)
    drawer = Drawer(0)
    firsts: dict[str, LeftOutWeight] = {}
    for weight in tuple(left_out(Twin(file.name, proto))):
        weight.tensor.ClearField("metadata_props")
        doubts += _doubts_about(weight)
        note = _shared_note(weight, firsts.setdefault(weight.group, weight))
        is_outside = weight.stored.kind is StorageKind.INITIALIZER
        if is_outside and weight.nbytes > _INSIDE_BYTES:
            places.put_outside(weight, note)
        else:
            _draw_inside(weight, note, drawer)
    if proto.ByteSize() > MAX_PROTO_BYTES:
        raise ModelError(
            f"{file.name} holds {format_bytes(proto.ByteSize())} in nodes of functions, where data "
            "cannot be in another file. Export it without functions."
        )
    return Weightless(
        file.name, proto, weights_file, tuple(places.notes), texts, tuple(dict.fromkeys(doubts))
    )


def write_weightless(shared: Weightless, path: Path) -> None:
    write_bytes(path, shared.proto.SerializeToString(deterministic=True))


def _kept_bytes(stored: StoredTensor, uses: Uses, *, is_setting: bool) -> int:
    tensor = stored.tensor
    elements = math.prod(tensor.dims)
    if elements <= 1 or (is_setting and elements <= FEW_NUMBERS):
        return packed_bytes(tensor)
    is_bias = bool(uses) and all(i in INTEGER_WEIGHTS.get(op, ()) for op, i in uses)
    is_kept = tensor.data_type in INTEGER_TYPES and not is_bias
    return KEEP_INTEGER_BYTES if is_kept else 0


class _Places(Struct):
    weights_file: str
    notes: list[DrawnNumbers] = msgspec.field(default_factory=list)
    streams: dict[str, int] = msgspec.field(default_factory=lambda: defaultdict(int))
    end: int = 0

    def put_outside(self, weight: LeftOutWeight, note: Note) -> None:
        alignment = _PAGE if weight.nbytes >= _LARGE else _ALIGNMENT
        offset = self.end + -self.end % alignment
        self.end = offset + weight.nbytes
        stream = self.streams.setdefault(weight.group, len(self.streams) + 1)
        shape = weight.number.shape(weight.dims)
        drawn = note_for_program(note, weight.number, shape, stream)
        self.notes.append(replace(drawn, offset=offset))
        point_outside(weight.tensor, self.weights_file, offset, weight.nbytes)


def _shared_note(weight: LeftOutWeight, first: LeftOutWeight) -> Note:
    """Return the note without values. Weights of a group share one note, each with its factor."""
    note = without_values(first.note, first.number)
    factor = factor_between(weight.note, first.note)
    return note.times(factor) if isinstance(note, Statistics) and factor != 1.0 else note


def _draw_inside(weight: LeftOutWeight, note: Note, drawer: Drawer) -> None:
    """Draw a weight into the model, because it is small or cannot be in another file."""
    number, shape = weight.number, weight.stored.dense_shape
    codes = drawer.draw_codes(note, number, weight.dims, weight.group, shape)
    data = b"".join(map(number.pack, codes))
    clear_data(weight.tensor)
    weight.tensor.raw_data = data


def _doubts_about(weight: LeftOutWeight) -> Iterator[str]:
    note = weight.note
    if isinstance(note, Indices):
        yield "a sparse weight has its values at other places"
    elif isinstance(note, Statistics):
        if note.subnormals:
            yield "weights with subnormal numbers are drawn with the same share of them"
        if weight.number.is_float and note.zeros > math.prod(weight.dims) // 20:
            yield "weights with many zeros are drawn with the same share of them at other places"
        if weight.tensor.data_type in INTEGER_TYPES - {TensorProto.INT32}:
            yield "large integer weights, which may be indices, are drawn within their range"


def _turn_constants_into_initializers(graph: GraphProto) -> None:
    """Turn the left-out Constant nodes of a graph and its bodies into initializers."""
    # The data of an initializer can be in another file. Functions have no initializers.
    gone: list[int] = []
    for index, node in enumerate(graph.node):
        for attribute in node.attribute:
            for body in bodies_of(attribute):
                _turn_constants_into_initializers(body)
        is_constant = node.op_type == "Constant" and node.domain in {"", "ai.onnx"}
        value = next((each.t for each in node.attribute if each.HasField("t")), None)
        if is_constant and value is not None and value.data_location == TensorProto.EXTERNAL:
            moved = graph.initializer.add()
            moved.CopyFrom(value)
            moved.name = node.output[0]
            gone.append(index)
    for index in reversed(gone):
        del graph.node[index]


def _replace_texts(proto: ModelProto) -> dict[str, str]:
    """Replace the stored texts by others of the same lengths, so that equal texts stay equal."""
    replaced: dict[str, str] = {}

    def replace_text(text: bytes) -> bytes:
        shown = text.decode("utf-8", "surrogateescape")
        made = replaced.setdefault(shown, f"t{len(replaced)}".ljust(len(text), "x"))
        return made.encode()

    for stored in walk_stored(proto):
        texts = stored.tensor.string_data
        texts[:] = [replace_text(text) for text in texts]
    for node in walk_nodes(proto):
        for attribute in node.attribute:
            if attribute.name in _TEXT_ATTRIBUTES or node.op_type == "Constant":
                attribute.strings[:] = [replace_text(text) for text in attribute.strings]
                if attribute.s:
                    attribute.s = replace_text(attribute.s)
    return replaced


def _draw_attributes(proto: ModelProto) -> Iterator[str]:
    number = NumberType("float32")
    count = 0
    for node in walk_nodes(proto):
        for attribute in node.attribute:
            tensors = [attribute.t, *attribute.tensors] if node.op_type != "Constant" else []
            for tensor in tensors:
                _draw_tensor(tensor, f"{count}")
                count += 1
            if node.domain == _ML and len(attribute.floats) > 1:
                values = np.array(attribute.floats, np.float32)
                drawn = _draw_like(codes_of(values, number), number, f"{count}")
                attribute.floats[:] = number.decode(drawn).tolist()
                count += 1
                if attribute.name.startswith("nodes_values"):
                    yield "the thresholds of trees are drawn, so that inputs take other paths"


def _draw_tensor(tensor: TensorProto, name: str) -> None:
    number = stored_number(tensor)
    if number is None or number not in _DRAWN or math.prod(tensor.dims) <= 1:
        return
    drawn = _draw_like(codes_of(numpy_helper.to_array(tensor), number), number, name)
    clear_data(tensor)
    tensor.raw_data = number.pack(drawn)


def _draw_like(codes: Codes, number: NumberType, name: str) -> Codes:
    note = without_values(describe(number, (codes.size,), lambda: iter([codes])), number)
    return draw_all(note, number, codes.size, name)
