"""The shape rules against what ONNX Runtime's kernels return and its own inference says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from pytest_modelperf.graph.operators.registry import OPERATORS
from pytest_modelperf.graph.shape_rules import OutputType
from pytest_modelperf.graph.structure import Attribute, Node, Shape, Tensor
from tests.graph.operators.operator_call import Call
from tests.graph.operators.shape_cases import HAND, INFERRED, RUN
from tests.support.runtimes import INSTALLED

# The release that the rules were compared with.
COMPARED = (1, 32)
# The outputs of a part of the model that another compiler replaced are unknown.
OPAQUE = {"com.microsoft::EPContext", "com.microsoft::Snpe"}

SHAPE_RULES = {op: known.shapes for op, known in OPERATORS.items() if known.shapes is not None}

needs_the_operators = pytest.mark.skipif(
    INSTALLED < COMPARED, reason="older releases lack some operators and crash on some calls"
)


def _returned(call: Call) -> tuple[OutputType, ...]:
    try:
        return call.returned()
    except ort_state.NotImplemented:
        if "nchwc" in call.domain:
            pytest.skip("this processor has no blocked convolutions")
        raise


def _objection(call: Call, declared: tuple[OutputType, ...]) -> str:
    """Return the objection of ONNX Runtime's inference to these outputs, if any."""
    try:
        call.session(declared)
    except (ort_state.Fail, ort_state.InvalidGraph, ort_state.NotImplemented) as error:
        about_types = ("InferenceError", "does not match expected type", "schema", "registered")
        return str(error) if any(word in str(error) for word in about_types) else ""
    return ""


def _answer(call: Call, node: Node | None = None) -> tuple[OutputType | None, ...]:
    answer = SHAPE_RULES[call.op](node or call.node())
    return tuple(answer[index] for index in call.outputs if index < len(answer))


def _agrees(answer: OutputType | None, truth: OutputType | None) -> bool:
    """Whether all that is known is true; what is unknown may be left out."""
    if answer is None or truth is None:
        return answer is None
    if answer.dtype is not None and answer.dtype != truth.dtype:
        return False
    if answer.shape is None:
        return True
    return (
        truth.shape is not None
        and len(answer.shape) == len(truth.shape)
        and all(a is None or a == b for a, b in zip(answer.shape, truth.shape, strict=True))
    )


def _ids(cases: tuple[Call, ...]) -> list[str]:
    return [call.op_type for call in cases]


@needs_the_operators
@pytest.mark.parametrize("call", RUN, ids=_ids(RUN))
def test_a_kernel_returns_what_its_rule_says(call: Call) -> None:
    truth = _returned(call)
    if call.answer is None:
        assert _answer(call) == truth
    else:
        assert _answer(call) == call.answer
        assert all(map(_agrees, call.answer, truth))


@needs_the_operators
@pytest.mark.parametrize("call", INFERRED, ids=_ids(INFERRED))
def test_onnxruntime_infers_what_the_rule_says_and_nothing_else(call: Call) -> None:
    answer = tuple(each for each in _answer(call) if each is not None)
    objection = _objection(call, answer)
    if "not yet supported on this hardware" in objection:
        pytest.skip(f"{call.op_type} has no kernel for this processor")
    assert not objection
    for index, output in enumerate(answer):
        for shape in _near_misses(output.shape):
            wrong = (*answer[:index], replace(output, shape=shape), *answer[index + 1 :])
            assert _objection(call, wrong), f"nothing speaks against {shape} for output {index}"


def _near_misses(shape: Shape | None) -> Iterator[Shape]:
    assert shape is not None
    yield (*shape, 1)
    for axis, dim in enumerate(shape):
        assert dim is not None
        yield (*shape[:axis], dim + 1, *shape[axis + 1 :])


@pytest.mark.parametrize("call", HAND, ids=_ids(HAND))
def test_a_rule_says_what_the_documentation_says(call: Call) -> None:
    assert _answer(call) == call.answer


@pytest.mark.parametrize("call", [*RUN, *INFERRED, *HAND], ids=_ids((*RUN, *INFERRED, *HAND)))
def test_knowing_less_of_an_input_never_makes_the_answer_wrong(call: Call) -> None:
    truth = _answer(call)
    node = call.node()
    for index, tensor in enumerate(node.inputs):
        if tensor is None:
            continue
        for vaguer in _vaguer(tensor):
            inputs = (*node.inputs[:index], vaguer, *node.inputs[index + 1 :])
            answer = _answer(call, replace(node, inputs=inputs))
            assert all(map(_agrees, answer, truth)), f"{answer} of {vaguer}, {truth} of {tensor}"


def _vaguer(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor without its value, or also without one dimension, its shape or its type."""
    assert tensor.shape is not None
    unread = replace(tensor, value=None)
    yield unread
    yield replace(unread, dtype=None)
    yield replace(unread, shape=None)
    yield replace(unread, shape=(None,) * len(tensor.shape))
    for axis in range(len(tensor.shape)):
        yield replace(unread, shape=(*tensor.shape[:axis], None, *tensor.shape[axis + 1 :]))


def test_every_rule_is_checked() -> None:
    # The rules for what onnx itself cannot do are checked when models are loaded.
    ours = {"Reshape", "ai.onnx.ml::LabelEncoder"}
    assert set(SHAPE_RULES) - ours == {call.op for call in (*RUN, *INFERRED, *HAND)}


@pytest.mark.skipif(INSTALLED != COMPARED, reason="other releases have other operators")
def test_every_contrib_operator_has_a_rule() -> None:
    schemas = ort_state.get_all_operator_schema()
    domain = "com.microsoft"
    named = {f"{domain}::{schema.name}" for schema in schemas if schema.domain == domain}
    assert named - set(SHAPE_RULES) == OPAQUE


def test_a_batch_that_is_unknown_leaves_the_other_dimensions_known() -> None:
    image = Tensor("x", "float32", (None, 3, 224, 224))
    weights = Tensor("w", "float32", (64, 3, 7, 7))
    node = Node(
        "stem",
        "FusedConv",
        "com.microsoft",
        inputs=(image, weights),
        attributes={"strides": (2, 2), "pads": (3, 3, 3, 3)},
    )
    assert SHAPE_RULES[node.qualified_op](node) == (OutputType("float32", (None, 64, 112, 112)),)


def test_a_cache_is_of_unknown_length_if_the_total_is_computed() -> None:
    query, past = Tensor("q", "float32", (2, 1, 32)), Tensor("k", "float16", (2, 2, 7, 8))
    node = Node(
        "attention",
        "GroupQueryAttention",
        "com.microsoft",
        inputs=(query, query, query, past, past, Tensor("s", "int32", (2,)), Tensor("t", "int32")),
        attributes={"num_heads": 4, "kv_num_heads": 2},
    )
    output, key, value, _ = SHAPE_RULES[node.qualified_op](node)
    assert output == OutputType("float32", (2, 1, 32))
    assert key == value == OutputType("float16", (2, 2, None, 8))


_SHAPES = st.none() | st.lists(st.none() | st.integers(0, 40), max_size=6).map(tuple)
_VALUES = st.none() | st.lists(st.integers(-3, 9), max_size=4).map(np.array)
_TENSORS = st.builds(
    # Not the class itself: hypothesis would look up annotations that only a type checker knows.
    lambda **fields: Tensor(**fields),  # noqa: PLW0108  # as the line above says
    name=st.just("x"),
    dtype=st.none() | st.sampled_from(["float32", "float16", "uint8", "int8", "int4", "string"]),
    shape=_SHAPES,
    value=_VALUES | st.sampled_from([np.array(np.nan), np.array(1e300), np.array("text")]),
)
_NUMBERS = st.integers(-2, 9)
_ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            (
                "K", "N", "Nkv", "Nq", "axis", "bits", "blocksize", "ceil_mode", "channels",
                "channels_last", "compress_ratio", "dilation", "dim", "dtype", "flatten_batch",
                "gather_axis", "group", "head_dim", "heads", "hidden_size", "index_topk",
                "input_channels", "input_width", "keepdims", "kv_num_heads",
                "max_ngram_size", "max_output_entries", "n_head_per_ngram", "num_branches",
                "num_heads", "output_bf16", "output_dtype", "output_fp16",
                "past_present_share_buffer", "positive", "q_num_heads", "router_size", "size",
                "state_channels_last", "state_length", "state_update_capacity", "state_window",
                "step", "to", "token_budget", "transA", "transB", "transBatchA", "transBatchB",
                "v_head_size", "vocab_size",
            ),
            _NUMBERS,
        ),
        **dict.fromkeys(
            (
                "axes", "dilations", "kernel_shape", "output_padding", "output_shape", "pads",
                "qkv_hidden_sizes", "scales", "strides",
            ),
            st.lists(_NUMBERS, max_size=5).map(tuple),
        ),
        "auto_pad": st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]),
        "direction": st.sampled_from(["forward", "bidirectional"]),
        "policy_mode": st.sampled_from(["qsa", "csa"]),
    },
)  # fmt: skip


@given(inputs=st.lists(st.none() | _TENSORS, max_size=20), attributes=_ATTRIBUTES)
def test_no_rule_fails_whatever_the_inputs(
    inputs: list[Tensor | None], attributes: Mapping[str, Attribute]
) -> None:
    for op, rule in SHAPE_RULES.items():
        domain, _, op_type = op.rpartition("::")
        node = Node("node", op_type, domain, inputs=tuple(inputs), attributes=attributes)
        for output in rule(node):
            dims = None if output is None else output.shape
            assert all(dim is None or type(dim) is int for dim in dims or ()), op
