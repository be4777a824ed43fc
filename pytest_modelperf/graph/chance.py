"""Whether random values decide how much a graph computes. Then two runs may differ."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.graph.structure import Graph, Node, Tensor, is_open

# Operators whose result differs from run to run.
RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
})  # fmt: skip
# The values of their inputs decide how large their outputs are.
_SIZED_BY_VALUES = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})


def find_chance(graph: Graph) -> str | None:
    """The operator whose random values decide a shape, a branch or a trip count: `RandomUniform`.

    None if there is none. Values computed from random values count as random.
    """
    return _find(graph, {})


def find_random(graph: Graph) -> frozenset[str]:
    """The names of all tensors that are computed from random values, by the outer graph."""
    random: dict[str, str] = {}
    for node in graph.nodes:
        nodes = [node, *(inner for body in node.bodies.values() for inner in body.walk())]
        source = _source([tensor for each in nodes for tensor in each.inputs], random)
        if any(each.op_type in RANDOM for each in nodes):
            source = node.op_type
        if source is not None:
            random.update((t.name, source) for t in node.outputs if t is not None)
    return frozenset(random)


def _find(graph: Graph, random: dict[str, str]) -> str | None:
    """Like `find_chance`; `random` maps each random tensor found so far to its source."""
    for node in graph.nodes:
        source = _source(node.inputs, random)
        if node.op_type in RANDOM:
            source = node.op_type
        decided = _deciding_source(node, random)
        if decided is not None:
            return decided
        for body in node.bodies.values():
            if source is not None:
                random.update((tensor.name, source) for tensor in body.inputs)
            found = _find(body, random)
            if found is not None:
                return found
            source = source or _source(body.outputs, random)
            # The first output of the body of a Loop says whether there is another trip.
            ends = _source(body.outputs[:1], random) if node.op_type == "Loop" else None
            if ends is not None:
                return ends
        if source is not None:
            random.update((t.name, source) for t in node.outputs if t is not None)
    return None


def _deciding_source(node: Node, random: dict[str, str]) -> str | None:
    """The operator whose random values decide how much this node computes; None if none do."""
    if node.op_type == "If":
        return _source(node.inputs[:1], random) if len(node.bodies) > 1 else None
    if node.op_type == "Loop":
        return _source(node.inputs[:2], random)
    is_origin = any(map(is_open, node.outputs)) and not any(map(is_open, node.inputs))
    if is_origin or node.op_type in _SIZED_BY_VALUES:
        return _source(node.inputs, random)
    return None


def _source(tensors: Sequence[Tensor | None], random: dict[str, str]) -> str | None:
    return next((random[t.name] for t in tensors if t is not None and t.name in random), None)
