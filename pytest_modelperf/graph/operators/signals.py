"""Signals and matrices: ranges, windows, random numbers, and transforms of whole axes.

A uniform random number is one step of a linear congruential generator, state * a + c, scaled to
its range; a normal one is made from two of them, and a choice among classes from one
(Box and Muller, A Note on the Generation of Random Normal Deviates, 1958).

Fourier: 5 n log2 n for n complex values, half of it if one side is real, for any factors of n
and any number of dimensions (the convention of benchFFT,
http://www.fftw.org/speed/method.html). Determinant: the LU factorization, n^3 / 3 multiply-adds;
inverse: the same and n solutions, n^3 (Golub and Van Loan, Matrix Computations, section 3.2).
A multiply-add here is MUL + ADD, as in FLOPs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import ceil, isfinite, log2, prod

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
from pytest_modelperf.graph.operators.element_ops import (
    UNIFORM,
    ceil_log2,
    elementwise,
    free,
    per_input,
    per_output,
)
from pytest_modelperf.graph.operators.operator import (
    LENGTH,
    MAKES,
    NO_LENGTH,
    ONE,
    Demand,
    Operator,
    sized,
    worded,
)
from pytest_modelperf.graph.shape_arithmetic import Dim, dim, product, total, with_last
from pytest_modelperf.graph.shape_rule import (
    Outputs,
    dtype_of,
    has_input,
    like,
    numbers_of,
    outputs,
    shape_of,
)
from pytest_modelperf.graph.structure import Node, UnknownShapeError

NORMAL = 2 * UNIFORM + (LOG + MUL + SQRT) + (MUL + COS) + MUL  # sqrt(-2 log u) * cos(2 pi v)
COSINE_TERM = MUL + COS + MUL + ADD  # + a * cos(b * i)


def count_multinomial(node: Node) -> Cost:
    """Count cumulated probabilities of each row of logits, and a binary search for every sample."""
    samples = node.output().size
    classes = node.input(0).dims[-1]
    distribution = node.input(0).size * (CMP + ADD + EXP + ADD)
    return elementwise(distribution + samples * (UNIFORM + ceil_log2(classes) * CMP))


def count_mel_weight_matrix(node: Node) -> Cost:
    """Count triangles in a matrix [frequencies, mel bins] of zeros.

    There are two more edges than bins: 700 * (10^(mel / 2595) - 1) Hz, then the index of a
    frequency. Each frequency is in at most two triangles, each a difference and a quotient.
    """
    frequencies, bins = node.output().dims
    edges = (bins + 2) * (DIV + POW + ADD + MUL + MUL + DIV)
    return elementwise(frequencies * bins * MOV + edges + 2 * frequencies * (ADD + DIV))


def fourier_ops(n: int, *, real: bool) -> int:
    return round((2.5 if real else 5.0) * n * log2(n)) if n > 1 else 0


def count_dft(node: Node) -> Cost:
    """Count a transform along one axis, which was an attribute until opset 19.

    An input of one component is real, and so is the result of an inverse from one side.
    """
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
}  # fmt: skip
