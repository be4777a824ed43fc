"""Skip the weights in the bytes of an ONNX file, and put them back.

A ModelProto is a tree of length-prefixed messages. Only messages large enough to hold weights are
entered, and everything else is copied in runs. A note of its place in the file (see `WEIGHT_KEY`)
replaces the data of a large tensor. It has ONNX's form of external data, so that onnx's own tools
accept the result. `restore_model` finds the notes and returns which bytes of the file replace them,
so that a changed graph can be written without its weights ever being in memory.

Reference: https://protobuf.dev/programming-guides/encoding and onnx.proto (field numbers).
"""

from __future__ import annotations

import mmap as mmap_module
import os
import re
from collections.abc import Mapping
from mmap import PAGESIZE, mmap
from typing import TypeAlias

import msgspec
from msgspec import Struct
from onnx import TensorProto

from pytest_modelperf.errors import ModelError

_DONT_NEED: int = getattr(mmap_module, "MADV_DONTNEED", 0)

Buffer: TypeAlias = "bytes | mmap"
# Bytes to write, or the (start, stop) of bytes to copy from the model's file.
Chunk: TypeAlias = "bytes | tuple[int, int]"

# The key of the external_data entry with the skipped bytes of the file. Notes are trusted, so the
# key differs in every process and cannot be in a file.
WEIGHT_KEY = f"modelperf.bytes.{os.urandom(8).hex()}"
_WEIGHT_KEY_BYTES = WEIGHT_KEY.encode()

# Tensor data up to these sizes stays: scalars and small vectors of any type, and integers up to the
# size of shapes, axes and index tables, because shape inference reads their values.
KEEP_BYTES = 1024
KEEP_INTEGER_BYTES = 64 * 1024

# A field takes about a microsecond, so reading a file of only tiny fields ends after some minutes.
# The numbers of an attribute do not count, because a model of trees has millions of such fields.
MAX_FIELDS = 100_000_000
# protobuf's own limit on nesting. Without it, a crafted file could exhaust the stack here.
MAX_DEPTH = 96

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_MODEL, _TRAINING, _GRAPH, _FUNCTION, _NODE, _ATTRIBUTE, _SPARSE, _TENSOR = range(8)

# For each message, the fields that can hold a tensor, with the type of their message.
_CHILDREN: Mapping[int, Mapping[int, int]] = {
    _MODEL: {7: _GRAPH, 20: _TRAINING, 25: _FUNCTION},
    _TRAINING: {1: _GRAPH, 2: _GRAPH},
    _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
    _FUNCTION: {7: _NODE, 11: _ATTRIBUTE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
    _SPARSE: {1: _TENSOR, 2: _TENSOR},
}
# The fields that hold a single tensor: protobuf merges two of them, which a note cannot express.
_ONE_TENSOR: Mapping[int, frozenset[int]] = {
    _ATTRIBUTE: frozenset({5, 22}),
    _SPARSE: frozenset({1, 2}),
}

# The floats (field 7) and ints (field 8) of an attribute, which are not packed. The number of
# repetitions bounds what the match remembers.
_NUMBERS = re.compile(
    rb"(?:\x3d.{4}){1,4096}|(?:\x40[\x80-\xff]{0,9}[\x00-\x7f]){1,4096}", re.DOTALL
)

# Fields of TensorProto. Data: float, int32, string, int64, raw, double, uint64.
_DATA_TYPE = 2
RAW_DATA = 9
_DATA_FIELDS = frozenset({4, 5, 6, 7, RAW_DATA, 10, 11})
# TensorProto.DataType: uint16, int16, int32, int64, bool, uint32, uint64.
INTEGER_TYPES = frozenset({4, 5, 6, 7, 9, 12, 13})


class SkippedData(Struct, frozen=True, array_like=True):
    """The place of the data of one tensor: whole fields with their tags, as (start, stop) pairs."""

    spans: tuple[tuple[int, int], ...]
    # The (start, stop) of the bytes themselves if they are one raw_data field.
    raw: tuple[int, int] | None

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, note: str) -> SkippedData:
        return msgspec.json.decode(note, type=cls)


def slim_model(data: Buffer, name: str, max_fields: int = MAX_FIELDS) -> bytes:
    """Return the ModelProto in `data` with the data of every large tensor replaced by its place."""
    chunks = _Slimmer(data, name, max_fields).message(0, len(data), _MODEL, MAX_DEPTH)
    return data[0 : len(data)] if chunks is None else b"".join(chunks)


def restore_model(slim: bytes, name: str) -> tuple[Chunk, ...]:
    """Return the chunks of the whole ModelProto: bytes, and spans of its original file."""
    chunks = _Restorer(slim, name).message(0, len(slim), _MODEL)
    return (slim,) if chunks is None else tuple(chunks)


def chunk_size(chunk: Chunk) -> int:
    return len(chunk) if isinstance(chunk, bytes) else chunk[1] - chunk[0]


def give_back(data: Buffer, start: int, stop: int) -> None:
    """Unmap the pages of a part of the file, which the next access reads again."""
    # A touched page counts as memory of this process, and touching one may map megabytes around it.
    # Otherwise all weights would be in memory after a walk over the file.
    # Windows has no such advice.
    if isinstance(data, mmap) and hasattr(data, "madvise"):
        first = start - start % PAGESIZE
        data.madvise(_DONT_NEED, first, min(stop, len(data)) - first)


class _Reader:
    def __init__(self, data: Buffer, name: str, max_fields: int = MAX_FIELDS) -> None:
        self.data = data
        self.name = name
        self.max_fields = max_fields
        self.fields_left = max_fields

    def field(self, position: int, end: int) -> tuple[int, int, int, int]:
        """Return the number, wire type, start of the content and end of the field at `position`."""
        self.fields_left -= 1
        if self.fields_left < 0:
            raise ModelError(
                f"{self.name} has more than {self.max_fields:,} fields that are not numbers of an "
                "attribute, which would take minutes to read. Is it a model?"
            )
        begin = position
        tag = self.data[position]
        position += 1
        if tag >= 0x80:
            tag, position = self.varint(begin, end)
        field, wire_type = tag >> 3, tag & 7
        if field == 0:
            raise self.broken(begin, "it has a field with the number 0")
        content = position
        if wire_type == _BYTES:
            length, content = self.varint(position, end)
            stop = content + length
            if stop > end:
                raise self.broken(
                    begin,
                    f"a field claims {length:,} bytes, but {max(0, end - content):,} are left",
                )
        elif wire_type == _VARINT:
            _, stop = self.varint(position, end)
        elif wire_type in (_FIXED64, _FIXED32):
            stop = position + (8 if wire_type == _FIXED64 else 4)
            if stop > end:
                raise self.broken(begin, "it ends within a number")
        else:
            raise self.broken(begin, f"it has a field of wire type {wire_type}")
        return field, wire_type, content, stop

    def next_field(self, position: int, end: int, kind: int) -> int:
        if kind == _ATTRIBUTE:
            while found := _NUMBERS.match(self.data, position, end):
                position = found.end()
        return position

    def varint(self, position: int, end: int) -> tuple[int, int]:
        begin = position
        value = shift = 0
        while True:
            if position >= end:
                raise self.broken(begin, "it ends within a number")
            byte = self.data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
            if shift >= 70:
                raise self.broken(begin, "it has a number of more than 10 bytes")

    def broken(self, position: int, what: str) -> ModelError:
        return ModelError(
            f"{self.name} is not a complete ONNX model: {what} (at byte {position:,} of "
            f"{len(self.data):,}). Was the file cut off, or is it of another format?"
        )


class _Slimmer(_Reader):
    def message(self, start: int, end: int, kind: int, depth: int) -> list[bytes] | None:
        if kind == _TENSOR:
            return self.tensor(start, end)
        if depth == 0:
            raise self.broken(start, f"messages nest deeper than {MAX_DEPTH} levels")
        if kind in _ONE_TENSOR:
            self.require_single(start, end, kind)
        data = self.data
        children = _CHILDREN[kind]
        chunks: list[bytes] = []
        copied = position = start
        while (position := self.next_field(position, end, kind)) < end:
            field_start = position
            field, wire_type, content, position = self.field(position, end)
            child = children.get(field)
            if child is None or wire_type != _BYTES or position - content <= KEEP_BYTES:
                continue
            slimmed = self.message(content, position, child, depth - 1)
            if slimmed is None:
                continue
            size = sum(map(len, slimmed))
            chunks += (data[copied:field_start] + field_head(field, size), *slimmed)
            if child == _TENSOR:
                give_back(data, field_start, position)
            copied = position
        return [*chunks, data[copied:end]] if chunks else None

    def require_single(self, start: int, end: int, kind: int) -> None:
        """Raise ModelError if a field that holds a single tensor occurs twice."""
        fields = _ONE_TENSOR[kind]
        seen: set[int] = set()
        position = start
        while (position := self.next_field(position, end, kind)) < end:
            field_start = position
            field, _, _, position = self.field(position, end)
            if field in seen:
                raise self.broken(field_start, "it has two tensors in the place of one")
            if field in fields:
                seen.add(field)

    def tensor(self, start: int, end: int) -> list[bytes] | None:
        data = self.data
        data_type = 0
        spans: list[tuple[int, int]] = []
        raw: list[tuple[int, int]] = []
        position = start
        while position < end:
            field_start = position
            field, wire_type, content, position = self.field(position, end)
            if field == _DATA_TYPE and wire_type == _VARINT:
                data_type, _ = self.varint(content, end)
            elif field in _DATA_FIELDS:
                if spans and spans[-1][1] == field_start:
                    spans[-1] = (spans[-1][0], position)
                else:
                    spans.append((field_start, position))
                # With another wire type, protobuf does not know the field.
                if field == RAW_DATA and wire_type == _BYTES:
                    raw.append((content, position))
        limit = KEEP_INTEGER_BYTES if data_type in INTEGER_TYPES else KEEP_BYTES
        if sum(stop - begin for begin, stop in spans) <= limit:
            return None
        # Of several raw_data fields the last one wins, in protobuf and when the spans are read.
        skipped = SkippedData(tuple(spans), raw[0] if len(raw) == len(spans) == 1 else None)
        chunks = []
        copied = start
        for begin, stop in spans:
            chunks.append(data[copied:begin])
            copied = stop
        # These fields mark the tensor as external, with our own key instead of a location.
        note = TensorProto(data_location=TensorProto.EXTERNAL)
        note.external_data.add(key=WEIGHT_KEY, value=skipped.encode())
        chunks.append(data[copied:end] + note.SerializeToString())
        return chunks


class _Restorer(_Reader):
    def message(self, start: int, end: int, kind: int) -> list[Chunk] | None:
        if self.data.find(_WEIGHT_KEY_BYTES, start, end) < 0:
            return None
        if kind == _TENSOR:
            return self.tensor(start, end)
        chunks: list[Chunk] = []
        copied = position = start
        while position < end:
            field_start = position
            field, wire_type, content, position = self.field(position, end)
            child = _CHILDREN[kind].get(field)
            if child is None or wire_type != _BYTES:
                continue
            restored = self.message(content, position, child)
            if restored is None:
                continue
            size = sum(map(chunk_size, restored))
            chunks += (self.data[copied:field_start] + field_head(field, size), *restored)
            copied = position
        return [*chunks, self.data[copied:end]]

    def tensor(self, start: int, end: int) -> list[Chunk] | None:
        """Return the tensor without its note, and the spans in it. Other external_data stays."""
        tensor = TensorProto.FromString(self.data[start:end])
        note = next((each for each in tensor.external_data if each.key == WEIGHT_KEY), None)
        if note is None:
            return None
        spans = SkippedData.decode(note.value).spans
        tensor.external_data.remove(note)
        tensor.ClearField("data_location")
        return [tensor.SerializeToString(), *spans]


def field_head(field: int, size: int) -> bytes:
    """Return the bytes before the content of a field that has `size` bytes."""
    return encode_varint(field << 3 | _BYTES) + encode_varint(size)


def encode_varint(value: int) -> bytes:
    """Encode a number like protobuf, with seven bits in each byte, the lowest first."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
