"""The cost of reducing many elements to few: sums, extremes, running sums, sorts, searches.

Counting rule: one operation for each element that is gathered, the first included, plus the
operations on each result afterwards. A selection of the k largest keeps them in a heap, and
distinct elements are found by sorting: n log2 k and n log2 n comparisons, logarithms rounded up
(Knuth, The Art of Computer Programming, volume 3, section 5.2.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.cost import (
    ADD,
    CMP,
    DIV,
    EXP,
    LOG,
    MOV,
    MUL,
    POW,
    SQRT,
    Cost,
    Counter,
)
from pytest_modelperf.profiler.counting.per_element import (
    elements,
    elementwise,
    per_input_element,
    per_output_element,
)


def count_top_k(node: Node) -> Cost:
    """Every element meets a heap of k; the values and indices found are moved out."""
    k = node.output().dims[node.attr_int("axis", -1)]
    return elementwise(
        node.input(0).size * max(1, ceil_log2(k)) * CMP + elements(node.outputs) * MOV
    )


def count_unique(node: Node) -> Cost:
    """Elements, or slices along `axis`, are sorted, and each is compared with the one before.

    Only a run knows how many of them are distinct, so copying these is not counted.
    """
    x = node.input(0)
    slices = x.dims[node.attr_int("axis", 0)] if "axis" in node.attributes else x.size
    return elementwise(x.size * (ceil_log2(slices) + 1) * CMP)


def count_all_finite(node: Node) -> Cost:
    """A comparison for each element of all inputs."""
    return elementwise(elements(node.inputs) * CMP)


def norm_ops(p: int, gathered: int, norms: int) -> int:
    """Operations of `norms` p-norms, (sum of |x|^p)^(1/p), of `gathered` elements in all."""
    if p == 1:
        return gathered * (CMP + ADD)
    if p == 2:
        return gathered * (MUL + ADD) + norms * SQRT
    return gathered * (CMP + POW + ADD) + norms * POW


def rows_along(node: Node, axis: int) -> int:
    """How many vectors of the first input lie along one axis."""
    dims = node.input(0).dims
    axis %= len(dims)
    return prod(dims[:axis]) * prod(dims[axis + 1 :])


def ceil_log2(n: int) -> int:
    """log2(n) rounded up; 0 for 1 and for nothing."""
    return (n - 1).bit_length() if n > 1 else 0


def _count_l1(node: Node) -> Cost:
    return elementwise(norm_ops(1, node.input(0).size, 0))


def _count_l2(node: Node) -> Cost:
    return elementwise(norm_ops(2, node.input(0).size, node.output().size))


COUNTERS: Mapping[str, Counter] = {
    "ArgMax": per_input_element(CMP),
    "ArgMin": per_input_element(CMP),
    "CumProd": per_output_element(MUL),
    "CumSum": per_output_element(ADD),
    "NonZero": per_input_element(CMP),
    "ReduceL1": _count_l1,
    "ReduceL2": _count_l2,
    "ReduceLogSum": per_input_element(ADD, per_output=LOG),
    # log(sum(exp(x - max))) + max: the maximum is subtracted, or exp overflows.
    "ReduceLogSumExp": per_input_element(CMP + ADD + EXP + ADD, per_output=LOG + ADD),
    "ReduceMax": per_input_element(CMP),
    "ReduceMean": per_input_element(ADD, per_output=DIV),
    "ReduceMin": per_input_element(CMP),
    "ReduceProd": per_input_element(MUL),
    "ReduceSum": per_input_element(ADD),
    "ReduceSumSquare": per_input_element(MUL + ADD),
    "TopK": count_top_k,
    "Unique": count_unique,
    "com.microsoft::IsAllFinite": count_all_finite,
    "com.microsoft::ReduceSumInteger": per_input_element(ADD),
    "com.microsoft::Unique": count_unique,
}
