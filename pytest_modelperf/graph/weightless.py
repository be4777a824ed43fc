"""A model without its weights, and the notes by which anybody with numpy draws others.

    shared = leave_weights_out(open_model("model.onnx"))
    write_weightless(shared, folder / "model.onnx")

`shared.proto` runs once the weights stand in the file that it names. `weightless_program` draws
them from `shared.weights`, and needs numpy only. `run_plan` writes that program, and what it reads,
into a folder.

A twin keeps small weights, because it stays with the people who have the model. Here none is kept,
because a model is shared with everybody. Single numbers are kept, and so are small integers, which
are shapes and indices, constants, masks, and the few floats that decide how long the model takes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from onnx import ModelProto, TensorProto

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.data_dependence import find_model_settings
from pytest_modelperf.graph.drawing import Drawer
from pytest_modelperf.graph.drawn_numbers import FEW_NUMBERS, note_for_program, without_values
from pytest_modelperf.graph.model_file import MAX_PROTO_BYTES, ModelFile, packed_bytes
from pytest_modelperf.graph.parameters import INTEGER_WEIGHTS
from pytest_modelperf.graph.run_plan import WEIGHTS_FILE, DrawnNumbers, write_bytes
from pytest_modelperf.graph.stored_tensors import (
    StorageKind,
    StoredTensor,
    clear_data,
    point_outside,
)
from pytest_modelperf.graph.twin import LeftOutWeight, Twin, Uses, left_out, make_twin
from pytest_modelperf.graph.weight_notes import Indices, Note, Statistics, factor_between
from pytest_modelperf.graph.weights_in_nodes import (
    draw_attributes,
    replace_texts,
    turn_constants_into_initializers,
    turn_floats_into_tensors,
)
from pytest_modelperf.graph.wire import INTEGER_TYPES, KEEP_INTEGER_BYTES
from pytest_modelperf.text.units import format_bytes

# ONNX Runtime keeps tensors up to this size in the graph, where shape inference reads them.
_INSIDE_BYTES = 127
# Engines map external data into memory: large weights page by page.
_ALIGNMENT, _PAGE, _LARGE = 64, 4096, 1 << 20


class Weightless(Struct, frozen=True, eq=False):
    """A model without its weights.

    `weights` are notes on the weights in `weights_file`, in its order. `texts` are the replaced
    texts by the original ones. `doubts` say in words which weights may change the time.
    """

    name: str
    proto: ModelProto
    weights_file: str
    weights: tuple[DrawnNumbers, ...]
    texts: Mapping[str, str]
    doubts: tuple[str, ...]

    @property
    def weight_bytes(self) -> int:
        """The size of the file of weights."""
        return max(((each.offset or 0) + each.nbytes for each in self.weights), default=0)


def leave_weights_out(file: ModelFile, weights_file: str = WEIGHTS_FILE) -> Weightless:
    """The model without its weights, which are read piece by piece.

    For a model that was changed in memory: `replace(file, proto=changed)`.
    """
    proto = ModelProto()
    proto.CopyFrom(file.proto)
    proto.ClearField("training_info")
    turn_floats_into_tensors(proto)
    settings = find_model_settings(proto)

    def limit(stored: StoredTensor, uses: Uses) -> int:
        return _kept_bytes(stored, uses, is_setting=stored.name in settings)

    twin = make_twin(replace(file, proto=proto), limit)
    proto = twin.proto
    del proto.metadata_props[:]
    texts = replace_texts(proto)
    doubts = list(draw_attributes(proto))
    turn_constants_into_initializers(proto.graph)
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
            "cannot lie in another file. Export it without functions."
        )
    return Weightless(
        file.name, proto, weights_file, tuple(places.notes), texts, tuple(dict.fromkeys(doubts))
    )


def write_weightless(shared: Weightless, path: Path) -> None:
    """Write the model without its weights."""
    write_bytes(path, shared.proto.SerializeToString(deterministic=True))


def _kept_bytes(stored: StoredTensor, uses: Uses, *, is_setting: bool) -> int:
    """The bytes up to which a tensor stays as it is."""
    tensor = stored.tensor
    elements = math.prod(tensor.dims)
    if elements <= 1 or (is_setting and elements <= FEW_NUMBERS):
        return packed_bytes(tensor)
    is_bias = bool(uses) and all(i in INTEGER_WEIGHTS.get(op, ()) for op, i in uses)
    is_kept = tensor.data_type in INTEGER_TYPES and not is_bias
    return KEEP_INTEGER_BYTES if is_kept else 0


class _Places(Struct):
    """The places of the weights in their file, one after the other."""

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
    """The note without values. Weights that are drawn alike share one note, each by a factor."""
    note = without_values(first.note, first.number)
    factor = factor_between(weight.note, first.note)
    return note.times(factor) if isinstance(note, Statistics) and factor != 1.0 else note


def _draw_inside(weight: LeftOutWeight, note: Note, drawer: Drawer) -> None:
    """Draw a weight that cannot lie outside of the model, or is small, into the model."""
    number, shape = weight.number, weight.stored.dense_shape
    codes = drawer.draw_codes(note, number, weight.dims, weight.group, shape)
    data = b"".join(map(number.pack, codes))
    clear_data(weight.tensor)
    weight.tensor.raw_data = data


def _doubts_about(weight: LeftOutWeight) -> Iterator[str]:
    """Why a weight that is drawn may change the time."""
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
