"""The weights and texts that nodes store: moved to where they can be left out, or drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, numpy_helper

from pytest_modelperf.graph.drawing import Drawer
from pytest_modelperf.graph.drawn_numbers import without_values
from pytest_modelperf.graph.number_codes import NumberType, codes_of, number_type
from pytest_modelperf.graph.stored_tensors import bodies_of, clear_data, walk_nodes, walk_stored
from pytest_modelperf.graph.weight_notes import describe

if TYPE_CHECKING:
    import numpy.typing as npt

# The operators of classical machine learning keep their weights in attributes.
_ML = "ai.onnx.ml"
_TEXT_ATTRIBUTES = frozenset(
    {"cats_strings", "classes_strings", "classlabels_strings", "default_string", "keys_strings"}
    | {"pattern", "pool_strings", "separators", "stopwords", "string_vocabulary", "tokenexp"}
    | {"values_strings"}
)


def turn_floats_into_tensors(proto: ModelProto) -> None:
    """Turn the lists of floats in Constant nodes into tensors, which can be left out."""
    for node in walk_nodes(proto):
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value_floats":
                values = np.array(attribute.floats, np.float32)
                attribute.Clear()
                attribute.name, attribute.type = "value", AttributeProto.TENSOR
                attribute.t.CopyFrom(numpy_helper.from_array(values))


def turn_constants_into_initializers(graph: GraphProto) -> None:
    """Turn the left-out Constant nodes of a graph and its bodies into initializers.

    The data of an initializer can lie outside of the model. Functions have none.
    """
    for node in graph.node:
        for attribute in node.attribute:
            for body in bodies_of(attribute):
                turn_constants_into_initializers(body)
    _move_constants(graph)


def _move_constants(graph: GraphProto) -> None:
    gone: list[int] = []
    for index, node in enumerate(graph.node):
        is_constant = node.op_type == "Constant" and node.domain in {"", "ai.onnx"}
        value = next((each.t for each in node.attribute if each.HasField("t")), None)
        if is_constant and value is not None and value.data_location == TensorProto.EXTERNAL:
            moved = graph.initializer.add()
            moved.CopyFrom(value)
            moved.name = node.output[0]
            gone.append(index)
    for index in reversed(gone):
        del graph.node[index]


def replace_texts(proto: ModelProto) -> dict[str, str]:
    """Replace the texts that a model stores by others of the same lengths, equal ones alike."""
    replaced: dict[str, str] = {}

    def replace_text(text: bytes) -> bytes:
        shown = text.decode("utf-8", "surrogateescape")
        made = replaced.setdefault(shown, f"t{len(replaced)}".ljust(len(text), "x"))
        return made.encode()

    for stored in walk_stored(proto):
        texts = stored.tensor.string_data
        texts[:] = [replace_text(text) for text in texts]
    for node in walk_nodes(proto):
        for attribute in node.attribute:
            if attribute.name in _TEXT_ATTRIBUTES or node.op_type == "Constant":
                attribute.strings[:] = [replace_text(text) for text in attribute.strings]
                if attribute.s:
                    attribute.s = replace_text(attribute.s)
    return replaced


def draw_attributes(proto: ModelProto) -> Iterator[str]:
    """Draw the floats that nodes store in their attributes; yields why that may change the time."""
    number = NumberType("float32")
    drawer = Drawer(0)
    count = 0
    for node in walk_nodes(proto):
        for attribute in node.attribute:
            tensors = [attribute.t, *attribute.tensors] if node.op_type != "Constant" else []
            for tensor in tensors:
                _draw_tensor(tensor, drawer, f"{count}")
                count += 1
            if node.domain == _ML and len(attribute.floats) > 1:
                values = np.array(attribute.floats, np.float32)
                codes = codes_of(values, number)
                drawn = _draw_codes(codes, number, drawer, f"{count}")
                attribute.floats[:] = number.decode(drawn).tolist()
                count += 1
                if attribute.name.startswith("nodes_values"):
                    yield "the thresholds of trees are drawn, so that inputs take other paths"


def _draw_tensor(tensor: TensorProto, drawer: Drawer, name: str) -> None:
    number = number_type({1: "float32", 10: "float16", 11: "float64"}.get(tensor.data_type, ""))
    if number is None or math.prod(tensor.dims) <= 1:
        return
    codes = codes_of(numpy_helper.to_array(tensor), number)
    drawn = _draw_codes(codes, number, drawer, name)
    clear_data(tensor)
    tensor.raw_data = number.pack(drawn)


def _draw_codes(
    codes: npt.NDArray[Any], number: NumberType, drawer: Drawer, name: str
) -> npt.NDArray[Any]:
    note = without_values(describe(number, (codes.size,), lambda: iter([codes])), number)
    return np.concatenate(list(drawer.draw_codes(note, number, (codes.size,), name)))
