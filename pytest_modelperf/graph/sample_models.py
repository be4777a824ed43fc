"""Build small models: to test a machine, and to measure its peaks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

# The channels of the layers, in order. Each layer but the first halves height and width.
_CHANNELS = (3, 32, 64, 128, 128)
_SIZE = 112
_CLASSES = 100


def sample_model() -> onnx.ModelProto:
    """Build a model of 155 M MACs, which takes a few milliseconds on one core of most machines."""
    random = np.random.RandomState(0)
    nodes, weights = [], []

    def weight(name: str, *shape: int) -> str:
        scale = 1.0 / np.sqrt(np.prod(shape[1:]) or 1)
        values = (scale * random.standard_normal(shape)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, name))
        return name

    make_conv = partial(helper.make_node, "Conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    last = "image"
    for index, (before, after) in enumerate(pairwise(_CHANNELS)):
        stride = 1 if index == 0 else 2
        inputs = [last, weight(f"w{index}", after, before, 3, 3), weight(f"b{index}", after)]
        conv = f"conv{index}"
        nodes.append(make_conv(inputs, [conv], conv, strides=[stride, stride]))
        last = f"relu{index}"
        nodes.append(helper.make_node("Relu", [conv], [last], last))
    last_weights = weight("w_out", _CHANNELS[-1], _CLASSES), weight("b_out", _CLASSES)
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", *last_weights], ["classes"], "gemm"),
    ]
    return _model(
        nodes,
        {"image": ["N", 3, _SIZE, _SIZE]},
        {"classes": ["N", _CLASSES]},
        weights,
        name="sample",
        opset=17,
        ir_version=8,
    )


# -- small models to measure the peaks of a machine


# The types of products. An engine may compute in another type, or lack some of them.
PRODUCTS = ("float32", "int8", "float16", "bfloat16")

_TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}
# The number of different values that are drawn and then repeated, which no engine detects.
_POOL = 4093
_COLUMNS = 1024
# The tensors of the sum: two operands and a result.
_TENSORS = 3
_FLOAT_BYTES = 4


def product_model(size: int, precision: str) -> onnx.ModelProto:
    """Build a product of a square matrix and a stored one, quantized in `int8`: size³ MACs."""
    shape = {"x": [size, size]}, {"y": [size, size]}
    if precision == "int8":
        return _model(_quantized_product(), *shape, _quantized_weights(size))
    kind = _TYPES[precision]
    weight = helper.make_tensor("w", kind, [size, size], _drawn(size * size).tolist())
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    return _model(nodes, *shape, [weight], kind)


def memory_model(nbytes: int) -> onnx.ModelProto:
    """Build a sum of two tensors that moves `nbytes` in all, and take the maximum of each row."""
    rows = max(1, round(nbytes / (_TENSORS * _COLUMNS * _FLOAT_BYTES)))
    nodes = [
        helper.make_node("Tile", ["x", "times"], ["xs"], "left"),
        helper.make_node("Tile", ["z", "times"], ["zs"], "right"),
        helper.make_node("Add", ["xs", "zs"], ["sums"], "sum"),
        helper.make_node("ReduceMax", ["sums", "axes"], ["y"], "largest", keepdims=1),
    ]
    # Each input is one row and the output is a column, so that almost no data is transferred.
    row = [1, _COLUMNS]
    constants = {"times": [rows, 1], "axes": [1]}
    weights = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in constants.items()]
    return _model(nodes, {"x": row, "z": row}, {"y": [rows, 1]}, weights)


def _quantized_product() -> list[onnx.NodeProto]:
    return [
        helper.make_node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["xq"], "quantize"),
        helper.make_node("DequantizeLinear", ["xq", "x_scale", "x_zero"], ["xf"], "matrix"),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wf"], "stored"),
        helper.make_node("MatMul", ["xf", "wf"], ["p"], "product"),
        helper.make_node("QuantizeLinear", ["p", "y_scale", "x_zero"], ["pq"], "quantize_product"),
        helper.make_node("DequantizeLinear", ["pq", "y_scale", "x_zero"], ["y"], "result"),
    ]


def _quantized_weights(size: int) -> list[onnx.TensorProto]:
    values = np.clip(np.rint(_drawn(size * size) * 32), -127, 127).astype(np.int8)
    stored: Mapping[str, npt.NDArray[np.generic] | np.generic] = {
        "w": values.reshape(size, size),
        "w_scale": np.float32(1 / 32),
        "w_zero": np.int8(0),
        "x_scale": np.float32(1 / 32),
        "x_zero": np.uint8(128),
        "y_scale": np.float32(math.sqrt(size) / 32),
    }
    return [numpy_helper.from_array(np.asarray(v), name) for name, v in stored.items()]


def _drawn(count: int) -> npt.NDArray[np.float32]:
    pool = np.random.RandomState(0).standard_normal(_POOL).astype(np.float32)
    return np.resize(pool, count)


def _model(  # noqa: PLR0913  # the parts of a model
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, Sequence[int | str]],
    weights: Sequence[onnx.TensorProto],
    kind: int = TensorProto.FLOAT,
    *,
    name: str = "peak",
    opset: int = 21,
    ir_version: int = 10,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(each, kind, shape) for each, shape in inputs.items()],
        [helper.make_tensor_value_info(each, kind, shape) for each, shape in outputs.items()],
        weights,
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, ir_version=ir_version, opset_imports=opsets)
