"""Find the peak memory of activations, and count the bytes that each node reads and writes.

For the peak, each activation is freed after its last use, and nodes run in the order of the graph.
Only the outputs of nodes count: inputs belong to the caller, and weights are counted elsewhere.
Views such as Reshape share the storage of their input, and no other operator is assumed to work in
place. A node with bodies adds the peak of its largest body.

In the traffic of a node, each tensor counts once. A kernel that runs this node alone has to move at
least that many bytes. A view moves nothing, a lookup of rows in a table reads no more than it
writes, and a mixture of experts reads only the experts that its tokens need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from msgspec import Struct, field

from pytest_modelperf.graph.shape_rules import dim, product, total
from pytest_modelperf.graph.structure import Graph, Node, Tensor, Weight

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


# These read only the part of their input that they return, even if the input is larger.
_LOOKUPS = frozenset({
    "Compress", "Gather", "GatherElements", "GatherND", "Slice",
    "com.microsoft::EmbedLayerNormalization", "com.microsoft::QEmbedLayerNormalization",
    "com.microsoft::GatherBlockQuantized", "com.microsoft::GatherND",
    "com.microsoft::GatherPacked", "com.microsoft::TorchEmbedding",
})  # fmt: skip
# Their weights are divided into experts, and each token uses `k` of them.
_EXPERTS = frozenset({"com.microsoft::MoE", "com.microsoft::MoEPacked", "com.microsoft::QMoE"})
# These read only the shape of their input, not its elements.
_SHAPES_ONLY = frozenset({"ConstantOfShape", "EyeLike", "Shape", "Size"})


class Traffic(Struct, frozen=True):
    """The bytes that a node reads and writes, by the names of tensors and weights, if known."""

    reads: Mapping[str, int | None]
    writes: Mapping[str, int | None]


_NOTHING = Traffic({}, {})


class TrafficCounter(Struct):
    """A counter of the traffic of nodes, which gets them in execution order.

    The order makes the origin of each view known. `weights` are the weights that hold parameters,
    and `used` are the tensors that a node, a body or the caller reads.
    """

    weights: Mapping[str, Weight]
    used: frozenset[Tensor]
    _viewed: dict[Tensor, Tensor] = field(default_factory=dict)

    def count(self, node: Node, repeats: int) -> Traffic:
        """Return the bytes of all `repeats` of a node."""
        if node.bodies:
            # The nodes of its bodies are counted on their own.
            return _NOTHING
        if is_view(node):
            self._note_view(node)
            return _NOTHING
        outputs = [t for t in node.outputs if t is not None and t in self.used]
        writes = {tensor.name: product(tensor.nbytes, repeats) for tensor in outputs}
        if node.qualified_op in _SHAPES_ONLY:
            return Traffic({}, writes)
        reads = self._reads(node, repeats)
        if node.qualified_op in _LOOKUPS:
            most = total(*writes.values())
            reads = {name: _least(nbytes, most) for name, nbytes in reads.items()}
        if node.qualified_op in _EXPERTS:
            used, experts = _used_experts(node)
            stored = {name: nbytes for name, nbytes in reads.items() if name in self.weights}
            reads |= {name: nbytes * used // experts for name, nbytes in stored.items() if nbytes}
        return Traffic(reads, writes)

    def _reads(self, node: Node, repeats: int) -> dict[str, int | None]:
        reads: dict[str, int | None] = {}
        for tensor in node.inputs:
            if tensor is None:
                continue
            for name in tensor.weights:
                if name in self.weights:
                    reads[name] = repeats * self.weights[name].nbytes
            if not tensor.is_constant:
                source = self._viewed.get(tensor, tensor)
                reads[source.name] = product(source.nbytes, repeats)
        return reads

    def _note_view(self, node: Node) -> None:
        source = node.optional_input(0)
        output = node.outputs[0] if node.outputs else None
        if source is not None and output is not None and not source.is_constant:
            self._viewed[output] = self._viewed.get(source, source)


def _used_experts(node: Node) -> tuple[int, int]:
    """Return how many experts are read, at most `k` for each token, and how many there are."""
    x, weight = node.optional_input(0), node.optional_input(2)
    experts = None if weight is None else dim(weight.shape, 0)
    if x is None or not x.is_complete or experts is None:
        return 1, 1
    passes = prod(x.dims[:-1]) * node.attr_int("k", 1)
    return min(passes, experts), max(experts, 1)


def _least(nbytes: int | None, most: int | None) -> int | None:
    known = [value for value in (nbytes, most) if value is not None]
    return min(known, default=None)
