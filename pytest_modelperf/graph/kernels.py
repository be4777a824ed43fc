"""The plan of an engine, read from the ONNX file of its optimized graph."""

from __future__ import annotations

from pytest_modelperf.graph.convert import ParsedGraph, read_graph
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.stored_tensors import stored_names
from pytest_modelperf.graph.structure import PlanGraph, PlanNode


def read_plan(data: bytes) -> PlanGraph:
    """The plan in the bytes of an ONNX file; the data of its weights may be missing."""
    return _plan(read_graph(open_model(data).proto.graph, "the plan of the engine"))


def _plan(block: ParsedGraph) -> PlanGraph:
    constants = stored_names(block.proto)
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
