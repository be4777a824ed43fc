"""The cost of boxes in object detectors: suppressing overlaps, and pooling what is inside.

Only a run can tell the places of boxes, so some counts are bounds, and say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from pytest_modelperf.graph.structure import Node
from pytest_modelperf.profiler.counting.cost import ADD, CMP, DIV, MUL, Cost, Counter
from pytest_modelperf.profiler.counting.per_element import elementwise
from pytest_modelperf.profiler.counting.reduction import ceil_log2
from pytest_modelperf.profiler.counting.resampling import LINEAR, interpolation_ops

# The corners of the intersection, its sides cut at 0, its area; two areas, their union,
# the quotient, and the threshold that it meets.
INTERSECTION_OVER_UNION = (
    (4 * CMP + 2 * ADD + 2 * CMP + MUL) + 2 * (2 * ADD + MUL) + 2 * ADD + DIV + CMP
)


def count_non_max_suppression(node: Node) -> Cost:
    """For each class of each picture: scores sorted, then each box against all chosen before.

    An upper bound: no score is below the threshold, and what can be chosen is.
    """
    pictures, classes, boxes = node.input(1).dims
    chosen = min(_most_chosen(node, boxes), boxes)
    pairs = chosen * (2 * boxes - chosen - 1) // 2
    thresholded = boxes * CMP if node.optional_input(4) is not None else 0
    ranking = boxes * ceil_log2(boxes) * CMP
    return elementwise(
        pictures * classes * (thresholded + ranking + pairs * INTERSECTION_OVER_UNION)
    )


def count_roi_align(node: Node) -> Cost:
    """For each output element a grid of bilinear samples, averaged or the largest taken.

    Without a sampling ratio the grid depends on the region; it is counted as the 2 x 2 of the
    paper (https://arxiv.org/abs/1703.06870, section 3).
    """
    samples = (node.attr_int("sampling_ratio", 0) or 2) ** 2
    if node.attr_str("mode", "avg").lower() == "max":
        per_output = samples * (LINEAR + CMP)
    else:
        per_output = samples * (LINEAR + ADD) + DIV
    return elementwise(node.output().size * per_output)


def count_max_roi_pool(node: Node) -> Cost:
    """An upper bound: each region is as large as the picture, and each element in one bin."""
    return elementwise(node.input(1).dims[0] * prod(node.input(0).dims[1:]) * CMP)


def count_crop_and_resize(node: Node) -> Cost:
    """A sample for each output element."""
    return elementwise(node.output().size * interpolation_ops(node, "bilinear"))


def _most_chosen(node: Node, boxes: int) -> int:
    """The limit on boxes of a class: 0 when it is left out, all of them when it is not constant."""
    limit = node.optional_input(2)
    if limit is None:
        return 0
    return boxes if limit.value is None else max(0, int(limit.value.item()))


COUNTERS: Mapping[str, Counter] = {
    "MaxRoiPool": count_max_roi_pool,
    "NonMaxSuppression": count_non_max_suppression,
    "RoiAlign": count_roi_align,
    "com.microsoft::CropAndResize": count_crop_and_resize,
}
