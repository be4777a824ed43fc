"""The names of one graph or body: their types, known values, and shapes through control flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from msgspec.structs import replace
from onnx import (
    AttributeProto,
    GraphProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
)

from pytest_modelperf.graph.convert import Call, ParsedGraph, read_type
from pytest_modelperf.graph.model_file import DATA_TYPES
from pytest_modelperf.graph.shape_rules import OutputType, common_shape, product
from pytest_modelperf.graph.structure import Node, Tensor, Value

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})

_UNNAMED = Tensor("")
# The inputs of a Loop body before the carried values: the iteration and the condition.
_LOOP_HEAD = (Tensor("", "int64", ()), Tensor("", "bool", ()))


def loop_inputs(node: Node, body: ParsedGraph) -> tuple[Tensor, ...]:
    """Return the types of the inputs of a Loop's body on its first trip."""
    iteration, condition = _LOOP_HEAD
    inputs = body.proto.input
    if inputs and len(inputs[0].type.tensor_type.shape.dim) == 1:
        iteration = replace(iteration, shape=(1,))
    return (iteration, condition, *(_from_outside(t) for t in node.inputs[2:]))


def stable_inputs(given: Sequence[Tensor], body: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return `given` with only the dimensions that a trip of `body` leaves unchanged."""
    carried = given[len(_LOOP_HEAD) :]
    after = body[1 : 1 + len(carried)]
    stable = [
        replace(before, shape=common_shape(before.shape, now.shape))
        for before, now in zip(carried, after, strict=False)
    ]
    return (*given[: len(_LOOP_HEAD)], *stable)


def scan_inputs(node: Node) -> tuple[tuple[Tensor, ...], int | None]:
    """Return the inputs of a Scan body, which lack the scanned axis, and how often it runs."""
    if node.opset == 8:
        return _scan_inputs_of_batches(node)
    count = node.attr_int("num_scan_inputs", 0)
    axes = node.attr_ints("scan_input_axes")
    first = len(node.inputs) - count
    given: list[Tensor] = []
    trips: int | None = None
    for index, tensor in enumerate(node.inputs):
        outside = _from_outside(tensor)
        if index < first or outside.shape is None:
            given.append(outside)
            continue
        axis = axes[index - first] if index - first < len(axes) else 0
        rank = len(outside.shape)
        if not -rank <= axis < rank:
            given.append(replace(outside, shape=None))
            continue
        trips = outside.shape[axis] if trips is None else trips
        rest = tuple(d for i, d in enumerate(outside.shape) if i != axis % rank)
        given.append(replace(outside, shape=rest))
    return tuple(given), trips


def _scan_inputs_of_batches(node: Node) -> tuple[tuple[Tensor, ...], int | None]:
    """Return the same for opset 8, whose body runs for each sequence of a batch on its own."""
    # The lengths of the sequences come first, and may be absent if all sequences are equally long.
    lengths, others = node.optional_input(0), node.inputs[1:]
    first = len(others) - node.attr_int("num_scan_inputs", 0)
    given: list[Tensor] = []
    trips: int | None = None
    for index, tensor in enumerate(others):
        outside = _from_outside(tensor)
        shape = outside.shape
        if shape is not None and index >= first and lengths is None:
            trips = product(*shape[:2])
        inside = None if shape is None else shape[1 if index < first else 2 :]
        given.append(replace(outside, shape=inside))
    return tuple(given), trips


def condition_stays(
    body: ParsedGraph,
    is_true: Callable[[TensorProto], bool],
    value_of: Callable[[str], Value | None],
) -> bool:
    """Whether a Loop's body returns its condition unchanged, or sets it to true.

    `is_true` reads a stored constant, `value_of` a value from outside of the body.
    """
    graph = body.proto
    if len(graph.input) < 2 or not graph.output:
        return False
    producers = {output: call for call in body.calls for output in call.outputs}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    name, seen = graph.output[0].name, set[str]()
    while name != graph.input[1].name:
        call = producers.get(name)
        if call is None or call.op_type == "Constant":
            constant = constants.get(name) if call is None else _constant_value(call)
            if constant is not None:
                return is_true(constant)
            # TorchScript repeats the condition that the loop begins with.
            is_outside = call is None and all(name != info.name for info in graph.input)
            value = value_of(name) if is_outside else None
            return value is not None and value.size == 1 and bool(value.reshape(-1)[0])
        if name in seen or call.op_type not in ("Identity", "Cast") or not call.inputs:
            return False
        seen.add(name)
        name = call.inputs[0]
    return True


def _constant_value(call: Call) -> TensorProto | None:
    tensors = [a.t for a in call.proto.attribute if a.type == AttributeProto.TENSOR]
    return tensors[0] if tensors else None


def output_types(node: Node) -> Sequence[OutputType | None]:
    """Return the outputs of a node with bodies, as far as they follow from the bodies' outputs."""
    bodies = tuple(node.bodies.values())
    if not bodies:
        return ()
    if node.op_type == "If":
        return _merged([body.outputs for body in bodies])
    outputs = bodies[0].outputs
    if node.op_type == "Loop":
        states = max(0, len(node.inputs) - 2)
        made = (stacked(tensor, node.trips, 0) for tensor in outputs[1 + states :])
        # Without a trip, the values that would be carried come out.
        last = map(_from_outside, node.inputs[2:]) if node.trips == 0 else outputs[1 : 1 + states]
        return [*map(_as_is, last), *made]
    # onnx infers the outputs of a Scan of opset 8, which have a batch.
    if node.op_type == "Scan" and node.opset != 8:
        states = len(node.inputs) - node.attr_int("num_scan_inputs", 0)
        axes = node.attr_ints("scan_output_axes")
        types = [_as_is(tensor) for tensor in outputs[:states]]
        for index, tensor in enumerate(outputs[states:]):
            types.append(stacked(tensor, node.trips, axes[index] if index < len(axes) else 0))
        return types
    return ()


def stacked(tensor: Tensor, trips: int | None, axis: int) -> OutputType:
    """Return the type of a stack of these tensors, one for each trip, along a new axis."""
    shape = tensor.shape
    if shape is None:
        return OutputType(tensor.dtype, None)
    place = axis % (len(shape) + 1)
    return OutputType(tensor.dtype, (*shape[:place], trips, *shape[place:]))


def _from_outside(tensor: Tensor | None) -> Tensor:
    return _UNNAMED if tensor is None else Tensor("", tensor.dtype, tensor.shape)


def _as_is(tensor: Tensor) -> OutputType:
    return OutputType(tensor.dtype, tensor.shape)


def _merged(branches: Sequence[Sequence[Tensor]]) -> list[OutputType | None]:
    types: list[OutputType | None] = []
    for first, *others in zip(*branches, strict=False):
        shape = reduce(common_shape, (other.shape for other in others), first.shape)
        types.append(OutputType(first.dtype, shape))
    return types


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
