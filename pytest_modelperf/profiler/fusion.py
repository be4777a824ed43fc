"""Find the nodes of the model that each kernel of an engine runs, and the steps of its plan."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.graph.structure import Graph, Node, PlanGraph, PlanNode, Tensor
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.measurements import GraphKernel, Kernel, LayerTime, RowKind
from pytest_modelperf.profiler.records import CaseProfile

# Operators that an engine inserts to change the layout of a tensor or its type.
_MOVES = frozenset({"Reorder", "ReorderInput", "ReorderOutput", "Transpose"})
_CONVERSIONS = frozenset({"Cast", "Convert", "Identity", "MemcpyFromHost", "MemcpyToHost"})
# Engines treat all of these as another shape of the same values, and also insert them.
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
# ONNX Runtime begins the name of a copy of a tensor in another type with one of these.
_COPIES = ("InsertedPrecisionFreeCast_", "InsertedCast_")
# ONNX Runtime names a kernel of its blocked layout after the output of the node that it replaces.
_BLOCKED = re.compile(r"(?P<output>.*?)(?P<part>_bn|_mul)?_nchwc(_token_\d+)?")
# The end of the name of a kernel that ONNX Runtime moved to channels-last.
_TOKEN = re.compile(r"_token_\d+$")
_UNNAMED = re.compile(r"\w+_\d+")
# Prefixes of an operator's name if it is fused or quantized.
_PREFIXES = ("Fused", "QLinear", "NhwcFused", "Nhwc")


class KernelPlace(Struct, frozen=True):
    """The place of a kernel: the nodes that it runs, or why the engine inserted it."""

    kind: RowKind
    nodes: tuple[Node, ...] = ()


def inserted_kind(op_type: str) -> RowKind:
    """Return the kind of a kernel that does not run any node of the model."""
    return RowKind.LAYOUT if op_type in _MOVES else RowKind.OTHER


def is_layout(op_type: str, kind: RowKind) -> bool:
    """Whether a kernel only changes a tensor's memory layout, which no node of the model does."""
    return kind is RowKind.LAYOUT or (op_type in _MOVES and op_type != "Transpose")


def is_same_operator(planned: str, op_type: str) -> bool:
    """Whether an operator of a plan is the model's operator, possibly fused or quantized."""
    if planned == op_type or {planned, op_type} <= _VIEWS:
        return True
    if op_type == "Transpose" and planned in _MOVES:
        # A change of layout can include a transposition of the model.
        return True
    return any(planned == prefix + op_type for prefix in _PREFIXES)


class KernelPlaces:
    """The places of the kernels of plans, by the names of the model."""

    def __init__(self, graph: Graph, names: Mapping[str, Node]) -> None:
        self.order = {node: index for index, node in enumerate(graph.walk())}
        self._names = names
        self._producers = {
            tensor: node for node in self.order for tensor in node.outputs if tensor is not None
        }
        self._tensors: dict[str, Tensor] = {}
        for tensor in self._producers:
            self._tensors.setdefault(tensor.name, tensor)
        self._planned: dict[tuple[str, str], KernelPlace] = {}
        self._unnamed: dict[str, list[KernelPlace]] = {}

    def add_plan(self, plan: PlanGraph, graph: Graph) -> None:
        """Place the kernels of the plan that an engine made of `graph`, and of its bodies."""
        self._add(plan, graph, {})

    def of_steps(self, plan: PlanGraph, graph: Graph) -> tuple[KernelPlace, ...]:
        """Return where each step of a plan of `graph` belongs, in the order of the plan."""
        placed = self._scope(plan, graph, {}).match()
        return tuple(self._place(step.op_type, placed[step]) for step in plan.nodes)

    def of_kernels(self, kernels: Iterable[Kernel]) -> tuple[KernelPlace, ...]:
        """Return where each kernel belongs, from the engine's report, the plan, or its name."""
        # The engine names an unnamed step by its operator and a number. Kernels run in the order of
        # the plan, so the first of an operator is the first in the plan.
        unnamed = {op: deque(places) for op, places in self._unnamed.items()}
        found = []
        for kernel in kernels:
            place = self._of_kernel(kernel)
            if place is None and _UNNAMED.fullmatch(kernel.name) and unnamed.get(kernel.op_type):
                place = unnamed[kernel.op_type].popleft()
            found.append(place or KernelPlace(inserted_kind(kernel.op_type)))
        return tuple(found)

    def _of_kernel(self, kernel: Kernel) -> KernelPlace | None:
        if kernel.originals is not None:
            nodes = {n for text in kernel.originals if (n := self._node(text)) is not None}
            return self._place(kernel.op_type, nodes)
        placed = self._planned.get((kernel.name, kernel.op_type))
        if placed is not None:
            return placed
        blocked = _blocked_output(kernel.name, self._tensors)
        node = _named(kernel.name, self._names) if blocked is None else self._producers[blocked]
        return None if node is None else self._place(kernel.op_type, (node,))

    def _node(self, text: str) -> Node | None:
        if text in self._names:
            return self._names[text]
        tensor = self._tensors.get(text)
        return None if tensor is None else self._producers[tensor]

    def _place(self, op_type: str, nodes: Iterable[Node]) -> KernelPlace:
        ordered = tuple(sorted(nodes, key=self.order.__getitem__))
        return (
            KernelPlace(RowKind.LAYER, ordered) if ordered else KernelPlace(inserted_kind(op_type))
        )

    def _add(self, plan: PlanGraph, graph: Graph, outer: Mapping[str, Tensor]) -> None:
        scope = self._scope(plan, graph, outer)
        for step, nodes in scope.match().items():
            holder = next((node for node in nodes if node.op_type == step.op_type), None)
            for name, body in step.bodies.items():
                if holder is not None and name in holder.bodies:
                    self._add(body, holder.bodies[name], scope.visible)
            place = self._place(step.op_type, nodes)
            if step.name:
                self._planned.setdefault((step.name, step.op_type), place)
            else:
                self._unnamed.setdefault(step.op_type, []).append(place)

    def _scope(self, plan: PlanGraph, graph: Graph, outer: Mapping[str, Tensor]) -> _Scope:
        visible = dict(outer)
        for tensor in (*graph.inputs, *(t for node in graph.nodes for t in node.outputs)):
            if tensor is not None:
                visible[tensor.name] = tensor
        return _Scope(plan, visible, self._producers, self._names)


def _named(name: str, names: Mapping[str, Node]) -> Node | None:
    """Return the node of that name, even if it was renamed when its layout changed."""
    return names.get(name) or names.get(_TOKEN.sub("", name))


def _blocked_output(name: str, tensors: Mapping[str, Tensor]) -> Tensor | None:
    found = _BLOCKED.fullmatch(name)
    if found is None:
        return None
    for output in (found["output"] + (found["part"] or ""), found["output"]):
        tensor = tensors.get(output) or tensors.get(_without_copy(output))
        if tensor is not None:
            return tensor
    return None


def _without_copy(name: str) -> str:
    """Return the name of the tensor that a copy in another type is named after."""
    for prefix in _COPIES:
        name = name.removeprefix(prefix)
    return name


class _Scope(Struct):
    """One graph of the model and what the engine made of it.

    `visible` has the tensors of the model that can be named here. `meaning` maps other tensor names
    of the plan to tensors of the model, and grows. `anchors` has the tensors of the model that a
    step certainly computes: its outputs, or others on the way to them.
    """

    plan: PlanGraph
    visible: Mapping[str, Tensor]
    producers: Mapping[Tensor, Node]
    names: Mapping[str, Node]
    meaning: dict[str, Tensor] = field(default_factory=dict)
    anchors: dict[PlanNode, tuple[Tensor, ...]] = field(default_factory=dict)
    anchored: set[Tensor] = field(default_factory=set)

    def match(self) -> dict[PlanNode, set[Node]]:
        """Return the nodes that each step runs. An inserted step has none."""
        steps = self.plan.nodes
        self.find_copies()
        inserted = {step for step in steps if self.is_inserted(step)}
        kept = [step for step in steps if step not in inserted]
        for step in kept:
            anchor = self.anchor(step)
            if anchor:
                self.anchors[step] = anchor
                self.anchored.update(anchor)
        self.find_meanings(inserted)
        exits = {step: tensors for step in kept if (tensors := self.exits(step))}
        ends = {tensor for tensors in exits.values() for tensor in tensors}
        ends |= {self.visible[name] for name in self.plan.constants if name in self.visible}
        taken: set[Node] = set()
        placed: dict[PlanNode, set[Node]] = {}
        for step, tensors in exits.items():
            placed[step] = set(self.walk_back(tensors, ends, self.sources(step))) - taken
            taken |= placed[step]
        views = [step for step in steps if step in inserted and step.op_type in _VIEWS]
        self.place_views(views, placed)
        self.place_parts([step for step in (*kept, *views) if step not in placed], placed)
        return {step: placed.get(step, set()) for step in steps}

    def tensor(self, name: str) -> Tensor | None:
        return self.visible.get(name) or self.meaning.get(name)

    def producer(self, name: str) -> Node | None:
        tensor = self.visible.get(name)
        return None if tensor is None else self.producers.get(tensor)

    def is_inserted(self, step: PlanNode) -> bool:
        """Whether the step only passes a tensor on, and no node of the model does that here."""
        if step.op_type not in _MOVES | _CONVERSIONS | _VIEWS or step.name in self.names:
            return False
        makers = [node for name in step.outputs if (node := self.producer(name)) is not None]
        return not any(is_same_operator(step.op_type, node.op_type) for node in makers)

    def anchor(self, step: PlanNode) -> tuple[Tensor, ...]:
        outputs = [self.visible[name] for name in step.outputs if self.producer(name) is not None]
        if outputs:
            return tuple(outputs)
        blocked = _blocked_output(step.name, self.visible)
        if blocked is not None and blocked in self.producers:
            return (blocked,)
        node = _named(step.name, self.names)
        return () if node is None else tuple(t for t in node.outputs if t is not None)

    def head(self, step: PlanNode) -> Node | None:
        """Return the node with the inputs and the operator that the step is named for."""
        anchor = self.anchors.get(step)
        if anchor is None:
            return None
        for node in self.walk_back(anchor, self.anchored):
            if is_same_operator(step.op_type, node.op_type):
                return node
        if step.name in self.names or _BLOCKED.fullmatch(step.name):
            return self.producers[anchor[0]]
        return None

    def find_copies(self) -> None:
        for step in self.plan.nodes:
            for name in (*step.inputs, *step.outputs):
                self.equate([name], [self.visible.get(_without_copy(name))])

    def find_meanings(self, inserted: set[PlanNode]) -> None:
        heads = {step: self.head(step) for step in self.plan.nodes if step not in inserted}
        count = -1
        while count != len(self.meaning):
            count = len(self.meaning)
            for step in reversed(self.plan.nodes):
                if step in inserted:
                    self.equate(step.inputs[:1], [self.tensor(n) for n in step.outputs[:1]])
                    continue
                head = heads[step]
                if head is not None:
                    self.equate(step.inputs, self.head_inputs(step, head))
            for step in self.plan.nodes:
                if step in inserted:
                    self.equate(step.outputs[:1], [self.tensor(n) for n in step.inputs[:1]])

    def head_inputs(self, step: PlanNode, head: Node) -> Sequence[Tensor | None]:
        if not step.op_type.startswith("QLinear") or head.op_type.startswith("QLinear"):
            return head.inputs
        # The input of the step is the integers that the model first dequantizes.
        made = [None if t is None else self.producers.get(t) for t in head.inputs[:1]]
        return [
            node.inputs[0] if node is not None and node.op_type == "DequantizeLinear" else tensor
            for node, tensor in zip(made, head.inputs, strict=False)
        ]

    def equate(self, names: Sequence[str], tensors: Sequence[Tensor | None]) -> None:
        for name, tensor in zip(names, tensors, strict=False):
            is_open = name and self.tensor(name) is None and name not in self.plan.constants
            if is_open and tensor is not None and not tensor.is_constant:
                self.meaning[name] = tensor

    def sources(self, step: PlanNode) -> set[Tensor]:
        return {t for name in step.inputs if (t := self.tensor(name)) is not None}

    def exits(self, step: PlanNode) -> tuple[Tensor, ...]:
        """Return the last tensors of the model that the step computes."""
        anchor = self.anchors.get(step, ())
        known = [t for name in step.outputs if (t := self.tensor(name)) is not None]
        found = tuple(tensor for tensor in known if tensor in self.producers)
        # Outputs beyond the anchor are only guessed from their consumers: the search decides.
        is_sure = not anchor or self.leads_back(found, anchor)
        return found if found and is_sure else anchor

    def leads_back(self, found: Sequence[Tensor], anchor: Sequence[Tensor]) -> bool:
        passed = set(found)
        for node in self.walk_back(found, self.anchored):
            passed.update(tensor for tensor in node.inputs if tensor is not None)
        return passed.issuperset(anchor)

    def walk_back(self, start: Iterable[Tensor], *ends: set[Tensor]) -> Iterator[Node]:
        """Yield the nodes that compute `start`, nearest first, up to `ends`."""
        seen: set[Node] = set()
        queue = deque(self.producers[tensor] for tensor in start)
        while queue:
            node = queue.popleft()
            if node in seen:
                continue
            seen.add(node)
            yield node
            made = [t for t in node.inputs if t is not None and t in self.producers]
            queue.extend(self.producers[t] for t in made if not any(t in end for end in ends))

    def place_views(self, views: Sequence[PlanNode], placed: dict[PlanNode, set[Node]]) -> None:
        """Place inserted views with the step before them, because they move no data."""
        owners = {node: nodes for nodes in placed.values() for node in nodes}
        for view in views:
            made = self.producer(view.outputs[0])
            if made is not None and made in owners:
                placed[view] = owners[made]

    def place_parts(self, parts: Sequence[PlanNode], placed: dict[PlanNode, set[Node]]) -> None:
        """Place steps that together compute one node of the model at that node."""
        takers: dict[str, list[PlanNode]] = {}
        for step in self.plan.nodes:
            for name in step.inputs:
                takers.setdefault(name, []).append(step)
        for part in reversed(parts):
            queue, seen = deque([part]), {part}
            while queue:
                step = queue.popleft()
                if placed.get(step):
                    placed[part] = placed[step]
                    break
                following = [t for name in step.outputs for t in takers.get(name, ())]
                queue.extend(taker for taker in following if taker not in seen)
                seen.update(following)


class FedStep(Struct, frozen=True, eq=False):
    """One step, and the steps that make its inputs, by their indexes.

    `body` is the number of the body that contains it, 0 for the plan itself. The first steps of a
    body get their inputs from the step that has the body.
    """

    node: PlanNode
    inputs: tuple[int, ...]
    body: int = 0


def plan_steps(plan: PlanGraph) -> tuple[FedStep, ...]:
    """Return all steps of a plan. Those of a body follow the step that has the body."""
    found: list[FedStep] = []
    _add(plan, {}, None, found)
    return tuple(found)


def _add(
    plan: PlanGraph, outer: Mapping[str, int], holder: int | None, found: list[FedStep]
) -> None:
    makers = dict(outer)
    # The number of a body is the index of its first step.
    body = 0 if holder is None else len(found)
    for node in plan.nodes:
        at = len(found)
        inputs = tuple(dict.fromkeys(makers[name] for name in node.inputs if name in makers))
        if holder is not None and all(feeder <= holder for feeder in inputs):
            inputs = tuple(dict.fromkeys((holder, *inputs)))
        found.append(FedStep(node, inputs, body))
        for inner in node.bodies.values():
            _add(inner, makers, at, found)
        makers.update({name: at for name in node.outputs if name})


def step_indexes(steps: Sequence[FedStep], kernels: Sequence[Kernel]) -> tuple[int | None, ...]:
    """Return the step of each kernel, or None if no step matches it."""
    # Kernels run in the order of the plan. An engine names an unnamed step by its operator and a
    # number, so the first kernel of an operator is the first in the plan.
    named: dict[tuple[str, str], int] = {}
    unnamed: dict[str, deque[int]] = {}
    for at, step in enumerate(steps):
        if step.node.name:
            named.setdefault((step.node.name, step.node.op_type), at)
        else:
            unnamed.setdefault(step.node.op_type, deque()).append(at)
    found: list[int | None] = []
    for kernel in kernels:
        place = named.get((kernel.name, kernel.op_type))
        if place is None and unnamed.get(kernel.op_type):
            place = unnamed[kernel.op_type].popleft()
        found.append(place)
    return tuple(found)


def without_idle_bodies(
    steps: Sequence[FedStep], ran: Sequence[int | None]
) -> Mapping[int, FedStep]:
    """Return the steps by their indexes, without the branches that were not taken.

    Each step keeps its remaining inputs, by their positions among the remaining steps.
    """
    bodies = {0, *(steps[at].body for at in ran if at is not None)}
    kept = [at for at, step in enumerate(steps) if step.body in bodies]
    places = {at: place for place, at in enumerate(kept)}
    return {
        at: replace(
            steps[at], inputs=tuple(places[each] for each in steps[at].inputs if each in places)
        )
        for at in kept
    }


def kernels_of_case(case: CaseProfile) -> tuple[GraphKernel, ...]:
    """Return the kernels of the plan, or else the fused layers. Empty if unconnected."""
    measured = case.measured
    if measured is not None and measured.kernels is not None:
        return measured.kernels
    layers = () if case.counted is None else case.counted.layers
    if any(layer.fed_by is None for layer in layers):
        return ()
    times = () if measured is None else measured.layer_times or ()
    return _kernels_of_layers(layers, {t.layer: t for t in times if t.layer is not None})


def _kernels_of_layers(
    layers: Sequence[StaticLayer], times: Mapping[int, LayerTime]
) -> tuple[GraphKernel, ...]:
    hosts = list(range(len(layers)))
    for host, time in times.items():
        for fused in time.fused:
            # The time of a layer that several kernels compute is shown at one of them.
            if fused not in times:
                hosts[fused] = host
    members: dict[int, list[int]] = defaultdict(list)
    for layer, host in enumerate(hosts):
        members[host].append(layer)
    # A kernel runs at the position of the last of its layers.
    order = sorted(members, key=lambda host: members[host][-1])
    places = {host: place for place, host in enumerate(order)}
    found = []
    for place, host in enumerate(order):
        feeders = [each for layer in members[host] for each in layers[layer].fed_by or ()]
        fed_from = dict.fromkeys(places[hosts[each]] for each in feeders)
        inputs = tuple(each for each in fed_from if each < place)
        ns = times[host].ns if host in times else None
        found.append(GraphKernel(op_type=layers[host].op_type, inputs=inputs, layer=host, ns=ns))
    return tuple(found)
