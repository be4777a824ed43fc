"""Output shapes of ONNX Runtime's own convolutions and poolings, in each of its image layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import TypeAlias

import numpy as np

from pytest_modelperf.graph.shape_arithmetic import (
    Dim,
    channels_first,
    channels_last,
    dim,
    product,
    quotient,
    total,
    with_last,
)
from pytest_modelperf.graph.shape_rule import (
    OutputType,
    ShapeRule,
    dtype_of,
    has_input,
    ints_of,
    like,
    numbers_of,
    one,
    shape_of,
    stated_size,
)
from pytest_modelperf.graph.sliding_window import Window, slide, unslide
from pytest_modelperf.graph.structure import Node, Shape

_Layout: TypeAlias = Callable[[Node], bool]


def _is_channels_last(node: Node) -> bool:
    return node.attr_int("channels_last", 0) != 0


def _always(_node: Node) -> bool:
    return True


def _never(_node: Node) -> bool:
    return False


def _image_of(node: Node, layout: _Layout) -> Shape | None:
    """The shape of the first input as NCHW; None if it is no image."""
    shape = shape_of(node, 0)
    if shape is None or len(shape) < 2:
        return None
    return channels_first(shape) if layout(node) else shape


def _as_laid_out(node: Node, shape: Shape, layout: _Layout) -> Shape:
    return (channels_last(shape) or shape) if layout(node) else shape


def _window_of(node: Node, kernel: Shape, pads: tuple[int, ...] | None = None) -> Window:
    return Window(
        kernel=node.attr_ints("kernel_shape") or kernel,
        strides=node.attr_ints("strides"),
        pads=node.attr_ints("pads") if pads is None else pads,
        dilations=node.attr_ints("dilations"),
        auto_pad=node.attr_str("auto_pad", "NOTSET"),
        rounds_up=node.attr_int("ceil_mode", 0) != 0,
    )


def _conv(weight: int = 1, dtype: int = 0, layout: _Layout = _never) -> ShapeRule:
    """A convolution; its weights are (out, in / group, *kernel) in every layout of the images."""

    def rule(node: Node) -> tuple[OutputType]:
        image, kernel = _image_of(node, layout), shape_of(node, weight)
        if image is None:
            return one(dtype_of(node, dtype), None)
        spatial = slide(image[2:], _window_of(node, (kernel or ())[2:]))
        shape = (image[0], dim(kernel, 0), *spatial)
        return one(dtype_of(node, dtype), _as_laid_out(node, shape, layout))

    return rule


def _conv_transpose(
    weight: int = 1, dtype: int = 0, pads: int | None = None, layout: _Layout = _never
) -> ShapeRule:
    """A transposed convolution with weights (in, out / group, *kernel); `pads` may be an input."""

    def rule(node: Node) -> tuple[OutputType]:
        image, kernel = _image_of(node, layout), shape_of(node, weight)
        if image is None:
            return one(dtype_of(node, dtype), None)
        given_pads = None if pads is None else ints_of(node, pads)
        stated = node.attr_ints("output_shape")
        if len(stated) == len(image) - 2:
            spatial: Shape = stated
        elif pads is not None and has_input(node, pads) and given_pads is None:
            spatial = (None,) * (len(image) - 2)
        else:
            window = _window_of(node, (kernel or ())[2:], given_pads)
            spatial = unslide(image[2:], window, node.attr_ints("output_padding"))
        channels = product(dim(kernel, 1), node.attr_int("group", 1))
        shape = (image[0], channels, *spatial)
        return one(dtype_of(node, dtype), _as_laid_out(node, shape, layout))

    return rule


def _pool(layout: _Layout = _never, *, has_indices: bool = False) -> ShapeRule:
    def rule(node: Node) -> tuple[OutputType, ...]:
        image = _image_of(node, layout)
        if image is None:
            shape = None
        else:
            spatial = slide(image[2:], _window_of(node, (None,) * (len(image) - 2)))
            shape = _as_laid_out(node, (*image[:2], *spatial), layout)
        pooled = OutputType(dtype_of(node, 0), shape)
        return (pooled, OutputType("int64", shape)) if has_indices else (pooled,)

    return rule


def _global_pool(layout: _Layout = _never) -> ShapeRule:
    def rule(node: Node) -> tuple[OutputType]:
        image = _image_of(node, layout)
        if image is None:
            return one(dtype_of(node, 0), None)
        shape = (*image[:2], *(1 for _ in image[2:]))
        return one(dtype_of(node, 0), _as_laid_out(node, shape, layout))

    return rule


def _between_space_and_depth(*, into_depth: bool) -> ShapeRule:
    """SpaceToDepth and DepthToSpace of NHWC images."""

    def rule(node: Node) -> tuple[OutputType]:
        image, block = shape_of(node, 0), node.attr_int("blocksize", 0)
        if image is None or len(image) != 4:
            return one(dtype_of(node, 0), None)
        batch, height, width, depth = image
        if into_depth:
            sides = (quotient(height, block), quotient(width, block))
            return one(dtype_of(node, 0), (batch, *sides, product(depth, block * block)))
        sides = (product(height, block), product(width, block))
        return one(dtype_of(node, 0), (batch, *sides, quotient(depth, block * block)))

    return rule


def _reorder_input(node: Node) -> tuple[OutputType]:
    """Reorder into blocks of 8 or 16 channels, by the machine; known if both divide evenly."""
    image = _image_of(node, _is_channels_last)
    if image is None:
        return one(dtype_of(node, 0), None)
    batch, channels, *spatial = image
    whole = channels if channels is not None and channels % 16 == 0 else None
    return one(dtype_of(node, 0), (batch, whole, *spatial))


def _reorder_output(node: Node) -> tuple[OutputType]:
    image = _image_of(node, _never)
    if image is None:
        return one(dtype_of(node, 0), None)
    shape = (image[0], stated_size(node, "channels"), *image[2:])
    return one(dtype_of(node, 0), _as_laid_out(node, shape, _is_channels_last))


def _upsample_blocks(node: Node) -> tuple[OutputType]:
    image, scales = shape_of(node, 0), node.attr_ints("scales")
    if image is None or len(image) != len(scales):
        return one(dtype_of(node, 0), None)
    return one(dtype_of(node, 0), tuple(map(product, image, scales)))


def _resize(node: Node) -> tuple[OutputType, ...]:
    """Dimensions times their scales; onnx knows stated sizes, and the sizes of crops."""
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
    return one(dtype_of(node, 0), tuple(sizes))


def _scaled(size: Dim, scale: object) -> Dim:
    """The product that ONNX Runtime takes: a float32, of which it drops the fraction."""
    if size is None or not isinstance(scale, int | float):
        return None
    with np.errstate(all="ignore"):
        product_of_floats = float(np.float32(size) * np.float32(scale))
    return int(product_of_floats) if 0 <= product_of_floats < inf else None


def _causal_conv(node: Node) -> tuple[OutputType, ...]:
    """A causal depthwise convolution, the state that it keeps for the next call, and what it read.

    Where channels are last, it may take a slice of them, and its state may have another layout.
    """
    signal, dtype = shape_of(node, 0), dtype_of(node, 0)
    taken = stated_size(node, "input_channels")
    result = signal if taken is None else with_last(signal, taken)
    if has_input(node, 3) or not signal or not result:
        state = shape_of(node, 3)
    else:
        reach = stated_size(node, "state_length") or product(
            total(dim(shape_of(node, 1), -1), -1), node.attr_int("dilation", 1)
        )
        slots = node.attr_int("state_window", 0)
        leading = (slots,) if slots else ()
        if not _is_channels_last(node):
            state = (*leading, *signal[:-1], reach)
        elif node.attr_int("state_channels_last", -1) == 0:
            state = (*leading, signal[0], *result[2:], reach)
        else:
            state = (*leading, signal[0], reach, *result[2:])
    update = (dim(signal, 0), node.attr_int("state_update_capacity", 0), dim(result, -1))
    return OutputType(dtype, result), OutputType(dtype, state), OutputType(dtype, update)


def _varlen_causal_conv(node: Node) -> tuple[OutputType, ...]:
    state = shape_of(node, 4)
    update = (dim(state, 0), node.attr_int("state_update_capacity", 0), dim(state, 1))
    dtype = dtype_of(node, 0)
    return (
        OutputType(dtype, shape_of(node, 0)),
        OutputType(dtype, state),
        OutputType(dtype, update),
    )


WINDOW_RULES: Mapping[str, ShapeRule] = {
    "FusedConv": _conv(),
    "NhwcConv": _conv(layout=_always),
    "NhwcFusedConv": _conv(layout=_always),
    "QLinearConv": _conv(weight=3, dtype=7, layout=_is_channels_last),
    "ConvTransposeWithDynamicPads": _conv_transpose(pads=2),
    "MaxpoolWithMask": _pool(),
    "NhwcMaxPool": _pool(_always),
    "QLinearAveragePool": _pool(_is_channels_last),
    "QLinearGlobalAveragePool": _global_pool(_is_channels_last),
    "CausalConvWithState": _causal_conv,
    "VarlenCausalConvWithState": _varlen_causal_conv,
}

# Of the standard domain: onnx misreads poolings that round up, and scales that are fractions.
IMAGE_RULES: Mapping[str, ShapeRule] = {
    "AveragePool": _pool(),
    "LpPool": _pool(),
    "MaxPool": _pool(has_indices=True),
    "Resize": _resize,
    "Upsample": _resize,
}

NHWC_RULES: Mapping[str, ShapeRule] = {
    "Conv": _conv(layout=_always),
    "ConvTranspose": _conv_transpose(layout=_always),
    "QLinearConv": _conv(weight=3, dtype=7, layout=_always),
    "QLinearConvTranspose": _conv_transpose(weight=3, dtype=7, layout=_always),
    "AveragePool": _pool(_always),
    "LpPool": _pool(_always),
    "MaxPool": _pool(_always, has_indices=True),
    "QLinearAveragePool": _pool(_always),
    "GlobalAveragePool": _global_pool(_always),
    "GlobalLpPool": _global_pool(_always),
    "GlobalMaxPool": _global_pool(_always),
    "BatchNormalization": like(0, 3, 4),
    "InstanceNormalization": like(0),
    "LRN": like(0),
    "DepthToSpace": _between_space_and_depth(into_depth=False),
    "SpaceToDepth": _between_space_and_depth(into_depth=True),
}

# Images in blocks of channels: (batch, channels in whole blocks, height, width).
NCHWC_RULES: Mapping[str, ShapeRule] = {
    "Conv": _conv(),
    "AveragePool": _pool(),
    "MaxPool": _pool(),
    "GlobalAveragePool": _global_pool(),
    "GlobalMaxPool": _global_pool(),
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
    "Upsample": _upsample_blocks,
}
