"""Count a graph with a table of counters, and its memory, into a profile with a row for each node.

For the peak, each activation is freed after its last use, and nodes run in the order of the graph.
Only the outputs of nodes count: inputs belong to the caller, and weights are counted elsewhere.
Views such as Reshape share the storage of their input, and no other operator is assumed to work in
place. A node with bodies adds the peak of its largest body.

In the traffic of a node, each tensor counts once. A kernel that runs this node alone has to move at
least that many bytes. A view moves nothing, a lookup of rows in a table reads no more than it
writes, and a mixture of experts reads only the experts that its tokens need.

Rules that hold for all operators:

* A node is listed as uncounted if it has no counter, or if its shapes are known only at run time.
* The body of a Loop or Scan counts once per trip. If the trip count is unknown, the body counts
  once and the loop is listed as uncounted. If the condition of an If is unknown, the costlier
  branch counts.
* Backward MACs: each contraction costs its MACs once more for each operand that needs a gradient.
  Float parameters need a gradient, and so do all float tensors that are computed from a tensor with
  one. The input of the model needs none, so a first layer costs only its weights' gradient.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from operator import attrgetter
from typing import TypeAlias

from msgspec import Struct, field

from pytest_modelperf.errors import ExtensionError
from pytest_modelperf.graph.operators.cost import Cost, Counter
from pytest_modelperf.graph.operators.operator import Operator
from pytest_modelperf.graph.operators.registry import OPERATORS
from pytest_modelperf.graph.shape_rules import dim, total
from pytest_modelperf.graph.structure import Graph, Node, Tensor, UnknownShapeError, Weight
from pytest_modelperf.profiler.counting.records import StaticLayer, StaticProfile, Uncounted
from pytest_modelperf.text.escaping import printable

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
    used.discard(None)
    return frozenset(used)  # type: ignore[arg-type]  # no None is left in it


class _Sizes(dict[Tensor, "int | None"]):
    """The bytes of tensors, each computed once."""

    def __missing__(self, tensor: Tensor) -> int | None:
        nbytes = self[tensor] = tensor.nbytes
        return nbytes


def _peak_activation_bytes(graph: Graph, used: frozenset[Tensor], sizes: _Sizes) -> int | None:
    """Return the peak of live activations, or None if the size of a `used` one is unknown."""
    storage: dict[Tensor, Tensor] = {}
    last_use: dict[Tensor, int] = {}
    owned: dict[Tensor, int] = {}
    made: list[int] = []
    for index, node in enumerate(graph.nodes):
        for taken in node.inputs if not node.bodies else _taken(node):
            if taken is not None:
                last_use[storage.get(taken, taken)] = index
        viewed = node.optional_input(0) if is_view(node) else None
        total_bytes = 0
        for place, tensor in enumerate(node.outputs):
            if tensor is None or tensor not in used:
                continue
            if place == 0 and viewed is not None:
                storage[tensor] = storage.get(viewed, viewed)
                continue
            nbytes = sizes[tensor]
            if nbytes is None:
                return None
            owned[tensor] = nbytes
            last_use[tensor] = index
            total_bytes += nbytes
        made.append(total_bytes)
    for output in graph.outputs:
        last_use[storage.get(output, output)] = len(graph.nodes)
    freed = [0] * (len(graph.nodes) + 1)
    for tensor, nbytes in owned.items():
        freed[last_use[tensor]] += nbytes
    return _peak(graph, made, freed, lambda node: _peak_of_bodies(node, used, sizes))


def _peak(
    graph: Graph,
    made: Sequence[int],
    freed: Sequence[int],
    peak_of_bodies: Callable[[Node], int | None],
) -> int | None:
    live = peak = 0
    for index, node in enumerate(graph.nodes):
        live += made[index]
        inner = peak_of_bodies(node) if node.bodies else 0
        if inner is None:
            return None
        peak = max(peak, live + inner)
        live -= freed[index]
    return peak


def _peak_of_bodies(node: Node, used: frozenset[Tensor], sizes: _Sizes) -> int | None:
    peaks = [_peak_activation_bytes(body, used, sizes) for body in node.bodies.values()]
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


# Bytes by the names of tensors and weights, or None if they are unknown.
_Bytes: TypeAlias = "Mapping[str, int | None]"
_NOTHING: _Bytes = {}


class _TrafficCounter(Struct):
    """A counter of the traffic of nodes, which gets them in execution order.

    The order makes the origin of each view known. `weights` are the weights that hold parameters.
    """

    weights: Mapping[str, Weight]
    sizes: _Sizes
    _viewed: dict[Tensor, Tensor] = field(default_factory=dict)

    def count(self, node: Node, writes: _Bytes, repeats: int) -> tuple[_Bytes, _Bytes]:
        """Return what all `repeats` of a node read and write. One of them writes `writes`."""
        if node.bodies:
            # The nodes of its bodies are counted on their own.
            return _NOTHING, _NOTHING
        if is_view(node):
            self._note_view(node)
            return _NOTHING, _NOTHING
        op = node.qualified_op
        reads = {} if op in _SHAPES_ONLY else self._reads(node)
        if repeats != 1:
            writes = {name: _times(repeats, nbytes) for name, nbytes in writes.items()}
            reads = {name: _times(repeats, nbytes) for name, nbytes in reads.items()}
        if op in _LOOKUPS:
            most = total(*writes.values())
            reads = {name: _least(nbytes, most) for name, nbytes in reads.items()}
        elif op in _EXPERTS:
            used, experts = _used_experts(node)
            stored = {name: nbytes for name, nbytes in reads.items() if name in self.weights}
            reads |= {name: nbytes * used // experts for name, nbytes in stored.items() if nbytes}
        return reads, writes

    def _reads(self, node: Node) -> dict[str, int | None]:
        reads: dict[str, int | None] = {}
        for tensor in node.inputs:
            if tensor is None:
                continue
            for name in tensor.weights:
                if name in self.weights:
                    reads[name] = self.weights[name].nbytes
            if not tensor.is_constant:
                source = self._viewed.get(tensor, tensor)
                reads[source.name] = self.sizes[source]
        return reads

    def _note_view(self, node: Node) -> None:
        source = node.optional_input(0)
        output = node.outputs[0] if node.outputs else None
        if source is not None and output is not None and not source.is_constant:
            self._viewed[output] = self._viewed.get(source, source)


def _times(repeats: int, nbytes: int | None) -> int | None:
    return None if nbytes is None else repeats * nbytes


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


def profile_graph(graph: Graph, extra: Mapping[str, Counter] | None = None) -> StaticProfile:
    """Return the static profile of a graph. Counters in `extra` replace built-in ones."""
    return _profile(graph, extra or {}, {})


def _profile(
    graph: Graph, extra: Mapping[str, Counter], chosen: dict[Node, Graph]
) -> StaticProfile:
    used = used_outputs(graph)
    params = {name: weight for name, weight in graph.weights.items() if weight.params}
    sizes = _Sizes()
    walk = _Walk(params, extra, used, sizes, _TrafficCounter(params, sizes), chosen)
    walk.enter(graph, repeats=1)
    return StaticProfile(
        layers=tuple(walk.layers),
        params=sum(weight.params for weight in params.values()),
        scalar_params=sum(weight.params for weight in params.values() if weight.size == 1),
        weight_bytes=sum(weight.nbytes for weight in params.values()),
        peak_activation_bytes=_peak_activation_bytes(graph, used, sizes),
        uncounted=tuple(
            Uncounted(op_type, domain, count, reason)
            for (op_type, domain, reason), count in walk.uncounted.items()
        ),
        notes=tuple(walk.notes),
        undecided=walk.undecided,
    )


_UNKNOWN = Operator()

# The repeats of nested loops multiply, so counts could exceed 64 bits, the limit of file formats.
_MOST_RUNS = 2**63 - 1


class _Walk(Struct):
    """One pass over a graph and its bodies in execution order."""

    params: Mapping[str, Weight]
    extra: Mapping[str, Counter]
    used: frozenset[Tensor]
    sizes: _Sizes
    traffic: _TrafficCounter
    # The costlier branch of each If, kept so that the Ifs around it do not weigh it again.
    chosen: dict[Node, Graph]
    layers: list[StaticLayer] = field(default_factory=list)
    makers: dict[Tensor, int] = field(default_factory=dict)
    uncounted: Multiset[tuple[str, str, str]] = field(default_factory=Multiset)
    notes: list[str] = field(default_factory=list)
    undecided: int = 0
    with_gradient: set[Tensor] = field(default_factory=set)

    def enter(self, graph: Graph, repeats: int) -> None:
        for node in graph.nodes:
            cost, index = self.cost(node), len(self.layers)
            for tensor in node.outputs:
                if tensor is not None:
                    self.makers[tensor] = index
            self.layers.append(self.layer(node, cost, repeats))
            if node.bodies:
                self.enter_bodies(node, repeats, is_counted=cost is not None)
            if self.takes_gradient(node):
                self.pass_gradient(node.outputs)

    def enter_bodies(self, node: Node, repeats: int, *, is_counted: bool) -> None:
        bodies = tuple(node.bodies.values())
        if node.op_type == "If" and len(bodies) > 1:
            bodies = (self.costlier(node),)
            self.undecided += 1
            self.notes.append(
                f"If {_shown(node)}: which branch runs is not known before a run; "
                "the costlier one is counted"
            )
        if node.trips is None and is_counted:
            self.miss(node, "its trip count is known only at run time: its body is counted once")
        times = repeats * (1 if node.trips is None else node.trips)
        if times > _MOST_RUNS:
            self.miss(node, "its trip count is too large to run: its body is counted once")
            times = repeats
        carries = self.takes_gradient(node)
        holder = len(self.layers) - 1
        for body in bodies:
            self.makers.update(dict.fromkeys(body.inputs, holder))
            # A value carried to the next trip gets a gradient from one that the body computes.
            if carries or self.holds_params(body):
                self.pass_gradient(body.inputs)
            self.enter(body, times)
            if any(self.needs_gradient(tensor) for tensor in body.outputs):
                self.pass_gradient(node.outputs)

    def costlier(self, node: Node) -> Graph:
        def weight(branch: Graph) -> tuple[int, int]:
            profile = _profile(branch, self.extra, self.chosen)
            return profile.macs, profile.elementwise_ops

        if node not in self.chosen:
            self.chosen[node] = max(node.bodies.values(), key=weight)
        return self.chosen[node]

    def cost(self, node: Node) -> Cost | None:
        op = node.qualified_op
        custom = self.extra.get(op)
        if custom is not None:
            return self.custom_cost(node, custom)
        operator = OPERATORS.get(op, _UNKNOWN)
        if operator.count is None:
            self.miss(node, operator.uncounted)
            return None
        try:
            cost = operator.count(node)
        except UnknownShapeError:
            self.miss(node, "its shapes are known only at run time")
            return None
        except (ArithmeticError, LookupError, TypeError, ValueError):
            cost = None
        if cost is None or cost.is_negative:
            # The node is malformed: its operator does not allow these ranks or attributes.
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
                f"{_shown(node)}: {type(error).__name__}: {printable(str(error))}"
            ) from error
        if not isinstance(cost, Cost):
            raise ExtensionError(
                f"the counter registered for {printable(node.qualified_op)} returned "
                f"{type(cost).__name__} for {_shown(node)}; it must return a Cost."
            )
        return cost

    def miss(self, node: Node, reason: str) -> None:
        self.uncounted[node.op_type, node.domain, reason] += 1

    def layer(self, node: Node, cost: Cost | None, repeats: int) -> StaticLayer:
        weights, used = self.node_weights(node), self.used
        largest = max(weights, key=attrgetter("params")).name if weights else None
        macs: int | None = None
        backward_macs: int | None = None
        weight_macs = 0
        if cost is not None:
            macs = backward_macs = 0
            if cost.contractions:
                macs = repeats * cost.macs
                backward_macs = repeats * self.backward_macs(node, cost)
                weight_macs = repeats * _macs_with(largest, node, cost)
        first, output = _first(node.inputs), _first(node.outputs)
        sizes = self.sizes
        made = {t.name: sizes[t] for t in node.outputs if t is not None and t in used}
        reads, writes = self.traffic.count(node, made, repeats)
        typed = first if first is not None and first.dtype is not None else output
        makers = self.makers
        return StaticLayer(
            id=node.name if output is None else output.name,
            name=node.name,
            op_type=node.op_type,
            domain=node.domain,
            weight=largest,
            precision=None if typed is None else typed.dtype,
            macs=macs,
            elementwise_ops=None if cost is None else repeats * cost.elementwise_ops,
            backward_macs=backward_macs,
            params=sum([weight.params for weight in weights]) if weights else 0,
            weight_bytes=sum([weight.nbytes for weight in weights]) if weights else 0,
            output_bytes=_times(repeats, total(*made.values())),
            input_shape=None if first is None else first.shape,
            output_shape=None if output is None else output.shape,
            repeats=repeats,
            weight_macs=weight_macs,
            attributes=node.attributes,
            reads=reads,
            writes=writes,
            fed_by=tuple(dict.fromkeys([makers[t] for t in node.inputs if t in makers])),
        )

    def node_weights(self, node: Node) -> list[Weight]:
        names: dict[str, None] = {}
        for tensor in node.inputs:
            if tensor is not None and tensor.weights:
                names.update(dict.fromkeys(tensor.weights))
        return [self.params[name] for name in names if name in self.params]

    def backward_macs(self, node: Node, cost: Cost) -> int:
        macs = 0
        for contraction in cost.contractions:
            for index in contraction.operands:
                if (
                    self.takes_gradient(node)
                    if index is None
                    else self.needs_gradient(node.optional_input(index))
                ):
                    macs += contraction.macs
        return macs

    def takes_gradient(self, node: Node) -> bool:
        for tensor in node.inputs:  # noqa: SIM110  # hot path: half the time of any()
            if self.needs_gradient(tensor):
                return True
        return False

    def pass_gradient(self, tensors: Iterable[Tensor | None]) -> None:
        for tensor in tensors:
            if tensor is not None and tensor.is_float:
                self.with_gradient.add(tensor)

    def needs_gradient(self, tensor: Tensor | None) -> bool:
        if tensor is None or tensor in self.with_gradient:
            return tensor is not None
        if not tensor.is_constant or not tensor.is_float:
            return False
        return not self.params.keys().isdisjoint(tensor.weights)

    def holds_params(self, graph: Graph) -> bool:
        read = (t for node in graph.walk() for t in node.inputs if t is not None)
        return any(tensor.is_constant and self.needs_gradient(tensor) for tensor in read)


def _macs_with(weight: str | None, node: Node, cost: Cost) -> int:
    macs = 0
    for contraction in cost.contractions:
        for index in contraction.operands:
            tensor = None if index is None else node.optional_input(index)
            if tensor is not None and weight in tensor.weights:
                macs += contraction.macs
                break
    return macs


def _first(tensors: Iterable[Tensor | None]) -> Tensor | None:
    for tensor in tensors:
        if tensor is not None:
            return tensor
    return None


def _shown(node: Node) -> str:
    return repr(printable(node.name or node.id))
