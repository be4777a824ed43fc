"""Pooling: each output element looks at its whole window, in however many dimensions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.cost import ADD, CMP, DIV, EXP, MOV, MUL, POW, SQRT
from pytest_modelperf.profiler.counting.pooling import COUNTERS
from tests.profiler.counting.nodes import node


def ops(call: Node) -> int:
    cost = COUNTERS[call.qualified_op](call)
    assert cost.contractions == ()
    return cost.elementwise_ops


def test_confirmed_wrong_5_pooling_has_a_third_dimension() -> None:
    out = (1, 4, 5, 5, 5)
    call = node("MaxPool", [(1, 4, 10, 10, 10)], [out], kernel_shape=(2, 3, 4))
    assert ops(call) == prod(out) * 2 * 3 * 4 * CMP


def test_an_average_divides_once_a_window() -> None:
    call = node("AveragePool", [(1, 64, 8, 8)], [(1, 64, 2, 2)], kernel_shape=(7, 7))
    assert ops(call) == 256 * (49 * ADD + DIV)


def test_confirmed_wrong_14_global_max_pool_looks_at_each_element_once() -> None:
    assert ops(node("GlobalMaxPool", [(2, 3, 7, 7)], [(2, 3, 1, 1)])) == 294 * CMP


def test_global_average_pool_has_onnx_tools_weight() -> None:
    call = node("GlobalAveragePool", [(1, 2048, 7, 7)], [(1, 2048, 1, 1)])
    assert ops(call) == 2048 * 49 * ADD + 2048 * DIV


def test_a_window_as_large_as_the_picture_is_global_pooling() -> None:
    x, out = (2, 3, 7, 7), (2, 3, 1, 1)
    for op in ("MaxPool", "AveragePool", "LpPool"):
        window = ops(node(op, [x], [out], kernel_shape=(7, 7)))
        assert window == ops(node("Global" + op, [x], [out]))


@pytest.mark.parametrize(
    ("attributes", "each", "result"),
    [({}, MUL + ADD, SQRT), ({"p": 1}, CMP + ADD, 0), ({"p": 3}, CMP + POW + ADD, POW)],
)
def test_lp_pool_takes_a_norm_of_each_window(
    attributes: dict[str, Any], each: int, result: int
) -> None:
    call = node("LpPool", [(1, 2, 6, 6)], [(1, 2, 3, 3)], kernel_shape=(2, 2), **attributes)
    assert ops(call) == 18 * (4 * each + result)
    whole = node("GlobalLpPool", [(1, 2, 6, 6)], [(1, 2, 1, 1)], **attributes)
    assert ops(whole) == 72 * each + 2 * result


def test_unpooling_clears_and_places() -> None:
    call = node("MaxUnpool", [(1, 2, 3, 3), (1, 2, 3, 3)], [(1, 2, 6, 6)], kernel_shape=(2, 2))
    assert ops(call) == (72 + 18) * MOV


def test_a_layout_does_not_matter() -> None:
    first = node("MaxPool", [(1, 8, 6, 6)], [(1, 8, 3, 3)], kernel_shape=(2, 2))
    for op in ("com.microsoft::NhwcMaxPool", "com.ms.internal.nhwc::MaxPool"):
        last = node(op, [(1, 6, 6, 8)], [(1, 3, 3, 8)], kernel_shape=(2, 2))
        assert ops(last) == ops(first)
    masked = node(
        "com.microsoft::MaxpoolWithMask",
        [(1, 8, 6, 6), (1, 8, 6, 6)],
        [(1, 8, 3, 3)],
        kernel_shape=(2, 2),
    )
    assert ops(masked) == 2 * ops(first)


def test_quantized_averages_are_rescaled_once_a_result() -> None:
    rescaled = MUL + ADD + 2 * CMP
    x = [(1, 8, 6, 6), (), (), (), ()]
    window = node("com.microsoft::QLinearAveragePool", x, [(1, 8, 3, 3)], kernel_shape=(2, 2))
    assert ops(window) == 72 * (4 * ADD + rescaled)
    whole = node("com.microsoft::QLinearGlobalAveragePool", x, [(1, 8, 1, 1)])
    assert ops(whole) == 288 * ADD + 8 * rescaled


def test_a_fused_activation_counts() -> None:
    op, x, out = "com.ms.internal.nhwc::MaxPool", (1, 6, 6, 8), (1, 3, 3, 8)
    plain = node(op, [x], [out], kernel_shape=(2, 2))
    fused = node(op, [x], [out], kernel_shape=(2, 2), activation="Sigmoid")
    assert ops(fused) == ops(plain) + 72 * (ADD + EXP + ADD + DIV)


def test_a_pool_without_a_kernel_is_refused_and_not_taken_for_a_small_one() -> None:
    with pytest.raises(ValueError, match="kernel_shape"):
        ops(node("MaxPool", [(1, 8, 6, 6)], [(1, 8, 3, 3)]))


@given(
    kernel=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    stride=st.integers(1, 2),
    batch=st.integers(1, 3),
)
@settings(max_examples=25)
def test_the_windows_are_those_of_a_real_run(kernel: list[int], stride: int, batch: int) -> None:
    """Each window holds as many ones as it looks at: their sum over the output is the count."""
    x = np.ones((batch, 2, *([6] * len(kernel))), np.float32)
    pool = helper.make_node(
        "LpPool", ["x"], ["y"], kernel_shape=kernel, strides=[stride] * len(kernel), p=1
    )
    graph = helper.make_graph(
        [pool],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    outputs = onnx.reference.ReferenceEvaluator(model).run(["y"], {"x": x})
    y = np.asarray(next(iter(outputs)))
    call = node("MaxPool", [x.shape], [y.shape], kernel_shape=tuple(kernel))
    assert ops(call) == int(y.sum()) * CMP
