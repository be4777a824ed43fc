"""Count the bytes that a node reads and writes in memory.

Each tensor counts once. A kernel that runs this node alone has to move at least that many bytes. A
view moves nothing, a lookup of rows in a table reads no more than it writes, and a mixture of
experts reads only the experts that its tokens need.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from msgspec import Struct, field

from pytest_modelperf.graph.shape_arithmetic import dim, total
from pytest_modelperf.graph.structure import Node, Tensor, Weight
from pytest_modelperf.profiler.counting.memory import is_view

# These read only the part of their input that they return, even if the input is larger.
_LOOKUPS = frozenset(
    {
        "Compress",
        "Gather",
        "GatherElements",
        "GatherND",
        "Slice",
        "com.microsoft::EmbedLayerNormalization",
        "com.microsoft::GatherBlockQuantized",
        "com.microsoft::GatherND",
        "com.microsoft::GatherPacked",
        "com.microsoft::QEmbedLayerNormalization",
        "com.microsoft::TorchEmbedding",
    }
)
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
        writes = {
            tensor.name: _times(tensor.nbytes, repeats)
            for tensor in node.outputs
            if tensor is not None and tensor in self.used
        }
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
                reads[source.name] = _times(source.nbytes, repeats)
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


def _times(nbytes: int | None, repeats: int) -> int | None:
    return None if nbytes is None else repeats * nbytes


def _least(nbytes: int | None, most: int | None) -> int | None:
    known = [value for value in (nbytes, most) if value is not None]
    return min(known, default=None)
