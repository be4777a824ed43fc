"""Which weights are called sparse, in which pattern, and that chance is never called a pattern."""

from __future__ import annotations

import itertools
import math
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_modelperf.graph.weights.notes import GROUPINGS
from pytest_modelperf.profiler.counting import sparsity as rules
from pytest_modelperf.profiler.counting.records import Sparsity
from pytest_modelperf.profiler.counting.sparsity import effective_macs, measure_sparsity

Shape: TypeAlias = tuple[int, ...]
Mask: TypeAlias = npt.NDArray[np.bool_]
Values: TypeAlias = npt.NDArray[Any]
Inside: TypeAlias = set[tuple[int, int]]

SEEDS = st.integers(0, 2**32 - 1)
SMALL_SHAPES = hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=5)


def weights(is_zero: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> Values:
    """A weight without accidental zeros: 1 or -1 wherever `is_zero` is false."""
    is_zero = np.asarray(is_zero)
    signs = np.where(np.indices(is_zero.shape).sum(axis=0) % 2, 1, -1)
    return np.where(is_zero, 0, signs).astype(dtype)


def scattered(shape: Shape, ratio: float | npt.NDArray[np.float64], seed: int = 0) -> Mask:
    return np.random.default_rng(seed).random(shape) < ratio


def in_blocks(shape: Shape, block: tuple[int, int], ratio: float, seed: int = 0) -> Mask:
    """A matrix of aligned blocks, exactly `ratio` of them zero, in random places."""
    grid = [-(-dim // side) for dim, side in zip(shape, block, strict=True)]
    chosen = np.zeros(math.prod(grid), bool)
    chosen[: round(ratio * chosen.size)] = True
    np.random.default_rng(seed).shuffle(chosen)
    return np.kron(chosen.reshape(grid), np.ones(block, bool))[: shape[0], : shape[1]]


def n_of_m(shape: Shape, n: int, m: int, seed: int = 0) -> Mask:
    """Each group of `m` along the last axis keeps exactly `n`."""
    groups = np.random.default_rng(seed).random((*shape[:-1], shape[-1] // m, m))
    return (groups.argsort(axis=-1) >= n).reshape(shape)


@given(hnp.arrays(st.sampled_from([np.int8, np.float32, np.bool_, np.complex64]), SMALL_SHAPES))
def test_zeros_are_counted_as_a_loop_counts_them(values: Values) -> None:
    sparsity = measure_sparsity(values)
    assert sparsity.zeros == sum(value == 0 for value in values.ravel().tolist())
    assert sparsity.size == values.size
    assert sparsity.ratio == (sparsity.zeros / values.size if values.size else 0)


@given(hnp.arrays(np.int8, SMALL_SHAPES, elements=st.integers(-1, 1)), SEEDS)
def test_the_ratio_does_not_depend_on_the_places_of_the_elements(values: Values, seed: int) -> None:
    shuffled = np.random.default_rng(seed).permutation(values.ravel()).reshape(values.shape)
    assert measure_sparsity(shuffled).ratio == measure_sparsity(values).ratio


@given(SMALL_SHAPES, SEEDS, st.floats(0, 1))
def test_more_zeros_never_lower_the_ratio(shape: Shape, seed: int, share: float) -> None:
    is_zero = scattered(shape, 0.5, seed)
    before = measure_sparsity(weights(is_zero))
    after = measure_sparsity(weights(is_zero | scattered(shape, share, seed + 1)))
    assert after.ratio >= before.ratio


@pytest.mark.parametrize(
    "dtype",
    [
        *(np.float16, np.float32, np.float64, np.complex64, np.int8, np.int32, np.int64),
        *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
        *(ml_dtypes.float8_e4m3fnuz, ml_dtypes.float4_e2m1fn, ml_dtypes.int4),
    ],
)
def test_every_number_type_has_zeros(dtype: npt.DTypeLike) -> None:
    is_zero = scattered((16, 9), 0.4)
    assert measure_sparsity(weights(is_zero, dtype)).zeros == np.count_nonzero(is_zero)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [(np.float16, np.uint16), (np.float32, np.uint32), (ml_dtypes.bfloat16, np.uint16)],
)
def test_minus_zero_is_zero_and_neither_nan_nor_the_smallest_number_is(
    dtype: npt.DTypeLike, bits: npt.DTypeLike
) -> None:
    values = np.array([-0.0, 0.0, np.nan, 1.0, 1.0, np.inf], dtype)
    values.view(bits)[3] = 1
    assert measure_sparsity(values).zeros == 2


def test_a_type_that_has_no_zero_is_dense() -> None:
    """The bits of float8e8m0 that are all 0 mean 2 to the power of -127."""
    assert measure_sparsity(np.zeros(64, np.uint8).view(ml_dtypes.float8_e8m0fnu)).zeros == 0


@pytest.mark.parametrize("dtype", ["U3", object])
def test_text_has_no_zeros(dtype: npt.DTypeLike) -> None:
    assert measure_sparsity(np.array(["", "0", "0.0"], dtype)) == Sparsity(0, 3, "dense", 0.0, None)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 3, 3)])
def test_an_empty_weight_is_dense(shape: Shape) -> None:
    sparsity = measure_sparsity(np.zeros(shape, np.float32), np.zeros(7, np.float32))
    assert sparsity == Sparsity(0, 0, "dense", 0.0, None)
    assert sparsity.ratio == 0.0


def test_a_scalar_is_all_zero_or_dense() -> None:
    assert measure_sparsity(np.array(0.0)) == Sparsity(1, 1, "all", 1.0, None)
    assert measure_sparsity(np.array(3.0)) == Sparsity(0, 1, "dense", 0.0, None)
    assert measure_sparsity(np.array(3, np.uint8), np.array(3, np.uint8)).zeros == 1


def test_the_order_of_elements_in_memory_does_not_matter() -> None:
    is_zero = in_blocks((32, 64), (1, 4), 0.5)
    assert measure_sparsity(np.asfortranarray(weights(is_zero))) == measure_sparsity(
        weights(is_zero)
    )


@pytest.mark.parametrize(
    ("dtype", "point"),
    [(np.uint8, 0), (np.uint8, 128), (np.int8, -7), (ml_dtypes.int4, 3), (ml_dtypes.uint4, 8)],
)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_zero_is_what_equals_the_zero_point(
    dtype: npt.DTypeLike, point: float, shape: Shape
) -> None:
    is_zero = in_blocks((32, 32), (1, 4), 0.5)
    values = (weights(is_zero, np.int32) + point).astype(dtype)
    sparsity = measure_sparsity(values, np.full(shape, point).astype(dtype))
    assert sparsity == Sparsity(512, 1024, "1x4", 0.5, None)


@pytest.mark.parametrize(("axis", "given_axis"), [(0, 0), (0, -2), (1, 1), (1, -1), (1, None)])
def test_each_row_or_column_has_its_own_zero_point(axis: int, given_axis: int | None) -> None:
    is_zero = in_blocks((24, 32), (1, 4), 0.5)
    points = np.random.default_rng(0).integers(1, 255, (is_zero.shape[axis],))
    spread = points[:, None] if axis == 0 else points[None, :]
    values = (weights(is_zero, np.int64) + spread).astype(np.uint8)
    sparsity = measure_sparsity(values, points.astype(np.uint8), given_axis)
    assert (sparsity.zeros, sparsity.pattern) == (384, "1x4")


def test_a_vector_has_one_zero_point_for_each_element_without_an_axis() -> None:
    values = np.arange(8, dtype=np.uint8)
    assert measure_sparsity(values, values.copy()).pattern == "all"


@pytest.mark.parametrize(
    ("axis", "length", "block_size", "count"),
    [(0, 12, 4, 3), (1, 12, 3, 4), (1, 10, None, 4), (0, 100, 32, 4), (1, 5, 1, 5)],
)
def test_each_block_has_its_own_zero_point(
    axis: int, length: int, block_size: int | None, count: int
) -> None:
    """The last block may be short: 100 values in blocks of 32."""
    shape = (length, 7) if axis == 0 else (7, length)
    is_zero = scattered(shape, 0.5)
    grid = (count, 7) if axis == 0 else (7, count)
    points = np.random.default_rng(1).integers(1, 255, grid)
    values = weights(is_zero, np.int64)
    for i, j in np.ndindex(*shape):
        block = block_size or 3
        values[i, j] += points[i // block, j] if axis == 0 else points[i, j // block]
    sparsity = measure_sparsity(
        values.astype(np.uint8), points.astype(np.uint8), axis, block_size=block_size
    )
    assert sparsity.zeros == np.count_nonzero(is_zero)


@pytest.mark.parametrize("point", [200, -300, 0.5, math.nan])
def test_a_zero_point_that_the_type_cannot_hold_equals_nothing(point: float) -> None:
    values = np.array([-56, 0, -44, 127, -128], np.int8)
    assert measure_sparsity(values, np.array(point)).zeros == 0


@pytest.mark.parametrize(
    ("shape", "point_shape", "axis", "block_size"),
    [
        ((4, 6), (5,), 0, None),
        ((4, 6), (4,), 1, None),
        ((4, 6), (3, 2), 1, None),
        ((4, 6), (4, 2), 1, 2),
        ((4, 6), (4, 6, 1), 1, None),
        ((4, 6), (6,), 2, None),
        ((4, 6), (4, 0), 1, None),
        ((), (2,), None, None),
    ],
)
def test_a_zero_point_that_does_not_fit_is_refused(
    shape: Shape, point_shape: Shape, axis: int | None, block_size: int | None
) -> None:
    with pytest.raises(ValueError, match=r"zero point of shape|axis 2 does not exist"):
        measure_sparsity(
            np.ones(shape, np.int8), np.ones(point_shape, np.int8), axis, block_size=block_size
        )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999])
@pytest.mark.parametrize(
    "shape",
    [(256, 300), (4000,), (3, 5000), (5000, 2), (64, 32, 3, 3), (8, 40, 50), (9, 4, 2, 3, 5)],
)
def test_random_zeros_are_never_a_pattern(shape: Shape, ratio: float, seed: int) -> None:
    sparsity = measure_sparsity(weights(scattered(shape, ratio, seed)))
    assert sparsity.pattern == "1x1"
    assert sparsity.block_ratio == sparsity.ratio
    assert sparsity.n_of_m is None


@pytest.mark.parametrize("seed", range(200))
def test_zeros_of_a_small_weight_are_never_a_pattern_by_chance(seed: int) -> None:
    sparsity = measure_sparsity(weights(scattered((4, 4), 0.5, seed)))
    assert (sparsity.pattern, sparsity.n_of_m) == ("1x1", None)


@pytest.mark.parametrize("lowest", [0.9, 0.96, 0.99])
def test_rows_that_differ_in_sparsity_do_not_form_blocks(lowest: float) -> None:
    """Pruning by one global threshold leaves some rows far sparser than others."""
    ratios = np.random.default_rng(0).uniform(lowest, 1, (512, 1))
    for is_zero in (scattered((512, 512), ratios), scattered((512, 512), ratios).T):
        assert measure_sparsity(weights(is_zero)).pattern == "1x1"


BLOCKS = [
    *((1, n) for n in (2, 4, 8, 16, 32)),
    *((n, 1) for n in (2, 4, 8, 16, 32)),
    *((n, n) for n in (2, 4, 8, 16, 32)),
]


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_pattern_is_found_exactly(block: tuple[int, int], ratio: float) -> None:
    is_zero = in_blocks((256, 256), block, ratio)
    sparsity = measure_sparsity(weights(is_zero))
    assert sparsity.pattern == f"{block[0]}x{block[1]}"
    assert sparsity.block_ratio == sparsity.ratio


@pytest.mark.parametrize("block", [(1, 4), (4, 1), (4, 4)])
def test_blocks_are_distinguished_from_chance_if_almost_all_is_zero(block: tuple[int, int]) -> None:
    """A block of twice the size would be wholly zero 98 times in 100 as well."""
    is_zero = in_blocks((512, 512), block, 0.98)
    assert measure_sparsity(weights(is_zero)).pattern == f"{block[0]}x{block[1]}"


@given(
    st.integers(33, 90), st.integers(33, 90), st.sampled_from(BLOCKS), st.floats(0.3, 0.7), SEEDS
)
@settings(max_examples=60)
def test_a_block_pruned_matrix_of_any_shape_is_found_as_at_least_that_block(
    rows: int, columns: int, block: tuple[int, int], ratio: float, seed: int
) -> None:
    is_zero = in_blocks((rows, columns), block, ratio, seed)
    # Blocks at the edges are cut, so few large ones can leave hardly any zeros.
    assume(is_zero.mean() >= rules.DENSE_BELOW)
    sparsity = measure_sparsity(weights(is_zero))
    assert sparsity.block_ratio >= rules.MIN_COVERAGE * sparsity.ratio
    if math.prod(block) <= 64:  # else there are so few blocks that they make up whole lines
        found = [int(side) for side in sparsity.pattern.split("x")]
        assert math.prod(found) >= math.prod(block)


def test_a_few_zeros_elsewhere_do_not_hide_the_blocks_and_many_do() -> None:
    is_zero = in_blocks((256, 256), (1, 4), 0.5)
    few = measure_sparsity(weights(is_zero | scattered((256, 256), 0.03)))
    assert few.pattern == "1x4"
    assert 0.5 <= few.block_ratio < few.ratio
    assert measure_sparsity(weights(is_zero | scattered((256, 256), 0.1))).pattern == "1x1"


def test_a_few_nonzeros_kept_in_the_blocks_are_enough() -> None:
    """Blocks of which a sixth is zero still count if four in five are pruned."""
    is_zero = in_blocks((256, 256), (1, 4), 0.8) | scattered((256, 256), 0.16)
    assert measure_sparsity(weights(is_zero)).pattern == "1x4"


def test_blocks_along_the_rows_are_named_before_others_of_the_same_size() -> None:
    is_zero = in_blocks((128, 128), (2, 4), 0.5)
    assert measure_sparsity(weights(is_zero)).pattern == "1x4"


def test_zeros_in_a_ragged_last_column_alone_do_not_form_blocks() -> None:
    """Every 1x8 block at the edge is one element here, and zero if that is."""
    is_zero = np.zeros((400, 9), bool)
    is_zero[:, 8] = scattered((400,), 0.7)
    assert measure_sparsity(weights(is_zero)).pattern == "1x1"


def test_a_convolution_is_cut_in_output_channel_x_all_others() -> None:
    is_zero = in_blocks((64, 16 * 9), (4, 4), 0.5).reshape(64, 16, 3, 3)
    assert measure_sparsity(weights(is_zero)).pattern == "4x4"


def test_blocks_along_the_input_channels_of_one_kernel_position_are_found() -> None:
    channels_last = in_blocks((32, 9 * 16), (1, 4), 0.5).reshape(32, 3, 3, 16)
    assert measure_sparsity(weights(channels_last.transpose(0, 3, 1, 2))).pattern == "1x4"


def test_pruned_kernels_are_blocks_of_their_own_size() -> None:
    is_zero = scattered((64, 32, 1, 1), 0.5) & np.ones((3, 3), bool)
    sparsity = measure_sparsity(weights(is_zero))
    assert sparsity.pattern == "1x9"
    assert sparsity.block_ratio == sparsity.ratio


def test_a_vector_is_one_row() -> None:
    is_zero = in_blocks((1, 400), (1, 8), 0.5)[0]
    assert measure_sparsity(weights(is_zero)).pattern == "1x8"


def test_leading_axes_of_length_1_do_not_change_the_pattern() -> None:
    is_zero = in_blocks((64, 64), (4, 4), 0.5)
    expected = measure_sparsity(weights(is_zero))
    assert measure_sparsity(weights(is_zero[None, None])) == expected


@pytest.mark.parametrize("shape", [(64, 48), (64, 16, 3), (64, 16, 3, 3), (64, 4, 2, 3, 3)])
def test_pruned_output_channels_are_rows(shape: Shape) -> None:
    is_zero = np.zeros(shape, bool)
    is_zero[::4] = True
    assert measure_sparsity(weights(is_zero)) == Sparsity(
        is_zero.size // 4, is_zero.size, "rows", 0.25, None
    )


@pytest.mark.parametrize("shape", [(48, 64), (48, 64, 3), (48, 64, 3, 3)])
def test_pruned_input_channels_are_columns(shape: Shape) -> None:
    is_zero = np.zeros(shape, bool)
    is_zero[:, [*range(5), 9, 20, 21, 22, 40, 63]] = True
    sparsity = measure_sparsity(weights(is_zero))
    assert (sparsity.pattern, sparsity.block_ratio) == ("columns", 11 / 64)


def test_pruned_input_and_output_channels_are_both_named() -> None:
    is_zero = np.zeros((64, 32, 3, 3), bool)
    is_zero[::2] = is_zero[:, ::2] = True
    sparsity = measure_sparsity(weights(is_zero))
    assert (sparsity.pattern, sparsity.block_ratio) == ("rows+columns", 0.75)


@pytest.mark.parametrize("shape", [(7,), (4, 4), (2, 3, 3, 3)])
def test_a_weight_of_zeros_has_no_block_pattern(shape: Shape) -> None:
    size = math.prod(shape)
    assert measure_sparsity(np.zeros(shape)) == Sparsity(size, size, "all", 1.0, None)


def test_too_few_zeros_are_dense_whatever_their_places() -> None:
    is_zero = np.zeros((100, 64), bool)
    is_zero[:4] = True
    assert measure_sparsity(weights(is_zero)) == Sparsity(256, 6400, "dense", 0.0, None)
    is_zero[4] = True
    assert measure_sparsity(weights(is_zero)).pattern == "rows"


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("shape", [(64, 64), (1024,), (32, 8, 4), (32, 16, 3, 3)])
def test_a_fixed_number_in_each_group_is_found_and_does_not_form_blocks(
    shape: Shape, grouping: tuple[int, int]
) -> None:
    flat = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else shape
    is_zero = n_of_m(flat, *grouping).reshape(shape)
    sparsity = measure_sparsity(weights(is_zero))
    assert (sparsity.pattern, sparsity.n_of_m) == ("1x1", grouping)
    assert sparsity.ratio == 1 - grouping[0] / grouping[1]


def test_groups_are_found_along_the_first_axis_of_a_matrix_too() -> None:
    """The weight of MatMul is input x output channels, that of Gemm mostly the other way."""
    assert measure_sparsity(weights(n_of_m((64, 64), 2, 4).T)).n_of_m == (2, 4)


def test_groups_are_found_along_the_input_channels_of_a_convolution_too() -> None:
    is_zero = n_of_m((32, 3, 3, 16), 2, 4).transpose(0, 3, 1, 2)
    assert measure_sparsity(weights(is_zero)).n_of_m == (2, 4)


def test_one_group_with_too_many_nonzeros_is_enough_to_deny_the_grouping() -> None:
    is_zero = n_of_m((64, 64), 2, 4)
    is_zero[63, 60:] = False
    is_zero[0, :8] = True  # the zeros are not fewer
    assert measure_sparsity(weights(is_zero)).n_of_m is None


def test_groups_must_be_complete() -> None:
    is_zero = n_of_m((65, 64), 2, 4)[:, :63]
    assert measure_sparsity(weights(is_zero)).n_of_m is None


def test_zeros_among_the_kept_do_not_hide_the_grouping_unless_they_are_many() -> None:
    is_zero = n_of_m((128, 128), 2, 4)
    few, many = scattered((128, 128), 0.17, seed=1), scattered((128, 128), 0.6, seed=1)
    assert measure_sparsity(weights(is_zero | few)).n_of_m == (2, 4)
    assert measure_sparsity(weights(is_zero | many)).n_of_m is None


def test_a_2_of_4_weight_around_a_zero_point_is_found() -> None:
    values = (weights(n_of_m((32, 64), 2, 4), np.int16) + 128).astype(np.uint8)
    assert measure_sparsity(values, np.array(128, np.uint8)).n_of_m == (2, 4)


@st.composite
def patterned(draw: st.DrawFn) -> Mask:
    """Zeros in blocks, candidates or not, or in lines, with some scattered between."""
    shapes = [(24, 32), (17, 23), (1, 90), (40, 3), (9, 6, 5), (8, 6, 2, 2), (8, 6, 3, 2), (90,)]
    shape = draw(st.sampled_from(shapes))
    flat = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, *shape)
    seed = draw(SEEDS)
    is_zero = scattered(flat, draw(st.sampled_from([0.0, 0.02, 0.1])), seed)
    if draw(st.booleans()):
        block = draw(st.sampled_from([1, 2, 3, 4, 8])), draw(st.sampled_from([1, 2, 4, 6, 8]))
        is_zero |= in_blocks(flat, block, draw(st.sampled_from([0.1, 0.3, 0.5, 0.8, 0.97])), seed)
    else:
        rows, columns = draw(st.sampled_from([(0.5, 0.0), (0.0, 0.5), (0.3, 0.3)]))
        is_zero[scattered((flat[0],), rows, seed)] = True
        is_zero[:, scattered((flat[1],), columns, seed)] = True
    return is_zero.reshape(shape)


@given(patterned())
@settings(max_examples=150)
def test_the_pattern_is_that_of_the_slow_version(is_zero: Mask) -> None:
    sparsity = measure_sparsity(weights(is_zero))
    if sparsity.pattern not in ("all", "dense"):
        assert (sparsity.pattern, sparsity.block_ratio) == slow_pattern(is_zero)


def slow_pattern(is_zero: Mask) -> tuple[str, float]:
    """Every candidate in every view, element by element, with exact binomials."""
    view = is_zero.reshape(is_zero.shape[0] if is_zero.ndim > 1 else 1, -1)
    rows, columns = view.shape
    if min(rows, columns) > 1:
        zero_rows = {i for i in range(rows) if all(view[i])}
        zero_columns = {j for j in range(columns) if all(view[:, j])}
        for name, chosen_rows, chosen_columns in (
            ("rows", zero_rows, set()),
            ("columns", set(), zero_columns),
            ("rows+columns", zero_rows, zero_columns),
        ):
            inside = {
                (i, j)
                for i, j in np.ndindex(rows, columns)
                if i in chosen_rows or j in chosen_columns
            }
            ways = math.comb(rows, len(chosen_rows)) * math.comb(columns, len(chosen_columns))
            if is_true(view, inside) and is_unlikely(ways, len(inside), view):
                return name, len(inside) / view.size
    views, candidates = [view], []
    if is_zero.ndim > 2:
        kernel = math.prod(is_zero.shape[2:])
        views.append(
            np.array([row.reshape(-1, kernel).T.ravel() for row in view]).reshape(view.shape)
        )
        candidates = [((1, kernel), view)]
    powers = [2**i for i in range(1, 9)]
    blocks = [(1, n) for n in powers] + [(n, n) for n in powers] + [(n, 1) for n in powers]
    best, share = (1, 1), int(np.count_nonzero(view)) / view.size
    for block, place in [*candidates, *itertools.product(blocks, views)]:
        if block[0] > rows or block[1] > columns:
            continue
        if math.prod(block) > math.prod(best) and (inside := elements_in_zero_blocks(place, block)):
            complete = place[: rows // block[0] * block[0], : columns // block[1] * block[1]]
            full = sum(i < complete.shape[0] and j < complete.shape[1] for i, j in inside)
            ways = math.comb(complete.size // math.prod(block), full // math.prod(block))
            if is_true(place, inside) and is_unlikely(ways, full, complete):
                best, share = block, len(inside) / view.size
    return f"{best[0]}x{best[1]}", share


def elements_in_zero_blocks(view: Mask, block: tuple[int, int]) -> Inside:
    rows, columns = view.shape
    inside = set()
    for top, left in itertools.product(range(0, rows, block[0]), range(0, columns, block[1])):
        elements = [
            (i, j)
            for i in range(top, min(top + block[0], rows))
            for j in range(left, min(left + block[1], columns))
        ]
        if all(view[element] for element in elements):
            inside.update(elements)
    return inside


def is_true(view: Mask, inside: Inside) -> bool:
    zeros = int(np.count_nonzero(view))
    return len(inside) >= rules.MIN_COVERAGE * zeros and (
        view.size - zeros >= rules.MIN_FILL * (view.size - len(inside))
    )


def is_unlikely(ways: int, inside: int, view: Mask) -> bool:
    zeros = int(np.count_nonzero(view))
    return ways * math.comb(view.size - inside, zeros - inside) < rules.MAX_CHANCE * math.comb(
        view.size, zeros
    )


def test_effective_macs_are_the_share_of_nonzero_weights_to_the_nearest_integer() -> None:
    assert effective_macs(1000, Sparsity(1, 3, "1x1", 1 / 3, None)) == 667
    assert effective_macs(1000, Sparsity(2, 3, "1x1", 2 / 3, None)) == 333
    assert effective_macs(10**18 + 1, Sparsity(0, 7, "dense", 0.0, None)) == 10**18 + 1
    assert effective_macs(5, Sparsity(4, 4, "all", 1.0, None)) == 0
    assert effective_macs(0, Sparsity(0, 0, "dense", 0.0, None)) == 0


@given(st.integers(0, 10**15), st.integers(0, 100), st.integers(0, 100))
def test_effective_macs_never_rise_with_the_zeros(macs: int, zeros: int, more: int) -> None:
    fewer, all_zeros = sorted((zeros, more))
    before = effective_macs(macs, Sparsity(fewer, 100, "1x1", 0.0, None))
    after = effective_macs(macs, Sparsity(all_zeros, 100, "1x1", 0.0, None))
    assert 0 <= after <= before <= macs
