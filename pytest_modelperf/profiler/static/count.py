"""From a graph and a table of counters to its static profile, a row for each node that runs.

Rules that hold for all operators:

* A node without a counter, or whose shapes only a run can tell, is listed as uncounted.
* The body of a Loop or Scan counts once per trip; with an unknown trip count it counts once and
  the loop is listed as uncounted. Of an If with an unknown condition the costlier branch counts.
* Backward MACs: each contraction costs its MACs once more for each operand that needs a gradient.
  Float parameters need one, and so does what is computed from something that does. So the input
  of the model needs none, and a first layer costs only its weights' gradient.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pytest_modelperf.errors import ExtensionError
from pytest_modelperf.graph.structure import (
    Graph,
    Node,
    Tensor,
    UnknownShapeError,
    Weight,
)
from pytest_modelperf.profiler.static.cost import FREE, Cost, Counter
from pytest_modelperf.profiler.static.counters import CONTROL_FLOW, STANDARD_COUNTERS, UNTELLABLE
from pytest_modelperf.profiler.static.memory import peak_activation_bytes, used_outputs
from pytest_modelperf.records import StaticLayer, StaticProfile, Uncounted
from pytest_modelperf.units import printable


def profile_graph(graph: Graph, extra: Mapping[str, Counter] | None = None) -> StaticProfile:
    """The static profile of a graph; `extra` counters go before the built-in ones."""
    walk = _Walk(graph.weights, extra or {})
    walk.enter(graph, repeats=1)
    return StaticProfile(
        layers=tuple(walk.layers),
        params=sum(weight.params for weight in graph.weights.values()),
        weight_bytes=sum(w.nbytes for w in graph.weights.values() if w.params),
        peak_activation_bytes=peak_activation_bytes(graph),
        uncounted=tuple(
            Uncounted(op_type, domain, count, reason)
            for (op_type, domain, reason), count in walk.uncounted.items()
        ),
        notes=tuple(walk.notes),
    )


@dataclass(slots=True)
class _Walk:
    """One pass over a graph and its bodies in execution order."""

    weights: Mapping[str, Weight]
    extra: Mapping[str, Counter]
    layers: list[StaticLayer] = field(default_factory=list)
    uncounted: Multiset[tuple[str, str, str]] = field(default_factory=Multiset)
    notes: list[str] = field(default_factory=list)
    with_gradient: set[Tensor] = field(default_factory=set)

    def enter(self, graph: Graph, repeats: int) -> None:
        used = used_outputs(graph)
        for node in graph.nodes:
            cost = self.cost(node)
            self.layers.append(self.layer(node, cost, repeats, used))
            if node.bodies:
                self.enter_bodies(node, repeats)
            if any(self.needs_gradient(t) for t in node.inputs):
                self.with_gradient.update(t for t in node.outputs if t is not None and t.is_float)

    def enter_bodies(self, node: Node, repeats: int) -> None:
        bodies = tuple(node.bodies.values())
        if node.op_type == "If" and len(bodies) > 1:
            bodies = (self.costlier(bodies),)
            self.notes.append(
                f"If {_shown(node)}: which branch runs is not known before a run; "
                "the costlier one is counted"
            )
        if node.trips is None:
            self.miss(node, "its trip count is known only at run time: its body is counted once")
        times = repeats * (1 if node.trips is None else node.trips)
        carries = any(self.needs_gradient(t) for t in node.inputs)
        for body in bodies:
            # A carried value is reached by the gradient of whatever the body computes it from.
            if carries or self.holds_params(body):
                self.with_gradient.update(t for t in body.inputs if t.is_float)
            self.enter(body, times)
            if any(self.needs_gradient(t) for t in body.outputs):
                self.with_gradient.update(t for t in node.outputs if t is not None and t.is_float)

    def costlier(self, branches: Iterable[Graph]) -> Graph:
        def weight(branch: Graph) -> tuple[int, int]:
            profile = profile_graph(branch, self.extra)
            return profile.macs, profile.elementwise_ops

        return max(branches, key=weight)

    def cost(self, node: Node) -> Cost | None:
        """The node's cost; None where it cannot be counted, which is then listed."""
        custom = self.extra.get(node.qualified_op)
        if custom is not None:
            return self.custom_cost(node, custom)
        if node.qualified_op in CONTROL_FLOW:
            return FREE
        counter = STANDARD_COUNTERS.get(node.qualified_op)
        if counter is None:
            self.miss(node, UNTELLABLE.get(node.qualified_op, "no rule for this operator"))
            return None
        try:
            cost = counter(node)
        except UnknownShapeError:
            self.miss(node, "its shapes are known only at run time")
            return None
        except (ArithmeticError, LookupError, TypeError, ValueError):
            # A malformed node: ranks or attributes that its operator does not allow.
            self.miss(node, "its inputs do not fit the operator")
            return None
        return cost

    def custom_cost(self, node: Node, counter: Counter) -> Cost | None:
        try:
            cost = counter(node)
        except UnknownShapeError:
            self.miss(node, "its shapes are known only at run time")
            return None
        except Exception as error:
            raise ExtensionError(
                f"the counter registered for {printable(node.qualified_op)} failed on "
                f"{_shown(node)}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(cost, Cost):
            raise ExtensionError(
                f"the counter registered for {printable(node.qualified_op)} returned "
                f"{type(cost).__name__} for {_shown(node)}; it must return a Cost."
            )
        return cost

    def miss(self, node: Node, reason: str) -> None:
        self.uncounted[node.op_type, node.domain, reason] += 1

    def layer(
        self, node: Node, cost: Cost | None, repeats: int, used: frozenset[Tensor]
    ) -> StaticLayer:
        params, weight_bytes, weight = self.node_params(node)
        first = next((t for t in node.inputs if t is not None), None)
        output = next((t for t in node.outputs if t is not None), None)
        output_bytes = _output_bytes(node, used)
        typed = first if first is not None and first.dtype is not None else output
        return StaticLayer(
            id=node.id,
            name=node.name,
            op_type=node.op_type,
            domain=node.domain,
            weight=weight,
            precision=typed.dtype if typed is not None else None,
            macs=None if cost is None else repeats * cost.macs,
            elementwise_ops=None if cost is None else repeats * cost.elementwise_ops,
            backward_macs=None if cost is None else repeats * self.backward_macs(node, cost),
            params=params,
            weight_bytes=weight_bytes,
            output_bytes=None if output_bytes is None else repeats * output_bytes,
            input_shape=first.shape if first is not None else None,
            output_shape=output.shape if output is not None else None,
            repeats=repeats,
        )

    def node_params(self, node: Node) -> tuple[int, int, str | None]:
        """Parameters, their bytes, and the name of the largest, of one node's own inputs."""
        if not any(t is not None and t.weights for t in node.inputs):
            return 0, 0, None
        names = dict.fromkeys(n for t in node.inputs if t is not None for n in t.weights)
        weights = [self.weights[n] for n in names if n in self.weights and self.weights[n].params]
        if not weights:
            return 0, 0, None
        largest = max(weights, key=lambda w: w.params)
        return sum(w.params for w in weights), sum(w.nbytes for w in weights), largest.name

    def backward_macs(self, node: Node, cost: Cost) -> int:
        if not cost.contractions:
            return 0
        inner = any(self.needs_gradient(t) for t in node.inputs)
        return sum(
            contraction.macs
            * sum(
                inner if index is None else self.needs_gradient(node.optional_input(index))
                for index in contraction.operands
            )
            for contraction in cost.contractions
        )

    def needs_gradient(self, tensor: Tensor | None) -> bool:
        if tensor is None or not tensor.is_float:
            return False
        if tensor.is_constant:
            return any(n in self.weights and self.weights[n].params for n in tensor.weights)
        return tensor in self.with_gradient

    def holds_params(self, graph: Graph) -> bool:
        return any(
            tensor is not None and tensor.is_constant and self.needs_gradient(tensor)
            for node in graph.walk()
            for tensor in node.inputs
        )


def _output_bytes(node: Node, used: frozenset[Tensor]) -> int | None:
    """Bytes of the outputs that something takes; None where one is unknown."""
    total = 0
    for tensor in node.outputs:
        if tensor is None or tensor not in used:
            continue
        nbytes = tensor.nbytes
        if nbytes is None:
            return None
        total += nbytes
    return total


def _shown(node: Node) -> str:
    return repr(printable(node.name or node.id))
