"""The bytes of a model's files: read without the weights, watched for changes, and digested.

A ModelProto is a tree of length-prefixed messages. Only messages large enough to hold weights are
entered, and everything else is copied in runs. A note of its place in the file (see `WEIGHT_KEY`)
replaces the data of a large tensor. It has ONNX's form of external data, so that onnx's own tools
accept the result. `restore_model` finds the notes and returns which bytes of the file replace them,
so that a changed graph can be written without its weights ever being in memory.

Reference: https://protobuf.dev/programming-guides/encoding and onnx.proto (field numbers).
"""

from __future__ import annotations

import hashlib
import mmap as mmap_module
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from mmap import PAGESIZE, mmap
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct
from onnx import TensorProto

from pytest_modelperf.errors import ChangedModelError, ModelError
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes

if TYPE_CHECKING:
    from _hashlib import HASH

    from blake3 import blake3


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
        data = self.data
        begin = position
        tag = data[position]
        position += 1
        if tag >= 0x80:
            tag, position = self.varint(begin, end)
        field, wire_type = tag >> 3, tag & 7
        if field == 0:
            raise self.broken(begin, "it has a field with the number 0")
        content = position
        if wire_type == _BYTES:
            if position < end and data[position] < 0x80:
                length, content = data[position], position + 1
            else:
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

    def skip_numbers(self, position: int, end: int) -> int:
        """Return the position after the numbers of an attribute."""
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
        copied = mapped = position = start
        has_numbers = kind == _ATTRIBUTE
        while (position := self.skip_numbers(position, end) if has_numbers else position) < end:
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
            if position - mapped >= _PIECE_BYTES:
                give_back(data, mapped, position)
                mapped = position
            copied = position
        return [*chunks, data[copied:end]] if chunks else None

    def require_single(self, start: int, end: int, kind: int) -> None:
        """Raise ModelError if a field that holds a single tensor occurs twice."""
        fields = _ONE_TENSOR[kind]
        seen: set[int] = set()
        position = start
        has_numbers = kind == _ATTRIBUTE
        while (position := self.skip_numbers(position, end) if has_numbers else position) < end:
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


# A function that shows the name of a long step.
Tell: TypeAlias = Callable[[str], None]
Clock: TypeAlias = Callable[[], float]

# A shorter step is not shown.
_QUIET_SECONDS = 1.0
# Large enough that the cost of calls is small, and small enough for the cache of a core.
_PIECE_BYTES = 1 << 18


class SeenFile(Struct, frozen=True):
    """The state of a file when it was first read, because it may change before it is read again."""

    path: Path
    device: int
    inode: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path, found: os.stat_result) -> SeenFile:
        return cls(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    @contextmanager
    def open(self) -> Iterator[BufferedReader]:
        """Open the file, and raise ChangedModelError if it changed before or while it was open."""
        self.require_unchanged()
        with self.path.open("rb") as file:
            yield file
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Raise ChangedModelError if the file was changed, replaced or removed."""
        name = printable(str(self.path))
        try:
            now = SeenFile.of(self.path, self.path.stat())
        except OSError as error:
            raise ChangedModelError(
                f"{name} was there when it was opened, and cannot be read any more: "
                f"{error.strerror or error}. Measure again when the file stays in place."
            ) from error
        if now != self:
            raise ChangedModelError(
                f"{name} was changed after it was opened: what was counted and what ran would be "
                "two models. Measure again when the file no longer changes."
            )


# The digests of this process, by file and algorithm: tests use one model in many cases.
_known: dict[tuple[SeenFile, str], bytes] = {}


def digest_model(
    graph: SeenFile, external: Mapping[str, SeenFile], tell: Tell, clock: Clock = time.monotonic
) -> str:
    """Return the digest as 64 hexadecimal digits, which change with any byte of these files.

    A model in one file has the SHA-256 of that file. Otherwise it is the BLAKE3 of one entry for
    each file, in the order of their names: the length of its name, its name in the graph, and its
    own BLAKE3. The graph's file comes first, with an empty name, so that the model may be renamed.
    """
    total = graph.size_bytes + sum(seen.size_bytes for seen in external.values())
    progress = _Progress(f"reading weights ({format_bytes(total)})", tell, clock, clock())
    if not external:
        return _digest_file(graph, "sha256", progress).hex()
    whole = _new_digest("blake3")
    for name, seen in [("", graph), *sorted(external.items())]:
        encoded = name.encode("utf-8", "surrogatepass")
        whole.update(len(encoded).to_bytes(8, "little") + encoded)
        whole.update(_digest_file(seen, "blake3", progress))
    return whole.hexdigest()


class _Progress(Struct):
    step: str
    tell: Tell
    clock: Clock
    begun: float
    is_told: bool = False

    def update(self) -> None:
        if not self.is_told and self.clock() - self.begun > _QUIET_SECONDS:
            self.tell(self.step)
            self.is_told = True


def _digest_file(seen: SeenFile, algorithm: str, progress: _Progress) -> bytes:
    key = seen, algorithm
    if key in _known:
        seen.require_unchanged()
        return _known[key]
    # One thread: more would take cores from a measurement that runs at the same time.
    digest = _new_digest(algorithm)
    piece = memoryview(bytearray(_PIECE_BYTES))
    try:
        with seen.open() as file:
            # The file is read, not mapped: mapped pages count as memory of this process, and
            # touching a page of a truncated file ends the process.
            while count := file.readinto(piece):
                digest.update(piece[:count])
                progress.update()
    except OSError as error:
        raise ModelError(
            f"{printable(str(seen.path))} cannot be read: {error.strerror or error}."
        ) from error
    _known[key] = digest.digest()
    return _known[key]


def _new_digest(algorithm: str) -> HASH | blake3:
    if algorithm == "sha256":
        return hashlib.sha256()
    # Only models with external data need it.
    from blake3 import blake3

    return blake3()
