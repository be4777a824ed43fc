"""Whether the nodes of a model multiply floats or integers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from onnx import NodeProto

from pytest_modelperf.graph.model_file import MAX_PROTO_BYTES, external_tensors, open_model
from pytest_modelperf.graph.multiplied import INTEGER, multiplied_operands
from pytest_modelperf.graph.stored_tensors import with_bodies

_STANDARD = ("", "ai.onnx")


class ProductCounts(Struct, frozen=True):
    """The nodes that multiply: how many take integers, and how many of each type take floats.

    A node takes integers if its weights are integers, or if its factors come from DequantizeLinear:
    an engine makes one kernel of both. `is_large`: the model should not be copied into one file.
    """

    opset: int
    of_integers: int
    of_floats: Mapping[str, int]
    is_large: bool


def read_products(path: Path) -> ProductCounts:
    """Count the products of the model at `path`, in bodies and functions too."""
    file = open_model(path)
    proto = file.proto
    floats: Counter[str] = Counter()
    integers = 0
    for scope in (proto.graph.node, *(function.node for function in proto.functions)):
        nodes = list(with_bodies(scope))
        producers = {name: node.op_type for node in nodes for name in node.output}
        for node in nodes:
            op = _qualified(node)
            operands = multiplied_operands(op, len(node.input))
            if op in INTEGER or (
                operands
                and all(
                    producers.get(node.input[i]) == "DequantizeLinear"
                    for i in operands
                    if node.input[i]
                )
            ):
                integers += 1
            elif operands:
                floats[op] += 1
    has_external = next(external_tensors(proto), None) is not None
    return ProductCounts(
        opset=max((e.version for e in proto.opset_import if e.domain in _STANDARD), default=0),
        of_integers=integers,
        of_floats=dict(floats.most_common()),
        is_large=has_external or file.size_bytes > MAX_PROTO_BYTES // 2,
    )


def _qualified(node: NodeProto) -> str:
    return node.op_type if node.domain in _STANDARD else f"{node.domain}::{node.op_type}"
