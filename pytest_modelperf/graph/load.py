"""Load a model with bound dimensions and known shapes, as every profile needs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod

import numpy as np
import onnx
from msgspec import Struct
from msgspec.structs import replace
from onnx import TypeProto

from pytest_modelperf.errors import MisfitError, ModelError, OpenSizesError
from pytest_modelperf.graph.batch import find_misfits, follow_batch, refusal, verify_rebound
from pytest_modelperf.graph.binding import Binding, BoundInputs, DeclaredInput, Dim, bind_inputs
from pytest_modelperf.graph.build import BuiltGraph, GraphBuild
from pytest_modelperf.graph.convert import ParsedGraph, read_graph, unified_domain
from pytest_modelperf.graph.inference_inputs import (
    BoundPhase,
    bind_phase,
    require_equal_shapes,
    require_fitting_values,
)
from pytest_modelperf.graph.model_file import ModelFile, dtype_name
from pytest_modelperf.graph.resolve import Resolver
from pytest_modelperf.graph.scope import MAX_ELEMENTS
from pytest_modelperf.graph.shape_rules import ShapeRule
from pytest_modelperf.graph.stored_tensors import stored_names, walk_nodes, with_bodies
from pytest_modelperf.graph.structure import Graph, Observation, Tensor, Value
from pytest_modelperf.graph.validity import (
    check_calls,
    check_functions,
    check_opsets,
    check_stored_tensors,
    import_implied,
)
from pytest_modelperf.graph.weights.numbers import NUMPY_DTYPES
from pytest_modelperf.text.escaping import printable

# If this is left out, the inference of onnx 1.23 assumes that an STFT keeps all frequencies, and
# finds no shape for a normalization.
_MISREAD = {
    "STFT": onnx.helper.make_attribute("onesided", 1),
    "MeanVarianceNormalization": onnx.helper.make_attribute("axes", [0, 2, 3]),
}


class BoundModel(Struct, frozen=True, eq=False):
    """A model at one set of dimensions.

    `proto` is the model as it has to run at these dimensions. Its weights stay in the file.
    `rewritten` names the nodes that had to be changed for a batch size other than the model's own.
    `notes` are remarks on its shapes. `phase` is the one that it is bound for, if any. `build`
    finds all shapes, and can take the observations of a run into account.
    """

    file: ModelFile
    proto: onnx.ModelProto
    inputs: BoundInputs
    graph: Graph
    tensors: Mapping[str, Tensor]
    stored: Mapping[str, onnx.TensorProto]
    build: GraphBuild
    rewritten: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    phase: BoundPhase | None = None

    def observed(self, observation: Observation) -> BoundModel:
        """Return the model with the shapes that a run showed. It is not read or bound again."""
        built = _built(self.build, self.inputs, self.phase, observation)
        graph, tensors, stored = built.graph, built.tensors, built.stored
        notes = _notes(built, self.phase)
        return replace(self, graph=graph, tensors=tensors, stored=stored, notes=notes)

    def read_weight(self, name: str) -> Value | None:
        """Return the values of a stored weight, or None for one that a node generates."""
        tensor = self.stored.get(name)
        return None if tensor is None else self.file.read_tensor(tensor)


class Asked(Struct, frozen=True, eq=False):
    """A model and the requested sizes, for an error about sizes to carry."""

    file: ModelFile
    binding: Binding
    shape_rules: Mapping[str, ShapeRule]


def load_model(
    file: ModelFile,
    binding: Binding | None = None,
    shape_rules: Mapping[str, ShapeRule] | None = None,
) -> BoundModel:
    """Load the model in `file` with its inputs bound by `binding`.

    `shape_rules` are the rules of plugins, by `domain::Op`. They take precedence. An error about
    sizes carries an `Asked`.
    """
    asked = Asked(file, binding or Binding(), shape_rules or {})
    with asking(asked):
        return _load(asked)


@contextmanager
def asking(asked: Asked) -> Iterator[None]:
    """Attach the request to an error about sizes."""
    try:
        yield
    except (MisfitError, OpenSizesError) as error:
        error.asked = asked
        raise


def _load(asked: Asked) -> BoundModel:
    file, binding, rules = asked.file, asked.binding, asked.shape_rules
    unfolded = _unfolded(file)
    proto, block = unfolded.proto, unfolded.block
    resolver = Resolver(
        file.name, unfolded.opsets, list(proto.opset_import), proto.ir_version, rules
    )
    inputs = declared_inputs(proto)
    phase = bind_phase(inputs, declared_outputs(proto), binding, file.name)
    bound = bind_inputs(inputs, binding if phase is None else phase.at_step(), file.name)
    for spec in bound.values.values():
        require_fitting_values(spec, file.name)
    declared = None if bound.rebound else _declared_types(proto, bound)
    values = _given_values(bound)
    rewritten: tuple[str, ...] = ()
    before = None
    _forget_shapes(proto.graph)
    if bound.rebound:
        # The inputs of bodies have shapes from the graph around them. Scalars keep their shape: a
        # batch does not change them, and a Loop needs the shape of its first input.
        _, *bodies = block.walk()
        for body in bodies:
            _forget_shapes(body.proto)
            _clear_shapes(each for each in body.proto.input if each.type.tensor_type.shape.dim)
        before = GraphBuild(file, resolver, values, proto, block, None)().graph
        rewritten = follow_batch(proto, before, bound)
        block = read_graph(proto.graph, file.name)
    _bind(proto.graph, bound)
    build = GraphBuild(file, resolver, values, proto, block, declared)
    try:
        built = _built(build, bound, phase)
    except MisfitError as error:
        if before is None:
            raise
        raise refusal(error.where, bound, file.name) from error
    if before is not None:
        verify_rebound(before, built.graph, bound, file.name)
    return BoundModel(
        file, proto, bound, built.graph, built.tensors, built.stored, build, rewritten,
        notes=_notes(built, phase), phase=phase,
    )  # fmt: skip


def _built(
    build: GraphBuild,
    inputs: BoundInputs,
    phase: BoundPhase | None,
    observation: Observation | None = None,
) -> BuiltGraph:
    built = build(observation)
    if phase is not None:
        outputs = {tensor.name: tensor.shape for tensor in built.graph.outputs}
        require_equal_shapes(phase.state, inputs.shapes, outputs, build.file.name)
    return built


def _notes(built: BuiltGraph, phase: BoundPhase | None) -> tuple[str, ...]:
    return (*find_misfits(built.graph), *(phase.notes if phase else ()))


def declared_inputs(proto: onnx.ModelProto) -> tuple[DeclaredInput, ...]:
    """Return the inputs that the user must give, as the model declares them."""
    stored = stored_names(proto.graph)
    batches, sizes = _state_batches(proto.graph), _head_sizes(proto.graph)
    inputs = (
        DeclaredInput(info.name, *_declared_type(info.type), batch_axis=batches.get(info.name))
        for info in proto.graph.input
        if info.name not in stored
    )
    return tuple(_with_head_size(each, sizes) for each in inputs)


def _with_head_size(declared: DeclaredInput, sizes: Mapping[str, int]) -> DeclaredInput:
    """Return the input with the size of a head. For packed integers it differs."""
    name = declared.dims[-1] if declared.dims else None
    is_float = declared.dtype in {"float32", "float16", "bfloat16"}
    if declared.name not in sizes or not isinstance(name, str) or not is_float:
        return declared
    return replace(declared, known=((name, sizes[declared.name]),))


def declared_outputs(proto: onnx.ModelProto) -> tuple[DeclaredInput, ...]:
    return tuple(
        DeclaredInput(info.name, *_declared_type(info.type)) for info in proto.graph.output
    )


def _declared_type(kind: TypeProto) -> tuple[str | None, tuple[Dim, ...] | None]:
    if not kind.HasField("tensor_type"):
        return None, None
    tensor = kind.tensor_type
    dtype = dtype_name(tensor.elem_type)
    if not tensor.HasField("shape"):
        return dtype, None
    dims: list[Dim] = []
    for dim in tensor.shape.dim:
        if _is_open(dim):
            dims.append(None)
        else:
            dims.append(dim.dim_value if dim.HasField("dim_value") else dim.dim_param)
    return dtype, tuple(dims)


def _is_open(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether a size is unknown: some exporters write `?` or -1, so two such sizes may differ."""
    return dim.dim_value == -1 if dim.HasField("dim_value") else dim.dim_param in {"", "?"}


class _Unfolded(Struct, frozen=True, eq=False):
    proto: onnx.ModelProto
    block: ParsedGraph
    opsets: Mapping[str, int]


def _unfolded(file: ModelFile) -> _Unfolded:
    proto = onnx.ModelProto()
    proto.CopyFrom(file.proto)
    block = read_graph(proto.graph, file.name)
    import_implied(proto, block)
    opsets = dict(check_opsets(proto, file.name))
    if proto.functions:
        proto = _without_functions(file, proto)
        opsets.update((unified_domain(e.domain), e.version) for e in proto.opset_import)
        block = read_graph(proto.graph, file.name)
    for inner in block.walk():
        check_stored_tensors(inner, file)
        check_calls(inner.calls, opsets, file)
    _spell_domains(proto, block)
    if _state_misread(block):
        block = read_graph(proto.graph, file.name)
    return _Unfolded(proto, block, opsets)


def _without_functions(file: ModelFile, proto: onnx.ModelProto) -> onnx.ModelProto:
    check_functions(file)

    _state_defaults(proto)
    _align_opsets(proto)

    from onnx import inliner

    try:
        return inliner.inline_local_functions(proto)
    except Exception as error:
        raise ModelError(
            f"the local functions of {file.name} cannot be unfolded: {printable(str(error))}"
        ) from error


def _state_defaults(proto: onnx.ModelProto) -> None:
    """Add the defaults that calls of local functions leave out, because the inliner does not."""
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in proto.functions}
    for node in walk_nodes(proto):
        given = {attribute.name for attribute in node.attribute}
        for attribute in defaults.get((node.domain, node.op_type, node.overload), ()):
            if attribute.name not in given:
                node.attribute.append(attribute)


def _align_opsets(proto: onnx.ModelProto) -> None:
    """Make local functions import the opsets of the model, as ONNX Runtime does."""
    # The standard lets a function import another version if its operators mean the same in both.
    # The inliner would convert such a function, for which it needs types that few models declare.
    versions = {unified_domain(entry.domain): entry.version for entry in proto.opset_import}
    for function in proto.functions:
        for entry in function.opset_import:
            entry.version = versions.setdefault(unified_domain(entry.domain), entry.version)


def _state_misread(block: ParsedGraph) -> bool:
    """Write out the defaults that onnx's inference misreads, and return whether any was missing."""
    if not block.has_any(_MISREAD):
        return False
    has_changed = False
    for inner in block.walk():
        for call in inner.calls:
            default = None if call.domain else _MISREAD.get(call.op_type)
            if default is not None and default.name not in call.attributes:
                call.proto.attribute.append(default)
                has_changed = True
    return has_changed


def _spell_domains(proto: onnx.ModelProto, block: ParsedGraph) -> None:
    """Remove the name of the standard domain, because onnx treats it as another domain."""
    for entry in proto.opset_import:
        if entry.domain == "ai.onnx":
            entry.domain = ""
    for inner in block.walk():
        for call in inner.calls:
            if not call.domain and call.proto.domain:
                call.proto.domain = ""


def _declared_types(proto: onnx.ModelProto, bound: BoundInputs) -> dict[str, TypeProto]:
    declared: dict[str, TypeProto] = {}
    for info in (*proto.graph.value_info, *proto.graph.output):
        kind = TypeProto()
        kind.CopyFrom(info.type)
        for dim in kind.tensor_type.shape.dim if kind.HasField("tensor_type") else ():
            if dim.dim_param in bound.dims:
                dim.dim_value = bound.dims[dim.dim_param]
            elif _is_open(dim):
                dim.Clear()
        declared[info.name] = kind
    return declared


def _bind(graph: onnx.GraphProto, bound: BoundInputs) -> None:
    for info in graph.input:
        shape = bound.shapes.get(info.name)
        if shape is None or not info.type.HasField("tensor_type"):
            continue
        dims = info.type.tensor_type.shape
        dims.ClearField("dim")
        for size in shape:
            dims.dim.add().dim_value = size


def _forget_shapes(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    _clear_shapes(graph.output)


def _clear_shapes(infos: Iterable[onnx.ValueInfoProto]) -> None:
    for info in infos:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")


def _given_values(bound: BoundInputs) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, spec in bound.values.items():
        if spec.value is None or prod(spec.shape) > MAX_ELEMENTS or spec.dtype not in NUMPY_DTYPES:
            continue
        filled = np.broadcast_to(np.asarray(spec.value), (prod(spec.shape),))
        # A number beyond the range of a float becomes infinite.
        with np.errstate(all="ignore"):
            values[name] = filled.reshape(spec.shape).astype(spec.dtype)
    return values


# -- what the nodes that use an input add to its declared shape: the batch axis of a state, and the
# size of an attention head


# The places of the states among the inputs of an operator; their shape is
# [directions, batch, size].
_STATES = {"GRU": (5,), "LSTM": (5, 6), "RNN": (5,)}
_RANK, _BATCH_AXIS = 3, 1
# These select some layers of a state, or reshape it, and keep its batch.
_PASSES = frozenset({"Cast", "Gather", "Identity", "Slice", "Split", "Squeeze", "Unsqueeze"})

_ATTENTION, _DOMAIN = "GroupQueryAttention", "com.microsoft"
# The places of the caches among the inputs of that operator.
_CACHES = (3, 4)


def _state_batches(graph: onnx.GraphProto) -> dict[str, int]:
    """Map each input that holds a recurrent state of [layers, batch, size] to its batch axis."""
    # Such an input often leaves its batch without a name, or fixes it, while the data names it.
    inputs = [i.name for i in graph.input if len(i.type.tensor_type.shape.dim) == _RANK]
    if not inputs:
        return {}
    sources: dict[str, list[str]] = {}
    states: list[str] = []
    # An exporter may put the whole model into an If.
    for node in with_bodies(graph.node):
        op = node.op_type
        if op in _PASSES and node.input:
            for name in node.output:
                sources.setdefault(name, []).append(node.input[0])
        elif op == "If":
            branches = (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)
            for branch in branches:
                for name, made in zip(node.output, branch.output, strict=False):
                    sources.setdefault(name, []).append(made.name)
        elif op in _STATES and not _has_batch_first(node):
            states += [node.input[place] for place in _STATES[op] if place < len(node.input)]
    held = _origins(states, sources)
    return dict.fromkeys(held.intersection(inputs), _BATCH_AXIS)


def _has_batch_first(node: onnx.NodeProto) -> bool:
    return any(each.name == "layout" and each.i == 1 for each in node.attribute)


def _origins(names: Sequence[str], sources: Mapping[str, Sequence[str]]) -> set[str]:
    waiting, seen = list(names), set(names)
    while waiting:
        new = set(sources.get(waiting.pop(), ())) - seen
        seen |= new
        waiting += new
    return seen


def _head_sizes(graph: onnx.GraphProto) -> dict[str, int]:
    """Map each input that holds keys or values to the size of a head."""
    # onnxruntime-genai names the last dimension of a cache instead of fixing it, so that one model
    # also serves quantized caches. The width of the result of attention, divided by the number of
    # heads, is the size of one head.
    widths: dict[str, int] | None = None
    sizes: dict[str, int] = {}
    for node in graph.node:
        if node.op_type != _ATTENTION or node.domain != _DOMAIN:
            continue
        widths = _widths(graph) if widths is None else widths
        heads = next((each.i for each in node.attribute if each.name == "num_heads"), 0)
        width = widths.get(node.output[0], 0) if node.output else 0
        if heads > 0 and width > 0 and width % heads == 0:
            caches = (node.input[place] for place in _CACHES if place < len(node.input))
            sizes |= dict.fromkeys(filter(None, caches), width // heads)
    return sizes


def _widths(graph: onnx.GraphProto) -> dict[str, int]:
    shapes = {info.name: info.type.tensor_type.shape.dim for info in graph.value_info}
    return {name: dims[-1].dim_value for name, dims in shapes.items() if dims}
