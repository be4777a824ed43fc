"""ONNX models that are drafted node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array: TypeAlias = "npt.NDArray[Any]"
Shape: TypeAlias = "Sequence[int | str | None]"


class Draft:
    """The nodes and weights so far; `random` draws weights."""

    def __init__(self, seed: object = 0) -> None:
        self.random = np.random.default_rng(seed)  # type: ignore[arg-type]  # any seed of numpy
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def add(self, op: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:  # noqa: ANN401  # as make_node
        """Add a node; return the name of its output."""
        return self.add_all(op, inputs, 1, name, **attributes)[0]

    def add_all(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: int,
        name: str | None = None,
        **attributes: Any,  # noqa: ANN401  # the same
    ) -> list[str]:
        name = name or f"{op.lower()}{len(self.nodes)}"
        names = [f"{name}_output_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name, **attributes))
        return names

    def store(self, values: Array, name: str | None = None) -> str:
        """Add a weight; return its name."""
        name = name or f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def drawn(self, *shape: int, scale: float, name: str | None = None) -> str:
        """Add a weight of normal numbers."""
        return self.store((scale * self.random.standard_normal(shape)).astype(np.float32), name)

    def numbers(self, *values: int) -> str:
        """Add integers."""
        return self.store(np.array(values, np.int64))

    def model(
        self, last: str, shape: Shape, end: Shape | None = None, opset: int = 17
    ) -> ModelProto:
        """Return a model from a float input `x` to `last`, by default of the same shape."""
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
            for name, sizes in (("x", shape), (last, shape if end is None else end))
        ]
        graph = helper.make_graph(self.nodes, "graph", ends[:1], ends[1:], self.weights)
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_model(graph, ir_version=9, opset_imports=opsets)
