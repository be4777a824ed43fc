"""Convolutions and poolings, in each layout of images.

Counting rule: a window that overlaps the padding is counted in full, so that the MACs of a
convolution are `output elements x input channels of a group x kernel elements`. The kernel tensor
is [output channels, input channels / group, kernel...] in every domain, channels-last ones too, so
the product of all but its first dimension is the MACs of one output element. A transposed
convolution scatters instead: each *input* element is multiplied by the kernel once, for any stride.
Global pooling reads each input element once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from pytest_modelperf.graph.operators.cost import (
    ADD,
    CMP,
    DIV,
    MOV,
    MUL,
    Contraction,
    Cost,
    Counter,
)
from pytest_modelperf.graph.operators.operator import (
    LENGTH,
    REQUANTIZE,
    Operator,
    activation_ops,
    bias_ops,
    elementwise,
    move,
    norm_ops,
    per_input,
    rows_of,
    zero_point_ops,
)
from pytest_modelperf.graph.shape_rules import (
    Outputs,
    OutputType,
    Window,
    channels_first,
    channels_last,
    dim,
    dtype_of,
    has_input,
    ints_of,
    outputs,
    product,
    shape_of,
    slide,
    stated_size,
    total,
    unslide,
    with_last,
)
from pytest_modelperf.graph.structure import Node, Shape


def count_conv(  # noqa: PLR0913  # places of inputs, which differ between operators
    node: Node,
    *,
    weight: int = 1,
    zero_points: tuple[int | None, int | None] = (None, None),
    bias: int | None = 2,
    residual: int | None = None,
    per_element: int = 0,
    transposed: bool = False,
) -> Cost:
    """Count a convolution, with the activation and the addition that may be fused into it."""
    # Integers may have zero points, and `per_element` rescales their results.
    elements = node.output().size
    meetings = node.input(0).size if transposed else elements
    activation = activation_ops(node.attr_str("activation", ""))
    return Cost(
        (Contraction(meetings * _window(node, weight), (0, weight)),),
        zero_point_ops(node, 0, zero_points[0])
        + zero_point_ops(node, weight, zero_points[1])
        + bias_ops(node, bias, elements)
        + bias_ops(node, residual, elements)
        + elements * (activation + per_element),
    )


def count_conv_transpose(node: Node, *, bias: int = 2) -> Cost:
    """Count a transposed convolution with a kernel [channels, output channels / group, ...]."""
    return Cost(
        (Contraction(node.input(0).size * _window(node, 1), (0, 1)),),
        bias_ops(node, bias, node.output().size) if has_input(node, bias) else 0,
    )


def count_deform_conv(node: Node) -> Cost:
    """Count a convolution whose window elements are each sampled between 2^n pixels."""
    # Each of the `n` coordinates of a sampled position takes the addition of its offset, a floor
    # and two fractions. The 2^n corner weights are products of n fractions each. Every channel then
    # blends its 2^n corners, and is masked if a mask is given. (Dai et al.,
    # https://arxiv.org/abs/1703.06211, equations 3 and 4.)
    output, kernel, offset = node.output(), node.input(1), node.input(2)
    n = kernel.rank - 2
    corners = 2**n
    samples = node.input(0).dims[1] * prod(kernel.dims[2:]) * output.size // output.dims[1]
    per_sample = corners * MUL + (corners - 1) * ADD
    if has_input(node, 4):
        per_sample += MUL
    positions = offset.size // n
    per_position = n * (ADD + MOV + 2 * ADD) + corners * (n - 1) * MUL
    return Cost(
        (Contraction(output.size * _window(node, 1), (0, 1)),),
        samples * per_sample + positions * per_position + bias_ops(node, 3, output.size),
    )


def count_causal_conv(node: Node, *, bias: int = 2) -> Cost:
    """Count a depthwise convolution over past and present positions, as large as its input."""
    # The kernel is [channels, 1, k, ...] in every layout of the activations. If channels are last,
    # only a slice of them may be read.
    x = node.input(0)
    elements = x.size
    taken = node.attr_int("input_channels", 0)
    if taken and x.dims[-1]:
        elements = elements // x.dims[-1] * taken
    return Cost(
        (Contraction(elements * _window(node, 1), (0, 1)),),
        bias_ops(node, bias, elements)
        + elements * activation_ops(node.attr_str("activation", "none")),
    )


def count_varlen_causal_conv(node: Node) -> Cost:
    """Count a causal convolution over packed tokens."""
    # A token may add to its kernel and scale the tokens before it.
    cost = count_causal_conv(node, bias=3)
    if not has_input(node, 6):
        return cost
    return cost.plus(node.input(0).size * (_window(node, 1) * ADD + MUL))


def count_word_conv_embedding(node: Node) -> Cost:
    """Count a convolution over each word's characters, then tanh and the maximum over positions."""
    # The inputs are [..., characters] of words, a kernel [filters, 1, window, embedding], a bias,
    # and the table of character vectors. Words are counted at full length, as padding is elsewhere.
    *words, characters = node.input(0).dims
    filters, _, window, embedding = node.input(1).dims
    results = prod(words) * max(characters - window + 1, 0) * filters
    lookups = prod(words) * characters * embedding
    return Cost(
        (Contraction(results * window * embedding, (3, 1)),),
        lookups * MOV + results * (ADD + activation_ops("Tanh") + CMP),
    )


def _window(node: Node, kernel: int) -> int:
    return prod(node.input(kernel).dims[1:])


_count_fused_conv = partial(count_conv, residual=3)
_count_qlinear_conv = partial(
    count_conv, weight=3, zero_points=(2, 5), bias=8, per_element=REQUANTIZE
)


def pool(per_window_element: int, per_output: int = 0) -> Counter:
    """Count operations for each window element and each result, and a fused activation."""

    def count(node: Node) -> Cost:
        activated = activation_ops(node.attr_str("activation", ""))
        per_result = window_size(node) * per_window_element + per_output + activated
        return elementwise(node.output().size * per_result)

    return count


def count_lp_pool(node: Node) -> Cost:
    results = node.output().size
    return elementwise(norm_ops(node.attr_int("p", 2), results * window_size(node), results))


def count_global_lp_pool(node: Node) -> Cost:
    return elementwise(norm_ops(node.attr_int("p", 2), node.input(0).size, node.output().size))


def count_unpool(node: Node) -> Cost:
    """Count a move for each element: the output is cleared, and inputs are put in their places."""
    return elementwise((node.output().size + node.input(0).size) * MOV)


def window_size(node: Node) -> int:
    kernel = node.attr_ints("kernel_shape")
    if not kernel:
        raise ValueError(f"{node.op_type} {node.name!r} has no kernel_shape")
    return prod(kernel)


_average_pool = pool(ADD, DIV)
_max_pool = pool(CMP)
_global_average_pool = per_input(ADD, per_output=DIV)
_global_max_pool = per_input(CMP)
# Integers are summed, and the mean is rescaled to the output's scale in one step.
_qlinear_average_pool = pool(ADD, REQUANTIZE)


def shape_word_conv_embedding(node: Node) -> Outputs:
    """Return one vector for each word, which is a row of characters."""
    size = node.attr_int("embedding_size", 0) or dim(shape_of(node, 1), 0)
    return outputs(dtype_of(node, 1), (dim(shape_of(node, 0), 0), size))


def _is_channels_last(node: Node) -> bool:
    by_name = node.domain == "com.ms.internal.nhwc" or node.op_type.startswith("Nhwc")
    return by_name or node.attr_int("channels_last", 0) != 0


def _image_of(node: Node) -> Shape | None:
    shape = shape_of(node, 0)
    if shape is None or len(shape) < 2:
        return None
    return channels_first(shape) if _is_channels_last(node) else shape


def _image(node: Node, dtype: int, shape: Shape | None) -> Outputs:
    laid_out = channels_last(shape) if _is_channels_last(node) else shape
    return outputs(dtype_of(node, dtype), laid_out)


def _window_of(node: Node, kernel: Shape, pads: tuple[int, ...] | None = None) -> Window:
    return Window(
        kernel=node.attr_ints("kernel_shape") or kernel,
        strides=node.attr_ints("strides"),
        pads=node.attr_ints("pads") if pads is None else pads,
        dilations=node.attr_ints("dilations"),
        auto_pad=node.attr_str("auto_pad", "NOTSET"),
        rounds_up=node.attr_int("ceil_mode", 0) != 0,
    )


def shape_conv(node: Node, weight: int = 1, dtype: int = 0) -> Outputs:
    """Return a convolution. Weights are (out, in / group, *kernel) in every layout of images."""
    image, kernel = _image_of(node), shape_of(node, weight)
    if image is None:
        return outputs(dtype_of(node, dtype), None)
    spatial = slide(image[2:], _window_of(node, (kernel or ())[2:]))
    return _image(node, dtype, (image[0], dim(kernel, 0), *spatial))


def shape_conv_transpose(
    node: Node, weight: int = 1, dtype: int = 0, pads: int | None = None
) -> Outputs:
    """Return a transposed convolution with weights (in, out / group, *kernel)."""
    image, kernel = _image_of(node), shape_of(node, weight)
    if image is None:
        return outputs(dtype_of(node, dtype), None)
    given_pads = None if pads is None else ints_of(node, pads)
    spatial: Shape = node.attr_ints("output_shape")
    if len(spatial) != len(image) - 2:
        if has_input(node, pads) and given_pads is None:
            spatial = (None,) * (len(image) - 2)
        else:
            window = _window_of(node, (kernel or ())[2:], given_pads)
            spatial = unslide(image[2:], window, node.attr_ints("output_padding"))
    channels = product(dim(kernel, 1), node.attr_int("group", 1))
    return _image(node, dtype, (image[0], channels, *spatial))


def shape_pool(node: Node) -> Outputs:
    image = _image_of(node)
    if image is None:
        return outputs(dtype_of(node, 0), None)
    spatial = slide(image[2:], _window_of(node, (None,) * (len(image) - 2)))
    return _image(node, 0, (*image[:2], *spatial))


def shape_max_pool(node: Node) -> Outputs:
    """Return the largest elements and their positions."""
    (pooled,) = shape_pool(node)
    return pooled, OutputType("int64", pooled.shape)


def shape_global_pool(node: Node) -> Outputs:
    image = _image_of(node)
    shape = None if image is None else (*image[:2], *(1 for _ in image[2:]))
    return _image(node, 0, shape)


def shape_reorder_input(node: Node) -> Outputs:
    """Return channels in blocks of 8 or 16. Their number is known if both divide it evenly."""
    image = _image_of(node)
    if image is None:
        return outputs(dtype_of(node, 0), None)
    batch, channels, *spatial = image
    whole = channels if channels is not None and channels % 16 == 0 else None
    return outputs(dtype_of(node, 0), (batch, whole, *spatial))


def shape_reorder_output(node: Node) -> Outputs:
    image = shape_of(node, 0)
    if image is None or len(image) < 2:
        return outputs(dtype_of(node, 0), None)
    shape = (image[0], stated_size(node, "channels"), *image[2:])
    return _image(node, 0, shape)


def shape_causal_conv(node: Node) -> Outputs:
    """Return a causal depthwise convolution, its state for the next call, and what it read."""
    # If channels are last, it may take a slice of them, and its state may have another layout.
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
    return outputs(dtype, result, state, update)


def shape_varlen_causal_conv(node: Node) -> Outputs:
    state = shape_of(node, 4)
    update = (dim(state, 0), node.attr_int("state_update_capacity", 0), dim(state, 1))
    return outputs(dtype_of(node, 0), shape_of(node, 0), state, update)


OPERATORS: Mapping[str, Operator] = {
    "AveragePool": Operator(_average_pool, shape_pool),
    "CausalConvWithState": Operator(count_causal_conv),
    "Conv": Operator(count_conv),
    "ConvInteger": Operator(partial(count_conv, zero_points=(2, 3), bias=None)),
    "ConvTranspose": Operator(count_conv_transpose),
    "DeformConv": Operator(count_deform_conv),
    "GlobalAveragePool": Operator(_global_average_pool),
    "GlobalLpPool": Operator(count_global_lp_pool),
    "GlobalMaxPool": Operator(_global_max_pool),
    "LpPool": Operator(count_lp_pool, shape_pool),
    # onnx infers wrong sizes for poolings that round up.
    "MaxPool": Operator(_max_pool, shape_max_pool),
    "MaxUnpool": Operator(count_unpool, demands={1: rows_of(0, -1), 2: LENGTH}),
    "QLinearConv": Operator(_count_qlinear_conv),
    "com.microsoft.nchwc::AveragePool": Operator(_average_pool, shape_pool),
    "com.microsoft.nchwc::Conv": Operator(_count_fused_conv, shape_conv),
    "com.microsoft.nchwc::GlobalAveragePool": Operator(_global_average_pool, shape_global_pool),
    "com.microsoft.nchwc::GlobalMaxPool": Operator(_global_max_pool, shape_global_pool),
    "com.microsoft.nchwc::MaxPool": Operator(_max_pool, shape_pool),
    "com.microsoft.nchwc::ReorderInput": Operator(move, shape_reorder_input),
    "com.microsoft.nchwc::ReorderOutput": Operator(move, shape_reorder_output),
    "com.microsoft::CausalConvWithState": Operator(count_causal_conv, shape_causal_conv),
    "com.microsoft::ConvTransposeWithDynamicPads": Operator(
        partial(count_conv_transpose, bias=3), partial(shape_conv_transpose, pads=2),
    ),
    "com.microsoft::FusedConv": Operator(_count_fused_conv, shape_conv),
    # One comparison is with the mask, the other with the maximum.
    "com.microsoft::MaxpoolWithMask": Operator(pool(2 * CMP), shape_pool),
    "com.microsoft::NhwcConv": Operator(count_conv, shape_conv),
    "com.microsoft::NhwcFusedConv": Operator(_count_fused_conv, shape_conv),
    "com.microsoft::NhwcMaxPool": Operator(_max_pool, shape_pool),
    "com.microsoft::QLinearAveragePool": Operator(_qlinear_average_pool, shape_pool),
    "com.microsoft::QLinearConv": Operator(
        _count_qlinear_conv, partial(shape_conv, weight=3, dtype=7),
    ),
    "com.microsoft::QLinearGlobalAveragePool": Operator(
        per_input(ADD, per_output=REQUANTIZE), shape_global_pool,
    ),
    "com.microsoft::VarlenCausalConvWithState": Operator(
        count_varlen_causal_conv, shape_varlen_causal_conv,
    ),
    "com.microsoft::WordConvEmbedding": Operator(
        count_word_conv_embedding, shape_word_conv_embedding, demands={0: rows_of(3)},
    ),
    "com.ms.internal.nhwc::AveragePool": Operator(_average_pool, shape_pool),
    "com.ms.internal.nhwc::Conv": Operator(count_conv, shape_conv),
    "com.ms.internal.nhwc::ConvTranspose": Operator(count_conv_transpose, shape_conv_transpose),
    "com.ms.internal.nhwc::GlobalAveragePool": Operator(_global_average_pool, shape_global_pool),
    "com.ms.internal.nhwc::GlobalLpPool": Operator(count_global_lp_pool, shape_global_pool),
    "com.ms.internal.nhwc::GlobalMaxPool": Operator(_global_max_pool, shape_global_pool),
    "com.ms.internal.nhwc::LpPool": Operator(count_lp_pool, shape_pool),
    "com.ms.internal.nhwc::MaxPool": Operator(_max_pool, shape_max_pool),
    "com.ms.internal.nhwc::MaxUnpool": Operator(count_unpool),
    "com.ms.internal.nhwc::QLinearAveragePool": Operator(_qlinear_average_pool, shape_pool),
    "com.ms.internal.nhwc::QLinearConv": Operator(
        _count_qlinear_conv, partial(shape_conv, weight=3, dtype=7),
    ),
    "com.ms.internal.nhwc::QLinearConvTranspose": Operator(
        partial(_count_qlinear_conv, transposed=True),
        partial(shape_conv_transpose, weight=3, dtype=7),
    ),
}  # fmt: skip
