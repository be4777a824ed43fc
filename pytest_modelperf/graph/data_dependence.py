"""Whether the work of a graph depends on data, and which constants decide how long it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from pytest_modelperf.graph.convert import constant_tensor, unified_domain
from pytest_modelperf.graph.identities import is_float
from pytest_modelperf.graph.model_file import packed_bytes
from pytest_modelperf.graph.stored_tensors import bodies_of
from pytest_modelperf.graph.structure import Graph, Node, Tensor
from pytest_modelperf.graph.value_flow import (
    Constant,
    DataDependence,
    FlowGraph,
    FlowStep,
    ValueFlow,
)

# More elements than any setting has, for a constant of unknown shape.
_UNKNOWN = 1 << 40


def find_data_dependence(
    graph: Graph, *, after_run: bool = False, inputs_are_data: bool = False
) -> DataDependence | None:
    """Return the first operator whose work depends on data.

    `after_run` leaves out what the counts of a run show (see `ValueFlow.find_data`). Inputs of the
    model count as data only on request: two models of which an engine makes one plan are given the
    same.
    """
    return ValueFlow(_steps(graph), inputs_are_data=inputs_are_data).find_data(after_run=after_run)


def read_plan_flow(plan: ModelProto) -> ValueFlow:
    """Return the flow of values through the plan of an engine, which has no functions."""
    opsets = {unified_domain(str(each.domain)): each.version for each in plan.opset_import}
    return ValueFlow(_read_steps(plan.graph, opsets.get("")))


def find_settings(graph: GraphProto | FunctionProto, opset: int | None = None) -> frozenset[str]:
    """Return the names of the constants of a model's graph that decide how long it takes.

    Calls of functions are taken for operators whose time depends on shapes. Each function is a
    graph of its own.
    """
    return ValueFlow(_read_steps(graph, opset), knows_functions=True).settings


def find_model_settings(model: ModelProto) -> frozenset[str]:
    """Return the names of the settings of a model's graph and of its functions."""
    opsets = {unified_domain(str(each.domain)): each.version for each in model.opset_import}
    functions = (find_settings(each) for each in model.functions)
    return find_settings(model.graph, opsets.get("")).union(*functions)


# -- our graphs


def _steps(graph: Graph) -> FlowGraph:
    met = [*graph.outputs, *(each for node in graph.nodes for each in node.inputs)]
    constants = {
        each.name: _constant(each) for each in met if each is not None and each.is_constant
    }
    return FlowGraph(
        map(_step, graph.nodes), constants, _names(graph.inputs), _names(graph.outputs)
    )


def _step(node: Node) -> FlowStep:
    bodies = {name: _steps(body) for name, body in node.bodies.items()}
    inputs, outputs = _names(node.inputs), _names(node.outputs)
    return FlowStep(node.op_type, node.domain, inputs, outputs, bodies, node.opset or None)


def _names(tensors: Iterable[Tensor | None]) -> tuple[str, ...]:
    return tuple("" if tensor is None else tensor.name for tensor in tensors)


def _constant(tensor: Tensor) -> Constant:
    elements = tensor.size if tensor.has_known_shape else _UNKNOWN
    nbytes = _UNKNOWN if tensor.nbytes is None else tensor.nbytes
    return Constant(tensor.is_float or tensor.dtype is None, elements, nbytes)


# -- graphs of ONNX


def _read_steps(graph: GraphProto | FunctionProto, opset: int | None) -> FlowGraph:
    constants: dict[str, Constant] = {}
    if isinstance(graph, GraphProto):
        inputs = [str(value.name) for value in graph.input]
        outputs = [str(value.name) for value in graph.output]
        constants.update((str(each.name), _stored(each)) for each in graph.initializer)
        constants.update(
            (str(each.values.name), _stored(each)) for each in graph.sparse_initializer
        )
    else:
        inputs, outputs = [*map(str, graph.input)], [*map(str, graph.output)]
    running = []
    for node in graph.node:
        tensor = find_constant(node)
        if tensor is None:
            running.append(node)
        else:
            constants[str(node.output[0])] = _stored(tensor)
    return FlowGraph(_read_nodes(running, opset), constants, inputs, outputs)


def _read_nodes(nodes: Sequence[NodeProto], opset: int | None) -> Iterator[FlowStep]:
    for node in nodes:
        bodies = {
            f"{attribute.name}{number}": _read_steps(body, opset)
            for attribute in node.attribute
            for number, body in enumerate(bodies_of(attribute))
        }
        yield FlowStep(
            str(node.op_type),
            unified_domain(str(node.domain)),
            [*map(str, node.input)],
            [*map(str, node.output)],
            bodies,
            opset,
        )


def find_constant(node: NodeProto) -> TensorProto | SparseTensorProto | None:
    """Return the value of a node that is a stored constant; None for any other node."""
    is_constant = node.op_type == "Constant" and not unified_domain(str(node.domain))
    if not is_constant or len(node.attribute) != 1 or len(node.output) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.HasField("t"):
        return attribute.t
    if attribute.HasField("sparse_tensor"):
        return attribute.sparse_tensor
    return constant_tensor(attribute)


def _stored(tensor: TensorProto | SparseTensorProto) -> Constant:
    if isinstance(tensor, SparseTensorProto):
        elements = prod(tensor.dims)
        return Constant(is_float(tensor.values), elements, elements)
    return Constant(is_float(tensor), prod(tensor.dims), packed_bytes(tensor))
