"""The models that are too large to be kept: two of many nodes, one of many weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from draft import Draft
from onnx import GraphProto, ModelProto, numpy_helper

MANY_NODES = 8_000
LARGE_LAYERS = 400
LARGE_WIDTH = 1024
# 4 bytes a float; the graph itself takes less than a megabyte.
LARGE_BYTES = LARGE_LAYERS * LARGE_WIDTH * LARGE_WIDTH * 4 + 1_000_000

_BLOCK = 5
_CHAIN = (("Relu", False), ("Add", True), ("Sigmoid", False), ("Mul", True))


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

    Every weight has the same values, and only one of them is in memory at a time: a reader merges
    messages that follow each other.
    """
    draft, previous, width = Draft(), "x", LARGE_WIDTH
    for index in range(LARGE_LAYERS):
        previous = draft.add("Relu", draft.add("MatMul", previous, f"weight{index}"))
    values = draft.random.standard_normal((width, width)).astype(np.float32)
    weight = numpy_helper.from_array(values)
    with path.open("wb") as file:
        file.write(draft.model(previous, [1, width]).SerializeToString())
        for index in range(LARGE_LAYERS):
            weight.name = f"weight{index}"
            file.write(ModelProto(graph=GraphProto(initializer=[weight])).SerializeToString())
