"""Whether the work of a graph depends on the values that run through it."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.structure import Graph, Node, Tensor

# Values decide how much these compute, or how long it takes.
_BY_VALUE = frozenset(
    {"Compress", "If", "Loop", "NonMaxSuppression", "NonZero", "Scan", "TopK", "Unique"}
)
# These read memory in the order of their second input.
_BY_INDEX = frozenset({"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"})
# These return the shape of their input, which does not depend on its values.
_OF_SHAPE = frozenset({"Shape", "Size"})


def find_data_dependence(graph: Graph) -> str | None:
    """The operator whose work depends on data: `TopK`.

    None if there is none. An index that is an input of the model, a constant, or computed from
    shapes is not data: it is the same in two models that differ only in their weights.
    """
    producers = {tensor.name: node for node in graph.nodes for tensor in node.outputs if tensor}
    for node in graph.nodes:
        if node.op_type in _BY_VALUE:
            return node.op_type
        index = node.optional_input(1) if node.op_type in _BY_INDEX else None
        if index is not None and _follows_from_floats(index, producers):
            return node.op_type
        for body in node.bodies.values():
            found = find_data_dependence(body)
            if found is not None:
                return found
    return None


def _follows_from_floats(index: Tensor, producers: Mapping[str, Node]) -> bool:
    """Whether an index is computed from floats."""
    seen: set[str] = set()
    waiting = [index]
    while waiting:
        tensor = waiting.pop()
        node = producers.get(tensor.name)
        if node is None or tensor.name in seen:
            continue
        if tensor.is_float:
            return True
        seen.add(tensor.name)
        if node.op_type not in _OF_SHAPE:
            waiting += [each for each in node.inputs if each is not None]
    return False
