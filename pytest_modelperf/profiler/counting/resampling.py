"""The cost of resampling a picture: each output element blends its neighbours in the input.

Counting rule: linear 4 and cubic 8 an output element, in however many dimensions, as in onnx_tool;
nearest is a MOV, as it is a copy like any other (onnx_tool: 0). An antialiased filter has as many
times the neighbours as each axis shrinks. The places of samples only cost something if they are
data: a grid's coordinates become pixels by MUL and ADD.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.cost import ADD, MOV, MUL, Cost, Counter
from pytest_modelperf.profiler.counting.per_element import elementwise, per_input_element

LINEAR = 4
CUBIC = 8


def count_resize(node: Node) -> Cost:
    """Resize and its forerunner Upsample."""
    antialiased = node.attr_int("antialias", 0) != 0
    return elementwise(
        node.output().size
        * interpolation_ops(node, "nearest")
        * (_shrinkage(node) if antialiased else 1)
    )


def count_grid_sample(node: Node) -> Cost:
    """A sample for each point of the grid and each channel."""
    blended = node.output().size * interpolation_ops(node, "linear")
    return elementwise(blended + node.input(1).size * (MUL + ADD))


def count_affine_grid(node: Node) -> Cost:
    """Each coordinate is a row of theta applied to a point: a MUL and an ADD for each dimension."""
    grid = node.output()
    return elementwise(grid.size * grid.dims[-1] * (MUL + ADD))


def interpolation_ops(node: Node, default: str) -> int:
    """Operations a sample takes by the node's `mode`; bilinear is an older name of linear."""
    mode = node.attr_str("mode", default).lower()
    if mode.endswith("linear"):
        return LINEAR
    return CUBIC if mode.endswith("cubic") else MOV


def _shrinkage(node: Node) -> int:
    """How many times fewer elements come out, axis by axis, rounded up and never below 1."""
    pairs = zip(node.input(0).dims, node.output().dims, strict=True)
    return prod(max(1, -(-before // after)) for before, after in pairs if after)


COUNTERS: Mapping[str, Counter] = {
    "AffineGrid": count_affine_grid,
    "Col2Im": per_input_element(ADD),  # every column element is added into the picture
    "GridSample": count_grid_sample,
    "Resize": count_resize,
    "Upsample": count_resize,
    "com.microsoft.nchwc::Upsample": count_resize,
    "com.microsoft::GridSample": count_grid_sample,
    "com.ms.internal.nhwc::GridSample": count_grid_sample,
    "com.ms.internal.nhwc::Resize": count_resize,
}
