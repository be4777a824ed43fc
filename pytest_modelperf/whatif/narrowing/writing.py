"""Write a narrowed model: the cut weights, and all others unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import GraphProto, TensorProto, numpy_helper

from pytest_modelperf.errors import OutputError
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.model_file import (
    DATA_TYPES,
    dtype_name,
    external_files,
    is_external,
)
from pytest_modelperf.graph.stream import restored_chunks, write_chunks
from pytest_modelperf.graph.structure import Tensor, byte_size
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.whatif.narrowing.plan import RemovalPlan
from pytest_modelperf.whatif.narrowing.relating import used_names
from pytest_modelperf.whatif.narrowing.rewriting import Rewriter

if TYPE_CHECKING:
    from pytest_modelperf.graph.structure import Value

# The name of external data is the name of the model and this suffix.
DATA_SUFFIX = ".data"
# Smaller weights stay in the model.
_MIN_OUTSIDE_BYTES = 1024
# Engines map external data into memory, page by page.
_ALIGNMENT = 4096
# An upper bound of the bytes of a tensor without its data.
_OVERHEAD_BYTES = 1024


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
    try:
        if _size(plan, proto) > max_file_bytes:
            _write_beside(bound, plan, path)
        else:
            _put_inside(bound, plan)
        chunks = restored_chunks(proto, bound.file, "with fewer channels")
        write_chunks(bound.file, path, chunks)
    except OSError as error:
        raise OutputError(
            f"cannot write {printable(str(path))}: {error.strerror or error}."
        ) from error


def _drop_initializers(graph: GraphProto, unused: set[str]) -> None:
    """Remove the constants that were replaced."""
    kept = [tensor for tensor in graph.initializer if tensor.name not in unused]
    if len(kept) == len(graph.initializer):
        return
    inputs = [info for info in graph.input if info.name not in unused]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(kept)
    graph.input.extend(inputs)


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


def _nbytes(plan: RemovalPlan, name: str, tensor: TensorProto) -> int:
    return byte_size(dtype_name(tensor.data_type) or "", prod(plan.shape(name)))


def _size(plan: RemovalPlan, proto: onnx.ModelProto) -> int:
    """An upper bound of the bytes of the file."""
    stored = plan.related.stored
    data = sum(_nbytes(plan, name, tensor) + _OVERHEAD_BYTES for name, tensor in stored.items())
    graph = sum(node.ByteSize() for node in proto.graph.node if node.op_type != "Constant")
    return data + graph


def _put_inside(bound: BoundModel, plan: RemovalPlan) -> None:
    """Put cut and external weights into the model; the rest is copied later."""
    for name, tensor in _present(plan):
        if plan.changes(name) or is_external(tensor):
            _fill(tensor, _values(bound, plan, name, tensor))


def _write_beside(bound: BoundModel, plan: RemovalPlan, path: Path) -> None:
    """Write all larger weights into one file beside the model, one after the other."""
    target = path.with_name(path.name + DATA_SUFFIX)
    if target.resolve() in external_files(bound.file).values():
        raise OutputError(
            f"{printable(str(target))} is where the weights of {bound.file.name} lie. "
            "Write to another file."
        )
    initializers = {tensor.name for tensor in plan.related.proto.graph.initializer}
    with target.open("wb") as data:
        for name, tensor in _present(plan):
            values = _values(bound, plan, name, tensor)
            _fill(tensor, values)
            if name not in initializers or len(tensor.raw_data) < _MIN_OUTSIDE_BYTES:
                continue
            data.write(bytes(-data.tell() % _ALIGNMENT))
            place = {
                "location": target.name,
                "offset": str(data.tell()),
                "length": str(len(tensor.raw_data)),
            }
            data.write(tensor.raw_data)
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in place.items():
                tensor.external_data.add(key=key, value=value)


def _present(plan: RemovalPlan) -> Iterator[tuple[str, TensorProto]]:
    """The stored tensors of the message to be written, by the names of their values."""
    graph = plan.related.proto.graph
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] in plan.related.stored:
            yield from ((node.output[0], a.t) for a in node.attribute if a.name == "value")


def _values(bound: BoundModel, plan: RemovalPlan, name: str, tensor: TensorProto) -> Value:
    return plan.cut(name, bound.file.read_tensor(tensor))


def _fill(tensor: TensorProto, values: Value) -> None:
    """Put values into a stored tensor; its name, type and metadata stay."""
    filled = numpy_helper.from_array(
        np.ascontiguousarray(values).reshape(values.shape), tensor.name
    )
    filled.data_type = tensor.data_type
    filled.doc_string = tensor.doc_string
    tensor.CopyFrom(filled)
