"""The names of one graph or body, their types, and the values that follow from constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto, helper

from pytest_modelperf.graph.convert import Call, read_type
from pytest_modelperf.graph.model_file import DATA_TYPES
from pytest_modelperf.graph.shape_rule import OutputType
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
    """Compute the outputs of `node` on these inputs, by name, or return None if that fails."""
    # Most models need no folding, and this import takes as long as that of onnx.
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
    """Return the result of Shape or Size for a tensor, or None if it needs an unknown dimension."""
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


# -- the names of one graph or body


# The longest chain of constants that is followed. Shape computations have a few dozen nodes.
MAX_FOLD_DEPTH = 100


class Scope:
    """One graph while it is read. Tensors are added in execution order."""

    def __init__(
        self, outer: Scope | None, path: str, opset: int, place: tuple[str, ...] = ()
    ) -> None:
        self.outer = outer
        self.path = path
        # Unlike the path, the place is made of ids, which are unique in a graph.
        self.place = place
        self.opset = opset
        self.tensors: dict[str, Tensor] = {}
        # The types from onnx's inference, including sequences and optionals.
        self.types: dict[str, TypeProto] = {}
        # The types that the model declares, used only if nothing better is known.
        self.declared: Mapping[str, TypeProto] = {}
        # Many tensors share a type, and comparing bytes is faster than reading fields.
        self.types_read: dict[bytes, OutputType] = {} if outer is None else outer.types_read
        self.producers: dict[str, Call] = {}
        # Values of inputs that the user gave: known, but not constant.
        self.given: dict[str, Value] = {}
        self._values: dict[str, Value | None] = {}

    def find(self, name: str) -> Tensor | None:
        tensor = self.tensors.get(name)
        return self.outer.find(name) if tensor is None and self.outer is not None else tensor

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def type_of(self, name: str) -> TypeProto | None:
        tensor = self.tensors.get(name)
        if tensor is not None and tensor.dtype is not None and tensor.dtype in DATA_TYPES:
            return helper.make_tensor_type_proto(DATA_TYPES[tensor.dtype], tensor.shape)
        if name in self.types or self.outer is None:
            return self.types.get(name)
        return self.outer.type_of(name)

    def inferred(self, name: str) -> Tensor:
        """Return a tensor with the type that inference over the whole graph found."""
        kind = self.types.get(name)
        if kind is None:
            return Tensor(name)
        key = kind.SerializeToString()
        known = self.types_read.get(key)
        if known is None:
            known = self.types_read[key] = read_type(kind)
        return Tensor(name, known.dtype, known.shape)

    def is_no_tensor(self, name: str) -> bool:
        """Whether a value is known to be a sequence, an optional or a map."""
        kind = self.types.get(name)
        return kind is not None and kind.WhichOneof("value") not in (None, "tensor_type")

    def value_of(self, name: str, depth: int = 0) -> Value | None:
        """Return the value of a small tensor, if it follows from constants and known shapes."""
        tensor = self.tensors.get(name)
        if tensor is None:
            return None if self.outer is None else self.outer.value_of(name, depth)
        known = tensor.value if tensor.value is not None else self.given.get(name)
        if known is not None:
            return known
        if name not in self._values:
            # Set this before computing, so that a cycle of names ends.
            self._values[name] = None
            if depth < MAX_FOLD_DEPTH:
                self._values[name] = self._compute_value(tensor, depth)
        return self._values[name]

    def _compute_value(self, tensor: Tensor, depth: int) -> Value | None:
        call = self.producers.get(tensor.name)
        if call is None or call.domain:
            return None
        if call.op_type in ("Shape", "Size"):
            return shape_value(call, self.find(call.inputs[0]) if call.inputs else None)
        if call.op_type not in FOLDABLE or not tensor.is_complete or tensor.size > MAX_ELEMENTS:
            return None
        values = [self.value_of(name, depth + 1) if name else None for name in call.inputs]
        if any(v is None and n for v, n in zip(values, call.inputs, strict=True)):
            return None
        folded = fold(call.proto, values, self.opset)
        return None if folded is None else folded.get(tensor.name)
