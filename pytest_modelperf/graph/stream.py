"""A changed model as a file again: its weights stream there from the file that it was read from."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import onnx

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.model_file import MAX_PROTO_BYTES, ModelFile
from pytest_modelperf.graph.wire import Chunk, chunk_size, restore_model
from pytest_modelperf.units import format_bytes

_PIECE_BYTES = 1 << 20


def restored_chunks(proto: onnx.ModelProto, file: ModelFile, change: str) -> tuple[Chunk, ...]:
    """What to write for `proto`, which was made from `file`; ModelError where it is too large.

    `change` says what was done to it: "with its shapes".
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


def write_chunks(file: ModelFile, path: Path, chunks: Sequence[Chunk]) -> None:
    """Write to a temporary file first, so that the model may be written over itself."""
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as target:
        try:
            for piece in _pieces(file, chunks):
                target.write(piece)
            target.close()
            Path(target.name).chmod(0o666 & ~_umask())
            Path(target.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(target.name).unlink()
            raise


def _pieces(file: ModelFile, chunks: Sequence[Chunk]) -> Iterator[bytes]:
    """The bytes to write, in pieces; those of weights as the model file has them."""
    with file.open_bytes() as source:
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
