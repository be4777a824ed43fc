"""Which values decide how long a graph takes, and whether its work depends on data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod

from msgspec import Struct, field
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from pytest_modelperf.graph.convert import constant_tensor, unified_domain
from pytest_modelperf.graph.deciding_inputs import (
    RANDOM,
    deciding_inputs,
    depends_on_numbers,
    has_sequence_lengths,
)
from pytest_modelperf.graph.model_bytes import KEEP_INTEGER_BYTES
from pytest_modelperf.graph.model_file import packed_bytes
from pytest_modelperf.graph.stored_tensors import bodies_of
from pytest_modelperf.graph.stored_weights import is_float, is_quantized
from pytest_modelperf.graph.structure import Graph, Node, Tensor

# Their results follow from the shape of the input alone.
_OF_SHAPE = frozenset({"Shape", "Size"})
_CONTROL_FLOW = frozenset({"If", "Loop"})
# A size has a factor for each axis of an image. Longer vectors of floats come from training.
_MOST_FACTORS = 8


class Constant(Struct, frozen=True):
    """A stored constant of a graph."""

    is_float: bool
    elements: int
    nbytes: int


class FlowStep(Struct, frozen=True):
    """One operator. Inputs and outputs are names, which are empty for an absent one."""

    op_type: str
    domain: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    bodies: Mapping[str, FlowGraph] = field(default_factory=dict)
    opset: int | None = None


class FlowGraph(Struct, frozen=True):
    """The operators of a graph or body in their order, and its constants by name."""

    steps: Iterable[FlowStep]
    constants: Mapping[str, Constant]
    inputs: Sequence[str]
    outputs: Sequence[str]


class DataDependence(Struct, frozen=True):
    """An operator whose work depends on data, or about whose work nothing is known."""

    op_type: str
    is_unknown: bool = False

    def __str__(self) -> str:
        if self.is_unknown:
            return f"it is unknown what the time of {self.op_type} depends on"
        return f"its work depends on data ({self.op_type})"


class _Deciding(Struct, frozen=True):
    """A value that decides the time of an operator, or None if it is unknown what decides."""

    op_type: str
    value: int | None
    # The counts of a run show what was decided.
    is_shown_by_run: bool = False


class _Scope:
    """The values of a graph or body by name. A body finds those around it in `outer`."""

    def __init__(self, outer: _Scope | None = None) -> None:
        self.outer = outer
        self.own: dict[str, int] = {}

    def find(self, name: str) -> int | None:
        if name in self.own or self.outer is None:
            return self.own.get(name)
        return self.outer.find(name)


class ValueFlow:
    """The values of a graph and of its bodies, each with the values that it is computed from.

    `knows_functions`: operators without an entry in the table may be functions of the model, whose
    time depends on the shapes of their inputs. `inputs_are_data`: the values of inputs count as
    data, too.
    """

    def __init__(
        self, graph: FlowGraph, *, knows_functions: bool = False, inputs_are_data: bool = False
    ) -> None:
        self._knows_functions = knows_functions
        self._sources: list[list[int]] = []
        self._constants: dict[int, tuple[str, Constant]] = {}
        self._data: set[int] = set()
        self._deciding: list[_Deciding] = []
        # The inputs of kernels whose time depends a little on all numbers.
        self._numbers: list[int] = []
        scope = _Scope()
        if inputs_are_data:
            self._data.update(self._add(scope, name) for name in graph.inputs)
        self._walk(graph, scope)

    def find_data(self, *, after_run: bool = False) -> DataDependence | None:
        """Return the first operator whose work depends on data.

        The counts of a run show how often a Loop ran its body, and which branch an If took unless
        both have the same operators. `after_run` leaves these out.
        """
        for each in self._deciding:
            if after_run and each.is_shown_by_run:
                continue
            if each.value is None or self._is_data(each.value):
                return DataDependence(each.op_type, is_unknown=each.value is None)
        return None

    @cached_property
    def settings(self) -> frozenset[str]:
        """The names of the constants that decide the time alone, without data."""
        deciding = [each.value for each in self._deciding if each.value is not None]
        waiting = [value for value in (*deciding, *self._numbers) if not self._is_data(value)]
        seen = set(waiting)
        while waiting:
            for source in self._sources[waiting.pop()]:
                if source not in seen:
                    seen.add(source)
                    waiting.append(source)
        return frozenset(self._constants[value][0] for value in seen if value in self._constants)

    def _walk(self, graph: FlowGraph, scope: _Scope) -> Counter[str]:
        operators: Counter[str] = Counter()
        for name, constant in graph.constants.items():
            self._constants[self._add(scope, name)] = name, constant
        for step in graph.steps:
            inputs = [self._find(scope, name) for name in step.inputs]
            taken = [value for value in inputs if value is not None]
            if is_quantized(step.op_type):
                stored = (value for value in taken if value in self._constants)
                self._data.update(
                    v for v in stored if self._constants[v][1].elements > _MOST_FACTORS
                )
            if step.op_type in _OF_SHAPE and not step.domain:
                taken = []
            outputs = [self._add(scope, name) if name else None for name in step.outputs]
            made = [value for value in outputs if value is not None]
            for value in made:
                self._sources[value] += taken
            if step.op_type in RANDOM:
                self._data.update(made)
            if depends_on_numbers(step.op_type, step.domain):
                self._numbers += [value for value in taken if value not in self._constants]
            place = len(self._deciding)
            bodies = [
                self._walk_body(step, body, scope, inputs, outputs) for body in step.bodies.values()
            ]
            operators.update([step.op_type])
            for counted in bodies:
                operators.update(counted)
            # Put an operator before those of its bodies.
            inner = self._deciding[place:]
            del self._deciding[place:]
            has_distinct_bodies = bodies[1:] != bodies[:1]
            self._read_deciding(step, inputs, is_shown_by_run=has_distinct_bodies)
            self._deciding += inner
        return operators

    def _read_deciding(
        self, step: FlowStep, inputs: Sequence[int | None], *, is_shown_by_run: bool
    ) -> None:
        outputs = sum(map(bool, step.outputs))
        places = deciding_inputs(step.op_type, step.domain, opset=step.opset, outputs=outputs)
        if places is None and not self._knows_functions:
            self._deciding.append(_Deciding(step.op_type, None))
        for place in places or ():
            value = inputs[place] if place < len(inputs) else None
            if value is not None:
                is_shown = is_shown_by_run and step.op_type in _CONTROL_FLOW and not step.domain
                self._deciding.append(_Deciding(step.op_type, value, is_shown))

    def _walk_body(
        self,
        step: FlowStep,
        body: FlowGraph,
        outer: _Scope,
        inputs: Sequence[int | None],
        outputs: Sequence[int | None],
    ) -> Counter[str]:
        scope = _Scope(outer)
        carried = [self._add(scope, name) for name in body.inputs]
        if step.op_type == "Scan" and has_sequence_lengths(step.opset):
            inputs = inputs[1:]
        operators = self._walk(body, scope)
        made = [self._find(scope, name) for name in body.outputs]
        # The inputs of a Loop's body begin with the trip number, but its outputs with the
        # condition.
        shift = 1 if step.op_type == "Loop" else 0
        if shift and made and made[0] is not None:
            self._deciding.append(_Deciding(step.op_type, made[0], is_shown_by_run=True))
        for place, value in enumerate(carried):
            first = inputs[place : place + 1]
            later = made[place - shift : place - shift + 1] if place >= shift else ()
            self._sources[value] += [each for each in (*first, *later) if each is not None]
        for output, inner in zip(outputs, made[shift:], strict=False):
            if output is not None and inner is not None:
                self._sources[output].append(inner)
        return operators

    def _add(self, scope: _Scope, name: str) -> int:
        if name not in scope.own:
            scope.own[name] = len(self._sources)
            self._sources.append([])
        return scope.own[name]

    def _find(self, scope: _Scope, name: str) -> int | None:
        if not name:
            return None
        found = scope.find(name)
        return self._add(scope, name) if found is None else found

    def _is_data(self, value: int) -> bool:
        # A constant that an operator reads directly is a setting, whatever its size.
        return value not in self._constants and value in self._computed_from_data

    @cached_property
    def _computed_from_data(self) -> frozenset[int]:
        readers: dict[int, list[int]] = defaultdict(list)
        for value, sources in enumerate(self._sources):
            for source in sources:
                readers[source].append(value)
        waiting = [*self._data, *self._trained()]
        seen = set(waiting)
        while waiting:
            for reader in readers[waiting.pop()]:
                if reader not in seen:
                    seen.add(reader)
                    waiting.append(reader)
        return frozenset(seen)

    def _trained(self) -> Iterator[int]:
        """Yield the constants that come from training, judging by their size."""
        for value, (_, constant) in self._constants.items():
            size = constant.elements if constant.is_float else constant.nbytes
            if size > (_MOST_FACTORS if constant.is_float else KEEP_INTEGER_BYTES):
                yield value


# More elements than any setting has, for a constant of unknown shape.
_UNKNOWN = 1 << 40


def find_data_dependence(
    graph: Graph, *, after_run: bool = False, inputs_are_data: bool = False
) -> DataDependence | None:
    """Return the first operator whose work depends on data.

    `after_run` leaves out what the counts of a run show (see `ValueFlow.find_data`). By default
    inputs of the model do not count as data: two models with the same plan get the same inputs.
    """
    return ValueFlow(_steps(graph), inputs_are_data=inputs_are_data).find_data(after_run=after_run)


def read_plan_flow(plan: ModelProto) -> ValueFlow:
    """Return the flow of values through the plan of an engine, which has no functions."""
    opsets = {unified_domain(str(each.domain)): each.version for each in plan.opset_import}
    return ValueFlow(_read_steps(plan.graph, opsets.get("")))


def find_settings(graph: GraphProto | FunctionProto, opset: int | None = None) -> frozenset[str]:
    """Return the names of the constants of a model's graph that decide how long it takes.

    The time of a call of a function is taken to depend on shapes alone. Each function is a graph of
    its own.
    """
    return ValueFlow(_read_steps(graph, opset), knows_functions=True).settings


def find_model_settings(model: ModelProto) -> frozenset[str]:
    """Return the names of the settings of a model's graph and of its functions."""
    opsets = {unified_domain(str(each.domain)): each.version for each in model.opset_import}
    functions = (find_settings(each) for each in model.functions)
    return find_settings(model.graph, opsets.get("")).union(*functions)


def _steps(graph: Graph) -> FlowGraph:
    met = [*graph.outputs, *(each for node in graph.nodes for each in node.inputs)]
    constants = {t.name: _constant(t) for t in met if t is not None and t.is_constant}
    inputs, outputs = _names(graph.inputs), _names(graph.outputs)
    return FlowGraph(map(_step, graph.nodes), constants, inputs, outputs)


def _step(node: Node) -> FlowStep:
    bodies = {name: _steps(body) for name, body in node.bodies.items()}
    inputs, outputs = _names(node.inputs), _names(node.outputs)
    return FlowStep(node.op_type, node.domain, inputs, outputs, bodies, node.opset or None)


def _names(tensors: Iterable[Tensor | None]) -> tuple[str, ...]:
    return tuple("" if tensor is None else tensor.name for tensor in tensors)


def _constant(tensor: Tensor) -> Constant:
    elements = tensor.size if tensor.has_known_shape else _UNKNOWN
    nbytes = _UNKNOWN if tensor.nbytes is None else tensor.nbytes
    return Constant(tensor.is_float or tensor.dtype is None, elements, nbytes)


def _read_steps(graph: GraphProto | FunctionProto, opset: int | None) -> FlowGraph:
    constants: dict[str, Constant] = {}
    if isinstance(graph, GraphProto):
        inputs = [str(value.name) for value in graph.input]
        outputs = [str(value.name) for value in graph.output]
        constants |= {str(each.name): _stored(each) for each in graph.initializer}
        constants |= {str(each.values.name): _stored(each) for each in graph.sparse_initializer}
    else:
        inputs, outputs = [*map(str, graph.input)], [*map(str, graph.output)]
    running = []
    for node in graph.node:
        tensor = find_constant(node)
        if tensor is None:
            running.append(node)
        else:
            constants[str(node.output[0])] = _stored(tensor)
    return FlowGraph(_read_nodes(running, opset), constants, inputs, outputs)


def _read_nodes(nodes: Sequence[NodeProto], opset: int | None) -> Iterator[FlowStep]:
    for node in nodes:
        bodies = {
            f"{attribute.name}{number}": _read_steps(body, opset)
            for attribute in node.attribute
            for number, body in enumerate(bodies_of(attribute))
        }
        yield FlowStep(
            str(node.op_type),
            unified_domain(str(node.domain)),
            [*map(str, node.input)],
            [*map(str, node.output)],
            bodies,
            opset,
        )


def find_constant(node: NodeProto) -> TensorProto | SparseTensorProto | None:
    """Return the value of a node that is a stored constant, or None for any other node."""
    is_constant = node.op_type == "Constant" and not unified_domain(str(node.domain))
    if not is_constant or len(node.attribute) != 1 or len(node.output) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.HasField("t"):
        return attribute.t
    if attribute.HasField("sparse_tensor"):
        return attribute.sparse_tensor
    return constant_tensor(attribute)


def _stored(tensor: TensorProto | SparseTensorProto) -> Constant:
    if isinstance(tensor, SparseTensorProto):
        elements = prod(tensor.dims)
        return Constant(is_float(tensor.values), elements, elements)
    return Constant(is_float(tensor), prod(tensor.dims), packed_bytes(tensor))
