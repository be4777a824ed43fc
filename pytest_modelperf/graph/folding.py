"""Compute small constants that shapes depend on, with the same results as the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnx import GraphProto, NodeProto, ValueInfoProto

from pytest_modelperf.graph.convert import Call

if TYPE_CHECKING:
    from pytest_modelperf.graph.structure import Tensor, Value

# Larger values are not shapes.
MAX_ELEMENTS = 8192

# The operators of shape computations. They are cheap, and the size of a larger output is always
# known beforehand.
FOLDABLE = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Concat", "ConstantOfShape", "CumSum", "Div",
    "Equal", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not",
    "Or", "Pow", "Range", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round",
    "ScatterElements", "ScatterND", "Sign", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum",
    "Tile", "Transpose", "Unsqueeze", "Where", "Xor",
})  # fmt: skip


def fold(node: NodeProto, inputs: Sequence[Value | None], opset: int) -> Mapping[str, Value] | None:
    """The outputs of `node` on these inputs, by name; None if they cannot be computed."""
    # Imported late: most models need no folding, and this takes as long as onnx itself.
    import numpy as np
    from onnx.reference import ReferenceEvaluator

    feeds = {
        name: value
        for name, value in zip(node.input, inputs, strict=True)
        if name and value is not None
    }
    # The evaluator ignores the opset of a single node and takes the newest version of its operator.
    graph = GraphProto(
        node=[node],
        input=[ValueInfoProto(name=name) for name in feeds],
        output=[ValueInfoProto(name=name) for name in node.output if name],
    )
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(graph, opsets={"": opset}).run(None, feeds)
    except Exception:  # noqa: BLE001  # the evaluator raises anything; an unfolded value is unknown
        return None
    return {
        value.name: np.asarray(result) for value, result in zip(graph.output, results, strict=True)
    }


def shape_value(call: Call, tensor: Tensor | None) -> Value | None:
    """The result of Shape or Size for a tensor; None if too little of its shape is known."""
    import numpy as np

    if tensor is None or tensor.shape is None:
        return None
    shape = tensor.shape
    if call.op_type == "Shape":
        bounds: dict[str, Any] = {"start": 0, "end": len(shape), **call.attributes}
        shape = shape[bounds["start"] : bounds["end"]]
    if None in shape:
        return None
    return np.asarray(tensor.size if call.op_type == "Size" else shape, np.int64)
