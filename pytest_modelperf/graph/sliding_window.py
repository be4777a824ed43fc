"""Spatial dimensions after a sliding window: convolution, pooling, and their transposes.

An unknown dimension is None. Shapes that do not fit together give None, never an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.graph.shape_arithmetic import Dim, product
from pytest_modelperf.graph.structure import Shape


class Window(Struct, frozen=True):
    """A kernel and its movement over the spatial dimensions, in ONNX's terms.

    `pads` holds all begins, then all ends. An empty tuple means ONNX's default.
    """

    kernel: Shape
    strides: tuple[int, ...] = ()
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
