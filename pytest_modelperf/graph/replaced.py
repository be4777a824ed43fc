"""Write a model with some weights replaced, each of which is made while it is written.

All other weights stream from the original file. If the model is too large for one file, the
replaced weights go into another file next to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec import Struct
from onnx import ModelProto, TensorProto

from pytest_modelperf.errors import ModelError, OutputError
from pytest_modelperf.files.output import cannot_write
from pytest_modelperf.graph.copies import read_chunks
from pytest_modelperf.graph.model_file import (
    MAX_PROTO_BYTES,
    ModelFile,
    external_files,
    packed_bytes,
)
from pytest_modelperf.graph.stored_tensors import clear_data, point_outside
from pytest_modelperf.graph.wire import (
    RAW_DATA,
    WEIGHT_KEY,
    SkippedData,
    chunk_size,
    field_head,
    restore_model,
)
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes

# The file of external data has the name of the model with this suffix.
_DATA_SUFFIX = ".data"

# Engines map external data into memory, page by page.
_ALIGNMENT = 4096


class Replacement(Struct, frozen=True, eq=False):
    """A tensor to write, and what makes its elements. Only an initializer can be outside."""

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
    """Mark the place of each as behind the end of the file, so that `restore_model` finds it."""
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
