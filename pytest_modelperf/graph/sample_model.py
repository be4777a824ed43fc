"""A small convolutional network, the default model to test a machine."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Channels of the layers, in order; each layer but the first halves height and width.
_CHANNELS = (3, 32, 64, 128, 128)
_SIZE = 112
_CLASSES = 100


def sample_model() -> onnx.ModelProto:
    """A model of 155 M MACs: a few milliseconds on one core of most machines."""
    random = np.random.RandomState(0)
    nodes, weights = [], []

    def weight(name: str, *shape: int) -> str:
        scale = 1.0 / np.sqrt(np.prod(shape[1:]) or 1)
        values = (scale * random.standard_normal(shape)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, name))
        return name

    last = "image"
    for index, (before, after) in enumerate(pairwise(_CHANNELS)):
        stride = 1 if index == 0 else 2
        inputs = [last, weight(f"w{index}", after, before, 3, 3), weight(f"b{index}", after)]
        nodes.append(
            helper.make_node(
                "Conv",
                inputs,
                [f"conv{index}"],
                f"conv{index}",
                kernel_shape=[3, 3],
                pads=[1, 1, 1, 1],
                strides=[stride, stride],
            )
        )
        last = f"relu{index}"
        nodes.append(helper.make_node("Relu", [f"conv{index}"], [last], last))
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        helper.make_node(
            "Gemm",
            ["flat", weight("w_out", _CHANNELS[-1], _CLASSES), weight("b_out", _CLASSES)],
            ["classes"],
            "gemm",
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "sample",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, _SIZE, _SIZE])],
        [helper.make_tensor_value_info("classes", TensorProto.FLOAT, ["N", _CLASSES])],
        weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets)
