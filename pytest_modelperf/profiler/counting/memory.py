"""Find the peak memory of activations if each is freed after its last use.

Nodes run in the order of the graph. Only the outputs of nodes count: inputs belong to the caller,
and weights are counted elsewhere. Views such as Reshape share the storage of their input, and no
other operator is assumed to work in place. A node with bodies adds the peak of its largest body.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.graph.structure import Graph, Node, Tensor

# Operators that return their first input unchanged, possibly in another shape.
_VIEWS = frozenset({"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


def is_view(node: Node) -> bool:
    """Whether the first output shares the storage of the first input."""
    if node.op_type not in _VIEWS or node.domain:
        return False
    training = node.optional_input(2) if node.op_type == "Dropout" else None
    return training is None or training.value is None or not training.value.all()


def used_outputs(graph: Graph) -> frozenset[Tensor]:
    """Return the tensors that a node, a body or the caller uses, including those inside bodies."""
    used: set[Tensor | None] = set(graph.outputs)
    for node in graph.walk():
        used.update(node.inputs)
        for body in node.bodies.values():
            used.update(body.outputs)
    return frozenset(tensor for tensor in used if tensor is not None)


def peak_activation_bytes(graph: Graph, used: frozenset[Tensor]) -> int | None:
    """Return the peak of live activations, or None if the size of a `used` one is unknown."""
    storage: dict[Tensor, Tensor] = {}
    last_use: dict[Tensor, int] = {}
    owned: dict[Tensor, int] = {}
    made: list[int] = []
    for index, node in enumerate(graph.nodes):
        for taken in node.inputs if not node.bodies else _taken(node):
            if taken is not None:
                last_use[storage.get(taken, taken)] = index
        own = _storage_of_outputs(node, used, storage)
        if own is None:
            return None
        owned.update(own)
        last_use.update(dict.fromkeys(own, index))
        made.append(sum(own.values()))
    for output in graph.outputs:
        last_use[storage.get(output, output)] = len(graph.nodes)
    freed = [0] * (len(graph.nodes) + 1)
    for tensor, nbytes in owned.items():
        freed[last_use[tensor]] += nbytes
    return _peak(graph, made, freed, used)


def _storage_of_outputs(
    node: Node, used: frozenset[Tensor], storage: dict[Tensor, Tensor]
) -> dict[Tensor, int] | None:
    """Return the bytes of the outputs with storage of their own, and enter views into `storage`."""
    own: dict[Tensor, int] = {}
    viewed = node.optional_input(0) if is_view(node) else None
    for index, tensor in enumerate(node.outputs):
        if tensor is None or tensor not in used:
            continue
        if index == 0 and viewed is not None:
            storage[tensor] = storage.get(viewed, viewed)
            continue
        nbytes = tensor.nbytes
        if nbytes is None:
            return None
        own[tensor] = nbytes
    return own


def _peak(
    graph: Graph, made: Sequence[int], freed: Sequence[int], used: frozenset[Tensor]
) -> int | None:
    live = peak = 0
    for index, node in enumerate(graph.nodes):
        live += made[index]
        inner = _peak_of_bodies(node, used) if node.bodies else 0
        if inner is None:
            return None
        peak = max(peak, live + inner)
        live -= freed[index]
    return peak


def _peak_of_bodies(node: Node, used: frozenset[Tensor]) -> int | None:
    peaks = [peak_activation_bytes(body, used) for body in node.bodies.values()]
    known = [peak for peak in peaks if peak is not None]
    return max(known, default=0) if len(known) == len(peaks) else None


def _taken(node: Node) -> list[Tensor | None]:
    taken = list(node.inputs)
    for body in node.bodies.values():
        taken.extend(tensor for inner in body.walk() for tensor in inner.inputs)
        taken.extend(body.outputs)
    return taken
