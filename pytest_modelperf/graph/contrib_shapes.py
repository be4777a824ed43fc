"""The shape rules of the operators that ONNX Runtime adds and onnx knows nothing of.

onnx's shape inference stops at these operators. The rules follow ONNX Runtime's operator
documentation (https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md) and
otherwise what its kernels return.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_modelperf.graph.contrib.attention import ATTENTION_RULES
from pytest_modelperf.graph.contrib.elementwise import ELEMENTWISE_RULES, STANDARD_DOMAIN_RULES
from pytest_modelperf.graph.contrib.linear_attention import LINEAR_ATTENTION_RULES
from pytest_modelperf.graph.contrib.products import PRODUCT_RULES
from pytest_modelperf.graph.contrib.tensors import TENSOR_RULES
from pytest_modelperf.graph.contrib.windows import (
    IMAGE_RULES,
    NCHWC_RULES,
    NHWC_RULES,
    WINDOW_RULES,
)
from pytest_modelperf.graph.shape_rule import ShapeRule

_CONTRIB_RULES: Mapping[str, ShapeRule] = {
    **ATTENTION_RULES,
    **ELEMENTWISE_RULES,
    **LINEAR_ATTENTION_RULES,
    **PRODUCT_RULES,
    **TENSOR_RULES,
    **WINDOW_RULES,
}

SHAPE_RULES: Mapping[str, ShapeRule] = {
    **STANDARD_DOMAIN_RULES,
    **IMAGE_RULES,
    **{f"com.microsoft::{op}": rule for op, rule in _CONTRIB_RULES.items()},
    # These two appear in models that ONNX Runtime has optimized and written back.
    **{f"com.microsoft.nchwc::{op}": rule for op, rule in NCHWC_RULES.items()},
    **{f"com.ms.internal.nhwc::{op}": rule for op, rule in NHWC_RULES.items()},
}
