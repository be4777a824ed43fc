"""Fourier transforms, determinants and inverses, by the count of their textbook algorithm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.graph.operators.cost import ADD, CMP, MUL
from pytest_modelperf.graph.operators.signals import fourier_ops
from pytest_modelperf.graph.structure import Tensor, UnknownShapeError
from tests.graph.operators.nodes import node, ops, reference, unknown


def constant(value: int) -> Tensor:
    return Tensor(f"k{value}", "int64", (), is_constant=True, value=np.array(value, np.int64))


def test_a_complex_transform_is_5_n_log_n_and_a_real_one_half() -> None:
    assert fourier_ops(1024, real=False) == 5 * 1024 * 10
    assert fourier_ops(1024, real=True) == 5 * 512 * 10
    assert fourier_ops(1, real=False) == fourier_ops(0, real=True) == 0


def butterflies(n: int) -> int:
    """Operations of a radix-2 transform that is run: 10 a butterfly."""
    if n == 1:
        return 0
    return 2 * butterflies(n // 2) + n // 2 * (4 * MUL + 2 * ADD + 4 * ADD)


@given(st.integers(0, 14))
def test_powers_of_two_are_counted_as_radix_2_runs_them(exponent: int) -> None:
    assert fourier_ops(2**exponent, real=False) == butterflies(2**exponent)


def test_transforms_run_along_each_line() -> None:
    real = node("DFT", [(3, 64, 5, 1), None, constant(1)], [(3, 64, 5, 2)])
    assert ops(real) == 15 * fourier_ops(64, real=True)
    whole = node("DFT", [(3, 64, 5, 2), None, constant(1)], [(3, 64, 5, 2)])
    assert ops(whole) == 15 * fourier_ops(64, real=False)
    last = node("DFT", [(3, 64, 5, 2)], [(3, 64, 5, 2)])
    assert ops(last) == 192 * fourier_ops(5, real=False)


def test_the_axis_was_an_attribute_until_opset_19() -> None:
    old = node("DFT", [(3, 64, 5, 1)], [(3, 64, 5, 2)], opset=17)
    assert ops(old) == 15 * fourier_ops(64, real=True)
    assert ops(node("DFT", [(3, 64, 5, 1)], [(3, 64, 5, 2)], opset=17, axis=2)) == 192 * (
        fourier_ops(5, real=True)
    )


@pytest.mark.parametrize("length", [None, 16, 40])
@pytest.mark.parametrize("onesided", [0, 1])
def test_the_length_is_that_of_the_transform_and_not_of_its_input(
    length: int | None, onesided: int
) -> None:
    """Padded or cut, one side or both: a real run's output has the same length."""
    x = np.ones((2, 30, 1), np.float32)
    given_array = None if length is None else np.array(length, np.int64)
    inputs = [x, given_array, np.array(1, np.int64)]
    y = reference("DFT", inputs, opset=20, onesided=onesided)
    for given_length in (constant(length), Tensor("length")) if length else (None,):
        call = node("DFT", [x.shape, given_length, constant(1)], [y.shape], onesided=onesided)
        assert ops(call) == 2 * fourier_ops(length or 30, real=True)


def test_an_inverse_from_one_side_is_real() -> None:
    call = node("DFT", [(2, 17, 2)], [(2, 32, 1)], inverse=1, onesided=1)
    assert ops(call) == 2 * fourier_ops(32, real=True)


def test_an_axis_that_is_not_constant_is_named() -> None:
    with pytest.raises(UnknownShapeError, match="where"):
        ops(node("DFT", [(2, 17, 2), None, unknown("where")], [(2, 17, 2)]))


def test_a_short_time_transform_windows_each_frame() -> None:
    out = (2, 98, 257, 2)
    windowed = node("STFT", [(2, 16000, 1), (), (512,)], [out])
    assert ops(windowed) == 2 * 98 * (512 * MUL + fourier_ops(512, real=True))
    for length in (constant(512), Tensor("length")):
        plain = node("STFT", [(2, 16000, 1), (), None, length], [out])
        assert ops(plain) == 2 * 98 * fourier_ops(512, real=True)
    both = (2, 98, 512, 2)
    complex_signal = node("STFT", [(2, 16000, 2), (), None, Tensor("length")], [both], onesided=0)
    assert ops(complex_signal) == 2 * 98 * fourier_ops(512, real=False)


def test_a_real_transform_and_its_inverse_cost_the_same() -> None:
    there = node("com.microsoft::Rfft", [(3, 8, 16)], [(3, 8, 9, 2)], signal_ndim=1)
    back = node("com.microsoft::Irfft", [(3, 8, 9, 2)], [(3, 8, 16)], signal_ndim=1)
    assert ops(there) == ops(back) == 24 * fourier_ops(16, real=True)
    plane = node("com.microsoft::Rfft", [(3, 8, 16)], [(3, 8, 9, 2)], signal_ndim=2)
    assert ops(plane) == 3 * fourier_ops(8 * 16, real=True)


def eliminations(n: int) -> int:
    """Multiply-adds of an LU factorization that is run."""
    return sum((n - 1 - k) ** 2 for k in range(n))


@given(st.integers(2, 200))
def test_a_determinant_is_an_elimination_but_for_terms_of_lower_order(n: int) -> None:
    counted = ops(node("Det", [(n, n)], [()])) // (MUL + ADD)
    assert eliminations(n) <= counted <= eliminations(n) + n**2


def test_an_inverse_is_three_factorizations() -> None:
    det = ops(node("Det", [(4, 30, 30)], [(4,)]))
    assert ops(node("com.microsoft::Inverse", [(4, 30, 30)], [(4, 30, 30)])) == 3 * det


def test_time_warping_visits_each_cell_once() -> None:
    call = node("com.microsoft::DynamicTimeWarping", [(1, 20, 30)], [unknown()])
    assert ops(call) == 600 * (2 * CMP + ADD)
