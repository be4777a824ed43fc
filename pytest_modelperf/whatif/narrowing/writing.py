"""Write a narrowed model: the cut weights, and all others unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import GraphProto, TensorProto

from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.model_file import DATA_TYPES, ModelFile, external_tensors, is_external
from pytest_modelperf.graph.number_codes import codes_of
from pytest_modelperf.graph.repeated import remove_named
from pytest_modelperf.graph.replaced import Replacement, write_replaced
from pytest_modelperf.graph.stored_tensors import StorageKind, dense_weights, used_names
from pytest_modelperf.graph.structure import Tensor
from pytest_modelperf.graph.weight_pieces import stored_number
from pytest_modelperf.whatif.narrowing.plan import RemovalPlan
from pytest_modelperf.whatif.narrowing.rewriting import Rewriter

if TYPE_CHECKING:
    from pytest_modelperf.graph.structure import Value


def write_planned(bound: BoundModel, plan: RemovalPlan, path: Path, max_file_bytes: int) -> None:
    """Write the model after the removal; a larger one has its weights in a file beside it."""
    proto = plan.related.proto
    rewriter = Rewriter(plan)
    used = set(used_names(proto))
    for each in plan.related.nodes:
        rewriter.rewrite(each)
    nodes = [*rewriter.added, *proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    _drop_initializers(proto.graph, used - set(used_names(proto)))
    _declare_shapes(proto.graph, plan, bound.tensors)
    replacements = list(_replacements(bound.file, plan))
    write_replaced(bound.file, proto, replacements, path, max_file_bytes=max_file_bytes)


def _drop_initializers(graph: GraphProto, unused: set[str]) -> None:
    """Remove the constants that were replaced."""
    # A caller still gives an input of the model that no node reads any more.
    gone = unused.intersection(tensor.name for tensor in graph.initializer)
    remove_named(graph.initializer, gone)
    remove_named(graph.input, gone)


def _declare_shapes(graph: GraphProto, plan: RemovalPlan, tensors: Mapping[str, Tensor]) -> None:
    """Declare the old shapes of outputs, and the new shapes of weights listed as inputs."""
    for info in graph.output:
        tensor = tensors[info.name]
        data_type = DATA_TYPES.get(tensor.dtype or "")
        if data_type is not None and tensor.shape is not None:
            info.CopyFrom(onnx.helper.make_tensor_value_info(info.name, data_type, tensor.shape))
    for info in graph.input:
        if info.name in plan.related.stored:
            for dim, size in zip(
                info.type.tensor_type.shape.dim, plan.shape(info.name), strict=False
            ):
                dim.dim_value = size


def _replacements(file: ModelFile, plan: RemovalPlan) -> Iterator[Replacement]:
    """The tensors that are cut, and those in files beside the old model."""
    proto = plan.related.proto
    for each in dense_weights(proto.graph):
        if not each.path and (plan.changes(each.name) or is_external(each.tensor)):
            cut, shape = partial(plan.cut, each.name), plan.shape(each.name)
            is_initializer = each.kind is StorageKind.INITIALIZER
            yield _replacement(file, each.tensor, cut, shape, is_initializer=is_initializer)
    # The rest are tensors of bodies, or sparse ones.
    for tensor in external_tensors(proto):
        shape = tuple(tensor.dims)
        yield _replacement(file, tensor, lambda v: v, shape, is_initializer=False)


def _replacement(
    file: ModelFile,
    tensor: TensorProto,
    cut: Callable[[Value], Value],
    shape: Sequence[int],
    *,
    is_initializer: bool,
) -> Replacement:
    """The tensor in its new shape; a copy keeps the location of its old elements."""
    source = TensorProto()
    source.CopyFrom(tensor)
    tensor.data_location = TensorProto.DEFAULT
    del tensor.dims[:]
    tensor.dims.extend(shape)
    make = partial(_elements, file, source, cut)
    return Replacement(tensor, make, is_initializer=is_initializer)


def _elements(
    file: ModelFile, source: TensorProto, cut: Callable[[Value], Value]
) -> Iterator[bytes]:
    number = stored_number(source)
    assert number is not None, "text is not cut, and lies in no other file"  # noqa: S101  # for mypy
    yield number.pack(codes_of(cut(file.read_tensor(source)), number))
