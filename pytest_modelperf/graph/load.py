"""One model, its dimensions bound and its shapes known: what every profile starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx
from onnx import TypeProto

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.batch import follow_batch, verify_rebound
from pytest_modelperf.graph.binding import (
    Binding,
    BoundInputs,
    DeclaredInput,
    Dim,
    bind_inputs,
)
from pytest_modelperf.graph.build import BuiltGraph, build_graph
from pytest_modelperf.graph.model_file import ModelFile, dtype_name
from pytest_modelperf.graph.shape_rule import ShapeRule
from pytest_modelperf.graph.structure import Graph, Tensor
from pytest_modelperf.graph.validity import check_functions, check_opsets
from pytest_modelperf.units import printable

if TYPE_CHECKING:
    from pytest_modelperf.graph.structure import Value


@dataclass(frozen=True, slots=True, eq=False)
class BoundModel:
    """A model at one set of dimensions.

    `proto` is the model as it has to run at these dimensions, its weights still in the file.
    `rewritten` names the nodes that had to be changed for another batch size than the model's
    own.
    """

    file: ModelFile
    proto: onnx.ModelProto
    inputs: BoundInputs
    graph: Graph
    tensors: Mapping[str, Tensor]
    stored: Mapping[str, onnx.TensorProto]
    rewritten: tuple[str, ...] = ()

    def read_weight(self, name: str) -> Value | None:
        """The values of a stored weight; None for one that a node generates."""
        tensor = self.stored.get(name)
        return None if tensor is None else self.file.read_tensor(tensor)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What beside the binding decides how a graph is read: the shape rules of plugins."""

    shape_rules: Mapping[str, ShapeRule] = field(default_factory=dict)


def load_model(
    file: ModelFile, binding: Binding | None = None, options: LoadOptions | None = None
) -> BoundModel:
    """The model in `file` with every input bound as `binding` says."""
    binding = binding or Binding()
    rules = (options or LoadOptions()).shape_rules
    opsets = check_opsets(file)
    proto = _without_functions(file)
    bound = bind_inputs(declared_inputs(proto), binding, file.name)
    declared = {} if bound.rebound else _declared_types(proto, bound)
    rewritten: tuple[str, ...] = ()
    if bound.rebound:
        before = _build(file, _bound(proto, None), opsets, rules, {})
        rewritten = follow_batch(proto, before.graph, bound)
    bound_proto = _bound(proto, bound)
    built = _build(file, bound_proto, opsets, rules, declared)
    if bound.rebound:
        verify_rebound(before.graph, built.graph, bound, file.name)
    return BoundModel(file, bound_proto, bound, built.graph, built.tensors, built.stored, rewritten)


def declared_inputs(proto: onnx.ModelProto) -> tuple[DeclaredInput, ...]:
    """The inputs that a caller has to give, as the model declares them."""
    stored = {i.name for i in proto.graph.initializer}
    stored |= {i.values.name for i in proto.graph.sparse_initializer}
    return tuple(
        DeclaredInput(info.name, *_declared_type(info.type))
        for info in proto.graph.input
        if info.name not in stored
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
        if dim.HasField("dim_value"):
            dims.append(dim.dim_value)
        else:
            dims.append(dim.dim_param or None)
    return dtype, tuple(dims)


def _without_functions(file: ModelFile) -> onnx.ModelProto:
    """A copy of the model that may be changed, with its local functions unfolded."""
    proto = onnx.ModelProto()
    proto.CopyFrom(file.proto)
    if not proto.functions:
        return proto
    check_functions(file)
    from onnx import inliner

    try:
        return inliner.inline_local_functions(proto)
    except RuntimeError as error:
        raise ModelError(
            f"the local functions of {file.name} cannot be unfolded: {printable(str(error))}"
        ) from error


def _declared_types(proto: onnx.ModelProto, bound: BoundInputs) -> dict[str, TypeProto]:
    """What the model says of its own tensors, with the bound dimensions put in."""
    declared: dict[str, TypeProto] = {}
    for info in (*proto.graph.value_info, *proto.graph.output):
        kind = TypeProto()
        kind.CopyFrom(info.type)
        for dim in kind.tensor_type.shape.dim if kind.HasField("tensor_type") else ():
            if dim.dim_param in bound.dims:
                dim.dim_value = bound.dims[dim.dim_param]
        declared[info.name] = kind
    return declared


def _bound(proto: onnx.ModelProto, bound: BoundInputs | None) -> onnx.ModelProto:
    """A copy with the inputs' shapes as bound, and without any other shape that it declares."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    _forget_shapes(copy.graph)
    for info in copy.graph.input if bound is not None else ():
        shape = bound.shapes.get(info.name) if bound is not None else None
        if shape is None or not info.type.HasField("tensor_type"):
            continue
        dims = info.type.tensor_type.shape
        dims.ClearField("dim")
        for size in shape:
            dims.dim.add().dim_value = size
    return copy


def _forget_shapes(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    for output in graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")


def _build(
    file: ModelFile,
    proto: onnx.ModelProto,
    opsets: Mapping[str, int],
    rules: Mapping[str, ShapeRule],
    declared: Mapping[str, TypeProto],
) -> BuiltGraph:
    return build_graph(file, _inferred(file, proto), opsets, rules, declared)


def _inferred(file: ModelFile, proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the shapes that onnx's own inference finds."""
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        first = printable(str(error).strip().splitlines()[0] if str(error) else repr(error))
        raise ModelError(
            f"the shapes of {file.name} do not fit together: {first[:300]}. Check the model "
            "with onnx.checker.check_model, or give its inputs with --input name:dtype:shape."
        ) from error
