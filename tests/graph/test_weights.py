"""The notes on a weight are true of it, and of the values that are drawn from them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_modelperf.graph.structure import BITS
from pytest_modelperf.graph.weights.drawing import (
    Drawer,
    describe,
    find_run_lengths,
    run_length_pieces,
)
from pytest_modelperf.graph.weights.notes import (
    GROUPINGS,
    DeadSlices,
    GroupedZeros,
    Indices,
    Note,
    RunLengths,
    Statistics,
    format_note,
    parse_note,
)
from pytest_modelperf.graph.weights.numbers import NumberType, codes_of, number_type
from pytest_modelperf.graph.weights.program import PIECE

if TYPE_CHECKING:
    from pytest_modelperf.graph.weights.numbers import Codes

_REAL = sorted(set(BITS) - {"complex64", "complex128"})
# The elements of a weight that is drawn in three pieces.
_LONG = 2 * PIECE + 12345


def _type(dtype: str) -> NumberType:
    number = number_type(dtype)
    assert number is not None
    return number


def _pieces(codes: Codes, size: int = 1 << 18) -> Iterator[Codes]:
    return (codes[start : start + size] for start in range(0, codes.size, size))


def _describe(values: npt.NDArray[Any], dtype: str, size: int = 1 << 18) -> Note:
    number = _type(dtype)
    codes = codes_of(values, number)
    note = describe(number, values.shape, lambda: _pieces(codes, size))
    assert note is not None
    # The values that are read are those that were written.
    assert parse_note(format_note(note), number, values.shape) == note
    return note


def _statistics(values: npt.NDArray[Any], dtype: str = "float32") -> Statistics:
    note = _describe(values, dtype)
    assert isinstance(note, Statistics)
    return note


def _draw(
    note: Note, shape: tuple[int, ...], dtype: str = "float32", seed: int = 0
) -> npt.NDArray[Any]:
    number = _type(dtype)
    codes = np.concatenate(list(Drawer(seed).draw_codes(note, number, shape, "w")))
    return number.decode(codes).reshape((*shape, number.components)[: len(shape) + 1])[
        (..., 0) if number.components == 1 else ...
    ]


def _twin_of(values: npt.NDArray[Any], dtype: str = "float32") -> npt.NDArray[Any]:
    drawn: npt.NDArray[Any] = _draw(_describe(values, dtype), values.shape, dtype)
    return drawn


# -- codes


# Mantissa bits and the bias of the exponent by IEEE 754 and by ONNX, "Float stored in 8 bits" and
# "Float stored in 4 bits", and the magnitudes that are infinite or not a number.
_LAYOUTS: Mapping[str, tuple[int, int, Mapping[int, float]]] = {
    "float16": (10, 15, {0x7C00: math.inf, **dict.fromkeys(range(0x7C01, 0x8000), math.nan)}),
    "bfloat16": (7, 127, {0x7F80: math.inf, **dict.fromkeys(range(0x7F81, 0x8000), math.nan)}),
    "float8e4m3fn": (3, 7, {0x7F: math.nan}),
    "float8e4m3fnuz": (3, 8, {}),
    "float8e5m2": (2, 15, {0x7C: math.inf, 0x7D: math.nan, 0x7E: math.nan, 0x7F: math.nan}),
    "float8e5m2fnuz": (2, 16, {}),
    "float4e2m1": (1, 1, {}),
}


def _number_of(code: int, dtype: str) -> float:
    """The number that the documentation of the type gives to a code."""
    bits = BITS[dtype]
    if dtype == "float8e8m0":
        return math.nan if code == 0xFF else math.ldexp(1.0, code - 127)
    if dtype not in _LAYOUTS:
        is_negative = dtype.startswith("int") and code >> (bits - 1)
        return code - (1 << bits) if is_negative else code
    mantissa_bits, bias, specials = _LAYOUTS[dtype]
    sign, magnitude = divmod(code, 1 << (bits - 1))
    if dtype.endswith("uz") and code == 1 << (bits - 1):
        return math.nan
    if magnitude in specials:
        return -specials[magnitude] if sign else specials[magnitude]
    exponent, fraction = divmod(magnitude, 1 << mantissa_bits)
    significand = fraction / (1 << mantissa_bits) + (exponent > 0)
    number = math.ldexp(significand, max(exponent, 1) - bias)
    return -number if sign else number


@pytest.mark.parametrize("dtype", [d for d in _REAL if BITS[d] <= 16 and d != "bool"])
def test_every_code_is_the_number_of_its_documentation(dtype: str) -> None:
    number = NumberType(dtype)
    codes: Codes = np.arange(1 << number.bits).astype(f"u{max(number.bits, 8) // 8}")
    known = np.array([_number_of(code, dtype) for code in codes.tolist()])
    decoded = number.decode(codes)
    # A signalling NaN is an invalid number to convert.
    with np.errstate(invalid="ignore"):
        numbers = decoded.astype(np.float64)

    np.testing.assert_array_equal(numbers, known)
    is_number = ~np.isnan(known)
    np.testing.assert_array_equal(np.signbit(numbers[is_number]), np.signbit(known[is_number]))
    finite = np.isfinite(numbers) & ~((numbers == 0) & np.signbit(numbers))
    np.testing.assert_array_equal(number.encode(numbers[finite]), codes[finite])
    assert (number.lowest, number.highest) == (numbers[finite].min(), numbers[finite].max())
    if number.is_float and dtype != "float8e8m0":
        # The subnormal numbers are those of the codes from 1 on.
        assert numbers[number.subnormal_steps] == number.smallest_normal
        assert 0 < numbers[1] * (number.subnormal_steps - 1) < number.smallest_normal


@pytest.mark.parametrize("dtype", [d for d in _LAYOUTS if BITS[d] <= 8])
def test_a_number_between_two_codes_becomes_the_nearer_and_a_tie_the_lower(dtype: str) -> None:
    number = NumberType(dtype)
    # The code of -0.0 comes after that of 0.0, which it must not replace.
    known = {_number_of(code, dtype): code for code in reversed(range(1 << number.bits))}
    for below, above in pairwise(sorted(each for each in known if math.isfinite(each))):
        middle = (below + above) / 2
        near = np.array([middle, np.nextafter(middle, below), np.nextafter(middle, above)])
        assert number.encode(near).tolist() == [known[below], known[below], known[above]]


@pytest.mark.parametrize("dtype", _REAL)
def test_packing_is_undone_by_unpacking(dtype: str) -> None:
    number = NumberType(dtype)
    random = np.random.RandomState(0).randint(0, 1 << min(number.bits, 62), 37, np.int64)
    codes: Codes = random.astype(f"u{max(number.bits, 8) // 8}")
    packed = number.pack(codes)
    assert len(packed) == (37 * number.bits + 7) // 8
    np.testing.assert_array_equal(number.unpack(packed)[:37], codes)


def test_packed_nibbles_are_in_the_order_of_onnx() -> None:
    assert NumberType("uint4").pack(np.array([1, 2, 3], np.uint8)) == bytes([0x21, 0x03])
    assert NumberType("int2").pack(np.array([1, 2, 3, 0, 1], np.uint8)) == bytes([0b00111001, 0b01])


# -- statistics


@given(
    hnp.arrays(
        np.float64,
        st.integers(6, 60),
        elements=st.floats(-1e6, 1e6) | st.sampled_from([0.0, 5e-324, math.inf, math.nan]),
    ),
    st.integers(1, 20),
)
def test_statistics_in_pieces_are_those_of_all_numbers(
    values: npt.NDArray[np.float64], size: int
) -> None:
    note = _describe(values, "float64", size)
    if isinstance(note, RunLengths):
        drawn = _draw(note, values.shape, "float64")
        np.testing.assert_array_equal(drawn, values)
        return
    assert isinstance(note, Statistics)
    tiny = np.finfo(np.float64).tiny
    left = values[np.isfinite(values) & (np.abs(values) >= tiny)]
    assert note.zeros == np.count_nonzero(values == 0)
    assert note.subnormals == np.count_nonzero((np.abs(values) < tiny) & (values != 0))
    if not left.size:
        assert note.lowest == note.highest == note.mean == note.deviation == 0
        return
    room = 1e-4 * max(np.abs(left).max(), left.std())
    assert note.mean == pytest.approx(left.mean(), abs=room)
    assert note.deviation == pytest.approx(left.std(), rel=1e-3, abs=1e-9 + room * 1e-6)
    assert note.lowest == pytest.approx(left.min(), rel=1e-4)
    assert note.highest == pytest.approx(left.max(), rel=1e-4)


def test_how_a_weight_is_cut_into_pieces_does_not_show_in_its_note() -> None:
    values = np.random.RandomState(0).randn(3000).astype(np.float32)
    assert len({format_note(_describe(values, "float32", s)) for s in (7, 100, 3000)}) == 1


def test_the_largest_numbers_have_finite_statistics() -> None:
    values = np.array([1.7e308, -1.7e308, 1e308, 3.0, 2.0] * 20)
    assert math.isfinite(_statistics(values, "float64").deviation)
    assert np.isfinite(_twin_of(values, "float64")).all()


@settings(max_examples=40)
@given(
    st.floats(-10, 10),
    st.floats(0.01, 10),
    st.sampled_from(["float32", "float64", "float16", "bfloat16"]),
    st.sampled_from(["normal", "uniform"]),
)
def test_drawn_numbers_have_the_mean_the_deviation_and_the_range(
    mean: float, deviation: float, dtype: str, form: str
) -> None:
    random = np.random.RandomState(1)
    numbers = {
        "normal": random.randn(20_000) * deviation + mean,
        "uniform": random.uniform(mean - deviation, mean + deviation, 20_000),
    }[form]
    number = _type(dtype)
    note = _distribution(number.decode(number.encode(numbers)))
    drawn = _draw(note, (20_000,), dtype).astype(np.float64)

    # Numbers that are few of their type's steps apart are rounded to either side.
    step = max(abs(note.lowest), abs(note.highest)) / number.subnormal_steps
    assert drawn.mean() == pytest.approx(note.mean, abs=0.05 * note.deviation + step / 2)
    assert drawn.std() == pytest.approx(note.deviation, abs=0.05 * note.deviation + step / 2)
    assert note.lowest <= drawn.min()
    assert drawn.max() <= note.highest


@given(st.floats(0.01, 3), st.floats(-10, 10), st.sampled_from([1, -1]))
def test_numbers_that_are_neither_normal_nor_uniform_keep_their_mean_and_their_range(
    deviation: float, mean: float, sign: int
) -> None:
    """A cut normal distribution would put a large part of variances on the lowest."""
    random = np.random.RandomState(1)
    skewed = sign * np.exp(random.randn(20_000) * deviation + mean)
    two_valued = random.choice([-deviation, deviation], 20_000) + random.randn(20_000) * 1e-3
    for values in (skewed, two_valued):
        note = _distribution(values)
        drawn = _draw(note, (20_000,), "float64")
        assert drawn.mean() == pytest.approx(note.mean, abs=0.05 * note.deviation)
        assert drawn.std() <= 1.05 * note.deviation
        assert np.unique(drawn).size > 19_000
        assert note.lowest <= drawn.min()
        assert drawn.max() <= note.highest


def _distribution(values: npt.NDArray[Any]) -> Statistics:
    return Statistics(
        float(values.mean(dtype=np.float64)),
        float(values.std(dtype=np.float64)),
        float(values.min()),
        float(values.max()),
    )


@settings(max_examples=50)
@given(
    st.sampled_from([d for d in _REAL if d != "float8e8m0"]),
    st.integers(0, 400),
    st.integers(0, 100),
    st.booleans(),
)
def test_zeros_and_subnormals_are_drawn_in_their_exact_numbers(
    dtype: str,
    zeros: int,
    subnormals: int,
    is_only_counted: bool,  # noqa: FBT001  # hypothesis gives it
) -> None:
    number = _type(dtype)
    if number.subnormal_steps == 1:
        subnormals = 0
    low, high = max(number.lowest, -8), min(number.highest, 7)
    if number.is_float:
        low = -4
    distribution = ((low + high) / 2, (high - low) / 8, low, high)
    if dtype == "bool":
        distribution = (1, 0, 1, 1)
    if is_only_counted and number.is_float:
        distribution = (0, 0, 0, 0)
    note = Statistics(*distribution, zeros=zeros, subnormals=subnormals)
    drawn = _draw(note, (30, 31), dtype).astype(np.float64)

    assert np.count_nonzero(drawn == 0) == zeros
    is_small = (np.abs(drawn) < number.smallest_normal) & (drawn != 0)
    assert np.count_nonzero(is_small) == subnormals
    assert np.isfinite(drawn).all()


def test_infinity_and_nan_are_drawn_as_finite_numbers() -> None:
    values = random_mask = np.random.RandomState(0).rand(300, 300).astype(np.float32)
    values[random_mask < 0.1] = -np.inf
    values[random_mask > 0.9] = np.nan
    drawn = _twin_of(values)
    assert 0.09 < drawn.min() < drawn.max() < 0.91


@pytest.mark.parametrize("normal", [0, 1, PIECE // 3, _LONG - _LONG // 3 - 17])
def test_shares_are_exact_over_several_pieces_too(normal: int) -> None:
    subnormals = _LONG - _LONG // 3 - normal
    drawn = _draw(Statistics(0, 1, -4, 4, _LONG // 3, subnormals), (_LONG,))
    assert np.count_nonzero(drawn == 0) == _LONG // 3
    assert np.count_nonzero(_is_small(drawn)) == _LONG // 3 + subnormals
    # And they are everywhere.
    assert 0.3 < np.count_nonzero(drawn[:PIECE] == 0) / PIECE < 0.37


def _is_small(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    is_small: npt.NDArray[np.bool_] = np.abs(values) < np.finfo(np.float32).tiny
    return is_small


def test_dead_channels_are_dead_in_the_same_places_of_all_weights() -> None:
    random = np.random.RandomState(0)
    dead = random.permutation(48)[:9]
    first = random.randn(48, 20, 3, 3).astype(np.float32)
    scale = random.randn(48).astype(np.float32)
    second = random.randn(16, 48, 1, 1).astype(np.float32)
    for weight in (first, scale, second.transpose(1, 0, 2, 3)):
        weight[dead] = random.rand(*weight[dead].shape) * 3e-40
    # One of them has gone on to zero, in a part of its numbers.
    first[dead[0], :10] = 0
    drawn = [_twin_of(weight) for weight in (first, scale, second)]

    alive = [~_is_small(np.moveaxis(weight, k, 0)).reshape(48, -1).all(1)
             for weight, k in zip(drawn, (0, 0, 1), strict=True)]  # fmt: skip
    assert np.count_nonzero(~alive[0]) == 9
    assert (alive[0] == alive[1]).all()
    assert (alive[0] == alive[2]).all()
    for weight, made in zip((first, scale, second), drawn, strict=True):
        assert np.count_nonzero(made == 0) == np.count_nonzero(weight == 0)
        assert np.count_nonzero(_is_small(made)) == np.count_nonzero(_is_small(weight))
        assert np.abs(made[_is_small(made)]).max() <= 3e-40


def test_fewer_dead_channels_are_some_of_the_others() -> None:
    notes = [Statistics(0, 1, -4, 4, subnormals=20 * k, dead=DeadSlices(0, k, 0)) for k in (3, 7)]
    few, many = (_is_small(_draw(note, (30, 20))).all(axis=1) for note in notes)
    assert np.count_nonzero(few) == 3
    assert np.count_nonzero(many) == 7
    assert (many | ~few).all()


def test_the_share_outside_of_dead_slices_is_exact_over_several_pieces() -> None:
    shape = (900, PIECE // 300)
    dead = DeadSlices(0, 600, 1_000)
    inside = dead.elements(shape)
    note = Statistics(0, 1, -4, 4, 4_000, inside - 1_000 + 77, dead=dead)
    drawn = _draw(note, shape)
    assert np.count_nonzero(drawn == 0) == 4_000
    assert np.count_nonzero(_is_small(drawn)) == inside + 3_000 + 77
    assert np.count_nonzero(_is_small(drawn).all(axis=1)) == 600


def test_scattered_subnormal_numbers_do_not_count_as_dead_slices() -> None:
    values = np.random.RandomState(0).randn(40, 40).astype(np.float32)
    values[::3, ::3] = 1e-40
    note = _describe(values, "float32", 400)
    assert isinstance(note, Statistics)
    assert note.subnormals == 14 * 14
    assert note.dead is None


def test_variances_stay_positive_and_are_not_all_alike() -> None:
    values = np.exp(np.random.RandomState(0).randn(512) * 2 - 3).astype(np.float32)
    drawn = _twin_of(values)
    assert drawn.min() >= values.min() * (1 - 1e-4)
    assert np.unique(drawn).size > 400
    assert drawn.mean() == pytest.approx(values.mean(), rel=0.3)


def test_quantized_weights_have_roughly_their_histogram() -> None:
    values = np.clip(np.random.RandomState(0).randn(64, 512) * 20, -127, 127).astype(np.int8)
    drawn = _twin_of(values, "int8")
    edges = np.arange(-128, 129, 16)
    before, after = (np.histogram(v, edges)[0] / v.size for v in (values, drawn))
    assert np.abs(before - after).max() < 0.02
    assert np.count_nonzero(drawn == 0) == np.count_nonzero(values == 0)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "uint16"])
def test_large_integers_are_drawn_inside_their_range_everywhere_in_it(dtype: str) -> None:
    highest = min(np.iinfo(dtype).max, 40_000)
    values = np.random.RandomState(0).randint(7, highest, 40_000).astype(dtype)
    drawn = _twin_of(values, dtype)
    assert values.min() <= drawn.min() < highest / 100
    assert highest * 0.99 < drawn.max() <= values.max()
    assert np.histogram(drawn, 4)[0].min() > 9_000


def test_the_ends_of_64_bits_can_be_drawn() -> None:
    for dtype in ("int64", "uint64"):
        ends = np.iinfo(dtype)
        values = np.linspace(ends.min, ends.max, 5000, dtype=np.float64)
        values = np.clip(values, float(ends.min), float(ends.max) - 4096)
        drawn = _twin_of(values.astype(dtype), dtype)
        assert np.unique(drawn).size > 4000


def test_scales_that_are_powers_of_two_may_end_at_the_smallest() -> None:
    """The smallest float8e8m0, the scale of a block of zeros, is rounded up in a note."""
    number = _type("float8e8m0")
    codes = np.arange(200, dtype=np.uint8)
    note = describe(number, (200,), lambda: iter([codes]))
    assert parse_note(format_note(note), number, (200,)) == note


def test_complex_weights_keep_both_parts() -> None:
    random = np.random.RandomState(0)
    values = (random.randn(40, 50) + 1j * random.randn(40, 50)).astype(np.complex64)
    note = _describe(values, "complex64")
    assert _draw(note, values.shape, "complex64").shape == (40, 50, 2)


def test_the_same_seed_draws_the_same_and_another_seed_or_name_does_not() -> None:
    note = Statistics(0, 1, -4, 4, zeros=10)
    number = _type("float32")
    draws = {
        (seed, name): b"".join(
            map(number.pack, Drawer(seed).draw_codes(note, number, (50, 60), name))
        )
        for seed in (0, 1)
        for name in ("a", "b")
    }
    assert len(set(draws.values())) == 4
    again = Drawer(0).draw_codes(note, number, (50, 60), "a")
    assert draws[0, "a"] == b"".join(map(number.pack, again))


def test_no_two_rows_of_a_large_matrix_are_the_same() -> None:
    drawn = _draw(Statistics(0, 1, -4, 4), (3000, 1024))
    assert len({row.tobytes() for row in drawn}) == 3000


# -- constants and masks


def _rows(values: npt.NDArray[Any]) -> tuple[int, int]:
    return math.prod(values.shape[:-1]), values.shape[-1]


@pytest.mark.parametrize(
    "values",
    [
        np.ones((300, 40), np.float32),
        np.tril(np.ones((1, 1, 256, 256), np.bool_)),
        np.triu(np.full((256, 256), -np.inf, np.float32), 1),
        np.tril(np.ones((200, 200), np.uint8)) - np.tril(np.ones((200, 200), np.uint8), -30),
        np.kron(np.eye(6, dtype=np.float32), np.ones((9, 9), np.float32)),
    ],
    ids=["constant", "causal", "causal, infinite", "sliding window", "blocks"],
)
def test_masks_are_kept_to_the_bit_in_a_short_note(values: npt.NDArray[Any]) -> None:
    note = _describe(values, values.dtype.name)
    assert isinstance(note, RunLengths)
    assert len(format_note(note)) < 400
    np.testing.assert_array_equal(_draw(note, values.shape, values.dtype.name), values)


@given(
    hnp.arrays(np.uint8, hnp.array_shapes(min_dims=2, max_dims=2), elements=st.integers(0, 2)),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_run_lengths_are_the_elements_that_they_were_made_from(
    values: npt.NDArray[np.uint8], size: int, out: int
) -> None:
    found = find_run_lengths(_pieces(values.reshape(-1), size), *values.shape)
    assert found is not None
    assert found.fits(*values.shape)
    pieces = list(run_length_pieces(found, values.dtype, out))
    assert all(piece.size == out for piece in pieces[:-1])
    np.testing.assert_array_equal(np.concatenate(pieces), values.reshape(-1))


def test_random_places_of_two_values_are_described_by_their_share() -> None:
    values = np.random.RandomState(0).rand(300, 300) < 0.3
    drawn = _twin_of(values, "bool")
    assert np.count_nonzero(drawn) == np.count_nonzero(values)
    assert set(np.unique(drawn)) == {0, 1}


# -- groups of zeros


def _pruned(n: int, m: int, *shape: int) -> npt.NDArray[np.float32]:
    """Random numbers, of which n of every m along the last axis are left."""
    random = np.random.RandomState(0)
    values = random.randn(*shape).astype(np.float32)
    groups = values.reshape(-1, m)
    order = np.argsort(random.rand(*groups.shape), axis=1)
    groups[order < m - n] = 0
    return values


@pytest.mark.parametrize(
    ("n", "m", "shape", "to", "axis"),
    [
        *((n, m, (256, 192), -1, 1) for n, m in GROUPINGS),
        (2, 4, (64, 3, 3, 32), 0, 0),
        (2, 4, (64, 3, 3, 32), 1, 1),
        (2, 4, (1, 1, 64, 128), -1, 1),
    ],
)
def test_groups_of_zeros_are_found_and_drawn_again(
    n: int, m: int, shape: tuple[int, ...], to: int, axis: int
) -> None:
    """Along the rows of a matrix, channels of a convolution, and in a stack of one matrix."""
    values = np.ascontiguousarray(np.moveaxis(_pruned(n, m, *shape), -1, to))
    note = _statistics(values)
    assert note.grouped_zeros == GroupedZeros(n, m, axis)
    drawn = np.moveaxis(_draw(note, values.shape), to, -1)
    assert (np.count_nonzero(drawn.reshape(-1, m), axis=1) == n).all()
    assert not np.array_equal(drawn == 0, np.moveaxis(values, to, -1) == 0)


def test_zeros_in_random_places_have_no_groups() -> None:
    values = np.random.RandomState(0).randn(256, 192).astype(np.float32)
    values[np.random.RandomState(1).rand(256, 192) < 0.5] = 0
    note = _statistics(values)
    assert note.grouped_zeros is None
    assert np.count_nonzero(_twin_of(values) == 0) == note.zeros


def test_groups_with_some_more_zeros_elsewhere_keep_both() -> None:
    values = _pruned(2, 4, 256, 192)
    values[values > 2] = 0
    note = _statistics(values)
    drawn = _draw(note, values.shape)
    assert note.zeros > values.size // 2
    assert np.count_nonzero(drawn == 0) == note.zeros
    assert np.count_nonzero(drawn.reshape(-1, 4), axis=1).max() == 2


@pytest.mark.parametrize("dtype", ["int4", "int2"])
@pytest.mark.parametrize(("n", "m"), [(2, 4), (1, 2)])
def test_groups_in_packed_numbers_fit_into_their_bytes(dtype: str, n: int, m: int) -> None:
    """In several pieces, each of which must end at a byte: the rows are odd."""
    number, shape = _type(dtype), (128 * m, 3003)
    size = math.prod(shape)
    note = Statistics(0, 1, -2, 1, zeros=size * (m - n) // m, grouped_zeros=GroupedZeros(n, m, 0))
    packed = b"".join(map(number.pack, Drawer(0).draw_codes(note, number, shape, "w")))
    assert len(packed) == size * number.bits // 8
    drawn = number.decode(number.unpack(packed)).reshape(-1, m, 3003)
    assert (np.count_nonzero(drawn, axis=1) == n).all()


# -- notes that are not true


_GOOD = {"mean": 0.0, "std": 1.0, "min": -4.0, "max": 4.0}


@pytest.mark.parametrize(
    ("note", "wrong"),
    [
        ("{", "truncated"),
        ("[]", "`object`, got `array`"),
        ("{}", "missing required field `mean`"),
        ('{"mean":NaN,"std":1,"min":0,"max":1}', "malformed"),
        ('{"mean":1e999,"std":1,"min":0,"max":1}', "out of range"),
        ({"mean": 0.0, "std": 1.0, "min": -4.0}, "missing required field `max`"),
        (_GOOD | {"mean": "0"}, "got `str`"),
        (_GOOD | {"mean": True}, "got `bool`"),
        (_GOOD | {"std": -1.0}, "deviation is -1"),
        (_GOOD | {"std": 5.0}, "more than its range"),
        (_GOOD | {"mean": 5.0}, "not between"),
        (_GOOD | {"min": 5.0}, "range 5.0 to 4.0"),
        (_GOOD | {"max": 1e39}, "not one of float32"),
        (_GOOD | {"zeros": 1.5}, "got `float`"),
        (_GOOD | {"zeros": -1}, ">= 0"),
        (_GOOD | {"zeros": 6401}, "6,401 zeros .* in 6,400"),
        (_GOOD | {"zeros": 6000, "subnormals": 401}, "401 subnormal numbers in 6,400"),
        (_GOOD | {"zeros": 10**30}, "in 6,400"),
        (_GOOD | {"subnormals": 80, "subnormal_max": 1.0}, "subnormal number is 1.0"),
        (_GOOD | {"subnormals": 80, "dead": [0, 2, 0]}, "dead slices do not fit"),
        (_GOOD | {"subnormals": 80, "dead": [2, 1, 0]}, "dead slices do not fit"),
        (_GOOD | {"subnormals": 80, "dead": [0, 0, 0]}, "dead slices do not fit"),
        (_GOOD | {"subnormals": 80, "dead": [0, 1, 10]}, "dead slices do not fit"),
        (
            _GOOD | {"zeros": 6320, "subnormals": 80, "dead": [0, 1, 0], "n_of_m": [2, 4, 1]},
            "groups of zeros and dead slices",
        ),
        (_GOOD | {"max": 10**400}, "range"),
        (_GOOD | {"mean": -(10**400)}, "range"),
        (_GOOD | {"std": 10**400}, "range"),
        (_GOOD | {"colour": 1}, "unknown field `colour`"),
        (_GOOD | {"zeros": 640, "n_of_m": [2, 4, 1]}, "do not fit"),
        (_GOOD | {"zeros": 6400, "n_of_m": [2, 4, 2]}, "do not fit"),
        (_GOOD | {"zeros": 6400, "n_of_m": [3, 5, 1]}, "do not fit"),
        (_GOOD | {"zeros": 6400, "n_of_m": [2, 4]}, "length 3"),
        ({"rows": []}, "do not fill"),
        ({"rows": [[80]]}, "do not fill"),
        ({"rows": [[]]}, "length >= 1"),
        ({"rows": [[80, [0, 80]]]}, "length 3"),
        ({"rows": [["80", [0, 80, 0]]]}, "got `str`"),
        ({"rows": [[80, [0, 79, 0]]]}, "do not fill"),
        ({"rows": [[10**15, [0, 80, 0]]]}, "do not fill"),
        ({"rows": [[80, [0, 10, 1], [1, 70, -1]]]}, "do not fill"),
        ({"rows": [[80, [1 << 32, 80, 0]]]}, "does not have"),
        ({"rows": [[80, [0, 80, 0]]], "mean": 1}, "list alone"),
        ({"first": 0}, "missing required field `last`"),
        ({"first": -1, "last": 79}, ">= 0"),
        ({"first": 0, "last": 78}, "do not fit between"),
    ],
)
def test_an_impossible_note_is_refused_with_what_is_wrong(note: object, wrong: str) -> None:
    text = note if isinstance(note, str) else json.dumps(note)
    with pytest.raises(ValueError, match=wrong):
        parse_note(text, _type("float32"), (80, 80))


@pytest.mark.parametrize(
    ("dtype", "note"),
    [
        ("int8", {"mean": 0, "std": 1, "min": -129, "max": 4}),
        ("uint4", {"mean": 3, "std": 1, "min": -1, "max": 4}),
        ("int8", _GOOD | {"subnormals": 1}),
        ("bool", {"mean": 1, "std": 0, "min": 1, "max": 2}),
    ],
)
def test_a_note_outside_the_range_of_its_type_is_refused(dtype: str, note: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"type|range"):
        parse_note(json.dumps(note), _type(dtype), (80, 80))


def test_a_note_that_nests_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nests|characters|truncated"):
        parse_note('{"mean":' * 15_000, _type("float32"), (80, 80))


@given(st.text(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["mean", "rows"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["mean", "std", "min", "max", "zeros", "zero", "rows", "first", "last"]),
        inner,
    ),
    max_leaves=12,
).map(json.dumps))  # fmt: skip
def test_no_text_raises_anything_but_a_value_error(text: str) -> None:
    try:
        note = parse_note(text, _type("float32"), (4, 5))
    except ValueError:
        return
    if not isinstance(note, Indices):
        pieces = Drawer(0).draw_codes(note, _type("float32"), (4, 5), "w")
        assert sum(codes.size for codes in pieces) == 20
