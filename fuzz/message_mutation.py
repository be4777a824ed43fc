"""Messages of protobuf with something wrong, whose lengths are right nevertheless.

Bytes changed at random seldom get past the length of the message that they are in. Here a message
is taken apart, one of its fields is changed, or one inside of that, and it is put together again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from onnx import ModelProto, TensorProto

from fuzz.json_mutation import mutate_json
from pytest_modelperf.graph.model_bytes import encode_varint
from pytest_modelperf.graph.stored_tensors import walk_stored
from pytest_modelperf.graph.twin import TWIN_KEY
from tests.graph import hostile

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
# Numbers that readers of messages are surprised by; the last two have no place in 64 bits.
_NUMBERS = (0, 1, 2, 7, 127, 128, 255, 1024, 65536, 2**31 - 1, 2**31, 2**32, 2**62, 2**63,
            2**64 - 1, 2**64, 2**70 - 1)  # fmt: skip
# How large data has to be for the reader to leave it out, and a little more.
_LENGTHS = (0, 1, 4, 1024, 1025, 1028, 1200, 4096)
_HIGHEST_FIELD = 30


@dataclass(frozen=True, slots=True)
class _Field:
    """A field as it is written; what has a length is kept without it."""

    number: int
    wire_type: int
    content: bytes

    def encode(self) -> bytes:
        tag = encode_varint(self.number << 3 | self.wire_type)
        length = encode_varint(len(self.content)) if self.wire_type == _BYTES else b""
        return tag + length + self.content


def mutate_model(data: bytes, random: Random) -> bytes | None:
    """A model with something wrong in its nodes, or in any of its messages."""
    if random.random() < 0.5:
        return mutate_message(data, random)
    try:
        return hostile.mutate(data, random)
    except Exception:  # noqa: BLE001  # what is no model, or has no node to change, is not mutated so
        return None


def mutate_twin(data: bytes, random: Random) -> bytes | None:
    """A twin with something wrong in a note on a weight, in its nodes, or anywhere."""
    if random.random() < 0.4:
        return mutate_model(data, random)
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:  # noqa: BLE001  # protobuf has several errors for what is no message
        return None
    tensors = [stored.tensor for stored in walk_stored(model)]
    if not tensors:
        return None
    tensor = random.choice(tensors)
    if random.random() < 0.6:
        _mutate_note(tensor, random)
    else:
        _mutate_type(tensor, random)
    return bytes(model.SerializeToString())


def _mutate_note(tensor: TensorProto, random: Random) -> None:
    for entry in tensor.metadata_props:
        if entry.key == TWIN_KEY and isinstance(entry.value, str):
            changed = mutate_json(entry.value.encode(), random)
            if changed is not None:
                entry.value = changed.decode("utf-8", "replace")


def _mutate_type(tensor: TensorProto, random: Random) -> None:
    match random.randrange(4):
        case 0 if tensor.dims:
            at = random.randrange(len(tensor.dims))
            tensor.dims[at] = random.choice((0, 1, 2, 3, 7, 64, 2**20, 2**40, 2**62, -1))
        case 1:
            tensor.dims.insert(random.randint(0, len(tensor.dims)), random.choice((0, 1, 2, 5)))
        case 2 if tensor.dims:
            del tensor.dims[random.randrange(len(tensor.dims))]
        case _:
            tensor.data_type = random.randrange(28)


def mutate_message(data: bytes, random: Random) -> bytes | None:
    """A message with a field changed, or one inside of it; None for what is no message."""
    fields = _fields(data)
    if not fields:
        return None
    at = random.randrange(len(fields))
    field = fields[at]
    if field.wire_type == _BYTES and random.random() < 0.75:
        inner = mutate_message(field.content, random)
        changed = _mutate_content(field.content, random) if inner is None else inner
        fields[at] = _Field(field.number, field.wire_type, changed)
    else:
        _mutate_fields(fields, at, random)
    return b"".join(field.encode() for field in fields)


def _mutate_fields(fields: list[_Field], at: int, random: Random) -> None:
    field = fields[at]
    match random.randrange(7):
        case 0:
            del fields[at]
        case 1:
            fields.insert(random.randint(0, len(fields)), field)
        case 2:
            random.shuffle(fields)
        case 3:
            number = random.randint(1, _HIGHEST_FIELD)
            fields[at] = _Field(number, field.wire_type, field.content)
        case 4:
            fields[at] = _Field(field.number, _VARINT, _odd_varint(random))
        case 5:
            fields[at] = _Field(field.number, _BYTES, _of_length(field.content, random))
        case _:
            other = random.choice(fields)
            fields[at] = _Field(field.number, other.wire_type, other.content)


def _mutate_content(content: bytes, random: Random) -> bytes:
    """Text or numbers in a row with something else in them."""
    if random.random() < 0.4:
        return _of_length(content, random)
    changed = bytearray(content or b"\0")
    at = random.randrange(len(changed))
    match random.randrange(4):
        case 0:
            changed[at] = random.randrange(256)
        case 1:
            del changed[at : at + random.randint(1, 8)]
        case 2:
            changed[at:at] = _odd_varint(random)
        case _:
            changed[at] ^= 1 << random.randrange(8)
    return bytes(changed)


def _of_length(content: bytes, random: Random) -> bytes:
    length = random.choice(_LENGTHS)
    repeated = (content or b"\0") * (length // max(1, len(content)) + 1)
    return repeated[:length]


def _odd_varint(random: Random) -> bytes:
    return encode_varint(random.choice(_NUMBERS))


def _fields(data: bytes) -> list[_Field] | None:
    """The fields of a message; None for what is none."""
    fields = []
    position = 0
    while position < len(data):
        tag, start = _varint(data, position)
        wire_type = tag & 7
        length, stop = 0, start
        if wire_type == _BYTES:
            length, start = _varint(data, start)
            stop = start + length
        elif wire_type == _VARINT:
            _, stop = _varint(data, start)
        elif wire_type in _SIZES:
            stop = start + _SIZES[wire_type]
        else:
            return None
        if not tag >> 3 or stop > len(data) or stop < start:
            return None
        fields.append(_Field(tag >> 3, wire_type, data[start:stop]))
        position = stop
    return fields


def _varint(data: Sequence[int], position: int) -> tuple[int, int]:
    """The number at a position, and the position behind it: beyond the end where there is none."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 0, len(data) + 1
