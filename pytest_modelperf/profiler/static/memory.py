"""The most memory that activations take at once, if each is freed after its last use.

The schedule is the order of the graph. Counted are the outputs of nodes: inputs belong to the
caller, weights are counted elsewhere. Views (Reshape and its like) share the storage of their
data; no other operator is assumed to work in place. A body adds its own peak at its node.
"""

from __future__ import annotations

from pytest_modelperf.graph.structure import Graph, Node, Tensor

# Operators whose output is their first input under another shape.
VIEWS = frozenset({"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


def used_outputs(graph: Graph) -> frozenset[Tensor]:
    """The tensors of a graph that a node, a body or the caller takes."""
    used = {t for node in graph.walk() for t in node.inputs if t is not None}
    used.update(graph.outputs)
    for node in graph.walk():
        for body in node.bodies.values():
            used.update(body.outputs)
    return frozenset(used)


def peak_activation_bytes(graph: Graph) -> int | None:
    """Peak of live activations; None where the size of one that is used is unknown."""
    used = used_outputs(graph)
    storage: dict[Tensor, Tensor] = {}
    last_use: dict[Tensor, int] = {}
    owned: dict[Tensor, int] = {}
    for index, node in enumerate(graph.nodes):
        for taken in _taken(node):
            last_use[storage.get(taken, taken)] = index
        for position, tensor in enumerate(node.outputs):
            if tensor is None or tensor not in used:
                continue
            source = node.inputs[0] if node.inputs else None
            if node.op_type in VIEWS and not node.domain and position == 0 and source is not None:
                storage[tensor] = storage.get(source, source)
                continue
            nbytes = tensor.nbytes
            if nbytes is None:
                return None
            owned[tensor] = nbytes
            last_use[tensor] = index
    for output in graph.outputs:
        last_use[storage.get(output, output)] = len(graph.nodes)
    return _peak(graph, owned, last_use)


def _peak(graph: Graph, owned: dict[Tensor, int], last_use: dict[Tensor, int]) -> int | None:
    freed: dict[int, int] = {}
    for tensor, nbytes in owned.items():
        index = last_use[tensor]
        freed[index] = freed.get(index, 0) + nbytes
    live = peak = 0
    for index, node in enumerate(graph.nodes):
        live += sum(owned.get(t, 0) for t in node.outputs if t is not None)
        inner = 0
        for body in node.bodies.values():
            body_peak = peak_activation_bytes(body)
            if body_peak is None:
                return None
            inner = max(inner, body_peak)
        peak = max(peak, live + inner)
        live -= freed.get(index, 0)
    return peak


def _taken(node: Node) -> list[Tensor]:
    """What a node reads, what its bodies read from outside included."""
    taken = [t for t in node.inputs if t is not None]
    for body in node.bodies.values():
        taken.extend(t for inner in body.walk() for t in inner.inputs if t is not None)
        taken.extend(body.outputs)
    return taken
