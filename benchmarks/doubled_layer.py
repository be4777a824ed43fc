"""A model whose heaviest layer runs twice, also where all layers lie in branches of an If."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper
from real_variants import PREFIX, copy_of, insert_nodes

LAYERS = frozenset({"Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul"})
# Other weights, or an engine would compute both from one.
_SCALE = 0.5


def double_layer(model: ModelProto) -> ModelProto | None:
    """The model with the layer of most weights in each graph computed twice, and both added.

    The second time it has other weights. None if no graph of the model has a layer with weights.
    """
    made = copy_of(model)
    count = sum(_double(graph, weights) for graph, weights in _graphs(made.graph, {}))
    return made if count else None


def _graphs(
    graph: GraphProto, outer: Mapping[str, TensorProto]
) -> Iterator[tuple[GraphProto, Mapping[str, TensorProto]]]:
    """Each graph of a model with the weights that its nodes can read."""
    weights = dict(outer) | {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            for each in node.attribute:
                if each.name == "value":
                    weights[node.output[0]] = each.t
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g, weights)
    yield graph, weights


def _double(graph: GraphProto, weights: Mapping[str, TensorProto]) -> bool:
    """Whether a layer of the graph runs twice now."""
    layers = [
        (len(numpy_helper.to_array(weights[name]).tobytes()), -index, name)
        for index, node in enumerate(graph.node)
        if node.op_type in LAYERS and not node.domain
        for name in node.input[1:2]
        if name in weights
    ]
    if not layers:
        return False
    _, place, name = max(layers)
    node = graph.node[-place]
    values = numpy_helper.to_array(weights[name])
    other = f"{PREFIX}weight_{name}"
    graph.initializer.append(numpy_helper.from_array((values * _SCALE).astype(values.dtype), other))
    again = copy_of(node)
    again.name = f"{PREFIX}again_{node.name or node.output[0]}"
    again.input[1] = other
    added = [again]
    for index, output in enumerate(node.output):
        if output:
            pair = [f"{PREFIX}once_{output}", f"{PREFIX}twice_{output}"]
            node.output[index], again.output[index] = pair
            added.append(helper.make_node("Add", pair, [output], f"{PREFIX}sum_{output}"))
    insert_nodes(graph, 1 - place, added, {})
    return True
