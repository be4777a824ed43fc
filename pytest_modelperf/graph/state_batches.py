"""The batch axis of inputs that are the state of a recurrent operator, found from its nodes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

# The places of the states among the inputs of an operator; their shape is
# [directions, batch, size].
_STATES = {"GRU": (5,), "LSTM": (5, 6), "RNN": (5,)}
_RANK, _BATCH_AXIS = 3, 1
# These take some layers of a state, or give it another form, without touching its batch.
_PASSES = frozenset({"Cast", "Gather", "Identity", "Slice", "Split", "Squeeze", "Unsqueeze"})


def state_batches(graph: onnx.GraphProto) -> dict[str, int]:
    """The axis of the batch by the input that holds a recurrent state of [layers, batch, size].

    Such an input often leaves its batch without a name, or fixes it, while the data names it.
    """
    sources: dict[str, str] = {}
    states: set[str] = set()
    for node in _walk(graph):
        if node.op_type in _PASSES and node.input:
            sources.update(dict.fromkeys(node.output, node.input[0]))
        if node.op_type in _STATES and not _has_batch_first(node):
            taken = _STATES[node.op_type]
            states |= {node.input[place] for place in taken if place < len(node.input)}
    held = {_origin(name, sources) for name in states if name}
    return {
        info.name: _BATCH_AXIS
        for info in graph.input
        if info.name in held and len(info.type.tensor_type.shape.dim) == _RANK
    }


def _walk(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those of bodies included: an exporter may put the whole model into an If."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _walk(attribute.g)


def _has_batch_first(node: onnx.NodeProto) -> bool:
    return any(each.name == "layout" and each.i == 1 for each in node.attribute)


def _origin(name: str, sources: dict[str, str]) -> str:
    """The tensor that a state was taken from; names of a cycle end where they began."""
    seen = set()
    while name in sources and name not in seen:
        seen.add(name)
        name = sources[name]
    return name
