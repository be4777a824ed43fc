"""Small models for tests: written as ONNX text next to the assertion, loaded without ceremony."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.structure import Node, Shape
from tests.support.onnx_text import parse_model, tensor_of


def parse(
    graph: str, weights: Mapping[str, npt.NDArray[np.generic]] | None = None, *, opset: int = 18
) -> onnx.ModelProto:
    """The model of a graph in ONNX's text form, whose weights may be given as arrays."""
    header = f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1, "custom": 1]>'
    model = parse_model(f"{header} {graph}")
    for name, values in (weights or {}).items():
        model.graph.initializer.append(tensor_of(values, name))
    return model


def load(
    model: str | onnx.ModelProto, binding: Binding | None = None, *, opset: int = 18
) -> BoundModel:
    proto = parse(model, opset=opset) if isinstance(model, str) else model
    return load_model(open_model(proto), binding)


def save_model(folder: Path, model: onnx.ModelProto, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def shapes(model: BoundModel, *names: str) -> list[Shape | None]:
    return [model.tensors[name].shape for name in names]


def op_types(nodes: Sequence[Node]) -> list[str]:
    return [node.op_type for node in nodes]


def node_of(model: BoundModel, op_type: str) -> Node:
    """Return the one node of its type, in any body."""
    (node,) = (n for n in model.graph.walk() if n.op_type == op_type)
    return node


def zeros(*shape: int) -> npt.NDArray[np.float32]:
    return np.zeros(shape, np.float32)


def random_floats(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
