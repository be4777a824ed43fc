"""A model without its weights, and notes with which anyone who has numpy can draw others.

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

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from onnx import GraphProto, ModelProto, TensorProto, numpy_helper

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.data_dependence import find_model_settings
from pytest_modelperf.graph.model_file import MAX_PROTO_BYTES, ModelFile, packed_bytes
from pytest_modelperf.graph.stored_tensors import (
    INTEGER_WEIGHTS,
    StorageKind,
    StoredTensor,
    bodies_of,
    clear_data,
    point_outside,
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
from pytest_modelperf.graph.weights.describing import describe
from pytest_modelperf.graph.weights.drawing import Drawer, draw_all
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
from pytest_modelperf.graph.wire import INTEGER_TYPES, KEEP_INTEGER_BYTES
from pytest_modelperf.text.units import format_bytes

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
