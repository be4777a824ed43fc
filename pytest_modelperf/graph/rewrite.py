"""Write a bound model with the shape of every tensor in it; weights stream from file to file."""

from __future__ import annotations

import difflib
import filecmp
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, ValueInfoProto, helper

from pytest_modelperf.errors import ModelError, OutputError, UsageError
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.model_file import (
    DATA_TYPES,
    MAX_PROTO_BYTES,
    external_location,
    is_external,
)
from pytest_modelperf.graph.structure import Shape, Tensor
from pytest_modelperf.graph.wire import chunk_size, restore_model
from pytest_modelperf.units import format_bytes, printable

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """What a written model holds: tensors, those with a complete shape, and outputs added."""

    tensors: int
    known_shapes: int
    new_outputs: tuple[str, ...]


def write_shaped_model(bound: BoundModel, path: Path, names: Sequence[str] = ()) -> Written:
    """Write the model with all known shapes, and the tensors `names` as further outputs."""
    proto = onnx.ModelProto()
    proto.CopyFrom(bound.proto)
    new_outputs = _add_outputs(bound, proto.graph, names)
    known = _add_shapes(bound, proto.graph)
    chunks = restore_model(proto.SerializeToString(), bound.file.name)
    size = sum(map(chunk_size, chunks))
    if size > MAX_PROTO_BYTES:
        raise ModelError(
            f"{bound.file.name} with its shapes would have {format_bytes(size)}; an ONNX file can "
            f"have {format_bytes(MAX_PROTO_BYTES)} at most. Store its weights as external data "
            "first (onnx.save with save_as_external_data=True)."
        )
    try:
        _copy_external_data(bound, path)
        _write_chunks(bound, path, chunks)
    except OSError as error:
        raise OutputError(
            f"cannot write {printable(str(path))}: {error.strerror or error}."
        ) from error
    return Written(len(bound.tensors), known, new_outputs)


def _add_outputs(
    bound: BoundModel, graph: onnx.GraphProto, names: Sequence[str]
) -> tuple[str, ...]:
    present = {output.name for output in graph.output}
    wanted = dict.fromkeys(
        name
        for text in names
        for name in ((text,) if text in bound.tensors else map(str.strip, text.split(",")))
    )
    for name in wanted:
        if name not in bound.tensors:
            near = difflib.get_close_matches(name, list(bound.tensors), 3)
            hint = f" Did you mean {', '.join(map(printable, near))}?" if near else ""
            raise UsageError(f"{bound.file.name} has no tensor {printable(name)!r}.{hint}")
    added = tuple(name for name in wanted if name not in present)
    for name in added:
        graph.output.append(_value_info(bound.tensors[name]))
    return added


def _add_shapes(bound: BoundModel, graph: onnx.GraphProto) -> int:
    """Give every tensor its shape; how many have a complete one."""
    declared = {info.name for info in (*graph.input, *graph.output)}
    stored = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    for output in graph.output:
        tensor = bound.tensors[output.name]
        if tensor.dtype is not None and tensor.shape is not None:
            output.CopyFrom(_value_info(tensor))
    known = 0
    for name, tensor in bound.tensors.items():
        known += tensor.shape is not None and None not in tensor.shape
        if name in declared or name in stored or tensor.dtype is None:
            continue
        graph.value_info.append(_value_info(tensor))
    return known


def _value_info(tensor: Tensor) -> ValueInfoProto:
    data_type = DATA_TYPES.get(tensor.dtype or "", TensorProto.UNDEFINED)
    shape: Shape | None = tensor.shape
    return helper.make_tensor_value_info(tensor.name, data_type, shape)


def _copy_external_data(bound: BoundModel, path: Path) -> None:
    """Put the external data beside the copy, where its locations then point."""
    source, target = bound.file.folder, path.parent.resolve()
    for location in sorted(_external_files(bound)):
        copy = target / location.relative_to((source or target).resolve())
        if path.resolve() in (location, copy):
            raise OutputError(
                f"{printable(str(path))} is where the weights of {bound.file.name} lie. "
                "Write to another file."
            )
        if copy.exists():
            if copy.samefile(location) or filecmp.cmp(copy, location, shallow=False):
                continue
            raise OutputError(
                f"the external data of {bound.file.name} would overwrite {printable(str(copy))}. "
                "Write to another folder."
            )
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(location, copy)


def _external_files(bound: BoundModel) -> set[Path]:
    return {
        external_location(bound.file, tensor).path
        for tensor in bound.stored.values()
        if is_external(tensor)
    }


def _write_chunks(bound: BoundModel, path: Path, chunks: Sequence[bytes | tuple[int, int]]) -> None:
    """Write to a temporary file first, so that the model may be written over itself."""
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            for piece in _pieces(bound, chunks):
                file.write(piece)
            file.close()
            Path(file.name).chmod(0o666 & ~_umask())
            Path(file.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(file.name).unlink()
            raise


def _pieces(bound: BoundModel, chunks: Sequence[bytes | tuple[int, int]]) -> Iterator[bytes]:
    """The bytes to write, in pieces; those of weights as the model file has them."""
    with bound.file.open_bytes() as source:
        for chunk in chunks:
            if isinstance(chunk, bytes):
                yield chunk
                continue
            source.seek(chunk[0])
            for start in range(chunk[0], chunk[1], _PIECE_BYTES):
                yield source.read(min(_PIECE_BYTES, chunk[1] - start))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
