"""The batch axis of inputs that are the state of a recurrent operator, found from its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from pytest_modelperf.graph.stored_tensors import with_bodies

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
    sources: dict[str, list[str]] = {}
    states: list[str] = []
    # An exporter may put the whole model into an If.
    for node in with_bodies(graph.node):
        if node.op_type in _PASSES and node.input:
            for name in node.output:
                sources.setdefault(name, []).append(node.input[0])
        for attribute in node.attribute:
            if node.op_type == "If" and attribute.type == onnx.AttributeProto.GRAPH:
                for name, made in zip(node.output, attribute.g.output, strict=False):
                    sources.setdefault(name, []).append(made.name)
        if node.op_type in _STATES and not _has_batch_first(node):
            taken = _STATES[node.op_type]
            states += [node.input[place] for place in taken if place < len(node.input)]
    held = _origins(states, sources)
    return {
        info.name: _BATCH_AXIS
        for info in graph.input
        if info.name in held and len(info.type.tensor_type.shape.dim) == _RANK
    }


def _has_batch_first(node: onnx.NodeProto) -> bool:
    return any(each.name == "layout" and each.i == 1 for each in node.attribute)


def _origins(names: Sequence[str], sources: Mapping[str, Sequence[str]]) -> set[str]:
    """All tensors that these are taken from, step by step."""
    waiting, seen = list(names), set(names)
    while waiting:
        new = set(sources.get(waiting.pop(), ())) - seen
        seen |= new
        waiting += new
    return seen
