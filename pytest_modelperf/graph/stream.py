"""Write a changed model to a file; its weights stream from the original file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import onnx

from pytest_modelperf.errors import ModelError
from pytest_modelperf.files.output import Target, written_bytes
from pytest_modelperf.graph.model_file import MAX_PROTO_BYTES, ModelFile
from pytest_modelperf.graph.wire import Chunk, chunk_size, restore_model
from pytest_modelperf.text.units import format_bytes

_PIECE_BYTES = 1 << 20


def restored_chunks(proto: onnx.ModelProto, file: ModelFile, change: str) -> tuple[Chunk, ...]:
    """The chunks to write for `proto`, which was made from `file`; raises ModelError if too large.

    `change` describes the change: "with its shapes".
    """
    chunks = restore_model(proto.SerializeToString(), file.name)
    size = sum(map(chunk_size, chunks))
    if size > MAX_PROTO_BYTES:
        raise ModelError(
            f"{file.name} {change} would have {format_bytes(size)}; an ONNX file can "
            f"have {format_bytes(MAX_PROTO_BYTES)} at most. Store its weights as external data "
            "first (onnx.save with save_as_external_data=True)."
        )
    return chunks


def write_chunks(file: ModelFile, target: Target, chunks: Sequence[Chunk]) -> None:
    """Write the chunks in one step, so that the model may replace its own file."""
    with written_bytes(target) as stream:
        for piece in _pieces(file, chunks):
            stream.write(piece)


def _pieces(file: ModelFile, chunks: Sequence[Chunk]) -> Iterator[bytes]:
    """The bytes to write, in pieces; weights are copied from the model file."""
    with file.open_bytes() as source:
        for chunk in chunks:
            if isinstance(chunk, bytes):
                yield chunk
            else:
                yield from read_span(source, *chunk)


def read_span(source: BinaryIO, start: int, stop: int) -> Iterator[bytes]:
    """A part of an open file, in pieces."""
    source.seek(start)
    for begin in range(start, stop, _PIECE_BYTES):
        yield source.read(min(_PIECE_BYTES, stop - begin))
