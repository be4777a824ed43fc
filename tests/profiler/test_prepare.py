"""A model is prepared once for all its runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from pytest_modelperf.errors import BindingError, ModelError
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.inputs.given import InputTypes, read_given
from pytest_modelperf.profiler.prepare import Model, PairOf, prepare, prepare_pair
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.small_models import parse

TEXT = "g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }"
Array = npt.NDArray[np.float32]


def load(source: onnx.ModelProto | Path, **request: object) -> Model:
    return Model.load(source, ProfileRequest(**request), Extensions())  # type: ignore[arg-type]  # its fields


def test_a_function_that_makes_inputs_is_called_once_for_all_that_asks_for_them() -> None:
    asked: list[InputTypes] = []

    def make(types: InputTypes) -> Mapping[str, Array]:
        asked.append(types)
        return {"x": np.full((2, 4), 3.0, np.float32)}

    model = load(parse(TEXT), given=read_given(make))
    known = model.given_inputs
    prepared = prepare(model)
    assert prepared.given == known
    assert (prepared.feeds["x"].array == 3.0).all()
    assert asked == [{"x": ("float32", (2, 4))}]


def test_a_given_array_that_does_not_fit_is_refused_before_a_worker_starts() -> None:
    model = load(parse(TEXT), given=read_given(lambda _: {"x": np.zeros((3, 4), np.float32)}))
    with pytest.raises(BindingError, match="is 2x4, but"):
        prepare(model)


def test_weights_that_are_not_there_are_missed_before_a_worker_starts(tmp_path: Path) -> None:
    model = parse("g (float[2,4] x) => (float[2,4] y) { y = Mul(x, w) }", weights={"w": np.ones(4)})
    onnx.save(
        model, tmp_path / "m.onnx", save_as_external_data=True, location="w", size_threshold=0
    )
    bound = load(tmp_path / "m.onnx")
    (tmp_path / "w").unlink()
    with pytest.raises(ModelError, match="w"):
        prepare(bound)


def test_a_model_on_both_sides_is_prepared_once() -> None:
    model, setup = load(parse(TEXT)), Setup()
    pair = prepare_pair(PairOf(model, model, setup, setup))
    assert pair.before is pair.after
    other = prepare_pair(PairOf(load(parse(TEXT)), model, setup, setup))
    assert other.before is not other.after


@pytest.mark.parametrize(("batch_size", "is_copied"), [(2, False), (8, True)])
def test_the_copy_of_another_batch_has_names_for_all_nodes(
    batch_size: int, tmp_path: Path, *, is_copied: bool
) -> None:
    """The file has no names, so it alone needs a second copy."""
    onnx.save(parse(TEXT), tmp_path / "m.onnx")
    prepared = prepare(load(tmp_path / "m.onnx", batch_sizes=(batch_size,)))
    assert prepared.runs_as_copy == is_copied
    assert prepared.needs_names != is_copied
