"""From a protobuf graph with bound inputs to the records of `structure`, shapes included.

Shapes come, in this order, from onnx's inference over the whole graph; from a rule for the
operator (a plugin's, or ours for `com.microsoft`); from onnx's inference for the one node, now
with the values of its small inputs; from the bodies of control flow; and from what the model
declares. One walk in execution order, so that each finding reaches the nodes behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, defs, helper

from pytest_modelperf.errors import ExtensionError, ModelError
from pytest_modelperf.graph import control_flow
from pytest_modelperf.graph.contrib_shapes import SHAPE_RULES
from pytest_modelperf.graph.convert import (
    constant_tensor,
    has_bodies,
    output_type,
    read_attributes,
    read_type,
)
from pytest_modelperf.graph.folding import FOLDABLE, MAX_ELEMENTS, fold
from pytest_modelperf.graph.model_file import (
    DATA_TYPES,
    ModelFile,
    check_stored_size,
    dtype_name,
    is_external,
)
from pytest_modelperf.graph.parameters import count_params, find_zero_point
from pytest_modelperf.graph.shape_rule import OutputType, ShapeRule
from pytest_modelperf.graph.structure import (
    BITS,
    Graph,
    Node,
    Tensor,
    UnknownShapeError,
    Weight,
    ZeroPoint,
)
from pytest_modelperf.graph.validity import (
    MAX_BODY_DEPTH,
    MAX_NODES,
    describe,
    execution_order,
)
from pytest_modelperf.units import printable

if TYPE_CHECKING:
    from pytest_modelperf.graph.structure import Value

# Operators whose result differs from run to run: no engine folds them, whatever they take.
_RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
})  # fmt: skip

# How long a chain of constants is followed; shape computations are a few dozen nodes long.
MAX_FOLD_DEPTH = 100


@dataclass(slots=True)
class _Found:
    """What is gathered over all scopes of one model."""

    weights: dict[str, Weight] = field(default_factory=dict)
    tensors: dict[str, TensorProto] = field(default_factory=dict)
    params: dict[str, int] = field(default_factory=dict)
    zero_points: dict[str, ZeroPoint] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class BuiltGraph:
    """The graph, all of its tensors by name, constants included, and where its weights are.

    `stored` has, for each weight that is stored, the protobuf that says where its bytes lie.
    """

    graph: Graph
    tensors: Mapping[str, Tensor]
    stored: Mapping[str, TensorProto]


def build_graph(
    file: ModelFile,
    proto: onnx.ModelProto,
    opsets: Mapping[str, int],
    rules: Mapping[str, ShapeRule],
    declared: Mapping[str, TypeProto],
) -> BuiltGraph:
    """The records of a model whose inputs are bound and whose types are inferred.

    `declared` are the types that the model itself gives, used where nothing better is known.
    """
    context = _Context(file, opsets, list(proto.opset_import), proto.ir_version, rules, declared)
    scope = _Scope(context, None, "", 0)
    graph = scope.build(proto.graph)
    found = context.found
    weights = {
        name: replace(
            weight, params=found.params.get(name, 0), zero_point=found.zero_points.get(name)
        )
        for name, weight in found.weights.items()
        if name in found.used
    }
    return BuiltGraph(
        replace(graph, weights=weights),
        scope.tensors,
        {name: tensor for name, tensor in found.tensors.items() if name in weights},
    )


@dataclass(frozen=True, slots=True)
class _Context:
    """What every scope of one model shares."""

    file: ModelFile
    opsets: Mapping[str, int]
    opset_imports: list[onnx.OperatorSetIdProto]
    ir_version: int
    rules: Mapping[str, ShapeRule]
    declared: Mapping[str, TypeProto]
    found: _Found = field(default_factory=_Found)


class _Scope:
    """The names of one graph or body while it is built; names not found here are asked outside."""

    def __init__(self, context: _Context, outer: _Scope | None, path: str, depth: int) -> None:
        self.context = context
        self.outer = outer
        self.path = path
        self.depth = depth
        self.tensors: dict[str, Tensor] = {}
        self.types: dict[str, TypeProto] = {}
        self.producers: dict[str, NodeProto] = {}
        self.values: dict[str, Value | None] = {}

    # -- names

    def find(self, name: str) -> Tensor | None:
        scope: _Scope | None = self
        while scope is not None:
            tensor = scope.tensors.get(name)
            if tensor is not None:
                return tensor
            scope = scope.outer
        return None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def type_proto(self, name: str) -> TypeProto | None:
        """The type of a value as onnx wants it, sequences and optionals included."""
        scope: _Scope | None = self
        while scope is not None:
            tensor = scope.tensors.get(name)
            if tensor is not None and tensor.dtype is not None and tensor.dtype in DATA_TYPES:
                return helper.make_tensor_type_proto(DATA_TYPES[tensor.dtype], tensor.shape)
            if name in scope.types:
                return scope.types[name]
            scope = scope.outer
        return None

    # -- building

    def build(self, proto: GraphProto, given: Sequence[Tensor] = ()) -> Graph:
        """The records of `proto`; `given` are the types of a body's inputs."""
        if self.depth > MAX_BODY_DEPTH:
            raise ModelError(
                f"{self.context.file.name} nests control flow deeper than {MAX_BODY_DEPTH} levels."
            )
        self.read_types(proto)
        for initializer in proto.initializer:
            self.add_weight(initializer.name, initializer, "initializer")
        for sparse in proto.sparse_initializer:
            self.add_sparse(sparse.values.name, sparse)
        inputs = []
        for index, info in enumerate(proto.input):
            if info.name in self.tensors:
                continue
            tensor = self.typed(info.name)
            if index < len(given):
                tensor = _refined(tensor, given[index])
            self.tensors[info.name] = tensor
            inputs.append(tensor)
        nodes = []
        for node in execution_order(proto.node, self, self.context.file.name):
            built = self.add_node(node)
            if built is not None:
                nodes.append(built)
        outputs = tuple(self.output(info.name) for info in proto.output)
        return Graph(proto.name, tuple(inputs), outputs, tuple(nodes), {})

    def read_types(self, proto: GraphProto) -> None:
        for infos in (proto.value_info, proto.output, proto.input):
            for info in infos:
                self.types[info.name] = info.type

    def typed(self, name: str) -> Tensor:
        """A tensor with the type that inference found for its name."""
        dtype, shape = read_type(self.types.get(name))
        return Tensor(name, dtype, shape)

    def output(self, name: str) -> Tensor:
        tensor = self.find(name)
        if tensor is None:
            raise ModelError(
                f"{self.context.file.name} gives out the tensor {printable(name)!r}, but nothing "
                "makes it. The file is damaged: export the model again."
            )
        self.use(tensor)
        return tensor

    # -- weights

    def weight_name(self, name: str) -> str:
        """The name of a weight; that of a body's own is led by the path to the body."""
        return f"{self.path}{name}"

    def add_weight(self, name: str, tensor: TensorProto, origin: str) -> Tensor:
        file = self.context.file
        if not is_external(tensor):
            check_stored_size(file, tensor, "the weight")
        dtype = dtype_name(tensor.data_type) or ""
        shape = tuple(tensor.dims)
        weight = self.weight_name(name)
        nbytes = (prod(shape) * BITS.get(dtype, 0) + 7) // 8
        self.context.found.weights[weight] = Weight(weight, dtype, shape, origin, nbytes)
        self.context.found.tensors[weight] = tensor
        value = None
        small = tensor.data_location != TensorProto.EXTERNAL and prod(shape) <= MAX_ELEMENTS
        if small and (not shape or dtype in ("int64", "int32", "bool") or prod(shape) <= 8):
            value = file.read_tensor(tensor)
        made = Tensor(name, dtype, shape, is_constant=True, value=value, weights=(weight,))
        self.tensors[name] = made
        return made

    def add_sparse(self, name: str, sparse: onnx.SparseTensorProto) -> Tensor:
        check_stored_size(self.context.file, sparse.values, "the sparse weight")
        dtype = dtype_name(sparse.values.data_type) or ""
        shape = tuple(sparse.dims)
        if any(dim < 0 for dim in shape):
            raise ModelError(
                f"the sparse weight {printable(name)!r} of {self.context.file.name} has a "
                f"negative dimension: {list(shape)}."
            )
        weight = self.weight_name(name)
        stored = prod(sparse.values.dims) * BITS.get(dtype, 0) // 8
        stored += prod(sparse.indices.dims) * BITS["int64"] // 8
        self.context.found.weights[weight] = Weight(
            weight, dtype, shape, "sparse", stored, nonzeros=prod(sparse.values.dims)
        )
        made = Tensor(name, dtype, shape, is_constant=True, weights=(weight,))
        self.tensors[name] = made
        return made

    def use(self, tensor: Tensor) -> None:
        """Something that runs takes this constant: the weights behind it are part of the model."""
        self.context.found.used.update(tensor.weights)

    def count_uses(self, node: Node, *, runs: bool) -> None:
        found = self.context.found
        for index, tensor in enumerate(node.inputs):
            if tensor is None or not tensor.weights:
                continue
            if runs:
                self.use(tensor)
            for name in tensor.weights:
                weight = found.weights[name]
                # What a constant node makes of a weight has another type; only the dequantizer
                # decides there whether integers are weights.
                if not runs and node.op_type != "DequantizeLinear":
                    continue
                params = count_params(
                    node.op_type, index, weight.dtype, weight.shape, node.attributes
                )
                found.params[name] = max(found.params.get(name, 0), params)
            zero_point = find_zero_point(node, index)
            if zero_point is not None and len(tensor.weights) == 1:
                found.zero_points[tensor.weights[0]] = zero_point

    # -- nodes

    def add_node(self, proto: NodeProto) -> Node | None:
        """The node's record; None where it is folded away into a constant."""
        self.count_node()
        if proto.op_type == "Constant" and proto.domain in ("", "ai.onnx"):
            self.add_constant(proto)
            return None
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        outputs = tuple(self.typed(name) if name else None for name in proto.output)
        node = Node(
            name=proto.name,
            op_type=proto.op_type,
            domain=domain,
            inputs=tuple(self.source(name, proto) for name in proto.input),
            outputs=outputs,
            attributes=read_attributes(proto),
            opset=self.context.opsets.get(domain, 0),
        )
        for name in proto.output:
            self.producers[name] = proto
        has_body = has_bodies(proto)
        if has_body:
            node = self.with_bodies(node, proto)
        if not all(t is None or _is_complete(t) or self.is_no_tensor(t) for t in outputs):
            outputs = self.resolved_outputs(node, proto)
            node = replace(node, outputs=outputs)
        constant = not has_body and node.op_type not in _RANDOM and _takes_constants(node)
        if constant:
            outputs = self.constant_outputs(node)
        self.count_uses(node, runs=not constant)
        for tensor in outputs:
            if tensor is not None:
                self.tensors[tensor.name] = tensor
        return None if constant else node

    def count_node(self) -> None:
        self.context.found.nodes += 1
        if self.context.found.nodes > MAX_NODES:
            raise ModelError(
                f"{self.context.file.name} has more than {MAX_NODES:,} nodes, those of the bodies "
                "of its control flow included."
            )

    def source(self, name: str, node: NodeProto) -> Tensor | None:
        if not name:
            return None
        tensor = self.find(name)
        if tensor is None:
            raise ModelError(
                f"{self.context.file.name} takes the tensor {printable(name)!r} in "
                f"{describe(node)}, but nothing makes it. The file is damaged: export the "
                "model again."
            )
        return tensor

    def add_constant(self, node: NodeProto) -> None:
        if not node.output or not node.attribute:
            raise ModelError(
                f"{self.context.file.name} has a Constant without a value: {describe(node)}."
            )
        name, attribute = node.output[0], node.attribute[0]
        if attribute.name == "sparse_value":
            self.add_sparse(name, attribute.sparse_tensor)
            return
        if attribute.type == AttributeProto.TENSOR:
            self.add_weight(name, attribute.t, "Constant")
            return
        tensor = constant_tensor(attribute)
        if tensor is None:
            raise ModelError(
                f"{self.context.file.name} has a Constant of an unknown kind "
                f"({printable(attribute.name)!r}): {describe(node)}."
            )
        self.add_weight(name, tensor, "Constant")

    def constant_outputs(self, node: Node) -> tuple[Tensor | None, ...]:
        """What a node of constants makes is constant, and a weight where it comes from nothing."""
        found = self.context.found
        sources = tuple(dict.fromkeys(n for t in node.inputs if t is not None for n in t.weights))
        derived = node.op_type == "DequantizeLinear" or any(
            found.weights[name].dtype.startswith(("float", "bfloat")) for name in sources
        )
        constants: list[Tensor | None] = []
        for tensor in node.outputs:
            if tensor is None:
                constants.append(None)
                continue
            weights = sources
            nbytes = tensor.nbytes
            if not derived and tensor.is_float and nbytes is not None:
                name = self.weight_name(tensor.name)
                found.weights[name] = Weight(
                    name, tensor.dtype or "", tensor.dims, node.op_type, nbytes
                )
                weights = (name,)
            constants.append(
                Tensor(tensor.name, tensor.dtype, tensor.shape, is_constant=True, weights=weights)
            )
        return tuple(constants)

    # -- types of outputs

    def resolved_outputs(self, node: Node, proto: NodeProto) -> tuple[Tensor | None, ...]:
        """The outputs of a node that inference over the whole graph could not tell completely."""
        tensors = node.outputs
        for answer in (self.by_rule, self.by_onnx, self.by_bodies, self.by_declaration):
            types = answer(node, proto)
            tensors = tuple(
                _refined(tensor, types[index])
                if tensor is not None and index < len(types)
                else tensor
                for index, tensor in enumerate(tensors)
            )
            if all(t is None or _is_complete(t) for t in tensors):
                break
        return tensors

    def is_no_tensor(self, tensor: Tensor) -> bool:
        kind = self.types.get(tensor.name)
        return kind is not None and kind.WhichOneof("value") not in (None, "tensor_type")

    def by_rule(self, node: Node, _: NodeProto) -> Sequence[OutputType | None]:
        custom = self.context.rules.get(node.qualified_op)
        if custom is not None:
            try:
                return tuple(custom(node))
            except UnknownShapeError:
                return ()
            except Exception as error:
                raise ExtensionError(
                    f"the shape rule registered for {printable(node.qualified_op)} failed on "
                    f"{printable(node.name or node.id)!r}: {type(error).__name__}: {error}"
                ) from error
        rule = SHAPE_RULES.get(node.qualified_op)
        if rule is None:
            return ()
        try:
            return rule(node)
        except UnknownShapeError:
            return ()

    def by_onnx(self, node: Node, proto: NodeProto) -> Sequence[OutputType | None]:
        if node.op_type in control_flow.CONTROL_FLOW and not node.domain:
            return ()
        try:
            schema = defs.get_schema(
                node.op_type, self.context.opsets.get(node.domain, 1), node.domain
            )
        except defs.SchemaError:
            return ()
        types: dict[str, TypeProto] = {}
        data: dict[str, TensorProto] = {}
        for name in proto.input:
            kind = self.type_proto(name) if name else None
            if kind is None:
                continue
            types[name] = kind
            value = self.value_of(name)
            if value is not None and value.dtype.kind in "iubf":
                data[name] = onnx.numpy_helper.from_array(value, name)
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema,
                proto,
                types,
                data,
                opset_imports=self.context.opset_imports,
                ir_version=self.context.ir_version,
            )
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError, TypeError):
            return ()
        for name, kind in found.items():
            if kind.WhichOneof("value") != "tensor_type":
                self.types[name] = kind
        return tuple(output_type(found.get(name)) for name in proto.output)

    def by_bodies(self, node: Node, _: NodeProto) -> Sequence[OutputType | None]:
        return control_flow.output_types(node)

    def by_declaration(self, _: Node, proto: NodeProto) -> Sequence[OutputType | None]:
        if self.outer is not None:
            return ()
        return tuple(output_type(self.context.declared.get(name)) for name in proto.output)

    # -- values

    def value_of(self, name: str, depth: int = 0) -> Value | None:
        """The value of a small tensor, where it follows from constants and known shapes."""
        scope: _Scope | None = self
        while scope is not None and name not in scope.tensors:
            scope = scope.outer
        if scope is None:
            return None
        tensor = scope.tensors[name]
        if tensor.value is not None:
            return tensor.value
        if name not in scope.values:
            scope.values[name] = None
            if depth < MAX_FOLD_DEPTH:
                scope.values[name] = scope.compute_value(name, tensor, depth)
        return scope.values[name]

    def compute_value(self, name: str, tensor: Tensor, depth: int) -> Value | None:
        node = self.producers.get(name)
        if node is None or node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type in ("Shape", "Size"):
            return _shape_value(node, self.find(node.input[0]))
        if node.op_type not in FOLDABLE or not _is_small(tensor):
            return None
        values = [self.value_of(name, depth + 1) if name else None for name in node.input]
        if any(v is None and n for v, n in zip(values, node.input, strict=True)):
            return None
        folded = fold(node, values, self.context.opsets.get("", 1))
        if folded is None:
            return None
        return dict(zip(node.output, folded, strict=False)).get(name)

    # -- control flow

    def with_bodies(self, node: Node, proto: NodeProto) -> Node:
        bodies = {
            attribute.name: attribute.g
            for attribute in proto.attribute
            if attribute.type == AttributeProto.GRAPH
        }
        if node.op_type == "If":
            condition = self.value_of(proto.input[0]) if proto.input else None
            if condition is not None and condition.size == 1:
                taken = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
                bodies = {name: body for name, body in bodies.items() if name == taken}
            return replace(node, bodies={n: self.body(node, n, b, ()) for n, b in bodies.items()})
        if node.op_type == "Loop" and "body" in bodies:
            return self.with_loop_body(node, proto, bodies["body"])
        if node.op_type == "Scan" and "body" in bodies:
            return self.with_scan_body(node, bodies["body"])
        built = {name: self.body(node, name, body, ()) for name, body in bodies.items()}
        # FlexAttention applies each body to all scores at once. A SequenceMap runs as often as
        # its sequence is long, a custom operator as it likes.
        once = node.op_type == "FlexAttention" and node.domain == "ai.onnx.preview"
        return replace(node, bodies=built, trips=1 if once else None)

    def body(self, node: Node, name: str, proto: GraphProto, given: Sequence[Tensor]) -> Graph:
        path = f"{self.path}{node.name or node.id}/{name}/"
        return _Scope(self.context, self, path, self.depth + 1).build(proto, given)

    def with_loop_body(self, node: Node, proto: NodeProto, body: GraphProto) -> Node:
        given = control_flow.loop_inputs(node)
        built = self.body(node, "body", body, given)
        # A value that a trip changes the shape of has no one shape: know only what stays.
        stable = control_flow.stable_inputs(given, built.outputs)
        if any(a.shape != b.shape for a, b in zip(given, stable, strict=False)):
            built = self.body(node, "body", body, stable)
        return replace(node, bodies={"body": built}, trips=self.loop_trips(proto, body))

    def loop_trips(self, node: NodeProto, body: GraphProto) -> int | None:
        """How often a Loop runs: its trip count, unless a condition may end it before."""
        limit = self.value_of(node.input[0]) if node.input and node.input[0] else None
        start = node.input[1] if len(node.input) > 1 else ""
        condition = self.value_of(start) if start else None
        if start and (condition is None or condition.size != 1):
            return None
        if condition is not None and not bool(condition.reshape(-1)[0]):
            return 0
        if limit is None or limit.size != 1 or not control_flow.condition_stays(body):
            return None
        return max(0, int(limit.reshape(-1)[0]))

    def with_scan_body(self, node: Node, body: GraphProto) -> Node:
        scanned = control_flow.scan_inputs(node)
        built = self.body(node, "body", body, scanned.given)
        return replace(node, bodies={"body": built}, trips=scanned.trips)


def _takes_constants(node: Node) -> bool:
    return all(tensor is None or tensor.is_constant for tensor in node.inputs)


def _is_complete(tensor: Tensor) -> bool:
    return tensor.dtype is not None and tensor.shape is not None and None not in tensor.shape


def _is_small(tensor: Tensor) -> bool:
    return _is_complete(tensor) and tensor.size <= MAX_ELEMENTS


def _refined(tensor: Tensor, more: Tensor | OutputType | None) -> Tensor:
    """`tensor` with what `more` knows in addition; what is known already stays."""
    if more is None:
        return tensor
    shape = tensor.shape
    if shape is None:
        shape = more.shape
    elif more.shape is not None and len(more.shape) == len(shape):
        shape = tuple(b if a is None else a for a, b in zip(shape, more.shape, strict=True))
    return replace(tensor, dtype=tensor.dtype or more.dtype, shape=shape)


def _shape_value(node: NodeProto, tensor: Tensor | None) -> Value | None:
    import numpy as np

    if tensor is None or tensor.shape is None:
        return None
    bounds = {a.name: a.i for a in node.attribute}
    shape = tensor.shape
    if node.op_type == "Shape":
        shape = shape[bounds.get("start", 0) : bounds.get("end", len(shape))]
    if None in shape:
        return None
    if node.op_type == "Size":
        return np.asarray(tensor.size, np.int64)
    return np.asarray(shape, np.int64)
