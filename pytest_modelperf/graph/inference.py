"""The types of a graph from onnx's inference, without the operators that it must not see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import TypeProto

from pytest_modelperf.errors import ModelError, Remedy
from pytest_modelperf.graph.convert import ParsedGraph, constant_tensor, read_graph
from pytest_modelperf.graph.resolve import RESIZING, is_trap
from pytest_modelperf.text.escaping import printable


def infer_types(
    model: str, proto: onnx.ModelProto, block: ParsedGraph, opsets: Mapping[str, int]
) -> dict[str, TypeProto]:
    """The types of a model from onnx's inference over the whole graph, whose calls are `block`.

    Its data propagation is off, because it handles every vector element by element. The values that
    it would find are computed later, for the nodes that need them.
    """
    try:
        graph = onnx.shape_inference.infer_shapes(_without_traps(proto, block, opsets)).graph
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        first = printable(str(error).strip().splitlines()[0] if str(error) else repr(error))
        raise ModelError(
            f"the shapes of {model} do not fit together: {first[:300]}.",
            Remedy(
                "Check the model with onnx.checker.check_model, or give {inputs}.",
                inputs="name:dtype:shape",
            ),
        ) from error
    infos = (*graph.value_info, *graph.output, *graph.input)
    return {info.name: info.type for info in infos}


def _without_traps(
    proto: onnx.ModelProto, block: ParsedGraph, opsets: Mapping[str, int]
) -> onnx.ModelProto:
    """A copy without the operators whose inference crashes or misleads.

    The copy gives them a domain that onnx does not know. Each is inferred on its own later, when
    its inputs are known.
    """
    opset, fractions = opsets.get("", 0), frozenset(_fractional_scales(block))
    if not any(is_trap(call, opset, fractions) for inner in block.walk() for call in inner.calls):
        return proto
    hidden = "hidden"
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    copy.opset_import.add(domain=hidden, version=1)
    for inner in read_graph(copy.graph, "").walk():
        for call in inner.calls:
            if is_trap(call, opset, fractions):
                call.proto.domain = hidden
    return copy


def _fractional_scales(block: ParsedGraph) -> Iterator[str]:
    """The names of stored scales of images that are no whole numbers."""
    calls = [call for inner in block.walk() for call in inner.calls]
    taken = {name for call in calls if call.op_type in RESIZING for name in call.inputs}
    if not taken:
        return
    stored = {t.name: t for inner in block.walk() for t in inner.proto.initializer}
    for call in calls:
        if call.op_type == "Constant" and not taken.isdisjoint(call.outputs):
            for attribute in call.proto.attribute:
                tensor = attribute.t if attribute.HasField("t") else constant_tensor(attribute)
                stored |= {} if tensor is None else {call.outputs[0]: tensor}
    for name in taken & stored.keys():
        tensor = stored[name]
        is_here = tensor.data_location != onnx.TensorProto.EXTERNAL
        if is_here and tensor.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(tensor)
            if (values != np.rint(values)).any():
                yield name
