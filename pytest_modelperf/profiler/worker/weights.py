"""Read weights from a file, to describe or to copy them.

The facts are a digest of the data and its share of subnormal numbers.

A large weight is read in part: some pieces at equal distances, always including both ends. Two
weights that are equal in all of these pieces count as equal.

Its source is sent to a worker with the agent's, so it needs only the standard library and numpy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

# A multiple of every element size, and small enough to stay in the cache of a core.
_PIECE_BYTES = 1 << 15
_DIGEST_BYTES = 16
_TOO_SHORT = "the weights of the plan end too soon"
# The most pieces of one weight that are read.
_MOST_PIECES = 32
# The type that holds the bits of a number, the bits without the sign, and the smallest normal ones.
_LAYOUTS: Mapping[str, tuple[str, int, int]] = {
    "float64": ("<u8", 0x7FFF_FFFF_FFFF_FFFF, 0x0010_0000_0000_0000),
    "float32": ("<u4", 0x7FFF_FFFF, 0x0080_0000),
    "float16": ("<u2", 0x7FFF, 0x0400),
    "bfloat16": ("<u2", 0x7FFF, 0x0080),
}


def describe_spans(path: str, spans: Sequence[tuple[int, int, str]]) -> list[tuple[bytes, float]]:
    """Return the digest and the share of subnormal numbers of each span: offset, bytes, type."""
    with open(path, "rb") as file:  # noqa: PTH123  # a path is a string on this side
        return [_describe(file, *span) for span in spans]


def move_spans(source: str, target: str, moves: Sequence[tuple[int, int, int]]) -> None:
    """Write spans of a file into another: the offset and the bytes of each, and its new offset."""
    with open(source, "rb") as old, open(target, "wb") as new:  # noqa: PTH123  # likewise
        for offset, nbytes, place in moves:
            old.seek(offset)
            new.seek(place)
            left = nbytes
            while left:
                piece = old.read(min(left, _PIECE_BYTES))
                if not piece:
                    raise ValueError(_TOO_SHORT)
                new.write(piece)
                left -= len(piece)


def _pieces(nbytes: int) -> list[tuple[int, int]]:
    """Return the start and the length of each piece, always including both ends of the weight."""
    count = -(-nbytes // _PIECE_BYTES)
    steps = range(count)
    if count > _MOST_PIECES:
        steps = [k * (count - 1) // (_MOST_PIECES - 1) for k in range(_MOST_PIECES)]  # type: ignore[assignment]  # numbers either way
    return [(k * _PIECE_BYTES, min(_PIECE_BYTES, nbytes - k * _PIECE_BYTES)) for k in steps]


def _describe(file: Any, offset: int, nbytes: int, dtype: str) -> tuple[bytes, float]:  # noqa: ANN401  # an open file
    import numpy as np

    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    layout = _LAYOUTS.get(dtype)
    subnormals = numbers = 0
    for start, length in _pieces(nbytes):
        file.seek(offset + start)
        piece = file.read(length)
        if len(piece) < length:
            raise ValueError(_TOO_SHORT)
        digest.update(piece)
        if layout is not None:
            kind, mask, normal = layout
            magnitudes = np.frombuffer(piece, kind) & mask
            numbers += magnitudes.size
            # Subtracting 1 turns zeros into the largest number, so they do not count.
            subnormals += int(np.count_nonzero(magnitudes - magnitudes.dtype.type(1) < normal - 1))
    return digest.digest(), subnormals / numbers if numbers else 0.0
