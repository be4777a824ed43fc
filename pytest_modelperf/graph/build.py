"""Build the records of `structure` from a protobuf graph with bound inputs.

One walk in execution order, so that each node benefits from what is known of earlier nodes. Nodes
that depend on constants alone are folded, as engines do when they load a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod

from msgspec import Struct, field
from msgspec.structs import replace
from onnx import AttributeProto, GraphProto, ModelProto, SparseTensorProto, TensorProto, TypeProto

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.convert import MAX_NODES, Call, ParsedGraph, constant_tensor, read_type
from pytest_modelperf.graph.deciding_inputs import RANDOM
from pytest_modelperf.graph.model_file import (
    ModelFile,
    dtype_name,
    is_external,
    problem_of_dims,
)
from pytest_modelperf.graph.resolve import Resolver, infer_types, refined
from pytest_modelperf.graph.scope import (
    MAX_ELEMENTS,
    Scope,
    condition_stays,
    loop_inputs,
    scan_inputs,
    stable_inputs,
)
from pytest_modelperf.graph.shape_rules import OutputType
from pytest_modelperf.graph.stored_tensors import count_params, find_zero_point
from pytest_modelperf.graph.structure import (
    Graph,
    Node,
    NodePlace,
    Observation,
    Tensor,
    Value,
    Weight,
    ZeroPoint,
    byte_size,
)
from pytest_modelperf.graph.validity import describe, execution_order
from pytest_modelperf.text.escaping import printable

# ONNX Runtime folds these as if they were in the standard domain, and no others outside of it.
_FOLDED_OUTSIDE = frozenset({"com.microsoft::DequantizeLinear", "com.microsoft::QuantizeLinear"})

# Constants whose values are kept for shapes and counters: integers, and small vectors of any type.
_VALUE_DTYPES = frozenset({"int64", "int32", "bool"})
_SMALL = 8


class BuiltGraph(Struct, frozen=True):
    """The graph, all its tensors by name, and the messages that locate the bytes of its weights."""

    graph: Graph
    tensors: Mapping[str, Tensor]
    stored: Mapping[str, TensorProto]


class GraphBuild(Struct, frozen=True, eq=False):
    """The build of the graph of a model whose inputs are bound.

    `declared` are the types that the model declares, or None to ignore those of the model and of
    its bodies. `values` are the values of inputs that the user gave.
    """

    file: ModelFile
    resolver: Resolver
    values: Mapping[str, Value]
    proto: ModelProto
    block: ParsedGraph
    declared: Mapping[str, TypeProto] | None

    def __call__(self, observation: Observation | None = None) -> BuiltGraph:
        opsets = self.resolver.opsets
        scope = Scope(None, "", opsets.get("", 1))
        scope.types.update(infer_types(self.file.name, self.proto, self.block, opsets))
        scope.declared = self.declared or {}
        scope.given.update(self.values)
        seen, trusts_bodies = observation or Observation(), self.declared is not None
        builder = _Builder(self.file, self.resolver, seen, trusts_bodies)
        graph = builder.build(self.block, scope)
        weights = builder.weights.finished()
        stored = {name: t for name, t in builder.weights.stored.items() if name in weights}
        return BuiltGraph(replace(graph, weights=weights), scope.tensors, stored)


class _Weights(Struct):
    found: dict[str, Weight] = field(default_factory=dict)
    stored: dict[str, TensorProto] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    params: dict[str, int] = field(default_factory=dict)
    zero_points: dict[str, ZeroPoint] = field(default_factory=dict)

    def finished(self) -> dict[str, Weight]:
        return {
            name: replace(
                found, params=self.params.get(name, 0), zero_point=self.zero_points.get(name)
            )
            for name, found in self.found.items()
            if name in self.used
        }

    def count_uses(self, node: Node, *, runs: bool) -> None:
        """Record what a node does with its constants. A folded node does not run."""
        # Folding changes the type of a weight. For a folded node, only the dequantizer decides
        # whether integers are parameters.
        decides = runs or node.op_type == "DequantizeLinear"
        for index, tensor in enumerate(node.inputs):
            if tensor is None or not tensor.weights:
                continue
            if runs:
                self.used.update(tensor.weights)
            if not decides:
                continue
            for name in tensor.weights:
                dtype, shape = self.found[name].dtype, self.found[name].shape
                params = count_params(node.op_type, index, dtype, shape, node.attributes)
                self.params[name] = max(params, self.params.get(name, 0))
            if len(tensor.weights) == 1:
                zero_point = find_zero_point(node, index)
                if zero_point is not None:
                    self.zero_points[tensor.weights[0]] = zero_point


class _Builder(Struct):
    file: ModelFile
    resolver: Resolver
    observation: Observation
    trusts_bodies: bool
    weights: _Weights = field(default_factory=_Weights)
    nodes_left: int = MAX_NODES

    def build(self, block: ParsedGraph, scope: Scope, given: Sequence[Tensor] = ()) -> Graph:
        proto = block.proto
        for initializer in proto.initializer:
            self.add_weight(scope, initializer.name, initializer, "initializer")
        for sparse in proto.sparse_initializer:
            self.add_sparse(scope, sparse.values.name, sparse)
        inputs = _add_inputs(proto, scope, given)
        self.nodes_left -= len(block.calls)
        if self.nodes_left < 0:
            raise ModelError(
                f"{self.file.name} has more than {MAX_NODES:,} nodes, those of the bodies of its "
                "control flow included."
            )
        calls = execution_order(block.calls, scope, self.file.name)
        added = [self.add_node(scope, call) for call in calls]
        outputs = tuple(self.output(scope, info.name) for info in proto.output)
        nodes = tuple([node for node in added if node is not None])
        return Graph(proto.name, inputs, outputs, nodes, {})

    def output(self, scope: Scope, name: str) -> Tensor:
        tensor = scope.find(name)
        if tensor is None:
            raise ModelError(
                f"{self.file.name} has the output {printable(name)!r}, but no node makes "
                "it. The file is damaged: export the model again."
            )
        self.weights.used.update(tensor.weights)
        return tensor

    # -- weights: the name of a weight in a body starts with the path to the body

    def add_weight(self, scope: Scope, name: str, tensor: TensorProto, origin: str) -> None:
        dtype, shape = dtype_name(tensor.data_type) or "", tuple(tensor.dims)
        weight, size = scope.path + name, prod(shape)
        self.weights.found[weight] = Weight(weight, dtype, shape, origin, byte_size(dtype, size))
        self.weights.stored[weight] = tensor
        asked_for = size <= _SMALL or (size <= MAX_ELEMENTS and dtype in _VALUE_DTYPES)
        value = self.small_value(tensor) if asked_for else None
        scope.tensors[name] = Tensor(
            name, dtype, shape, is_constant=True, value=value, weights=(weight,)
        )

    def small_value(self, tensor: TensorProto) -> Value | None:
        """Return the value of a small tensor, or None if it is skipped or its file is missing."""
        if is_external(tensor):
            # Some exporters store even the targets of a Reshape in another file. Counts that do not
            # need these values must work without that file.
            with suppress(ModelError):
                return self.file.read_tensor(tensor)
            return None
        is_skipped = tensor.data_location == TensorProto.EXTERNAL
        return None if is_skipped else self.file.read_tensor(tensor)

    def add_sparse(self, scope: Scope, name: str, sparse: SparseTensorProto) -> None:
        dtype = dtype_name(sparse.values.data_type) or ""
        shape = tuple(sparse.dims)
        problem = problem_of_dims(shape)
        if problem is not None:
            raise ModelError(f"the sparse weight {printable(name)!r} of {self.file.name} {problem}")
        weight = scope.path + name
        nonzeros = prod(sparse.values.dims)
        nbytes = byte_size(dtype, nonzeros) + byte_size("int64", prod(sparse.indices.dims))
        self.weights.found[weight] = Weight(
            weight, dtype, shape, "sparse", nbytes, nonzeros=nonzeros
        )
        scope.tensors[name] = Tensor(name, dtype, shape, is_constant=True, weights=(weight,))

    def add_constant(self, scope: Scope, call: Call) -> None:
        attributes = call.proto.attribute
        if not call.outputs or not attributes:
            raise ModelError(
                f"{self.file.name} has a Constant without a value: {describe(call)}. The file is "
                "damaged: export the model again."
            )
        name, attribute = call.outputs[0], attributes[0]
        if attribute.name == "sparse_value":
            self.add_sparse(scope, name, attribute.sparse_tensor)
            return
        is_tensor = attribute.type == AttributeProto.TENSOR
        tensor = attribute.t if is_tensor else constant_tensor(attribute)
        if tensor is None:
            raise ModelError(
                f"{self.file.name} has a Constant of an unknown kind "
                f"({printable(attribute.name)!r}): {describe(call)}. The file is damaged: export "
                "the model again."
            )
        self.add_weight(scope, name, tensor, "Constant")

    def add_node(self, scope: Scope, call: Call) -> Node | None:
        """Return the node's record, or None if it is folded into a constant."""
        if call.op_type == "Constant" and not call.domain:
            self.add_constant(scope, call)
            return None
        outputs = tuple([scope.inferred(name) if name else None for name in call.outputs])
        node = Node(
            call.proto.name,
            call.op_type,
            call.domain,
            # execution_order has checked that every input exists.
            tuple([scope.find(name) if name else None for name in call.inputs]),
            outputs,
            call.attributes,
            opset=self.resolver.opsets.get(call.domain, 0),
        )
        for name in call.outputs:
            scope.producers[name] = call
        if call.bodies:
            node = self.with_bodies(scope, node, call)
        for tensor in outputs:
            if tensor is not None and not (tensor.is_complete or scope.is_no_tensor(tensor.name)):
                outputs = self.observed(scope, call, self.resolver.outputs(node, call, scope))
                node = replace(node, outputs=outputs)
                break
        folded = not call.bodies and _can_be_folded(node)
        if folded:
            outputs = self.folded_outputs(scope, node)
        self.weights.count_uses(node, runs=not folded)
        for tensor in outputs:
            if tensor is not None:
                problem = problem_of_dims(tensor.shape or ())
                if problem is not None:
                    where = f"an output of {describe(call)} of {self.file.name}"
                    raise ModelError(f"{where} {problem}")
                scope.tensors[tensor.name] = tensor
        return None if folded else node

    def observed(
        self, scope: Scope, call: Call, outputs: tuple[Tensor | None, ...]
    ) -> tuple[Tensor | None, ...]:
        seen = self.observation.nodes.get(_place(scope, call))
        if seen is None:
            return outputs
        return tuple(
            None if tensor is None else refined(tensor, OutputType(None, shape))
            for tensor, shape in zip(outputs, seen.outputs, strict=True)
        )

    def folded_outputs(self, scope: Scope, node: Node) -> tuple[Tensor | None, ...]:
        """Return the constant outputs of a folded node. If it has no inputs, they are weights."""
        found = self.weights.found
        sources = tuple(dict.fromkeys(n for t in node.inputs if t is not None for n in t.weights))
        derived = node.op_type == "DequantizeLinear" or any(
            found[name].dtype.startswith(("float", "bfloat")) for name in sources
        )
        constants: list[Tensor | None] = []
        for tensor in node.outputs:
            if tensor is None:
                constants.append(None)
                continue
            weights, nbytes = sources, tensor.nbytes
            if not derived and tensor.is_float and nbytes is not None:
                name = scope.path + tensor.name
                found[name] = Weight(name, tensor.dtype or "", tensor.dims, node.op_type, nbytes)
                weights = (name,)
            constants.append(
                Tensor(tensor.name, tensor.dtype, tensor.shape, is_constant=True, weights=weights)
            )
        return tuple(constants)

    def with_bodies(self, scope: Scope, node: Node, call: Call) -> Node:
        bodies, place, op = call.bodies, _place(scope, call), node.qualified_op
        if op == "Loop" and "body" in bodies:
            return self.with_loop_body(scope, node, call)
        if op == "Scan" and "body" in bodies:
            given, trips = scan_inputs(node)
            body = self.body(scope, node, (*place, "body"), bodies["body"], given)
            return replace(node, bodies={"body": body}, trips=self.trips(place, trips))
        if op == "If":
            condition = scope.value_of(call.inputs[0]) if call.inputs else None
            taken = self.observation.branches.get(place)
            if condition is not None and condition.size == 1:
                taken = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
            if taken is not None:
                bodies = {name: body for name, body in bodies.items() if name == taken}
        built = {n: self.body(scope, node, (*place, n), b) for n, b in bodies.items()}
        # FlexAttention applies each body to all scores at once. A SequenceMap runs its body once
        # for each element of the sequence; for a custom operator the number is unknown.
        runs_once = op in {"If", "ai.onnx.preview::FlexAttention"}
        return replace(node, bodies=built, trips=self.trips(place, 1 if runs_once else None))

    def body(
        self,
        scope: Scope,
        node: Node,
        place: NodePlace,
        block: ParsedGraph,
        given: Sequence[Tensor] = (),
    ) -> Graph:
        path = f"{scope.path}{node.name or node.id}/{place[-1]}/"
        inner = Scope(scope, path, scope.opset, place)
        if self.trusts_bodies:
            infos = (*block.proto.value_info, *block.proto.output, *block.proto.input)
            inner.declared = {info.name: info.type for info in infos}
        return self.build(block, inner, given)

    def with_loop_body(self, scope: Scope, node: Node, call: Call) -> Node:
        block, place = call.bodies["body"], _place(scope, call)
        inside = (*place, "body")
        trips = self.trips(place, self.loop_trips(scope, call))
        given = loop_inputs(node, block)
        body = self.body(scope, node, inside, block, given)
        while trips not in {0, 1}:
            # If a trip changes the shape of a value, only the unchanged dimensions are known. A
            # value that is computed from another one changes one trip later.
            stable = stable_inputs(given, body.outputs)
            if all(a.shape == b.shape for a, b in zip(given, stable, strict=False)):
                break
            given = stable
            body = self.body(scope, node, inside, block, given)
        return replace(node, bodies={"body": body}, trips=trips)

    def trips(self, place: NodePlace, stated: int | None) -> int | None:
        """Return how often a body runs, from the graph or else from an observed run."""
        return self.observation.trips.get(place) if stated is None else stated

    def loop_trips(self, scope: Scope, call: Call) -> int | None:
        """Return how often a Loop runs: its trip count, unless a condition may end it earlier."""
        limit = scope.value_of(call.inputs[0]) if call.inputs[0] else None
        start = call.inputs[1] if len(call.inputs) > 1 else ""
        condition = scope.value_of(start) if start else None
        if start and (condition is None or condition.size != 1):
            return None
        if condition is not None and not bool(condition.reshape(-1)[0]):
            return 0
        stays = condition_stays(call.bodies["body"], self.is_true, scope.value_of)
        if limit is None or limit.size != 1 or not stays:
            return None
        return max(0, int(limit.reshape(-1)[0]))

    def is_true(self, tensor: TensorProto) -> bool:
        return prod(tensor.dims) == 1 and bool(self.file.read_tensor(tensor).reshape(-1)[0])


def _place(scope: Scope, call: Call) -> NodePlace:
    return (*scope.place, next((name for name in call.outputs if name), call.proto.name))


def _add_inputs(proto: GraphProto, scope: Scope, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
    inputs = []
    for index, info in enumerate(proto.input):
        if info.name in scope.tensors:
            continue
        tensor = scope.inferred(info.name)
        if index < len(given):
            tensor = refined(tensor, given[index])
        if info.name in scope.declared:
            tensor = refined(tensor, read_type(scope.declared[info.name]))
        scope.tensors[info.name] = tensor
        inputs.append(tensor)
    return tuple(inputs)


def _can_be_folded(node: Node) -> bool:
    if node.domain:
        is_same_each_time = node.qualified_op in _FOLDED_OUTSIDE
    else:
        is_same_each_time = node.op_type not in RANDOM
    # A list takes half the time of a generator.
    return is_same_each_time and all([t is None or t.is_constant for t in node.inputs])  # noqa: C419
