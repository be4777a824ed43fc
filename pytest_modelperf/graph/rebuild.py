"""Rebuild a model that runs from a twin: its weights are drawn and written piece by piece."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec import Struct
from onnx import ModelProto, TensorProto

from pytest_modelperf.errors import ModelError, OutputError
from pytest_modelperf.graph.drawing import Drawer
from pytest_modelperf.graph.model_file import MAX_PROTO_BYTES
from pytest_modelperf.graph.stored_tensors import StorageKind
from pytest_modelperf.graph.twin import MAX_MODEL_BYTES, TWIN_KEY, LeftOutWeight, Twin, left_out
from pytest_modelperf.graph.wire import (
    WEIGHT_KEY,
    SkippedData,
    chunk_size,
    encode_varint,
    restore_model,
)
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes

# The metadata key that marks a rebuilt model.
REBUILT_KEY = "modelperf.rebuilt"
# The name of external data is the name of the model and this suffix.
DATA_SUFFIX = ".data"

# The tag of TensorProto.raw_data: field 9, with a length.
_RAW_DATA_TAG = 0x4A
# Engines map external data into memory, page by page.
_ALIGNMENT = 4096


class _Hole(Struct, frozen=True, eq=False):
    """A weight to be written into the model; `start` identifies its place."""

    weight: LeftOutWeight
    head: bytes
    start: int

    @property
    def stop(self) -> int:
        return self.start + len(self.head) + self.weight.nbytes


def rebuild(  # noqa: PLR0913  # a twin, where to, and the limits of files
    twin: Twin,
    path: Path,
    seed: int = 0,
    *,
    max_bytes: int = MAX_MODEL_BYTES,
    max_file_bytes: int = MAX_PROTO_BYTES,
    recorded_bytes: int | None = None,
) -> Path:
    """Write a model that runs as the twin's did, its weights drawn by `seed`; returns `path`.

    Weights that were equal in the model are drawn equal, others each by its own key.

    If the model would be larger than `max_file_bytes`, its weights are in a file beside it. They
    are there too if the file of the recorded model, of `recorded_bytes`, had no room for them:
    engines map such weights, so loading them takes another time. A model of more than `max_bytes`
    in all, or too large for the disk, is refused before anything is written.
    """
    proto = ModelProto()
    proto.CopyFrom(twin.proto)
    weights = tuple(left_out(Twin(twin.name, proto)))
    _mark(proto, seed)
    size = proto.ByteSize() + sum(weight.nbytes for weight in weights)
    _check_room(twin, path, size, max_bytes)
    drawer = Drawer(seed)
    # The notes are replaced by entries that take less than a kilobyte for each weight.
    is_split = size + 1024 * len(weights) > max_file_bytes
    if recorded_bytes is not None:
        is_split = is_split or 2 * recorded_bytes < sum(weight.nbytes for weight in weights)
    outside = tuple(w for w in weights if is_split and w.stored.kind is StorageKind.INITIALIZER)
    data_path = path.with_name(path.name + DATA_SUFFIX)
    _point_outside(outside, data_path.name)
    holes = _make_holes(tuple(w for w in weights if w not in outside))
    chunks = restore_model(proto.SerializeToString(deterministic=True), twin.name)
    inside = sum(map(chunk_size, chunks))
    if inside > MAX_PROTO_BYTES:
        raise ModelError(
            f"{twin.name} holds {format_bytes(inside)} in nodes, where data cannot lie in another "
            f"file; an ONNX file can have {format_bytes(MAX_PROTO_BYTES)} at most."
        )
    written = [path, data_path] if outside else [path]
    try:
        with ExitStack() as failed:
            for target in written:
                failed.callback(_remove, target)
            if outside:
                _write_pieces(data_path, _outside_pieces(outside, drawer))
            _write_pieces(path, _pieces(chunks, holes, drawer))
            failed.pop_all()
    except OSError as error:
        raise OutputError(
            f"cannot write {printable(str(path))}: {error.strerror or error}."
        ) from error
    return path


def _mark(proto: ModelProto, seed: int) -> None:
    kept = [entry for entry in proto.metadata_props if entry.key != TWIN_KEY]
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    proto.metadata_props.add(key=REBUILT_KEY, value=json.dumps({"seed": seed}))


def _check_room(twin: Twin, path: Path, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ModelError(
            f"the model of {twin.name} would have {format_bytes(size)}; "
            f"{format_bytes(max_bytes)} are allowed."
        )
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise OutputError(
            f"cannot write {printable(str(path))}: {error.strerror or error}."
        ) from error
    if size > free:
        raise OutputError(
            f"cannot write {printable(str(path))}: the model would have {format_bytes(size)}, "
            f"and {format_bytes(free)} are free."
        )


def _clear(tensor: TensorProto) -> None:
    tensor.ClearField("metadata_props")
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def _point_outside(weights: tuple[LeftOutWeight, ...], location: str) -> None:
    offset = 0
    for weight in weights:
        tensor = weight.tensor
        _clear(tensor)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", location),
            ("offset", str(offset)),
            ("length", str(weight.nbytes)),
        ):
            tensor.external_data.add(key=key, value=value)
        offset += weight.nbytes + -weight.nbytes % _ALIGNMENT


def _make_holes(weights: tuple[LeftOutWeight, ...]) -> Mapping[int, _Hole]:
    """Mark the place of each weight so that `restore_model` finds it."""
    holes: dict[int, _Hole] = {}
    start = 0
    for weight in weights:
        hole = _Hole(weight, bytes([_RAW_DATA_TAG]) + encode_varint(weight.nbytes), start)
        tensor = weight.tensor
        _clear(tensor)
        tensor.data_location = TensorProto.EXTERNAL
        place = SkippedData(((hole.start, hole.stop),), None)
        tensor.external_data.add(key=WEIGHT_KEY, value=place.encode())
        holes[start] = hole
        start = hole.stop
    return holes


def _pieces(
    chunks: tuple[bytes | tuple[int, int], ...], holes: Mapping[int, _Hole], drawer: Drawer
) -> Iterator[bytes]:
    for chunk in chunks:
        if isinstance(chunk, bytes):
            yield chunk
        else:
            hole = holes[chunk[0]]
            yield hole.head
            yield from _drawn(hole.weight, drawer)


def _outside_pieces(weights: tuple[LeftOutWeight, ...], drawer: Drawer) -> Iterator[bytes]:
    for weight in weights:
        yield from _drawn(weight, drawer)
        yield bytes(-weight.nbytes % _ALIGNMENT)


def _drawn(weight: LeftOutWeight, drawer: Drawer) -> Iterator[bytes]:
    return drawer.draw(
        weight.note, weight.number, weight.dims, weight.group, weight.stored.dense_shape
    )


def _write_pieces(path: Path, pieces: Iterator[bytes]) -> None:
    with path.open("wb") as target:
        for piece in pieces:
            target.write(piece)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
