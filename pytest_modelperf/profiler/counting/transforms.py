"""The cost of transforms of whole axes and matrices, by their textbook algorithms.

Fourier: 5 n log2 n for n complex values, half of it where one side is real, whatever the
factors of n and the number of dimensions (the convention of benchFFT,
http://www.fftw.org/speed/method.html). Determinant: the LU factorization, n^3 / 3 multiply-adds;
inverse: the same and n solutions, n^3 (Golub and Van Loan, Matrix Computations, section 3.2).
A multiply-add here is MUL + ADD, as FLOPs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log2, prod

from pytest_modelperf.graph.structure import Node, Tensor, UnknownShapeError
from pytest_modelperf.profiler.counting.cost import ADD, CMP, MUL, Cost, Counter
from pytest_modelperf.profiler.counting.per_element import elementwise, per_input_element


def fourier_ops(n: int, *, real: bool) -> int:
    """Operations of one transform of n values."""
    return round((2.5 if real else 5.0) * n * log2(n)) if n > 1 else 0


def count_dft(node: Node) -> Cost:
    """A transform along one axis, which was an attribute until opset 19.

    Real is an input of one component, and the result of an inverse from one side.
    """
    axis = _axis(node)
    *_, components = node.input(0).dims
    lines = prod(node.input(0).dims) // max(1, node.input(0).dims[axis] * components)
    one_sided = node.attr_int("onesided", 0) != 0
    inverse = node.attr_int("inverse", 0) != 0
    if not one_sided or inverse:
        n = node.output().dims[axis]
    elif node.optional_input(1) is None:
        n = node.input(0).dims[axis]
    else:
        n = _length(node, 1, axis)
    real = components == 1 or (one_sided and inverse)
    return elementwise(lines * fourier_ops(n, real=real))


def count_stft(node: Node) -> Cost:
    """A windowed transform of each frame of each signal."""
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


def count_real_fft(node: Node) -> Cost:
    """A real signal's transform over its last `signal_ndim` dimensions."""
    return elementwise(_real_transforms(node, node.input(0)))


def count_inverse_real_fft(node: Node) -> Cost:
    """A real signal from its transform: the output has its dimensions."""
    return elementwise(_real_transforms(node, node.output()))


def count_det(node: Node) -> Cost:
    """A determinant of each matrix."""
    *batch, n, _ = node.input(0).dims
    return elementwise(prod(batch) * (n**3 // 3) * (MUL + ADD))


def count_inverse(node: Node) -> Cost:
    """An inverse of each matrix."""
    *batch, n, _ = node.input(0).dims
    return elementwise(prod(batch) * n**3 * (MUL + ADD))


def _real_transforms(node: Node, signal: Tensor) -> int:
    axes = max(1, node.attr_int("signal_ndim", 1))
    *batch, n = (*signal.dims[:-axes], prod(signal.dims[-axes:]))
    return prod(batch) * fourier_ops(n, real=True)


def _axis(node: Node) -> int:
    """The transformed axis: by default 1 as an attribute, and -2 as the input it is now."""
    if node.opset and node.opset < 20:
        return node.attr_int("axis", 1)
    axis = node.optional_input(2)
    if axis is None:
        return -2
    if axis.value is None:
        raise UnknownShapeError(axis.name)
    return int(axis.value.item())


def _length(node: Node, index: int, axis: int) -> int:
    """The transform's length: a constant input, or told by the frequencies that come out."""
    given = node.input(index).value
    if given is not None:
        return int(given.item())
    frequencies = node.output().dims[axis]
    return 2 * (frequencies - 1) if node.attr_int("onesided", 1) else frequencies


COUNTERS: Mapping[str, Counter] = {
    "DFT": count_dft,
    "Det": count_det,
    "STFT": count_stft,
    # The cheapest way to each cell is the least of three before it, plus the cell.
    "com.microsoft::DynamicTimeWarping": per_input_element(2 * CMP + ADD),
    "com.microsoft::Inverse": count_inverse,
    "com.microsoft::Irfft": count_inverse_real_fft,
    "com.microsoft::Rfft": count_real_fft,
}
