"""A model's twin: its graph with a few statistics in place of each large weight.

A twin is an ONNX file. Names, operators, opsets, functions and bodies are the model's own, but text
that no engine reads is left out. A note in the metadata of a tensor replaces the data of a large
weight, and the data is marked as external, in a file that does not exist. So the note stays with
the tensor, tools that show models show its type and shape, the static profile is the model's own,
and an engine refuses to run it, naming `LOCATION`. The same key, `TWIN_KEY`, in the metadata of the
model marks the file as a twin and holds its schema.

Weights that are equal in the model are drawn equal, and scales that are multiples of one another as
multiples, because engines look for both. Next to the note of such a weight, `GROUP_KEY` holds the
number of its group.

Small tensors stay: integers up to the size of shapes and index tables, weights whose values no
optimization reads up to `KEEP_WEIGHT_BYTES`, and others up to `KEEP_BYTES`. Constants that decide
how long the model takes, such as a mask or a grid, stay up to `KEEP_SETTING_BYTES`.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError, Message
from msgspec import Struct
from msgspec.structs import replace
from onnx import AttributeProto, ModelProto, TensorProto, numpy_helper

from pytest_modelperf.errors import ModelError
from pytest_modelperf.files.output import cannot_write
from pytest_modelperf.graph.convert import check_text
from pytest_modelperf.graph.data_dependence import find_model_settings
from pytest_modelperf.graph.model_bytes import INTEGER_TYPES, KEEP_BYTES, KEEP_INTEGER_BYTES
from pytest_modelperf.graph.model_file import (
    MAX_RANK,
    ModelFile,
    dtype_name,
    open_model,
    packed_bytes,
    skipped_data,
)
from pytest_modelperf.graph.stored_tensors import (
    INTEGER_WEIGHTS,
    StorageKind,
    StoredTensor,
    clear_data,
    walk_nodes,
    walk_stored,
)
from pytest_modelperf.graph.stored_weights import (
    NotedWeight,
    find_groups,
    read_codes,
    stored_number,
)
from pytest_modelperf.graph.weights.drawing import describe
from pytest_modelperf.graph.weights.notes import (
    Indices,
    Note,
    Statistics,
    format_note,
    is_multiple,
    parse_note,
)
from pytest_modelperf.graph.weights.numbers import NumberType
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes

# The metadata key of a twin's schema (in the model) and of a weight's note (in the tensor).
TWIN_KEY = "modelperf.twin"
# The metadata key of a tensor for the number of its group, which is drawn alike.
GROUP_KEY = "modelperf.twin.equal"
SCHEMA = 1
# The location of the external data, which does not exist. Engines show it in their error.
LOCATION = "weights-left-out"

# For weights that are only multiplied or added. Engines do not read their values.
KEEP_WEIGHT_BYTES = 256
# For constants that decide how long the model takes.
KEEP_SETTING_BYTES = 256 * 1024

# Twins are part of pull requests. Those of the largest models have about a hundred kilobytes.
MAX_TWIN_BYTES = 64 << 20
# The most bytes that one weight may claim, and all weights of a model together.
MAX_MODEL_BYTES = 1 << 37

_INTEGERS = INTEGER_TYPES - {TensorProto.BOOL}
# Operands that are weights at any size, by operator.
_WEIGHT_OPERANDS: Mapping[str, frozenset[int]] = {
    "BatchNormalization": frozenset({1, 2, 3, 4}),
    "Conv": frozenset({1, 2}),
    "ConvTranspose": frozenset({1, 2}),
    "Gemm": frozenset({1, 2}),
    "GroupNormalization": frozenset({1, 2}),
    "InstanceNormalization": frozenset({1, 2}),
    "LayerNormalization": frozenset({1, 2}),
    "PRelu": frozenset({1}),
    **INTEGER_WEIGHTS,
}
# The operands with the scales between integers and floats.
_SCALE_OPERANDS = frozenset({("DequantizeLinear", 1), ("QuantizeLinear", 1)})


# The operators that use a tensor, each with the index of the operand.
Uses: TypeAlias = "frozenset[tuple[str, int]]"
# Returns the size up to which a tensor with these uses stays as it is.
Limit: TypeAlias = "Callable[[StoredTensor, Uses], int]"


class Twin(Struct, frozen=True, eq=False):
    """A model without its weights. `proto` must not be changed."""

    name: str
    proto: ModelProto


class LeftOutWeight(Struct, frozen=True, eq=False):
    """A weight whose data a twin does not have.

    `key` is its name, made unique in the model. `group` is the key of the first weight of its
    group, which is its own key if it is the first or the only one.
    """

    stored: StoredTensor
    key: str
    number: NumberType
    note: Note
    group: str

    @property
    def tensor(self) -> TensorProto:
        return self.stored.tensor

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(self.tensor.dims)

    @property
    def nbytes(self) -> int:
        return packed_bytes(self.tensor)


def make_twin(file: ModelFile, limit: Limit | None = None) -> Twin:
    """Make the twin of a model, whose weights are read piece by piece.

    `limit` decides which tensors are left out: by default those that do not decide the time.
    """
    if _metadata(file.proto) is not None:
        raise ModelError(f"{file.name} is a twin itself. Give the model that it was made from.")
    proto = ModelProto()
    proto.CopyFrom(file.proto)
    proto.DiscardUnknownFields()
    _strip(proto)
    for field in ("producer_name", "producer_version", "domain", "model_version"):
        proto.ClearField(field)
    turn_lists_into_tensors(proto, KEEP_BYTES // 4)
    uses = _uses(proto)
    kept = limit or _limit_of_twins(proto)
    noted: list[NotedWeight] = []
    for stored in walk_stored(proto):
        weight = _take_note(file, stored, uses.get(stored.name, frozenset()), kept)
        if weight is None:
            _keep(file, stored.tensor)
        else:
            noted.append(weight)
    for weight, group in zip(noted, find_groups(file, noted), strict=True):
        _leave_out(weight, group)
    proto.metadata_props.add(key=TWIN_KEY, value=json.dumps({"schema": SCHEMA}))
    return Twin(file.name, proto)


def twin_bytes(twin: Twin) -> bytes:
    """Return the bytes of a twin's file, which are the same for the same model."""
    data: bytes = twin.proto.SerializeToString(deterministic=True)
    if len(data) > MAX_TWIN_BYTES:
        raise ModelError(
            f"the twin of {twin.name} would have {format_bytes(len(data))}, which is more than "
            f"{format_bytes(MAX_TWIN_BYTES)}: its graph is that large, not its weights."
        )
    return data


def write_twin_bytes(data: bytes, path: Path) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise cannot_write(str(path), error) from error


def read_twin(path: Path) -> Twin:
    """Read the twin in a file, and raise ModelError if a note or anything else is not valid."""
    name = printable(str(path))
    _check_file_size(path, name)
    file = open_model(path)
    metadata = _metadata(file.proto)
    if metadata is None:
        raise ModelError(
            f"{name} is not a twin: it has no metadata {TWIN_KEY!r}. Was a model put in its place? "
            "Write the baseline again with --modelperf-update-baseline."
        )
    _check_schema(metadata, name)
    proto = ModelProto()
    try:
        proto.ParseFromString(file.data[: len(file.data)])
    except DecodeError as error:
        raise ModelError(f"{name} is damaged: {error}.") from error
    twin = Twin(name, proto)
    claimed = left_out_bytes(twin)
    if claimed > MAX_MODEL_BYTES:
        raise ModelError(
            f"the weights of {name} claim {format_bytes(claimed)}, which is more than "
            f"{format_bytes(MAX_MODEL_BYTES)}."
        )
    return twin


def left_out_bytes(twin: Twin) -> int:
    """Return the bytes of the weights whose data a twin does not have."""
    return sum(weight.nbytes for weight in left_out(twin))


def left_out(twin: Twin) -> Iterator[LeftOutWeight]:
    """Yield the weights of a twin without data, with their notes."""
    seen: dict[str, int] = defaultdict(int)
    firsts: dict[str, LeftOutWeight] = {}
    for stored in walk_stored(twin.proto):
        tensor = stored.tensor
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        check_text(twin.name, stored.name, tensor.name)
        what = f"{stored.kind.value} {printable(stored.name)!r} of {twin.name}"
        notes = _entries(tensor, TWIN_KEY)
        if len(notes) != 1:
            raise ModelError(
                f"{what} has neither data nor statistics. Write the baseline again with "
                "--modelperf-update-baseline."
            )
        base = f"{stored.name}:{stored.kind.name}" if stored.dense_shape else str(stored.name)
        seen[base] += 1
        key = base if seen[base] == 1 else f"{base}#{seen[base]}"
        try:
            weight = _read_weight(stored, key, notes[0])
            group = _group_number(tensor)
            if group is not None:
                first = firsts.setdefault(group, weight)
                _check_alike(weight, first)
                weight = replace(weight, group=first.key)
        except ValueError as error:
            raise ModelError(f"{what} is not valid in a twin: {printable(str(error))}.") from error
        yield weight


def is_always_kept(tensor: TensorProto) -> bool:
    """Whether a tensor is so small that a twin has its data, whichever operators use it."""
    return packed_bytes(tensor) <= _limit(tensor, is_weight=True)


def is_kept_setting(tensor: TensorProto) -> bool:
    """Whether a twin keeps the data of a tensor that decides how long the model takes."""
    return packed_bytes(tensor) <= KEEP_SETTING_BYTES


def is_left_out(tensor: TensorProto) -> bool:
    """Whether a tensor of a twin has a note in place of its data."""
    return bool(_entries(tensor, TWIN_KEY))


def turn_lists_into_tensors(proto: ModelProto, most: int) -> None:
    """Turn longer lists of numbers in Constant nodes into tensors, which can be left out."""
    for node in walk_nodes(proto):
        if node.op_type != "Constant" or len(node.attribute) != 1:
            continue
        (attribute,) = node.attribute
        values: Any = {"value_floats": attribute.floats, "value_ints": attribute.ints}.get(
            attribute.name, ()
        )
        if len(values) > most:
            dtype = np.float32 if attribute.name == "value_floats" else np.int64
            tensor = numpy_helper.from_array(np.array(values, dtype))
            attribute.Clear()
            attribute.name, attribute.type = "value", AttributeProto.TENSOR
            attribute.t.CopyFrom(tensor)


def _strip(message: Message) -> None:
    for field, value in message.ListFields():
        if field.name in ("doc_string", "metadata_props"):
            message.ClearField(field.name)
        elif field.message_type is not None:
            # ONNX has no map fields, so a value is a message or a list of messages.
            for inner in [value] if isinstance(value, Message) else value:
                _strip(inner)


def _uses(proto: ModelProto) -> dict[str, Uses]:
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for node in walk_nodes(proto):
        for index, name in enumerate(node.input):
            found[name].add((node.op_type, index))
    return {name: frozenset(uses) for name, uses in found.items()}


def _take_note(
    file: ModelFile, stored: StoredTensor, uses: Uses, limit: Limit
) -> NotedWeight | None:
    tensor = stored.tensor
    number = stored_number(tensor)
    is_attribute = stored.kind is StorageKind.ATTRIBUTE
    if is_attribute or number is None or packed_bytes(tensor) <= limit(stored, uses):
        return None
    if stored.kind is StorageKind.SPARSE_INDICES:
        return NotedWeight(stored, number, _describe_indices(file, stored, number))
    is_scale = not _SCALE_OPERANDS.isdisjoint(uses)
    note = describe(number, tuple(tensor.dims), lambda: read_codes(file, tensor, number))
    # Engines read the values of masks, so a small mask without an exact note stays as it is.
    is_small = packed_bytes(tensor) <= KEEP_INTEGER_BYTES
    if tensor.data_type == TensorProto.BOOL and is_small and isinstance(note, Statistics):
        return None
    return NotedWeight(stored, number, note, is_scale)


def _leave_out(weight: NotedWeight, group: int | None) -> None:
    tensor = weight.stored.tensor
    clear_data(tensor)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=LOCATION)
    tensor.metadata_props.add(key=TWIN_KEY, value=format_note(weight.note))
    if group is not None:
        tensor.metadata_props.add(key=GROUP_KEY, value=str(group))


def _limit_of_twins(proto: ModelProto) -> Limit:
    settings = find_model_settings(proto)

    def kept_bytes(stored: StoredTensor, uses: Uses) -> int:
        if stored.name in settings:
            return KEEP_SETTING_BYTES
        is_weight = bool(uses) and all(i in _WEIGHT_OPERANDS.get(op, ()) for op, i in uses)
        return _limit(stored.tensor, is_weight=is_weight)

    return kept_bytes


def _limit(tensor: TensorProto, *, is_weight: bool) -> int:
    if tensor.data_type in _INTEGERS:
        is_bias = is_weight and tensor.data_type == TensorProto.INT32
        return KEEP_BYTES if is_bias else KEEP_INTEGER_BYTES
    return KEEP_WEIGHT_BYTES if is_weight else KEEP_BYTES


def _describe_indices(file: ModelFile, stored: StoredTensor, number: NumberType) -> Indices:
    """Return the first and the last position. A left-out sparse weight always has positions."""
    tensor, shape = stored.tensor, stored.dense_shape
    rank = tensor.dims[1] if len(tensor.dims) > 1 else 1
    first: Any = None
    last: Any = None
    for codes in read_codes(file, tensor, number):
        places = number.decode(codes)
        first = places[:rank].tolist() if first is None else first
        last = [*(last or ()), *places[-rank:].tolist()][-rank:]
    if rank > 1:
        try:
            first, last = ([int(np.ravel_multi_index(p, shape))] for p in (first, last))
        except ValueError as error:
            raise ModelError(
                f"the indices of the sparse weight {printable(stored.name)!r} of {file.name} do "
                f"not fit its shape: {error}. The file is damaged: export the model again."
            ) from error
    if not 0 <= first[0] <= last[0] < prod(shape):
        raise ModelError(
            f"the indices of the sparse weight {printable(stored.name)!r} of {file.name} are not "
            "sorted within its shape. The file is damaged: export the model again."
        )
    return Indices(first[0], last[0])


def _keep(file: ModelFile, tensor: TensorProto) -> None:
    if tensor.data_location != TensorProto.EXTERNAL:
        return
    skipped = skipped_data(tensor)
    number = stored_number(tensor)
    if skipped is not None:
        data = b"".join(file.piece(*span) for span in skipped.spans)
        clear_data(tensor)
        tensor.MergeFromString(data)
    elif number is not None:
        codes = np.concatenate([np.zeros(0, np.uint8), *read_codes(file, tensor, number)])
        clear_data(tensor)
        tensor.raw_data = number.pack(codes)
    else:
        raise ModelError(
            f"the data of {printable(tensor.name)!r} in {file.name} is in another file, and of a "
            f"type whose size is not known: {dtype_name(tensor.data_type)}. Store it in the model."
        )


def _metadata(proto: ModelProto) -> str | None:
    return next((entry.value for entry in proto.metadata_props if entry.key == TWIN_KEY), None)


def _check_file_size(path: Path, name: str) -> None:
    try:
        size = path.stat().st_size
    except OSError:
        # Opening the file reports the error.
        return
    if size > MAX_TWIN_BYTES:
        raise ModelError(
            f"{name} has {format_bytes(size)}; a twin has {format_bytes(MAX_TWIN_BYTES)} at most. "
            "Was the model itself put in its place?"
        )


def _check_schema(metadata: str, name: str) -> None:
    try:
        schema = json.loads(metadata)["schema"]
    except (ValueError, TypeError, KeyError, RecursionError):
        schema = None
    if type(schema) is not int or schema < 1:
        raise ModelError(
            f"{name} is not a valid twin: its metadata {TWIN_KEY!r} is {metadata!r:.80}, not "
            f'{{"schema": {SCHEMA}}}. Write the baseline again with --modelperf-update-baseline.'
        )
    if schema > SCHEMA:
        raise ModelError(
            f"{name} has the schema {schema}, and this version reads up to {SCHEMA}. "
            "Update pytest-modelperf."
        )


def _entries(tensor: TensorProto, key: str) -> list[str]:
    return [entry.value for entry in tensor.metadata_props if entry.key == key]


def _read_weight(stored: StoredTensor, key: str, text: str) -> LeftOutWeight:
    """Return the weight with the note in `text`, without a group. Raise ValueError if invalid."""
    tensor = stored.tensor
    number = stored_number(tensor)
    _check_dims(tensor, number)
    if number is None:
        raise ValueError(f"numbers of its type {tensor.data_type} cannot be drawn")
    note = parse_note(text, number, tuple(tensor.dims))
    _check_place(stored, note)
    return LeftOutWeight(stored, key, number, note, group=key)


def _group_number(tensor: TensorProto) -> str | None:
    """Return the number of a tensor's group, if it has one. Raise ValueError if it is not valid."""
    found = _entries(tensor, GROUP_KEY)
    # Text that is not UTF-8 is read as bytes.
    if len(found) > 1 or any(not re.fullmatch(r"[1-9][0-9]{0,8}", str(each)) for each in found):
        raise ValueError(f"its group is {found!r:.80}, not one number")
    return found[0] if found else None


def _check_alike(weight: LeftOutWeight, first: LeftOutWeight) -> None:
    shapes = ((each.dims, each.stored.dense_shape) for each in (weight, first))
    for what, differs in (
        ("type", weight.number != first.number),
        ("shape", len(set(shapes)) > 1),
        ("note", not is_multiple(weight.note, first.note)),
    ):
        if differs:
            raise ValueError(f"it is in one group with {first.key!r}, which has another {what}")


def _check_dims(tensor: TensorProto, number: NumberType | None) -> None:
    dims = list(tensor.dims)
    if any(dim < 0 for dim in dims):
        raise ValueError(f"it has a negative dimension: {dims}")
    if len(dims) > MAX_RANK:
        raise ValueError(f"it has {len(dims)} dimensions")
    size = prod(dims) if number is None else packed_bytes(tensor)
    if size > MAX_MODEL_BYTES:
        raise ValueError(f"it claims the shape {dims}, that is {format_bytes(size)}")


def _check_place(stored: StoredTensor, note: Note) -> None:
    tensor, shape = stored.tensor, stored.dense_shape
    if stored.kind is StorageKind.ATTRIBUTE:
        raise ValueError("attributes are kept whole")
    is_indices = stored.kind is StorageKind.SPARSE_INDICES
    if isinstance(note, Indices) is not is_indices:
        raise ValueError("its note is of the wrong kind")
    if not isinstance(note, Indices):
        return
    fits = tensor.data_type == TensorProto.INT64 and all(dim >= 0 for dim in shape)
    if len(tensor.dims) > 1:
        fits = fits and len(tensor.dims) == 2 and tensor.dims[1] == len(shape)
    if not fits or note.last >= prod(shape) or prod(shape) >= 1 << 62:
        raise ValueError(f"its indices do not fit the shape {list(shape)}")
