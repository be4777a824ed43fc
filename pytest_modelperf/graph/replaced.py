"""Write a model with other weights in place of some: given ones, or those that a twin draws.

All other weights stream from the original file. If the model is too large for one file, the
replaced weights go into another file next to it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from msgspec import Struct
from onnx import ModelProto, TensorProto

from pytest_modelperf.errors import ModelError, OutputError
from pytest_modelperf.files.output import cannot_write
from pytest_modelperf.graph.copies import read_chunks
from pytest_modelperf.graph.model_bytes import (
    RAW_DATA,
    WEIGHT_KEY,
    SkippedData,
    chunk_size,
    field_head,
    restore_model,
)
from pytest_modelperf.graph.model_file import (
    MAX_PROTO_BYTES,
    ModelFile,
    external_files,
    packed_bytes,
)
from pytest_modelperf.graph.stored_tensors import (
    StorageKind,
    clear_data,
    point_outside,
    remove_named,
)
from pytest_modelperf.graph.twin import MAX_MODEL_BYTES, TWIN_KEY, LeftOutWeight, Twin, left_out
from pytest_modelperf.graph.weights.drawing import Drawer
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes

# The file of external data has the name of the model with this suffix.
_DATA_SUFFIX = ".data"

# Engines map external data into memory, page by page.
_ALIGNMENT = 4096


class Replacement(Struct, frozen=True, eq=False):
    """A tensor to write, and what makes its elements. Only an initializer can be external."""

    tensor: TensorProto
    make: Callable[[], Iterator[bytes]]
    is_initializer: bool = True

    @property
    def nbytes(self) -> int:
        return packed_bytes(self.tensor)

    @property
    def head(self) -> bytes:
        """The bytes before its elements in the file of the model."""
        return field_head(RAW_DATA, self.nbytes)

    def pieces(self) -> Iterator[bytes]:
        yield self.head
        yield from self.make()


def write_replaced(  # noqa: PLR0913  # a model, its new tensors, and the files that they go to
    file: ModelFile,
    proto: ModelProto,
    replacements: Sequence[Replacement],
    path: Path,
    *,
    max_file_bytes: int = MAX_PROTO_BYTES,
    is_split: bool = False,
) -> None:
    """Write `proto`, which was made from `file`. The replaced tensors are tensors of `proto`.

    With `is_split`, the replaced initializers go into another file even if one file could hold all.
    """
    holes = _cut_holes(file, replacements)
    chunks = restore_model(proto.SerializeToString(), file.name)
    outside: tuple[Replacement, ...] = ()
    data_path = path.with_name(path.name + _DATA_SUFFIX)
    if is_split or sum(map(chunk_size, chunks)) > max_file_bytes:
        if data_path.resolve() in external_files(file).values():
            raise OutputError(
                f"{printable(str(data_path))} holds the weights of {file.name}. Write to "
                "another file."
            )
        outside = tuple(each for each in replacements if each.is_initializer)
        offset = 0
        for each in outside:
            point_outside(each.tensor, data_path.name, offset, each.nbytes)
            offset += each.nbytes + -each.nbytes % _ALIGNMENT
        chunks = restore_model(proto.SerializeToString(), file.name)
        inside = sum(map(chunk_size, chunks))
        if inside > max_file_bytes:
            raise ModelError(
                f"{file.name} would have {format_bytes(inside)} besides the weights that can be in "
                f"another file; an ONNX file can have {format_bytes(max_file_bytes)} at most. "
                "Store its weights as external data first (onnx.save with "
                "save_as_external_data=True)."
            )
    try:
        with ExitStack() as failed:
            for target in (path, data_path) if outside else (path,):
                failed.callback(_remove, target)
            if outside:
                _write(data_path, _outside_pieces(outside))
            _write(path, read_chunks(file, chunks, holes))
            failed.pop_all()
    except OSError as error:
        raise cannot_write(str(path), error) from error


def _cut_holes(
    file: ModelFile, replacements: Sequence[Replacement]
) -> Mapping[int, Callable[[], Iterator[bytes]]]:
    """Mark the place of each as after the end of the file, so that `restore_model` finds it."""
    holes: dict[int, Callable[[], Iterator[bytes]]] = {}
    start = file.size_bytes
    for each in replacements:
        stop = start + len(each.head) + each.nbytes
        clear_data(each.tensor)
        each.tensor.data_location = TensorProto.EXTERNAL
        hole = SkippedData(((start, stop),), None)
        each.tensor.external_data.add(key=WEIGHT_KEY, value=hole.encode())
        holes[start] = each.pieces
        start = stop
    return holes


def _outside_pieces(replacements: Sequence[Replacement]) -> Iterator[bytes]:
    for each in replacements:
        yield from each.make()
        yield bytes(-each.nbytes % _ALIGNMENT)


def _write(path: Path, pieces: Iterator[bytes]) -> None:
    with path.open("wb") as target:
        for piece in pieces:
            target.write(piece)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


# The metadata key that marks a rebuilt model.
REBUILT_KEY = "modelperf.rebuilt"


def rebuild(  # noqa: PLR0913  # a twin, where to, and the limits of files
    twin: Twin,
    path: Path,
    seed: int = 0,
    *,
    max_bytes: int = MAX_MODEL_BYTES,
    max_file_bytes: int = MAX_PROTO_BYTES,
    recorded_bytes: int | None = None,
) -> Path:
    """Write a model that runs as the twin's did, its weights drawn by `seed`, and return `path`.

    Weights that were equal in the model are drawn equal. Each other weight has its own key.

    If the model would be larger than `max_file_bytes`, its weights go into a file next to it. They
    also do so if the file of the recorded model, of `recorded_bytes`, was too small for them:
    engines map such weights, which changes the time to load them. A model of more than `max_bytes`
    in all, or too large for the disk, is refused before anything is written.
    """
    proto = ModelProto()
    proto.CopyFrom(twin.proto)
    weights = tuple(left_out(Twin(twin.name, proto)))
    remove_named(proto.metadata_props, {TWIN_KEY}, by="key")
    proto.metadata_props.add(key=REBUILT_KEY, value=json.dumps({"seed": seed}))
    weight_bytes = sum(weight.nbytes for weight in weights)
    size = proto.ByteSize() + weight_bytes
    _check_room(twin, path, size, max_bytes)
    drawer = Drawer(seed)
    replacements = []
    for weight in weights:
        weight.tensor.ClearField("metadata_props")
        is_initializer = weight.stored.kind is StorageKind.INITIALIZER
        make = partial(_drawn, weight, drawer)
        replacements.append(Replacement(weight.tensor, make, is_initializer=is_initializer))
    had_no_room = recorded_bytes is not None and 2 * recorded_bytes < weight_bytes
    # All data is drawn, so this file needs no bytes to copy from.
    empty = ModelFile(twin.name, None, proto, b"")
    is_split = size > max_file_bytes or had_no_room
    write_replaced(empty, proto, replacements, path, is_split=is_split)
    return path


def _check_room(twin: Twin, path: Path, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ModelError(
            f"the model of {twin.name} would have {format_bytes(size)}; "
            f"{format_bytes(max_bytes)} are allowed."
        )
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise cannot_write(str(path), error) from error
    if size > free:
        raise OutputError(
            f"cannot write {printable(str(path))}: the model would have {format_bytes(size)}, "
            f"and {format_bytes(free)} are free."
        )


def _drawn(weight: LeftOutWeight, drawer: Drawer) -> Iterator[bytes]:
    codes = drawer.draw_codes(
        weight.note, weight.number, weight.dims, weight.group, weight.stored.dense_shape
    )
    return map(weight.number.pack, codes)
