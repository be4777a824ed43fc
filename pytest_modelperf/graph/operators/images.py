"""Images: resampled, cropped, and the boxes of object detectors.

Counting rule: linear takes 4 and cubic 8 an output element, for any number of dimensions, as in
onnx_tool. Nearest is a MOV, like any other copy (onnx_tool: 0). An antialiased filter multiplies
the neighbours by the factor that each axis shrinks by. The positions of samples cost something only
if they are data: the coordinates of a grid become pixels by MUL and ADD. The positions of boxes are
known only in a run, so some counts are bounds, which their docstrings say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf, prod

from pytest_modelperf.graph.operators.cost import ADD, CMP, DIV, MOV, MUL, Cost
from pytest_modelperf.graph.operators.element_ops import ceil_log2, elementwise, move, per_input
from pytest_modelperf.graph.operators.operator import (
    LENGTH,
    MAKES,
    Demand,
    Operator,
    rows_of,
    worded,
)
from pytest_modelperf.graph.shape_arithmetic import Dim, dim, product, quotient, total
from pytest_modelperf.graph.shape_rule import (
    Outputs,
    dtype_of,
    has_input,
    ints_of,
    numbers_of,
    outputs,
    shape_of,
)
from pytest_modelperf.graph.structure import Node, Shape

# The corners of the intersection, its sides clipped at 0, its area; two areas, their union,
# the quotient, and its comparison with the threshold.
INTERSECTION_OVER_UNION = (
    (4 * CMP + 2 * ADD + 2 * CMP + MUL) + 2 * (2 * ADD + MUL) + 2 * ADD + DIV + CMP
)


def count_suppression(node: Node) -> Cost:
    """Count sorted scores for each class of each picture, and each box against all chosen before.

    This is an upper bound: it takes all scores to be above the threshold, and the limit of boxes
    to be reached.
    """
    pictures, classes, boxes = node.input(1).dims
    chosen = min(_most_chosen(node, boxes), boxes)
    pairs = chosen * (2 * boxes - chosen - 1) // 2
    thresholded = boxes * CMP if has_input(node, 4) else 0
    ranking = boxes * ceil_log2(boxes) * CMP
    return elementwise(
        pictures * classes * (thresholded + ranking + pairs * INTERSECTION_OVER_UNION)
    )


def count_roi_align(node: Node) -> Cost:
    """Count a grid of bilinear samples for each output element, and their mean or maximum.

    Without a sampling ratio, the grid depends on the region. It is then counted as the 2 x 2 of
    the paper (https://arxiv.org/abs/1703.06870, section 3).
    """
    samples = (node.attr_int("sampling_ratio", 0) or 2) ** 2
    if node.attr_str("mode", "avg").lower() == "max":
        per_output = samples * (LINEAR + CMP)
    else:
        per_output = samples * (LINEAR + ADD) + DIV
    return elementwise(node.output().size * per_output)


def count_max_roi_pool(node: Node) -> Cost:
    """Count an upper bound: each region as large as the picture, and each element in one bin."""
    return elementwise(node.input(1).dims[0] * prod(node.input(0).dims[1:]) * CMP)


def count_crop_and_resize(node: Node) -> Cost:
    return elementwise(node.output().size * interpolation_ops(node, "bilinear"))


def _most_chosen(node: Node, boxes: int) -> int:
    """Return the limit on boxes of a class: 0 if it is left out, all if it is not constant."""
    limit = node.optional_input(2)
    if limit is None:
        return 0
    return boxes if limit.value is None else max(0, int(limit.value.item()))


LINEAR = 4
CUBIC = 8


def count_resize(node: Node) -> Cost:
    antialiased = node.attr_int("antialias", 0) != 0
    return elementwise(
        node.output().size
        * interpolation_ops(node, "nearest")
        * (_shrinkage(node) if antialiased else 1)
    )


def count_grid_sample(node: Node) -> Cost:
    """Count a sample for each point of the grid and each channel."""
    blended = node.output().size * interpolation_ops(node, "linear")
    return elementwise(blended + node.input(1).size * (MUL + ADD))


def count_affine_grid(node: Node) -> Cost:
    """Count a row of theta times a point for each coordinate: MUL and ADD for each dimension."""
    grid = node.output()
    return elementwise(grid.size * grid.dims[-1] * (MUL + ADD))


def interpolation_ops(node: Node, default: str) -> int:
    """Return the operations a sample in the node's `mode`. Bilinear is an older name of linear."""
    mode = node.attr_str("mode", default).lower()
    if mode.endswith("linear"):
        return LINEAR
    return CUBIC if mode.endswith("cubic") else MOV


def _shrinkage(node: Node) -> int:
    pairs = zip(node.input(0).dims, node.output().dims, strict=True)
    return prod(max(1, -(-before // after)) for before, after in pairs if after)


def shape_crop(node: Node) -> Outputs:
    """Return an image without its borders (left, top, right, bottom), or a crop of stated size."""
    shape, border = shape_of(node, 0), node.attr_ints("border")
    if shape is None or len(shape) != 4 or len(border) != 4:
        return outputs(dtype_of(node, 0), None)
    left, top, right, bottom = border
    sides: Shape = node.attr_ints("scale")
    if len(sides) != 2:
        sides = (total(shape[2], -top, -bottom), total(shape[3], -left, -right))
    return outputs(dtype_of(node, 0), (*shape[:2], *sides))


def shape_grid_sample(node: Node) -> Outputs:
    image, grid = shape_of(node, 0), shape_of(node, 1)
    shape = (dim(image, 0), dim(image, 1), dim(grid, 1), dim(grid, 2))
    return outputs(dtype_of(node, 0), shape)


def shape_crop_and_resize(node: Node) -> Outputs:
    size = ints_of(node, 3)
    sides: Shape = size if size is not None and len(size) == 2 else (None, None)
    shape = (dim(shape_of(node, 1), 0), dim(shape_of(node, 0), 1), *sides)
    return outputs(dtype_of(node, 0), shape)


def shape_space_and_depth(node: Node, *, into_depth: bool) -> Outputs:
    image, block = shape_of(node, 0), node.attr_int("blocksize", 0)
    if image is None or len(image) != 4:
        return outputs(dtype_of(node, 0), None)
    batch, height, width, depth = image
    grown: Callable[[Dim, Dim], Dim] = quotient if into_depth else product
    shrunk: Callable[[Dim, Dim], Dim] = product if into_depth else quotient
    sides = (grown(height, block), grown(width, block))
    return outputs(dtype_of(node, 0), (batch, *sides, shrunk(depth, block * block)))


def shape_upsample_blocks(node: Node) -> Outputs:
    image, scales = shape_of(node, 0), node.attr_ints("scales")
    if image is None or len(image) != len(scales):
        return outputs(dtype_of(node, 0), None)
    return outputs(dtype_of(node, 0), tuple(map(product, image, scales)))


def shape_resize(node: Node) -> Outputs:
    """Return dimensions times scales, or nothing for stated sizes and crops, which onnx infers."""
    shape = shape_of(node, 0)
    is_old = node.op_type == "Upsample" or (0 < node.opset < 11)
    scales = node.attributes.get("scales") or numbers_of(node, 1 if is_old else 2)
    if shape is None or not isinstance(scales, tuple):
        return ()
    rank = len(shape)
    axes = [axis + rank if axis < 0 else axis for axis in node.attr_ints("axes") or range(rank)]
    is_crop = node.attr_str("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    if is_crop or len(scales) != len(axes) or not set(axes) <= set(range(rank)):
        return ()
    factors = dict(zip(axes, scales, strict=True))
    sizes = (_scaled(size, factors.get(axis, 1.0)) for axis, size in enumerate(shape))
    return outputs(dtype_of(node, 0), tuple(sizes))


def _scaled(size: Dim, scale: object) -> Dim:
    """Return the product as ONNX Runtime computes it: in float32, with the fraction dropped."""
    if size is None or not isinstance(scale, int | float):
        return None
    import numpy as np

    with np.errstate(all="ignore"):
        product_of_floats = float(np.float32(size) * np.float32(scale))
    return int(product_of_floats) if 0 <= product_of_floats < inf else None


def _grid_size(node: Node, _: int) -> Demand:
    return Demand(low=1, value=dim(shape_of(node, 0), 0) or 1, decides=worded(node, MAKES))


_HALF = Demand(low=0, high=1, value=0.5)

OPERATORS: Mapping[str, Operator] = {
    "AffineGrid": Operator(count_affine_grid, demands={1: _grid_size}),
    "CenterCropPad": Operator(move, demands={1: LENGTH}),
    # Every element of a column is added to the picture.
    "Col2Im": Operator(per_input(ADD), demands={1: LENGTH, 2: LENGTH}),
    "Crop": Operator(move, shape_crop),
    "DepthToSpace": Operator(move),
    "GridSample": Operator(count_grid_sample),
    "MaxRoiPool": Operator(count_max_roi_pool),
    "NonMaxSuppression": Operator(count_suppression, demands={2: LENGTH, 3: _HALF, 4: _HALF}),
    # onnx infers wrong sizes for fractional scales.
    "Resize": Operator(count_resize, shape_resize, demands={2: LENGTH, 3: LENGTH}),
    "RoiAlign": Operator(count_roi_align, demands={2: rows_of(0)}),
    "SpaceToDepth": Operator(move),
    "Upsample": Operator(count_resize, shape_resize, demands={1: LENGTH}),
    "com.microsoft.nchwc::Upsample": Operator(count_resize, shape_upsample_blocks),
    "com.microsoft::CropAndResize": Operator(
        count_crop_and_resize, shape_crop_and_resize, demands={2: rows_of(0), 3: LENGTH},
    ),
    "com.microsoft::GridSample": Operator(count_grid_sample, shape_grid_sample),
    "com.ms.internal.nhwc::DepthToSpace": Operator(
        move, partial(shape_space_and_depth, into_depth=False),
    ),
    "com.ms.internal.nhwc::GridSample": Operator(count_grid_sample),
    "com.ms.internal.nhwc::Resize": Operator(count_resize),
    "com.ms.internal.nhwc::SpaceToDepth": Operator(
        move, partial(shape_space_and_depth, into_depth=True),
    ),
}  # fmt: skip
