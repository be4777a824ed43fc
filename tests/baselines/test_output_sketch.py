"""Sketches of outputs: what they show of a difference, and that they never show too much."""

from __future__ import annotations

import json
import math

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.baselines.output_sketch import digest_inputs, least_difference, sketch_tensors
from pytest_modelperf.baselines.records import TensorSketch
from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.model_in_worker import Sent
from tests.support.known import known

SIZES = (1, 10, 150, 1_000, 30_000)
# For one output among few, and the roots of a group that a sum may be away.
NUMBERS, ROOTS = 96, 6


def sent(array: npt.NDArray[np.generic]) -> Sent:
    return array.dtype.str, array.shape, array.tobytes()


def sketch(array: npt.NDArray[np.generic]) -> TensorSketch:
    return sketch_tensors({"y": sent(array)}, {"y"})["y"]


def outputs(size: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


def least(before: npt.NDArray[np.generic], after: npt.NDArray[np.generic]) -> float | None:
    return least_difference(sketch(before), sent(after))


@given(
    st.sampled_from(SIZES),
    st.integers(0, 1000),
    st.floats(1e-6, 10),
    st.sampled_from(["noise", "shift", "scale", "one"]),
)
def test_a_sketch_never_shows_more_than_the_largest_difference(
    size: int, seed: int, amount: float, kind: str
) -> None:
    before = outputs(size, seed)
    change = {
        "noise": amount * outputs(size, seed + 1),
        "shift": np.full(size, amount),
        "scale": amount * before,
        "one": amount * (np.arange(size) == seed % size),
    }[kind]
    after = (before + change).astype(np.float32)
    largest = float(np.abs(after.astype(np.float64) - before).max())
    assert known(least(before, after)) <= largest * (1 + 1e-6) + 1e-7 * float(np.abs(before).max())


@pytest.mark.parametrize("size", SIZES)
def test_a_difference_of_most_elements_is_shown_nearly_whole(size: int) -> None:
    before = outputs(size)
    assert least(before, before + np.float32(0.01)) == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize("size", SIZES)
def test_outputs_that_differ_in_a_tenth_of_the_elements_are_shown(size: int) -> None:
    """A sample of 96 misses it with a chance of 4 in 100,000."""
    before = outputs(size)
    after = before + np.float32(0.5) * (np.arange(size) % 10 == 0)
    assert known(least(before, after.astype(np.float32))) > 0.4


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(5))
def test_one_element_is_shown_by_the_share_that_its_group_allows(size: int, seed: int) -> None:
    before, after = outputs(size, seed), outputs(size, seed)
    after[seed % size] += 100.0
    # Groups are of other sizes by chance, but hardly twice as large as on average.
    group = 1 if size <= 2 * NUMBERS else 2 * size / NUMBERS + 10
    assert known(least(before, after)) >= 0.99 * 100.0 / min(group, ROOTS * math.sqrt(group))


@pytest.mark.parametrize("size", SIZES)
def test_rounding_stays_far_below_the_usual_limit(size: int) -> None:
    before = outputs(size)
    after = before * (1 + 1e-6 * outputs(size, 1))
    assert known(least(before, after.astype(np.float32))) < 1e-4 * float(np.abs(before).max())


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_one_whole_number_of_many_is_shown(dtype: npt.DTypeLike) -> None:
    before = np.zeros(30_000, dtype)
    after = before.copy()
    after[12_345] = 1
    assert least(before, after) == 1.0
    assert least(before, before) == 0.0


@given(st.sampled_from(SIZES), st.integers(0, 100))
def test_equal_outputs_show_nothing_after_they_were_stored(size: int, seed: int) -> None:
    before = outputs(size, seed)
    read = msgspec.json.decode(msgspec.json.encode(sketch(before)), type=TensorSketch)
    assert read == sketch(before)
    assert least_difference(read, sent(before)) == 0.0


def test_outputs_that_differ_in_more_than_values_have_no_figure() -> None:
    before = outputs(40)
    broken = before.copy()
    broken[3] = np.nan
    assert least(before, broken) is None
    assert least(before, before.reshape(4, 10)) is None
    assert least(before, before.astype(np.int64)) is None
    assert least(broken, broken) == 0.0


@pytest.mark.parametrize(
    ("field", "value"),
    [("dtype", "float31"), ("dtype", "object"), ("shape", [0]), ("shape", [2, 1])],
)
def test_a_sketch_that_no_recording_makes_is_refused(field: str, value: object) -> None:
    made = msgspec.to_builtins(sketch(outputs(3)))
    assert msgspec.convert(made, TensorSketch) == sketch(outputs(3))
    with pytest.raises(msgspec.ValidationError, match=r"dtype|more samples"):
        msgspec.convert(made | {field: value}, TensorSketch)


def test_the_largest_numbers_of_64_bits_can_be_stored() -> None:
    """A mask often holds them."""
    before = outputs(300).astype(np.float64)
    before[::2] = np.finfo(np.float64).min
    stored = sketch(before)
    assert msgspec.convert(msgspec.to_builtins(stored), TensorSketch) == stored
    assert least_difference(stored, sent(before)) == 0.0
    after = before.copy()
    after[1] += 1.0
    assert least_difference(stored, sent(after)) is not None


def test_outputs_of_another_precision_are_compared_by_value() -> None:
    before = np.array([0.5, 2.0], np.float32)
    assert least(before, before.astype(np.float16)) == 0.0


@pytest.mark.parametrize("count", [1, 3, 50])
def test_the_outputs_of_a_case_take_a_few_kilobytes(count: int) -> None:
    found = {f"y{n}": sent(outputs(30_000, n)) for n in range(count)}
    stored = sketch_tensors(found, found.keys())
    assert len(stored) == count
    size = len(json.dumps(msgspec.to_builtins(stored)))
    assert size < 4096 if count < 10 else size < 16384


def test_outputs_that_were_not_sent_or_not_asked_for_have_no_sketch() -> None:
    large = ("<f4", (1 << 30,), None)
    found = {"y": sent(outputs(4)), "large": large, "random": sent(outputs(4))}
    assert sketch_tensors(found, {"y", "large"}).keys() == {"y"}


def test_the_digest_of_inputs_changes_with_a_value() -> None:
    one, other = (Feed("float32", np.array(each, np.float32)) for each in ([1, 2], [1, 3]))
    assert digest_inputs({"x": one}) == digest_inputs({"x": one})
    assert digest_inputs({"x": one}) != digest_inputs({"x": other})
    assert digest_inputs({"x": one}) != digest_inputs({"z": one})
