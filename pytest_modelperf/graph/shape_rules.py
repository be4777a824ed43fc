"""Shape rules, and their arithmetic with dimensions that may be unknown.

An unknown dimension is None, as is a shape of unknown rank. Every function here accepts both and
returns as much as is known. Shapes that do not fit together give None, never an error.

Rules never fail, because the readers here return None for an input that is absent or unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from msgspec import Struct

from pytest_modelperf.graph.structure import Node, Shape

Dim: TypeAlias = "int | None"


def dim(shape: Shape | None, axis: int) -> Dim:
    """Return the dimension at `axis`, or None if there is no such axis."""
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    return shape[axis]


def common_shape(a: Shape | None, b: Shape | None) -> Shape | None:
    """Return the dimensions that two shapes have in common, or None if their ranks differ."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))


def total(*dims: Dim) -> Dim:
    return None if None in dims else sum(dims)  # type: ignore[arg-type]  # no None is left in it


def product(*dims: Dim) -> Dim:
    return None if None in dims else prod(dims)  # type: ignore[arg-type]  # no None is left in it


def quotient(dividend: Dim, divisor: Dim) -> Dim:
    """Return the size of equal parts, or None if the division leaves a remainder."""
    if dividend is None or divisor is None or divisor <= 0 or dividend % divisor:
        return None
    return dividend // divisor


def with_last(shape: Shape | None, *last: Dim) -> Shape | None:
    return None if not shape else (*shape[:-1], *last)


def broadcast(*shapes: Shape | None) -> Shape | None:
    """Broadcast by NumPy's rule. An unknown dimension must equal a known one other than 1."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or not known:
        return None
    rank = max(map(len, known))
    padded = [(1,) * (rank - len(shape)) + shape for shape in known]
    return tuple(_broadcast_dims(dims) for dims in zip(*padded, strict=True))


def _broadcast_dims(dims: Sequence[Dim]) -> Dim:
    stretched = {each for each in dims if each != 1}
    if not stretched:
        return 1
    stretched.discard(None)
    return stretched.pop() if len(stretched) == 1 else None


def matmul(left: Shape | None, right: Shape | None) -> Shape | None:
    """Return the shape of ONNX's MatMul, which follows numpy.matmul."""
    if not left or not right:
        return None
    batch = broadcast(left[:-2], right[:-2])
    if batch is None:
        return None
    rows = left[-2:-1]
    columns = right[-1:] if len(right) > 1 else ()
    return (*batch, *rows, *columns)


def gemm(
    left: Shape | None, right: Shape | None, *, transpose_left: bool, transpose_right: bool
) -> Shape:
    return dim(left, 1 if transpose_left else 0), dim(right, 0 if transpose_right else 1)


def concat(shapes: Sequence[Shape | None], axis: int) -> Shape | None:
    known = [shape for shape in shapes if shape is not None]
    if not known:
        return None
    rank = len(known[0])
    if any(len(shape) != rank for shape in known) or not -rank <= axis < rank:
        return None
    # The other dimensions of all shapes are equal, so one known dimension gives the rest.
    merged = [_broadcast_dims(dims) for dims in zip(*known, strict=True)]
    along = [dim(shape, axis) for shape in shapes]
    merged[axis] = total(*along)
    return tuple(merged)


def reduce(shape: Shape | None, axes: Sequence[int], *, keeps_dims: bool) -> Shape | None:
    """Return the shape after a reduction over `axes`, or over all axes if none is given."""
    if shape is None:
        return None
    rank = len(shape)
    reduced = {axis % rank for axis in axes} if axes and rank else set(range(rank))
    if keeps_dims:
        return tuple(1 if axis in reduced else each for axis, each in enumerate(shape))
    return tuple(each for axis, each in enumerate(shape) if axis not in reduced)


def gather(data: Shape | None, indices: Shape | None, axis: int) -> Shape | None:
    """Return the shape of ONNX's Gather, which replaces the axis by the shape of the indices."""
    if data is None or indices is None or not -len(data) <= axis < len(data):
        return None
    axis %= len(data)
    return (*data[:axis], *indices, *data[axis + 1 :])


def gather_nd(data: Shape | None, indices: Shape | None) -> Shape | None:
    """Return the shape of ONNX's GatherND without batch dimensions."""
    depth = dim(indices, -1)
    if data is None or indices is None or depth is None or not 0 <= depth <= len(data):
        return None
    return (*indices[:-1], *data[depth:])


def pad(shape: Shape | None, pads: Sequence[int] | None) -> Shape | None:
    """Add its begin and its end to each dimension. With unknown pads, only the rank is known."""
    if shape is None:
        return None
    if pads is None or len(pads) != 2 * len(shape):
        return (None,) * len(shape)
    begins, ends = pads[: len(shape)], pads[len(shape) :]
    return tuple(map(total, shape, begins, ends))


def channels_first(shape: Shape | None) -> Shape | None:
    """Turn NHWC into NCHW, for any number of spatial dimensions."""
    return shape if shape is None or len(shape) < 3 else (shape[0], shape[-1], *shape[1:-1])


def channels_last(shape: Shape | None) -> Shape | None:
    """Turn NCHW into NHWC, for any number of spatial dimensions."""
    return shape if shape is None or len(shape) < 3 else (shape[0], *shape[2:], shape[1])


# -- spatial dimensions after a sliding window: convolution, pooling, and their transposes


class Window(Struct, frozen=True):
    """A kernel and its movement over the spatial dimensions, in ONNX's terms."""

    kernel: Shape
    # An empty tuple means ONNX's default.
    strides: tuple[int, ...] = ()
    # All begins, then all ends.
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    auto_pad: str = "NOTSET"
    rounds_up: bool = False


def slide(spatial: Shape, window: Window) -> Shape:
    """Return the number of positions of the window, as in ONNX's Conv and AveragePool."""
    steps = _steps(len(spatial), window)
    if steps is None:
        return (None,) * len(spatial)
    return tuple(_positions(size, step, window) for size, step in zip(spatial, steps, strict=True))


def unslide(spatial: Shape, window: Window, output_padding: Sequence[int] = ()) -> Shape:
    """Return the output size of a transposed convolution, as in ONNX's ConvTranspose.

    stride * (size - 1) + output_padding + (kernel - 1) * dilation + 1 - begin - end
    """
    steps = _steps(len(spatial), window)
    extra = tuple(output_padding) or (0,) * len(spatial)
    if steps is None or len(extra) != len(spatial):
        return (None,) * len(spatial)
    if window.auto_pad.startswith("SAME"):
        return tuple(product(size, s.stride) for size, s in zip(spatial, steps, strict=True))
    return tuple(
        None if size is None or s.kernel is None
        else max(0, s.stride * (size - 1) + more + s.span(s.kernel) - _padding(s, window))
        for size, s, more in zip(spatial, steps, extra, strict=True)
    )  # fmt: skip


class _Step(Struct, frozen=True):
    kernel: Dim
    stride: int
    dilation: int
    begin: int
    end: int

    def span(self, kernel: int) -> int:
        return (kernel - 1) * self.dilation + 1


def _steps(rank: int, window: Window) -> list[_Step] | None:
    strides = window.strides or (1,) * rank
    dilations = window.dilations or (1,) * rank
    pads = window.pads or (0,) * (2 * rank)
    lengths = (len(window.kernel), len(strides), len(dilations), len(pads) / 2)
    if any(length != rank for length in lengths) or min(strides, default=1) < 1:
        return None
    columns = (window.kernel, strides, dilations, pads[:rank], pads[rank:])
    return [_Step(*column) for column in zip(*columns, strict=True)]


def _padding(step: _Step, window: Window) -> int:
    return 0 if window.auto_pad == "VALID" else step.begin + step.end


def _positions(size: Dim, step: _Step, window: Window) -> Dim:
    if size is None:
        return None
    if window.auto_pad.startswith("SAME"):
        return -(-size // step.stride)
    if step.kernel is None:
        return None
    room = size + _padding(step, window) - step.span(step.kernel)
    if room < 0:
        return 0
    if not window.rounds_up:
        return room // step.stride + 1
    positions = -(-room // step.stride) + 1
    # A window that would start in the end padding is left out. ONNX Runtime 1.19 still counts it.
    starts_in_end = (positions - 1) * step.stride >= size + step.begin
    return positions - 1 if starts_in_end else positions


class OutputType(Struct, frozen=True):
    """The known type and shape of one output. None means unknown."""

    dtype: str | None
    shape: Shape | None


ShapeRule: TypeAlias = Callable[[Node], "tuple[OutputType | None, ...]"]
Outputs: TypeAlias = tuple[OutputType, ...]


def has_input(node: Node, index: int | None) -> bool:
    """Whether a node has an input at `index`, which is None if its operator takes none."""
    return index is not None and node.optional_input(index) is not None


def shape_of(node: Node, index: int) -> Shape | None:
    tensor = node.optional_input(index)
    return None if tensor is None else tensor.shape


def dtype_of(node: Node, index: int) -> str | None:
    tensor = node.optional_input(index)
    return None if tensor is None else tensor.dtype


def numbers_of(node: Node, index: int) -> tuple[float, ...] | None:
    """Return the flattened value of a numeric input, if it is a known constant."""
    return _values_of(node, index, kinds="iufb")


def ints_of(node: Node, index: int) -> tuple[int, ...] | None:
    """Return the flattened value of an integer or boolean input, if it is a known constant."""
    values = _values_of(node, index, kinds="iub")
    return None if values is None else tuple(map(int, values))


def int_of(node: Node, index: int) -> int | None:
    """Return the value of a one-element integer input, if it is a known constant."""
    values = ints_of(node, index)
    return values[0] if values is not None and len(values) == 1 else None


def stated_size(node: Node, name: str) -> int | None:
    """Return a size that is an attribute. Zero means that it is not set."""
    return node.attr_int(name, 0) or None


def like(*indexes: int, dtype: str | None = None) -> Callable[[Node], Outputs]:
    """Return a rule for outputs with the shapes of these inputs, and their types or `dtype`."""

    def rule(node: Node) -> Outputs:
        return tuple(OutputType(dtype or dtype_of(node, i), shape_of(node, i)) for i in indexes)

    return rule


def outputs(dtype: str | None, *shapes: Shape | None) -> Outputs:
    return tuple(OutputType(dtype, shape) for shape in shapes)


def _values_of(node: Node, index: int, kinds: str) -> tuple[float, ...] | None:
    tensor = node.optional_input(index)
    if tensor is None or tensor.value is None or tensor.value.dtype.kind not in kinds:
        return None
    return tuple(tensor.value.reshape(-1).tolist())
