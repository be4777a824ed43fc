"""Signals, images and matrices: windows, random numbers, transforms, resampling, and boxes.

A uniform random number is one step of a linear congruential generator, state * a + c, scaled to
its range; a normal one is made from two of them, and a choice among classes from one
(Box and Muller, A Note on the Generation of Random Normal Deviates, 1958).

Fourier: 5 n log2 n for n complex values, half of it if one side is real, for any factors of n
and any number of dimensions (the convention of benchFFT,
http://www.fftw.org/speed/method.html). Determinant: the LU factorization, n^3 / 3 multiply-adds;
inverse: the same and n solutions, n^3 (Golub and Van Loan, Matrix Computations, section 3.2).
A multiply-add here is MUL + ADD, as in FLOPs.

Samples of images: linear takes 4 and cubic 8 per output element, for any number of axes, as in
onnx_tool. Nearest is a MOV, like any other copy (onnx_tool: 0). An antialiased filter multiplies
the neighbours by the factor that each axis shrinks by. The positions of samples cost something only
if they are data: the coordinates of a grid become pixels by MUL and ADD. The positions of boxes are
known only in a run, so some counts are bounds, and are marked as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import ceil, inf, isfinite, log2, prod

from pytest_modelperf.graph.operators.cost import (
    ADD,
    CMP,
    COS,
    DIV,
    EXP,
    LOG,
    MOV,
    MUL,
    POW,
    SQRT,
    Cost,
)
from pytest_modelperf.graph.operators.operator import (
    LENGTH,
    MAKES,
    NO_LENGTH,
    ONE,
    UNIFORM,
    Demand,
    Operator,
    ceil_log2,
    elementwise,
    free,
    move,
    per_input,
    per_output,
    rows_of,
    sized,
    worded,
)
from pytest_modelperf.graph.shape_rules import (
    Dim,
    Outputs,
    dim,
    dtype_of,
    has_input,
    ints_of,
    like,
    numbers_of,
    outputs,
    product,
    quotient,
    shape_of,
    total,
    with_last,
)
from pytest_modelperf.graph.structure import Node, Shape, UnknownShapeError

NORMAL = 2 * UNIFORM + (LOG + MUL + SQRT) + (MUL + COS) + MUL  # sqrt(-2 log u) * cos(2 pi v)
COSINE_TERM = MUL + COS + MUL + ADD  # + a * cos(b * i)


def count_multinomial(node: Node) -> Cost:
    """Count cumulated probabilities of each row of logits, and a binary search for every sample."""
    samples = node.output().size
    classes = node.input(0).dims[-1]
    distribution = node.input(0).size * (CMP + ADD + EXP + ADD)
    return elementwise(distribution + samples * (UNIFORM + ceil_log2(classes) * CMP))


def count_mel_weight_matrix(node: Node) -> Cost:
    """Count triangles in a matrix [frequencies, mel bins] of zeros."""
    # There are two more edges than bins: 700 * (10^(mel / 2595) - 1) Hz, then the index of a
    # frequency. Each frequency is in at most two triangles, each a difference and a quotient.
    frequencies, bins = node.output().dims
    edges = (bins + 2) * (DIV + POW + ADD + MUL + MUL + DIV)
    return elementwise(frequencies * bins * MOV + edges + 2 * frequencies * (ADD + DIV))


def fourier_ops(n: int, *, real: bool) -> int:
    return round((2.5 if real else 5.0) * n * log2(n)) if n > 1 else 0


def count_dft(node: Node) -> Cost:
    """Count a transform along one axis, which was an attribute until opset 19."""
    # An input of one component is real, and so is the result of an inverse from one side.
    axis = _axis(node)
    *_, components = node.input(0).dims
    lines = prod(node.input(0).dims) // max(1, node.input(0).dims[axis] * components)
    one_sided = node.attr_int("onesided", 0) != 0
    inverse = node.attr_int("inverse", 0) != 0
    if not one_sided or inverse:
        n = node.output().dims[axis]
    elif not has_input(node, 1):
        n = node.input(0).dims[axis]
    else:
        n = _length(node, 1, axis)
    real = components == 1 or (one_sided and inverse)
    return elementwise(lines * fourier_ops(n, real=real))


def count_stft(node: Node) -> Cost:
    """Count a windowed transform of each frame of each signal."""
    batch, length, *components = node.input(0).dims
    parts = components[0] if components else 1
    window, frame_length = node.optional_input(2), node.optional_input(3)
    n = length
    if window is not None:
        n = window.dims[0]
    elif frame_length is not None:
        n = _length(node, 3, 2)
    frames = batch * node.output().dims[1]
    windowed = n * parts * MUL if window is not None else 0
    return elementwise(frames * (windowed + fourier_ops(n, real=parts == 1)))


def count_real_fft(node: Node, *, inverse: bool = False) -> Cost:
    """Count the transform of a real signal over its last `signal_ndim` dimensions, or back."""
    signal = node.output() if inverse else node.input(0)
    axes = max(1, node.attr_int("signal_ndim", 1))
    *batch, n = (*signal.dims[:-axes], prod(signal.dims[-axes:]))
    return elementwise(prod(batch) * fourier_ops(n, real=True))


def count_det(node: Node) -> Cost:
    *batch, n, _ = node.input(0).dims
    return elementwise(prod(batch) * (n**3 // 3) * (MUL + ADD))


def count_inverse(node: Node) -> Cost:
    *batch, n, _ = node.input(0).dims
    return elementwise(prod(batch) * n**3 * (MUL + ADD))


def _axis(node: Node) -> int:
    """Return the transformed axis: by default 1 as an attribute, -2 as an input."""
    if node.opset and node.opset < 20:
        return node.attr_int("axis", 1)
    axis = node.optional_input(2)
    if axis is None:
        return -2
    if axis.value is None:
        raise UnknownShapeError(axis.name)
    return int(axis.value.item())


def _length(node: Node, index: int, axis: int) -> int:
    """Return the transform's length, from a constant input or the number of output frequencies."""
    given = node.input(index).value
    if given is not None:
        return int(given.item())
    frequencies = node.output().dims[axis]
    return 2 * (frequencies - 1) if node.attr_int("onesided", 1) else frequencies


def shape_real_fft(node: Node) -> Outputs:
    """Return half a spectrum of complex numbers over the last dimension. The rest mirrors it."""
    shape = shape_of(node, 0)
    size = dim(shape, -1)
    return outputs(dtype_of(node, 0), with_last(shape, None if size is None else size // 2 + 1, 2))


def shape_inverse_fft(node: Node) -> Outputs:
    shape = shape_of(node, 0)
    size = product(2, total(dim(shape, -2), -1))
    return outputs(dtype_of(node, 0), None if not shape else with_last(shape[:-1], size))


def shape_range(node: Node) -> Outputs:
    """Return ceil((limit - start) / delta) numbers, or none if this is negative."""
    start, limit = numbers_of(node, 0), numbers_of(node, 1)
    delta = numbers_of(node, 2) if has_input(node, 2) else (1,)
    length: Dim = None
    if start and limit and delta and delta[0]:
        steps = (limit[0] - start[0]) / delta[0]
        length = max(0, ceil(steps)) if isfinite(steps) else None
    return outputs(dtype_of(node, 0), (length,))


def _signal_length(node: Node, _: int) -> Demand:
    axis = node.optional_input(2)
    known = None if axis is None or axis.value is None else int(axis.value.reshape(-1)[0])
    size = dim(shape_of(node, 0), node.attr_int("axis", -2) if known is None else known)
    return Demand(low=1, value=size or 1, decides=worded(node, MAKES))


# -- images


# The corners of the intersection, its sides clipped at 0, and its area. Then two areas, their
# union, the quotient, and its comparison with the threshold.
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
    blended = node.output().size * interpolation_ops(node, "linear")
    return elementwise(blended + node.input(1).size * (MUL + ADD))


def count_affine_grid(node: Node) -> Cost:
    """Count a row of theta times a point for each coordinate: MUL and ADD for each dimension."""
    grid = node.output()
    return elementwise(grid.size * grid.dims[-1] * (MUL + ADD))


def interpolation_ops(node: Node, default: str) -> int:
    """Return the operations per sample in the node's `mode`. Bilinear is an old name of linear."""
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
    "Bernoulli": Operator(per_output(UNIFORM + CMP)),
    "BlackmanWindow": Operator(per_output(2 * COSINE_TERM), demands={0: LENGTH}),
    "Constant": Operator(free),
    "ConstantOfShape": Operator(per_output(MOV), demands={0: LENGTH}),
    "DFT": Operator(count_dft, demands={1: _signal_length, 2: ONE}),
    "Det": Operator(count_det),
    "EyeLike": Operator(per_output(MOV)),
    "HammingWindow": Operator(per_output(COSINE_TERM), demands={0: LENGTH}),
    "HannWindow": Operator(per_output(COSINE_TERM), demands={0: LENGTH}),
    "MelWeightMatrix": Operator(count_mel_weight_matrix, demands={0: LENGTH, 1: sized(MAKES, 2)}),
    "Multinomial": Operator(count_multinomial),
    "RandomNormal": Operator(per_output(NORMAL + MUL + ADD)),
    "RandomNormalLike": Operator(per_output(NORMAL + MUL + ADD)),
    "RandomUniform": Operator(per_output(UNIFORM)),
    "RandomUniformLike": Operator(per_output(UNIFORM)),
    # start + i * delta
    "Range": Operator(per_output(MUL + ADD), demands={0: NO_LENGTH, 1: LENGTH, 2: LENGTH}),
    "STFT": Operator(count_stft, demands={1: LENGTH, 3: LENGTH}),
    # The cost of a cell is the least of three before it, plus its own. The length of the path of
    # pairs depends on the values in the matrix.
    "com.microsoft::DynamicTimeWarping": Operator(
        per_input(2 * CMP + ADD), lambda _: outputs("int32", (2, None)),
    ),
    "com.microsoft::Inverse": Operator(count_inverse, like(0)),
    "com.microsoft::Irfft": Operator(
        partial(count_real_fft, inverse=True), shape_inverse_fft,
    ),
    "com.microsoft::Range": Operator(per_output(MUL + ADD), shape_range),
    "com.microsoft::Rfft": Operator(count_real_fft, shape_real_fft),
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
