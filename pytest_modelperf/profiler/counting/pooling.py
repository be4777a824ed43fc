"""The cost of pooling: each output element reads all elements of its window.

Counting rule: a window is counted whole where it overlaps the padding, and has all dimensions
of its kernel. Global pooling looks at each input element once. Sizes alone matter, so layouts
with the channels last count the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.activation import activation_ops
from pytest_modelperf.profiler.counting.cost import ADD, CMP, DIV, MOV, Cost, Counter
from pytest_modelperf.profiler.counting.epilogue import REQUANTIZE
from pytest_modelperf.profiler.counting.per_element import elementwise, per_input_element
from pytest_modelperf.profiler.counting.reduction import norm_ops


def pool(per_window_element: int, per_output: int = 0) -> Counter:
    """So much for each element of each window, and for each result; then a fused activation."""

    def count(node: Node) -> Cost:
        activated = activation_ops(node.attr_str("activation", ""))
        per_result = window_size(node) * per_window_element + per_output + activated
        return elementwise(node.output().size * per_result)

    return count


def count_lp_pool(node: Node) -> Cost:
    """The p-norm of each window."""
    results = node.output().size
    return elementwise(norm_ops(node.attr_int("p", 2), results * window_size(node), results))


def count_global_lp_pool(node: Node) -> Cost:
    """The p-norm of each channel."""
    return elementwise(norm_ops(node.attr_int("p", 2), node.input(0).size, node.output().size))


def count_unpool(node: Node) -> Cost:
    """The output is cleared, then each input element goes to its place."""
    return elementwise((node.output().size + node.input(0).size) * MOV)


def window_size(node: Node) -> int:
    """Elements of the kernel, in however many dimensions."""
    kernel = node.attr_ints("kernel_shape")
    if not kernel:
        raise ValueError(f"{node.op_type} {node.name!r} has no kernel_shape")
    return prod(kernel)


_average_pool = pool(ADD, DIV)
_max_pool = pool(CMP)
_global_average_pool = per_input_element(ADD, per_output=DIV)
_global_max_pool = per_input_element(CMP)
# Integers are summed, and the mean is rescaled to the output's scale in one step.
_qlinear_average_pool = pool(ADD, REQUANTIZE)

COUNTERS: Mapping[str, Counter] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average_pool,
    "GlobalLpPool": count_global_lp_pool,
    "GlobalMaxPool": _global_max_pool,
    "LpPool": count_lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": count_unpool,
    "com.microsoft::MaxpoolWithMask": pool(2 * CMP),  # is it masked, and is it larger
    "com.microsoft::NhwcMaxPool": _max_pool,
    "com.microsoft::QLinearAveragePool": _qlinear_average_pool,
    "com.microsoft::QLinearGlobalAveragePool": per_input_element(ADD, per_output=REQUANTIZE),
    "com.microsoft.nchwc::AveragePool": _average_pool,
    "com.microsoft.nchwc::GlobalAveragePool": _global_average_pool,
    "com.microsoft.nchwc::GlobalMaxPool": _global_max_pool,
    "com.microsoft.nchwc::MaxPool": _max_pool,
    "com.ms.internal.nhwc::AveragePool": _average_pool,
    "com.ms.internal.nhwc::GlobalAveragePool": _global_average_pool,
    "com.ms.internal.nhwc::GlobalLpPool": count_global_lp_pool,
    "com.ms.internal.nhwc::GlobalMaxPool": _global_max_pool,
    "com.ms.internal.nhwc::LpPool": count_lp_pool,
    "com.ms.internal.nhwc::MaxPool": _max_pool,
    "com.ms.internal.nhwc::MaxUnpool": count_unpool,
    "com.ms.internal.nhwc::QLinearAveragePool": _qlinear_average_pool,
}
