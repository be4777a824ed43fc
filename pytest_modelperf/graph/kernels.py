"""The plan of an engine, read from the ONNX file of its optimized graph."""

from __future__ import annotations

from onnx import AttributeProto, GraphProto, NodeProto

from pytest_modelperf.graph.convert import ParsedGraph, read_graph
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.structure import PlanGraph, PlanNode
from pytest_modelperf.text.escaping import printable


def read_plan(data: bytes) -> PlanGraph:
    """The plan in the bytes of an ONNX file; the data of its weights may be missing."""
    file = open_model(data)
    return _plan(read_graph(file.proto.graph, "the plan of the engine"))


def _plan(block: ParsedGraph) -> PlanGraph:
    graph = block.proto
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {tensor.values.name for tensor in graph.sparse_initializer}
    nodes = []
    for call in block.calls:
        if call.op_type == "Constant" and not call.domain:
            constants.update(call.outputs)
            continue
        bodies = {name: _plan(body) for name, body in call.bodies.items()}
        nodes.append(
            PlanNode(call.proto.name, call.op_type, call.domain, call.inputs, call.outputs, bodies)
        )
    return PlanGraph(tuple(nodes), frozenset(constants))


def find_plan_difference(first: bytes, second: bytes) -> str | None:
    """The first difference of two plans: `step 17 is a Conv here and a FusedConv there`.

    None if both have the same kernels, in the same order, on tensors of the same types and shapes.
    Values of weights and the names that an engine gives to tensors may differ.
    """
    here, there = (_Steps(open_model(data).proto.graph) for data in (first, second))
    for number, (one, other) in enumerate(zip(here.graph.node, there.graph.node, strict=False), 1):
        if one.op_type != other.op_type:
            return f"step {number} is a {_op(one)} here and a {_op(other)} there"
        if here.describe(one) != there.describe(other):
            return f"step {number}, a {_op(one)}, works on other tensors or in another way"
    if len(here.graph.node) != len(there.graph.node):
        return f"there are {len(here.graph.node):,} steps here and {len(there.graph.node):,} there"
    return None


def _op(node: NodeProto) -> str:
    return printable(node.op_type)


class _Steps:
    """The steps of a plan; its tensors are numbered by their first appearance."""

    def __init__(self, graph: GraphProto, outer: _Steps | None = None) -> None:
        self.graph = graph
        self._outer = outer
        self._numbers: dict[str, int] = {}
        self._types: dict[str, bytes] = {
            value.name: value.type.SerializeToString(deterministic=True)
            for value in (*graph.input, *graph.output, *graph.value_info)
        }
        self._stored = {
            tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer
        }

    def describe(self, node: NodeProto) -> object:
        """A description of a step that is equal in another plan if the step is the same."""
        return (
            node.domain,
            tuple(map(self._describe_tensor, node.input)),
            tuple(map(self._describe_tensor, node.output)),
            sorted(map(self._describe_attribute, node.attribute), key=repr),
        )

    def _describe_tensor(self, name: str) -> object:
        if not name:
            return None
        if self._outer is not None and self._is_outside(name):
            return "outer", self._outer._describe_tensor(name)  # noqa: SLF001  # the same class
        number = self._numbers.setdefault(name, len(self._numbers))
        return number, self._stored.get(name), self._types.get(name)

    def _is_outside(self, name: str) -> bool:
        is_own = name in self._stored or name in self._types or name in self._numbers
        return not is_own and not any(name in node.output for node in self.graph.node)

    def _describe_attribute(self, attribute: AttributeProto) -> object:
        if not attribute.HasField("g"):
            return attribute.SerializeToString(deterministic=True)
        body = _Steps(attribute.g, self)
        return attribute.name, [(node.op_type, body.describe(node)) for node in attribute.g.node]
