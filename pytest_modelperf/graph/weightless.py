"""A model without its weights, and the notes by which anybody with numpy draws others.

    shared = leave_weights_out(open_model("model.onnx"))
    write_weightless(shared, folder, "model.onnx")

`shared.proto` runs once the weights stand in the file that it names. `weightless_program` draws
them from `shared.weights`, and needs numpy only. A `RunPlan` says to that program what to draw and
how to run it; `write_run` puts both into a folder.

A twin keeps small weights, because it stays with the people who have the model. Here none stays: a
model is shared with everybody. What stays are single numbers, small integers, which are shapes and
indices, constants, masks, and the few floats that sizes are computed from.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from pytest_modelperf.errors import ModelError, OutputError
from pytest_modelperf.graph import weightless_program
from pytest_modelperf.graph.drawing import Drawer
from pytest_modelperf.graph.model_file import MAX_PROTO_BYTES, ModelFile
from pytest_modelperf.graph.number_codes import NumberType, codes_of, number_type
from pytest_modelperf.graph.run_lengths import RunLengths
from pytest_modelperf.graph.stored_tensors import StorageKind, StoredTensor, walk_nodes, walk_stored
from pytest_modelperf.graph.twin import LeftOutWeight, Twin, Uses, left_out, make_twin
from pytest_modelperf.graph.weight_notes import Indices, Note, Statistics, describe
from pytest_modelperf.graph.weight_pieces import stored_bytes
from pytest_modelperf.graph.wire import KEEP_INTEGER_BYTES
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

# The names of the files of a folder.
MODEL_FILE, WEIGHTS_FILE = "model.onnx", "weights.bin"
PROGRAM_FILE, PLAN_FILE = "run.py", "run.json"

# ONNX Runtime keeps tensors up to this size in the graph, where shape inference reads them.
_INSIDE_BYTES = 127
# So many floats that sizes are computed from are kept: the scales of the axes of an image.
_MOST_DECIDING = 16
# Engines map external data into memory: large weights page by page.
_ALIGNMENT, _PAGE, _LARGE = 64, 4096, 1 << 20
# So many codes are drawn of a type that numpy lacks, for the program to choose from.
_CODES = 256
# Types that numpy has, and that the program draws from their statistics.
_DRAWN = frozenset(
    {"float16", "float32", "float64", "int8", "int16", "int32", "int64"}
    | {"uint8", "uint16", "uint32", "uint64"}
)
# Floats hold integers exactly up to here.
_EXACT = 2**53
# Normal numbers reach this many deviations to both sides of their mean.
_NORMAL_RANGE = 2.0
# A float of this size or more hides an element from a softmax.
_FILLER = 1e4
_INTEGERS = frozenset(
    {TensorProto.INT16, TensorProto.INT32, TensorProto.INT64}
    | {TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64, TensorProto.BOOL}
)
# The operands that are biases of 32 bits.
_BIASES = frozenset({("DequantizeLinear", 0), ("QLinearConv", 8), ("QGemm", 6)})
# The operands that tell sizes, by operator.
_SIZES: Mapping[str, tuple[int, ...]] = {
    "ConstantOfShape": (0,), "Expand": (1,), "Pad": (1,), "Range": (0, 1, 2), "Reshape": (1,),
    "Resize": (1, 2, 3), "Slice": (1, 2, 3, 4), "Tile": (1,), "TopK": (1,), "Upsample": (1,),
}  # fmt: skip
# The operators that compute sizes from other sizes.
_ARITHMETIC = frozenset(
    {"Add", "Cast", "Ceil", "Concat", "Constant", "Div", "Floor", "Gather", "Identity", "Max"}
    | {"Min", "Mul", "Reshape", "Round", "Slice", "Squeeze", "Sub", "Unsqueeze"}
)
# The operators of classical machine learning keep their weights in attributes.
_ML = "ai.onnx.ml"
_TEXT_ATTRIBUTES = frozenset(
    {"cats_strings", "classlabels_strings", "default_string", "keys_strings", "pool_strings"}
    | {"string_vocabulary", "stopwords", "values_strings", "imputed_value_strings"}
)


class DrawnNumbers(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The note by which `weightless_program` draws the numbers of a weight or of an input.

    Weights of one `stream` are equal. Numbers are chosen among `codes`, or laid out in `rows`, or
    drawn by their mean and deviation; `even` asks for all numbers alike in place of a bell curve.
    `zeros` and `subnormals` are shares of the numbers.
    """

    type: str
    stream: int
    count: int
    offset: int | None = None
    codes: tuple[int, ...] | None = None
    rows: tuple[Any, ...] | None = None
    mean: float | None = None
    std: float | None = None
    low: int | float | None = None
    high: int | float | None = None
    zeros: float | None = None
    subnormals: float | None = None
    even: bool | None = None


class DrawnInput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An input of a run: the note on its numbers, or its texts."""

    name: str
    shape: tuple[int, ...]
    numbers: DrawnNumbers | None = None
    texts: tuple[str, ...] | None = None


class RunModel(Struct, frozen=True, kw_only=True):
    """One model of a folder, with the notes on its weights and on its inputs."""

    file: str
    weights_file: str
    weights: tuple[DrawnNumbers, ...]
    inputs: tuple[DrawnInput, ...]


class RunPlan(Struct, frozen=True, kw_only=True):
    """Everything that the program of a folder reads: the models that run in turn, and how.

    `options` are attributes of `SessionOptions`, and `config` entries of its configuration.
    """

    cores: int
    providers: tuple[str, ...]
    options: Mapping[str, int | str | bool]
    config: Mapping[str, str]
    models: tuple[RunModel, ...]


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
        return max((each.offset or 0) + _size(each) for each in self.weights) if self.weights else 0


def leave_weights_out(file: ModelFile, weights_file: str = WEIGHTS_FILE) -> Weightless:
    """The model without its weights, which are read piece by piece.

    For a model that was changed in memory: `replace(file, proto=changed)`.
    """
    proto = ModelProto()
    proto.CopyFrom(file.proto)
    proto.ClearField("training_info")
    _turn_floats_into_tensors(proto)
    deciding = _find_deciding(proto)

    def limit(stored: StoredTensor, uses: Uses) -> int:
        return _kept_bytes(stored, uses, is_deciding=stored.name in deciding)

    twin = make_twin(replace(file, proto=proto), limit)
    proto = twin.proto
    del proto.metadata_props[:]
    texts = _replace_texts(proto)
    doubts = list(_draw_attributes(proto))
    _turn_constants_into_initializers(proto.graph)
    places = _Places(weights_file)
    drawer = Drawer(0)
    for weight in tuple(left_out(Twin(file.name, proto))):
        doubts += _doubts_about(weight)
        is_outside = weight.stored.kind is StorageKind.INITIALIZER
        if is_outside and weight.nbytes > _INSIDE_BYTES:
            places.put_outside(weight)
        else:
            _draw_inside(weight, drawer)
    if proto.ByteSize() > MAX_PROTO_BYTES:
        raise ModelError(
            f"{file.name} holds {format_bytes(proto.ByteSize())} in nodes of functions, where data "
            "cannot lie in another file. Export it without functions."
        )
    return Weightless(
        file.name, proto, weights_file, tuple(places.notes), texts, tuple(dict.fromkeys(doubts))
    )


def describe_input(  # noqa: PLR0913, PLR0917  # an array, and the names of what it is
    name: str,
    dtype: str,
    array: npt.NDArray[Any],
    stream: int,
    texts: Mapping[str, str],
    model: str,
) -> DrawnInput:
    """The note by which an input of a run is drawn again; ModelError for a type that numpy lacks.

    A few integers and single numbers stay as they are. Texts are replaced, as in `Weightless`.
    """
    shape = tuple(map(int, array.shape))
    if dtype == "string":
        words = tuple(texts.get(text, "x" * len(text)) for text in map(str, array.reshape(-1)))
        return DrawnInput(name=name, shape=shape, texts=words)
    number = number_type(dtype)
    if number is None or (dtype not in _DRAWN and dtype != "bool"):
        raise ModelError(
            f"the input {printable(name)!r} of {model} is {printable(dtype)}, which numpy lacks, "
            "and the program of a shared model has only numpy. Share a model with other inputs."
        )
    codes = codes_of(array, number)
    numbers = DrawnNumbers(type=dtype, stream=stream, count=array.size)
    is_short = array.dtype.kind in "iub" and array.size <= _MOST_DECIDING
    if not array.size:
        numbers = replace(numbers, codes=(0,))
    elif is_short or array.size == 1:
        numbers = replace(numbers, rows=((1, *((int(code), 1, 0) for code in codes)),))
    else:
        note = describe(number, shape, lambda: iter([codes]))
        numbers = _drawn(note, number, array.size, stream)
    return DrawnInput(name=name, shape=shape, numbers=numbers)


def write_weightless(shared: Weightless, path: Path) -> None:
    """Write the model without its weights."""
    _write(path, shared.proto.SerializeToString(deterministic=True))


def write_run(plan: RunPlan, folder: Path) -> None:
    """Write the program that draws the weights and runs the models, and what it reads."""
    program = Path(weightless_program.__file__).read_bytes()
    _write(folder / PROGRAM_FILE, program)
    lines = msgspec.json.format(msgspec.json.encode(plan), indent=1)
    _write(folder / PLAN_FILE, _one_note_a_line(lines) + b"\n")


def draw_weights(model: RunModel, folder: Path) -> None:
    """Draw the weights of a model beside it, as the program does."""
    try:
        weightless_program.draw_weights(folder, msgspec.to_builtins(model))
    except OSError as error:
        raise _cannot_write(folder / model.weights_file, error) from error


def draw_inputs(model: RunModel) -> dict[str, npt.NDArray[Any]]:
    """The inputs of a model, as the program draws them."""
    return {
        each.name: weightless_program.draw_input(msgspec.to_builtins(each)) for each in model.inputs
    }


# -- what stays


def _kept_bytes(stored: StoredTensor, uses: Uses, *, is_deciding: bool) -> int:
    """The bytes up to which a tensor stays as it is."""
    tensor = stored.tensor
    elements = math.prod(tensor.dims)
    if elements <= 1 or (is_deciding and elements <= _MOST_DECIDING):
        return stored_bytes(tensor)
    is_bias = bool(uses) and uses <= _BIASES
    is_kept = tensor.data_type in _INTEGERS and not is_bias
    return KEEP_INTEGER_BYTES if is_kept else 0


def _find_deciding(proto: ModelProto) -> frozenset[str]:
    """The names of the values that sizes are computed from."""
    producers: dict[str, NodeProto] = {}
    waiting: list[str] = []
    for node in walk_nodes(proto):
        producers.update(dict.fromkeys(node.output, node))
        places = _SIZES.get(node.op_type, ())
        waiting += [node.input[place] for place in places if place < len(node.input)]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        producer = producers.get(name)
        if producer is not None and producer.op_type in _ARITHMETIC:
            waiting += producer.input
    return frozenset(found)


# -- what is drawn


class _Places(Struct):
    """The places of the weights in their file, one after the other."""

    weights_file: str
    notes: list[DrawnNumbers] = msgspec.field(default_factory=list)
    streams: dict[str, int] = msgspec.field(default_factory=lambda: defaultdict(int))
    end: int = 0

    def put_outside(self, weight: LeftOutWeight) -> None:
        alignment = _PAGE if weight.nbytes >= _LARGE else _ALIGNMENT
        offset = self.end + -self.end % alignment
        self.end = offset + weight.nbytes
        stream = self.streams.setdefault(weight.group, len(self.streams) + 1)
        count = math.prod(weight.number.shape(weight.dims))
        note = _drawn(weight.note, weight.number, count, stream)
        self.notes.append(replace(note, offset=offset))
        tensor = weight.tensor
        _clear(tensor)
        tensor.data_location = TensorProto.EXTERNAL
        place = {"location": self.weights_file, "offset": offset, "length": weight.nbytes}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))


def _drawn(note: Note, number: NumberType, count: int, stream: int) -> DrawnNumbers:
    """The note for the program, of a note for a twin."""
    note = _without_values(note, number)
    width = max(number.bits, 8) // 8
    packed = count if number.bits >= 8 else -(-count * number.bits // 8)
    kind = number.name if number.name in {*_DRAWN, "bool"} else f"uint{8 * width}"
    plain = DrawnNumbers(type=kind, stream=stream, count=packed)
    if isinstance(note, Indices):
        raise TypeError("indices of sparse weights are drawn inside of the model")
    if isinstance(note, RunLengths):
        if len(note.blocks) == 1 and len(note.blocks[0].runs) == 1:
            return replace(plain, codes=_packed(number, [note.blocks[0].runs[0].code] * 8)[:1])
        if number.bits >= 8:
            rows = tuple(
                (block.rows, *((run.code, run.length, run.step) for run in block.runs))
                for block in note.blocks
            )
            return replace(plain, rows=rows)
        note = _statistics_of(note, number)
    low, high = note.lowest, note.highest
    if number.name not in _DRAWN or (max(abs(low), abs(high)) > _EXACT and not number.is_float):
        return replace(plain, codes=_chosen(note, number, count))
    room = min(note.mean - low, high - note.mean)
    is_even = room < _NORMAL_RANGE * note.deviation
    return replace(
        plain,
        mean=note.mean,
        std=note.deviation,
        low=low,
        high=high,
        zeros=note.zeros / count,
        subnormals=note.subnormals / count,
        even=is_even,
    )


def _without_values(note: Note, number: NumberType) -> Note:
    """The note without what would tell single values of floats: two digits of their statistics."""
    if isinstance(note, RunLengths) and number.is_float:
        values = _values(note, number)
        is_mask = all(x in {-1, 0, 1} or not abs(x) < _FILLER for x in values)
        return note if is_mask or len(values) == 1 else _statistics_of(note, number)
    if isinstance(note, Statistics) and number.is_float:
        return _rounded(note, number)
    return note


def _rounded(note: Statistics, number: NumberType) -> Statistics:
    low, high = (
        min(max(float(f"{end:.2g}"), number.lowest), number.highest)
        for end in (note.lowest, note.highest)
    )
    mean, deviation = float(f"{note.mean:.2g}"), float(f"{note.deviation:.2g}")
    return replace(
        note, mean=min(max(mean, low), high), deviation=deviation, lowest=low, highest=high
    )


def _values(note: RunLengths, number: NumberType) -> Mapping[float, int]:
    """The values of run lengths, and how often each of them comes."""
    found: dict[float, int] = defaultdict(int)
    for block in note.blocks:
        for run in block.runs:
            value = float(number.decode(np.array([run.code], f"u{max(number.bits, 8) // 8}"))[0])
            found[value] += sum(run.length_at(row) for row in (0, block.rows - 1)) * block.rows // 2
    return found


def _statistics_of(note: RunLengths, number: NumberType) -> Statistics:
    values = _values(note, number)
    normal = {
        x: n for x, n in values.items() if np.isfinite(x) and abs(x) >= number.smallest_normal
    }
    zeros = values.get(0.0, 0)
    subnormals = sum(n for x, n in values.items() if 0 < abs(x) < number.smallest_normal)
    if not normal:
        return Statistics(0.0, 0.0, 0, 0, zeros, subnormals)
    sizes = np.array(list(normal.values()), float)
    numbers = np.array(list(normal))
    mean = float(np.average(numbers, weights=sizes)) if sizes.any() else float(numbers.mean())
    deviation = float(np.sqrt(np.mean((numbers - mean) ** 2)))
    found = Statistics(mean, deviation, min(normal), max(normal), zeros, subnormals)
    return _rounded(found, number) if number.is_float else found


def _chosen(note: Statistics, number: NumberType, count: int) -> tuple[int, ...]:
    """Codes of a type that numpy lacks, drawn here."""
    share = _CODES / max(count, 1)
    few = replace(
        note,
        zeros=min(_CODES, round(note.zeros * share)),
        subnormals=min(_CODES - round(note.zeros * share), round(note.subnormals * share)),
        grouped_zeros=None,
    )
    alone = NumberType(number.name)
    drawn = np.concatenate(list(Drawer(0).draw_codes(few, alone, (_CODES,), "codes")))
    return _packed(number, drawn)


def _packed(number: NumberType, codes: Sequence[int] | npt.NDArray[Any]) -> tuple[int, ...]:
    """Codes as they lie in a file: several in a byte if they have fewer bits."""
    array = np.asarray(codes, f"u{max(number.bits, 8) // 8}")
    if number.bits < 8:
        array = np.frombuffer(number.pack(array), np.uint8)
    return tuple(map(int, array))


def _draw_inside(weight: LeftOutWeight, drawer: Drawer) -> None:
    """Draw a weight that cannot lie outside of the model, or is small, into the model."""
    note = _without_values(weight.note, weight.number)
    pieces = drawer.draw(note, weight.number, weight.dims, weight.group, weight.stored.dense_shape)
    data = b"".join(pieces)
    _clear(weight.tensor)
    weight.tensor.raw_data = data


def _clear(tensor: TensorProto) -> None:
    for name in ("metadata_props", "external_data", "data_location"):
        tensor.ClearField(name)


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
        if weight.tensor.data_type in _INTEGERS and weight.tensor.data_type != TensorProto.INT32:
            yield "large integer weights, which may be indices, are drawn within their range"


# -- weights and texts in nodes


def _turn_floats_into_tensors(proto: ModelProto) -> None:
    """Turn the lists of floats in Constant nodes into tensors, which can be left out."""
    for node in walk_nodes(proto):
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value_floats":
                values = np.array(attribute.floats, np.float32)
                attribute.Clear()
                attribute.name, attribute.type = "value", AttributeProto.TENSOR
                attribute.t.CopyFrom(numpy_helper.from_array(values))


def _turn_constants_into_initializers(graph: GraphProto) -> None:
    """Turn the left-out Constant nodes of a graph and its bodies into initializers.

    The data of an initializer can lie outside of the model. Functions have none.
    """
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _turn_constants_into_initializers(attribute.g)
            for body in attribute.graphs:
                _turn_constants_into_initializers(body)
    _move_constants(graph)


def _move_constants(graph: GraphProto) -> None:
    kept: list[NodeProto] = []
    for node in graph.node:
        is_constant = node.op_type == "Constant" and node.domain in {"", "ai.onnx"}
        value = next((each.t for each in node.attribute if each.HasField("t")), None)
        if not is_constant or value is None or value.data_location != TensorProto.EXTERNAL:
            kept.append(node)
            continue
        moved = graph.initializer.add()
        moved.CopyFrom(value)
        moved.name = node.output[0]
    if len(kept) < len(graph.node):
        nodes = [NodeProto.FromString(node.SerializeToString()) for node in kept]
        del graph.node[:]
        graph.node.extend(nodes)


def _replace_texts(proto: ModelProto) -> dict[str, str]:
    """Replace the texts that a model stores by others of the same lengths, equal ones alike."""
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
    """Draw the floats that nodes store in their attributes; yields why that may change the time."""
    number = NumberType("float32")
    drawer = Drawer(0)
    count = 0
    for node in walk_nodes(proto):
        for attribute in node.attribute:
            tensors = [attribute.t, *attribute.tensors] if node.op_type != "Constant" else []
            for tensor in tensors:
                _draw_tensor(tensor, drawer, f"{count}")
                count += 1
            if node.domain == _ML and len(attribute.floats) > 1:
                values = np.array(attribute.floats, np.float32)
                codes = codes_of(values, number)
                drawn = _draw_codes(codes, number, drawer, f"{count}")
                attribute.floats[:] = number.decode(drawn).tolist()
                count += 1
                if attribute.name.startswith("nodes_values"):
                    yield "the thresholds of trees are drawn, so that inputs take other paths"


def _draw_tensor(tensor: TensorProto, drawer: Drawer, name: str) -> None:
    number = number_type({1: "float32", 10: "float16", 11: "float64"}.get(tensor.data_type, ""))
    if number is None or math.prod(tensor.dims) <= 1:
        return
    codes = codes_of(numpy_helper.to_array(tensor), number)
    drawn = _draw_codes(codes, number, drawer, name)
    for field in ("float_data", "int32_data", "double_data"):
        tensor.ClearField(field)
    tensor.raw_data = number.pack(drawn)


def _draw_codes(
    codes: npt.NDArray[Any], number: NumberType, drawer: Drawer, name: str
) -> npt.NDArray[Any]:
    note = _without_values(describe(number, (codes.size,), lambda: iter([codes])), number)
    return np.concatenate(list(drawer.draw_codes(note, number, (codes.size,), name)))


# -- writing


def _size(note: DrawnNumbers) -> int:
    return note.count * np.dtype(note.type).itemsize


def _one_note_a_line(lines: bytes) -> bytes:
    """JSON with the lists and notes of numbers each on one line, for people to read."""
    shown = lines.decode()
    found: list[str] = []
    for line in shown.splitlines():
        depth = len(line) - len(line.lstrip())
        if depth > _OPENED_DEPTH:
            found[-1] += line.strip() if line.strip()[0] in "]}" else f" {line.strip()}"
        elif found and depth == _OPENED_DEPTH and line.strip()[0] in "]}":
            found[-1] += line.strip()
        else:
            found.append(line)
    return "\n".join(found).encode()


# The depth of a weight or an input in the JSON of a plan.
_OPENED_DEPTH = 4


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot write {printable(str(path))}: {error.strerror or error}.")
