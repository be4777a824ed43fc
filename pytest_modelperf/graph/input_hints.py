"""Complete the shapes of inputs from the nodes that use them.

This gives the batch axis of a recurrent operator's state, and the size of an attention head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from pytest_modelperf.graph.stored_tensors import with_bodies

# The places of the states among the inputs of an operator; their shape is
# [directions, batch, size].
_STATES = {"GRU": (5,), "LSTM": (5, 6), "RNN": (5,)}
_RANK, _BATCH_AXIS = 3, 1
# These select some layers of a state, or reshape it, and keep its batch.
_PASSES = frozenset({"Cast", "Gather", "Identity", "Slice", "Split", "Squeeze", "Unsqueeze"})

_ATTENTION, _DOMAIN = "GroupQueryAttention", "com.microsoft"
# The places of the caches among the inputs of that operator.
_CACHES = (3, 4)


def state_batches(graph: onnx.GraphProto) -> dict[str, int]:
    """Map each input that holds a recurrent state of [layers, batch, size] to its batch axis.

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
    waiting, seen = list(names), set(names)
    while waiting:
        new = set(sources.get(waiting.pop(), ())) - seen
        seen |= new
        waiting += new
    return seen


def head_sizes(graph: onnx.GraphProto) -> dict[str, int]:
    """Map each input that holds keys or values to the size of a head.

    onnxruntime-genai names the last dimension of a cache instead of fixing it, so that one model
    also serves quantized caches. The width of the result of attention, divided by the number of
    heads, is the size of one head.
    """
    widths: dict[str, int] | None = None
    sizes: dict[str, int] = {}
    for node in graph.node:
        if node.op_type != _ATTENTION or node.domain != _DOMAIN:
            continue
        widths = _widths(graph) if widths is None else widths
        heads = next((each.i for each in node.attribute if each.name == "num_heads"), 0)
        width = widths.get(node.output[0], 0) if node.output else 0
        if heads > 0 and width > 0 and width % heads == 0:
            caches = (node.input[place] for place in _CACHES if place < len(node.input))
            sizes |= dict.fromkeys(filter(None, caches), width // heads)
    return sizes


def _widths(graph: onnx.GraphProto) -> dict[str, int]:
    shapes = {info.name: info.type.tensor_type.shape.dim for info in graph.value_info}
    return {name: dims[-1].dim_value for name, dims in shapes.items() if dims}
