"""Shapes of control flow: inputs of bodies, trip counts, stacked and merged outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from msgspec.structs import replace
from onnx import AttributeProto, TensorProto

from pytest_modelperf.graph.convert import Call, ParsedGraph
from pytest_modelperf.graph.shape_arithmetic import common_shape, product
from pytest_modelperf.graph.shape_rule import OutputType
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
