"""The models that are too large to be kept: two of many nodes, one of many weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from draft import Draft
from onnx import TensorProto

MANY_NODES = 8_000
LARGE_LAYERS = 400
LARGE_WIDTH = 1024
# 4 bytes a float; the graph itself takes less than a megabyte.
LARGE_BYTES = LARGE_LAYERS * LARGE_WIDTH * LARGE_WIDTH * 4 + 1_000_000

_BLOCK = 5
_CHAIN = (("Relu", False), ("Add", True), ("Sigmoid", False), ("Mul", True))

# Of the wire format: the numbers of ModelProto.graph and GraphProto.initializer, both messages.
_GRAPH_FIELD, _INITIALIZER_FIELD = 7, 5


def write_blocks(path: Path) -> None:
    """1,600 residual blocks Conv 3x3, Relu, Mul by a constant, Add, Sigmoid.

    Shapes are fixed at 1x8x16x16, and each convolution has weights of its own.
    """
    draft, previous = Draft(), "x"
    scale = draft.store(np.full(1, 0.5, np.float32))
    for _ in range(MANY_NODES // _BLOCK):
        kernel = draft.drawn(8, 8, 3, 3, scale=1.0)
        active = draft.add("Relu", draft.add("Conv", previous, kernel, pads=[1, 1, 1, 1]))
        added = draft.add("Add", draft.add("Mul", active, scale), previous)
        previous = draft.add("Sigmoid", added)
    path.write_bytes(draft.model(previous, [1, 8, 16, 16]).SerializeToString())


def write_chain(path: Path) -> None:
    """Relu, Add, Sigmoid and Mul in turn, with one constant for all, at 1x64; no MACs at all.

    The least that a graph of so many nodes can hold.
    """
    draft, previous = Draft(), "x"
    constant = draft.store(np.full(1, 0.5, np.float32))
    for index in range(MANY_NODES):
        op, takes_constant = _CHAIN[index % len(_CHAIN)]
        previous = draft.add(op, previous, *[constant] * takes_constant)
    path.write_bytes(draft.model(previous, [1, 64]).SerializeToString())


def write_large(path: Path) -> None:
    """A chain of MatMul and Relu whose weights are in the file itself.

    Every weight has the same values, and only one of them is in memory at a time.
    """
    draft, previous, width = Draft(), "x", LARGE_WIDTH
    for index in range(LARGE_LAYERS):
        previous = draft.add("Relu", draft.add("MatMul", previous, f"weight{index}"))
    head = draft.model(previous, [1, width])
    graph = head.graph.SerializeToString()
    head.ClearField("graph")
    values = draft.random.standard_normal((width, width)).astype(np.float32).tobytes()
    prefixes = [_weight_prefix(index, len(values)) for index in range(LARGE_LAYERS)]
    weights = sum(len(prefix) + len(values) for prefix in prefixes)
    with path.open("wb") as file:
        file.write(head.SerializeToString() + _length_prefix(_GRAPH_FIELD, len(graph) + weights))
        file.write(graph)
        for prefix in prefixes:
            file.write(prefix + values)


def _weight_prefix(index: int, nbytes: int) -> bytes:
    """All that comes before the values of one weight, which are the last field of its message."""
    shape, kind = [LARGE_WIDTH, LARGE_WIDTH], TensorProto.FLOAT
    tensor = TensorProto(dims=shape, data_type=kind, name=f"weight{index}").SerializeToString()
    content = tensor + _length_prefix(TensorProto.RAW_DATA_FIELD_NUMBER, nbytes)
    return _length_prefix(_INITIALIZER_FIELD, len(content) + nbytes) + content


def _length_prefix(field: int, length: int) -> bytes:
    """The tag and the length that a message or bytes field starts with on the wire."""
    encoded = bytearray([field << 3 | 2])
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*encoded, length])
