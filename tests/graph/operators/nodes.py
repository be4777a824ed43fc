"""Nodes built from shapes alone, for the tests of counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.reference
from onnx import helper

from pytest_modelperf.graph.operators.cost import Cost
from pytest_modelperf.graph.operators.registry import OPERATORS
from pytest_modelperf.graph.structure import Attribute, Node, Shape, Tensor


def node(
    op: str,
    inputs: Sequence[Shape | Tensor | None],
    outputs: Sequence[Shape | Tensor | None],
    dtype: str = "float32",
    opset: int = 21,
    **attributes: Attribute,
) -> Node:
    """One call of `op`, written as `Op` or `domain::Op`; a shape means a tensor of `dtype`.

    None is an input or output that is left out; `unknown("x")` is one without a shape.
    """
    domain, _, op_type = op.rpartition("::")
    return Node(
        name=f"{op_type}_0",
        op_type=op_type,
        domain=domain,
        inputs=tuple(_tensor(f"in{i}", shape, dtype) for i, shape in enumerate(inputs)),
        outputs=tuple(_tensor(f"out{i}", shape, dtype) for i, shape in enumerate(outputs)),
        attributes=attributes,
        opset=opset,
    )


def unknown(name: str = "unknown") -> Tensor:
    """A tensor that is given, of an unknown shape."""
    return Tensor(name)


def cost(call: Node) -> Cost:
    """The cost of a call by the counter of its operator."""
    count = OPERATORS[call.qualified_op].count
    assert count is not None
    return count(call)


def ops(call: Node) -> int:
    """The elementwise operations of a call without contractions."""
    found = cost(call)
    assert found.contractions == ()
    return found.elementwise_ops


def reference(
    op: str,
    inputs: Sequence[npt.NDArray[Any] | None],
    outputs: int = 1,
    *,
    opset: int = 21,
    **attributes: Any,  # noqa: ANN401  # as onnx takes them
) -> npt.NDArray[Any]:
    """The last output of a call as the reference evaluator of onnx runs it."""
    feeds = {f"i{k}": array for k, array in enumerate(inputs) if array is not None}
    names = ["" if array is None else f"i{k}" for k, array in enumerate(inputs)]
    results = [f"o{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, **attributes)],
        "g",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info(results[-1], onnx.TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    (made,) = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    return np.asarray(made)


def _tensor(name: str, shape: Shape | Tensor | None, dtype: str) -> Tensor | None:
    return Tensor(name, dtype, shape) if isinstance(shape, tuple) else shape
