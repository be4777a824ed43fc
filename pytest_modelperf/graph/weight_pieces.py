"""Read a stored tensor in pieces, so that a weight of gigabytes is never in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

from onnx import TensorProto

from pytest_modelperf.graph.model_file import (
    ModelFile,
    check_stored_size,
    dtype_name,
    external_pieces,
    is_external,
    packed_bytes,
    skipped_data,
)
from pytest_modelperf.graph.number_codes import NumberType, codes_of, number_type

if TYPE_CHECKING:
    from pytest_modelperf.graph.number_codes import Codes

# Decoding a piece takes a few arrays of twice this size.
PIECE_BYTES = 1 << 20

# The tags of packed float_data and double_data: they are raw data with another tag.
_PACKED_TAGS: Mapping[int, int] = {TensorProto.FLOAT: 0x22, TensorProto.DOUBLE: 0x52}


def stored_number(tensor: TensorProto) -> NumberType | None:
    """The type of a tensor's numbers; None for text."""
    return number_type(dtype_name(tensor.data_type) or "")


def read_codes(file: ModelFile, tensor: TensorProto, number: NumberType) -> Iterator[Codes]:
    """The codes of a tensor of `file`, piece by piece; all but the last have one size."""
    # A complex number counts as its two components.
    left = prod(tensor.dims) * number.components
    for piece in _read_pieces(file, tensor, number):
        codes = piece[:left]
        left -= codes.size
        yield codes


def _read_pieces(file: ModelFile, tensor: TensorProto, number: NumberType) -> Iterator[Codes]:
    check_stored_size(file, tensor, "the weight")
    raw = None if is_external(tensor) else _place_of_raw(file, tensor)
    if is_external(tensor):
        for data in external_pieces(file, tensor, PIECE_BYTES):
            yield number.unpack(data)
    elif raw is not None:
        for start in range(raw[0], raw[1], PIECE_BYTES):
            stop = min(start + PIECE_BYTES, raw[1])
            yield number.unpack(file.piece(start, stop))
    elif tensor.HasField("raw_data"):
        yield number.unpack(tensor.raw_data)
    else:
        yield codes_of(file.read_tensor(tensor), number)


def _place_of_raw(file: ModelFile, tensor: TensorProto) -> tuple[int, int] | None:
    """The span of a tensor's packed elements in the model's file; None if they are elsewhere."""
    skipped = skipped_data(tensor) if tensor.data_location == TensorProto.EXTERNAL else None
    if skipped is None:
        return None
    tag = _PACKED_TAGS.get(tensor.data_type)
    if skipped.raw is not None or tag is None or len(skipped.spans) != 1:
        return skipped.raw
    start, stop = skipped.spans[0]
    head = file.piece(start, start + 11)
    size = next((i for i, byte in enumerate(head[1:], 2) if byte < 0x80), len(head))
    length = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(head[1:size]))
    is_packed = head[0] == tag and start + size + length == stop == start + size + (
        packed_bytes(tensor)
    )
    return (start + size, stop) if is_packed else None
