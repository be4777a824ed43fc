"""The size of an attention head, where the inputs of a model leave it open and its nodes fix it."""

from __future__ import annotations

import onnx

_ATTENTION, _DOMAIN = "GroupQueryAttention", "com.microsoft"
# The places of the caches among the inputs of that operator.
_CACHES = (3, 4)


def head_sizes(graph: onnx.GraphProto) -> dict[str, int]:
    """The size of a head by the input that holds its keys or values.

    onnxruntime-genai names the last dimension of a cache instead of fixing it, so that one model
    serves quantized caches too. The width of what attention returns, divided by the heads, is the
    size of one head.
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
    """The last dimensions that the model declares for the tensors between its nodes."""
    shapes = {info.name: info.type.tensor_type.shape.dim for info in graph.value_info}
    return {name: dims[-1].dim_value for name, dims in shapes.items() if dims}
