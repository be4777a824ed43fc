"""Complete a model with the observations of a run, if the graph alone does not give its shapes.

Facts from the graph take precedence over the run: they hold for all inputs, and a profile must not
depend on whether there was a run. Differences are noted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.graph.copies import nodes_by_name
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.shape_rules import common_shape
from pytest_modelperf.graph.structure import (
    Graph,
    Node,
    NodePlace,
    Observation,
    SeenNode,
    Shape,
    is_open,
)
from pytest_modelperf.graph.validity import describe_node
from pytest_modelperf.text.units import format_shape

# With these operators, an output without a type is a sequence, an optional or a map.
_TYPED_DOMAINS = frozenset({"", "ai.onnx.ml"})
# The names that ONNX Runtime gives to the nodes of an unfolded operator.
_UNFOLDED = re.compile(r"_inlfunc_[A-Za-z0-9]+_(.+)", re.DOTALL)
# A note names at most this many differences.
_MAX_NOTES = 3


def needs_observation(graph: Graph) -> bool:
    """Whether a run can show more than the graph. Unused outputs need not be known."""
    taken = {tensor for node in graph.walk() for tensor in node.inputs if tensor is not None}
    for each in (graph, *(body for node in graph.walk() for body in node.bodies.values())):
        taken.update(each.outputs)
    return any(
        node.trips is None
        or (node.op_type == "If" and len(node.bodies) > 1)
        or any(
            is_open(tensor)
            for tensor in node.outputs
            if tensor is not None
            and tensor in taken
            and (tensor.dtype is not None or node.domain not in _TYPED_DOMAINS)
        )
        for node in graph.walk()
    )


def complete_model(bound: BoundModel, seen: Sequence[Mapping[str, Any]]) -> BoundModel:
    """Return the model with the observations of a run.

    `seen` has a `name` and `calls` for each node that ran, as `Engine.observe_shapes` returns them.
    The notes of the result state what comes from the run.
    """
    observation = read_observation(seen, nodes_by_name(bound), bound.graph)
    completed = bound.observed(observation)
    notes = (
        *_completions(bound.graph, completed.graph),
        *_contradictions(completed.graph, observation),
        *_changes(completed.graph, observation),
    )
    return replace(completed, notes=(*completed.notes, *notes))


def read_observation(
    seen: Sequence[Mapping[str, Any]], names: Mapping[str, Node], graph: Graph
) -> Observation:
    calls: dict[Node, list[Sequence[Sequence[int] | None]]] = {}
    for each in seen:
        node = _named(each["name"], names)
        if node is not None:
            calls.setdefault(node, []).extend(each["calls"])
    reader = _Reader(calls)
    reader.enter(graph, (), 1)
    return Observation(reader.nodes, reader.trips, reader.branches)


def _named(name: str, names: Mapping[str, Node]) -> Node | None:
    match = None if name in names else _UNFOLDED.fullmatch(name)
    return names.get(name) if match is None else _named(match[1], names)


class _Reader(Struct):
    calls: Mapping[Node, Sequence[Sequence[Sequence[int] | None]]]
    nodes: dict[NodePlace, SeenNode] = field(default_factory=dict)
    trips: dict[NodePlace, int] = field(default_factory=dict)
    branches: dict[NodePlace, str] = field(default_factory=dict)

    def enter(self, graph: Graph, around: NodePlace, runs: int) -> None:
        for node in graph.nodes:
            place = (*around, node.id)
            calls = self.calls.get(node, ())
            if calls:
                self.nodes[place] = _merged(node, calls)
            if not node.bodies:
                continue
            # A SequenceMap is unfolded into a Loop whose nodes do not have the names of the model.
            times = runs if node.op_type == "SequenceMap" else len(calls)
            self.read_bodies(node, place, times)
            for name, body in node.bodies.items():
                self.enter(body, (*place, name), self.runs(body) or 0)

    def read_bodies(self, node: Node, place: NodePlace, times: int) -> None:
        runs = {name: self.runs(body) for name, body in node.bodies.items()}
        if not times:
            return
        if node.op_type == "If":
            ran = [name for name, count in runs.items() if count]
            # If no branch was seen, the branch that ran has no nodes.
            ran = ran or [name for name, count in runs.items() if count is None][:1]
            if len(ran) == 1:
                self.branches[place] = ran[0]
            return
        (count,) = runs.values() if len(runs) == 1 else (None,)
        if count is None:
            # The body has no nodes to count, so the number does not matter.
            self.trips[place] = 1
        elif count == 0 and node.op_type == "SequenceMap":
            # Probably its nodes have other names, because an empty sequence is less likely.
            return
        elif count % times == 0:
            self.trips[place] = count // times

    def runs(self, body: Graph) -> int | None:
        counts = [len(self.calls.get(node, ())) for node in body.nodes]
        return max(counts, default=None)


def _merged(node: Node, calls: Sequence[Sequence[Sequence[int] | None]]) -> SeenNode:
    first, *others = [_aligned(node, shapes) for shapes in calls]
    merged = list(first)
    for shapes in others:
        merged = [common_shape(a, b) for a, b in zip(merged, shapes, strict=True)]
    varies = any(
        shape is not None and (common is None or None in common)
        for shape, common in zip(first, merged, strict=True)
    )
    return SeenNode(len(calls), tuple(merged), varies)


def _aligned(node: Node, shapes: Sequence[Sequence[int] | None]) -> list[Shape | None]:
    """Return a shape or None for each output. Engines omit absent outputs and non-tensors."""
    outputs = node.outputs
    present = [index for index, tensor in enumerate(outputs) if tensor is not None]
    typed = [index for index in present if outputs[index].dtype is not None]  # type: ignore[union-attr]  # present
    places = next(
        (p for p in (range(len(outputs)), present, typed) if len(p) == len(shapes)), range(0)
    )
    aligned: list[Shape | None] = [None] * len(outputs)
    for index, shape in zip(places, shapes, strict=False):
        aligned[index] = None if shape is None else tuple(map(int, shape))
    return aligned


def _completions(before: Graph, after: Graph) -> Iterator[str]:
    known = dict(_places(before))
    shapes = trips = branches = 0
    for place, node in _places(after):
        old = known.get(place)
        if old is None:
            continue
        shapes += any(map(is_open, old.outputs)) and not any(map(is_open, node.outputs))
        trips += old.trips is None and node.trips is not None
        branches += len(old.bodies) > len(node.bodies)
    parts = [
        what.format(number, "" if number == 1 else "s", "s" if number == 1 else "")
        for number, what in (
            (shapes, "the output shapes of {} layer{}"),
            (trips, "how often {} loop{} run{}"),
            (branches, "the branch of {} If{}"),
        )
        if number
    ]
    if parts:
        yield f"only a run can show {' and '.join(parts)}: other inputs may give other values"


def _contradictions(graph: Graph, observation: Observation) -> Iterator[str]:
    found = []
    for place, node in _places(graph):
        seen = observation.nodes.get(place)
        for tensor, shape in zip(node.outputs, () if seen is None else seen.outputs, strict=False):
            if tensor is not None and _differ(tensor.shape, shape):
                found.append(
                    f"a run saw the output shape {format_shape(shape)} of {describe_node(node)}, "
                    f"but the graph says {format_shape(tensor.shape)}: that is counted"
                )
    yield from found[:_MAX_NOTES]
    if len(found) > _MAX_NOTES:
        yield f"a run saw other shapes than the graph says at {len(found)} places"


def _differ(stated: Shape | None, seen: Shape | None) -> bool:
    if stated is None or seen is None:
        return False
    return len(stated) != len(seen) or any(
        a != b for a, b in zip(stated, seen, strict=True) if a is not None and b is not None
    )


def _changes(graph: Graph, observation: Observation) -> Iterator[str]:
    """Yield a note on each node whose work differs from call to call, so that no count fits all."""
    for place, node in _places(graph):
        seen = observation.nodes.get(place)
        if node.trips is None and seen is not None:
            inside = [(name, each.id) for name, body in node.bodies.items() for each in body.nodes]
            found = (observation.nodes.get((*place, *inner)) for inner in inside)
            runs = max((each.calls for each in found if each is not None), default=0)
            yield (
                f"{describe_node(node)} runs its body {runs} times in {seen.calls} calls, so not "
                "equally often each time"
            )
        if node.op_type == "If" and len(node.bodies) > 1 and seen is not None:
            yield f"{describe_node(node)} does not take the same branch each time"
        for name, body in node.bodies.items():
            varying = [
                inner
                for inner in body.nodes
                if (ran := observation.nodes.get((*place, name, inner.id))) and ran.varies
            ]
            if varying:
                yield (
                    f"in the body of {describe_node(node)} the shapes of {len(varying)} of "
                    f"{len(body.nodes)} layers change from trip to trip, first of "
                    f"{describe_node(varying[0])}: dependent counts are unknown"
                )


def _places(graph: Graph, around: NodePlace = ()) -> Iterator[tuple[NodePlace, Node]]:
    for node in graph.nodes:
        place = (*around, node.id)
        yield place, node
        for name, body in node.bodies.items():
            yield from _places(body, (*place, name))
