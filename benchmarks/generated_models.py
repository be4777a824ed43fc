"""The models that are too large to be kept: two of many nodes, one of many weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MANY_NODES = 8_000
LARGE_LAYERS = 400
LARGE_WIDTH = 1024
# 4 bytes a float; the graph beside the weights takes less than a megabyte.
LARGE_BYTES = LARGE_LAYERS * LARGE_WIDTH * LARGE_WIDTH * 4 + 1_000_000

_OPSETS = (helper.make_opsetid("", 17),)
_IR_VERSION = 8
_BLOCK = 5
_CHAIN = (("Relu", False), ("Add", True), ("Sigmoid", False), ("Mul", True))

# Of the wire format: the numbers of ModelProto.graph and GraphProto.initializer, both messages.
_GRAPH_FIELD, _INITIALIZER_FIELD = 7, 5


def write_blocks(path: Path) -> int:
    """1,600 residual blocks Conv 3x3, Relu, Mul by a constant, Add, Sigmoid; the MACs of it.

    Shapes are fixed at 1x8x16x16, and each convolution has weights of its own.
    """
    channels, side = 8, 16
    rng = np.random.default_rng(0)
    shape = [1, channels, side, side]
    nodes, weights = [], [numpy_helper.from_array(np.float32(0.5).reshape(1), "scale")]
    previous = "x"
    for block in range(MANY_NODES // _BLOCK):
        kernel = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(kernel, f"kernel{block}"))
        conv, relu, mul, add, out = (f"{op}{block}" for op in ("conv", "relu", "mul", "add", "out"))
        nodes += [
            helper.make_node("Conv", [previous, f"kernel{block}"], [conv], conv, pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [conv], [relu], relu),
            helper.make_node("Mul", [relu, "scale"], [mul], mul),
            helper.make_node("Add", [mul, previous], [add], add),
            helper.make_node("Sigmoid", [add], [out], out),
        ]
        previous = out
    graph = helper.make_graph(
        nodes,
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(previous, TensorProto.FLOAT, shape)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=_OPSETS, ir_version=_IR_VERSION)
    path.write_bytes(model.SerializeToString())
    return MANY_NODES // _BLOCK * channels * channels * 3 * 3 * side * side


def write_chain(path: Path) -> int:
    """Relu, Add, Sigmoid and Mul in turn, with one constant for all, at 1x64; no MACs at all.

    The least that a graph of so many nodes can hold.
    """
    nodes = []
    previous = "x"
    for index in range(MANY_NODES):
        op_type, takes_constant = _CHAIN[index % len(_CHAIN)]
        inputs = [previous, "constant"] if takes_constant else [previous]
        previous = f"y{index}"
        nodes.append(helper.make_node(op_type, inputs, [previous], f"node{index}"))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info(previous, TensorProto.FLOAT, [1, 64])],
        [numpy_helper.from_array(np.float32(0.5).reshape(1), "constant")],
    )
    model = helper.make_model(graph, opset_imports=_OPSETS, ir_version=_IR_VERSION)
    path.write_bytes(model.SerializeToString())
    return 0


def write_large(path: Path, layers: int = LARGE_LAYERS, width: int = LARGE_WIDTH) -> int:
    """A chain of MatMul and Relu whose weights lie in the file itself; the MACs of it.

    Every weight has the same values, and only one of them is in memory at a time.
    """
    head = helper.make_model(
        _large_graph(layers, width), opset_imports=_OPSETS, ir_version=_IR_VERSION
    )
    graph = head.graph.SerializeToString()
    head.ClearField("graph")
    values = np.random.default_rng(0).standard_normal((width, width)).astype(np.float32).tobytes()
    sizes = sum(len(_weight_prefix(i, width, len(values))) + len(values) for i in range(layers))
    with path.open("wb") as file:
        file.write(head.SerializeToString())
        file.write(_length_prefix(_GRAPH_FIELD, len(graph) + sizes))
        file.write(graph)
        for index in range(layers):
            file.write(_weight_prefix(index, width, len(values)))
            file.write(values)
    return layers * width * width


def _large_graph(layers: int, width: int) -> onnx.GraphProto:
    nodes = []
    previous = "x"
    for i in range(layers):
        nodes.append(helper.make_node("MatMul", [previous, f"weight{i}"], [f"m{i}"], f"matmul{i}"))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"y{i}"], f"relu{i}"))
        previous = f"y{i}"
    return helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, width])],
        [helper.make_tensor_value_info(previous, TensorProto.FLOAT, [1, width])],
    )


def _weight_prefix(index: int, width: int, nbytes: int) -> bytes:
    """All that comes before the values of one weight, which are the last field of its message."""
    tensor = TensorProto(
        dims=[width, width], data_type=TensorProto.FLOAT, name=f"weight{index}"
    ).SerializeToString()
    content = tensor + _length_prefix(TensorProto.RAW_DATA_FIELD_NUMBER, nbytes)
    return _length_prefix(_INITIALIZER_FIELD, len(content) + nbytes) + content


def _length_prefix(field: int, length: int) -> bytes:
    """The tag and the length that a message or bytes field starts with on the wire."""
    bytes_wire_type = 2
    return _varint(field << 3 | bytes_wire_type) + _varint(length)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
