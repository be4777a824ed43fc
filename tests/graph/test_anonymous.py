"""An anonymous model computes the same, and no name that somebody chose is left in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from onnx import FunctionProto, ModelProto, NodeProto, helper

from pytest_modelperf.graph.binding import evaluate
from pytest_modelperf.graph.weightless import make_anonymous
from tests.graph.twin_models import MODELS, trained
from tests.support.graph_models import parse

_TYPES = {"float": np.float32, "float16": np.float16, "double": np.float64, "bool": np.bool_}


def _outputs(model: ModelProto) -> list[Any]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.RandomState(0)
    feeds = {}
    for info in session.get_inputs():
        shape = [dim if isinstance(dim, int) else 2 for dim in info.shape]
        dtype = _TYPES[info.type.removeprefix("tensor(").removesuffix(")")]
        feeds[info.name] = (
            random.standard_normal(shape).astype(dtype) if shape else np.array(1, bool)
        )
    outputs: list[Any] = session.run(None, feeds)
    return outputs


def _texts(message: Message) -> Iterator[str]:
    """Every text of a message that somebody may have chosen."""
    skipped = {"op_type", "domain"} if isinstance(message, NodeProto) else set()
    is_attribute = isinstance(message, onnx.AttributeProto)
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if isinstance(value, Message) else value:
                yield from _texts(inner)
        elif field.name not in skipped and not (is_attribute and field.name == "name"):
            for text in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(text, str):
                    yield text


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_it_computes_the_same(kind: str) -> None:
    model = MODELS[kind]()
    renamed = make_anonymous(model)
    for old, new in zip(_outputs(model), _outputs(renamed.proto), strict=True):
        np.testing.assert_array_equal(old, new)
    assert list(renamed.values) >= [info.name for info in model.graph.input]


def _named_everywhere() -> ModelProto:
    """A model with a name of its own in each place that can have one."""
    model = parse(
        """secret_graph (float[secret_batch, 4] secret_in) => (float[secret_batch, 4] secret_out)
        <float[secret_batch, 4] secret_mid> {
            secret_mid = MatMul (secret_in, secret_weight)
            secret_out = secret.domain.secret_function <secret_alpha = 2.0> (secret_mid)
        }""",
        {"secret_weight": trained(4, 4)},
    )
    model.doc_string = model.graph.doc_string = "secret text"
    model.producer_name, model.domain = "secret tool", "secret.org"
    model.metadata_props.add(key="secret_key", value="secret value")
    model.graph.input[0].type.denotation = "secret_denotation"
    model.graph.input[0].type.tensor_type.shape.dim[1].denotation = "secret_axis"
    annotation = model.graph.quantization_annotation.add(tensor_name="secret_mid")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="secret_weight")
    for node in model.graph.node:
        node.name, node.doc_string = f"secret/{node.op_type}", "secret text"
    factor = helper.make_node("Constant", [], ["secret_f"])
    factor.attribute.add(
        name="value_float", ref_attr_name="secret_alpha", type=onnx.AttributeProto.FLOAT
    )
    inner = helper.make_node("Mul", ["secret_a", "secret_f"], ["secret_r"], name="secret_node")
    function = helper.make_function(
        "secret.domain",
        "secret_function",
        ["secret_a"],
        ["secret_r"],
        [factor, inner],
        [helper.make_opsetid("", 17)],
        ["secret_alpha"],
    )
    function.doc_string = "secret text"
    model.functions.append(function)
    model.opset_import.add(domain="secret.domain", version=1)
    model.opset_import.add(domain="secret.unused", version=1)
    return model


def test_no_name_is_left_in_any_place() -> None:
    model = _named_everywhere()
    before = model.SerializeToString()
    assert sum("secret" in text for text in _texts(model)) > 15
    renamed = make_anonymous(model)
    assert model.SerializeToString() == before
    assert b"secret" not in renamed.proto.SerializeToString()
    assert [text for text in _texts(renamed.proto) if "secret" in text] == []
    np.testing.assert_array_equal(_outputs(model)[0], _outputs(renamed.proto)[0])
    assert [renamed.values[name] for name in ("secret_in", "secret_out")] == ["x0", "y0"]
    assert renamed.dims == {"secret_batch": "d0"}


def _with_dims(*dims: str) -> ModelProto:
    model = parse("g (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }")
    shape = model.graph.input[0].type.tensor_type.shape
    del shape.dim[:]
    for dim in dims:
        shape.dim.add(dim_param=dim)
    return model


def _dims(model: ModelProto) -> list[str]:
    return [dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim]


@given(
    st.lists(st.sampled_from(["past", "seq", "width_0"]), min_size=1, max_size=3),
    st.lists(st.integers(1, 90), min_size=3, max_size=3),
)
def test_an_expression_of_dimensions_keeps_its_value(names: list[str], sizes: list[int]) -> None:
    text = " + ".join(f"2*{name}" for name in names)
    renamed = make_anonymous(_with_dims("past", "seq", "width_0", text))
    old = dict(zip(["past", "seq", "width_0"], sizes, strict=True))
    new = {renamed.dims[name]: size for name, size in old.items()}
    assert evaluate(_dims(renamed.proto)[3], new) == evaluate(text, old)


@pytest.mark.parametrize("dim", ["unk__12", "Relu_x.1", "secret name", "größe", "2"])
def test_a_name_that_is_no_expression_is_renamed_as_a_whole(dim: str) -> None:
    renamed = make_anonymous(_with_dims(dim))
    assert _dims(renamed.proto) == ["d0"]
    assert renamed.dims[dim] == "d0"


def test_equal_names_stay_equal_and_others_stay_others() -> None:
    renamed = make_anonymous(_with_dims("a", "b", "a"))
    first, second, third = _dims(renamed.proto)
    assert first == third != second


@pytest.mark.parametrize("field", ["domain", "overload"])
def test_functions_of_one_name_stay_two(field: str) -> None:
    model = _named_everywhere()
    other = FunctionProto()
    other.CopyFrom(model.functions[0])
    setattr(other, field, "another.secret")
    other.node[1].op_type = "Add"
    model.functions.append(other)
    model.opset_import.add(domain="another.secret", version=1)
    setattr(model.graph.node[1], field, "another.secret")
    renamed = make_anonymous(model).proto
    assert b"secret" not in renamed.SerializeToString()
    first, second = renamed.functions
    assert (first.domain, first.name) != (second.domain, second.name)
    if field == "domain":
        np.testing.assert_array_equal(_outputs(model)[0], _outputs(renamed)[0])
    else:
        assert first.name != second.name
        assert renamed.graph.node[1].op_type == second.name
