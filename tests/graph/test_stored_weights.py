"""Weights are drawn alike if they have the same bytes, or are multiples of the same scales."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper

from pytest_modelperf.graph.model_file import ModelFile, open_model
from pytest_modelperf.graph.stored_tensors import walk_stored
from pytest_modelperf.graph.stored_weights import (
    NotedWeight,
    find_groups,
    read_codes,
    stored_number,
)
from pytest_modelperf.graph.weights.drawing import describe
from tests.support.graph_models import parse, random_floats
from tests.support.onnx_text import tensor_of


def _model(*tensors: TensorProto) -> onnx.ModelProto:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    model.graph.initializer.extend(tensors)
    return model


def _noted(file: ModelFile) -> list[NotedWeight]:
    noted = []
    for stored in walk_stored(file.proto):
        number = stored_number(stored.tensor)
        assert number is not None
        read = partial(read_codes, file, stored.tensor, number)
        noted.append(NotedWeight(stored, number, describe(number, tuple(stored.tensor.dims), read)))
    return noted


def _groups(
    *weights: npt.NDArray[Any] | TensorProto, are_scales: bool = False
) -> tuple[int | None, ...]:
    tensors = (
        each if isinstance(each, TensorProto) else numpy_helper.from_array(each, f"w{i}")
        for i, each in enumerate(weights)
    )
    file = open_model(_model(*tensors))
    return find_groups(file, [replace(each, is_scale=are_scales) for each in _noted(file)])


def _numbered(contents: Sequence[object]) -> tuple[int | None, ...]:
    """The groups of equal contents, numbered as their first members come."""
    firsts = [contents.index(content) for content in contents]
    repeated = [i for i in dict.fromkeys(firsts) if firsts.count(i) > 1]
    return tuple(repeated.index(first) + 1 if first in repeated else None for first in firsts)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from([(6, 8), (8, 6), (48,)]),
            st.sampled_from([np.float32, np.int32]),
        ),
        max_size=8,
    )
)
def test_the_groups_are_those_of_comparing_all_with_all(
    weights: list[tuple[int, tuple[int, ...], type[np.generic]]],
) -> None:
    """The contents are the same numbers in another order, so notes alone show no difference."""
    numbers = random_floats(48)
    arrays = [np.roll(numbers, by).view(dtype).reshape(dims) for by, dims, dtype in weights]
    assert _groups(*arrays) == _numbered(weights)


def test_data_is_the_same_in_raw_bytes_typed_fields_and_external_files(tmp_path: Path) -> None:
    values = random_floats(30, 40)
    outside = numpy_helper.from_array(values, "outside")
    path = tmp_path / "model.onnx"
    onnx.save(
        _model(outside, numpy_helper.from_array(values, "raw")),
        str(path),
        save_as_external_data=True,
        size_threshold=0,
    )
    model = onnx.load(str(path), load_external_data=False)
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(values, "raw"))
    typed = helper.make_tensor("typed", TensorProto.FLOAT, [30, 40], values.reshape(-1).tolist())
    assert typed.float_data
    model.graph.initializer.append(typed)
    path.write_bytes(model.SerializeToString())
    file = open_model(path)
    assert model.graph.initializer[0].data_location == TensorProto.EXTERNAL
    assert find_groups(file, _noted(file)) == (1, 1, 1)


def test_the_padding_of_small_numbers_does_not_count() -> None:
    values = np.arange(-5, 4).astype(ml_dtypes.int4)
    first, second = (tensor_of(values, name) for name in "ab")
    second.raw_data = first.raw_data[:-1] + bytes([first.raw_data[-1] | 0xF0])
    assert first.raw_data != second.raw_data
    assert _groups(first, second) == (1, 1)


def test_a_difference_in_the_last_piece_counts() -> None:
    """The weights have several pieces, and statistics that are equal to five digits."""
    values = random_floats(1 << 20)
    other = values.copy()
    other[-2:] = values[:-3:-1]
    arrays = (values, other, values)
    file = open_model(_model(*(numpy_helper.from_array(a, f"w{i}") for i, a in enumerate(arrays))))
    noted = _noted(file)
    assert noted[0].note == noted[1].note
    assert find_groups(file, noted) == (1, None, 1)


def test_weights_with_exact_notes_are_in_no_group() -> None:
    ones = np.ones((40, 40), np.float32)
    assert _groups(ones, ones, np.tril(ones), np.tril(ones)) == (None,) * 4


def test_only_weights_with_the_same_note_are_read_again(tmp_path: Path) -> None:
    tensors = (numpy_helper.from_array(random_floats(30, 40, seed=i), f"w{i}") for i in range(3))
    path = tmp_path / "model.onnx"
    onnx.save(
        _model(*tensors), str(path), save_as_external_data=True, location="data", size_threshold=0
    )
    file = open_model(path)
    noted = _noted(file)
    (tmp_path / "data").unlink()
    assert find_groups(file, noted) == (None,) * 3


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(1e-3, 1e3)), max_size=8))
def test_scales_are_in_a_group_with_their_multiples(scales: list[tuple[int, float]]) -> None:
    bases = [np.abs(random_floats(300, seed=seed)) + np.float32(0.01) for seed in range(3)]
    arrays = [bases[base] * np.float32(factor) for base, factor in scales]
    assert _groups(*arrays, are_scales=True) == _numbered([base for base, _ in scales])


def test_only_vectors_of_positive_scales_are_multiples() -> None:
    scales = np.abs(random_floats(300)) + np.float32(0.01)
    with_nan = np.where(scales > 1, np.float32(np.nan), scales)
    arrays = [scales, 2 * scales, -scales, with_nan, scales.reshape(30, 10)]
    assert _groups(*arrays) == (None,) * 5
    assert _groups(*arrays, are_scales=True) == (1, 1, None, None, None)
