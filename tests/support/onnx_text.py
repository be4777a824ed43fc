"""ONNX text and tensors as the newest onnx makes them, under each onnx that we support."""

from __future__ import annotations

import re
from typing import Any

import numpy.typing as npt
import onnx
from onnx import TensorProto, numpy_helper, parser

from pytest_modelperf.graph.stored_tensors import walk_nodes
from pytest_modelperf.graph.weights.numbers import ML_TYPES, NumberType, codes_of

INSTALLED = tuple(map(int, onnx.__version__.split(".")[:2]))

# `[name] output, other =`, which is a node with a name.
_NAMED = re.compile(r"\[([A-Za-z_]\w*)\]\s*(\w+)(?=(?:\s*,\s*\w*)*\s*=)")
_MARK = "__of_node__"


def parse_model(text: str) -> onnx.ModelProto:
    """The model of a text; before onnx 1.18 its parser knows no names of nodes."""
    if INSTALLED >= (1, 18):
        return parser.parse_model(text)
    model = parser.parse_model(_NAMED.sub(rf"\2{_MARK}\1", text))
    for node in walk_nodes(model):
        if node.output:
            node.output[0], _, node.name = node.output[0].partition(_MARK)
    return model


def tensor_of(values: npt.NDArray[Any], name: str = "") -> TensorProto:
    """A tensor of an array; before onnx 1.19 it takes none of the types of ml_dtypes."""
    known = next((each for each, dtype in ML_TYPES.items() if values.dtype == dtype), None)
    if known is None:
        return numpy_helper.from_array(values, name)
    number = NumberType(known)
    return TensorProto(
        name=name,
        data_type=TensorProto.DataType.Value(known.upper()),
        dims=values.shape,
        raw_data=number.pack(codes_of(values, number)),
    )
